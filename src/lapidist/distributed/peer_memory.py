"""Memory of other cards by torch's symmetric memory: buffers that stay in place, flags, and two streams.

Streams wait for flags, so that a rank that is not there takes no SM. Kernels of the way "waiting" wait
themselves, and those that add all ranks' terms, up to the group's time limit. NVLink multicast is not
used."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from lapidist.backends.gpu.driver import check, load_driver
from lapidist.distributed.exchange_steps import Stream, Way
from lapidist.distributed.exchange_times import PARTS
from lapidist.distributed.group_facts import group_of, limit_of, members_of, values_of_ranks
from lapidist.distributed.late_ranks import LateRanks
from lapidist.distributed.met_sums import Meeting
from lapidist.distributed.peer_products import PeerProducts
from lapidist.distributed.rank_memory import BUFFERS, Use, first_flags, flag_count, way_of
from lapidist.distributed.sent_terms import BLOCKS, Sending
from lapidist.errors import LaunchError
from lapidist.problems.arrivals import Arrivals

FLAG_BYTES = 4


class Symmetric:
    """A tensor at the same place of every rank's symmetric memory."""

    def __init__(self, size: int, device: Any, group_name: str) -> None:
        # Nothing here needs multicast, and a program that fails while it uses it can put a host's cards out
        # of service. torch reads this when it maps memory.
        os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
        import torch.distributed._symmetric_memory as symmetric

        self.tensor = symmetric.empty(size, dtype=torch.uint8, device=device)
        self.handle = symmetric.rendezvous(self.tensor, group_name)
        self.size = size

    def of_ranks(self) -> list[Any]:
        count = self.handle.world_size
        return [self.handle.get_buffer(rank, (self.size,), torch.uint8) for rank in range(count)]


class CardMemory:
    """The Memory of a group whose cards can write to each other's."""

    def __init__(self, group: Any, device: Any) -> None:
        members = members_of(group)
        self.rank, self.ranks, self._device = members.rank, members.ranks, device
        self._group: Any = weakref.ref(group)  # what a group has is kept as long as the group
        self._driver = load_driver()
        self._buffers: dict[tuple[Use, int], tuple[Symmetric, list[Any]]] = {}
        self._in_graphs: set[Symmetric] = set()  # which larger ones must not take the place of
        self._copies, self._rescue = torch.cuda.Stream(device), torch.cuda.Stream(device)
        first = torch.tensor(first_flags(self.ranks, self.rank), dtype=torch.int32)
        self._flags = Symmetric(FLAG_BYTES * len(first), device, group.group_name)
        self._flags.tensor.copy_(first.view(torch.uint8))
        self._set = torch.ones_like(first).view(torch.uint8).to(device)
        self._addresses = self._flags.handle.buffer_ptrs
        self._operations: list[tuple[bool, int, int]] = []  # whether it waits, an address, a value
        # What kernels write that waited for too long: for rows of other ranks, and to add their terms.
        self._reports = torch.zeros(2, self.ranks, dtype=torch.int64, device="cpu", pin_memory=True)
        self._missed, self._unmet = self._reports
        self._done = torch.zeros(1, dtype=torch.int32, device=device)  # blocks of a kernel that meets peers
        self._calls = torch.zeros(BLOCKS, dtype=torch.int32, device=device)  # of a kernel that sends to peers
        self._meet("flags")
        self.late = LateRanks(
            limit_of(group).total_seconds(), self._release, self._ignore_captures, self._missing
        )

    def _meet(self, what: str) -> None:
        """All ranks are here, and what they had enqueued is done."""
        torch.cuda.synchronize(self._device)
        members_of(self._group()).calls += 1
        values_of_ranks(self._group(), f"buffers of {what}", None, what)

    def buffers(self, use: Use, buffer: int, size: int) -> Sequence[Any]:
        known = self._buffers.get((use, buffer))
        if known is None or known[0].size < size:
            if torch.cuda.is_current_stream_capturing():
                raise LaunchError(
                    f"{use}: a graph cannot capture the allocation of memory that others write, {size} bytes."
                    f" Call each shape {BUFFERS} times before the capture"
                )
            self._meet(use)  # nobody writes to the old buffer from here on
            self._buffers.pop((use, buffer), None)
            memory = Symmetric(size, self._device, self._group().group_name)
            self._buffers[use, buffer] = known = memory, memory.of_ranks()
        return known[1]

    # ---- streams and flags ----

    def _stream(self) -> Any:
        return self._driver.CUstream(torch.cuda.current_stream(self._device).cuda_stream)

    def enqueue(self, work: Callable[[], Any]) -> None:
        self._flush()
        work()  # products and copies go to the current stream by themselves

    def enqueue_awaiting(self, work: Callable[[], Any], flags: Sequence[int]) -> None:
        self.enqueue(work)

    def arrivals(self, first: int, rows: int, step: int) -> Arrivals:
        limit = int(self.late.limit * 1e9)
        report = self._missed.data_ptr() + 8 * (first // PARTS % self.ranks)
        return Arrivals(self._address(self.rank, first), report, limit, rows, step)

    def meeting(self, arrived: int, free: int, step: int) -> Meeting:
        limit = int(self.late.limit * 1e9)
        at = self._unmet.data_ptr(), limit, self._done.data_ptr()
        return Meeting(self.rank, tuple(self._addresses), *at, arrived, free, step, {})

    def sending(self, missed: int) -> Sending:
        first = flag_count(self.ranks)
        flags = tuple(self._address(rank, first) for rank in range(self.ranks))
        limit = int(self.late.limit * 1e9)
        return Sending(self.rank, flags, self._unmet.data_ptr(), limit, self._calls.data_ptr(), missed, {})

    def _address(self, rank: int, flag: int) -> int:
        return self._addresses[rank] + FLAG_BYTES * flag

    def wait(self, flag: int) -> None:
        self._operations.append((True, self._address(self.rank, flag), 1))

    def clear(self, flag: int, count: int) -> None:
        for further in range(count):
            self._operations.append((False, self._address(self.rank, flag + further), 0))

    def signal(self, peer: int, flag: int) -> None:
        # The write follows all that the stream wrote before, also to other cards.
        self._operations.append((False, self._address(peer, flag), 1))

    def _flush(self) -> None:
        """Waits and writes that follow each other are one operation of the stream."""
        if not self._operations:
            return
        driver, operations = self._driver, []
        kinds = driver.CUstreamBatchMemOpType
        for waits, address, value in self._operations:
            operation = driver.CUstreamBatchMemOpParams()
            kind = kinds.CU_STREAM_MEM_OP_WAIT_VALUE_32 if waits else kinds.CU_STREAM_MEM_OP_WRITE_VALUE_32
            operation.operation = kind
            part = operation.waitValue if waits else operation.writeValue
            part.operation, part.address, part.value = (
                kind,
                driver.CUdeviceptr(address),
                driver.cuuint32_t(value),
            )
            equal = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ
            part.flags = int(equal) if waits else 0
            operations.append(operation)
        self._operations.clear()
        stream = self._driver.CUstream(torch.cuda.current_stream(self._device).cuda_stream)
        check(driver.cuStreamBatchMemOp(stream, len(operations), operations, 0), "cuStreamBatchMemOp")

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        with torch.cuda.stream(self._copies) if stream == "copies" else nullcontext():
            yield
            self._flush()

    @contextmanager
    def call(self, way: Way, waits: Sequence[tuple[int, int]], copies: bool) -> Iterator[None]:
        self.require_none_late()
        current = torch.cuda.current_stream(self._device)
        self._operations.clear()  # of a call that failed
        if copies:
            self._copies.wait_stream(current)
        yield
        if copies:
            current.wait_stream(self._copies)
        if torch.cuda.is_current_stream_capturing():
            self._in_graphs.update(memory for memory, _ in self._buffers.values())
        else:
            end = torch.cuda.Event()
            end.record(current)
            self.late.add(way, end, waits)
            self.late.start()

    def require_none_late(self) -> None:
        """Raise if a stream's or a kernel's wait reached its limit."""
        if self.late.failure is None and self._reports.any():
            missed, unmet = self._reports.tolist()
            if any(missed):
                self.late.fail(
                    "waiting", [first + (flag - 1) // PARTS for first, flag in enumerate(missed) if flag]
                )
            else:
                way = way_of(max(unmet) - 1, self.ranks)
                self.late.fail(way, [rank for rank, flag in enumerate(unmet) if flag])
        self.late.require_none()

    def _ignore_captures(self) -> None:
        """Otherwise a look at an event in this thread would invalidate what another one captures."""
        relaxed = self._driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        check(self._driver.cuThreadExchangeStreamCaptureMode(relaxed), "cuThreadExchangeStreamCaptureMode")

    def _missing(self, waits: Sequence[tuple[int, int]]) -> list[int]:
        """The ranks whose flags are not set: what a call waits for is cleared at its end, and counts of calls
        are then this rank's. Kernels that went on have told of others.
        """
        if unmet := [rank for rank, flag in enumerate(self._unmet.tolist()) if flag]:
            return unmet
        with torch.cuda.device(self._device), torch.cuda.stream(self._rescue):
            values = torch.empty_like(self._flags.tensor, device="cpu", pin_memory=True)
            values.copy_(self._flags.tensor, non_blocking=True)
            calls = self._calls.to("cpu")
            self._rescue.synchronize()
        flags, first = values.view(torch.int32), flag_count(self.ranks)
        # counts go round, and so do differences of int32
        return sorted({rank for flag, rank in waits if flags[flag] - calls[0] * (flag >= first) <= 0})

    def _release(self) -> None:
        """Set this rank's flags in others' place. Streams that wait take no SM, so the copy runs."""
        with torch.cuda.device(self._device), torch.cuda.stream(self._rescue):
            self._flags.tensor.copy_(self._set, non_blocking=True)


def synchronize(group: Any = None) -> None:
    """Wait for this process's card, and raise if another rank did not come meanwhile.

    Without it the next call over the group raises that: call it behind the last one.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup or DeviceMesh of one dimension, optional
        The ranks; all by default.
    """
    peers = members_of(group_of(group)).peer_memory
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    if peers is not None:
        peers.memory.require_none_late()


def peers_of(group: Any, device: Any) -> PeerProducts:
    """The group's ways over its cards' memory. All ranks make them in the same call."""
    members = members_of(group)
    if members.peer_memory is None:
        members.peer_memory = PeerProducts(CardMemory(group, device))
    return members.peer_memory
