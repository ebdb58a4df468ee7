"""What an H200 computed in an order: plans say that order on each chip, and the machine gives those bits."""

from __future__ import annotations

import numpy as np
import pytest

import lapidist
from lapidist.device import chip
from lapidist.kernels.production import kernel_named
from lapidist.planning.plans import make_plan
from lapidist.schedule.sharing_choice import Sharing
from order_cases import CASES, TINY, Case, as_asked, digest, operands, plan_of, recorded
from same_sums import Product

ANSWERS = recorded()
IN_THE_MACHINE = [case for case in CASES if case.shape == TINY]
EXACT = [case for case in CASES if case.math == "int8"]


def test_every_case_is_recorded() -> None:
    assert list(ANSWERS) == [str(case) for case in CASES]
    assert sum(len(answer["plans"]) for answer in ANSWERS.values()) > 300


def test_what_is_recorded_sums_so_on_both_chips() -> None:
    """Else digests would be compared of different orders."""
    for case in CASES:
        answer = ANSWERS[str(case)]
        for entry in answer["plans"]:
            asked = as_asked(entry)
            plan = plan_of(case, **asked)
            choices = kernel_named(asked["kernel"]), asked["config"], Sharing(asked["schedule"])
            others = make_plan(plan.callers_problem, chip("h100"), *choices)
            assert str(plan.sum_order) == str(others.sum_order) == answer["sums"], (case, entry)


@pytest.mark.parametrize("case", EXACT, ids=str)
def test_integers_are_exact(case: Case) -> None:
    a, b = (each.astype(np.float64) for each in operands(case))  # which sums them exactly
    assert digest((a @ b).astype(np.int32)) == ANSWERS[str(case)]["digest"]


@pytest.mark.often(2)
@pytest.mark.parametrize("case", IN_THE_MACHINE, ids=str)
def test_the_machine_gives_the_chips_bits(case: Case) -> None:
    a, b = operands(case)
    asked = as_asked(ANSWERS[str(case)]["plans"][0])
    gemm = lapidist.plan(a, b, device="machine", **asked, **case.options)
    assert isinstance(gemm, lapidist.Gemm)
    assert digest(Product(case.math, a, b).bits(gemm)) == ANSWERS[str(case)]["digest"]
