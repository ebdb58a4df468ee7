"""Fast paths of lists of torch tensors: check that no matrix changed but its address, then launch.

They are not written out by `write.py`. Its text names each array of a call, and compares each pair that may
overlap: 200 tensors of a list of 50 would be 10,000 comparisons. Here one guard takes them all, and an output
must lie where the full path checked it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from lapidist.calls.repeat.guard import are_plain, compared_at_once, compared_by_parts, recording_of
from lapidist.calls.repeat.scalars import fit_for, scalars_key
from lapidist.calls.repeat.upgrade import upgrade_of_lists
from lapidist.frameworks.arrays import HOST
from lapidist.frameworks.new_arrays import torch_dtype
from lapidist.frameworks.streams import stream_handle
from lapidist.problems.matrix import VECTOR_BYTES

if TYPE_CHECKING:
    from lapidist.backends.gpu.list_kernels import PartKernel
    from lapidist.calls.bound_lists import Listed, ListLaunch
    from lapidist.calls.call import Call

ListPath = Callable[["Call"], Any]  # returns None if the full path must check the call


def fast_path_of_lists(call: Call, batch: Listed, launched: Sequence[PartKernel]) -> ListPath | None:
    """The fast path of calls like this one, which took these launches. Only if all matrices start on
    multiples of 16 bytes.
    """
    kernels = [part_kernel.kernel for part_kernel in launched if part_kernel.kernel is not None]
    first, count = batch.calls[0], len(batch.calls)
    if batch.like.device == HOST or batch.like.framework != "torch" or len(kernels) != len(batch.launches):
        return None
    import torch

    reads_c = first.c is not None
    if not is_as_called(batch):
        return None
    results = [x.out.owner for x in batch.calls if x.out is not None]
    everything = tensors(call, results, reads_c)
    if not are_plain(everything) or not all(on_16_bytes(x.data_ptr()) for x in everything):
        return None
    alike, by_parts = compared_at_once(*everything), compared_by_parts(*everything)
    recorded, fit = recording_of(everything), fit_for(first.accumulator)
    current_stream, ordinal = torch._C._cuda_getCurrentRawStream, batch.like.device
    shapes, dtype = [x.result_shape for x in batch.calls], torch_dtype(first.out_dtype)
    starts = [
        (kernel, itemgetter(*address_order(launch, count, batch.at_once, reads_c)))
        for kernel, launch in zip(kernels, batch.launches, strict=True)
    ]
    sound = [x.data_ptr() for x in everything]  # outputs overlap nothing: the full path checked
    until_look, look, captured = upgrade_of_lists(launched)
    counts = until_look > 0

    def replay(call: Call) -> Any:
        nonlocal until_look
        if counts:
            if until_look > 0:
                until_look = 0 if captured(call.stream) else until_look - 1 or look()
            if until_look <= 0:
                return None
        scalars = call.operation.alpha, call.operation.beta
        if recorded():
            return None
        try:
            results = call.out
            if results is None:
                results = [x.new_empty(shape, dtype=dtype) for x, shape in zip(call.a, shapes, strict=True)]
            everything = tensors(call, results, reads_c)
            if not fit(scalars) or not (alike(*everything) or by_parts(*everything)):
                return None
            at = [x.data_ptr() for x in everything]
        except (AttributeError, TypeError, RuntimeError):
            return None
        if at != sound and (call.out is not None or not all(map(on_16_bytes, at))):
            return None
        stream = current_stream(ordinal) if call.stream is None else stream_handle(call.stream)
        at.append(0)
        for kernel, addresses_in in starts:
            kernel.start_with({"lists": addresses_in(at)}, stream, scalars)
        if call.out is not None:
            torch._C._increment_version(tuple(results))
        return results

    return replay


def address_order(launch: ListLaunch, count: int, at_once: int, reads_c: bool) -> list[int]:
    """Where the addresses of a launch stand among those of `tensors`, behind which a zero follows."""
    a, b, d, c = (range(start, start + count) for start in range(0, 4 * count, count))
    factors, padding = (b, a) if launch.problem.transposed else (a, b), [-1] * (at_once - len(launch.numbers))
    columns = *factors, c if reads_c else d, d
    return [place for column in columns for place in (*(column[x] for x in launch.numbers), *padding)]


def is_as_called(batch: Listed) -> bool:
    """Whether the launches took the caller's own scalars and outputs."""
    operation = batch.calls[0].operation
    return scalars_key(*batch.scalars) == scalars_key(operation.alpha, operation.beta) and not any(
        call.copied_to is not None for call in batch.calls
    )


def tensors(call: Call, results: Sequence[Any], reads_c: bool) -> list[Any]:
    return [*call.a, *call.b, *results, *(call.c if reads_c else ())]


def on_16_bytes(pointer: int) -> bool:
    return pointer != 0 and not pointer % VECTOR_BYTES
