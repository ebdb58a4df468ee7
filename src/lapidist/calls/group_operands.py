"""Groups of a product: where each ends, in an array that kernels read when they run.

The shapes of a and b say what is cut:

    a (total, k)       b (groups, k, n)   rows of a: d (total, n)
    a (groups, m, k)   b (k, total)       columns of b: d (m, total)
    a (m, total)       b (total, n)       k: d (groups, m, n)
    a (groups, most, k), counts           the first rows of each matrix: d (groups, most, n)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lapidist.backends.host_product import Factors, HostProduct, sums_of
from lapidist.calls import number_rules
from lapidist.calls.group_results import finished_by_group
from lapidist.calls.index_operands import IndexOperands, index_of, indices_of
from lapidist.calls.operation import Groups
from lapidist.calls.part import Extents, Matrices, Part, ProblemInputs
from lapidist.dtypes import integer_from, numpy_sums
from lapidist.errors import ArgumentError, DTypeError, ShapeError, shown
from lapidist.frameworks.arrays import HOST, Operand
from lapidist.problems.modes import ExtraPointers
from lapidist.problems.ragged import COLS, DEPTH, ROWS, Ragged

if TYPE_CHECKING:
    from lapidist.calls.epilogue_operands import EpilogueOperands

Array = np.ndarray[Any, Any]
Shapes = tuple[tuple[int, ...], tuple[int, ...]]
WAYS = (
    "with offsets a (total, k) and b (groups, k, n), or a (groups, m, k) and b (k, total), or a (m, total)"
    " and b (total, n); with counts a (groups, most, k) and b (groups, k, n)"
)
CUTS = {(2, 3): ROWS, (3, 2): COLS, (2, 2): DEPTH}  # by the dimensions of a and b
LEAST_EXPECTED = 2  # a matrix of one line would lie in any layout
ONE_ELEMENT = 1  # the alignment of lines that start at any element


class GroupOperands(Part):
    """The ends of the groups, or how many rows of each count."""

    ragged: Ragged

    def __init__(self, groups: Groups) -> None:
        if (groups.offsets is None) == (groups.counts is None):
            raise ArgumentError(
                "offsets: one of offsets and counts says where groups end; got"
                f" {'neither' if groups.offsets is None else 'both'}. Pass offsets, for groups one after"
                " another; lists of arrays are multiplied by gemm"
            )
        self._counted = groups.counts is not None
        self.ends = index_of(*((groups.counts, "counts") if self._counted else (groups.offsets, "offsets")))
        if len(self.ends.shape) != 1:
            raise ShapeError(
                f"{self.ends.name}: must have one dimension, a number for each group; got shape"
                f" {self.ends.shape}. Reshape it"
            )
        number_rules.require_flag("check_offsets", groups.check)
        self._check, self._expected = groups.check, required_rows(groups.expected_rows)
        self.arrays = (self.ends,)

    @property
    def count(self) -> int:
        return self.ends.shape[0]

    def has_matrices(self, name: str) -> bool:
        """Whether a or b (or its factors, by their name) is a matrix for each group."""
        return self.ragged.extent == (COLS if name.endswith("a") else ROWS)

    def lines(self, name: str) -> int | None:
        """Rows of an a with counts, all matrices together. None: as many as the product has."""
        return self.ragged.total if self._counted and name.endswith("a") else None

    def extents_of_each(self, extents: Extents) -> Extents:
        """The extents of each group's matrices, in which all lines of the shared operands count."""
        *_, m, n = extents.shape
        rows = self.ragged.total if self.ragged.extent == ROWS else m
        return Extents((self.count, rows, n), False, False)

    def lines_of_groups(self, values: Array) -> Array:
        """The values of lines up to the end of the last group, which waits for a GPU that the ends are on."""
        ends = indices_of(self.ends)
        return values[: max(0, int(ends[-1])) if ends.size else 0]

    # ---- rules ----

    @property
    def _numbers(self) -> str:
        return "a number for each" if self._counted else "the end of each, and no zero before the first"

    def extents(self, a: Operand, b: Operand, indices: IndexOperands | None = None) -> Extents:
        """The product's shape, as the caller sees it."""
        dimensions, count = (len(a.shape), len(b.shape)), self.count
        extent = ROWS if self._counted and dimensions == (3, 3) else CUTS.get(dimensions)
        if extent is None or (self._counted and dimensions != (3, 3)):
            way_out = "Reshape them"
            if self._counted and dimensions == (2, 3):
                way_out = "Groups one after another have offsets, the cumsum of their lengths"
            raise ShapeError(f"a, b: {WAYS}; got {a.shape} and {b.shape}. {way_out}")
        for operand in (a, b):
            if len(operand.shape) == 3 and operand.shape[0] != count:
                raise ShapeError(
                    f"{operand.name}: must have a matrix for each of the {count} groups; got {operand.shape}."
                    f" {self.ends.name} has {self._numbers}"
                )
        if a.shape[-1] != b.shape[-2]:
            raise ShapeError(
                f"a, b: must have one inner extent; got {a.shape} and {b.shape}. Transpose one with"
                " trans_a or trans_b"
            )
        m, n = a.shape[-2], b.shape[-1]
        if indices is not None:
            self._require_rows_for(indices, extent)
            m, n = indices.picked(m, n)
        total = {ROWS: m, COLS: n, DEPTH: a.shape[-1]}[extent]
        self.ragged = Ragged(extent, count, count * m, m) if self._counted else Ragged(extent, count, total)
        if extent == DEPTH:
            return Extents((count, m, n), False, False)
        return Extents((count, m, n) if self._counted else (m, n), False, False)

    def _require_rows_for(self, indices: IndexOperands, extent: str) -> None:
        if not indices.arrays:  # alpha or beta alone lie in memory
            return
        if extent != ROWS or self._counted or any(len(index.shape) > 1 for index in indices.arrays):
            raise ArgumentError(
                "gather_a, scatter_d: are for rows that offsets cut, one index for each; the groups are of"
                f" {'rows with counts' if self._counted else extent}. Leave them out"
            )
        for index in indices.arrays:
            if index.dtype != self.ends.dtype:
                raise DTypeError(
                    f"{index.name}: must have the type of offsets, {self.ends.dtype}; got {index.dtype}."
                    " Convert one"
                )

    def require_fit(self, matrices: Matrices) -> None:
        """Ends must rise and lie inside. On a GPU this is checked only on request, as it waits for the GPU.
        The kernel keeps inside in any case.
        """
        if self._counted:
            for operand in matrices.operands:
                require_stacked(operand)
        is_outline = self.ends.owner is None  # of a compiler, without numbers
        if is_outline or not (self._check or self.ends.device == HOST):
            return
        name, values = self.ends.name, indices_of(self.ends)
        limit = self.ragged.most if self._counted else self.ragged.total
        before = np.zeros_like(values) if self._counted else np.concatenate(([0], values))[: len(values)]
        wrong = np.flatnonzero((values < before) | (values > limit))
        if wrong.size:
            group = int(wrong[0])
            rule = f"between 0 and {limit}" if self._counted else f"from {before[group]} to {limit}"
            raise ArgumentError(
                f"{name}: of group {group} must lie {rule}; got {values[group]}. "
                + (
                    "Correct it"
                    if self._counted
                    else "They are ends, which rise: torch.cumsum of the lengths"
                )
            )

    # ---- what kernels are given ----

    def described(self, inputs: ProblemInputs) -> ProblemInputs:
        """A batch of even groups. What groups share stays where it is in each of them."""
        ragged, count = self.ragged, self.count
        expected = self._expected or max(LEAST_EXPECTED, -(-ragged.total // max(1, count)))
        rows, cols, depth = (expected if ragged.extent == extent else None for extent in (ROWS, COLS, DEPTH))
        a, b = viewed(inputs.a, count, rows, depth), viewed(inputs.b, count, depth, cols)
        d = viewed(inputs.d, count, rows, cols)
        c = None if inputs.c is None else viewed(inputs.c, count, rows, cols)
        cut = {ROWS: ((a, -2), (d, -2)), COLS: ((b, -1), (d, -1)), DEPTH: ((a, -1), (b, -2))}[ragged.extent]
        anywhere = any(operand.strides[at] == 1 for operand, at in cut)
        return inputs._replace(
            shape=d.shape,
            a=a,
            b=b,
            c=c,
            d=d,
            modes=replace(inputs.modes, ragged=ragged, index=self.ends.dtype),
            alignment=ONE_ELEMENT if anywhere else inputs.alignment,
        )

    def with_pointers(self, pointers: ExtraPointers) -> ExtraPointers:
        return pointers._replace(ends=self.ends.pointer)

    # ---- on the host ----

    def on_host(self, product: HostProduct) -> HostProduct:
        """The product group by group. What belongs to none stays as it is."""
        stretches, results = list(self._stretches()), np.empty(product.out.shape, product.out.dtype)
        store = partial(store_groups, self.ragged, stretches, product.out, product.store)
        return product._replace(
            out=results, sums=partial(sums_of_groups, self.ragged, self._counted, stretches), store=store
        )

    def finished(self, product: HostProduct, epilogue: EpilogueOperands) -> HostProduct:
        """The product with what follows its sums."""
        ragged, stretches = self.ragged, list(self._stretches())
        if ragged.extent == DEPTH:
            return product
        finish = partial(finished_by_group, ragged, stretches, epilogue.finish, *epilogue.host_arrays)
        return product._replace(finish=finish)

    def _stretches(self) -> Iterator[tuple[int, int]]:
        values = indices_of(self.ends).tolist()
        if self._counted:
            most = self.ragged.most
            return ((number * most, number * most + count) for number, count in enumerate(values))
        return zip([0, *values][: len(values)], values, strict=True)


def required_rows(expected: object) -> int | None:
    if expected is None:
        return None
    rows = integer_from(1, expected)
    if rows is not None:
        return max(LEAST_EXPECTED, rows)
    raise ArgumentError(
        "expected_rows: must be a whole number from 1 on; got"
        f" {shown(expected)}. Leave it out to plan for even"
        " groups"
    )


def require_stacked(operand: Operand) -> None:
    """Matrices with counts lie one after another, so that their rows are those of one tall matrix."""
    if len(operand.shape) == 3 and operand.name != "b":
        batch, rows, _ = operand.strides
        if operand.shape[0] > 1 and operand.shape[1] > 1 and batch != operand.shape[1] * rows:
            raise ShapeError(
                f"{operand.name}: with counts, matrices must lie one after another; got strides"
                f" {operand.strides} of shape {operand.shape}. Copy it"
            )


def viewed(operand: Operand, count: int, rows: int | None, cols: int | None) -> Operand:
    """An operand as a matrix for each group, with so many rows or columns where groups cut them."""
    shape, strides = operand.shape[-2:], operand.strides[-2:]
    if (
        rows is not None and len(operand.shape) > 2 and shape[0] == 1
    ):  # of one row each: the next is the batch's
        strides = operand.strides[-3], strides[1]
    cut = rows is not None or cols is not None
    batch = 0 if cut or len(operand.shape) < 3 else operand.strides[-3]
    extents = (shape[0] if rows is None else rows, shape[1] if cols is None else cols)
    return operand.viewed((count, *extents), (batch, *strides))


def tall(matrix: Array, counted: bool) -> Array:
    return matrix.reshape(-1, matrix.shape[-1]) if counted else matrix


def sums_of_groups(
    ragged: Ragged,
    counted: bool,
    stretches: list[tuple[int, int]],
    a: Array,
    b: Array,
    c: Array | None,
    alpha: float,
    beta: float,
    accumulator: str,
    precision: str,
    factors: Factors | None,
) -> Array:
    """alpha a b + beta c of each group; zeros where no group is."""
    working = numpy_sums(accumulator)
    a = tall(a, counted)
    shape = {ROWS: (a.shape[-2], b.shape[-1]), COLS: (a.shape[-2], b.shape[-1])}.get(
        ragged.extent, (len(stretches), a.shape[-2], b.shape[-1])
    )
    results = np.zeros(shape, working)
    if c is not None:
        c = tall(np.broadcast_to(c, (*c.shape[:-2], *c.shape[-2:])), counted)
    for number, (begin, end) in enumerate(stretches):
        part = slice(begin, end)
        how = accumulator, precision, factors_in(factors, ragged.extent, number, part)
        if ragged.extent == ROWS:
            of_c = None if c is None else c[part]
            results[part] = sums_of(a[part], b[number], of_c, alpha, beta, *how)
        elif ragged.extent == COLS:
            of_c = None if c is None else c[:, part]
            results[:, part] = sums_of(a[number], b[:, part], of_c, alpha, beta, *how)
        else:
            of_c = None if c is None else c[number]
            results[number] = sums_of(a[:, part], b[part], of_c, alpha, beta, *how)
    return results.reshape(len(stretches), -1, results.shape[-1]) if counted else results


def factors_in(factors: Factors | None, extent: str, number: int, part: slice) -> Factors | None:
    """The factors of one group."""
    if factors is None:
        return None
    of_a, of_b = factors
    if of_a is not None and extent != DEPTH:
        of_a = of_a[number] if extent == COLS else of_a[part] if len(of_a) > 1 else of_a
    if of_b is not None and extent != DEPTH:
        of_b = of_b[number] if extent == ROWS else of_b[:, part] if of_b.shape[1] > 1 else of_b
    return of_a, of_b


def store_groups(
    ragged: Ragged,
    stretches: list[tuple[int, int]],
    target: Array,
    store: Callable[[Array], None] | None,
    results: Array,
) -> None:
    """Write the lines of groups to `target`; `store`: what then brings them where they belong."""
    if ragged.extent == DEPTH:
        target[...] = results
        return
    lines, whole = (tall(x, ragged.most > 0) for x in (results, target))
    for begin, end in stretches:
        at = (slice(begin, end),) if ragged.extent == ROWS else (slice(None), slice(begin, end))
        whole[at] = lines[at]
    if store is not None:
        store(target)
