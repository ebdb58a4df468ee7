"""Fast paths: what the full path checked and launched, put together for the next call like it.

A fast path keeps only numbers, none of the caller's arrays. Where it cannot be sure it returns None, and the
full path takes over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lapidist.calls.repeat.addresses import Interval, forbidden
from lapidist.calls.repeat.guard import (
    Alike,
    Recorded,
    are_plain,
    compared_as_they_repeat,
    compared_by_parts,
    compared_cupy,
    compared_numpy,
    recording_of,
)
from lapidist.calls.repeat.numbers_of import NumbersOf
from lapidist.calls.repeat.start import Starting, plainly_started
from lapidist.calls.repeat.upgrade import FINAL, Upgrade, upgrade_of
from lapidist.calls.repeat.write import CallLayout, written_out
from lapidist.errors import LapidistError
from lapidist.frameworks.arrays import contiguous_strides, operand_of
from lapidist.frameworks.new_arrays import empty, torch_dtype
from lapidist.frameworks.new_tensors import tensor_maker
from lapidist.frameworks.streams import stream_handle, stream_of

if TYPE_CHECKING:
    from lapidist.calls.bound import Bound
    from lapidist.calls.prepared import Prepared

# (a, b, c, out, values, stream) -> results, or None: the full path must check the call. `values`: alpha and
# beta, or all that comes beside the matrices.
FastPath = Callable[[Any, Any, Any, Any, Any, Any], Any]

# Raised by what is no tensor, or by a number out of range: the full path then names the argument.
REFUSED = AttributeError, TypeError, ValueError, RuntimeError, LapidistError


class Geometry(NamedTuple):
    """What arrays are compared with: A, B, D, C if it is read and is not D, arrays beside, further
    results.
    """

    alike: Alike  # at once
    alike_by_parts: Alike
    bits: tuple[int, ...]  # the last four bits of their addresses
    distances: Sequence[Interval]  # forbidden: there they would overlap
    recorded: Recorded
    device: Any


def geometry_of(tensors: list[Any], further: int = 0) -> Geometry:
    if type(tensors[0]) is np.ndarray:
        alike = compared_numpy(*tensors)
        distances = forbidden([operand_of(tensor, "out") for tensor in tensors], further)
        return Geometry(alike, alike, (0,) * len(tensors), distances, bool, None)
    return Geometry(
        compared_as_they_repeat(tensors),
        compared_by_parts(*tensors),
        tuple(tensor.data_ptr() & 15 for tensor in tensors),
        forbidden([operand_of(tensor, "out") for tensor in tensors], further),
        recording_of(tensors),
        tensors[0].device,
    )


def repeat_of(
    layout: CallLayout,
    geometry: Geometry,
    makes: tuple[Any, Any],
    numbers: NumbersOf,
    starting: Starting,
    upgrade: Upgrade,
    stream_now: Any,
) -> FastPath:
    """`makes`: makers of a new D, and of all results."""
    alike, alike_by_parts, bits, distances, recorded, _ = geometry
    layout = layout._replace(
        exchanged=starting.exchanged,
        brings=starting.bring is not None,
        brings_d=starting.of_d,
        counts=upgrade.calls > 0,
    )
    replay: FastPath = written_out(layout)(
        alike,
        alike_by_parts,
        *makes,
        bits,
        distances,
        numbers,
        starting.bring,
        starting.start,
        recorded,
        stream_now,
        stream_handle,
        write_counted(layout.framework),
        REFUSED,
        upgrade.look,
        upgrade.captured,
        upgrade.calls,
        # Without addresses: those of the next call are then checked, by the rules of the fast path.
        ((), numbers.first, (), numbers.first_scalars, None, numbers.first_fused),
    )
    return replay


def write_counted(framework: str) -> Callable[[Any], Any] | None:
    """What tells torch of writes: else autograd would not notice that `out` was overwritten."""
    if framework != "torch":
        return None
    import torch

    return torch._C._increment_version


def stream_of_torch(ordinal: int | str) -> Callable[[], int]:
    import torch

    return partial(torch._C._cuda_getCurrentRawStream, ordinal)


def result_maker(shape: Sequence[int], dtype: Any, device: Any) -> Callable[[], Any]:
    return tensor_maker(dtype, device)(tuple(shape), contiguous_strides(tuple(shape)))


# ---- the matrices alone ----


def fast_path(ready: Prepared, bound: Bound, keeps: bool = False) -> FastPath | None:
    """The fast path for arrays of this geometry. None: there is none. `keeps`: it stays with
    its kernel, even if a better one comes.
    """
    if not ready.direct:
        return None
    upgrade = FINAL if keeps else upgrade_of(ready)
    if ready.like.framework == "cupy":
        return fast_path_of_cupy(ready, bound, upgrade)
    tensors = tensors_of(bound)
    if not are_plain(tensors):
        return None
    geometry = geometry_of(tensors)
    new = result_maker(bound.result_shape, torch_dtype(ready.out_dtype), geometry.device)
    numbers = NumbersOf(bound, bound.alpha_beta)
    started = plainly_started(ready), upgrade, stream_of_torch(ready.like.device)
    return repeat_of(layout_of(bound, tensors), geometry, (new, None), numbers, *started)


def layout_of(bound: Bound, tensors: Sequence[Any]) -> CallLayout:
    reads_c = bound.c is not None
    separate_c = len(tensors) > 3
    return CallLayout(2, (), (0, 1), reads_c, separate_c, reads_c and not separate_c)


def tensors_of(bound: Bound) -> list[Any]:
    """A, B, the output, and C if it is not the output. Without an output, a new tensor stands for it."""
    a, b, c, out = bound.a, bound.b, bound.c, bound.out
    d = empty(bound.result_shape, a, bound.out_dtype) if out is None else out.owner
    return [a.owner, b.owner, d, *([] if c is None or c.owner is d else [c.owner])]


def fast_path_of_cupy(ready: Prepared, bound: Bound, upgrade: Upgrade) -> FastPath | None:
    """CuPy's arrays have no versions and no gradients. C is read only where it is the output."""
    arrays = tensors_of(bound)
    if len(arrays) > 3:
        return None
    like, shape, dtype = bound.a.alone(), bound.result_shape, bound.out_dtype
    geometry = Geometry(
        compared_cupy(*arrays[:2]),
        compared_cupy(arrays[2]),
        tuple(array.data.ptr & 15 for array in arrays),
        forbidden([operand_of(array, "out") for array in arrays], 0),
        bool,
        None,
    )
    now = partial(stream_of, "cupy", like.device)
    layout = layout_of(bound, arrays)._replace(framework="cupy")
    makes = partial(empty, shape, like, dtype), None
    numbers = NumbersOf(bound, bound.alpha_beta)
    return repeat_of(layout, geometry, makes, numbers, plainly_started(ready), upgrade, now)


# ---- on the host ----


def fast_path_on_host(bound: Bound) -> FastPath | None:
    """NumPy works on the memory of torch's tensors, and of arrays that it does not take at once."""
    from lapidist.calls.repeat.on_host import started_on_host

    framework, shape = bound.like.framework, bound.result_shape
    if framework not in ("torch", "numpy") or not shape or bound.no_kernel or bound.copied_to is not None:
        return None
    tensors = tensors_of(bound)
    if not are_plain(tensors):
        return None
    geometry, torchs = geometry_of(tensors), framework == "torch"
    new = (
        result_maker(shape, torch_dtype(bound.out_dtype), geometry.device)
        if torchs
        else partial(np.empty, shape, tensors[2].dtype)
    )
    layout = layout_of(bound, tensors)._replace(framework=framework, on_host=True)
    numbers = NumbersOf(bound, bound.alpha_beta)
    return repeat_of(layout, geometry, (new, None), numbers, started_on_host(bound), FINAL, None)
