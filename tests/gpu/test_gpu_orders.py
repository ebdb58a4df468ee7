"""On a GPU: plans of one SumOrder give the same bits, by every kernel, on every Hopper chip."""

from __future__ import annotations

from typing import Any

import pytest

from order_cases import CASES, Case, answers_of, recorded

pytestmark = pytest.mark.gpu
ANSWERS = recorded()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_order_one_result(torch: Any, case: Case) -> None:
    """By the plans with which another chip computed what orders.json has."""
    answer = ANSWERS[str(case)]
    assert set(answers_of(torch, case, answer["plans"])) == {(answer["sums"], answer["digest"])}
