"""The launch that follows a product of which one triangle was computed (cuda/second/mirror.cu)."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from lapidist.build.compiler import compile_kernel
from lapidist.dtypes import size_of
from lapidist.launch import Launch, ParameterBlock
from lapidist.problems.matrix import VECTOR_BYTES

THREADS, SIDE, SIDE_OF_WIDE = 256, 64, 32  # of a square of elements; wide ones have more than 8 bytes
WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "unsigned long long", 16: "ulonglong2"}
STEPS = ("row", "col", "matrix")
MIRROR = ParameterBlock(
    [
        ("A", "pointer"),
        ("D", "pointer"),
        ("n", "i32"),
        ("squares", "i32"),
        *((f"{letter}_{step}", "i64") for letter in "ad" for step in STEPS),
    ]
)


# On an H200 in a graph: 512 rows of bfloat16 take 3.5 us, and 8192 rows move at 3 TB/s.
START_SECONDS, BYTES_A_SECOND = 3.4e-6, 3e12


def seconds_to_mirror(elements: int, dtype: str) -> float:
    """Half of the elements are read, and half written."""
    return START_SECONDS + elements * size_of(dtype) / BYTES_A_SECOND


class Lies(NamedTuple):
    """Steps of matrices in memory, in elements; `aligned`: to 16 bytes."""

    row: int
    col: int
    matrix: int
    aligned: bool

    def starts_on(self, elements: int, n: int) -> bool:
        """Whether each row starts and ends on a multiple of so many elements, which are neighbours."""
        whole = self.row % elements == self.matrix % elements == n % elements == 0
        return self.aligned and self.col == 1 and whole


@lru_cache(maxsize=256)
def mirroring(
    n: int,
    matrices: int,
    element_bytes: int,
    a: Lies,
    d: Lies,
    upper: bool,
    mirrored: bool,
    hermitian: bool,
    architecture: str,
    assembled: bool = True,
) -> Launch:
    """From the triangle of A to D; `mirrored`: to both halves of it."""
    together = VECTOR_BYTES // element_bytes
    if not (a.starts_on(together, n) and d.starts_on(together, n)):
        together = 1
    macros = {
        "THREADS": THREADS,
        "MirroredElement": WORDS[element_bytes],
        "TOGETHER": together,
        "FROM_UPPER": int(upper),
        "MIRRORED": int(mirrored),
        "HERMITIAN": int(hermitian),
    }
    lines = -(-n // (SIDE if element_bytes <= 8 else SIDE_OF_WIDE))
    squares = lines * (lines + 1) // 2
    steps = {
        f"{letter}_{step}": getattr(lies, step) for letter, lies in (("a", a), ("d", d)) for step in STEPS
    }
    binary = compile_kernel("second/mirror.cu", "mirror", macros, architecture, assembled=assembled)
    content = bytes(MIRROR.pack({"n": n, "squares": squares, **steps}))
    grid, block = (squares * matrices, 1, 1), (THREADS, 1, 1)
    return Launch(binary, grid, block, content, parameters=MIRROR, patches=MIRROR.patches())
