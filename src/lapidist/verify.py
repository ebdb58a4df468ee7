"""Is a result right? One reference (float64), one bound for each element, derived here and nowhere else.

    |d - ref| <= c * S + u_out * |ref|,   S = |alpha| |A| |B| + |beta| |C|

u is the unit roundoff of the accumulator. A sum of k products with one rounding each (fused multiply-add, round to nearest)
is off by at most k u S. Rounding errors of fresh random data are independent and of mean zero, so the sum of k of them
exceeds lambda sqrt(k) u S with probability 2 exp(-lambda^2 / 2) (Higham and Mary 2019, "A new approach to probabilistic
rounding error analysis"): lambda = 8 lets one element in 4e13 fail. So c = u (min(k, 8 sqrt(k)) + 2), the 2 for alpha and
beta, and u_out once for the output. It is sharp enough to see one lost product: that is off by about S / k, and the bound
lies below it up to k = 16000 in float.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from lapidist.problem import ACCUMULATORS

LAMBDA = 8.0
UNIT_ROUNDOFF = {"float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}
SMALLEST = {"float16": 2.0**-24, "float32": 2.0**-149, "float64": 2.0**-1074}  # spacing of subnormal numbers


@dataclass(frozen=True, slots=True)
class Verdict:
    """`worst` is the largest error over its bound: right up to 1. NaN counts as infinitely wrong."""

    worst: float
    where: tuple[int, ...]

    @property
    def ok(self) -> bool:
        return self.worst <= 1.0


def accumulation_bound(k: int, dtype: str) -> float:
    """c: the error of the sum relative to S."""
    u = UNIT_ROUNDOFF[ACCUMULATORS[dtype]]
    return u * (min(k, LAMBDA * math.sqrt(k)) + 2)


def judge(d: Any, a: Any, b: Any, c: Any = None, alpha: float = 1.0, beta: float = 0.0, *, exact: bool = False) -> Verdict:
    """Compare D with the float64 product. Arrays are all NumPy or all torch; `exact` asks for equality (integer values)."""
    dtype = name_of(d.dtype)
    a64, b64 = to_float64(a), to_float64(b)
    reference, scale = alpha * (a64 @ b64), abs(alpha) * (abs(a64) @ abs(b64))
    if beta != 0:
        c64 = to_float64(c)
        reference, scale = reference + beta * c64, scale + abs(beta) * abs(c64)
    error = abs(to_float64(d) - reference)
    u_out = UNIT_ROUNDOFF[dtype]
    bound = accumulation_bound(a.shape[-1], dtype) * scale + u_out * abs(reference) + SMALLEST[dtype]
    ratio = error / (bound * 0 + SMALLEST["float64"]) if exact else error / bound
    return worst_of(ratio)


def worst_of(ratio: Any) -> Verdict:
    """The largest ratio and where it is; NaN is worse than any number."""
    if math.prod(ratio.shape) == 0:
        return Verdict(0.0, ())
    ratio = ratio.nan_to_num(nan=math.inf) if hasattr(ratio, "nan_to_num") else _nan_to_inf(ratio)
    flat = int(ratio.argmax())
    where = []
    for extent in reversed(ratio.shape):
        where.append(flat % extent)
        flat //= extent
    where.reverse()
    return Verdict(float(ratio[tuple(where)]), tuple(where))


def _nan_to_inf(ratio: Any) -> Any:
    import numpy as np

    return np.where(np.isnan(ratio), math.inf, ratio)


def name_of(dtype: Any) -> str:
    """float32 for numpy.dtype('float32') and for torch.float32."""
    return str(dtype).rpartition(".")[2]


def to_float64(array: Any) -> Any:
    return array.double() if hasattr(array, "double") else array.astype("float64")
