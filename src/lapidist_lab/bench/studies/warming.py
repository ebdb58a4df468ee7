"""What it costs to compile ahead: the configurations of a type, the time for all of them, and for the longest
of them alone.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lapidist.device import Device
from lapidist.dtypes import math_named
from lapidist.errors import ArgumentError
from lapidist.planning.plans import Plan
from lapidist.planning.warm import Build, Built, build_all, builds_of, compilers, is_cached, rebuild
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.record import Conditions, Record
from lapidist_lab.bench.studies.ladder_runs import progress

MODE, ALONE = "warm", "warm, alone"
# how many of the longest are compiled again alone, and how often: parallel compilers slow each other
LONGEST, TURNS = (4, 3)


@dataclass(frozen=True, slots=True)
class Warmed:
    """One type's configurations, compiled."""

    dtype: str  # as the user calls it
    device: Device
    plans: int
    with_c: bool  # whether every product adds a C
    built: Sequence[Built]
    compilers: int  # at once
    seconds: float

    @property
    def failed(self) -> list[Built]:
        return [build for build in self.built if build.error]

    @property
    def fresh(self) -> list[Built]:
        return [build for build in self.built if build.seconds and not build.error]

    @property
    def longest(self) -> list[Built]:
        return sorted(self.fresh, key=lambda build: -build.seconds)[:LONGEST]

    @property
    def words(self) -> str:
        return f"{self.plans} plans" + (" with C" if self.with_c else "")

    @property
    def as_data(self) -> dict[str, Any]:
        return {
            "dtype": self.dtype,
            "chip": self.device.name,
            "plans": self.plans,
            "configurations": len(self.built),
            "compiled": len(self.fresh),
            "failed": {failure.build.kernel: failure.error for failure in self.failed},
            "seconds": self.seconds,
        }

    def __str__(self) -> str:
        counts = Counter(built.build.kernel for built in self.built).most_common()
        kernels = ", ".join(f"{count} of {name}" for name, count in counts)
        head = (
            f"{self.dtype}: {self.words} for {self.device.name} use {len(self.built)} configurations:"
            f" {kernels}"
        )
        cached = len(self.built) - len(self.fresh) - len(self.failed)
        lines = [head, f"  {len(self.fresh)} were compiled, {cached} were there; {self.seconds:.1f} s"]
        if self.fresh:
            lines.append(
                f"  the longest took {self.longest[0].seconds:.2f} s: {tile_words(self.longest[0].build)}"
            )
        return "\n".join(lines + [f"  {failure.build.kernel}: {failure.error}" for failure in self.failed])


def tile_words(build: Build) -> str:
    macros = dict(build.macros)
    return f"{build.kernel}, {macros.get('BM')} x {macros.get('BN')} x {macros.get('BK')}"


def warm_type(dtype: str, plans: Sequence[Plan], device: Device, with_c: bool, jobs: int | None) -> Warmed:
    start = time.perf_counter()
    if not plans:
        raise ArgumentError(
            f"--chip: must be one that some kernel runs on; got {device.name} for {dtype}. Choose another"
        )
    processes, builds = jobs or compilers(), builds_of(plans)
    with progress(sum(not is_cached(build) for build in builds), f"compiling {dtype}") as step:
        built = build_all(builds, processes, step)
    return Warmed(dtype, device, len(plans), with_c, built, processes, time.perf_counter() - start)


def row_of(warmed: Warmed) -> Record:
    """A row without a product. Cached binaries do not count: only an empty cache gives a Record worth
    keeping."""
    name = f"{warmed.compilers} at once, for {warmed.words}"
    most = warmed.longest[0].seconds if warmed.fresh else None
    return host_row(
        warmed, name, MODE, warmed.seconds, ok=not warmed.failed, seconds_max=most, calls=len(warmed.fresh)
    )


def alone_rows(warmed: Warmed) -> list[Record]:
    """The row of the configuration that takes longest when it is compiled alone; none if nothing was
    compiled."""
    turns = [[rebuild(built.build).seconds for built in warmed.longest] for _ in range(TURNS)]
    times = zip(warmed.longest, zip(*turns, strict=True), strict=True)
    slowest = max(times, key=lambda one: statistics.median(one[1]), default=None)
    if slowest is None:
        return []
    built, seconds = slowest
    least, most = min(seconds), max(seconds)
    return [
        host_row(
            warmed,
            f"the longest of {warmed.words}",
            ALONE,
            statistics.median(seconds),
            seconds_min=least,
            seconds_max=most,
            calls=TURNS,
            note=tile_words(built.build),
        )
    ]


def host_row(warmed: Warmed, name: str, mode: str, seconds: float, ok: bool = True, **more: Any) -> Record:
    head = (name, "host", warmed.device.name, math_named(warmed.dtype), "", 0, 0, 0, seconds)
    return Record(*head, None, None, None, None, ok, mode, **more)


def list_words(records: Sequence[Record]) -> str:
    """The longest time for the list of one type, by the number of compilers, in words."""
    entries = ((record.kernel.split(), record.seconds or 0.0) for record in records)
    counts = [(int(words[0]), int(words[words.index("plans") - 1]), seconds) for words, seconds in entries]
    shortest = min(plans for _, plans, _ in counts)
    most: dict[int, float] = {}
    for at_once, plans, seconds in counts:
        if plans == shortest:
            most[at_once] = max(most.get(at_once, 0.0), seconds)
    times = ", ".join(
        f"{seconds:.0f} s with {at_once} compilers at once"
        for at_once, seconds in sorted(most.items(), reverse=True)
    )
    return (
        f"The list of one type has {shortest} products and takes at most {times}. Products that are not in it"
        " may use other configurations, as random ones do. Those are compiled when they are first used."
    )


def alone_words(records: Sequence[Record]) -> str:
    """The longest time of one configuration compiled alone, in words."""
    worst = max(record.seconds or 0.0 for record in records)
    return (
        "Several compilers at once slow each other down. The longest configuration of each list, compiled"
        f" alone, takes {worst:.2f} s at most, in the median of {records[0].calls} turns."
    )


def conditions_of(device: Device) -> Conditions:
    repeats = (
        f"then of each list the {LONGEST} that took longest again, one after another, {TURNS} times each:"
        " medians"
    )
    protocol = f"NVRTC in a process for each compiler; the cache was empty where all were compiled; {repeats}"
    return gather(device, device.name, MODE, protocol)
