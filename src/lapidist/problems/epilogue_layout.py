"""An epilogue as part of a Problem: its function, and the layouts of its operands. epilogue.cuh is the device
side.

Rows and columns are those of D in the problem, so operands are transposed where D is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from lapidist.dtypes import size_of
from lapidist.epilogues.device_code import UINT64, statements
from lapidist.epilogues.operations import OPERATIONS, Operation
from lapidist.epilogues.passes import AMAX, COLUMN, JOINED, SLOTS, Reduction
from lapidist.epilogues.passes import OPERATIONS as REDUCED_BY
from lapidist.epilogues.passes import ROW as OF_ROWS
from lapidist.epilogues.steps import OPERAND, POSITIONS, ROW, SUM, Function, Result

if TYPE_CHECKING:
    from lapidist.problems.matrix import Matrix

MOST_OPERANDS = 16
VECTOR = 16  # bytes of the widest load
PIECED = 2  # bytes of the widest element that wgmma's threads move 16 bytes at a time
WORDS = 5  # of 8 bytes each, of an operand: its address or its value, then its strides
SHORT = 20  # instructions: shorter functions are unrolled for all sums of a thread
# Instructions for each element: to move it to and from where it is finished, to read one, to store one more.
MOVED, PER_READ, PER_STORE = 4, 2, 4
# Further time, in instructions, for a value of each element that is read or stored, and for a maximum over D.
# PIECE_: where values move in pieces of 16 bytes. Measured on an H200, where D was bfloat16.
TILE_READ, TILE_STORED, MAXIMUM_STORED = 33, 23, 17
PIECE_READ, PIECE_STORED = 18, 8
# A power of two or a reciprocal takes as long as 5 more instructions: the unit needs 8 cycles for a warp.
# Rows of OPERATIONS say how many of them a function has. Measured on an H200.
SPECIAL = 5
GROUPED = 5  # instructions for an element that the kernel itself quantises
BIAS = [(SUM, ()), (OPERAND, ()), ("add", (0, 1))]  # the steps of a function that only adds a bias
# epilogue_types.cuh's names of the operands' types
READS = {
    "float64": "Float64",
    "float32": "Float32",
    "float16": "Float16",
    "bfloat16": "BFloat16",
    "float8_e4m3fn": "E4M3",
    "float8_e5m2": "E5M2",
    "int64": "Int64",
    "int32": "Int32",
    "int16": "Int16",
    "int8": "Int8",
    "uint64": "UInt64",
    "uint32": "UInt32",
    "uint16": "UInt16",
    "uint8": "UInt8",
    "bool": "Bool",
}


class Fed(NamedTuple):
    """An operand of an epilogue, or a result beside D. Without a matrix it is a number; else it has D's
    extents, with strides of zero along which it does not change. `is_position`: it has no memory, and an
    element's address is its number in D.
    """

    dtype: str
    matrix: Matrix | None
    by_row: bool = False
    by_col: bool = False
    is_position: bool = False

    def kind(self, in_order: bool) -> str:
        """Its type in epilogue_operands.cuh."""
        if self.matrix is None:
            return "Whole" if self.dtype == "int64" else "Number"
        if self.is_position:
            return f"Position<{int(in_order)}>"
        together = in_order and self.by_col and self.matrix.col_stride == 1
        by_col = int(self.by_col)
        if together and self.in_parts(2 * size_of(self.dtype)):
            by_col = 4 if self.by_row and self.in_parts(VECTOR) else 2
        return f"Array<{READS[self.dtype]}, {int(self.by_row)}, {by_col}>"

    @property
    def in_pieces(self) -> bool:
        """Whether wgmma's threads move 16 bytes of it at a time."""
        in_fours = self.kind(True).endswith(", 1, 4>") and size_of(self.dtype) <= PIECED
        return self.matrix is not None and in_fours

    def in_parts(self, size: int) -> bool:
        """Whether contiguous rows consist of aligned parts of so many bytes."""
        assert self.matrix is not None
        bits = self.matrix.cols * size_of(self.dtype)
        return size <= VECTOR and self.matrix.alignment % size == 0 and bits % size == 0

    def bits(self, number: float) -> int:
        """The bits of a number in its type, as a signed word of 8 bytes."""
        kind = {"float32": "f", "float64": "d", "int64": "Q"}[self.dtype]
        return int.from_bytes(struct.pack(f"<{kind}", number).ljust(8, b"\0"), "little", signed=True)


@dataclass(frozen=True, slots=True)
class Fused:
    """`operands`: those of the function's parameters, then positions if it asks for them. Then D and its
    factors, if the kernel may quantise them itself, then what it stores. It computes in `dtype`.
    """

    function: Function
    operands: tuple[Fed, ...]
    dtype: str

    @property
    def read(self) -> tuple[Fed, ...]:
        return self.operands[: self._count_of_read]

    @property
    def stored(self) -> tuple[Fed, ...]:
        return self.operands[self._count_of_read + len(self.grouped) :]

    @property
    def _count_of_read(self) -> int:
        return len(self.function.parameters) + self.function.is_positioned

    @property
    def grouped(self) -> tuple[Fed, ...]:
        """D and its factors, if a kernel may quantise them itself."""
        at = self._count_of_read
        return () if self.function.grouped is None else self.operands[at : at + 2]

    def matrices(self) -> tuple[Matrix, ...]:
        return tuple(fed.matrix for fed in self.operands if fed.matrix is not None)

    def parts_rows(self, rows: int) -> bool:
        """Whether matrices of so many rows must not be stacked: lanes would reduce rows of two of them
        together.
        """
        return rows % JOINED > 0 and any(
            reduction and reduction.over == COLUMN for reduction in self.function.joined
        )

    def with_matrices(self, matrices: Sequence[Matrix]) -> Fused:
        """The same with its matrices replaced by these."""
        remaining = iter(matrices)
        fed = (
            operand if operand.matrix is None else operand._replace(matrix=next(remaining))
            for operand in self.operands
        )
        return replace(self, operands=tuple(fed))

    def transposed(self) -> Fused:
        """The epilogue of D' = B' A'."""
        transposed = self.with_matrices([matrix.transposed() for matrix in self.matrices()])
        fed = (
            operand._replace(by_row=operand.by_col, by_col=operand.by_row) for operand in transposed.operands
        )
        return replace(transposed, operands=tuple(fed))

    @property
    def instructions(self) -> int:
        """About how many instructions of a GPU it takes for each element of D."""
        moved = MOVED + PER_READ * sum(fed.matrix is not None for fed in self.read)
        return moved + PER_STORE * len(self.stored) + sum(row.instructions for row in self._operations)

    @property
    def _operations(self) -> Iterator[Operation]:
        steps = (step.operation for step in self.function.steps)
        return (OPERATIONS[operation] for operation in steps if operation in OPERATIONS)

    @property
    def is_short(self) -> bool:
        """Whether kernels unroll it for all sums of a thread. Operands with a value for each element take the
        registers for that.
        """
        return self.instructions <= SHORT and not self._tiles_read

    @property
    def _tiles_read(self) -> int:
        return sum(fed.by_row and fed.by_col for fed in self.read)

    @property
    def is_bias(self) -> bool:
        """Whether it only adds a value for each column. The compiler then has no roundings to choose."""
        operations = [(step.operation, step.args) for step in self.function.steps]
        kinds = [parameter.kind for parameter in self.function.parameters]
        alone = len(self.function.results) == 1 and not self.stored
        return alone and kinds == [ROW] and operations == BIAS

    @property
    def cost(self) -> float:
        """Time for an element, in instructions of four warps at once, with what these wait for."""
        return self._cost(self.instructions, self.stored)

    @property
    def joined_cost(self) -> float:
        """The same for a kernel whose lanes reduce 16 values for second passes."""
        pairs = zip(self.stored, self._joined_by, strict=True)
        return self._cost(self.instructions, [fed for fed, by in pairs if not by])

    @property
    def grouped_cost(self) -> float:
        """The same for a kernel that quantises D and computes its factors."""
        number = self.function.grouped
        assert number is not None
        first = len(self.stored) - len(self.function.sources) - len(self.function.maxima) + number
        stored = (*self.stored[:first], *self.stored[first + 1 :])
        return self._cost(self.instructions - PER_STORE + GROUPED, stored)

    @property
    def special_cost(self) -> float:
        """Further time for powers of two and reciprocals, in kernels where no other warpgroup multiplies
        meanwhile.
        """
        cost = SPECIAL * sum(row.special for row in self._operations)
        return cost / 2 if self.function.paired else cost

    def _cost(self, instructions: int, stored: Sequence[Fed]) -> float:
        read = [fed for fed in self.read if fed.by_row and fed.by_col]
        waits = sum(PIECE_READ if fed.in_pieces else TILE_READ for fed in read)
        behind = 0 if self.function.paired else PIECE_STORED
        tiles = [fed for fed in stored if fed.by_row and fed.by_col]
        cost = instructions + sum(behind if fed.in_pieces else TILE_STORED for fed in tiles)
        cost += MAXIMUM_STORED * bool(self.function.maxima)
        return (cost / 2 if self.function.paired else cost) + waits

    def defines(self, in_order: bool, joins: bool = False) -> dict[str, object]:
        """The function's body and its operands as macros. `in_order`: D's columns are those of the product;
        `joins`: lanes reduce values for second passes where they may.
        """
        value = {"float32": "float", "float64": "double"}[self.dtype]
        read = [fed.kind(in_order) for fed in self.read]
        stored = [
            self._stored_kind(fed.kind(in_order), result, value, by if joins else None)
            for fed, result, by in zip(self.stored, self.function.stored, self._joined_by, strict=True)
        ]
        return {
            "EPILOGUE": self.body(value),
            "EPILOGUE_OPERANDS": len(self.operands),
            "EPILOGUE_KINDS": "".join(f", {kind}" for kind in read),
            "EPILOGUE_RESULTS": "".join(f", {kind}" for kind in stored),
            "EPILOGUE_STORED": len(self.stored),
            "EPILOGUE_TILES": self._tiles_read,
            "EPILOGUE_SHORT": int(self.instructions <= SHORT),
            "LARGEST_SLOTS": SLOTS,
            **({"EPILOGUE_KEEPS": 1} if self.function.maxima else {}),
            **({"EPILOGUE_STORES": 1} if self.function.stores_d else {}),
            **({"EPILOGUE_PAIRS": 1} if self.function.paired else {}),
        }

    @property
    def _joined_by(self) -> tuple[Reduction | None, ...]:
        """How lanes reduce each operand that is stored. None: they do not."""
        maxima = len(self.function.maxima)
        unreduced = len(self.stored) - maxima - len(self.function.joined)
        return (*[None] * unreduced, *self.function.joined, *[None] * maxima)

    def _stored_kind(self, kind: str, result: Result, value: str, joined: Reduction | None) -> str:
        both = self.function.paired and result.other is not None
        if joined:
            by = REDUCED_BY.index(joined.operation)
            return f"Joined<{value}, {by}, {int(both)}, {int(joined.over == OF_ROWS)}>"
        if result.then:
            return f"Most<{value}, {int(result.then == AMAX)}, {int(both)}>"
        return f"Both{kind}" if both else kind

    def body(self, value: str) -> str:
        names = [parameter.name for parameter in self.function.parameters]
        names += [POSITIONS] * self.function.is_positioned
        scalars = {*self.function.seeds, POSITIONS}
        loads = {
            name: f"fetched.template value<{UINT64 if name in scalars else value}, {number}>(operands, which)"
            for number, name in enumerate(names)
        }
        return statements(self.function, value, loads)

    def words(self, values: Sequence[Any], skipped: Sequence[int] = ()) -> tuple[int, ...]:
        """epilogue_values.cuh's struct Operands. `values`: addresses, or numbers; `skipped`: elements before
        the first of each matrix.
        """
        words: list[int] = []
        skips = iter(skipped)
        for fed, value in zip(self.operands, values, strict=True):
            if fed.matrix is None:
                words += (fed.bits(value), 0, 0, 0, 0)
                continue
            inner, outer = (*fed.matrix.batch_strides[::-1], 0, 0)[:2]
            at = value + next(skips, 0) * size_of(fed.dtype)
            words += (at, fed.matrix.row_stride, fed.matrix.col_stride, inner, outer)
        return tuple(words)

    def __str__(self) -> str:
        return f"then {self.function}"
