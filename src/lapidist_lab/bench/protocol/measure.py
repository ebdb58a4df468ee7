"""The protocol: right first, then timed as graphs of many calls, turn by turn beside the vendor's library.

A turn is one contender's replays without a gap. Sustained: each turn keeps the chip busy for more than half a
second, and only its second half counts. So clocks and power are those of the kernel itself. Burst: the chip
idles before each turn, one replay warms up and one counts. Inputs rotate over sets that exceed three times
the L2 together."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import Any

from lapidist.backends.gpu.driver import query_device, require_gpu
from lapidist.device import Device
from lapidist.dtypes import PART_OF
from lapidist.verify.sum_bound import Expected, Verdict, expect
from lapidist_lab.bench.protocol.array_library import Framework, find_framework
from lapidist_lab.bench.protocol.captured_calls import PlainCalls, captured
from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.protocol.conditions import Gauge, SensorReading
from lapidist_lab.bench.protocol.contenders import Call, Contender, Facts
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.protocol.timing import Protocol, turn_order

CALLS_LIMIT = 2000
SETS_LIMIT = 512
L2_MULTIPLE = 3
SLOW_CALL = 0.02


@dataclass(frozen=True)
class Inputs:
    """The sets of one case. B is copied column by column once a contender needs it so."""

    a: list[Any]
    b: list[Any]
    c: list[Any]
    rotated: bool
    make_columns: Callable[[], list[Any]]
    by_columns: bool = False  # whether `b` lies column by column already
    columns: list[Any] = field(default_factory=list)
    # only the last one is kept: contenders in a row often need the same
    _expected: dict[object, Expected] = field(default_factory=dict)

    def b_for(self, contender: Contender) -> list[Any]:
        if not contender.columns or self.by_columns:
            return self.b
        if not self.columns:
            self.columns.extend(self.make_columns())
        return self.columns

    def expected(self, contender: Contender, index: int, case: Case, unit: str | None) -> Expected:
        """The right result of one set, and its bound for that unit."""
        key = contender.columns, index, unit
        if key not in self._expected:
            self._expected.clear()
            a, b, c = self.a[index], self.b_for(contender)[index], self.c[index]
            self._expected[key] = expect(a, b, out_dtype=c.dtype, precision=case.precision, unit=unit)
        return self._expected[key]


@dataclass
class Entry:
    """One contender on one case: its prepared call, its verdict and its times."""

    contender: Contender
    call: Call | None = None
    graph: Any = None
    calls: int = 0
    estimate: float = 0.0
    verdict: Verdict | None = None
    facts: Facts = field(default_factory=Facts)
    seconds: list[float] = field(default_factory=list)
    sensor_readings: list[SensorReading] = field(default_factory=list)
    error: str | None = None


class Stage:
    """One GPU with its stream, arrays from torch or CuPy, and its sensors. As a context: inside, the
    framework works on that stream."""

    def __init__(self, ordinal: int, protocol: Protocol, framework: Framework | None = None) -> None:
        require_gpu(ordinal)
        from cuda.core import Device as CudaDevice
        from cuda.core import EventOptions

        self.device: Device = query_device(ordinal)
        self.protocol = protocol
        self.framework = framework or find_framework()
        chip = CudaDevice(ordinal)
        chip.set_current()
        self.stream = chip.create_stream()
        self.framework.adopt(ordinal, int(self.stream.handle))
        self.gauge = Gauge(ordinal)
        self._timed = EventOptions(timing_enabled=True)
        self.stopped = False  # by Ctrl-C

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self.framework.leave()

    # ---- inputs ----

    def inputs(self, case: Case) -> Inputs:
        needed = math.ceil(L2_MULTIPLE * self.device.l2_bytes / case.set_bytes)
        count = max(1, min(needed, SETS_LIMIT))
        seed = time.time_ns() % 2**31
        transposed_a, transposed_b = (by == "c" for by in case.layout)

        def operands(rows: int, cols: int, place: int, transposed: bool) -> list[Any]:
            """One operand of each set; `place` is its place in a set, for the seed."""
            seeds = [seed + 3 * i + place for i in range(count)]
            make = self.framework.random
            lines, along = (cols, rows) if transposed else (rows, cols)
            if case.batch == 1:
                return [make(rows, cols, case.dtype, matrix, transposed=transposed) for matrix in seeds]
            batches = [make(case.batch * lines, along, case.dtype, matrix) for matrix in seeds]
            batches = [matrix.reshape(case.batch, lines, along) for matrix in batches]
            return [matrix.swapaxes(-1, -2) for matrix in batches] if transposed else batches

        outputs = [self.framework.poisoned(case.batch * case.m, case.n, case.out_dtype) for _ in range(count)]
        return Inputs(
            operands(case.m, case.k, 0, transposed_a),
            operands(case.k, case.n, 1, transposed_b),
            outputs
            if case.batch == 1
            else [output.reshape(case.batch, case.m, case.n) for output in outputs],
            rotated=count >= needed,
            by_columns=transposed_b,
            make_columns=lambda: operands(case.k, case.n, 2, True),
        )

    # ---- one contender ----

    def prepare(self, contender: Contender, case: Case, inputs: Inputs) -> Entry:
        """An Entry: planned, run on poisoned output, judged and captured. A failure becomes its error."""
        entry = Entry(contender)
        try:
            entry.call = contender.prepare(case, inputs.a, inputs.b_for(contender), inputs.c)
            entry.facts = contender.facts(self.device)
            self.judge(entry, case, inputs, 0)
            if entry.error is None:
                self.capture(entry, len(inputs.a))
        except Exception as error:  # one broken kernel must not take the other rows with it
            entry.error = f"{type(error).__name__}: {error}".strip()
        return entry

    def judge(self, entry: Entry, case: Case, inputs: Inputs, index: int) -> None:
        """Poison the output, run, compare with the float64 product."""
        assert entry.call is not None
        self.framework.poison(inputs.c[index])
        entry.call(index)
        self.keep_verdict(
            entry, inputs.expected(entry.contender, index, case, entry.facts.unit).judge(inputs.c[index])
        )

    def keep_verdict(self, entry: Entry, verdict: Verdict) -> None:
        if entry.verdict is None or verdict.worst > entry.verdict.worst:
            entry.verdict = verdict
        if not verdict.ok:
            entry.error = (
                f"wrong result: the error at {verdict.where} is {verdict.worst:.3g} times its bound; not"
                " timed"
            )

    def time_of(self, work: Callable[[], object], times: int = 1) -> float:
        start = self.stream.record(options=self._timed)
        for _ in range(times):
            work()
        end = self.stream.record(options=self._timed)
        end.sync()
        return float(end - start) / 1e3 / times

    def capture(self, entry: Entry, sets: int) -> None:
        """Give the entry a graph of calls that visits every input set equally often; of slow calls one,
        which moves more than the L2 holds.
        """
        call = entry.call
        assert call is not None
        entry.estimate = self.time_of(lambda: call(0))
        slow = entry.estimate > SLOW_CALL
        if slow:
            sets = 1
        else:
            entry.estimate = self.time_of(lambda: call(0), times=5)
        rounds = max(1, min(round(self.protocol.replay_seconds / entry.estimate / sets), CALLS_LIMIT // sets))
        entry.calls = sets * rounds
        if entry.contender.capturable:
            entry.graph = captured(self.framework, self.stream, call, entry.calls, sets)
        else:
            entry.graph = PlainCalls(call, entry.calls, sets)
        if not slow:
            entry.estimate = self.time_of(lambda: entry.graph.launch(self.stream)) / entry.calls

    def turn(self, entry: Entry) -> None:
        """Run one contender's replays; each timed one adds its seconds a call."""
        lead, timed = self.protocol.replays(entry.estimate * entry.calls)
        if self.protocol.pause_seconds:
            time.sleep(self.protocol.pause_seconds)
        for _ in range(lead):
            entry.graph.launch(self.stream)
        marks = [self.stream.record(options=self._timed)]
        for _ in range(timed):
            entry.graph.launch(self.stream)
            marks.append(self.stream.record(options=self._timed))
        if self.gauge.fast and len(entry.sensor_readings) < self.protocol.looks:
            marks[0].sync()
            time.sleep(min(0.05, entry.estimate * entry.calls * timed / 2))
            entry.sensor_readings.append(self.gauge.look())
        self.stream.sync()
        entry.seconds += [float(end - start) / 1e3 / entry.calls for start, end in pairwise(marks)]

    # ---- all of them ----

    def measure(
        self,
        case: Case,
        contenders: Sequence[Contender],
        step: Callable[[str], None] = lambda _: None,
        partial: bool = False,
    ) -> list[Record]:
        """Rows of every contender on one case; the first peer is the vendor's library that ratios refer to.

        With `partial`, Ctrl-C between turns keeps the contenders that were timed, and sets `stopped`.
        """
        inputs = self.inputs(case)
        entries = []
        for contender in contenders:
            entries.append(self.prepare(contender, case, inputs))
            step(f"{contender.name} {case.shape}: checked")
        try:
            self.take_turns(entries, case, step)
        except KeyboardInterrupt:
            if not partial:
                raise
            self.stopped = True
            self.stream.sync()
            entries = [entry for entry in entries if entry.seconds or entry.error is not None]
        for entry in entries:
            if entry.error is None and self.protocol.checks > 1:
                self.attempt(entry, lambda checked: self.judge(checked, case, inputs, len(inputs.a) - 1))
            entry.graph = None
        records = self.records(case, entries, inputs)
        self.framework.release()
        return records

    def take_turns(self, entries: Sequence[Entry], case: Case, step: Callable[[str], None]) -> None:
        for index in turn_order([entry.contender.kind for entry in entries], self.protocol.rounds):
            entry = entries[index]
            if entry.error is None:
                self.attempt(entry, self.turn)
            step(f"{entry.contender.name} {case.shape}")

    def attempt(self, entry: Entry, work: Callable[[Entry], None]) -> None:
        try:
            work(entry)
        except Exception as error:  # as in prepare
            entry.error = f"{type(error).__name__}: {error}".strip()

    def records(self, case: Case, entries: Sequence[Entry], inputs: Inputs) -> list[Record]:
        vendor = next((e for e in entries if e.contender.kind == "peer"), None)
        base = median(vendor.seconds) if vendor and vendor.seconds and not vendor.error else None
        rows = [record_of(self, case, entry, inputs, base) for entry in entries]
        if vendor is None or vendor.error is None:
            return rows
        why = f"no ratio: {vendor.contender.name} did not run: {vendor.error.splitlines()[0]}"
        return [row if row.kind == "peer" else replace(row, note=why) for row in rows]


def record_of(stage: Stage, case: Case, entry: Entry, inputs: Inputs, vendor_seconds: float | None) -> Record:
    timed = bool(entry.seconds) and entry.error is None
    seconds = median(entry.seconds) if timed else None
    tflops = case.flops / seconds / 1e12 if seconds else None
    facts = entry.facts
    # 0 for a type that the unit does not multiply by itself, as emulated float32
    unit = stage.device.unit_limit(facts.unit, case.math) if facts.unit else 0.0
    limit = stage.device.limit_tflops(PART_OF.get(case.math, case.math))
    return Record(
        kernel=entry.contender.name,
        kind=entry.contender.kind,
        device=stage.device.name,
        dtype=case.math,
        layout=case.layouts(entry.contender.columns),
        m=case.m,
        n=case.n,
        k=case.k,
        batch=None if case.batch == 1 else case.batch,
        seconds=seconds,
        tflops=tflops,
        ratio=vendor_seconds / seconds if seconds and vendor_seconds else None,
        limit_share=tflops / limit if tflops else None,
        unit_share=tflops / unit if tflops and unit else None,
        worst=_finite(entry.verdict),
        ok=timed and entry.verdict is not None and entry.verdict.ok,
        out_dtype=case.out_dtype,
        mode=stage.protocol.mode,
        seconds_min=min(entry.seconds) if timed else None,
        seconds_max=max(entry.seconds) if timed else None,
        replays=len(entry.seconds) if timed else None,
        calls=entry.calls or None,
        sets=len(inputs.a),
        l2=(
            f"rotated over {len(inputs.a)} sets"
            if inputs.rotated and len(inputs.a) > 1
            else _l2_words(inputs.rotated)
        ),
        **_facts_of_record(facts),
        note=(
            None
            if entry.contender.capturable
            else "timed as plain calls: the library refuses to be captured in a graph"
        ),
        **_sensor_medians(entry.sensor_readings),
        error=entry.error,
    )


def _l2_words(rotated: bool) -> str:
    return f"one set exceeds {L2_MULTIPLE} x L2" if rotated else "warm: the sets fit in it in part"


def _finite(verdict: Verdict | None) -> float | None:
    """JSON has no infinity; a NaN in the output stands in `error`."""
    return verdict.worst if verdict is not None and math.isfinite(verdict.worst) else None


def _facts_of_record(facts: Facts) -> dict[str, Any]:
    return {name: getattr(facts, name) for name in Facts.__slots__}


def _sensor_medians(readings: Sequence[SensorReading]) -> dict[str, Any]:
    def middle(name: str) -> float | None:
        values = [value for reading in readings if (value := getattr(reading, name)) is not None]
        return float(median(values)) if values else None

    return {name: middle(name) for name in ("clock_mhz", "power_w", "temperature_c")}
