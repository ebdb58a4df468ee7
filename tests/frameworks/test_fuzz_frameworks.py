"""A fixed dose of random calls on tensors of torch and on arrays of JAX, in host memory and in the
machine.
"""

from __future__ import annotations

import pytest

from lapidist_lab.fuzz.parallel_runs import Extent, in_processes
from lapidist_lab.fuzz.seeded_cases import Run

pytestmark = pytest.mark.frameworks


@pytest.mark.parametrize(
    ("place", "framework", "cases"), [("host", "torch", 400), ("host", "jax", 100), ("machine", "torch", 24)]
)
def test_random_calls(place: str, framework: str, cases: int) -> None:
    found = list(in_processes(Run(place, 2301, (framework,)), Extent(cases, None), 1))
    assert [outcome.words for outcome in found if outcome.verdict == "WRONG"] == []
    assert len(found) == cases
