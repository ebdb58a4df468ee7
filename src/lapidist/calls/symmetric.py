"""Symmetric products: gram, and matmul where the caller knows that the result is symmetric.

    product of one triangle -> D, or beside it -> mirror.cu -> both halves of D, or its own half of it

Kernels leave out whole tiles of the other triangle. Most store what they compute twice; behind others a pass
copies the mirror image: D is symmetric bit by bit, by every kernel.

A matrix times its own transpose needs no mirror where each element sums its products in one order: they
commute. So gram multiplies as any other call does where that is faster, as of few rows.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any, Literal, NoReturn, TypeVar

import numpy as np

from lapidist.backends.backend import Backend
from lapidist.backends.selection import backend_at, choose_place
from lapidist.calls.bound import Bound
from lapidist.calls.call import Call
from lapidist.calls.complex_halves import by_complex64
from lapidist.calls.destination import backend_for, multiply_on_host
from lapidist.calls.emulation_rules import in_float32, require_float32
from lapidist.calls.full_path import multiplied
from lapidist.calls.kernel_choice import Choices, checked
from lapidist.calls.number_rules import require_flag
from lapidist.calls.operation import Factors, Operation, Types, epilogue_checked, is_invariant, types_named
from lapidist.calls.planned_products import prepared
from lapidist.calls.prepared import Prepared
from lapidist.calls.repeat import SYMMETRIC, remember
from lapidist.calls.repeat.shape import key_of_matrices
from lapidist.calls.symmetric_epilogues import has_tiles, require_names
from lapidist.calls.symmetric_rules import (
    require_current_stream,
    require_half,
    require_hermitian,
    require_known_symmetric,
    require_place,
    require_square,
)
from lapidist.device import Device
from lapidist.dtypes import EMULATIONS, PART_OF, Precision, size_of
from lapidist.errors import explained, not_in_graphs
from lapidist.frameworks.arrays import Operand, operand_of
from lapidist.frameworks.host_arrays import native, on_host
from lapidist.frameworks.new_arrays import empty, tell_written
from lapidist.frameworks.streams import require_stream
from lapidist.planning import modelled_choice
from lapidist.planning.mirror_pass import Lies, mirroring
from lapidist.planning.planner import choose
from lapidist.problems.matrix import VECTOR_BYTES
from lapidist.problems.problem import BOTH, COPIED, Problem
from lapidist.schedule import Schedule

Array = TypeVar("Array")
Half = Literal["lower", "upper"]


@not_in_graphs("gram", "lapidist.torch.gram")
def gram(
    a: Array,
    c: Any = None,
    *,
    trans: bool = False,
    alpha: Any = 1.0,
    beta: Any = 0.0,
    out: Any = None,
    triangle: Half | None = None,
    epilogue: Any = None,
    symmetric: tuple[str, ...] = (),
    out_dtype: Any = None,
    precision: Precision = "ieee",
    invariant: bool | None = None,
    stream: Any = None,
    device: int | str | None = None,
    compile: Any = None,
    **unknown: NoReturn,
) -> Array:
    """The products of all rows of a matrix with each other, alpha a a^T + beta c, at half the work.

    Of complex numbers, one of each two rows is conjugated: alpha a a^H + beta c.

    Parameters
    ----------
    a : array
        A matrix (n, k), or a batch of them.
    c : array, optional
        As in `gemm`. It must be symmetric; of a `triangle`, only that half is read.
    trans : bool
        Whether columns are multiplied instead: alpha a^T a + beta c.
    alpha, beta : numbers
    out : array, optional
        Where the result goes: (n, n).
    triangle : {"lower", "upper"}, optional
        The half to write, with the diagonal. The other half of `out` is left as it is; that of a new array is
        zero. Without it the result is exactly symmetric.
    epilogue : epilogue, optional
        As in `matmul`: an elementwise function of each sum, which treats (i, j) and (j, i) alike.
    symmetric : names, optional
        Of its Tile operands, which must be symmetric matrices.
    out_dtype, precision, invariant, stream, device, compile
        As in `matmul`.

    Returns
    -------
    array
        `out`, or a new one.

    Raises
    ------
    LapidistError
        Of arguments that do not fit, before anything runs; no array was changed.

    Examples
    --------
    >>> import numpy as np
    >>> import lapidist
    >>> lapidist.gram(np.float32([[1, 2], [3, 4]]))
    array([[ 5., 11.],
           [11., 25.]], dtype=float32)
    >>> lapidist.gram(np.float32([[1, 2], [3, 4]]), triangle="lower")
    array([[ 5.,  0.],
           [11., 25.]], dtype=float32)
    """
    if unknown:
        from lapidist.calls.keywords import unexpected

        raise unexpected(gram, unknown)
    return gram_by_name(locals())  # type: ignore[no-any-return]


@explained
def gram_by_name(arguments: dict[str, Any]) -> Any:
    """The full path of gram, whose arguments these are."""
    named = arguments
    a, trans = native(named["a"]), named["trans"]
    require_flag("trans", trans)
    dtype, precision, invariant = named["out_dtype"], named["precision"], is_invariant(named["invariant"])
    types = types_named(dtype, None, precision, None, invariant)
    numbers = named["alpha"], named["beta"]
    op: Any = "C" if "complex" in str(getattr(a, "dtype", "")) else True
    epilogue = epilogue_checked(named["epilogue"])
    operation = Operation(trans and op, not trans and op, False, *numbers, types, epilogue=epilogue)
    choices = checked(Choices(named["device"], compile=named["compile"]))
    call = Call(a, a, named["c"], named["out"], operation, choices, named["stream"])
    declared = require_names(named["symmetric"])
    return symmetric(call, named["triangle"], of_itself=True, declared=declared)


@explained
def matmul_symmetric(arguments: dict[str, Any], types: Types) -> Any:
    """`lapidist.matmul`, whose arguments these are, where the caller knows that the result is symmetric."""
    named = arguments
    declared = require_names(named["symmetric"])
    require_known_symmetric(named["symmetric"], named["triangle"])
    factors, epilogue = Factors(named["scale_a"], named["scale_b"]), epilogue_checked(named["epilogue"])
    operation = Operation(vectors=True, types=types, factors=factors, epilogue=epilogue)
    choices = checked(Choices(named["device"], compile=named["compile"]))
    call = Call(
        native(named["a"]), native(named["b"]), None, named["out"], operation, choices, named["stream"]
    )
    return symmetric(call, named["triangle"], declared=declared)


def symmetric(call: Call, half: str | None, of_itself: bool = False, declared: tuple[str, ...] = ()) -> Any:
    """The product of a call, of which half the tiles are computed, after every rule was checked. `of_itself`:
    b is a. `declared`: the epilogue's operands that are symmetric matrices.
    """
    key = key_of_matrices(call) if half is None and of_itself else None
    triangle = SYMMETRIC.get(key)
    if triangle is not None:
        return multiplied(of_triangle(call, triangle))
    require_half(half)
    bound = bound_matrices(call)
    require_square(bound, declared)
    require_stream(call.stream)
    require_current_stream(call.stream, half)
    if bound.is_complex:
        require_hermitian(bound, of_itself)
        return hermitian(call, bound, half)
    backend = backend_for(bound, call.choices)
    require_place(bound, backend)
    if bound.copied_to is not None:
        result = symmetric(of_new_array(call, bound), half, of_itself, declared)
        return copied(result, bound.copied_to, half)
    if not backend.plans:
        return on_the_host(bound, half)
    choices, precision = call.choices, call.operation.types.precision
    if half is None and of_itself and is_symmetric_anyway(bound, choices, call.stream, backend, precision):
        remember_symmetric(key, "", prepared(bound, choices, call.stream))
        return multiplied(call)
    if half is not None:
        return half_written(of_triangle(call, half), bound, half, backend)
    if precision in EMULATIONS:
        result = multiplied(of_triangle(call, "lower"))
        mirror_of(result, backend, call.stream)
        return result
    alike = of_itself and is_alike(bound)
    return in_one_launch(of_triangle(call, BOTH if alike else COPIED), key if alike else None, backend)


def half_written(call: Call, bound: Bound, half: str, backend: Backend) -> Any:
    """The product of a call, of which the output gets a half."""
    result = call.out if call.out is not None else zeros(bound)
    values = empty(bound.shape, bound.like, bound.d_dtype)
    multiplied(replace(call, out=values))
    mirror(operand_of(values, "out"), operand_of(native(result), "out"), half, False, backend, call.stream)
    tell_written(result)
    return result


def of_new_array(call: Call, bound: Bound) -> Call:
    """The call without its output, in that one's type."""
    types = call.operation.types._replace(out_dtype=bound.out_dtype)
    return replace(call, out=None, operation=call.operation._replace(types=types))


def of_triangle(call: Call, triangle: str) -> Call:
    types = call.operation.types._replace(triangle=triangle)
    return replace(call, operation=call.operation._replace(types=types))


def in_one_launch(call: Call, key: Any, backend: Backend) -> Any:
    """A product whose kernel may store both halves. A launch that stores only one, or comes before a better
    kernel does, is mirrored.
    """
    ready = prepared(call.bound(), call.choices, call.stream)
    before = ready.parts
    result = multiplied(call)
    if all(part.plan.stores_both_halves for part in (*before, *ready.parts)):  # another may have come between
        remember_symmetric(key, BOTH, ready)
    else:
        mirror_of(result, backend, call.stream)
    return result


def remember_symmetric(key: Any, triangle: str, ready: Prepared) -> None:
    if key is not None and ready.settled:
        remember(SYMMETRIC, key, triangle)


def mirror_of(result: Any, backend: Backend, stream: Any) -> None:
    target = operand_of(native(result), "out")
    mirror(target, target, "lower", True, backend, stream)


def bound_matrices(call: Call) -> Bound:
    """The operands, checked by every rule; emulated precisions launch on those of float32."""
    precision = call.operation.types.precision
    if precision not in EMULATIONS:
        return call.bound()
    bound = replace(call, operation=in_float32(call.operation)).bound()
    require_float32(bound, precision)
    return bound


def hermitian(call: Call, bound: Bound, half: str | None) -> Any:
    """A product of complex numbers and its conjugated mirror image, with a real diagonal."""
    backend = backend_at(choose_place(bound.a.device, call.choices.device))
    require_place(bound, backend)
    if bound.is_of_halves:
        return by_complex64(call, lambda wide: hermitian(wide, wide.bound(), half))
    if bound.copied_to is not None:
        anew = of_new_array(call, bound)
        return copied(hermitian(anew, anew.bound(), half), bound.copied_to, half)
    if not backend.plans:
        return on_the_host(bound, half)
    if half is not None:
        return half_written(of_triangle(call, half), bound, half, backend)
    result = multiplied(of_triangle(call, "lower"))
    mirror_of(result, backend, call.stream)
    return result


def is_symmetric_anyway(
    bound: Bound, choices: Choices, stream: Any, backend: Backend, precision: str
) -> bool:
    """Whether the plain product of a and its transpose is symmetric bit by bit, and no slower."""
    if not is_alike(bound) or precision in EMULATIONS:
        return False  # slices of a and of its transpose are added in another order
    plan = prepared(bound, choices, stream).plan
    if plan is None or not (plan.schedule is None or all_tiles_alike(plan.schedule)):
        return False
    return not half_is_faster(replace(bound.problem(), triangle=BOTH), backend.chip)


def is_alike(bound: Bound) -> bool:
    """Whether nothing is added or applied to sums of which nobody knows that both halves are equal."""
    return bound.c is None and not has_tiles(bound.operation.epilogue)


def all_tiles_alike(schedule: Schedule) -> bool:
    """Whether the k of every tile is cut at the same places: at none, or as split-K does."""
    is_split = schedule.dp_tiles == 0 and schedule.regions == schedule.sk_tiles
    return is_split or not schedule.shares_tiles


@lru_cache(maxsize=256)
def half_is_faster(problem: Problem, chip: Device) -> bool:
    """Whether leaving out tiles is faster than all of them, which is no slower where none are left out."""
    half = modelled_choice.of_triangle(problem, chip)
    return half.seconds < choose(replace(problem, triangle=""), chip).seconds


def zeros(bound: Bound) -> Any:
    array = empty(bound.shape, bound.like, bound.d_dtype)
    array[...] = 0
    return array


def mirror(
    source: Operand, target: Operand, half: str, mirrored: bool, backend: Backend, stream: Any
) -> None:
    """Launch mirror.cu for all matrices of a batch: those of the last dimension before the matrix at once."""
    n, batch, size = source.shape[-1], source.shape[:-2], size_of(source.dtype)
    if not prod(source.shape):
        return
    together = batch[-1] if batch else 1
    lies = [lies_of(operand, size) for operand in (source, target)]
    how = source.dtype in PART_OF, backend.chip.architecture, backend.compiles
    launch = mirroring(n, together, size, *lies, half == "upper", mirrored, *how)
    for index in np.ndindex(*batch[:-1]):
        at = {"A": matrices_at(source, index, size), "D": matrices_at(target, index, size)}
        backend.launch_alone(launch, at, (1.0, 0.0), target.framework, stream)


def lies_of(operand: Operand, size: int) -> Lies:
    strides = operand.strides
    step = strides[-3] if len(strides) > 2 else 0
    further = strides[:-3]
    aligned = (operand.pointer | size * sum(map(abs, further))) % VECTOR_BYTES == 0
    whole = all(stride * size % VECTOR_BYTES == 0 for stride in further)
    return Lies(strides[-2], strides[-1], step, aligned and whole)


def matrices_at(operand: Operand, index: tuple[int, ...], size: int) -> Operand:
    """The operand from the matrices of one place of the outer batch on."""
    offset = sum(place * stride for place, stride in zip(index, operand.strides, strict=False))
    return replace(operand, pointer=operand.pointer + offset * size)


def on_the_host(bound: Bound, half: str | None) -> Any:
    """The product by NumPy, whose other half is replaced, or left out."""
    if half is None:
        result = multiply_on_host(bound)
        copy_half(on_host(operand_of(result, "out")), None, "lower")
        return result
    target = bound.out.owner if bound.out is not None else zeros(bound)
    out, bound.out, bound.copied_to = bound.out, None, None
    values = multiply_on_host(bound)
    to = on_host(operand_of(target, "out") if out is None else out)
    copy_half(on_host(operand_of(values, "out")), to, half)
    return target


def copied(result: Any, out: Any, half: str | None) -> Any:
    """The caller's output on the host, which no kernel could write, with the result or its half."""
    source = on_host(operand_of(result, "out"))
    target = out if isinstance(out, np.ndarray) else on_host(operand_of(out, "out"))
    if half is None:
        np.copyto(target, source, casting="unsafe")
    else:
        copy_half(source, target, half)
    tell_written(out)
    return out


def copy_half(values: Any, to: Any, half: str) -> None:
    """Of matrices on the host, to `to`; without it, to the other half of `values` themselves."""
    if np.iscomplexobj(values):
        values.imag[..., range(values.shape[-1]), range(values.shape[-1])] = 0
    for row in range(values.shape[-1]):
        if to is None:
            values[..., row, row + 1 :] = np.conjugate(values[..., row + 1 :, row])
        elif half == "upper":
            to[..., row, row:] = values[..., row, row:]
        else:
            to[..., row, : row + 1] = values[..., row, : row + 1]
