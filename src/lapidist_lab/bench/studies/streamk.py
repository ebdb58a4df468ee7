"""Stream-K measured: the table that CUTLASS' example prints, a corpus of random shapes, and what sharing a
tile costs.

Thousands of products have to fit, so each gets short turns: graphs of about 2 ms, two turns each, warm
caches. Every result is compared with the float64 product before it is timed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import median
from typing import Any

from lapidist.backends.gpu.driver import query_device
from lapidist.calls import planned_call
from lapidist.config import Config
from lapidist.device import Device
from lapidist.errors import ArgumentError, LapidistError
from lapidist.kernels.blocks.splits import resident
from lapidist.kernels.kernel import Kernel
from lapidist.planning.plans import Plan
from lapidist.planning.warm import build_all, builds_of
from lapidist.schedule import CostModel, Schedule, split_k
from lapidist.schedule.calibrate import calibrate, probes
from lapidist.schedule.sharing_choice import Sharing
from lapidist.verify.sum_bound import expect
from lapidist_lab.bench.protocol.cases import LEAST, MOST, Case, corpus
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.contenders import problem_of
from lapidist_lab.bench.protocol.record import Conditions, Record
from lapidist_lab.bench.studies.ladder_runs import Keep
from lapidist_lab.bench.studies.sharing_ways import Way, corpus_ways, family, sharing_configs, table_ways

GRAPH_SECONDS, CALLS_MOST, TURNS = 0.002, 200, 2
PROTOCOL = (
    f"{TURNS} turns each, graphs of about {GRAPH_SECONDS * 1e3:g} ms, one replay to warm up, two timed; the"
    " least of the medians"
)
MODE_TABLE, MODE_CORPUS, MODE_COSTS = "schedules", "corpus", "costs"
WITHIN = 1.25  # tiles are not timed if their predicted time is more than this many times the least


# ---- timing ----


class Timer:
    """torch's arrays and graphs on one GPU."""

    def __init__(self, ordinal: int) -> None:
        import torch

        self.torch: Any = torch
        torch.cuda.set_device(ordinal)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        self.ordinal, self.device = ordinal, query_device(ordinal)

    def operands(self, case: Case) -> tuple[Any, Any, Any]:
        dtype = getattr(self.torch, case.dtype)
        make: Callable[..., Any] = self.torch.randn
        a, b = (make(shape, device="cuda", dtype=dtype) for shape in ((case.m, case.k), (case.k, case.n)))
        return (
            a,
            b,
            self.torch.full(
                (case.m, case.n), math.nan, device="cuda", dtype=getattr(self.torch, case.out_dtype)
            ),
        )

    def call(self, way: Way, case: Case, a: Any, b: Any, c: Any) -> tuple[Callable[[], object], Plan | None]:
        if way.kind == "peer":
            return lambda: self.torch.mm(a, b, out=c), None
        gemm = planned_call.plan(
            a,
            b,
            out=c,
            precision=case.precision,
            kernel=way.kernel,
            config=way.config,
            schedule=way.sharing.schedule,
            split_k=way.sharing.split_k,
            reduction=way.sharing.reduction,
            avail_sms=way.sharing.avail_sms,
        )
        return lambda: gemm.execute(a, b, None, c), gemm.plan

    def graph(self, call: Callable[[], object]) -> tuple[Any, int]:
        calls = max(3, min(CALLS_MOST, int(GRAPH_SECONDS / self.elapsed(call))))
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            for _ in range(calls):
                call()
        return graph, calls

    def elapsed(self, work: Callable[[], object]) -> float:
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        return max(float(start.elapsed_time(end)) / 1e3, 1e-6)

    def turn(self, graph: Any, calls: int) -> float:
        graph.replay()
        return median(self.elapsed(graph.replay) for _ in range(2)) / calls

    def measure(self, case: Case, ways: Sequence[Way], mode: str) -> list[Record]:
        """The rows of every way on one case: judged, then timed turn by turn."""
        a, b, c = self.operands(case)
        # two products in float64: once for all ways
        expected = expect(a, b, out_dtype=c.dtype, precision=case.precision)
        rows, graphs = [], {}
        for way in ways:
            row = blank(way, case, self.device, mode)
            try:
                call, plan = self.call(way, case, a, b, c)
                c.fill_(math.nan)
                call()
                verdict = expected.judge(c)
                row = replace(
                    row,
                    worst=verdict.worst if math.isfinite(verdict.worst) else None,
                    ok=verdict.ok,
                    config=words(plan),
                )
                if verdict.ok:
                    graphs[way.name] = self.graph(call)
                else:
                    row = replace(
                        row, error=f"wrong result: {verdict.worst:.3g} times the bound at {verdict.where}"
                    )
            except LapidistError as error:
                row = replace(row, error=f"{type(error).__name__}: {str(error).splitlines()[0]}")
            rows.append(row)
        seconds: dict[str, float] = {}
        for _ in range(TURNS):
            for name, (graph, calls) in graphs.items():
                seconds[name] = min(self.turn(graph, calls), seconds.get(name, math.inf))
        return [timed(row, case, seconds.get(row.kernel), seconds.get("cublas"), self.device) for row in rows]


def words(plan: Plan | None) -> str | None:
    """The plan in words."""
    if plan is None:
        return None
    schedule = plan.schedule
    shared = (
        f", {schedule.kind}, {schedule.sk_blocks} blocks for {schedule.sk_tiles} tiles"
        if schedule and schedule.sk_blocks
        else ""
    )
    return f"{plan.kernel.name} {plan.config}{shared}"


def blank(way: Way, case: Case, device: Device, mode: str) -> Record:
    head = (way.name, way.kind, device.name, case.math, "rrr", case.m, case.n, case.k)
    return Record(*head, None, None, None, None, None, False, mode, l2="warm: one set of operands")


def timed(row: Record, case: Case, seconds: float | None, vendor: float | None, device: Device) -> Record:
    if seconds is None:
        return replace(row, ok=False)
    tflops = case.flops / seconds / 1e12
    ratio = vendor / seconds if vendor else None
    return replace(
        row, seconds=seconds, tflops=tflops, ratio=ratio, limit_share=tflops / device.limit_tflops(case.math)
    )


# ---- runs ----


def check_name(study: str) -> None:
    if study not in (MODE_COSTS, MODE_CORPUS, "table"):
        raise ArgumentError(f"WHAT: must be table, corpus or costs; got {study!r}. Name one of them")


def run(
    study: str, case: Case, count: int, seed: int, skipped: int, keep: Keep
) -> tuple[Conditions, list[Record]]:
    """Measure the table, the corpus or the costs, in the case's type."""
    check_name(study)
    timer = Timer(0)
    if study == "table":
        return run_table(timer, case)
    if study == MODE_COSTS:
        return run_costs(timer, case.math, keep)
    return run_corpus(timer, count, seed, skipped, case.math, keep)


def run_table(timer: Timer, case: Case) -> tuple[Conditions, list[Record]]:
    ways = table_ways(case, timer.device)
    warm_up([(way, case) for way in ways], timer.device)
    return conditions_of(timer, MODE_TABLE, ""), timer.measure(case, ways, MODE_TABLE)


def run_corpus(
    timer: Timer, count: int, seed: int, skipped: int, math_name: str, keep: Keep
) -> tuple[Conditions, list[Record]]:
    """The rows of a corpus. Of data-parallel tiles two count: the best, and the one that Stream-K has."""
    ways, cases = corpus_ways(math_name, timer.device), corpus(count, seed, math_name, skipped)
    chosen = [likely(ways, case, timer.device) for case in cases]
    warm_up(
        [(way, case) for case, case_ways in zip(cases, chosen, strict=True) for way in case_ways],
        timer.device,
    )
    drawn = (
        f"shapes {skipped + 1} to {skipped + count}, m, n and k log-uniform in [{LEAST}, {MOST}], seed {seed}"
    )
    tiles = (
        f"of the data-parallel tiles the default one and those that the planner gives {WITHIN:g} times the"
        " least time at most"
    )
    conditions, rows = conditions_of(timer, MODE_CORPUS, f"{drawn}; {tiles}"), list[Record]()
    for case, case_ways in zip(cases, chosen, strict=True):
        rows += with_best_tile(timer.measure(case, case_ways, MODE_CORPUS))
        keep(conditions, rows)
    return conditions, rows


def likely(ways: Sequence[Way], case: Case, device: Device) -> list[Way]:
    """The ways without data-parallel tiles that the model finds slow. Stream-K's tile stays."""
    tiles = [way for way in ways if way.name.startswith("tile ")]
    times: dict[Way, float] = {}
    for way in tiles:
        try:
            plan = way.plan(case, device)
            times[way] = plan.predicted_seconds if plan else math.inf
        except LapidistError:
            pass
    limit = WITHIN * min(times.values(), default=math.inf)
    return [way for way in ways if way not in tiles[1:] or times.get(way, math.inf) <= limit]


def with_best_tile(rows: Sequence[Record]) -> Iterator[Record]:
    tiles = [row for row in rows if row.kernel.startswith("tile ")]
    yield from (row for row in rows if row not in tiles)
    yield replace(tiles[0], kernel="data_parallel")
    yield replace(min(tiles, key=lambda row: row.seconds or math.inf), kernel="best_tile")


def run_costs(timer: Timer, math_name: str, keep: Keep) -> tuple[Conditions, list[Record]]:
    """The cost model of each config, fitted to launches of equal blocks."""
    kernel, device, rows = family(math_name, timer.device), timer.device, []
    conditions = conditions_of(timer, MODE_COSTS, "split-K by turnstile, one wave of blocks that are alike")
    configs = sharing_configs(kernel, math_name)
    schedules = [
        (config, schedule)
        for config in configs
        for schedule, _ in probes(*slots_of(device, kernel, config, math_name))
    ]
    warm_up([probe_of(schedule, kernel, config, math_name) for config, schedule in schedules], device)
    for config in configs:
        costs = costs_of_config(timer, kernel, config, math_name)
        parts = (
            f"start {costs.start:.3g} s, fixup {costs.fixup:.3g} s, iteration {costs.iteration:.3g} s, peer"
            f" {costs.peer:.3g} s, alongside {costs.crowding:.3g} s"
        )
        row = blank(
            Way(f"{kernel.name} {config}", kernel, config), Case(0, 0, 0, math_name), timer.device, MODE_COSTS
        )
        rows.append(replace(row, seconds=costs.iteration, ok=True, config=str(config), note=parts))
        keep(conditions, rows)
    return conditions, rows


def costs_of_config(timer: Timer, kernel: Kernel, config: Config, math_name: str) -> CostModel:
    def seconds_of(schedule: Schedule) -> float:
        way, case = probe_of(schedule, kernel, config, math_name)
        call, _ = timer.call(way, case, *timer.operands(case))
        return timer.turn(*timer.graph(call))

    return calibrate(
        *slots_of(timer.device, kernel, config, math_name), seconds_of, "fitted on " + timer.device.name
    )


def slots_of(device: Device, kernel: Kernel, config: Config, math_name: str) -> tuple[int, int]:
    """How many blocks (or clusters) run at once with one on each SM, and how many an SM holds."""
    per_sm = resident(
        kernel, config, problem_of(Case(config.bm, config.bn, config.bk, math_name), False), device
    )
    return device.sms // config.cluster, per_sm


def probe_of(schedule: Schedule, kernel: Kernel, config: Config, math_name: str) -> tuple[Way, Case]:
    """A product with exactly this schedule's tiles."""
    grid, splits = schedule.grid, schedule.sk_blocks // max(schedule.sk_tiles, 1)
    m, n = grid.tiles_m * config.bm * config.cluster_m, grid.tiles_n * config.bn * config.cluster_n
    if config.exchanged:
        m, n = n, m
    sharing = Sharing(split_k(grid, splits)) if splits > 1 else Sharing("data_parallel")
    return Way("probe", kernel, config, sharing), Case(m, n, grid.iterations * config.bk, math_name)


def warm_up(todo: Sequence[tuple[Way, Case]], device: Device) -> None:
    """Compile all kernels in parallel. Refusals are reported when they are measured."""
    plans = []
    for way, case in todo:
        with suppress(LapidistError):
            plans.append(way.plan(case, device))
    build_all(builds_of(plan for plan in plans if plan is not None))


def conditions_of(timer: Timer, mode: str, drawn: str) -> Conditions:
    vendor = f"cuBLAS by torch.mm (torch {timer.torch.__version__})"
    protocol = "; ".join(part for part in (drawn, PROTOCOL) if part)
    return gather(timer.device, timer.device.name, mode, protocol, vendor=vendor)
