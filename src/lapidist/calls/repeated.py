"""The fast path of a repeated call: check that nothing changed but the pointers, then launch.

The full path checks every rule, plans, and makes the fast path of the next call. A fast path that cannot be
sure returns None, and the full path takes over.

It is most of what a planned launch costs on the host, so it is written out flat. Reading an attribute of a
tensor takes 50 to 100 ns, a Python call about as much.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lapidist.backends.gpu.launcher import Scalars
from lapidist.backends.host import LEAST, MOST
from lapidist.calls.recording import Recorded, is_traced, recording_of
from lapidist.dtypes import number_type
from lapidist.frameworks.arrays import contiguous_strides, empty, stream_of, torch_dtype
from lapidist.frameworks.new_tensors import tensors_made
from lapidist.frameworks.streams import stream_handle

if TYPE_CHECKING:
    from lapidist.calls.arguments import Arguments
    from lapidist.calls.prepared import Prepared
    from lapidist.frameworks.arrays import Operand

# (a, b, c, out, (alpha, beta), stream) -> out, or None: the full path must check the call
Again = Callable[[Any, Any, Any, Any, Scalars, Any], Any]
Sketch = Any  # hashable


# ---- the key under which a call's fast path is found ----


def sketch(a: Any, b: Any, out: Any) -> Sketch:
    """The parts of a call's geometry that are cheap to read: a key of fast paths. None: none can serve these
    arrays.
    """
    try:
        flat = None if out is None else out.is_contiguous()
        return a.shape, b.shape, a.dtype, a.is_contiguous(), b.is_contiguous(), flat
    except (AttributeError, RuntimeError):  # no tensors, or sparse, nested and such tensors
        return sketch_of_cupy(a, b, out)


def sketch_of_cupy(a: Any, b: Any, out: Any) -> Sketch:
    cupy = sys.modules.get("cupy")
    if cupy is None or not type(a) is type(b) is cupy.ndarray:
        return None
    flat = out.flags.c_contiguous if type(out) is cupy.ndarray else None
    return a.shape, b.shape, a.dtype, a.flags.c_contiguous, b.flags.c_contiguous, flat


def plain_tensors() -> tuple[type, type]:
    """Types of tensors that fast paths take: a subclass may change what an attribute means."""
    import torch

    return torch.Tensor, torch.nn.Parameter


# ---- alpha and beta ----

# exact types: a subclass may change what comparison means
NUMBERS: frozenset[Any] = frozenset((int, float, np.float16, np.float32, np.float64, np.int32, np.int64))
MOST_WHOLE = 2**31 - 1


def asked_of(alpha: Any, beta: Any) -> Sketch:
    """What a problem depends on: alpha = 0 reads no A and B, alpha = 1 multiplies nothing, beta = 0 reads no
    C.
    """
    return alpha == 0, alpha == 1, beta == 0


Fit = Callable[[Scalars], bool]


def fit_for(accumulator: str) -> Fit:
    """A test whether alpha and beta surely neither overflow nor round to zero in the type that kernels
    take.
    """
    whole = number_type(accumulator).kind in "iu"
    return whole_fit if whole else floats_fit


def whole_fit(scalars: Scalars) -> bool:
    return all(abs(x) <= MOST_WHOLE and x == int(x) for x in scalars)


def floats_fit(scalars: Scalars) -> bool:
    alpha, beta = scalars
    return (alpha == 0 or LEAST < abs(alpha) < MOST) and (beta == 0 or LEAST < abs(beta) < MOST)


# ---- the call itself ----


def fast_path(ready: Prepared, arguments: Arguments, keeps: bool = False) -> Again | None:
    """The fast path for arrays of the geometry of `arguments`, which passed every check. None: there is none.
    `keeps`: it stays with its kernel, even if a better one comes.

    It keeps only numbers of `arguments`, none of its arrays.
    """
    if not ready.direct:
        return None
    of_framework = fast_path_of_torch if ready.like.framework == "torch" else fast_path_of_cupy
    return of_framework(ready, arguments, 0 if keeps else calls_left(ready))


def calls_left(ready: Prepared) -> int:
    """Calls until the next look for a better plan; 0: its plans are final."""
    return 0 if ready.settled else max(1, ready.countdown)


class Geometry(NamedTuple):
    """What a fast path of torch compares tensors with. It holds numbers, none of the caller's tensors."""

    alike: Alike  # torch's own guard, the fast one
    alike_by_parts: Alike  # attribute by attribute
    bits: tuple[int, int, int, int]  # the last four bits of the addresses of A, B, C and D
    distances: tuple[tuple[int, int], ...]  # forbidden, from A, B and C to D: they would overlap
    device: Any
    recorded: Recorded
    c_apart: bool = False  # C is read, and is not D
    in_place: bool = False  # C is D


def fast_path_of_torch(ready: Prepared, arguments: Arguments, left: int) -> Again | None:
    tensors = tensors_of(arguments)
    if ready.kernel is None or any(
        type(tensor) not in plain_tensors() or tensor.is_neg() for tensor in tensors
    ):
        return None
    bits = [tensor.data_ptr() & 15 for tensor in tensors]
    a_bits, b_bits, d_bits, c_bits = bits if len(bits) == 4 else (*bits, bits[2])
    geometry = Geometry(
        compared_at_once(*tensors),
        compared_by_parts(*tensors),
        (a_bits, b_bits, c_bits, d_bits),
        distances(arguments),
        tensors[0].device,
        recording_of(tensors),
        len(tensors) == 4,
        arguments.c is not None and len(tensors) == 3,
    )
    make_path = path_maker(geometry, ready.like.device, ready.out_dtype, ready.problem.accumulator)
    return make_path(ready, arguments.alpha_beta, arguments.result_shape, left)


# (what is prepared, the last alpha and beta, the result's shape, calls left) -> a fast path
PathMaker = Callable[["Prepared", Scalars, tuple[int, ...], int], Again]


def path_maker(geometry: Geometry, ordinal: int | str, out_dtype: str, accumulator: str) -> PathMaker:
    """A maker of fast paths. What tensors of one geometry have in common is bound once, for products of many
    numbers of rows.
    """
    import torch

    alike, alike_by_parts, (a_bits, b_bits, c_bits, d_bits), apart, device, *_ = geometry
    (a_low, a_high), (b_low, b_high), (c_low, c_high) = apart
    recorded, c_apart, in_place = geometry.recorded, geometry.c_apart, geometry.in_place
    made_of, fit = tensors_made(torch_dtype(out_dtype), device), fit_for(accumulator)
    current_stream, count_write = torch._C._cuda_getCurrentRawStream, torch._C._increment_version

    def make_path(ready: Prepared, fitting: Scalars, shape: tuple[int, ...], left: int) -> Again:
        """`fitting`: the last alpha and beta that passed `fit`."""
        kernel, swap = ready.kernel, ready.parts[0].plan.problem.transposed
        assert kernel is not None
        new, start, counts = made_of(shape, contiguous_strides(shape)), kernel.kept_start(), left > 0
        # the last addresses that passed: aligned as planned, the output overlapping nothing that is read
        sound = (0, 0, 0, 0)

        def again(a: Any, b: Any, c: Any, out: Any, scalars: Scalars, stream: Any) -> Any:
            nonlocal sound, fitting, left
            if counts:
                if left > 0:
                    left = left - 1 or ready.look_again(kernel, stream)
                if left <= 0:
                    return None  # from now on: the full path makes another fast path
            if scalars is not fitting:
                if scalars != fitting and not fit(scalars):
                    return None
                fitting = scalars
            try:
                made = out is None
                if made:
                    out = new()
                if c_apart:
                    if not (alike(a, b, out, c) or alike_by_parts(a, b, out, c)):
                        return None
                    pc, pd = c.data_ptr(), out.data_ptr()
                elif (c is out or not in_place) and (alike(a, b, out) or alike_by_parts(a, b, out)):
                    pc = pd = out.data_ptr()
                else:
                    return None
                pa, pb = a.data_ptr(), b.data_ptr()
            except (AttributeError, TypeError, RuntimeError):
                return None  # no tensors, or tensors without memory: the full path raises the error
            addresses, last = ((pb, pa, pc, pd) if swap else (pa, pb, pc, pd)), sound
            if addresses == last:
                addresses = last  # the same object, which the launcher recognises by identity
            elif (
                (pa ^ a_bits | pb ^ b_bits | pc ^ c_bits | pd ^ d_bits) & 15
                or not (pa and pb and pc and pd)
                or a_low < pd - pa < a_high
                or b_low < pd - pb < b_high
                or c_low < pd - pc < c_high
            ):
                return None
            else:
                sound = addresses
            if recorded():
                return None
            start(addresses, scalars, current_stream(ordinal) if stream is None else stream_handle(stream))
            if not made:
                count_write((out,))  # else autograd would not notice that `out` was overwritten
            return out

        return again

    return make_path


def tensors_of(arguments: Arguments) -> list[Any]:
    """A, B, the output, and C if it is not the output. Without an output, a new tensor stands for it."""
    a, b, c, out = arguments.a, arguments.b, arguments.c, arguments.out
    made = empty(arguments.result_shape, a, arguments.out_dtype) if out is None else out.owner
    return [a.owner, b.owner, made, *([] if c is None or c.owner is made else [c.owner])]


def distances(arguments: Arguments) -> tuple[tuple[int, int], ...]:
    """The forbidden distances of the output from A, B and C. C may be the output itself: then there is
    none.
    """
    out, c = arguments.out or arguments.full(arguments.fresh()), arguments.c
    apart = c is not None and (arguments.out is None or c.owner is not arguments.out.owner)
    return (
        forbidden_distances(out, arguments.a),
        forbidden_distances(out, arguments.b),
        forbidden_distances(out, c) if c is not None and apart else (0, 0),
    )


def fast_path_of_cupy(ready: Prepared, arguments: Arguments, left: int) -> Again | None:
    """CuPy's attributes are slow, so those of an array are compared as one tuple."""
    if ready.kernel is None or (
        arguments.c is not None and (arguments.out is None or arguments.c.owner is not arguments.out.owner)
    ):
        return None
    like, shape, dtype = arguments.a.alone(), arguments.result_shape, arguments.out_dtype
    made_anew, reads_c = arguments.out is None, arguments.c is not None
    known = [
        geometry_of_cupy(operand.owner)
        for operand in (arguments.a, arguments.b, arguments.out)
        if operand is not None
    ]
    (a_low, a_high), (b_low, b_high), _ = distances(arguments)
    kernel, swap = ready.kernel, ready.parts[0].plan.problem.transposed
    start, counts = kernel.kept_start(), left > 0
    fitting, fit = arguments.alpha_beta, fit_for(arguments.accumulator)

    def again(a: Any, b: Any, c: Any, out: Any, scalars: Scalars, stream: Any) -> Any:
        nonlocal left
        if counts:
            if left > 0:
                left = left - 1 or ready.look_again(kernel, stream)
            if left <= 0:
                return None
        if scalars != fitting and not fit(scalars):
            return None
        try:
            found = [geometry_of_cupy(array) for array in ((a, b) if out is None else (a, b, out))]
        except AttributeError:
            return None
        if found != known or (c is not out if reads_c else c is not None) or made_anew is not (out is None):
            return None
        out = empty(shape, like, dtype) if out is None else out
        pa, pb, pd = a.data.ptr, b.data.ptr, out.data.ptr
        if a_low < pd - pa < a_high or b_low < pd - pb < b_high:
            return None
        handle = stream_of("cupy", like.device) if stream is None else stream_handle(stream)
        start((pb, pa, pd, pd) if swap else (pa, pb, pd, pd), scalars, handle)
        return out

    return again


def geometry_of_cupy(array: Any) -> tuple[Any, ...]:
    return array.shape, array.strides, array.dtype, array.device.id, array.data.ptr & 15


Alike = Callable[..., bool]  # whether tensors have the geometry, type and device of those remembered


Extents = list[int | None]  # of a tensor's dimensions; None: any


def compared_at_once(*tensors: Any) -> Alike:
    """torch's guard for tensors of these shapes and strides; one that refuses everything if there is none."""
    sizes: list[Extents] = [list(x.shape) for x in tensors]
    strides: list[Extents] = [list(x.stride()) for x in tensors]
    return torch_guard(tensors, sizes, strides) or (lambda *_: False)


def torch_guard(tensors: Sequence[Any], sizes: list[Extents], strides: list[Extents]) -> Alike | None:
    """The guard of torch.compile's graphs: 0.3 us for three tensors, whose attributes would take 1.3 us.

    It refuses much that is alike: subclasses, one tensor given twice, tensors made in inference mode. It is
    no public part of torch. None: it is missing or fails, or would be made inside of a trace.
    """
    if is_traced():
        return None
    try:
        from torch._C._dynamo.guards import TensorGuards

        alike: Alike = TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
        alike(*tensors)
    except Exception:
        return None
    return alike


# How many guards are kept. Guards tell tensors of inference mode from others; a model's layers see both.
MOST_GUARDS = 3


def compared_by_parts(*tensors: Any) -> Alike:
    """Compare attribute by attribute. For tensors that pass, a guard is made, so that the next ones like them
    are compared at once.
    """
    parts = [compared(tensor) for tensor in tensors]
    at_once: list[Alike] = []
    tries = MOST_GUARDS

    def alike(*others: Any) -> bool:
        nonlocal tries
        for each in at_once:
            if each(*others):
                return True
        if is_traced() or not all(part(other) for part, other in zip(parts, others, strict=True)):
            return False
        if tries:
            found = compared_at_once(*others)
            known = found(*others)
            tries = tries - 1 if known else 0
            if known:
                at_once.append(found)
        return True

    return alike


def compared(tensor: Any) -> Alike:
    dtype, device, shape, same = tensor.dtype, tensor.device, tensor.shape, same_strides(tensor)
    plain = plain_tensors()
    wants_gradient = tensor.requires_grad

    def alike(other: Any) -> bool:
        return (
            type(other) in plain
            and other.shape == shape
            and same(other)
            and other.dtype is dtype
            and other.device == device
            and other.requires_grad is wants_gradient
            and not other.is_neg()
        )

    return alike


def same_strides(tensor: Any) -> Callable[[Any], bool]:
    """A test whether another tensor of the same shape has the same strides. For contiguous tensors torch has
    the answer at hand.
    """
    if tensor.is_contiguous():
        return type(tensor).is_contiguous
    strides = tensor.stride()
    return lambda other: other.stride() == strides


def forbidden_distances(out: Operand, operand: Operand) -> tuple[int, int]:
    """The open interval of (out pointer - operand pointer), in bytes, in which the two would overlap."""
    (first, last), (other_first, other_last) = out.span, operand.span
    return (other_first - operand.pointer) - (last - out.pointer), (other_last - operand.pointer) - (
        first - out.pointer
    )
