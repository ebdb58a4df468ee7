"""Whether arrays are those of the call before, but for their memory; and whether torch records the call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

Alike = Callable[..., bool]  # whether arrays have the geometry, type and device of those remembered
Recorded = Callable[[], bool]
Extents = list[int | None]  # of a tensor's dimensions; None: any

# How many guards are kept. Guards tell tensors of inference mode from others; a model's layers see both.
MOST_GUARDS = 3


# ---- whether torch records or redirects what is computed: the full path then refuses it in words ----


def recording_of(tensors: Iterable[Any]) -> Recorded:
    """A test whether torch records a call on tensors like these: for tangents, for a dispatch mode or before
    autograd (make_fx). If one of the tensors requires it, also for a gradient. Each may begin between two
    calls.
    """
    import torch

    modes, gradients = torch._C._len_torch_dispatch_stack, torch.is_grad_enabled
    functions, early_modes = (
        torch._C._len_torch_function_stack,
        torch._ops._len_torch_dispatch_stack_pre_dispatch,
    )
    forward = torch.autograd.forward_ad

    def recorded() -> bool:  # torch.set_default_device has a mode of functions, too, and records nothing
        return forward._current_level >= 0 or modes() > 0 or (functions() > 0 and early_modes() > 0)

    if any(tensor.requires_grad for tensor in tensors):
        return lambda: recorded() or gradients()
    return recorded


def is_traced() -> bool:
    """Whether torch.jit.trace records the call. torch's own guard tells that, too: one that was made outside
    of a trace refuses calls inside. So this is asked where that guard is made, or does not serve.
    """
    import torch

    return torch._C._is_tracing()


# ---- tensors ----


def are_plain(tensors: Iterable[Any]) -> bool:
    """Whether fast paths take them: a subclass may change what an attribute means, and negated views hold
    other numbers than their memory.
    """
    tensors = list(tensors)
    if isinstance(tensors[0], np.ndarray):
        return all(type(array) is np.ndarray for array in tensors)
    plain = plain_tensors()
    return all(type(tensor) in plain and not tensor.is_neg() for tensor in tensors)


def plain_tensors() -> tuple[type, type]:
    import torch

    return torch.Tensor, torch.nn.Parameter


def compared_at_once(*tensors: Any) -> Alike:
    """torch's guard for tensors of these shapes and strides; one that refuses everything if there is none."""
    sizes: list[Extents] = [list(x.shape) for x in tensors]
    strides: list[Extents] = [list(x.stride()) for x in tensors]
    return torch_guard(tensors, sizes, strides) or (lambda *_: False)


def torch_guard(tensors: Sequence[Any], sizes: list[Extents], strides: list[Extents]) -> Alike | None:
    """The guard of torch.compile's graphs: 0.3 us for three tensors, whose attributes would take 1.3 us.

    It refuses much that is alike: subclasses, one tensor given twice, tensors made in inference mode. It is
    no public part of torch; 2.11 and 2.13 have it. None: it is missing or fails, or would be made inside of a
    trace. Then tensors are compared by parts.
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


def compared_as_they_repeat(tensors: list[Any]) -> Alike:
    """A comparison of tensors among which one may occur twice, as in A A^T or as a factor of both. torch's
    guards take a tensor only once.
    """
    numbers = list(map(id, tensors))
    firsts = [numbers.index(number) for number in numbers]
    unique = sorted(set(firsts))
    if len(unique) == len(tensors):
        return compared_at_once(*tensors)
    pick, twice = picker(unique), [(x, y) for x, y in zip(firsts, range(len(firsts)), strict=True) if x != y]
    at_once = compared_at_once(*pick(tuple(tensors)))

    def alike(*tensors_now: Any) -> bool:
        return all(tensors_now[x] is tensors_now[y] for x, y in twice) and at_once(*pick(tensors_now))

    return alike


def picker(indices: Sequence[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """A function that takes these items of a tuple, as a tuple."""
    if len(indices) > 1:
        return itemgetter(*indices)
    first = indices[0] if indices else 0
    return itemgetter(slice(first, first + len(indices)))


def compared_by_parts(*tensors: Any) -> Alike:
    """Compare attribute by attribute. For tensors that pass, a guard is made, so that the next ones like them
    are compared at once.
    """
    parts = [compared(tensor) for tensor in tensors]
    at_once: list[Alike] = []
    tries = MOST_GUARDS

    def alike(*tensors_now: Any) -> bool:
        nonlocal tries
        for guard in at_once:
            if guard(*tensors_now):
                return True
        if is_traced() or not all(part(other) for part, other in zip(parts, tensors_now, strict=True)):
            return False
        if tries:
            guard = compared_at_once(*tensors_now)
            serves = guard(*tensors_now)
            tries = tries - 1 if serves else 0
            if serves:
                at_once.append(guard)
        return True

    return alike


def compared(tensor: Any) -> Alike:
    dtype, device, shape, same = tensor.dtype, tensor.device, tensor.shape, same_strides(tensor)
    plain = plain_tensors()
    wants_gradient, conjugated = tensor.requires_grad, tensor.is_conj()

    def alike(other: Any) -> bool:
        return (
            type(other) in plain
            and other.shape == shape
            and same(other)
            and other.dtype is dtype
            and other.device == device
            and other.requires_grad is wants_gradient
            and not other.is_neg()
            and other.is_conj() is conjugated
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


# ---- arrays of CuPy, whose attributes are slow: those of an array are compared as one tuple ----


def compared_cupy(*arrays: Any) -> Alike:
    remembered = [geometry_of_cupy(array) for array in arrays]
    return lambda *arrays_now: [geometry_of_cupy(other) for other in arrays_now] == remembered


def geometry_of_cupy(array: Any) -> tuple[Any, ...]:
    return array.shape, array.strides, array.dtype, array.device.id


# ---- arrays of NumPy ----


def compared_numpy(*arrays: Any) -> Alike:
    remembered = [geometry_of_numpy(array) for array in arrays]
    return lambda *arrays_now: [geometry_of_numpy(other) for other in arrays_now] == remembered


def geometry_of_numpy(array: Any) -> tuple[Any, ...]:
    return type(array), array.shape, array.strides, array.dtype, array.flags.writeable
