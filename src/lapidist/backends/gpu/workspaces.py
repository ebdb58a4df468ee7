"""Device scratch that the driver owns: flags, which are zero between launches, and partial sums.

Launches on one stream follow each other, so they share one workspace; launches on two streams never do. A
workspace is never freed or moved: threads and captured graphs hold its address. Sizes are powers of two, so
all plans of a stream together take at most four times what the largest of them needs.

A graph may be replayed on any stream, beside anything: each stream of a capture gets a workspace of its own.
Who captures again and again passes `workspace=` and owns the memory."""

from __future__ import annotations

import os
import threading
from typing import Any

from lapidist.backends.gpu.driver import check

SMALLEST_BYTES = 1 << 16
PER_THREAD_STREAM = 2  # one handle, and a stream of its own for each thread

_lock = threading.Lock()
Room = tuple[int, int]  # addresses of flags, and of what lies behind them
_owned: dict[tuple[object, ...], Room] = {}
_free: dict[tuple[object, ...], list[Room]] = {}


def renew_lock() -> None:
    """In a forked child: the thread that held it is not there to give it back."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=renew_lock)


def rounded(nbytes: int) -> int:
    return max(SMALLEST_BYTES, 1 << max(nbytes - 1, 0).bit_length())


def is_capturing(driver: Any, handle: Any) -> bool:
    status, state = driver.cuStreamIsCapturing(handle)
    return bool(state and not status)


def stream_key(driver: Any, handle: Any, stream: int) -> object:
    """What launches that may share a workspace have in common: the stream, and the capture that is under way
    on it.
    """
    if is_capturing(driver, handle):
        return "capture", int(driver.cuStreamGetCaptureInfo(handle)[2]), stream
    return (stream, threading.get_ident()) if stream == PER_THREAD_STREAM else stream


def owned(driver: Any, ordinal: int, key: object, flag_bytes: int, slot_bytes: int) -> Room:
    """Addresses of zero flags and of room for partial sums. The GPU's context must be current."""
    sizes = rounded(flag_bytes), rounded(slot_bytes)
    with _lock:
        found = _owned.get((ordinal, key, sizes))
        if found is None:
            found = _owned[ordinal, key, sizes] = allocate(driver, *sizes)
        return found


def rooms_between(ordinal: int, key: object, sizes: tuple[int, int]) -> list[Room]:
    """Workspaces for launches of which one reads what another left. A call takes one off the list, or has
    one more allocated. It puts it back behind its last launch, as what comes later on the stream finds it
    done with. Only threads that launch at one moment have two. No lock is needed, as a list gives and takes
    in one step. Where a launch failed the room is not put back, as its flags may not be zero."""
    asked = ordinal, key, sizes
    found = _free.get(asked)
    return _free.setdefault(asked, []) if found is None else found


def allocate(driver: Any, flag_bytes: int, slot_bytes: int) -> Room:
    """Also while a graph is captured: this thread's capture mode is relaxed, and the zeros are written on a
    stream beside it.
    """
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    previous = check(driver.cuThreadExchangeStreamCaptureMode(relaxed), "cuThreadExchangeStreamCaptureMode")
    try:
        flags = int(check(driver.cuMemAlloc(flag_bytes + slot_bytes), "cuMemAlloc of a workspace"))
        beside = check(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING), "cuStreamCreate")
        check(driver.cuMemsetD8Async(flags, 0, flag_bytes, beside), "cuMemsetD8Async")
        check(driver.cuStreamSynchronize(beside), "cuStreamSynchronize")
        check(driver.cuStreamDestroy(beside), "cuStreamDestroy")
    finally:
        driver.cuThreadExchangeStreamCaptureMode(previous)
    return flags, flags + flag_bytes
