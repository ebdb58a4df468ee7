"""The launch that multiplies small matrices of complex numbers where they lie (cuda/gemm/complex_tile.cu)."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from lapidist.build.compiler import compile_kernel
from lapidist.dtypes import TYPES
from lapidist.launch import Launch, ParameterBlock
from lapidist.planning.widening_pass import overlaps_on

SIDE, THREADS = 32, 128  # of a square of results
SHORT, LONG = 16, 32  # steps of k at a time
STEPS = "row", "col", "matrix"
SIZES = "m", "n", "k", "tiles_m", "tiles"


def parameters_of(part: str) -> ParameterBlock:
    kind = {"float32": "f32", "float64": "f64"}[part]
    return ParameterBlock(
        [
            *((letter, "pointer") for letter in "ABCD"),
            *((name, "i32") for name in SIZES),
            *((f"{letter}_{step}", "i64") for letter in "abcd" for step in STEPS),
            *((name, kind) for name in ("alpha", "beta", "alpha_im", "beta_im")),
        ]
    )


class Lies(NamedTuple):
    """Numbers from row to row, column to column and matrix to matrix."""

    row: int
    col: int
    matrix: int
    conjugated: bool


@lru_cache(maxsize=256)
def complex_tiles(
    part: str,
    extents: tuple[int, int, int],
    matrices: int,
    lies: tuple[Lies, ...],
    imaginary: tuple[float, float],
    reads_c: bool,
    architecture: str,
    assembled: bool = True,
) -> Launch:
    """`imaginary`: parts of alpha and beta, whose real ones are patched."""
    (m, n, k), (a, b, c, _) = extents, lies
    overlaps = overlaps_on(architecture)
    macros = {
        "Part": TYPES[part].c_type,
        "OVERLAPS": int(overlaps),
        "STEPS": SHORT if k <= SHORT else LONG,
        "A_ALONG_K": int(a.row != 1),
        "B_ALONG_K": int(b.col != 1),
        **{f"{name}_CONJUGATED": int(x.conjugated) for name, x in zip("ABC", (a, b, c), strict=True)},
        "ALPHA_REAL": int(imaginary[0] == 0),
        "BETA_REAL": int(imaginary[1] == 0),
        "READS_C": int(reads_c),
    }
    binary = compile_kernel("gemm/complex_tile.cu", "complex_tile", macros, architecture, assembled=assembled)
    tiles_m = -(-m // SIDE)
    tiles = tiles_m * -(-n // SIDE)
    steps = {
        f"{letter}_{name}": getattr(x, name) for letter, x in zip("abcd", lies, strict=True) for name in STEPS
    }
    sizes = dict(zip(SIZES, (*extents, tiles_m, tiles), strict=True))
    of_numbers = dict(zip(("alpha_im", "beta_im"), imaginary, strict=True))
    parameters = parameters_of(part)
    content = bytes(parameters.pack({**sizes, **steps, **of_numbers}))
    grid, block = (tiles * matrices, 1, 1), (THREADS, 1, 1)
    return Launch(
        binary, grid, block, content, overlaps=overlaps, parameters=parameters, patches=parameters.patches()
    )


# Where results fill most of one square it beats widening: 4096 x 32^3 in complex64 take 53 us in place of 72
# on an H200. Of 16^3 and of 128^3 the kernels of real numbers are faster.
MORE_THAN, MOST_K = SIDE // 2, 64


def is_small(m: int, n: int, k: int) -> bool:
    return min(m, n) > MORE_THAN and max(m, n) <= SIDE and k <= MOST_K
