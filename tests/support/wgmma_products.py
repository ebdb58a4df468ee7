"""Products for the wgmma kernels in the machine: whole numbers in any layout, multiplied and judged."""

from __future__ import annotations

from typing import Any

import numpy as np

import lapidist
from lapidist.dtypes import numpy_dtype

Array = np.ndarray[Any, Any]


def whole(shape: tuple[int, ...], seed: int, dtype: str) -> Array:
    low = 0 if dtype.startswith("u") else -4
    return np.random.default_rng(seed).integers(low, 5, shape).astype(numpy_dtype(dtype))


def lying(values: Array, layout: str, gap: int = 0) -> Array:
    """The same matrix with rows or columns that touch, `gap` elements of something else between them."""
    turned = values if layout == "row" else values.swapaxes(-1, -2)
    filler = 77 if values.dtype.kind in "iu" else np.nan
    full = np.full((*turned.shape[:-1], turned.shape[-1] + gap), filler, values.dtype)
    full[..., : turned.shape[-1]] = turned
    found = full[..., : turned.shape[-1]]
    return found if layout == "row" else found.swapaxes(-1, -2)


def multiply(
    a: Array, b: Array, c: Array | None = None, *, kernel: str, beta: float = 0.0, **more: Any
) -> Array:
    result: Array = lapidist.gemm(a, b, c, alpha=2.0, beta=beta, kernel=kernel, device="machine", **more)
    return result


def check(
    d: Array, a: Array, b: Array, c: Array | None = None, beta: float = 0.0, alpha: float = 2.0
) -> None:
    exact = alpha * (a.astype("f8") @ b.astype("f8")) + (0.0 if c is None else beta * c.astype("f8"))
    np.testing.assert_allclose(d.astype("f8"), exact, rtol=2**-7 if d.dtype.itemsize == 2 else 0)


def operands(math: str, m: int, n: int, k: int) -> tuple[Array, Array, dict[str, Any]]:
    dtype = "float32" if math == "tf32" else math
    more = {"precision": "tf32"} if math == "tf32" else {}
    return whole((m, k), 1, dtype), whole((k, n), 2, dtype), more
