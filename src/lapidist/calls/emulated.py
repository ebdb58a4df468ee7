"""float32 products on tensor cores of other types: precision="emulated" and "emulated_any_range".

    parts of A and B -> their products -> judge -> join -> D

Parts are slices of 8 bits, whose sums are exact in int32, or pieces of bfloat16, which together have all bits
of a number. Where lines span too far for them, which the device decides, the product of float32 itself
replaces the result; else it multiplies nothing. So the host waits for no answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from lapidist.backends.backend import Backend
from lapidist.calls.bound import Bound
from lapidist.calls.call import Call
from lapidist.calls.destination import backend_for, multiply_on_host, output_of
from lapidist.calls.operation import Operation, Types
from lapidist.dtypes import IEEE
from lapidist.errors import ArgumentError, DTypeError
from lapidist.frameworks.arrays import HOST, Operand, operand_of
from lapidist.frameworks.new_arrays import as_planned, empty, fresh
from lapidist.frameworks.streams import require_stream
from lapidist.launch import Launch, Scalars
from lapidist.planning.emulated_passes import PARTS, PARTS_OF, Lines, Parts, joining, judging, padded, slicing

# Shorter sums are those of float32: parts would take longer, and the bound on slices' error rests on many
# terms.
LEAST_K = 256
MOST_K = 1 << 15  # sums of 3 k products of 8 bits fit in 32 bits, and those of 2^112 in float32
IN_INT32 = Types(out_dtype="int32")
IN_FLOAT32, PROMOTED = (Types(out_dtype="float32", promote=promote) for promote in (None, True))


Multiply = Callable[[Call], Any]


def multiplied(call: Call, multiply: Multiply) -> Any:
    """The product of a call, whose operands are checked like any other's. `multiply`: how other calls are."""
    operation = call.operation
    precision = operation.types.precision
    types = operation.types._replace(precision=IEEE)
    plain = replace(call, operation=operation._replace(types=types))
    require_plain(operation, precision)
    bound = plain.bound()
    require_current_stream(call.stream, precision)
    require_float32(bound, precision)
    backend = backend_for(bound, call.choices)
    k = bound.a.shape[-1]
    if not backend.plans:
        return multiply_on_host(bound)
    require_place(bound, backend, precision)
    if not LEAST_K <= k <= MOST_K or 0 in bound.shape or bound.alpha == 0:
        return multiply(plain)
    if len(bound.shape) > 2:
        return of_batch(bound, call, multiply)
    return Emulated(bound, backend, plain, multiply, PARTS_OF[precision]).run()


def of_batch(bound: Bound, call: Call, multiply: Multiply) -> Any:
    """The products of a batch, one after another: each is large enough to fill the chip, or gains nothing."""
    result, d = output_of(bound)
    for index in np.ndindex(*bound.shape[:-2]):
        a, b = (matrix_at(operand.owner, index) for operand in (bound.a, bound.b))
        c = None if bound.c is None else matrix_at(bound.c.owner, index)
        multiplied(replace(call, a=a, b=b, c=c, out=matrix_at(d.owner, index)), multiply)
    return bound.deliver(result)


def matrix_at(array: Any, index: tuple[int, ...]) -> Any:
    """The matrix of an array that broadcasts to a batch, at this place of the batch."""
    extents = array.shape[:-2]
    own = index[len(index) - len(extents) :]
    return array[tuple(0 if extent == 1 else at for extent, at in zip(extents, own, strict=True))]


def require_plain(operation: Operation, precision: str) -> None:
    if not operation.is_plain:
        raise ArgumentError(
            f'precision: "{precision}" takes matrices and numbers alone; got factors, indices, groups, an'
            ' epilogue, or alpha or beta in an array. Leave them out, or take precision="ieee"'
        )


def require_current_stream(stream: Any, precision: str) -> None:
    """The framework may give slices' memory to others once the call returns, which its own stream orders."""
    require_stream(stream)
    if stream is not None:
        raise ArgumentError(
            f'stream: with precision="{precision}" products run on the current stream of the arrays\''
            " framework; got another one. Make it current (with torch.cuda.stream(...), say)"
        )


def require_float32(bound: Bound, precision: str) -> None:
    if bound.a.dtype != "float32" or bound.out_dtype != "float32":
        raise DTypeError(
            f'precision: "{precision}" is a way to multiply float32; a is {bound.a.dtype}, the result'
            f" {bound.out_dtype}. Leave it out"
        )


def require_place(bound: Bound, backend: Backend, precision: str) -> None:
    on_gpu = backend.ordinal != HOST
    if on_gpu and (bound.like.device == HOST or bound.like.framework not in ("torch", "cupy")):
        raise ArgumentError(
            f'precision: "{precision}" runs on a GPU with arrays of torch or CuPy there; got'
            f" {bound.like.framework} arrays in {bound.like.place}. Copy them"
        )


class Emulated:
    """The launches of one call."""

    def __init__(self, bound: Bound, backend: Backend, call: Call, multiply: Multiply, parts: Parts) -> None:
        self.bound, self.backend, self.call, self.multiply, self.parts = bound, backend, call, multiply, parts
        (self.m, self.n), self.k = bound.shape, bound.a.shape[-1]
        self.how = backend.chip.architecture, backend.compiles

    def new(self, shape: tuple[int, ...], dtype: str) -> Operand:
        planned = fresh(dtype, shape, self.bound.like, dtype)
        return as_planned(empty(shape, self.bound.like, dtype), planned)

    def run(self) -> Any:
        bound, m, n, k, parts = self.bound, self.m, self.n, self.k, self.parts
        result, d = output_of(bound)
        a, b, c = bound.a, bound.b, bound.c or d
        wide = PARTS * padded(k)
        of_a, of_b = self.new((m, wide), parts.dtype), self.new((n, wide), parts.dtype)
        lines = OfLines(self.new((OfLines.words(m, n),), "float32"), m, n)
        self._slice(a, Lines(m, k, a.strides[-2], a.strides[-1]), of_a, *lines.of_a, False)
        self._slice(b, Lines(n, k, b.strides[-1], b.strides[-2]), of_b, *lines.of_b, True)
        sums = self.new((parts.sums, m, n), parts.sum_dtype)
        for level in reversed(range(PARTS)):  # the smallest products first
            self._multiply(of_a, of_b, sums, level)
        judge = judging(m, n, parts.most_span(k), *self.how)
        self._launch(judge, {"A": lines.of_a[1], "B": lines.of_b[1], "D": lines.operand})
        steps = c.strides[-2:], d.strides[-2:]
        join = joining(m, n, *steps, parts, self.backend.chip.sms, *self.how)
        self._launch(join, {"A": sums, "B": lines.operand, "C": c, "D": d})
        self._fall_back(d, *lines.numbers)
        return bound.deliver(result)

    def _slice(
        self, operand: Operand, lines: Lines, to: Operand, scales: Operand, spans: Operand, of_b: bool
    ) -> None:
        launch = slicing(lines, of_b, self.parts, *self.how)
        self._launch(launch, {"A": operand, "B": scales, "C": spans, "D": to})

    def _multiply(self, a: Operand, b: Operand, sums: Operand, level: int) -> None:
        """The products of parts whose numbers add up to `level`. Floats are added to one array. The last sums
        are promoted, as tensor cores cut them off; those before are a 256th at most.
        """
        wide = padded(self.k)
        width = (level + 1) * wide
        left, right = a.owner[:, :width], b.owner[:, PARTS * wide - width :].T
        if not self.parts.floats:
            self._multiplied(left, right, None, sums.owner[level], Operation(types=IN_INT32))
            return
        out, first = sums.owner[0], level == PARTS - 1
        operation = Operation(beta=0.0 if first else 1.0, types=IN_FLOAT32 if level else PROMOTED)
        self._multiplied(left, right, None if first else out, out, operation)

    def _fall_back(self, d: Operand, alpha: Any, beta: Any) -> None:
        """The product of float32 itself, with the alpha and beta that the device decided on. simt multiplies
        nothing where alpha is zero in memory.
        """
        extents, a, b, out = self.bound.extents, self.bound.a.owner, self.bound.b.owner, d.owner
        if extents.drop_row:
            a, out = a[None], out[None]
        if extents.drop_col:
            b, out = b[:, None], out[..., None]
        operation = self.call.operation._replace(vectors=False, alpha=alpha, beta=beta)
        self._multiplied(a, b, out, out, operation, kernel="simt")

    def _multiplied(self, a: Any, b: Any, c: Any, out: Any, operation: Operation, **choice: Any) -> None:
        choices = self.call.choices._replace(**choice)
        self.multiply(Call(a, b, c, out, operation, choices, self.call.stream))

    def _launch(self, launch: Launch, at: dict[str, Operand]) -> None:
        scalars: Scalars = self.bound.alpha_beta
        self.backend.launch_alone(launch, at, scalars, self.bound.like.framework, self.call.stream)


VERDICT = 4  # words


class OfLines:
    """A float32 array of what passes say of lines: the verdict, then the scales of A's rows and B's columns,
    two words each, then the spans of both.
    """

    def __init__(self, operand: Operand, m: int, n: int) -> None:
        self.operand = operand
        ends = np.cumsum([VERDICT, 2 * m, 2 * n, m, n]).tolist()
        scales_a, scales_b, spans_a, spans_b = (
            operand_of(operand.owner[begin:end], "lines") for begin, end in pairwise(ends)
        )
        self.of_a, self.of_b = (scales_a, spans_a), (scales_b, spans_b)

    @staticmethod
    def words(m: int, n: int) -> int:
        return VERDICT + 3 * (m + n)

    @property
    def numbers(self) -> tuple[Any, Any]:
        """alpha and beta of the product that falls back."""
        return self.operand.owner[0:1], self.operand.owner[1:2]
