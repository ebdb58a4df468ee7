"""Functions that an epilogue calls: those that call themselves, and values that belong to another trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.epilogues.expressions import Scalar, Tape
from lapidist.epilogues.steps import SCALAR, Parameter
from lapidist.errors import ArgumentError


def halved(value: Any, times: int) -> Any:
    return value if times == 0 else halved(value * 0.5, times - 1)


@lapidist.epilogue
def eighth(acc: Any) -> Any:
    return halved(acc, 3)


def test_an_inner_function_may_call_itself() -> None:
    a = np.full((2, 2), 4.0, np.float32)
    np.testing.assert_array_equal(lapidist.matmul(a, a, epilogue=eighth), np.full((2, 2), 4.0))


def test_a_seed_of_another_function_is_refused() -> None:
    """Its number of a step would name whatever this function has there."""
    mine, other = (Tape(name).operand(Parameter("seed", SCALAR), Scalar) for name in ("mine", "other"))
    mine.tape.seed(mine)
    with pytest.raises(ArgumentError, match=r"^seed: must be a Scalar or a captured integer"):
        mine.tape.seed(other)
