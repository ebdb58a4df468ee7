"""Fast paths of lists of torch tensors: check that no matrix changed but its address, then launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lapidist.calls.recording import recording_of
from lapidist.calls.repeated import (
    Sketch,
    asked_of,
    compared_at_once,
    compared_by_parts,
    fit_for,
    plain_tensors,
    sketch,
)
from lapidist.frameworks.arrays import HOST, torch_dtype
from lapidist.frameworks.streams import stream_handle
from lapidist.planning.standing import CALLS_BETWEEN
from lapidist.problems.problem import VECTOR_BYTES

if TYPE_CHECKING:
    from lapidist.backends.gpu.list_kernels import PartKernel
    from lapidist.calls.call import Call
    from lapidist.calls.lists import Listed

AgainLists = Callable[["Call"], Any]  # returns None if the full path must check the call


def key_of_lists(call: Call) -> Sketch:
    """The key under which the fast path of such calls is remembered. None: no fast path can serve its
    matrices.
    """
    a, b, c, out, operation = call.a, call.b, call.c, call.out, call.operation
    lists = [x for x in (a, b, c, out) if x is not None]
    if operation.routing.check_indices is not False or call.choices.workspace is not None:
        return None
    if b is None or not all(type(x) in (list, tuple) and len(x) == len(a) for x in lists) or not a:
        return None
    seen = sketch(a[0], b[0], None if out is None else out[0])
    if seen is None:
        return None
    asked = asked_of(operation.alpha, operation.beta)
    return (
        *(len(a), seen, c is None, out is None, asked, operation.trans_a, operation.trans_b),
        *(operation.types, call.choices),
    )


def fast_path_of_lists(call: Call, batch: Listed, launched: Sequence[PartKernel]) -> AgainLists | None:
    """The fast path of calls like this one, which took these launches. Only if all matrices start on
    multiples of 16 bytes.
    """
    kernels = [each.kernel for each in launched if each.kernel is not None]
    first, operation, at_once = batch.calls[0], batch.calls[0].operation, batch.at_once
    parts = [slice(start, start + at_once) for start in range(0, batch.count, at_once)]
    if batch.like.device == HOST or batch.like.framework != "torch" or len(kernels) != len(parts):
        return None
    import torch

    reads_c, asked = first.c is not None, asked_of(*batch.scalars)
    if asked != asked_of(operation.alpha, operation.beta) or any(x.given is not None for x in batch.calls):
        return None
    results = [x.out.owner for x in batch.calls if x.out is not None]
    everything = tensors(call, results, reads_c)
    if any(type(x) not in plain_tensors() or x.is_neg() or not on_16_bytes(x.data_ptr()) for x in everything):
        return None
    alike, by_parts = compared_at_once(*everything), compared_by_parts(*everything)
    recorded, fit, count = recording_of(everything), fit_for(first.accumulator), batch.count
    current_stream, ordinal = torch._C._cuda_getCurrentRawStream, batch.like.device
    shape, dtype, swaps = first.result_shape, torch_dtype(first.out_dtype), batch.problem.transposed
    sound = [x.data_ptr() for x in everything]  # outputs overlap nothing: the full path checked

    def again(call: Call) -> Any:
        scalars = call.operation.alpha, call.operation.beta
        if recorded():
            return None
        try:
            results = [x.new_empty(shape, dtype=dtype) for x in call.a] if call.out is None else call.out
            everything = tensors(call, results, reads_c)
            if not fit(scalars) or not (alike(*everything) or by_parts(*everything)):
                return None
            at = [x.data_ptr() for x in everything]
        except (AttributeError, TypeError, RuntimeError):
            return None
        if at != sound and (call.out is not None or not all(map(on_16_bytes, at))):
            return None
        stream = current_stream(ordinal) if call.stream is None else stream_handle(call.stream)
        a, b, d, *own_c = (at[start : start + count] for start in range(0, len(at), count))
        c = own_c[0] if own_c else d
        columns = (b, a, c, d) if swaps else (a, b, c, d)
        for kernel, part in zip(kernels, parts, strict=True):
            padding = (0,) * (at_once - len(a[part]))
            addresses = (x for column in columns for x in (*column[part], *padding))
            kernel.start_with({"lists": tuple(addresses)}, stream, scalars)
        if call.out is not None:
            torch._C._increment_version(tuple(results))
        return results

    return counted(launched, again)


def counted(launched: Sequence[PartKernel], again: AgainLists) -> AgainLists:
    """The same fast path until the next look for better kernels, which the full path takes."""
    waiting = [each for each in launched if not each.settled]
    if not waiting:
        return again
    left = CALLS_BETWEEN

    def last(call: Call) -> Any:
        nonlocal left
        left -= 1
        if left > 0:
            return again(call)
        for each in waiting:
            each.countdown = 0
        return None

    return last


def tensors(call: Call, results: Sequence[Any], reads_c: bool) -> list[Any]:
    return [*call.a, *call.b, *results, *(call.c if reads_c else ())]


def on_16_bytes(pointer: int) -> bool:
    return pointer != 0 and not pointer % VECTOR_BYTES
