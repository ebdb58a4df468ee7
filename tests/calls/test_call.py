"""The value that holds what a caller said, and what a call costs that repeats."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.calls.call import Call
from lapidist.calls.operation import Factors, Operation, Routing
from lapidist.epilogues import bias_relu

A, B = np.ones((4, 8), np.float32), np.ones((8, 6), np.float32)


def test_what_a_caller_said_does_not_change() -> None:
    call = Call(A, B, None, None, Operation())
    with pytest.raises(FrozenInstanceError):
        call.a = B  # type: ignore[misc]


@pytest.mark.parametrize(
    ("operation", "dtype", "parts"),
    [
        (Operation(), "float32", []),
        (Operation(routing=Routing(gather_a=np.array([0, 1]))), "float32", ["IndexOperands"]),
        (Operation(alpha=np.ones(1, np.float32)), "float32", ["IndexOperands", "ScalarOperands"]),
        (Operation(factors=Factors(2.0)), lapidist.dtypes.FP8[0], ["FactorOperands"]),
        (Operation(epilogue=bias_relu(bias=np.ones(6))), "float32", ["EpilogueOperands"]),
    ],
    ids=str,
)
def test_the_operation_decides_which_parts_are_bound(
    operation: Operation, dtype: str, parts: list[str]
) -> None:
    import ml_dtypes  # noqa: F401  # NumPy knows 8-bit floats by it

    a, b = A.astype(dtype), B.astype(dtype)
    bound = Call(a, b, None, None, operation).bound()
    assert [type(part).__name__ for part in bound.parts] == parts


def calls_of(product: Callable[[], Any]) -> int:
    """How many functions of Python a call takes, the lambda around it not counted."""
    entered = []
    product()
    sys.setprofile(lambda frame, event, _: entered.append(frame) if event == "call" else None)
    try:
        product()
    finally:
        sys.setprofile(None)
    return len(entered) - 1


def test_what_repeats_on_the_host_goes_through_few_functions() -> None:
    """No value is made of a call that NumPy takes at once."""
    out = np.empty((4, 6), np.float32)
    assert calls_of(lambda: lapidist.matmul(A, B)) <= 2
    assert calls_of(lambda: lapidist.matmul(A, B, out=out)) <= 2
    assert calls_of(lambda: lapidist.gemm(A, B, out, beta=1.0, out=out)) <= 9
