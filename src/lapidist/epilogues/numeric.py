"""Traced functions in NumPy: the host backend's, and the reference for kernels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lapidist.epilogues import interpreter
from lapidist.epilogues.erf import erf
from lapidist.epilogues.interpreter import Namespace
from lapidist.epilogues.philox import LOW, WORD, philox
from lapidist.epilogues.steps import Function

Array = np.ndarray[Any, Any]


def gelu(x: Any) -> Any:
    """x times the probability that a normal number is below it; 0 at minus infinity, its limit."""
    return np.where(np.isneginf(x), x.dtype.type(0), 0.5 * x * (1 + erf(x * math.sqrt(0.5))))


class NumPy(Namespace):
    def __init__(self) -> None:
        super().__init__(
            np,
            maximum=np.maximum,
            minimum=np.minimum,
            erf=erf,
            gelu=gelu,
            sigmoid=lambda x: 1 / (1 + np.exp(-x)),
            rsqrt=lambda x: 1 / np.sqrt(x),
        )

    def constant(self, number: float, like: Any) -> Any:
        return like.dtype.type(number)

    def operand(self, value: Any, like: Any) -> Any:
        return np.asarray(value).astype(like.dtype)

    def seed(self, value: Any) -> Any:
        return np.asarray(value).astype(np.uint64)

    def positions(self, shape: tuple[int, ...], like: Any) -> Any:
        return np.arange(math.prod(shape), dtype=np.uint64).reshape(shape)

    def first_word(self, seed: Any, position: Any) -> Any:
        zero = np.uint64(0)
        return philox((position & LOW, position >> WORD, zero, zero), (seed & LOW, seed >> WORD))[0]

    def broadcast_to(self, values: Any, shape: tuple[int, ...]) -> Any:
        """np.broadcast_to where the shape changes; a call takes as long as two operations on 64 x 64."""
        return values if np.shape(values) == shape else np.broadcast_to(values, shape)

    def sum(self, values: Any, axis: int | None) -> Any:
        """The sum in doubles, in the same order for any strides."""
        total = np.ascontiguousarray(along(values, axis)).sum(-1, np.float64)
        return np.asarray(total).astype(values.dtype)

    def max(self, values: Any, axis: int | None, nothing: float) -> Any:
        return np.asarray(np.max(along(values, axis), -1, initial=nothing))


def along(values: Array, axis: int | None) -> Array:
    """The values with an axis last; None: with all axes as one."""
    return values.reshape(-1) if axis is None else values.swapaxes(-1, axis)


NUMPY = NumPy()


def evaluate(function: Function, sums: Array, operands: Mapping[str, Any]) -> list[Array]:
    with np.errstate(all="ignore"):
        return interpreter.evaluate(function, sums, operands, NUMPY)


def stored(values: Array, dtype: str) -> Array:
    with np.errstate(over="ignore"):
        result: Array = interpreter.stored(values, dtype, NUMPY)
        return result
