"""The operands of an epilogue: checked, and viewed with the rows and columns of the product."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np

from lapidist.backends.host_product import HostProduct
from lapidist.calls import argument_rules
from lapidist.calls.epilogue_results import FurtherResults, require_even_steps, store_results
from lapidist.calls.epilogue_values import (
    SEED_TYPES,
    checked_number,
    require_one_element,
    require_sums,
    require_type_read,
    types_read,
)
from lapidist.calls.group_results import (
    follower_of_groups,
    in_one_matrix,
    require_one_matrix,
    require_results_of_groups,
)
from lapidist.calls.operation import is_array
from lapidist.calls.part import Grouping, Matrices, Part, ProblemInputs
from lapidist.dtypes import PART_OF, number_type
from lapidist.epilogues.numeric import evaluate, stored
from lapidist.epilogues.passes import JOINED, LARGEST, QUANTISED, REDUCTIONS
from lapidist.epilogues.passes import ROW as OF_ROWS
from lapidist.epilogues.steps import COLUMN, POSITIONS, ROW, SCALAR, TILE, Function, Parameter
from lapidist.epilogues.tracing import BoundEpilogue
from lapidist.errors import ArgumentError, ShapeError
from lapidist.frameworks.arrays import Operand, broadcast, evenly, operand_of
from lapidist.frameworks.host_arrays import native, on_host
from lapidist.frameworks.new_arrays import fresh
from lapidist.planning.in_kernel_reductions import NOTHING, InKernelWork
from lapidist.planning.second_passes import TOGETHER, Pass, Target
from lapidist.problems.epilogue_layout import MOST_OPERANDS, Fed, Fused
from lapidist.problems.matrix import Matrix
from lapidist.problems.modes import ExtraPointers

Array = np.ndarray[Any, Any]
REACH_WORDS = {ROW: "column of D", COLUMN: "row of D", TILE: "element of D"}
REACH_WORDS_OF_PAIRS = {**REACH_WORDS, ROW: "pair of columns", TILE: "row and pair of columns"}
WORDS = {"float32": "int32", "float64": "int64"}  # integers that order like floats, for atomic maxima
# whether an operand changes along rows of D, and along columns
REACH = {SCALAR: (False, False), ROW: (False, True), COLUMN: (True, False), TILE: (True, True)}


class EpilogueOperands(Part):
    """The operands of one call's epilogue. Each is a number, or an array viewed as a matrix of D's shape."""

    def __init__(self, epilogue: BoundEpilogue, matrices: Matrices, outputs: Sequence[Any]) -> None:
        self.function = epilogue.function
        self.dtype = number_type(matrices.accumulator).name
        require_sums(self.function, self.dtype, matrices)
        more = self.function.is_positioned + 2 * (self.function.grouped is not None)
        count = len(self.function.parameters) + more + len(self.function.stored)
        if count > MOST_OPERANDS:
            raise ArgumentError(
                f"epilogue: must have {MOST_OPERANDS} operands and results beside D or fewer;"
                f" {self.function.name} has {count}. Join some into one array"
            )
        self._extents, self._rows = matrices.extents, matrices.scattered_rows
        self._groups: Grouping | None = matrices.groups
        if self._groups is not None:
            require_results_of_groups(self.function, self._groups, self._rows is not None)
            self._extents = self._groups.extents_of_each(matrices.extents)
        self._shape, self._like = self._shape_of_d(matrices.out), matrices.like.alone()
        self._values = [
            self._value(parameter, epilogue.values[parameter.name], matrices)
            for parameter in self.function.parameters
        ]
        self.further = FurtherResults(self.function, outputs, matrices)
        if self._groups is not None:
            require_one_matrix(self.further.operands, self._groups.ragged)
        self._d = matrices.output()
        shapes = [self.further.shape_of_values(source) for source in self.function.sources]
        self.sources = [fresh("values", shape, self._like, self.dtype) for shape in shapes]
        self.slots = [
            fresh("largest", (1, 1), self._like, WORDS[self.dtype]).viewed((1, 1), (0, 0))
            for _ in self.function.maxima
        ]
        if self.d_follows and matrices.out is not None:
            require_even_steps(matrices.out)
        self.further.require_disjoint_from((*matrices.operands, *self.read))

    def _value(self, parameter: Parameter, value: Any, matrices: Matrices) -> float | Operand:
        name, kind = parameter
        seeds, sums = name in self.function.seeds, matrices.accumulator
        if (seeds or kind == SCALAR) and not is_array(value):
            return checked_number(self.function, name, value, sums if sums in PART_OF else self.dtype)
        operand = operand_of(native(value), name)
        require_type_read(name, operand.dtype, SEED_TYPES if seeds else types_read(sums, matrices.out_dtype))
        argument_rules.require_same_device(operand, matrices.a)
        argument_rules.require_aligned_elements(operand)
        argument_rules.require_no_gradient(operand)
        if matrices.out is not None:
            argument_rules.require_no_overlap(matrices.out, operand)
        if kind != SCALAR:
            return self._broadcast(operand, kind)
        require_one_element(name, operand.shape)
        return operand.viewed((1, 1), (0, 0))

    # ---- shapes ----

    def _shape_of_d(self, out: Operand | None) -> tuple[int, ...]:
        """D's shape. If rows are scattered, it is that of the caller's out."""
        *batch, rows, cols = self._extents.shape
        if self._rows is not None and out is not None:
            rows = out.shape[-2]
        return (*batch, rows, cols // (2 if self.function.paired else 1))

    def _broadcast(self, operand: Operand, kind: str) -> Operand:
        """An operand viewed with D's rows and columns, and strides of zero along which it does not change.
        The batch's dimensions stay.
        """
        rows, cols = self._shape[-2:]
        for shape, strides in self._readings(operand, kind):
            lines = rows if kind != ROW else 1, cols if kind != COLUMN else 1
            if shape[-2:] == lines and fits_batch(shape[:-2], self._shape[:-2]):
                step = (0 if kind == ROW else strides[-2], 0 if kind == COLUMN else strides[-1])
                return operand.viewed((*shape[:-2], rows, cols), (*strides[:-2], *step))
        expected = {ROW: (cols,), COLUMN: (rows,), TILE: (rows, cols)}[kind]
        reach = (REACH_WORDS_OF_PAIRS if self.function.paired else REACH_WORDS)[kind]
        batch = self._shape[:-2]
        raise ShapeError(
            f"{operand.name}: must have a value for each {reach}, shape {expected}"
            f"{f', or with the batch before it, {(*batch, *expected)}' if batch else ''}; got"
            f" {operand.shape}. {self._fitting(operand, kind, expected)}"
        )

    def _fitting(self, operand: Operand, kind: str, expected: tuple[int, ...]) -> str:
        """What to do with an operand of another shape."""
        count, (rows, cols) = math.prod(operand.shape), self._shape[-2:]
        if count == math.prod(expected):
            return "Reshape it"
        if count == {ROW: rows, COLUMN: cols}.get(kind):
            other = "lapidist.Column" if kind == ROW else "lapidist.Row"
            return f"A value for each {'row' if kind == ROW else 'column'} is an operand annotated {other}"
        return "Pass one of that shape"

    def _readings(self, operand: Operand, kind: str) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """The ways to read an operand's shape and strides as those of a matrix. Dimensions that it lacks, or
        that a product of vectors lacks, are added.
        """
        shape, strides = operand.shape, operand.strides
        if kind == TILE:
            if self._extents.drop_col:
                shape, strides = (*shape, 1), (*strides, 0)
            if self._extents.drop_row:
                shape, strides = (*shape[:-1], 1, *shape[-1:]), (*strides[:-1], 0, *strides[-1:])
            return [(shape, strides)] if len(shape) > 1 else []
        place = len(shape) - 1 if kind == ROW else len(shape)
        added = (*shape[:place], 1, *shape[place:]), (*strides[:place], 0, *strides[place:])
        return [added, (shape, strides)] if len(shape) > 1 else [added] if shape else []

    # ---- what kernels are given ----

    @property
    def arrays(self) -> tuple[Operand, ...]:  # type: ignore[override]
        return (*self.read, *self.further.operands)

    @property
    def results(self) -> tuple[Operand, ...]:  # type: ignore[override]
        return tuple(self.further.operands)

    @property
    def read(self) -> list[Operand]:
        """The operands that are arrays."""
        return [value for value in self._values if isinstance(value, Operand)]

    @property
    def values(self) -> dict[str, Any]:
        """The operands by name: numbers, and arrays with D's rows and columns."""
        names = (parameter.name for parameter in self.function.parameters)
        return dict(zip(names, self._values, strict=True))

    def with_pointers(self, pointers: ExtraPointers) -> ExtraPointers:
        """Addresses of arrays, and numbers."""
        values = (value.pointer if isinstance(value, Operand) else value for value in self._all)
        return pointers._replace(fused=tuple(values))

    @property
    def _all(self) -> list[float | Operand]:
        """Everything that a kernel reads, then what it writes; D too if the epilogue stores it."""
        stores_d, groups = self.function.stores_d and not self.d_follows, self.function.grouped is not None
        d = [self._d] if stores_d or groups else []
        factors = self.further.operands[:1] if groups else []
        written = [*d, *factors, *self.further.stored, *self.sources]
        if self._groups is not None:
            written = [in_one_matrix(operand, self._groups.ragged) for operand in written]
        return [*self._values, *self._positions, *written, *self.slots]

    @property
    def _positions(self) -> list[Operand]:
        """An operand without memory: seen from address 0, an element's address is its number in D, which
        random masks depend on.
        """
        return [fresh(POSITIONS, self._shape, self._like, "uint8")] if self.function.is_positioned else []

    # ---- second passes ----

    @property
    def d_follows(self) -> bool:
        """Whether a second pass stores D."""
        return self.function.results[0].then != ""

    def place(self, values: Sequence[int], slots: Sequence[int]) -> None:
        """Set the addresses where kernels leave what second passes read."""
        self.sources = [replace(x, pointer=at) for x, at in zip(self.sources, values, strict=True)]
        self.slots = [replace(x, pointer=at) for x, at in zip(self.slots, slots, strict=True)]

    @property
    def written(self) -> list[Operand]:
        """All results, D first."""
        return [self._d, *self.further.operands]

    def value_shapes(self, before: InKernelWork) -> list[tuple[int, ...]]:
        """The shapes of what kernels leave for second passes. Where columns of a row were reduced in the
        kernel, the partial results of all rows form one matrix.
        """
        shapes = []
        for place, (source, joined) in enumerate(zip(self.sources, self.function.joined, strict=True)):
            *batch, rows, cols = source.shape
            if before.quantised and place == self.function.grouped:
                rows = 0
            elif before.joined and joined and joined.over == OF_ROWS:
                neighbours = self.function.neighbours(self.function.sources[place])
                batch, rows, cols = [], -(-cols // neighbours), math.prod(batch) * rows
            elif before.joined and joined:
                rows = -(-rows // JOINED)
            shapes.append((*batch, rows, cols))
        return shapes

    def passes(self, before: InKernelWork = NOTHING) -> list[tuple[Pass, Operand, tuple[Operand, ...]]]:
        """The second passes, each with the values that it reads and the results that it stores. Factors are
        stored by the pass of the result that they scale.
        """
        joined = self.function.joined if before.joined else repeat(None)
        shaped_sources = zip(self.sources, self.value_shapes(before), joined, strict=False)
        sources = dict(zip(self.function.sources, shaped_sources, strict=True))
        slots = dict(zip(self.function.maxima, self.slots, strict=True))
        operands = self.written
        passes: list[tuple[Pass, Operand, tuple[Operand, ...]]] = []
        for place, (result, operand) in enumerate(zip(self.function.results, operands, strict=True)):
            if (result.then not in REDUCTIONS and result.then != QUANTISED) or (
                before.quantised and not place
            ):
                continue
            if result.then in LARGEST:
                read = slots[result._replace(dtype="")]
                passes.append(
                    (Pass(result.then, self.dtype, (1, 1, 1), target_of(operand)), read, (operand,))
                )
                continue
            source = result._replace(dtype="", then="")
            values, source_shape, how = sources[source]
            scaled = operands[place + 1 : place + 2] if result.then == QUANTISED else []
            *batch, rows, cols = source_shape
            shape, target = (math.prod(batch), rows, cols), target_of(operand)
            factors, neighbours = [target_of(factor) for factor in scaled], self.function.neighbours(source)
            follower = Pass(
                result.then, self.dtype, shape, target, factors[0] if factors else None, neighbours
            )
            stored = (operand, *scaled)
            if self._groups is not None:
                follower, stored = follower_of_groups(follower, stored, self._groups)
            along = how is not None and how.over == OF_ROWS
            passes.append((follower.of_columns() if along else follower, values, stored))
        return passes

    def lie_at(self, operands: Sequence[int], results: Sequence[int]) -> None:
        """Use arrays of the same shapes at other addresses: for operands that are arrays, and for all
        results, D first.
        """
        at = iter(operands)
        self._values = [replace(x, pointer=next(at)) if isinstance(x, Operand) else x for x in self._values]
        written = zip(self.written, results, strict=True)
        self._d, *self.further.operands = [replace(x, pointer=at) for x, at in written]

    def write_to(self, d: Operand) -> None:
        """D has its array; allocate those of the other results."""
        self._d = d
        self.further.make()

    def described(self, inputs: ProblemInputs) -> ProblemInputs:
        """The epilogue as a Problem describes it, with the product's rows."""
        values, parameters = self._all, self.function.parameters
        stored = len(values) - len(self.slots) - len(parameters)
        kinds = [x.kind for x in parameters] + [TILE] * stored + [SCALAR] * len(self.slots)
        operands = tuple(self._fed(kind, value) for kind, value in zip(kinds, values, strict=True))
        return inputs._replace(fused=Fused(self.function, operands, self.dtype))

    def _fed(self, kind: str, value: float | Operand) -> Fed:
        if not isinstance(value, Operand):
            return Fed("int64" if isinstance(value, int) else self.dtype, None)
        shape = self._extents.shape
        cols = shape[-1] if kind == SCALAR else value.shape[-1]
        rows = value.viewed((*value.shape[:-2], shape[-2], cols), value.strides)
        return Fed(value.dtype, Matrix.of(rows, shape[:-2]), *REACH[kind], value.name == POSITIONS)

    # ---- on the host ----

    def on_host(self, product: HostProduct) -> HostProduct:
        return product._replace(finish=partial(self.finish, *self.host_arrays))

    @property
    def host_arrays(self) -> tuple[list[Any], list[Array]]:
        """The values of operands, and the arrays of further results."""
        values = [self._on_host(value) if isinstance(value, Operand) else value for value in self._values]
        return values, [on_host(operand) for operand in self.further.operands]

    @property
    def finish(self) -> Callable[[Sequence[Any], Sequence[Array], Array], Array]:
        """What NumPy stores in place of sums: a function of the operands' values, of arrays for further
        results, and of the sums. It holds no array of the caller's but the indices of scattered rows.
        """
        names = [parameter.name for parameter in self.function.parameters]
        if self.function.is_positioned:
            numbers = np.arange(math.prod(self._shape), dtype=np.uint64)
            names.append(POSITIONS)
            positions = [self._at_rows(numbers.reshape(self._shape))]
        else:
            positions = []
        return partial(finished, self.function, names, positions, self._rows_on_host())

    def _on_host(self, operand: Operand) -> Array:
        values = on_host(operand)
        return values if operand.shape == (1, 1) else self._at_rows(values)

    def _rows_on_host(self) -> Array | None:
        rows = None if self._rows is None else on_host(self._rows)
        return rows if rows is None or self._groups is None else self._groups.lines_of_groups(rows)

    def _at_rows(self, values: Array) -> Array:
        """The rows of an operand that belong to the product's rows, which `scatter_d` may select."""
        if (rows := self._rows_on_host()) is None:
            return values
        batch = broadcast(values.shape[:-2], rows.shape[:-1])
        index = np.broadcast_to(rows, (*batch, rows.shape[-1]))[..., None]
        return np.take_along_axis(np.broadcast_to(values, (*batch, *values.shape[-2:])), index, -2)


def finished(
    function: Function,
    names: Sequence[str],
    positions: Sequence[Array],
    rows: Array | None,
    values: Sequence[Any],
    results: Sequence[Array],
    sums: Array,
) -> Array:
    """What becomes of sums; further results are stored."""
    d, *further = evaluate(function, sums, dict(zip(names, (*values, *positions), strict=True)))
    store_results(function.results[1:], further, results, rows)
    dtype = function.results[0].dtype
    return stored(d, dtype).astype(sums.dtype) if dtype else d


def fits_batch(operand_batch: Sequence[int], batch: Sequence[int]) -> bool:
    """Whether the dimensions before an operand's rows and columns broadcast to those of the batch."""
    pairs = zip(operand_batch[::-1], batch[::-1], strict=False)
    return len(operand_batch) <= len(batch) and all(extent in (1, full) for extent, full in pairs)


def target_of(operand: Operand) -> Target:
    step = evenly(operand.shape[:-1], operand.strides[:-1])
    assert step is not None  # require_even_steps checked it
    return Target(operand.dtype, step, operand.strides[-1], operand.pointer % TOGETHER == 0)
