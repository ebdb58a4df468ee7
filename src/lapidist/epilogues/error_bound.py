"""Bounds of the errors of traced functions: values in doubles by NumPy, each with a bound of its distance
from one that was computed in another type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from lapidist.dtypes import TYPES
from lapidist.epilogues.interpreter import evaluate
from lapidist.epilogues.numeric import NUMPY, NumPy
from lapidist.epilogues.operations import OPERATIONS, Operation
from lapidist.epilogues.passes import (
    AMAX,
    FACTORS,
    QUANTISED,
    REDUCTIONS,
    SUM,
    factors,
    reduced,
    roundings,
    spread_out,
)
from lapidist.epilogues.steps import Function


class Near(NamedTuple):
    """A value in doubles, and a bound of its distance from one computed in another type."""

    value: Any
    off: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return np.shape(self.value)


def near(function: Function, sums: Near, operands: Mapping[str, Any], dtype: str) -> list[Near]:
    """The results of sums with errors, computed in `dtype`."""
    value = np.asarray(sums.value, np.float64)
    with np.errstate(all="ignore"):
        return evaluate(function, Near(value, np.broadcast_to(sums.off, value.shape)), operands, Bound(dtype))


class Bound(NumPy):
    """NumPy with bounds of errors, for results in `dtype`. Seeds and numbers of elements are exact."""

    def __init__(self, dtype: str) -> None:
        self.library = np
        self.dtype, self.u, self.spacing = dtype, TYPES[dtype].roundoff, TYPES[dtype].spacing
        self.operations = {
            name: partial(self.applied, row, NUMPY.operations[name]) for name, row in OPERATIONS.items()
        }

    def applied(self, row: Operation, function: Callable[..., Any], *args: Any) -> Near:
        """A result with the operation's roundings. The bound is infinite where a result may be beyond the
        type's largest number."""
        value = function(*(arg.value if isinstance(arg, Near) else arg for arg in args))
        off = row.spread(value, *args) if row.spread else between_ends(function, value, *args)
        if row.roundings:
            off = off + row.roundings * (self.u * (row.size(value, *args) + off) + self.spacing)
            off = np.where(abs(value) + off <= np.finfo(self.dtype).max, off, np.inf)
        return Near(value, off)

    # ---- where values come from ----

    def constant(self, number: float, like: Any) -> Near:
        return self.operand(number, like)

    def operand(self, value: Any, like: Any) -> Near:
        """An operand, rounded to the type of the computation."""
        value = np.asarray(value, np.float64)
        exact = value.astype(np.float32) == value if self.dtype == "float32" else value == value
        return Near(value, np.where(exact, 0.0, self.u * abs(value) + self.spacing))

    def column(self, sums: Near, which: int) -> Near:
        return Near(*(super(Bound, self).column(part, which) for part in sums))

    # ---- results ----

    def joined(self, first: Near, second: Near | None, shape: tuple[int, ...]) -> Near:
        pairs = zip(first, second or (None, None), strict=True)
        return Near(*(super(Bound, self).joined(*pair, shape) for pair in pairs))

    def finished(self, values: Near, then: str, dtype: str) -> Near:
        if not then:
            return values
        if then in REDUCTIONS:
            return self.reduced(values, *REDUCTIONS[then])
        value, off = values
        kind = dtype if then == QUANTISED else then.removeprefix(FACTORS)
        scales = factors(value, kind, NUMPY)
        of_scales = 2 * TYPES["float32"].roundoff * scales
        if off.max(initial=0) > 0:
            of_scales = factors(off, kind, NUMPY) + of_scales
        if then != QUANTISED:
            return Near(scales, of_scales)
        scale, of_scale = (spread_out(groups, value.shape[-1], NUMPY) for groups in (scales, of_scales))
        result = value / scale
        bound = (off + abs(result) * of_scale) / np.maximum(scale - of_scale, 0) + self.u * abs(result)
        return Near(result, bound)

    def reduced(self, values: Near, over: str, operation: str) -> Near:
        value, off = values
        result = reduced(value, over, operation, NUMPY)
        if operation != SUM:
            return Near(result, reduced(off, over, AMAX, NUMPY))
        spread, count = reduced(off, over, SUM, NUMPY), value.size // max(result.size, 1)
        size = reduced(abs(value), over, SUM, NUMPY) + spread
        bound = spread + roundings(count) * self.u * size
        return Near(result, np.where(size < np.finfo(self.dtype).max, bound, np.inf))


def between_ends(function: Callable[..., Any], result: Any, x: Near, *more: Any) -> Any:
    """The bound of a function that never falls, from the ends of the argument's."""
    low, high = function(x.value - x.off, *more), function(x.value + x.off, *more)
    return np.where(x.off > 0, np.maximum(high - result, result - low), 0)
