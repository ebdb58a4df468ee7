"""The operands of an epilogue: checked, and viewed with the rows and columns of the product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from lapidist.calls import argument_rules
from lapidist.calls.epilogue_results import FurtherResults, OfArguments, require_even_steps
from lapidist.calls.operation import is_array
from lapidist.dtypes import number_type
from lapidist.epilogues.expressions import SEEDS, is_seed
from lapidist.epilogues.numeric import evaluate, stored
from lapidist.epilogues.passes import JOINED, LARGEST, QUANTISED, REDUCTIONS
from lapidist.epilogues.passes import ROW as OF_ROWS
from lapidist.epilogues.steps import COLUMN, POSITIONS, ROW, SCALAR, TILE, Function, Parameter
from lapidist.errors import ArgumentError, DTypeError, ShapeError
from lapidist.frameworks.arrays import Operand, broadcast, evenly, fresh, on_host, operand_of
from lapidist.frameworks.host_arrays import native
from lapidist.planning.in_kernel_reductions import NOTHING, InKernelWork
from lapidist.planning.second_passes import TOGETHER, Pass, Target
from lapidist.problems.epilogue_layout import MOST_OPERANDS, READS, Fed, Fused
from lapidist.problems.problem import Matrix

if TYPE_CHECKING:
    from lapidist.calls.arguments import Arguments
    from lapidist.epilogues.tracing import BoundEpilogue

Array = np.ndarray[Any, Any]
FOR_EACH = {ROW: "column of D", COLUMN: "row of D", TILE: "element of D"}
FOR_EACH_PAIR = {**FOR_EACH, ROW: "pair of columns", TILE: "row and pair of columns"}
WORDS = {"float32": "int32", "float64": "int64"}  # integers that order like floats, for atomic maxima
SEED_TYPES = ("int64", "int32")
# whether an operand changes along rows of D, and along columns
REACH = {SCALAR: (False, False), ROW: (False, True), COLUMN: (True, False), TILE: (True, True)}


def require_seed(name: str, value: object) -> int:
    if is_seed(value):
        return int(value)  # type: ignore[call-overload,no-any-return]
    raise ArgumentError(
        f"{name}: must be an integer, {SEEDS}, or an array of one; got {value!r}. Call int() on it"
    )


def require_type_read(name: str, dtype: str, types: tuple[str, ...]) -> None:
    if dtype not in types:
        raise DTypeError(f"{name}: must be of {', '.join(types)}; got {dtype}. Convert it first")


def require_one_element(name: str, shape: tuple[int, ...]) -> None:
    if math.prod(shape) != 1:
        raise ShapeError(f"{name}: must be a number or an array of one element; got {shape}. Take one")


def number_given(function: Function, name: str, value: Any, dtype: str) -> float:
    """What a kernel is passed for an operand that is a number."""
    if name in function.seeds:
        return require_seed(name, value)
    number = argument_rules.require_scalar(name, value)
    if name in function.shares and not 0 <= number < 1:
        raise ArgumentError(
            f"{name}: must be 0 or more and below 1, a share that is dropped; got {value!r}. Try 0.1"
        )
    return argument_rules.require_in_range(name, number, dtype)


class FusedOperands(OfArguments):
    """The operands of one call's epilogue. Each is a number, or an array viewed as a matrix of D's shape."""

    def __init__(self, given: BoundEpilogue, arguments: Arguments, outputs: Sequence[Any]) -> None:
        super().__init__(arguments)
        self.function = given.function
        self.dtype = number_type(arguments.accumulator).name
        floats = self.dtype in ("float32", "float64")
        if arguments.no_kernel and arguments.accumulator == self.dtype and floats:
            raise DTypeError(arguments.no_kernel)
        if arguments.no_kernel or not floats:
            raise DTypeError(
                f"epilogue: must follow sums of floats; a is {arguments.a.dtype}, summed in"
                f" {arguments.accumulator}. Convert a and b first, or compute with the result"
            )
        more = self.function.is_positioned + 2 * (self.function.grouped is not None)
        count = len(self.function.parameters) + more + len(self.function.stored)
        if count > MOST_OPERANDS:
            raise ArgumentError(
                f"epilogue: must have {MOST_OPERANDS} operands and results beside D or fewer;"
                f" {self.function.name} has {count}. Join some into one array"
            )
        self._values = [self._value(each, given.values[each.name]) for each in self.function.parameters]
        self.results = FurtherResults(self.function, outputs, arguments)
        self._d: Operand | None = None
        shapes = [self.results.shape_of_values(each) for each in self.function.sources]
        self.sources = [fresh("values", each, arguments.like, self.dtype) for each in shapes]
        self.slots = [
            fresh("largest", (1, 1), arguments.like, WORDS[self.dtype]).viewed((1, 1), (0, 0))
            for _ in self.function.maxima
        ]
        if self.d_follows and arguments.out is not None:
            require_even_steps(arguments.out)
        self.results.require_apart_from(self.read)

    def _value(self, parameter: Parameter, value: Any) -> float | Operand:
        name, kind = parameter
        seeds = name in self.function.seeds
        if (seeds or kind == SCALAR) and not is_array(value):
            return number_given(self.function, name, value, self.dtype)
        arguments, operand = self._arguments, operand_of(native(value), name)
        require_type_read(name, operand.dtype, SEED_TYPES if seeds else tuple(READS))
        argument_rules.require_same_device(operand, arguments.a)
        argument_rules.require_whole_elements(operand)
        argument_rules.require_no_gradient(operand)
        if arguments.out is not None:
            argument_rules.require_no_overlap(arguments.out, operand)
        if kind != SCALAR:
            return self._broadcast(operand, kind)
        require_one_element(name, operand.shape)
        return operand.viewed((1, 1), (0, 0))

    # ---- shapes ----

    @property
    def _shape(self) -> tuple[int, ...]:
        """D's shape. If rows are scattered, it is that of the caller's out."""
        arguments = self._arguments
        scattered = getattr(arguments, "index", {}).get("scatter_d") is not None and arguments.out is not None
        rows = arguments.out.shape[-2] if scattered and arguments.out else arguments.shape[-2]
        return (*arguments.shape[:-2], rows, arguments.shape[-1] // (2 if self.function.paired else 1))

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
        own = {ROW: (cols,), COLUMN: (rows,), TILE: (rows, cols)}[kind]
        each = (FOR_EACH_PAIR if self.function.paired else FOR_EACH)[kind]
        batch = self._shape[:-2]
        raise ShapeError(
            f"{operand.name}: must have a value for each {each}, shape {own}"
            f"{f', or that of the batch, {batch}, before it' if batch else ''}; got {operand.shape}."
            f" Reshape it"
        )

    def _readings(self, operand: Operand, kind: str) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """The ways to read an operand's shape and strides as those of a matrix. Dimensions that it lacks, or
        that a product of vectors lacks, are added.
        """
        shape, strides, arguments = operand.shape, operand.strides, self._arguments
        if kind == TILE:
            if arguments.drop_col:
                shape, strides = (*shape, 1), (*strides, 0)
            if arguments.drop_row:
                shape, strides = (*shape[:-1], 1, *shape[-1:]), (*strides[:-1], 0, *strides[-1:])
            return [(shape, strides)] if len(shape) > 1 else []
        place = len(shape) - 1 if kind == ROW else len(shape)
        added = (*shape[:place], 1, *shape[place:]), (*strides[:place], 0, *strides[place:])
        return [added, (shape, strides)] if len(shape) > 1 else [added] if shape else []

    # ---- what kernels are given ----

    @property
    def arrays(self) -> tuple[Operand, ...]:
        values = (*self._values, *self.results.operands)
        return tuple(value for value in values if isinstance(value, Operand))

    @property
    def read(self) -> list[Operand]:
        """The operands that are arrays."""
        return [value for value in self._values if isinstance(value, Operand)]

    @property
    def pointers(self) -> tuple[Any, ...]:
        """Addresses of arrays, and numbers."""
        return tuple(value.pointer if isinstance(value, Operand) else value for value in self._all)

    @property
    def _all(self) -> list[float | Operand]:
        """Everything that a kernel reads, then what it writes; D too if the epilogue stores it."""
        own, groups = self.function.stores_d and not self.d_follows, self.function.grouped is not None
        d = [self._d or self._arguments.output()] if own or groups else []
        factors = self.results.operands[:1] if groups else []
        stored = [*self.results.stored, *self.sources, *self.slots]
        return [*self._values, *self._positions, *d, *factors, *stored]

    @property
    def _positions(self) -> list[Operand]:
        """An operand without memory: seen from address 0, an element's address is its number in D, which
        random masks depend on.
        """
        asked = self.function.is_positioned
        return [fresh(POSITIONS, self._shape, self._arguments.like, "uint8")] if asked else []

    # ---- second passes ----

    @property
    def d_follows(self) -> bool:
        """Whether a second pass stores D."""
        return self.function.results[0].then != ""

    def place(self, values: Sequence[int], slots: Sequence[int]) -> None:
        """Set the addresses where kernels leave what second passes read."""
        self.sources = [replace(each, pointer=at) for each, at in zip(self.sources, values, strict=True)]
        self.slots = [replace(each, pointer=at) for each, at in zip(self.slots, slots, strict=True)]

    @property
    def written(self) -> list[Operand]:
        """All results, D first."""
        return [self._d or self._arguments.output(), *self.results.operands]

    def shapes_left(self, before: InKernelWork) -> list[tuple[int, ...]]:
        """The shapes of what kernels leave for second passes. Where columns of a row were reduced in the
        kernel, the partial results of all rows form one matrix.
        """
        found = []
        for place, (each, joined) in enumerate(zip(self.sources, self.function.joined, strict=True)):
            *batch, rows, cols = each.shape
            if before.quantised and place == self.function.grouped:
                rows = 0
            elif before.joined and joined and joined.over == OF_ROWS:
                neighbours = self.function.neighbours(self.function.sources[place])
                batch, rows, cols = [], -(-cols // neighbours), math.prod(batch) * rows
            elif before.joined and joined:
                rows = -(-rows // JOINED)
            found.append((*batch, rows, cols))
        return found

    def passes(self, before: InKernelWork = NOTHING) -> list[tuple[Pass, Operand, tuple[Operand, ...]]]:
        """The second passes, each with the values that it reads and the results that it stores. Factors are
        stored by the pass of the result that they scale.
        """
        joined = self.function.joined if before.joined else repeat(None)
        left = zip(self.sources, self.shapes_left(before), joined, strict=False)
        sources = dict(zip(self.function.sources, left, strict=True))
        slots = dict(zip(self.function.maxima, self.slots, strict=True))
        operands = self.written
        found: list[tuple[Pass, Operand, tuple[Operand, ...]]] = []
        for place, (result, operand) in enumerate(zip(self.function.results, operands, strict=True)):
            if (result.then not in REDUCTIONS and result.then != QUANTISED) or (
                before.quantised and not place
            ):
                continue
            if result.then in LARGEST:
                read = slots[result._replace(dtype="")]
                found.append((Pass(result.then, self.dtype, (1, 1, 1), target_of(operand)), read, (operand,)))
                continue
            source = result._replace(dtype="", then="")
            values, left_of_it, how = sources[source]
            stored = (operand, operands[place + 1]) if result.then == QUANTISED else (operand,)
            *batch, rows, cols = left_of_it
            shape, factors = (math.prod(batch), rows, cols), [target_of(each) for each in stored[1:]]
            target, neighbours = target_of(operand), self.function.neighbours(source)
            made = Pass(result.then, self.dtype, shape, target, factors[0] if factors else None, neighbours)
            along = how is not None and how.over == OF_ROWS
            found.append((made.of_columns() if along else made, values, stored))
        return found

    def lie_at(self, operands: Sequence[int], results: Sequence[int]) -> None:
        """Use arrays of the same shapes at other addresses: for operands that are arrays, and for all
        results, D first.
        """
        at = iter(operands)
        self._values = [
            replace(each, pointer=next(at)) if isinstance(each, Operand) else each for each in self._values
        ]
        written = zip(self.written, results, strict=True)
        self._d, *self.results.operands = [replace(each, pointer=at) for each, at in written]

    def write_to(self, d: Operand) -> None:
        """D has its array; allocate those of the other results."""
        self._d = d
        self.results.make()

    def as_planned(self) -> Fused:
        """The epilogue as a Problem describes it, with the product's rows."""
        own, whole = (each.kind for each in self.function.parameters), len(self._all) - len(self.slots)
        kinds = [*own, *repeat(TILE, whole - len(self.function.parameters)), *repeat(SCALAR, len(self.slots))]
        fed = tuple(self._fed(kind, value) for kind, value in zip(kinds, self._all, strict=False))
        return Fused(self.function, fed, self.dtype)

    def _fed(self, kind: str, value: float | Operand) -> Fed:
        if not isinstance(value, Operand):
            return Fed("int64" if isinstance(value, int) else self.dtype, None)
        shape = self._arguments.shape
        cols = shape[-1] if kind == SCALAR else value.shape[-1]
        whole = value.viewed((*value.shape[:-2], shape[-2], cols), value.strides)
        return Fed(value.dtype, Matrix.of(whole, shape[:-2]), *REACH[kind], value.name == POSITIONS)

    # ---- on the host ----

    def on_host(self, sums: Array) -> Array:
        """What NumPy stores in place of these sums."""
        values = {
            each.name: self._on_host(value) if isinstance(value, Operand) else value
            for each, value in zip(self.function.parameters, self._values, strict=True)
        }
        if self.function.is_positioned:
            numbers = np.arange(math.prod(self._shape), dtype=np.uint64)
            values[POSITIONS] = self._at_rows(numbers.reshape(self._shape))
        d, *further = evaluate(self.function, sums, values)
        self.results.store_on_host(further)
        dtype = self.function.results[0].dtype
        return stored(d, dtype).astype(sums.dtype) if dtype else d

    def _on_host(self, operand: Operand) -> Array:
        values = on_host(operand)
        return values if operand.shape == (1, 1) else self._at_rows(values)

    def _at_rows(self, values: Array) -> Array:
        """The rows of an operand that belong to the product's rows, which `scatter_d` may select."""
        scattered = getattr(self._arguments, "index", {}).get("scatter_d")
        if scattered is None:
            return values
        rows = on_host(scattered)
        batch = broadcast(values.shape[:-2], rows.shape[:-1])
        each = np.broadcast_to(rows, (*batch, rows.shape[-1]))[..., None]
        return np.take_along_axis(np.broadcast_to(values, (*batch, *values.shape[-2:])), each, -2)


def fits_batch(own: Sequence[int], batch: Sequence[int]) -> bool:
    """Whether the dimensions before an operand's rows and columns broadcast to those of the batch."""
    pairs = zip(own[::-1], batch[::-1], strict=False)
    return len(own) <= len(batch) and all(extent in (1, wanted) for extent, wanted in pairs)


def target_of(operand: Operand) -> Target:
    step = evenly(operand.shape[:-1], operand.strides[:-1])
    assert step is not None  # require_even_steps checked it
    return Target(operand.dtype, step, operand.strides[-1], operand.pointer % TOGETHER == 0)
