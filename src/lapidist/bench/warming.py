"""What it costs to compile ahead: the configurations of a type, the time for all of them, the longest one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lapidist.bench.conditions import gather
from lapidist.bench.record import Conditions, Record
from lapidist.device import Device
from lapidist.dtypes import math_named
from lapidist.errors import ArgumentError
from lapidist.problem import Problem
from lapidist.warm import Built, build_all, builds_of, compilers, plans_of

MODE = "warm"


@dataclass(frozen=True, slots=True)
class Warmed:
    """One type's configurations, compiled."""

    dtype: str  # as the user calls it
    device: Device
    plans: int
    with_c: bool  # in every product
    built: Sequence[Built]
    compilers: int  # at once
    seconds: float  # planning too

    @property
    def failed(self) -> list[Built]:
        return [each for each in self.built if each.error]

    @property
    def fresh(self) -> list[Built]:
        return [each for each in self.built if each.seconds and not each.error]

    @property
    def words(self) -> str:
        return f"{self.plans} plans" + (" with C" if self.with_c else "")

    def __str__(self) -> str:
        counts = Counter(each.build.kernel for each in self.built).most_common()
        kernels = ", ".join(f"{count} of {name}" for name, count in counts)
        head = f"{self.dtype}: {self.words} for {self.device.name} use {len(self.built)} configurations: {kernels}"
        there = len(self.built) - len(self.fresh) - len(self.failed)
        lines = [head, f"  {len(self.fresh)} were compiled, {there} were there; {self.seconds:.1f} s"]
        if self.fresh:
            slowest = max(self.fresh, key=lambda each: each.seconds)
            lines.append(f"  the longest took {slowest.seconds:.2f} s: {slowest.build.kernel}")
        return "\n".join(lines + [f"  {each.build.kernel}: {each.error}" for each in self.failed])


def warm_type(dtype: str, problems: Sequence[Problem], device: Device, jobs: int | None) -> Warmed:
    start = time.perf_counter()
    plans = plans_of(problems, device)
    if not plans:
        raise ArgumentError(f"--chip: must be one that some kernel runs on; got {device.name} for {dtype}. Choose another")
    processes = jobs or compilers()
    built = build_all(builds_of(plans), processes)
    with_c = all(problem.c is not None for problem in problems)
    return Warmed(dtype, device, len(plans), with_c, built, processes, time.perf_counter() - start)


def row_of(warmed: Warmed) -> Record:
    """A row without a product. What the cache had is not counted: only an empty one gives a Record worth keeping."""
    longest = max((each.seconds for each in warmed.fresh), default=None)
    math = math_named(warmed.dtype)
    name = f"{warmed.compilers} at once, for {warmed.words}"
    return Record(
        name, "host", warmed.device.name, math, "", 0, 0, 0, warmed.seconds, None, None, None, None,
        not warmed.failed, MODE, seconds_max=longest, calls=len(warmed.fresh),
    )  # fmt: skip


def list_words(records: Sequence[Record]) -> str:
    """How long the list of one type takes at most, by so many compilers; other products are not of it."""
    said = ((record.kernel.split(), record.seconds or 0.0) for record in records)
    counts = [(int(words[0]), int(words[words.index("plans") - 1]), seconds) for words, seconds in said]
    shortest = min(plans for _, plans, _ in counts)
    most: dict[int, float] = {}
    for at_once, plans, seconds in counts:
        if plans == shortest:
            most[at_once] = max(most.get(at_once, 0.0), seconds)
    times = ", ".join(f"{seconds:.0f} s by {at_once} at once" for at_once, seconds in sorted(most.items(), reverse=True))
    return (
        f"A list is one type's, of {shortest} products, and takes {times} at most. What is not in it may use other "
        "configurations, as the random products show: those are compiled where they are first met."
    )


def conditions_of(device: Device) -> Conditions:
    return gather(device, device.name, MODE, "NVRTC in a process for each compiler; the cache was empty where all were compiled")
