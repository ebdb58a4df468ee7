"""float32 products on int8 tensor cores: precision="emulated".

    slices of A and B -> their products, exact in int32 -> judge -> join -> D

Of random numbers each element is within 2^-21 of |A||B|, mostly nearer than a float32 sum. Where lines span
too far for that, which the device decides, the product of float32 itself replaces the result; else it
multiplies nothing. So the host waits for no answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from lapidist.backends.backend import Backend
from lapidist.calls.bound import Bound
from lapidist.calls.call import Call
from lapidist.calls.destination import backend_for, multiply_on_host, output_of
from lapidist.calls.kernel_choice import Choices
from lapidist.calls.operation import Operation, Types
from lapidist.errors import ArgumentError, DTypeError
from lapidist.frameworks.arrays import HOST, Operand
from lapidist.frameworks.new_arrays import as_planned, empty, fresh
from lapidist.frameworks.streams import require_stream
from lapidist.launch import Launch, Scalars
from lapidist.planning.emulated_passes import SLICES, Lines, joining, judging, padded, slicing

# Shorter sums are those of float32: slices would take longer, and the bound on their error rests on many
# terms.
LEAST_K = 256
MOST_K = 1 << 15  # sums of 3 k products of 8 bits fit in 32 bits
IN_INT32 = Types(out_dtype="int32")


Multiply = Callable[[Call], Any]


def multiplied(call: Call, multiply: Multiply) -> Any:
    """The product of a call, whose operands are checked like any other's. `multiply`: how other calls are."""
    operation = call.operation
    types = operation.types._replace(precision="ieee")
    plain = replace(call, operation=operation._replace(types=types))
    require_plain(operation)
    bound = plain.bound()
    require_current_stream(call.stream)
    require_float32(bound)
    backend = backend_for(bound, call.choices)
    k = bound.a.shape[-1]
    if not backend.plans:
        return multiply_on_host(bound)
    require_place(bound, backend)
    if not LEAST_K <= k <= MOST_K or 0 in bound.shape or bound.alpha == 0:
        return multiply(plain)
    if len(bound.shape) > 2:
        return of_batch(bound, call, multiply)
    return Emulated(bound, backend, plain, multiply).run()


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


def require_plain(operation: Operation) -> None:
    if not operation.is_plain:
        raise ArgumentError(
            'precision: "emulated" takes matrices and numbers alone; got factors, indices, groups, an'
            ' epilogue, or alpha or beta in an array. Leave them out, or take precision="ieee"'
        )


def require_current_stream(stream: Any) -> None:
    """The framework may give slices' memory to others once the call returns, which its own stream orders."""
    require_stream(stream)
    if stream is not None:
        raise ArgumentError(
            'stream: with precision="emulated" products run on the current stream of the arrays\' framework;'
            " got another one. Make it current (with torch.cuda.stream(...), say)"
        )


def require_float32(bound: Bound) -> None:
    if bound.a.dtype != "float32" or bound.out_dtype != "float32":
        raise DTypeError(
            f'precision: "emulated" is a way to multiply float32; a is {bound.a.dtype}, the result'
            f" {bound.out_dtype}. Leave it out"
        )


def require_place(bound: Bound, backend: Backend) -> None:
    on_gpu = backend.ordinal != HOST
    if on_gpu and (bound.like.device == HOST or bound.like.framework not in ("torch", "cupy")):
        raise ArgumentError(
            f'precision: "emulated" runs on a GPU with arrays of torch or CuPy there; got'
            f" {bound.like.framework} arrays in {bound.like.place}. Copy them"
        )


class Emulated:
    """The launches of one call."""

    def __init__(self, bound: Bound, backend: Backend, call: Call, multiply: Multiply) -> None:
        self.bound, self.backend, self.call, self.multiply = bound, backend, call, multiply
        (self.m, self.n), self.k = bound.shape, bound.a.shape[-1]
        self.architecture = backend.chip.architecture

    def new(self, shape: tuple[int, ...], dtype: str) -> Operand:
        planned = fresh(dtype, shape, self.bound.like, dtype)
        return as_planned(empty(shape, self.bound.like, dtype), planned)

    def run(self) -> Any:
        bound, m, n = self.bound, self.m, self.n
        result, d = output_of(bound)
        wide = padded(self.k)
        slices_a, slices_b = self.new((m, SLICES * wide), "int8"), self.new((n, SLICES * wide), "int8")
        of_lines = [self.new((count,), "float32") for count in (m, m, n, n)]
        sums, verdict = self.new((SLICES, m, n), "int32"), self.new((4,), "float32")
        a, b = bound.a, bound.b
        self._slice(a, Lines(m, self.k, a.strides[-2], a.strides[-1]), slices_a, of_lines[:2], False)
        self._slice(b, Lines(n, self.k, b.strides[-1], b.strides[-2]), slices_b, of_lines[2:], True)
        for level in range(SLICES):
            self._multiply(slices_a, slices_b, sums, level)
        scales_a, spans_a, scales_b, spans_b = of_lines
        judge = judging(m, n, self.k, self.architecture, self.assembled)
        self._launch(judge, {"A": spans_a, "B": spans_b, "D": verdict})
        c = bound.c or d
        steps = c.strides[-2:], d.strides[-2:]
        join = joining(m, n, *steps, self.backend.chip.sms, self.architecture, self.assembled)
        at = {
            "A": sums,
            "C": c,
            "D": d,
            "row_scales": scales_a,
            "column_scales": scales_b,
            "verdict": verdict,
        }
        self._launch(join, at)
        self._fall_back(d, verdict)
        return bound.deliver(result)

    @property
    def assembled(self) -> bool:
        return self.backend.compiles

    def _slice(
        self, operand: Operand, lines: Lines, to: Operand, of_lines: list[Operand], of_b: bool
    ) -> None:
        scales, spans = of_lines
        launch = slicing(lines, of_b, self.architecture, self.assembled)
        self._launch(launch, {"A": operand, "D": to, "scales": scales, "spans": spans})

    def _multiply(self, a: Operand, b: Operand, sums: Operand, level: int) -> None:
        """The products of slices whose numbers add up to `level`."""
        width = (level + 1) * padded(self.k)
        left, right = a.owner[:, :width], b.owner[:, SLICES * padded(self.k) - width :].T
        self._multiplied(left, right, None, sums.owner[level], Operation(types=IN_INT32), self.call.choices)

    def _fall_back(self, d: Operand, verdict: Operand) -> None:
        """The product of float32 itself, with the alpha and beta that the device decided on. simt multiplies
        nothing where alpha is zero in memory.
        """
        extents, a, b, out = self.bound.extents, self.bound.a.owner, self.bound.b.owner, d.owner
        if extents.drop_row:
            a, out = a[None], out[None]
        if extents.drop_col:
            b, out = b[:, None], out[..., None]
        numbers = {"alpha": verdict.owner[0:1], "beta": verdict.owner[1:2]}
        operation = self.call.operation._replace(vectors=False, **numbers)
        choices = self.call.choices._replace(kernel="simt")
        self._multiplied(a, b, out, out, operation, choices)

    def _multiplied(self, a: Any, b: Any, c: Any, out: Any, operation: Operation, choices: Choices) -> None:
        self.multiply(Call(a, b, c, out, operation, choices, self.call.stream))

    def _launch(self, launch: Launch, at: dict[str, Operand]) -> None:
        scalars: Scalars = self.bound.alpha_beta
        self.backend.launch_alone(launch, at, scalars, self.bound.like.framework, self.call.stream)
