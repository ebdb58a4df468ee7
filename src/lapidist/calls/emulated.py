"""float32 products on tensor cores of other types: precision="emulated" and "emulated_any_range".

    parts of A and B -> their products -> join, which looks whether parts are accurate -> D

Parts are slices of 8 bits, whose sums are exact in int32, or halves of fp16, which together have 23 bits of a
number, or pieces of bfloat16, which have all bits. Where lines span too far for halves, pieces follow, and
the product of float32 itself where they span too far for these. The device decides, and launches that are
not needed do nothing. So the host waits for no answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from lapidist.backends.selection import choose_place
from lapidist.calls import complex_product
from lapidist.calls.bound import Bound
from lapidist.calls.call import Call
from lapidist.calls.destination import backend_for, multiply_on_host, output_of
from lapidist.calls.emulated_launches import CutColumns, Multiply, run
from lapidist.calls.emulation_rules import (
    in_float32,
    require_current_stream,
    require_float32,
    require_place,
    require_plain,
)
from lapidist.calls.repeat import EMULATED, MATRIX_PATHS, FastPath, remember
from lapidist.calls.repeat.scalars import is_repeatable
from lapidist.dtypes import MOST_K
from lapidist.frameworks.arrays import HOST
from lapidist.frameworks.new_arrays import empty
from lapidist.planning.emulated_passes import PARTS_OF, PIECES, Parts

# Shorter sums are those of float32: parts would take longer, and the bound on slices' error rests on many
# terms.
LEAST_K = 256


def multiplied(
    call: Call,
    multiply: Multiply,
    key: Any,
    paths: dict[Any, FastPath] = MATRIX_PATHS,
    prepared: CutColumns | None = None,
) -> Any:
    """The product of a call, whose operands are checked like any other's. `multiply`: how other calls are
    made. The second call with this `key` makes the fast path of the next ones, in `paths`.
    """
    operation = call.operation
    precision = operation.types.precision
    plain = replace(call, operation=in_float32(operation))
    require_plain(operation, precision)
    bound = plain.bound()
    if bound.is_complex:
        return of_complex(bound, call, multiply)
    require_current_stream(call.stream, precision)
    require_float32(bound, precision)
    backend = backend_for(bound, call.choices)
    if not backend.plans:
        return multiply_on_host(bound)
    require_place(bound, backend, precision)
    if not is_emulated(bound):
        return multiply(plain)
    if operation.epilogue is not None:
        return with_epilogue(bound, call, plain, multiply)
    if len(bound.shape) > 2:
        return of_batch(bound, call, multiply)
    repeats = backend.ordinal != HOST and is_repeatable(key, bound) and is_second((key, id(paths)))
    parts = parts_for(precision, bound.a.shape[-1])
    result, fast_path = run(bound, backend, plain, parts, repeats, prepared)
    if fast_path is not None:
        remember(paths, key, fast_path)
    return result


def is_emulated(bound: Bound) -> bool:
    """Whether a product of float32 is made of parts, where that is asked for."""
    return (
        has_parts(bound.a.shape[-1], bound.operation.types.bits) and 0 not in bound.shape and bound.alpha != 0
    )


def has_parts(k: int, bits: int) -> bool:
    """Float32 sums of few terms do not hold every number of bits that was asked for."""
    return (1 if bits else LEAST_K) <= k <= MOST_K


def parts_for(precision: str, k: int) -> Parts:
    """Slices need many terms."""
    return PARTS_OF[precision] if k >= LEAST_K else PIECES


def of_complex(bound: Bound, call: Call, multiply: Multiply) -> Any:
    """Its product of real numbers is emulated."""
    precision = call.operation.types.precision
    require_float32(bound, precision)
    require_current_stream(call.stream, precision)
    if choose_place(bound.a.device, call.choices.device) == HOST:
        return multiply_on_host(bound)
    return complex_product.multiplied(bound, call, multiply, None)


def with_epilogue(bound: Bound, call: Call, plain: Call, multiply: Multiply) -> Any:
    """The function follows in a launch of its own: of a product without steps, whose C is the sums."""
    extents = bound.extents
    shape = (*bound.shape[:-2], *extents.visible(bound.shape[-2:]))
    sums = addend = empty(shape, bound.like, "float32")
    if extents.drop_row:
        addend = addend[..., None, :] if len(addend.shape) else addend[None]
    if extents.drop_col:
        addend = addend[..., None]
    of_sums = plain.operation._replace(alpha=0.0, beta=1.0)
    last = replace(plain, c=addend, operation=of_sums)
    last.bound()  # every rule, before anything is launched
    multiply(replace(call, out=sums, operation=call.operation._replace(epilogue=None)))
    return multiply(last)


def is_second(key: Any) -> bool:
    """Whether a call with this key came before."""
    if key in EMULATED:
        return True
    remember(EMULATED, key, True)
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
