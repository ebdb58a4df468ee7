"""The key under which the fast path of a call is found: what is cheap to read of its arrays, and what the
caller asks for.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from lapidist.calls.kernel_choice import OPEN
from lapidist.calls.operation import USUAL_TYPES, Flags, Operation, Types
from lapidist.calls.repeat.scalars import NUMBERS, scalars_key
from lapidist.errors import not_in_graphs

if TYPE_CHECKING:
    from lapidist.calls.call import Call
    from lapidist.epilogues.steps import Function

Shape = Any  # hashable; None: no fast path can serve the arrays
# indices, alpha, beta, factors, ends of groups, an epilogue's operands; None where one is missing
ExtraValues = tuple[Any, ...]


def shape_of(a: Any, b: Any, out: Any) -> Shape:
    """The parts of a call's geometry that are cheap to read."""
    try:
        flat = None if out is None else out.is_contiguous()
        return a.shape, b.shape, a.dtype, a.is_cuda, a.is_contiguous(), b.is_contiguous(), flat
    except Exception:  # no tensors; sparse, nested and such ones; attributes that raise
        cupy = sys.modules.get("cupy")
        return None if cupy is None else shape_of_arrays(a, b, out, cupy.ndarray)


def shape_of_arrays(a: Any, b: Any, out: Any, kind: Any) -> Shape:
    """The same of arrays of CuPy, or of NumPy."""
    if not type(a) is type(b) is kind:
        return None
    flat = out.flags.c_contiguous if type(out) is kind else None
    return a.shape, b.shape, a.dtype, a.flags.c_contiguous, b.flags.c_contiguous, flat


def if_hashable(key: Shape) -> Shape:
    """None for a key with a compiler's symbols in place of sizes."""
    try:
        hash(key)
    except TypeError:
        return None
    return key


# ---- a, b, c and out alone ----


@not_in_graphs("matmul")
def key_of_product(a: Any, b: Any, out: Any, types: Types) -> Shape:
    """Of matmul."""
    geometry = shape_of(a, b, out)
    return geometry if types is USUAL_TYPES else (geometry, types)


@not_in_graphs("gemm")
def key_of_gemm(
    a: Any, b: Any, c: Any, out: Any, trans_a: bool, trans_b: bool, numbers: Any, types: Types
) -> Shape:
    """The key of a gemm. `numbers`: what `scalars_key` says of alpha and beta."""
    geometry = shape_of(a, b, out), c is out, trans_a, trans_b, numbers
    return geometry if types is USUAL_TYPES else (geometry, types)


def key_of_matrices(call: Call) -> Shape:
    """The same for a Call. None: it has no fast path, or more operands than a, b, c and out."""
    operation, choices = call.operation, call.choices
    if not call.is_remembered or shape_of(call.a, call.b, call.out) is None:
        return None
    if operation.alpha.__class__ is complex or operation.beta.__class__ is complex:
        return None  # launches are made for them
    if operation.vectors:
        key = key_of_product(call.a, call.b, call.out, operation.types)
    else:
        flags, numbers = (operation.trans_a, operation.trans_b), scalars_key(operation.alpha, operation.beta)
        key = key_of_gemm(call.a, call.b, call.c, call.out, *flags, numbers, operation.types)
    return if_hashable(key if choices == OPEN else (key, choices))


# ---- products that differ in their rows alone ----


def key_of_rows(a: Any, b: Any, trans_b: bool, types: Types) -> Shape:
    """A key that plain products share if they differ in their rows alone."""
    try:
        if b.dim() != 2 or a.dim() < 2 or not a.is_contiguous():
            return None
        return a.dim(), b.shape, a.dtype, b.is_contiguous(), trans_b, types
    except Exception:  # no tensors; sparse, nested and such ones; attributes that raise
        return None


def key_of_rows_of(call: Call) -> Shape:
    """The same for a Call. None also if more than A, B and a new D take part."""
    operation = call.operation
    alpha, beta, trans_b = operation.alpha, operation.beta, operation.trans_b
    numbers = type(alpha) is type(beta) is float and alpha == 1 and beta == 0
    flags = operation.trans_a is operation.routing.check_indices is False and type(trans_b) is bool
    if call.out is not None or call.c is not None or call.choices is not OPEN or not (numbers and flags):
        return None
    return if_hashable(key_of_rows(call.a, call.b, trans_b, operation.types))


# ---- with arrays beside the matrices ----

AT_ALPHA, AT_BETA, AT_FACTORS, AT_OPERANDS = 3, 4, (5, 6), 8  # in ExtraValues; operands start at the last


def extra_values(operation: Operation) -> ExtraValues:
    routing, epilogue = operation.routing, operation.epilogue
    values = (
        ()
        if epilogue is None
        else (epilogue.values[parameter.name] for parameter in epilogue.function.parameters)
    )
    numbers = operation.alpha, operation.beta, *operation.factors
    ends = None if operation.groups is None else operation.groups.ends
    return (routing.gather_a, routing.gather_b, routing.scatter_d, *numbers, ends, *values)


def key_of(
    a: Any,
    b: Any,
    c: Any,
    out: Any,
    values: ExtraValues,
    flags: Flags,
    types: Types,
    function: Function | None,
) -> Shape:
    outputs = None
    if out.__class__ is tuple and out:
        outputs = tuple(map(type, out))
        out = out[0]
    geometry = shape_of(a, b, out) or shape_of_arrays(a, b, out, np.ndarray)
    if geometry is None:
        return None
    # One array may be both factors; torch's guards take each tensor only once.
    twice = values[5] is values[6]
    alpha, beta = values[AT_ALPHA], values[AT_BETA]
    numbers = scalars_key(alpha, beta) if alpha.__class__ in NUMBERS and beta.__class__ in NUMBERS else None
    settings = flags, types, numbers, None if function is None else id(function)
    return geometry, tuple(map(type, values)), twice, c is None, c is out, outputs, settings


def key_with_arrays(call: Call) -> Shape:
    """The same for a Call."""
    operation, choices = call.operation, call.choices
    if operation.routing.check_indices is not False or choices.workspace is not None:
        return None
    if operation.groups is not None and operation.groups.check is not False:
        return None
    flags = operation.trans_a, operation.trans_b, operation.routing.permuted
    if not all(type(flag) is bool for flag in flags):  # 1 would have the key of True, a list none
        return None
    key = key_of(call.a, call.b, call.c, call.out, extra_values(operation), *flags_types_function(operation))
    return if_hashable(key if key is None or choices == OPEN else (key, choices))


def flags_types_function(operation: Operation) -> tuple[Flags, Types, Function | None]:
    groups = operation.groups
    last = operation.routing.permuted if groups is None else groups.flag
    flags = operation.trans_a, operation.trans_b, operation.vectors, last
    return flags, operation.types, None if operation.epilogue is None else operation.epilogue.function


# ---- lists of matrices ----


def keys_of_lists(call: Call) -> Iterator[Shape]:
    """The key of lists whose products are all alike, then that of lists with these shapes."""
    key = if_hashable(key_of_lists(call))
    if key is not None:
        yield key
        try:
            yield key, tuple([x.shape for x in call.a]), tuple([x.shape for x in call.b])
        except Exception:  # no tensors; attributes that raise
            return


def key_of_lists(call: Call) -> Shape:
    a, b, c, out, operation = call.a, call.b, call.c, call.out, call.operation
    lists = [x for x in (a, b, c, out) if x is not None]
    if operation.routing.check_indices is not False or call.choices.workspace is not None:
        return None
    if b is None or not all(type(x) in (list, tuple) and len(x) == len(a) for x in lists) or not a:
        return None
    geometry = shape_of(a[0], b[0], None if out is None else out[0])
    if geometry is None:
        return None
    numbers = scalars_key(operation.alpha, operation.beta)
    return (
        *(len(a), geometry, c is None, out is None, numbers, operation.trans_a, operation.trans_b),
        *(operation.types, call.choices),
    )
