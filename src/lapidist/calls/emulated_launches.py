"""The launches of one emulated product (emulated.py), and what they leave for each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

from lapidist.backends.backend import Backend
from lapidist.calls.bound import Bound
from lapidist.calls.call import Call
from lapidist.calls.destination import output_of
from lapidist.calls.kernel_choice import Choices
from lapidist.calls.operation import Operation, Types
from lapidist.calls.planned_products import prepared
from lapidist.calls.prepared import Prepared
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
from lapidist.dtypes import IEEE, size_of
from lapidist.errors import DTypeError, RefusalError
from lapidist.frameworks.arrays import Operand
from lapidist.frameworks.new_arrays import as_planned, empty, fresh
from lapidist.launch import Launch
from lapidist.planning.emulated_passes import Lines, Parts, joining, padded, slicing, taking, words_of_lines
from lapidist.planning.shape_log import log_parts

IN_INT32 = Types(out_dtype="int32")
IN_FLOAT32, PROMOTED = (Types(out_dtype="float32", promote=promote) for promote in (None, True))
ALIGNMENT = 256  # bytes
NONE: Mapping[int, Place] = {}
DO, DO_NOT = 0, 1  # words of lines: whether their parts hold all numbers, and whether not

Multiply = Callable[[Call], Any]


class CutColumns(NamedTuple):
    """B's parts, and what the pass that cut them said of its lines, in memory that outlives a call."""

    parts: Operand
    lines: Operand


class Alone(NamedTuple):
    """A launch that is no product, on A, B, C and D of its own, and where these lie."""

    launch: Launch
    operands: tuple[Operand, ...]
    sources: tuple[Place, ...]


class Multiplied(NamedTuple):
    """A product, where its A, B, C and D lie, and its guard. `of_call`: with the call's alpha and beta."""

    bound: Bound
    choices: Choices
    sources: tuple[Place, ...]
    guard: Place
    of_call: bool = False


class Between(NamedTuple):
    """What the launches with parts of one kind leave for each other."""

    of_a: Operand
    of_b: Operand
    sums: Operand
    lines: Operand

    def of(self, parts: Parts, k: int) -> Between:
        """In arrays that others use, too."""
        wide = parts.pieces * padded(k)
        of_a, of_b = (
            replace(array, dtype=parts.dtype, shape=(array.shape[0], wide), strides=(wide, 1))
            for array in (self.of_a, self.of_b)
        )
        return self._replace(of_a=of_a, of_b=of_b)


class Emulated:
    """The launches of a product. `d`: where it goes, with rows and columns. `prepared`: B, cut before."""

    def __init__(
        self, bound: Bound, d: Operand, backend: Backend, choices: Choices, parts: Parts, room: Room
    ) -> None:
        self.bound, self.d, self.chip, self.choices, self.parts = bound, d, backend.chip, choices, parts
        (self.m, self.n), self.k = bound.shape, bound.a.shape[-1]
        self.compiles = backend.compiles
        self.how = backend.chip.architecture, self.compiles
        self.room = room

    def launches(self, prepared: CutColumns | None = None) -> Iterator[Alone | Multiplied]:
        """Those of wider parts do nothing where the first ones hold all numbers."""
        m, n, k, new, every = self.m, self.n, self.k, self.room.new, self.parts.every
        most = max(every, key=lambda parts: parts.pieces * size_of(parts.dtype))
        wide = most.pieces * padded(k)
        of_a, sums = new((m, wide), most.dtype), new((most.pieces, m, n), most.sum_dtype)
        of_b = new((n, wide), most.dtype) if prepared is None or len(every) > 1 else prepared.parts
        guard: Operand | None = None
        for parts in every:
            if self.compiles:
                log_parts(parts, self.chip)
            lines = new((words_of_lines(m, n),), "float32")
            yield from self._by(parts, Between(of_a, of_b, sums, lines).of(parts, k), guard, prepared)
            guard, prepared = word_of(lines, DO_NOT), None
        assert guard is not None
        yield self._fall_back(guard)

    def _by(
        self, parts: Parts, between: Between, guard: Operand | None, prepared: CutColumns | None
    ) -> Iterator[Alone | Multiplied]:
        """With parts of one kind. `guard`: None if they are the first."""
        bound, m, n, k, lines = self.bound, self.m, self.n, self.k, between.lines
        c, d = bound.c or self.d, self.d

        def cut(operand: Operand, of_operand: Lines, to: Operand) -> Alone:
            launch = slicing(of_operand, parts, *self.how, guarded=guard is not None)
            return self._alone(launch, (operand, lines, guard or lines, to), {0: B if of_operand.of_b else A})

        # A's pass comes first: that of B takes what it left
        yield cut(bound.a, Lines(m, n, k, False, *bound.a.strides[-2:]), between.of_a)
        if prepared is None:
            yield cut(bound.b, Lines(m, n, k, True, *bound.b.strides[:-3:-1]), between.of_b)
        else:
            between = between._replace(of_b=prepared.parts)
            take = taking(m, n, k, parts, *self.how)
            yield self._alone(take, (prepared.lines, lines, lines, lines))
        for level in reversed(range(parts.pieces)):  # the smallest products first
            yield self._product(parts, between, level)
        join = joining(m, n, c.strides[-2:], d.strides[-2:], parts, self.chip.sms, *self.how)
        yield self._alone(join, (between.sums, lines, c, d), {2: C, 3: D})

    def _alone(
        self, launch: Launch, operands: tuple[Operand, ...], of_call: Mapping[int, Place] = NONE
    ) -> Alone:
        """`of_call`: which of the operands, A, B, C and D of the launch, are the call's."""
        sources = (of_call.get(i) or self.room.place(operand) for i, operand in enumerate(operands))
        return Alone(launch, operands, tuple(sources))

    def _product(self, parts: Parts, between: Between, level: int) -> Multiplied:
        """The products of parts whose numbers add up to `level`. Of floats the last sums are promoted, as
        tensor cores cut them off; those before are a 256th at most.
        """
        a, b, sums, lines = between
        wide, guard = padded(self.k), word_of(lines, DO)
        width = (level + 1) * wide
        left = part_of(a, (self.m, width), a.strides, 0)
        last = (parts.pieces * wide - width) * size_of(parts.dtype)
        right = part_of(b, (self.n, width), b.strides, last).transposed()
        skipped = level * sums.strides[0] * size_of(sums.dtype)
        out = part_of(sums, (self.m, self.n), sums.strides[1:], skipped)
        types = IN_INT32 if not parts.floats else IN_FLOAT32 if level else PROMOTED
        bound = Bound(left, right, None, out, Operation(types=types, guard=guard))
        sources = tuple(map(self.room.place, (left, right, out, out)))
        return Multiplied(bound, self.choices, sources, self.room.place(guard))

    def _fall_back(self, guard: Operand) -> Multiplied:
        """The product of float32 itself, where no parts hold."""
        of_call = self.bound
        types = of_call.operation.types._replace(precision=IEEE)
        operation = Operation(alpha=of_call.alpha, beta=of_call.beta, types=types, guard=guard)
        bound = Bound(of_call.a, of_call.b, of_call.c, self.d, operation)
        choices = self.choices._replace(kernel="simt")
        return Multiplied(bound, choices, (A, B, C if of_call.c else D, D), self.room.place(guard), True)


def word_of(lines: Operand, index: int) -> Operand:
    return part_of(lines, (1,), (1,), index * size_of(lines.dtype))


def part_of(operand: Operand, shape: tuple[int, ...], strides: tuple[int, ...], skipped: int) -> Operand:
    """A view that begins so many bytes behind an array's start."""
    return replace(operand, pointer=operand.pointer + skipped, shape=shape, strides=strides)


def run(
    bound: Bound, backend: Backend, call: Call, parts: Parts, records: bool, cut: CutColumns | None = None
) -> tuple[Any, FastPath | None]:
    """The result, and with `records` what launches the same on matrices like these; None where better kernels
    may come. `cut`: B, cut before.
    """
    result, d = output_of(bound)
    room = Room(bound.like, () if cut is None else cut)
    steps: list[Step | None] = []
    launches = tuple(Emulated(bound, d, backend, call.choices, parts, room).launches(cut))
    products = {i: ready(launch, call) for i, launch in enumerate(launches) if isinstance(launch, Multiplied)}
    for i, launch in enumerate(launches):
        if isinstance(launch, Alone):
            at, framework = dict(zip("ABCD", launch.operands, strict=True)), bound.like.framework
            backend.launch_alone(launch.launch, at, bound.alpha_beta, framework, call.stream)
            if records:
                steps.append(alone(launch.launch, backend.ordinal, launch.sources))
        else:
            products[i].run(launch.bound, call.stream)
            if records:
                step = product(products[i], launch.bound, launch.sources, launch.guard)
                steps.append(step and step._replace(scalars=None) if launch.of_call else step)
    return bound.deliver(result), fast_path(bound, steps, room.nbytes) if records else None


def ready(product: Multiplied, call: Call) -> Prepared:
    """One of the products. All are prepared before the first launch, as the caller's choices may fit none."""
    try:
        return prepared(product.bound, product.choices, call.stream)
    except RefusalError as error:
        raise RefusalError(
            "precision: emulated float32 multiplies parts of a and b, and float32 by simt where they do not"
            f" hold. One of these products was refused:\n{error}"
        ) from error


class Room:
    """Arrays that launches leave for each other, and where they would lie in one array. `fixed`: arrays that
    stay where they are.
    """

    def __init__(self, like: Operand, fixed: Iterable[Operand] = ()) -> None:
        self.like, self.nbytes = like, 0
        self.fixed = [(array.pointer, prod(array.shape) * size_of(array.dtype)) for array in fixed]
        self.arrays: list[tuple[int, int, int]] = []  # address, bytes, offset

    def new(self, shape: tuple[int, ...], dtype: str) -> Operand:
        array, nbytes = self.array(shape, dtype), prod(shape) * size_of(dtype)
        self.arrays.append((array.pointer, nbytes, self.nbytes))
        self.nbytes += -(-nbytes // ALIGNMENT) * ALIGNMENT
        return array

    def array(self, shape: tuple[int, ...], dtype: str) -> Operand:
        try:
            owner = empty(shape, self.like, dtype)
        except (TypeError, ValueError) as error:  # of CuPy, whose older versions have no bfloat16
            raise DTypeError(
                f"precision: leaves arrays of {dtype} between its launches, and {self.like.framework} makes"
                f' none: {error}. Pass arrays of torch, or take precision="emulated"'
            ) from error
        return as_planned(owner, fresh(dtype, shape, self.like, dtype))

    def place(self, operand: Operand) -> Place:
        """Of one of the arrays, or of a part of it. An operand without elements may lie anywhere."""
        address = operand.pointer
        if 0 in operand.shape or any(at <= address < at + size for at, size in self.fixed):
            return Place(FIXED, address)
        offsets = (offset + address - at for at, size, offset in self.arrays if at <= address < at + size)
        return Place(ROOM, next(offsets))
