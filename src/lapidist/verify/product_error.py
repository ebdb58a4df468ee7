"""How far a product is from the exact one, element by element, beside the bound of how it was summed."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from lapidist.calls.argument_rules import require_precision
from lapidist.dtypes import Precision, bits_in
from lapidist.errors import ArgumentError, DTypeError, ShapeError
from lapidist.frameworks.arrays import framework_of
from lapidist.verify.real_parts import is_complex, parts_in_turn
from lapidist.verify.sum_bound import Expected, expect, to_float64


@dataclass(frozen=True, slots=True)
class Report:
    """`ratio` is the largest error over its bound, which is right up to 1. It is that of the element `where`,
    whose value is `got`, not `expected`; its error is `error`, and `bound` is allowed. `largest` is the
    largest error of all elements, `typical` the root of their mean square, relative to that of the product.
    Of complex numbers, elements are their parts in turn.
    """

    ratio: float
    where: tuple[int, ...]
    got: float
    expected: float
    error: float
    bound: float
    largest: float
    typical: float

    @property
    def ok(self) -> bool:
        return self.ratio <= 1.0

    def __str__(self) -> str:
        verdict = "within the bound" if self.ok else "BEYOND the bound"
        return (
            f"{verdict}: the worst element {self.where} is {self.got:.9g}, exactly {self.expected:.9g}. It is"
            f" off by {self.error:.3g}, {self.ratio:.3g} of the {self.bound:.3g} that is allowed. The largest"
            f" error is {self.largest:.3g}, the typical one {self.typical:.3g} of the product"
        )


def report(
    a: Any,
    b: Any,
    d: Any,
    c: Any = None,
    *,
    alpha: complex = 1.0,
    beta: complex = 0.0,
    scale_a: Any = None,
    scale_b: Any = None,
    precision: Precision = "ieee",
    plan: Any = None,
) -> Report:
    """How far d is from alpha a b + beta c, which is computed in float64.

    Parameters
    ----------
    a, b, d, c : arrays of one framework
        The operands as they are multiplied (transposed where the call said so), and the result.
    alpha, beta, scale_a, scale_b, precision
        Those of the call. With a `lapidist.Accuracy`, elements are held to the bits that were asked for.
    plan : Gemm, optional
        What `lapidist.plan` returned for the call. Its kernel's bound is the one that counts; without it,
        that of any kernel.

    Returns
    -------
    Report
        Its `ok` says whether every element is within its bound. Print it for the worst one.

    Examples
    --------
    >>> import numpy as np
    >>> import lapidist
    >>> a, b = np.random.default_rng(0).standard_normal((2, 32, 32)).astype(np.float32)
    >>> lapidist.verify.report(a, b, lapidist.matmul(a, b)).ok
    True
    """
    named = {"a": a, "b": b, "d": d, "c": c}
    a, b, d, c = (x if x is None else readable(name, x) for name, x in named.items())
    require_product(a, b)
    if not bits_in(precision):
        require_precision(precision)
    how = summed(a, precision, plan, scale_a, scale_b)
    with np.errstate(invalid="ignore", over="ignore"):
        expected = expect(a, b, c, alpha, beta, out_dtype=d.dtype, **how)
        return judged(expected, d)


def judged(expected: Expected, d: Any) -> Report:
    d = parts_in_turn(d) if is_complex(d) else d
    if tuple(expected.reference.shape) != tuple(d.shape):
        raise ShapeError(
            f"d: must have the shape of the product, {tuple(expected.reference.shape)}; got {tuple(d.shape)}."
            " Pass a and b as they are multiplied"
        )
    expected, d = without_same_specials(expected, to_float64(d))
    verdict, where = expected.judge(d), expected.judge(d).where
    error = abs(d - expected.reference)
    exact = expected.bound is None or not where
    return Report(
        verdict.worst,
        where,
        float(d[where]) if where else 0.0,
        float(expected.reference[where]) if where else 0.0,
        float(error[where]) if where else 0.0,
        0.0 if exact else float(expected.bound[where]),
        float(error.max()) if where else 0.0,
        typical_error(error, expected.reference) if where else 0.0,
    )


def readable(name: str, array: Any) -> Any:
    """NumPy's and torch's arrays as they are, others on the host."""
    if framework_of(array) in ("numpy", "torch"):
        return array
    result = array.get() if framework_of(array) == "cupy" else np.asarray(array)
    if result.dtype == object:
        raise DTypeError(
            f"{name}: must be an array of numbers; got {type(array).__name__}. Pass numbers, such as"
            " lapidist.quantised.unpack(weight)"
        )
    return result


def require_product(a: Any, b: Any) -> None:
    rows = b.shape[-2:][0] if b.ndim else None
    if a.ndim == 0 or rows != a.shape[-1]:
        raise ShapeError(
            f"b: must have as many rows as a has columns; got a of shape {tuple(a.shape)} and b of"
            f" {tuple(b.shape)}. Pass a and b as they are multiplied"
        )


def without_same_specials(expected: Expected, d: Any) -> tuple[Expected, Any]:
    """Elements that are infinite or NaN as they must be count as 0, which they are not off by."""
    reference = expected.reference
    same = (d == reference) | ((d != d) & (reference != reference))
    special = same & ~(abs(reference) < float("inf"))
    if not special.any():
        return expected, d
    where = np.where if framework_of(special) == "numpy" else importlib.import_module("torch").where
    bound = None if expected.bound is None else where(special, 1.0, expected.bound)
    return Expected(where(special, 0.0, reference), bound), where(special, 0.0, d)


def summed(a: Any, precision: str, plan: Any, scale_a: Any, scale_b: Any) -> dict[str, Any]:
    """How products were summed, as `expect` is told."""
    known = {"precision": precision, "scale_a": scale_a, "scale_b": scale_b}
    if plan is None:
        along_k = any(len(getattr(x, "shape", ())) == 2 for x in (scale_a, scale_b))
        return {**known, "promoted": along_k}
    chosen = getattr(plan, "plan", None)
    if chosen is None:
        raise ArgumentError(
            f"plan: must be what lapidist.plan returned for a kernel; got {type(plan).__name__}. Leave it out"
        )
    problem = chosen.problem
    unit = None if chosen.kernel.wmma else chosen.kernel.unit
    known |= {"precision": problem.precision, "unit": unit, "accumulator": problem.accumulator}
    return {**known, "promoted": problem.scaling.promoted}


def typical_error(error: Any, reference: Any) -> float:
    size = float((reference * reference).mean()) ** 0.5
    off = float((error * error).mean()) ** 0.5
    return off / size if size else off
