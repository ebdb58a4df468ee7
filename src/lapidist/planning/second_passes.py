"""Launches after a product whose epilogue reduces or quantises. They read the values that the product left in
the type of its sums.

The order of a sum depends on D's shape alone, not on tiles, nor on whether lanes of the product reduced 16
columns first. The maximum over D has no order: threads of the product keep it in slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import NamedTuple

from lapidist.build.compiler import compile_kernel
from lapidist.dtypes import size_of
from lapidist.epilogues.passes import (
    ABREAST,
    ALL,
    AMAX,
    COLUMN,
    GROUP,
    IN_TURN,
    JOINED,
    LARGEST,
    OPERATIONS,
    QUANTISED,
    REDUCTIONS,
    ROW,
    THREADS,
    groups_of,
    kernel_of,
    largest_of,
)
from lapidist.launch import Binary, Launch, ParameterBlock
from lapidist.problems.epilogue_layout import READS

VALUES, RESULT = -1, -2  # operands of a step that are not an offset in the workspace
WARPS = THREADS // 32
TOGETHER = GROUP // 32  # elements that a thread moves at once; results have one byte each
LOOK = ParameterBlock([("A", "pointer"), ("D", "pointer")])
REDUCE = ParameterBlock(
    [
        ("A", "pointer"),
        ("D", "pointer"),
        ("length", "i64"),
        ("outer_step", "i64"),
        ("inner_step", "i64"),
        ("inner", "i32"),
        ("chunks", "i32"),
        ("tiles", "i32"),
    ]
)
REDUCE_ROWS = ParameterBlock(
    [("A", "pointer"), ("D", "pointer"), ("length", "i64"), ("step", "i64"), ("chunks", "i32")]
)
QUANTISE = ParameterBlock(
    [
        ("A", "pointer"),
        ("B", "pointer"),
        ("D", "pointer"),
        ("rows", "i64"),
        ("d_row", "i64"),
        ("d_col", "i64"),
        ("factor_row", "i64"),
        ("factor_col", "i64"),
        ("columns", "i32"),
        ("groups", "i32"),
    ]
)


class Target(NamedTuple):
    """Where results go. `row`: elements from row to row, through all matrices; `col`: from column
    to column.
    """

    dtype: str
    row: int
    col: int
    aligned: bool = True  # to TOGETHER bytes


class Pass(NamedTuple):
    """`then`: what becomes of the values, matrices of rows x columns, or of slots for LARGEST. Quantised
    values have a second target, their factors. `neighbours`: how many columns of a row are reduced first.
    """

    then: str
    dtype: str
    shape: tuple[int, int, int]
    target: Target
    factors: Target | None = None
    neighbours: int = JOINED

    def of_columns(self) -> Pass:
        """The same for values that lanes of the product reduced along rows, and that lie transposed."""
        (over, operation), (_, length, rows) = REDUCTIONS[self.then], self.shape
        if over == ALL:
            return self
        if rows == 1:
            return self._replace(shape=(1, 1, length), neighbours=1)
        target = self.target._replace(row=0, col=self.target.row)
        return self._replace(then=f"{COLUMN}_{operation}", target=target)


class Step(NamedTuple):
    """One launch. `reads` and `writes` are VALUES, RESULT, or byte offsets in the workspace."""

    launch: Launch
    reads: int
    writes: int


class Lines(NamedTuple):
    """Values as a reduction sees them: `outer` x `length` x `inner`, reduced along `length`. `neighbours`:
    how many columns of a row are reduced first; 0: these are no rows.
    """

    outer: int
    length: int
    inner: int
    neighbours: int = 0

    @property
    def width(self) -> int:
        return 1 if self.inner == 1 else ABREAST

    @property
    def chunks(self) -> int:
        """Parts of `length` that blocks reduce. Rows are cut at the same columns whether lanes reduced
        neighbours or not.
        """
        of_rows = THREADS // ABREAST * IN_TURN * self.neighbours
        return max(1, -(-self.length // (of_rows or THREADS // self.width * IN_TURN)))

    @property
    def values(self) -> int:
        return self.outer * self.length * self.inner

    def reduced(self) -> Lines:
        return Lines(self.outer, self.chunks, self.inner, min(1, self.neighbours))


def lines_of(each: Pass) -> Lines:
    over, (matrices, rows, columns) = REDUCTIONS[each.then].over, each.shape
    if over == ALL:
        return Lines(1, prod(each.shape), 1)
    if over == COLUMN:
        return Lines(matrices, rows, columns)
    return Lines(matrices * rows, columns, 1, each.neighbours)


def room_of(each: Pass) -> int:
    """Workspace bytes between the steps."""
    if each.then == QUANTISED or each.then in LARGEST:
        return 0
    lines, found = lines_of(each), 0
    while lines.chunks > 1:
        lines = lines.reduced()
        found += lines.values * size_of(each.dtype)
    return found


@lru_cache(maxsize=256)
def steps_of(each: Pass, architecture: str, assembled: bool = True) -> tuple[Step, ...]:
    """The compiled launches; none if there are no results."""
    if each.then == QUANTISED:
        return quantising(each, architecture, assembled)
    if each.then in LARGEST:
        macros = {"ABSOLUTE": int(each.then == AMAX)}
        binary = compiled(
            kernel_of(each.then), macros, each.dtype, each.target.dtype, architecture, assembled
        )
        return (Step(launched(binary, 1, LOOK, {}), VALUES, RESULT),)
    lines, reads, found = lines_of(each), VALUES, list[Step]()
    if not lines.outer * lines.inner:
        return ()
    between = Target(each.dtype, lines.inner, 1)
    while lines.chunks > 1:
        writes = 0 if reads == VALUES else reads + lines.values * size_of(each.dtype)
        found.append(Step(reducing(each, lines, between, architecture, assembled), reads, writes))
        lines, reads = lines.reduced(), writes
    found.append(Step(reducing(each, lines, each.target, architecture, assembled), reads, RESULT))
    return tuple(found)


def reducing(each: Pass, lines: Lines, to: Target, architecture: str, assembled: bool) -> Launch:
    over, operation = REDUCTIONS[each.then]
    if over == ROW:
        return reducing_rows(each, lines, to, architecture, assembled)
    macros = {"OPERATION": OPERATIONS.index(operation), "WIDTH": lines.width}
    tiles = -(-lines.inner // lines.width)
    column = over == COLUMN
    numbers = {
        "length": lines.length,
        "outer_step": to.row,
        "inner_step": to.col if column else 0,
        "inner": lines.inner,
        "chunks": lines.chunks,
        "tiles": tiles,
    }
    binary = compiled(kernel_of(each.then), macros, each.dtype, to.dtype, architecture, assembled)
    return launched(binary, lines.outer * lines.chunks * tiles, REDUCE, numbers)


def reducing_rows(each: Pass, lines: Lines, to: Target, architecture: str, assembled: bool) -> Launch:
    operation = OPERATIONS.index(REDUCTIONS[each.then].operation)
    macros = {"OPERATION": operation, "NEIGHBOURS": lines.neighbours}
    numbers = {"length": lines.length, "step": to.row, "chunks": lines.chunks}
    binary = compiled("reduce_rows", macros, each.dtype, to.dtype, architecture, assembled)
    return launched(binary, lines.outer * lines.chunks, REDUCE_ROWS, numbers)


def quantising(each: Pass, architecture: str, assembled: bool) -> tuple[Step, ...]:
    (matrices, rows, columns), factors = each.shape, each.factors
    groups, lines = groups_of(columns), matrices * rows
    if not lines * columns or factors is None:
        return ()
    to = each.target
    apart = columns % TOGETHER or to.col != 1 or to.row % TOGETHER or not to.aligned
    macros = {"LARGEST": f"{largest_of(to.dtype):g}", "TOGETHER": int(not apart)}
    numbers = {
        "rows": lines,
        "d_row": to.row,
        "d_col": to.col,
        "factor_row": factors.row,
        "factor_col": factors.col,
        "columns": columns,
        "groups": groups,
    }
    binary = compiled(kernel_of(each.then), macros, each.dtype, to.dtype, architecture, assembled)
    launch = launched(binary, -(-lines * groups // WARPS), QUANTISE, numbers)
    return (Step(launch, VALUES, RESULT),)


def compiled(
    name: str, macros: Mapping[str, object], values: str, results: str, architecture: str, assembled: bool
) -> Binary:
    value = {"float32": "float", "float64": "double"}[values]
    every = {**macros, "VALUE": value, "RESULT": READS[results]}
    return compile_kernel(f"second/{name}.cu", name, every, architecture, assembled=assembled)


def launched(binary: Binary, blocks: int, parameters: ParameterBlock, numbers: dict[str, int]) -> Launch:
    content, grid, block = bytes(parameters.pack(numbers)), (blocks, 1, 1), (THREADS, 1, 1)
    return Launch(binary, grid, block, content, parameters=parameters, patches=parameters.patches())
