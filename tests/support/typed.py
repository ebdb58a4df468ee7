"""Every registered kernel with every type that it multiplies, and fresh NumPy operands of any type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lapidist.dtypes import TF32, TYPES, element_of, numpy_dtype
from lapidist.frameworks.arrays import Operand
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.ladder import BByColumns, CopiedRows
from lapidist.kernels.registry import KERNELS
from lapidist.kernels.wgmma.rungs import CopiedLines

Array = np.ndarray[Any, Any]
TYPED = [(kernel, math) for kernel in KERNELS for math in kernel.types.maths]
TYPED_IDS = [f"{kernel.name}-{math}" for kernel, math in TYPED]


def plain(kernel: Kernel) -> str:
    """The math that a kernel is tested in where one is enough."""
    return "float32" if "float32" in kernel.types.maths else "float16"


def represented(kernel: Kernel, math: str) -> bool:
    """Production kernels in all types, others in a plain one."""
    return kernel.kind == "production" or math == plain(kernel)


def by_turns(kernel: Kernel, math: str) -> bool:
    """The others also in types that have a config of their own, and in one more, another for each."""
    maths = kernel.types.maths
    own = math in kernel.by_dtype or math == maths[KERNELS.index(kernel) % len(maths)]
    return represented(kernel, math) or own


def surveyed_but(kept: Callable[[Kernel, str], bool]) -> list[Any]:
    """Every kernel in every type; `make test` runs those that are kept."""
    return [
        pytest.param(kernel, math, marks=[] if kept(kernel, math) else [pytest.mark.survey], id=name)
        for (kernel, math), name in zip(TYPED, TYPED_IDS, strict=True)
    ]


SURVEYED, PLAIN_SURVEYED = surveyed_but(by_turns), surveyed_but(represented)


def takes(kernel: Kernel, m: int, n: int, k: int) -> bool:
    """Whether a kernel can be given the product: B by columns cannot be told from B by rows where it has one
    of either. Small matrices are small.
    """
    if kernel.only_small:
        return max(m, n) <= kernel.configs_for("float32")[-1][0].bm
    return not isinstance(kernel.family, BByColumns) or min(k, n) > 1


def precision_of(math: str) -> str:
    return TF32 if math == TF32 else "ieee"


def fresh(rng: np.random.Generator, shape: tuple[int, ...], math: str) -> Array:
    """Normal numbers; integers of 8 bits over their whole range."""
    dtype = numpy_dtype(element_of(math).name)
    if element_of(math).accumulators == ("int32",):
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def whole(rng: np.random.Generator, shape: tuple[int, ...], math: str) -> Array:
    """Small whole numbers, whose products and sums are exact in every type."""
    return rng.integers(0 if math == "uint8" else -4, 5, shape).astype(numpy_dtype(element_of(math).name))


def poisoned(shape: tuple[int, ...], output: str) -> Array:
    """What must be overwritten: NaN, or a number that no product here gives."""
    return np.full(shape, np.nan if TYPES[output].roundoff else 99).astype(numpy_dtype(output))


def output_of(math: str, own: bool) -> str:
    """The operands' type, where a kernel writes no other, else the usual one."""
    element = element_of(math)
    return element.name if own else element.outputs[0]


def aligned(array: Array) -> Array:
    """The same numbers on a multiple of 64 bytes, as GPU frameworks lay out theirs; NumPy's lie on 16."""
    raw = np.empty(array.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def rows_on_16_bytes(array: Array) -> Array:
    """The same numbers with rows that start on 16 bytes."""
    step = 16 // array.itemsize
    wide = np.zeros((array.shape[0], -(-max(array.shape[1], 1) // step) * step), array.dtype)
    wide[:, : array.shape[1]] = array
    return aligned(wide)[:, : array.shape[1]]


def laid_for(kernel: Kernel, a: Array, b: Array) -> tuple[Array, Array]:
    """The same numbers as the kernel takes them: Hopper's rungs with lines on 16 bytes, along k in all but
    16-bit types.
    """
    hopper = isinstance(kernel.family, CopiedLines)
    if hopper and b.itemsize != 2:
        return rows_on_16_bytes(a), rows_on_16_bytes(b.T).T
    if hopper or isinstance(kernel.family, CopiedRows):
        return rows_on_16_bytes(a), rows_on_16_bytes(b)
    return aligned(a), np.asfortranarray(b) if isinstance(kernel.family, BByColumns) else aligned(b)


def ones(*shape: int, dtype: str = "float32") -> Array:
    return np.ones(shape, dtype)


def operand_on_gpu(name: str, ordinal: int = 0) -> Operand:
    return Operand(name, 4096, (4, 4), (4, 1), "float32", ordinal, "torch", None)
