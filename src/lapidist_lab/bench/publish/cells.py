"""How a value of a Record is written, and the columns that tables name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from lapidist.dtypes import short_name
from lapidist_lab.bench.protocol.cases import shape_words
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.record_views import label, shape_of, short_chip

REFUSED = "RefusalError: "
Cell = Callable[[Any], str]


def time_words(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1.0:
            return f"{seconds * scale:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"


def number(value: float | None, spec: str = ".1f") -> str:
    return "-" if value is None else format(value, spec)


def percent(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.1f}"


def span(values: Sequence[float], spec: str, of: str = "") -> str:
    """The least and the most as words; one number where both are written alike."""
    least, most = (f"{value:{spec}}{of}" for value in (min(values), max(values)))
    return least if least == most else f"{least} to {most}"


def geomean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def ratios(records: Sequence[Record]) -> list[float]:
    return [record.ratio for record in records if record.ratio]


def worst(records: Sequence[Record]) -> Record:
    return min((record for record in records if record.ratio), key=lambda record: record.ratio or 0.0)


def mean_words(values: Sequence[float], where: str = "", on: str = "", noun: str = "") -> str:
    """Times cuBLAS as words: the mean, and the least with its place."""
    mean = f"{geomean(values):.2f} times cuBLAS{on} in the geometric mean of {len(values)}{noun}"
    return f"{mean}, {min(values):.2f} at least{f' ({where})' if where else ''}"


def times_and_least(times: Sequence[float], of: str, place: str) -> str:
    """The mean over `of`, and the least with its place."""
    mean = f"{geomean(times):.2f}x {of} in the geometric mean of {len(times)} cases"
    return f"{mean}. The least is {min(times):.2f}x: {place}"


def speed(record: Record) -> str:
    return number(record.tflops, ".2f" if record.tflops is None or record.tflops < 10 else ".1f")


def vendor_of(record: Record) -> Record:
    """cuBLAS' record of the same run, made from the ratio."""
    return replace(record, tflops=(record.tflops or 0.0) / (record.ratio or 1.0))


def occupancy(record: Record) -> str:
    """Blocks resident on an SM, and the warps of each."""
    if not record.blocks_per_sm or not record.warps_per_sm:
        return "-"
    return f"{record.blocks_per_sm} x {record.warps_per_sm // record.blocks_per_sm}"


def refusal_of(record: Record) -> str | None:
    """Why the kernel does not take the product, in the words of its rule; None where it took it."""
    reason = record.error or ""
    if not reason.startswith(REFUSED):
        return None
    rule = f"\n  {record.kernel}: "
    return reason.partition(rule)[2].partition("\n")[0] or reason.removeprefix(REFUSED)


def time_or_outcome(record: Record) -> str:
    """The time, or "refused" or "failed"."""
    if record.error and record.seconds is None and record.mode != "static":
        return "failed" if refusal_of(record) is None else "refused"
    return time_words(record.seconds)


def shape(record: Record) -> str:
    return shape_words(*shape_of(record))


def kind(record: Record) -> str:
    return short_name(record.dtype)


def chip(record: Record) -> str:
    return short_chip(record.device)


def times_faster(record: Record) -> str:
    return "-" if record.ratio is None else f"{record.ratio:.2f}x"


COLUMNS: dict[str, Cell] = {
    "kernel": lambda r: label(r.kernel),
    "type": kind,
    "chip": chip,
    "m x n x k": shape,
    "shape": shape,
    "rows": lambda r: str(r.m),
    "m = n = k": lambda r: str(r.m),
    "time": lambda r: time_words(r.seconds),
    "median": lambda r: time_words(r.seconds),
    "least": lambda r: time_words(r.seconds_min),
    "most": lambda r: time_words(r.seconds_max),
    "TFLOP/s": speed,
    "cuBLAS": lambda r: speed(vendor_of(r)),
    "% of cuBLAS": lambda r: percent(r.ratio),
    "% of limit": lambda r: percent(r.limit_share),
    "% of unit": lambda r: percent(r.unit_share),
    "registers": lambda r: number(r.registers, "d"),
    "shared bytes": lambda r: number(r.shared_bytes, "d"),
    "blocks x warps": occupancy,
    "multiply %": lambda r: percent(r.ffma_share),
    "calls": lambda r: number(r.calls, "d"),
    "MHz": lambda r: number(r.clock_mhz, ".0f"),
    "W": lambda r: number(r.power_w, ".0f"),
    "chosen": lambda r: r.config or "",
    "L2": lambda r: r.l2 or "",
    "error/bound": lambda r: number(r.worst, ".3f"),
}
