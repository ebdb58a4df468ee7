"""Predicted times beside what was measured, or published by others: the page of docs/machine.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from lapidist.device import chip
from lapidist.dtypes import short_name
from lapidist_lab.bench.protocol.cases import shape_words
from lapidist_lab.bench.protocol.record import Record, Run
from lapidist_lab.bench.publish.record_views import RUNG_NUMBER, label, latest
from lapidist_lab.bench.publish.tables import Table, fold
from lapidist_lab.bench.studies.predicted import MODE

H200 = "H200"


@dataclass(frozen=True, slots=True)
class MeasuredTime:
    """Milliseconds: the median, the fastest and the slowest replay; and the clock, where it was read."""

    milliseconds: float
    least: float
    most: float
    clock_mhz: float | None = None

    def tied(self, other: MeasuredTime) -> bool:
        """Whether some replay of the faster one took longer than some of the slower one."""
        return self.least <= other.most and other.least <= self.most


@dataclass(frozen=True)
class Ladder:
    """A published ladder in milliseconds, by the rung of ours that has the same idea."""

    chip: str
    shape: tuple[int, int, int]
    milliseconds: dict[str, float]

    @property
    def measured_times(self) -> dict[str, MeasuredTime]:
        return {name: MeasuredTime(time, time, time) for name, time in self.milliseconds.items()}


def of_peak(shape: tuple[int, int, int], peak: float, shares: dict[str, float]) -> dict[str, float]:
    """Shares of a peak in TFLOP/s, as milliseconds."""
    m, n, k = shape
    return {name: 2 * m * n * k / (share * peak * 1e12) * 1e3 for name, share in shares.items()}


V100_PEAK = 15.7
SQUARE, FLAT = (8192, 8192, 8192), (16384, 16384, 1024)
FIRST = {
    "uncoalesced": 4671.0,
    "coalesced": 512.0,
    "hoisted_indices": 459.0,
    "shared_tile": 1566.0,
    "padded_tile": 324.0,
    "vector_loads": 204.0,
    "thread_tile": 80.8,
    "large_tile": 76.2,
}
SECOND = {"coalesced": 0.115, "large_tile": 0.517, "transposed_a": 0.743, "double_buffer": 0.806}
PUBLISHED = (Ladder("V100", SQUARE, FIRST), Ladder("V100", FLAT, of_peak(FLAT, V100_PEAK, SECOND)))


def predictions_of(runs: Sequence[Run]) -> dict[tuple[str, str, tuple[int, int, int]], dict[str, Record]]:
    """The newest predictions by chip, math and shape, then by kernel."""
    by_ladder: dict[tuple[str, str, tuple[int, int, int]], dict[str, Record]] = {}
    for run in runs:
        for record in run.records:
            if record.mode == MODE:
                by_ladder.setdefault((record.device, record.dtype, (record.m, record.n, record.k)), {})[
                    record.kernel
                ] = record
    return by_ladder


def page(runs: Sequence[Run]) -> str:
    """Tables of every ladder that was predicted and measured: on an H200 in each math, and published ones."""
    predicted = predictions_of(runs)
    parts = []
    for (device, math, shape), rows in sorted(
        predicted.items(), key=lambda item: (item[0][1] != "float32", item[0])
    ):
        if device == H200:
            title = f"{shape_words(*shape)}, {short_name(math)}, one H200, measured sustained"
            parts.append(comparison(title, rows, measured(runs, math, shape), "measured ms"))
    for ladder in PUBLISHED:
        rows = predicted.get((ladder.chip, "float32", ladder.shape), {})
        title = (
            f"{shape_words(*ladder.shape)}, fp32, {ladder.chip}, as published: other kernels with the same"
            " ideas"
        )
        parts.append(comparison(title, rows, ladder.measured_times, "published ms"))
    return (
        "\n".join(part for part in parts if part) + source_line(runs)
        if any(parts)
        else "Not predicted yet.\n"
    )


def measured(runs: Sequence[Run], math: str, shape: tuple[int, int, int]) -> dict[str, MeasuredTime]:
    return {
        record.kernel: measured_time(record.seconds, record)
        for record, _ in latest(runs)
        if (record.mode, record.dtype, (record.m, record.n, record.k)) == ("sustained", math, shape)
        and record.seconds
    }


def measured_time(seconds: float, record: Record) -> MeasuredTime:
    least, most = record.seconds_min or seconds, record.seconds_max or seconds
    return MeasuredTime(1e3 * seconds, 1e3 * least, 1e3 * most, record.clock_mhz)


def comparison(title: str, predicted: dict[str, Record], times: dict[str, MeasuredTime], head: str) -> str:
    """A table of one ladder, and how much of its order comes out right; empty without common kernels."""
    names = sorted((name for name in predicted if name in times), key=lambda name: RUNG_NUMBER.get(name, 99))
    if not names:
        return ""
    milliseconds = {
        name: ((predicted[name].seconds or 0.0) * 1e3, times[name].milliseconds) for name in names
    }
    errors = {name: mine / theirs - 1 for name, (mine, theirs) in milliseconds.items()}
    rows = [
        [label(name), predicted[name].note or "", f"{mine:.4g}", f"{theirs:.4g}", f"{errors[name]:+.0%}"]
        for name, (mine, theirs) in milliseconds.items()
    ]
    heads = ["kernel", "bound", "predicted ms", head, "error"]
    median = sorted(map(abs, errors.values()))[len(errors) // 2]
    words = f"{order_of(names, predicted, times, head.split()[0])} Median error {median:.0%}."
    shown = fold(title, Table(heads, rows, ("bound",)).markdown())
    return f"**{title}.** {words}{slowed(names, times, predicted[names[0]].device)}\n\n{shown}"


def order_of(
    names: Sequence[str], predicted: dict[str, Record], times: dict[str, MeasuredTime], kind: str
) -> str:
    """How many pairs come out in the measured order, which are too close to tell, and which are wrong."""
    seconds = {name: predicted[name].seconds or 0.0 for name in names}
    pairs = list(combinations(names, 2))
    astray = [
        (a, b)
        for a, b in pairs
        if (times[a].milliseconds > times[b].milliseconds) != (seconds[a] > seconds[b])
    ]
    ties = [pair for pair in astray if times[pair[0]].tied(times[pair[1]])]
    wrong = [pair for pair in astray if pair not in ties]
    words = f"Of {len(pairs)} pairs, {len(pairs) - len(astray)} come out in the {kind} order"
    if ties:
        words += (
            f"; {listed(ties)} the other way round, which the measurement does not decide (some of the faster"
            " kernel's"
        )
        words += " replays took longer than some of the slower one's)"
    return words + (f"; {listed(wrong)} the other way round." if wrong else ".")


def listed(pairs: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{RUNG_NUMBER.get(a, 0):02d} and {RUNG_NUMBER.get(b, 0):02d}" for a, b in pairs)


def slowed(names: Sequence[str], times: dict[str, MeasuredTime], device: str) -> str:
    """Kernels whose clock power held down, which predictions do not know."""
    full = chip(device).clock_mhz
    low = [
        f"{RUNG_NUMBER.get(name, 0):02d} at {clock:.0f}"
        for name in names
        if (clock := times[name].clock_mhz or full) < full
    ]
    return f" Measured below {full} MHz, for power: {', '.join(low)}." if low else ""


def source_line(runs: Sequence[Run]) -> str:
    used = newest_runs(runs)
    words = ", ".join(f"`results/{run.name}` (PTX of NVRTC {run.conditions.nvrtc})" for run in used)
    return f"\nPredictions from {words}.\n"


def newest_runs(runs: Iterable[Run]) -> list[Run]:
    """The runs that a prediction shown is from."""
    last: dict[tuple[str, object], Run] = {}
    for run in runs:
        for record in run.records:
            if record.mode == MODE:
                last[record.device, record.key] = run
    return sorted({run.name: run for run in last.values()}.values(), key=lambda run: run.name)
