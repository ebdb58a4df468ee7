"""Launches that make slices of float32 matrices, judge them, and join the products of slices
(cuda/emulated/slices.cuh).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from lapidist.build.compiler import compile_kernel
from lapidist.launch import Launch, ParameterBlock

SLICES, VECTOR = 3, 16  # a slice has whole vectors of 8-bit integers
THREADS, LINES = 256, 32
BLOCKS_OF_SM = 8  # that join results
# Errors of slices grow with how far the largest of a line is over its mean, in A and in B, and fall with the
# root of k. Up to this product of both spans, over the root of k, elements are within 2^-21 of |A||B|.
MOST_SPAN = 2.0

SLICE = [("A", "pointer"), ("D", "pointer"), ("scales", "pointer"), ("spans", "pointer")]
ROWS = ParameterBlock([*SLICE, ("line_step", "i64"), ("k", "i32"), ("padded", "i32"), ("reversed", "i32")])
COLUMNS = ParameterBlock(
    [
        *SLICE,
        *((name, "i64") for name in ("k_step", "line_step")),
        *((name, "i32") for name in ("lines", "k", "padded", "reversed")),
    ]
)
JUDGE = ParameterBlock(
    [
        *((name, "pointer") for name in "ABD"),
        ("rows", "i32"),
        ("columns", "i32"),
        *((name, "f32") for name in ("limit", "alpha", "beta")),
    ]
)
JOIN = ParameterBlock(
    [
        *((name, "pointer") for name in ("A", "C", "D", "row_scales", "column_scales", "verdict")),
        *((name, "i64") for name in ("rows", "columns", "c_row", "c_col", "d_row", "d_col")),
        ("alpha", "f32"),
        ("beta", "f32"),
    ]
)


class Lines(NamedTuple):
    """An operand as lines along k: elements from one to the next, and along k."""

    lines: int
    k: int
    line_step: int
    k_step: int

    @property
    def padded(self) -> int:
        return padded(self.k)


def padded(k: int) -> int:
    return -(-k // VECTOR) * VECTOR


@lru_cache(maxsize=256)
def slicing(lines: Lines, of_b: bool, architecture: str, assembled: bool = True) -> Launch:
    numbers = {"line_step": lines.line_step, "k": lines.k, "padded": lines.padded, "reversed": int(of_b)}
    if lines.k_step == 1 or lines.lines == 1:
        return launch_of("slice_rows", lines.lines, ROWS, numbers, architecture, assembled)
    numbers |= {"k_step": lines.k_step, "lines": lines.lines}
    return launch_of("slice_columns", -(-lines.lines // LINES), COLUMNS, numbers, architecture, assembled)


@lru_cache(maxsize=256)
def judging(rows: int, columns: int, k: int, architecture: str, assembled: bool = True) -> Launch:
    numbers = {"rows": rows, "columns": columns, "limit": MOST_SPAN * k**0.5}
    return launch_of("judge", 1, JUDGE, numbers, architecture, assembled)


@lru_cache(maxsize=256)
def joining(
    rows: int,
    columns: int,
    c: tuple[int, int],
    d: tuple[int, int],
    sms: int,
    architecture: str,
    assembled: bool = True,
) -> Launch:
    numbers = dict(
        zip(("rows", "columns", "c_row", "c_col", "d_row", "d_col"), (rows, columns, *c, *d), strict=True)
    )
    blocks = min(-(-rows * columns // THREADS), BLOCKS_OF_SM * sms)
    return launch_of("join", blocks, JOIN, numbers, architecture, assembled)


def launch_of(
    name: str,
    blocks: int,
    parameters: ParameterBlock,
    numbers: dict[str, int] | dict[str, float],
    architecture: str,
    assembled: bool,
) -> Launch:
    binary = compile_kernel(
        f"emulated/{name}.cu", name, {"THREADS": THREADS}, architecture, assembled=assembled
    )
    content = bytes(parameters.pack(numbers))
    return Launch(
        binary, (blocks, 1, 1), (THREADS, 1, 1), content, parameters=parameters, patches=parameters.patches()
    )
