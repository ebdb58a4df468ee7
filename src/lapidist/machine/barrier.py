"""Barriers of the threads of a block, or of a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lapidist.machine.faults import BarrierMisuse
from lapidist.machine.instructions.warp import BarrierRequest, reduced
from lapidist.machine.lanes import Cohort, Lanes, part_where
from lapidist.machine.state import Machine

Array = np.ndarray


Waiting = tuple[Cohort, Lanes, int]  # who waits, and the block of code behind the barrier


@dataclass
class Barrier:
    """One barrier of one block (or of one cluster): who has come, who waits."""

    expected: int
    arrived: int = 0
    site: int = 0
    all_threads: bool = False  # no count: it waits for all that have not exited
    aligned: bool = False
    example: Lanes | None = None  # some of the lanes of a warp that came in parts
    passed: list[Lanes] = field(default_factory=list)  # lanes that went on without it, seen when others came
    waiting: list[Waiting] = field(default_factory=list)
    brought: list[tuple[Cohort, Lanes, BarrierRequest, Array]] = field(default_factory=list)

    def deliver(self) -> None:
        """bar.red: write the reduced value into each lane's register."""
        if not self.brought:
            return
        value = reduced(self.brought[0][2].operation, [flags for _, _, _, flags in self.brought])
        for cohort, lanes, request, _ in self.brought:
            old = cohort.registers[request.register]
            cohort.registers[request.register] = value if lanes.index is None else lanes.put(old, value)


def warp_masks(lanes: Lanes) -> dict[tuple[int, int], int]:
    """By slot and warp, a bit for each lane."""
    masks = {}
    for row in range(lanes.warps):
        mine = lanes.row == row
        warp = int(lanes.slot[mine][0]), int(lanes.thread[mine][0]) // 32
        masks[warp] = int((np.uint32(1) << lanes.lane[mine].astype(np.uint32)).sum(dtype=np.uint32))
    return masks


class Barriers:
    """The barriers of all resident blocks and clusters at which threads have arrived."""

    def __init__(self, machine: Machine) -> None:
        self.m = machine
        self.open: dict[tuple[int, str, int], Barrier] = {}  # by slot or cluster, kind and number
        self.releases = 0

    def forget(self, slots: Array) -> None:
        """Drop the arrivals of earlier blocks in these slots, which new blocks take."""
        for key in self._of(slots):
            del self.open[key]

    def _of(self, slots: Array) -> list[tuple[int, str, int]]:
        """The open barriers of these blocks and of their clusters."""
        at = {"bar": slots, "cluster": slots // self.m.geometry.cluster_size}
        return [key for key in self.open if key[0] in at[key[1]]]

    def holds(self, cohort: Cohort) -> bool:
        return any(cohort is waiting for barrier in self.open.values() for waiting, _, _ in barrier.waiting)

    def everybody(self, lanes: Lanes, request: BarrierRequest) -> bool:
        """Whether all threads of all blocks come to one plain barrier at once. Then they pass it at once."""
        simple = request.action == "sync" and request.count is None and request.value is None
        if self.open or not (simple and lanes.index is None and request.number.shape[0] == 1):
            return False
        self.releases += self.m.slots
        self.m.observer.barrier_passed(lanes)
        return True

    def arrive(self, cohort: Cohort, lanes: Lanes, request: BarrierRequest, after: int) -> list[Waiting]:
        """Count the arrival of lanes of any blocks, and return whom it lets go."""
        if request.action.startswith("cluster"):
            return self.arrive_cluster(cohort, lanes, request, after)
        released: list[Waiting] = []
        numbers, slot = request.number, lanes.slot[0]
        if len(numbers) == 1 and numbers[0] <= 15 and slot == lanes.slot[-1] and request.value is None:
            return self.arrive_one(cohort, lanes, request, (int(slot), "bar", int(numbers[0])), after)
        numbers = np.broadcast_to(numbers, (lanes.n,))
        if (numbers > 15).any():
            rule = f"a block has barriers 0 to 15, got {int(numbers.max())}"
            raise self.m.fault(BarrierMisuse, rule, request.site, lanes, int(np.argmax(numbers > 15)))
        keys = lanes.slot * 16 + numbers
        for key in np.unique(keys).tolist():
            part = part_where(lanes, keys == key)
            assert part is not None
            place = (key // 16, "bar", key % 16)
            if request.value is not None:
                barrier = self.open.setdefault(place, Barrier(self.expected(request)))
                flags = np.broadcast_to(request.value, (lanes.n,))[keys == key]
                barrier.brought.append((cohort, part, request, flags))
            released += self.arrive_one(cohort, part, request, place, after)
        return released

    def expected(self, request: BarrierRequest) -> int:
        """Threads that the barrier waits for. Those that the last warp lacks count as exited."""
        return self.m.geometry.warps * 32 if request.count is None else int(request.count[-1])

    def arrive_one(
        self, cohort: Cohort, lanes: Lanes, request: BarrierRequest, key: tuple[int, str, int], after: int
    ) -> list[Waiting]:
        """Count the arrival of lanes of one block at one barrier, and return whom it lets go."""
        expected = self.expected(request)
        barrier = self.open.setdefault(key, Barrier(expected))
        if expected % 32 or expected != barrier.expected:
            rule = (
                f"barrier {key[2]} waits for {expected} threads here, elsewhere for {barrier.expected}; "
                "both must be the same multiple of 32"
            )
            raise self.m.fault(BarrierMisuse, rule, request.site, lanes)
        barrier.arrived += lanes.n
        barrier.site = request.site
        barrier.all_threads = request.count is None
        barrier.aligned |= request.aligned and request.action == "sync"
        if request.action == "sync":
            barrier.waiting.append((cohort, lanes, after))
            if request.aligned and not lanes.full_warps:
                barrier.passed += self.gone_past(cohort, after - 1)
        self.m.observer.barrier_arrived(barrier, lanes)
        if barrier.arrived > expected:
            rule = f"barrier {key[2]} waits for {expected} threads and {barrier.arrived} came"
            raise self.m.fault(BarrierMisuse, rule, request.site, lanes)
        return self.opened(key)

    def opened(self, key: tuple[int, str, int]) -> list[Waiting]:
        """Whom a barrier lets go. One of all threads does not wait for those that have exited."""
        barrier = self.open[key]
        gone = sum(self.m.gone[self.slots(key)]) if barrier.all_threads else 0
        of_block = key[1] == "bar"
        come = barrier.arrived if of_block else sum(lanes.n for _, lanes, _ in barrier.waiting)
        if come + gone < barrier.expected or come > barrier.arrived:
            return []
        del self.open[key]
        self.releases += 1
        if barrier.aligned and of_block:
            self.check_whole_warps(barrier)
        self.m.observer.barrier_completed(barrier)
        barrier.deliver()
        return barrier.waiting

    def check_whole_warps(self, barrier: Barrier) -> None:
        """Report an aligned barrier that lanes of one warp came to at several places, or not all."""
        seen: dict[tuple[int, int], tuple[int, int]] = {}
        passed: dict[tuple[int, int], int] = {}
        for lanes in barrier.passed:
            for warp, mask in warp_masks(lanes).items():
                passed[warp] = passed.get(warp, 0) | mask
        for _, lanes, after in barrier.waiting:
            for warp, lane_mask in () if lanes.full_warps else warp_masks(lanes).items():
                mask, place = seen.get(warp, (0, after))
                seen[warp] = mask | lane_mask, place if place == after else -1
                barrier.example = lanes
        for warp, (mask, place) in seen.items():
            missing = ~(mask | int(self.m.exited[warp]) & ~passed.get(warp, 0)) & 0xFFFFFFFF
            if place < 0 or missing:
                where = (
                    "lanes of one warp came to it at several places"
                    if place < 0
                    else (
                        f"a part of a warp came to it, without lane {(missing & -missing).bit_length() - 1}"
                    )
                )
                rule = f"an aligned barrier is for whole warps: {where}; barrier.sync is for others"
                fault = self.m.fault(
                    BarrierMisuse, rule, barrier.site, barrier.example, name="aligned-barrier"
                )
                self.m.report(fault)
                return

    def gone_past(self, cohort: Cohort, barrier: int) -> list[Lanes]:
        """Lanes of the cohort that stand behind a barrier to which they have not come. When it opens they may
        have exited, and then look like those that left early."""
        return [lanes for place, (lanes, _) in cohort.groups.items() if self.m.program.passed(barrier, place)]

    def slots(self, key: tuple[int, str, int]) -> slice:
        """The blocks whose barrier it is."""
        size = self.m.geometry.cluster_size if key[1] == "cluster" else 1
        return slice(key[0] * size, (key[0] + 1) * size)

    def after_exits(self, slots: Array) -> list[Waiting]:
        """Whom the barriers of these blocks let go now that threads have exited."""
        return [waiting for key in self._of(slots) for waiting in self.opened(key)]

    def arrive_cluster(
        self, cohort: Cohort, lanes: Lanes, request: BarrierRequest, after: int
    ) -> list[Waiting]:
        """Count arrivals at a cluster's barrier, and hold threads that wait until all that have not exited
        wait too. Returns whom this lets go."""
        size, warps = self.m.geometry.cluster_size, self.m.geometry.warps
        released: list[Waiting] = []
        clusters = lanes.slot // size
        for cluster in np.unique(clusters).tolist():
            part = part_where(lanes, clusters == cluster)
            assert part is not None
            key = (cluster, "cluster", 0)
            barrier = self.open.setdefault(key, Barrier(warps * 32 * size, all_threads=True))
            barrier.site = request.site
            if "wait" in request.action:
                barrier.waiting.append((cohort, part, after))
            else:
                barrier.arrived += part.n
                self.m.observer.barrier_arrived(barrier, part, "relaxed" in request.action)
            released += self.opened(key)
        return released
