"""Whole programs timed turn by turn, which hosts and drifting clocks slow alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from lapidist_lab.bench.protocol.record import Record

ROUNDS, TURN_SECONDS = 9, 0.1
Call = Callable[[], Any]
Wait = Callable[[Any], object]  # waits for a result


def turn(call: Call, calls: int, wait: Wait) -> float:
    """Seconds of each call of a turn."""
    start = time.perf_counter()
    for _ in range(calls):
        result = call()
    wait(result)
    return (time.perf_counter() - start) / calls


def compare(contestants: Sequence[Call], wait: Wait, rounds: int = ROUNDS) -> list[list[float]]:
    """Seconds of each contestant's turns, after as many calls as frameworks need to capture graphs."""
    for call in contestants:
        turn(call, 5, wait)
    calls = max(1, int(TURN_SECONDS / turn(contestants[0], 3, wait)))
    turns = [[turn(call, calls, wait) for call in contestants] for _ in range(rounds)]
    return [list(seconds) for seconds in zip(*turns, strict=True)]


def pair(
    names: tuple[str, str],
    times: Sequence[list[float]],
    size: tuple[int, int, int],
    flops: float,
    worst: float,
    device: str,
    note: str | None = None,
) -> list[Record]:
    """The rows of ours and of its peer; `worst` is the results' difference over its bound."""
    mine, theirs = times
    records = []
    for name, seconds in zip(names, times, strict=True):
        middle = median(seconds)
        record = Record(
            name,
            "production" if seconds is mine else "peer",
            device,
            "bfloat16",
            "rcr",
            *size,
            middle,
            flops / middle / 1e12,
            median(theirs) / middle,
            None,
            worst,
            worst <= 1.0,
            "model",
            min(seconds),
            max(seconds),
            note=note,
        )
        records.append(record)
        print(
            f"{name:44} {size[0]:6} rows {middle * 1e3:9.3f} ms  {record.ratio:.3f}  {worst:.2f}", flush=True
        )
    return records
