"""Workspaces that the library keeps: flags, which are zero between launches, and memory for partial sums.

Launches on one stream follow each other, so they share a workspace; launches on two streams never do. A
workspace is never freed or moved: threads and captured graphs hold its address. Sizes are powers of two, so
all plans of a stream together take at most four times what the largest needs.

A graph may be replayed on any stream, beside anything else, so each stream of a capture gets a workspace of
its own. Programs that capture again and again should pass `workspace=` and own the memory.
"""

from __future__ import annotations

import threading
from typing import Any

from lapidist.backends.gpu.driver import captures_ignored, check
from lapidist.build.portable_files import at_fork

SMALLEST_BYTES = 1 << 16
PER_THREAD_STREAM = 2  # CUDA's handle that means another stream in each thread

_lock = threading.Lock()
Room = tuple[int, int]  # addresses of flags, and of what follows them
_owned: dict[tuple[object, ...], Room] = {}
_free: dict[tuple[object, ...], list[Room]] = {}


def renew_lock() -> None:
    """In a forked child: the thread that may hold the lock does not exist there."""
    global _lock
    _lock = threading.Lock()


at_fork(after_in_child=renew_lock)


def rounded(nbytes: int) -> int:
    return max(SMALLEST_BYTES, 1 << max(nbytes - 1, 0).bit_length())


def is_capturing(driver: Any, handle: Any) -> bool:
    status, state = driver.cuStreamIsCapturing(handle)
    return bool(state and not status)


def stream_key(driver: Any, handle: Any, stream: int) -> object:
    """A key of launches that may share a workspace: the stream, and the capture under way on it."""
    if is_capturing(driver, handle):
        return "capture", int(driver.cuStreamGetCaptureInfo(handle)[2]), stream
    return (stream, threading.get_ident()) if stream == PER_THREAD_STREAM else stream


def owned(driver: Any, ordinal: int, key: object, flag_bytes: int, slot_bytes: int) -> Room:
    """The workspace for this key, with zero flags. The GPU's context must be current."""
    sizes = rounded(flag_bytes), rounded(slot_bytes)
    with _lock:
        room = _owned.get((ordinal, key, sizes))
        if room is None:
            room = _owned[ordinal, key, sizes] = allocate(driver, *sizes)
        return room


def rooms_between(ordinal: int, key: object, sizes: tuple[int, int]) -> list[Room]:
    """Free workspaces for calls of several launches, which pass values on in them. A call takes one off the
    list or allocates one. It puts it back after its last launch, since later launches on the stream come
    after that.

    Only threads that launch at the same moment need two. No lock is needed, as a list's pop and append are
    atomic. If a launch fails, the workspace is not put back, as its flags may not be zero.
    """
    key_of_rooms = ordinal, key, sizes
    rooms = _free.get(key_of_rooms)
    return _free.setdefault(key_of_rooms, []) if rooms is None else rooms


def allocate(driver: Any, flag_bytes: int, slot_bytes: int) -> Room:
    """A new workspace, also while a graph is captured: zeros are written on another stream."""
    with captures_ignored(driver):
        flags = int(check(driver.cuMemAlloc(flag_bytes + slot_bytes), "cuMemAlloc of a workspace"))
        stream = check(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING), "cuStreamCreate")
        check(driver.cuMemsetD8Async(flags, 0, flag_bytes, stream), "cuMemsetD8Async")
        check(driver.cuStreamSynchronize(stream), "cuStreamSynchronize")
        check(driver.cuStreamDestroy(stream), "cuStreamDestroy")
    return flags, flags + flag_bytes
