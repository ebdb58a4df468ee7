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
    SLOTS,
    THREADS,
    groups_of,
    kernel_of,
    largest_of,
)
from lapidist.launch import Binary, Launch, ParameterBlock
from lapidist.problems.epilogue_layout import READS
from lapidist.problems.modes import INDEX_TYPES

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


QUANTISE_GROUPS = ParameterBlock(
    [*QUANTISE.parameters, ("C", "pointer"), ("count", "i32"), ("total", "i32"), ("high", "i32")]
)


class Target(NamedTuple):
    """Where results go. `row`: elements from row to row, through all matrices; `col`: from column
    to column.
    """

    dtype: str
    row: int
    col: int
    aligned: bool = True  # to TOGETHER bytes


class RowsOfGroups(NamedTuple):
    """Which rows of the values belong to groups, as device memory says. `high`: 0, or the rows of a matrix,
    the first of which are counted.
    """

    matrices: int
    total: int
    high: int
    index_type: str


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
    groups: RowsOfGroups | None = None  # None: all rows have values

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


def lines_of(second_pass: Pass) -> Lines:
    over, (matrices, rows, columns) = REDUCTIONS[second_pass.then].over, second_pass.shape
    if over == ALL:
        return Lines(1, prod(second_pass.shape), 1)
    if over == COLUMN:
        return Lines(matrices, rows, columns)
    return Lines(matrices * rows, columns, 1, second_pass.neighbours)


def room_of(second_pass: Pass) -> int:
    """Workspace bytes between the steps."""
    if second_pass.then == QUANTISED or second_pass.then in LARGEST:
        return 0
    lines, size = lines_of(second_pass), 0
    while lines.chunks > 1:
        lines = lines.reduced()
        size += lines.values * size_of(second_pass.dtype)
    return size


@lru_cache(maxsize=256)
def steps_of(second_pass: Pass, architecture: str, assembled: bool = True) -> tuple[Step, ...]:
    """The compiled launches; none if there are no results."""
    if second_pass.then == QUANTISED:
        return quantising(second_pass, architecture, assembled)
    if second_pass.then in LARGEST:
        macros = {"ABSOLUTE": int(second_pass.then == AMAX), "THREADS": THREADS, "LARGEST_SLOTS": SLOTS}
        types = second_pass.dtype, second_pass.target.dtype
        binary = compiled(kernel_of(second_pass.then), macros, *types, architecture, assembled)
        return (Step(launched(binary, 1, LOOK, {}), VALUES, RESULT),)
    lines, reads, steps = lines_of(second_pass), VALUES, list[Step]()
    if not lines.outer * lines.inner:
        return ()
    between = Target(second_pass.dtype, lines.inner, 1)
    while lines.chunks > 1:
        writes = 0 if reads == VALUES else reads + lines.values * size_of(second_pass.dtype)
        steps.append(Step(reducing(second_pass, lines, between, architecture, assembled), reads, writes))
        lines, reads = lines.reduced(), writes
    last = reducing(second_pass, lines, second_pass.target, architecture, assembled)
    steps.append(Step(last, reads, RESULT))
    return tuple(steps)


def reducing(second_pass: Pass, lines: Lines, to: Target, architecture: str, assembled: bool) -> Launch:
    over, operation = REDUCTIONS[second_pass.then]
    if over == ROW:
        return reducing_rows(second_pass, lines, to, architecture, assembled)
    macros = {
        "OPERATION": OPERATIONS.index(operation),
        "WIDTH": lines.width,
        "THREADS": THREADS,
        "IN_TURN": IN_TURN,
    }
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
    binary = compiled(
        kernel_of(second_pass.then), macros, second_pass.dtype, to.dtype, architecture, assembled
    )
    return launched(binary, lines.outer * lines.chunks * tiles, REDUCE, numbers)


def reducing_rows(second_pass: Pass, lines: Lines, to: Target, architecture: str, assembled: bool) -> Launch:
    operation = OPERATIONS.index(REDUCTIONS[second_pass.then].operation)
    macros = {"OPERATION": operation, "NEIGHBOURS": lines.neighbours, "THREADS": THREADS}
    numbers = {"length": lines.length, "step": to.row, "chunks": lines.chunks}
    binary = compiled("reduce_rows", macros, second_pass.dtype, to.dtype, architecture, assembled)
    return launched(binary, lines.outer * lines.chunks, REDUCE_ROWS, numbers)


def quantising(second_pass: Pass, architecture: str, assembled: bool) -> tuple[Step, ...]:
    (matrices, rows, columns), factors = second_pass.shape, second_pass.factors
    groups, lines = groups_of(columns), matrices * rows
    if not lines * columns or factors is None:
        return ()
    to = second_pass.target
    one_by_one = columns % TOGETHER or to.col != 1 or to.row % TOGETHER or not to.aligned
    macros = {
        "LARGEST": f"{largest_of(to.dtype):g}",
        "TOGETHER": int(not one_by_one),
        "WARPS": WARPS,
        "GROUP": GROUP,
    }
    numbers = {
        "rows": lines,
        "d_row": to.row,
        "d_col": to.col,
        "factor_row": factors.row,
        "factor_col": factors.col,
        "columns": columns,
        "groups": groups,
    }
    parameters, among = QUANTISE, second_pass.groups
    if among is not None:
        parameters = QUANTISE_GROUPS
        macros |= {"AMONG_GROUPS": 1, "Index": INDEX_TYPES[among.index_type]}
        numbers |= {"count": among.matrices, "total": among.total, "high": among.high}
    binary = compiled(
        kernel_of(second_pass.then), macros, second_pass.dtype, to.dtype, architecture, assembled
    )
    launch = launched(binary, -(-lines * groups // WARPS), parameters, numbers)
    return (Step(launch, VALUES, RESULT),)


def compiled(
    name: str, macros: Mapping[str, object], values: str, results: str, architecture: str, assembled: bool
) -> Binary:
    value = {"float32": "float", "float64": "double"}[values]
    every = {**macros, "Value": value, "Result": f"fused::{READS[results]}"}
    return compile_kernel(f"second/{name}.cu", name, every, architecture, assembled=assembled)


def launched(binary: Binary, blocks: int, parameters: ParameterBlock, numbers: dict[str, int]) -> Launch:
    content, grid, block = bytes(parameters.pack(numbers)), (blocks, 1, 1), (THREADS, 1, 1)
    return Launch(binary, grid, block, content, parameters=parameters, patches=parameters.patches())
