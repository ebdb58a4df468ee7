"""float32 products on tensor cores of other types: precision="emulated" and "emulated_any_range".

    parts of A and B -> their products -> judge -> join -> D

Parts are slices of 8 bits, whose sums are exact in int32, or pieces of bfloat16, which together have all bits
of a number. Where lines span too far for them, which the device decides, the product of float32 itself
replaces the result; else it multiplies nothing. So the host waits for no answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from lapidist.backends.backend import Backend
from lapidist.calls.bound import Bound
from lapidist.calls.call import Call
from lapidist.calls.destination import backend_for, multiply_on_host, output_of
from lapidist.calls.emulated_launches import Emulated, Multiply
from lapidist.calls.operation import Operation
from lapidist.calls.repeat import MATRIX_PATHS, PREPARED, remember
from lapidist.calls.repeat.scalars import is_repeatable
from lapidist.dtypes import IEEE
from lapidist.errors import ArgumentError, DTypeError
from lapidist.frameworks.arrays import HOST
from lapidist.frameworks.streams import require_stream
from lapidist.planning.emulated_passes import PARTS_OF

# Shorter sums are those of float32: parts would take longer, and the bound on slices' error rests on many
# terms.
LEAST_K = 256
MOST_K = 1 << 15  # sums of 3 k products of 8 bits fit in 32 bits, and those of 2^112 in float32


def multiplied(call: Call, multiply: Multiply, key: Any) -> Any:
    """The product of a call, whose operands are checked like any other's. `multiply`: how other calls are
    made. The second call with this `key` makes the fast path of the next ones.
    """
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
    repeats = backend.ordinal != HOST and is_repeatable(key, bound) and is_second(key)
    emulated = Emulated(bound, backend, plain, PARTS_OF[precision], multiply, repeats)
    result = emulated.run()
    fast_path = emulated.fast_path()
    if fast_path is not None:
        remember(MATRIX_PATHS, key, fast_path)
    return result


def is_second(key: Any) -> bool:
    """Whether a call with this key came before."""
    mark = "emulated", key
    if mark in PREPARED:
        return True
    remember(PREPARED, mark, None)
    return False


def of_batch(bound: Bound, call: Call, multiply: Multiply) -> Any:
    """The products of a batch, one after another: each is large enough to fill the chip, or gains nothing."""
    result, d = output_of(bound)
    for index in np.ndindex(*bound.shape[:-2]):
        a, b = (matrix_at(operand.owner, index) for operand in (bound.a, bound.b))
        c = None if bound.c is None else matrix_at(bound.c.owner, index)
        multiply(replace(call, a=a, b=b, c=c, out=matrix_at(d.owner, index)))
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
