"""The same product on the host: NumPy's BLAS, with the semantics that the kernels have."""

from __future__ import annotations

from typing import Any

import numpy as np

from lapidist.problem import ACCUMULATORS

Array = np.ndarray[Any, Any]


def multiply(a: Array, b: Array, c: Array | None, out: Array, alpha: float, beta: float) -> None:
    """out = alpha a b + beta c. Half is summed in float; beta = 0 never reads c; alpha = 0 never reads a and b."""
    accumulator = np.dtype(ACCUMULATORS[a.dtype.name])
    if alpha == 0 or a.shape[-1] == 0:
        result = np.zeros(out.shape, accumulator)
    elif alpha == 1 and beta == 0 and a.dtype == accumulator and out.flags.c_contiguous:
        np.matmul(a, b, out=out)
        return
    else:
        result = np.matmul(a.astype(accumulator, copy=False), b.astype(accumulator, copy=False))
        if alpha != 1:
            result *= accumulator.type(alpha)
    if beta != 0 and c is not None:
        result = result + accumulator.type(beta) * c.astype(accumulator, copy=False)
    with np.errstate(over="ignore"):
        out[...] = result
