"""The launches of one emulated product (emulated.py), and what they leave for each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any, NamedTuple

from lapidist.backends.backend import Backend
from lapidist.calls.bound import Bound
from lapidist.calls.call import Call
from lapidist.calls.destination import output_of
from lapidist.calls.operation import Operation, Types
from lapidist.calls.planned_products import prepared
from lapidist.calls.repeat.fast_path import FastPath
from lapidist.calls.repeat.start_in_steps import (
    FIXED,
    ROOM,
    A,
    B,
    C,
    D,
    Place,
    Step,
    alone,
    fast_path,
    product,
)
from lapidist.dtypes import size_of
from lapidist.errors import DTypeError
from lapidist.frameworks.arrays import Operand, operand_of
from lapidist.frameworks.new_arrays import as_planned, empty, fresh
from lapidist.launch import Launch
from lapidist.planning.emulated_passes import (
    PARTS,
    Lines,
    Parts,
    joining,
    padded,
    slicing,
    taking,
    words_of_lines,
)

IN_INT32 = Types(out_dtype="int32")
IN_FLOAT32, PROMOTED = (Types(out_dtype="float32", promote=promote) for promote in (None, True))
ALIGNMENT = 256  # bytes
NONE: Mapping[int, Place] = {}

Multiply = Callable[[Call], Any]


class CutColumns(NamedTuple):
    """B's parts, and what the pass that cut them said of its lines, in memory that outlives a call."""

    parts: Operand
    lines: Operand


class Emulated:
    """`multiply`: how other calls are made. `records`: the launches are recorded, for calls like this one.
    `prepared`: B, cut before.
    """

    def __init__(
        self,
        bound: Bound,
        backend: Backend,
        call: Call,
        parts: Parts,
        multiply: Multiply,
        records: bool,
        prepared: CutColumns | None = None,
    ) -> None:
        self.bound, self.backend, self.call, self.parts, self.multiply = bound, backend, call, parts, multiply
        (self.m, self.n), self.k = bound.shape, bound.a.shape[-1]
        self.how = backend.chip.architecture, backend.compiles
        self.room = Room(bound.like, () if prepared is None else prepared)
        self.prepared = prepared
        self.steps: list[Step | None] | None = [] if records else None

    def run(self) -> Any:
        bound, m, n, k, parts, new = self.bound, self.m, self.n, self.k, self.parts, self.room.new
        result, d = output_of(bound)
        a, b, c = bound.a, bound.b, bound.c or d
        wide = PARTS * padded(k)
        of_a = new((m, wide), parts.dtype)
        lines, sums = new((words_of_lines(m, n),), "float32"), new((PARTS, m, n), parts.sum_dtype)
        # A's pass comes first: that of B takes what it left
        self._cut(a, Lines(m, n, k, False, *a.strides[-2:]), lines, of_a)
        if self.prepared is None:
            of_b = new((n, wide), parts.dtype)
            self._cut(b, Lines(m, n, k, True, *b.strides[:-3:-1]), lines, of_b)
        else:
            of_b = self.prepared.parts
            self._launch(taking(m, n, parts, *self.how), (self.prepared.lines, lines, lines, lines))
        for level in reversed(range(PARTS)):  # the smallest products first
            self._multiply(of_a, of_b, sums, level)
        join = joining(m, n, k, c.strides[-2:], d.strides[-2:], parts, self.backend.chip.sms, *self.how)
        self._launch(join, (sums, lines, c, d), {2: C, 3: D})
        self._fall_back(d, lines)
        return bound.deliver(result)

    def _cut(self, operand: Operand, of_operand: Lines, lines: Operand, to: Operand) -> None:
        launch = slicing(of_operand, self.parts, *self.how)
        self._launch(launch, (operand, lines, lines, to), {0: B if of_operand.of_b else A})

    def _multiply(self, a: Operand, b: Operand, sums: Operand, level: int) -> None:
        """The products of parts whose numbers add up to `level`. Of floats the last sums are promoted, as
        tensor cores cut them off; those before are a 256th at most.
        """
        wide = padded(self.k)
        width = (level + 1) * wide
        left, right, out = a.owner[:, :width], b.owner[:, PARTS * wide - width :].T, sums.owner[level]
        types = IN_INT32 if not self.parts.floats else IN_FLOAT32 if level else PROMOTED
        choices = self.call.choices
        call = Call(left, right, None, out, Operation(types=types), choices, self.call.stream)
        self.multiply(call)
        if self.steps is not None:
            at = [self.room.place(operand_of(x, "")) for x in (left, right, out, out)]
            bound = call.bound()
            self.steps.append(product(prepared(bound, choices), bound, at))

    def _fall_back(self, d: Operand, lines: Operand) -> None:
        """The product of float32 itself, with the alpha and beta that the device decided on. simt multiplies
        nothing where alpha is zero in memory.
        """
        extents, a, b, out = self.bound.extents, self.bound.a.owner, self.bound.b.owner, d.owner
        if extents.drop_row:
            a, out = a[None], out[None]
        if extents.drop_col:
            b, out = b[:, None], out[..., None]
        alpha, beta = lines.owner[0:1], lines.owner[1:2]
        operation = self.call.operation._replace(vectors=False, alpha=alpha, beta=beta)
        choices = self.call.choices._replace(kernel="simt")
        call = Call(a, b, out, out, operation, choices, self.call.stream)
        self.multiply(call)
        if self.steps is not None:
            numbers = [self.room.place(operand_of(x, "")) for x in (alpha, beta)]
            bound = call.bound()
            self.steps.append(product(prepared(bound, choices), bound, (A, B, D, D), numbers))

    def _launch(
        self, launch: Launch, operands: tuple[Operand, ...], of_call: Mapping[int, Place] = NONE
    ) -> None:
        """`of_call`: which of the operands, A, B, C and D of the launch, are the call's."""
        at, framework = dict(zip("ABCD", operands, strict=True)), self.bound.like.framework
        self.backend.launch_alone(launch, at, self.bound.alpha_beta, framework, self.call.stream)
        if self.steps is not None:
            sources = (of_call.get(i) or self.room.place(operand) for i, operand in enumerate(operands))
            self.steps.append(alone(launch, self.backend.ordinal, tuple(sources)))

    def fast_path(self) -> FastPath | None:
        """What launches the same on matrices like these. None: nothing was recorded, or better kernels may
        come.
        """
        return None if self.steps is None else fast_path(self.bound, self.steps, self.room.nbytes)


class Room:
    """Arrays that launches leave for each other, and where they would lie in one array. `fixed`: arrays that
    stay where they are.
    """

    def __init__(self, like: Operand, fixed: Iterable[Operand] = ()) -> None:
        self.like, self.nbytes = like, 0
        self.fixed = [(array.pointer, prod(array.shape) * size_of(array.dtype)) for array in fixed]
        self.arrays: list[tuple[int, int, int]] = []  # address, bytes, offset

    def new(self, shape: tuple[int, ...], dtype: str) -> Operand:
        try:
            owner = empty(shape, self.like, dtype)
        except (TypeError, ValueError) as error:  # of CuPy, whose older versions have no bfloat16
            raise DTypeError(
                f"precision: leaves arrays of {dtype} between its launches, and {self.like.framework} makes"
                f' none: {error}. Pass arrays of torch, or take precision="emulated"'
            ) from error
        array = as_planned(owner, fresh(dtype, shape, self.like, dtype))
        nbytes = prod(shape) * size_of(dtype)
        self.arrays.append((array.pointer, nbytes, self.nbytes))
        self.nbytes += -(-nbytes // ALIGNMENT) * ALIGNMENT
        return array

    def place(self, operand: Operand) -> Place:
        """Of one of the arrays, or of a part of it."""
        address = operand.pointer
        if any(at <= address < at + size for at, size in self.fixed):
            return Place(FIXED, address)
        offsets = (offset + address - at for at, size, offset in self.arrays if at <= address < at + size)
        return Place(ROOM, next(offsets))
