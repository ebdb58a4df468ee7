"""The tensor-core kernels in the machine, in every type they take: exact on small whole numbers, ragged, NaN
around them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from in_turns import sampled
from lapidist import machine
from lapidist.build.compiler import compile_kernel
from lapidist.kernels.ladder import LADDER_PARAMETERS
from lapidist.kernels.registry import kernel_named
from lapidist.kernels.simt import SIMT_PARAMETERS
from lapidist.launch import Launch, Memory, ParameterBlock

Array = np.ndarray[Any, Any]
ELEMENTS = {
    "half": np.float16,
    "__nv_bfloat16": ml_dtypes.bfloat16,
    "float": np.float32,
    "double": np.float64,
    "int8": np.int8,
    "uint8": np.uint8,
    "__nv_fp8_e4m3": ml_dtypes.float8_e4m3fn,
    "__nv_fp8_e5m2": ml_dtypes.float8_e5m2,
}
OUTPUTS = {"int8": np.int32, "uint8": np.int32, "__nv_fp8_e4m3": np.float32, "__nv_fp8_e5m2": np.float32}
C_TYPES = {"int8": "signed char", "uint8": "unsigned char"}
MATHS = {"float": "tf32"}
SCALARS = {"double": "f64", "int8": "i32", "uint8": "i32"}
WMMA_TYPES = ("half", "__nv_bfloat16", "float", "double", "int8", "uint8")
SHAPES = ((5, 3, 7), (33, 65, 17), (130, 257, 100))
SKEW_BYTES = PATCH_PAD = 16
PERSISTENT = ("wmma_shared", "wmma_beta_first")


@dataclass(frozen=True)
class Shape:
    """What the config of a kernel comes to for one type: tile, threads, dynamic shared bytes."""

    bm: int
    bn: int
    threads: int
    shared_bytes: int


def wmma_shape(element: str, staged: bool) -> Shape:
    size = np.dtype(ELEMENTS[element]).itemsize
    side = 8 if element == "double" else 16
    if not staged:
        return Shape(4 * side, 4 * side, 512, 0)
    depth, total = (128 // size if size > 1 else 64), (8 if element == "double" else 4)
    bm = bn = 8 * side
    tiles = bm * (depth * size + SKEW_BYTES) + depth * (bn * size + SKEW_BYTES)
    return Shape(bm, bn, 256, max(tiles, 8 * side * (4 * side * total + PATCH_PAD)))


def mma_shape(element: str) -> Shape:
    size = np.dtype(ELEMENTS[element]).itemsize
    bm, bn, warp, stages = 128, 256, 64, 3
    depth = 128 // size
    if element == "double":
        bn, depth, warp, stages = 128, 16, 32, 4
    warps, scalar = bm // 64 * (bn // warp), (8 if element == "double" else 4)
    tiles = stages * (bm + bn) * depth * size
    return Shape(bm, bn, 32 * warps, max(tiles, warps * 16 * (warp * scalar + 32)))


def swizzled_shape(element: str) -> Shape:
    side, warp = (64, 32) if element == "double" else (128, 64)
    return Shape(
        side, side, 256, max(2 * side * 128, 8 * 16 * (warp * (8 if element == "double" else 4) + 32))
    )


def shape_of(entry: str, element: str) -> Shape:
    if entry == "mma_multistage":
        return mma_shape(element)
    return swizzled_shape(element) if entry == "mma_swizzled" else wmma_shape(element, entry != "wmma_simple")


def whole_numbers(shape: tuple[int, int], dtype: Any) -> Array:
    rng = np.random.default_rng(shape[0])
    if np.dtype(dtype).kind in "iu" and np.dtype(dtype).itemsize == 1:
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)
    return rng.integers(-4, 5, shape).astype(dtype)


def in_gaps(values: Array, leading: int) -> Array:
    """The matrix in rows of `leading` elements; what lies between must not matter."""
    filler = 77 if values.dtype.kind in "iu" else np.nan
    buffer = np.full((values.shape[0], leading), filler).astype(values.dtype)
    buffer[:, : values.shape[1]] = values
    return buffer


def run(
    binary: Any,
    parameters: list[tuple[str, str]],
    values: dict[str, Any],
    arrays: dict[str, Array],
    grid: int,
    shape: Shape,
) -> None:
    pointers = {name: array.ctypes.data for name, array in arrays.items()}
    block = ParameterBlock(parameters).pack({**values, **pointers})
    memory = tuple(Memory(name, array.ctypes.data, array.nbytes, array) for name, array in arrays.items())
    machine.run(
        Launch(binary, (grid, 1, 1), (shape.threads, 1, 1), bytes(block), shape.shared_bytes, memory=memory),
        counting=False,
    )


def check(got: Array, a: Array, b: Array, c: Array, alpha: int, beta: int, element: str) -> None:
    exact = alpha * (a.astype("f8") @ b.astype("f8")) + (beta * c.astype("f8") if beta else 0.0)
    if element in ("half", "__nv_bfloat16"):
        np.testing.assert_allclose(got.astype("f8"), exact, rtol=2**-7)
    else:
        np.testing.assert_array_equal(got.astype("f8"), exact)


def operands(element: str, m: int, n: int, k: int, beta: int) -> tuple[Array, Array, Array]:
    output = OUTPUTS.get(element, ELEMENTS[element])
    c = whole_numbers((m, n), np.int8 if output is np.int32 else output).astype(output)
    if beta == 0 and np.dtype(output).kind not in "iu":
        c = np.full((m, n), np.nan).astype(output)  # beta = 0 never reads it
    return whole_numbers((m, k), ELEMENTS[element]), whole_numbers((k, n), ELEMENTS[element]), c


def typed(parameters: Sequence[tuple[str, str]], element: str) -> list[tuple[str, str]]:
    """A kernel's parameters, alpha and beta as it has them in this type."""
    return [(name, SCALARS.get(element, "f32") if kind == "scalar" else kind) for name, kind in parameters]


RUNGS = [
    *(("ladder/21_wmma_simple.cu", element) for element in WMMA_TYPES),
    *(("ladder/22_wmma_shared.cu", element) for element in WMMA_TYPES),
    *(("ladder/23_mma_swizzled.cu", element) for element in ELEMENTS),
    *(("ladder/24_mma_multistage.cu", element) for element in ELEMENTS),
    *(("detours/wmma_beta_first.cu", element) for element in ("half", "double")),
]


@pytest.mark.survey
@pytest.mark.parametrize("aligned", [0, 1], ids=["unaligned", "aligned"])
@pytest.mark.parametrize(("source", "element"), RUNGS)
def test_rungs(source: str, element: str, aligned: int) -> None:
    entry = source.rpartition("/")[2].removesuffix(".cu").lstrip("0123456789_")
    shape = shape_of(entry, element)
    config = kernel_named(entry).config_for(MATHS.get(element, np.dtype(ELEMENTS[element]).name))
    values = {"T": C_TYPES.get(element, element), "ALIGNED": aligned, **config.defines()}
    binary = compile_kernel(source, entry, values, "sm_90a", assembled=False)
    for (m, n, k), (alpha, beta) in zip(SHAPES, ((2, -3), (1, 0), (2, -3)), strict=True):
        a, b, c = operands(element, m, n, k, beta)
        leading = [
            x.shape[1] + 1 if not aligned else -(-x.shape[1] * x.itemsize // 16) * 16 // x.itemsize
            for x in (a, b, c)
        ]
        arrays = {name: in_gaps(x, ld) for name, x, ld in zip("ABD", (a, b, c), leading, strict=True)}
        values = {"M": m, "N": n, "K": k, "alpha": alpha, "beta": beta}
        values |= dict(zip(("lda", "ldb", "ldd"), leading, strict=True))
        tiles = -(-m // shape.bm) * -(-n // shape.bn)
        run(
            binary,
            typed(LADDER_PARAMETERS, element),
            values,
            arrays,
            min(tiles, 2) if entry in PERSISTENT else tiles,
            shape,
        )
        check(arrays["D"][:, :n], a, b, c, alpha, beta, element)


# ---- the production family: every layout and alignment ----


def laid_out(values: Array, layout: str, vector: int) -> tuple[Array, int, int]:
    """(memory, row stride, column stride): lines start on multiples of `vector` elements, and no better."""
    lines = values if layout == "row" else np.ascontiguousarray(values.T)
    leading = lines.shape[1] + 2 if vector == 1 else -(-lines.shape[1] // vector) * vector
    memory = in_gaps(lines, leading)
    if vector == 1:  # it starts and ends between two words; what lies before and after is not ours
        memory = np.concatenate([memory.reshape(-1)[:1], memory.reshape(-1)])[1:-2]
    return (memory, leading, 1) if layout == "row" else (memory, 1, leading)


PRODUCTION_TILE = {"BM": 64, "BN": 64, "WM": 32, "WN": 32, "STAGES": 3, "BLOCKS": 2}


@pytest.mark.parametrize(
    ("element", "layouts", "vector_bytes"),
    sampled(
        ["half", "__nv_bfloat16", "float", "double", "int8", "__nv_fp8_e4m3"],
        ["rr", "rc", "cr", "cc"],
        [1, 4, 16],
        share=3,
    ),
)
def test_production_family(element: str, layouts: str, vector_bytes: int) -> None:
    a_layout, b_layout = ({"r": "row", "c": "col"}[letter] for letter in layouts)
    size = np.dtype(ELEMENTS[element]).itemsize
    vector, depth = max(1, vector_bytes // size), 128 // size
    contiguous = {
        "A_CONTIGUOUS": 1 if a_layout == "row" else 2,
        "B_CONTIGUOUS": 2 if b_layout == "row" else 1,
    }
    vectors = {"A_VECTOR": vector, "B_VECTOR": vector, "D_VECTOR": 1}
    defines = {"T": C_TYPES.get(element, element), "BK": depth, **PRODUCTION_TILE, **contiguous, **vectors}
    binary = compile_kernel("gemm/mma.cu", "mma", defines, "sm_90a", assembled=False)
    # whole tiles only; the rest too
    m, n, k = (64, 64, 4 * depth) if layouts in ("rr", "cc") else (70, 65, 4 * depth + 5)
    alpha, beta = 2, -3
    a, b, c = operands(element, m, n, k, beta)
    a_memory, a_row, a_col = laid_out(a, a_layout, vector)
    b_memory, b_row, b_col = laid_out(b, b_layout, vector)
    c_memory, c_row, c_col = laid_out(c, "col", 1)
    d_memory = in_gaps(np.zeros_like(c), n + 1)
    values = {
        "M": m,
        "N": n,
        "K": k,
        "alpha": alpha,
        "beta": beta,
        "batch": 1,
        "d_row": n + 1,
        "c_row": c_row,
        "c_col": c_col,
    }
    values |= {"a_row": a_row, "a_col": a_col, "b_row": b_row, "b_col": b_col}
    arrays = {"A": a_memory, "B": b_memory, "C": c_memory, "D": d_memory}
    shape = Shape(64, 64, 128, 3 * (64 + 64) * 128)
    run(binary, typed(SIMT_PARAMETERS, element), values, arrays, -(-m // 64) * -(-n // 64), shape)
    check(d_memory[:, :n], a, b, c, alpha, beta, element)
