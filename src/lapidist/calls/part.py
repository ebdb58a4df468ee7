"""What a call has beside a, b, c and out: each kind of operand is one part of a Bound."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lapidist.backends.host_product import HostProduct
from lapidist.frameworks.arrays import Operand
from lapidist.problems.modes import PLAIN, ExtraPointers, Modes
from lapidist.problems.problem import Problem
from lapidist.problems.scaling import AS_THEY_ARE, Scaling

if TYPE_CHECKING:
    from lapidist.problems.epilogue_layout import Fused
    from lapidist.problems.ragged import Ragged


class ProblemInputs(NamedTuple):
    """What a Problem is made of. `alignment`: one for all matrices, where single ones do not count."""

    shape: tuple[int, ...]  # of the product
    a: Operand
    b: Operand
    c: Operand | None
    d: Operand
    one_alpha: bool
    scaling: Scaling = AS_THEY_ARE
    modes: Modes = PLAIN
    fused: Fused | None = None
    alignment: int | None = None


class Part:
    """Checked operands of one kind. These defaults change nothing."""

    arrays: tuple[Operand, ...] = ()  # which kernels read or write
    results: tuple[Operand, ...] = ()  # those that they write

    def described(self, inputs: ProblemInputs) -> ProblemInputs:
        """What a Problem is made of, with what this part adds to it."""
        return inputs

    def with_pointers(self, pointers: ExtraPointers) -> ExtraPointers:
        """The addresses and numbers of a launch, with those of this part."""
        return pointers

    def on_host(self, product: HostProduct) -> HostProduct:
        """The product by NumPy, with what this part changes in it."""
        return product


class Extents(NamedTuple):
    """The shape of a product, and which of its dimensions stand for none of the caller's: an operand that was
    a vector added them.
    """

    shape: tuple[int, ...]
    drop_row: bool
    drop_col: bool

    def visible(self, matrix: tuple[int, ...]) -> tuple[int, ...]:
        """The extents of a matrix without the dimensions that were added to vectors."""
        return (() if self.drop_row else matrix[:1]) + (() if self.drop_col else matrix[1:])

    def full(self, out: Operand) -> Operand:
        """An output as the caller sees it, viewed with the dropped dimensions back in place."""
        if not (self.drop_row or self.drop_col):
            return out
        shape, strides = list(out.shape), list(out.strides)
        if self.drop_col:
            shape.append(1)
            strides.append(1)
        if self.drop_row:
            strides.insert(len(strides) - 1, shape[-1])
            shape.insert(len(shape) - 1, 1)
        return out.viewed(tuple(shape), tuple(strides))


class Grouping(Protocol):
    """What the groups of a call say to its other parts."""

    ragged: Ragged
    ends: Operand

    @property
    def count(self) -> int: ...
    def has_matrices(self, name: str) -> bool:
        """Whether a or b (or its factors, by their name) is a matrix for each group."""

    def lines(self, name: str) -> int | None:
        """Rows or columns of an operand that groups share; None: as many as the product has."""

    def extents_of_each(self, extents: Extents) -> Extents:
        """The extents of each group's matrices, in which all lines of the shared operands count."""

    def lines_of_groups(self, values: Any) -> Any:
        """The values of lines up to the end of the last group."""


class Matrices(Protocol):
    """What a part is told of the call that it belongs to. None of it is kept: a cycle would hold a caller's
    arrays until Python's collector runs.
    """

    a: Operand
    b: Operand
    c: Operand | None
    out: Operand | None
    like: Operand
    groups: Any
    alpha: float
    accumulator: str
    promoted: bool
    no_kernel: str
    out_dtype: str
    extents: Extents

    @property
    def operands(self) -> tuple[Operand, ...]: ...
    @property
    def result_shape(self) -> tuple[int, ...]: ...
    @property
    def scattered_rows(self) -> Operand | None: ...
    def output(self) -> Operand: ...


def with_alignment(problem: Problem, bits: int) -> Problem:
    """The problem with one alignment for all matrices."""
    a, b, d = (replace(matrix, alignment=bits) for matrix in (problem.a, problem.b, problem.d))
    return replace(problem, a=a, b=b, d=d, c=problem.c and replace(problem.c, alignment=bits))
