"""What it costs to compile ahead, as Records: the time for all configurations of a type, and for the longest
of them alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from lapidist.commands.warm import LONGEST, Warmed, how_many, tile_words
from lapidist.device import Device
from lapidist.dtypes import math_named
from lapidist.planning.warm import rebuild
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.record import Conditions, Record, run_name, write_run

MODE, ALONE = "warm", "warm, alone"
TURNS = 3  # of each of the longest, compiled again alone: parallel compilers slow each other


def rows_of(warmed: Warmed, as_json: bool) -> list[Record]:
    """A type's rows; without --json, what the longest takes alone is printed."""
    alone = alone_rows(warmed)
    for row in alone if not as_json else ():
        print(f"  alone the longest takes {row.seconds:.2f} s: {row.note}")
    return [row_of(warmed), *alone]


def save(folder: Path, dtype: str, device: Device, rows: Sequence[Record]) -> None:
    conditions = conditions_of(device)
    write_run(folder / run_name(conditions, "warm-" + dtype.replace(",", "-")), conditions, rows)


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
    counts = [
        (int(words[0]), int(number), seconds)
        for words, seconds in entries
        for number, word in pairwise(words)
        if word in ("plan", "plans")
    ]
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
        f"The list of one type has {how_many(shortest, 'product')} and takes at most {times}. Products that"
        " are not in it may use other configurations, as random ones do. Those are compiled when they are"
        " first used."
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
