"""A run: contenders on cases, on the GPU, in the machine, or compiled only; Records out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from lapidist.commands.progress import progress
from lapidist.device import Device, chip
from lapidist.dtypes import numpy_dtype
from lapidist.errors import LapidistError
from lapidist.frameworks.arrays import operand_of
from lapidist.launch import Launch
from lapidist.planning.plans import Plan, make_plan
from lapidist.planning.warm import build_all, builds_of
from lapidist.verify.sum_bound import judge
from lapidist_lab.bench.protocol.array_library import Framework
from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.protocol.contenders import Contender, Facts, KernelContender, facts_of, problem_of
from lapidist_lab.bench.protocol.record import Conditions, Record

SWEEP_KERNELS = (
    "coalesced",
    "shared_tile",
    "thread_column",
    "thread_tile",
    "transposed_a",
    "tma_streamk",
    "wmma_shared",
    "mma_multistage",
)
MACHINE_CHIP = "h200"
MULTIPLIERS = ("fma", "tensor")  # as the machine's counts call them
STATIC_ERROR = "not run: there is no GPU; compiled only"


@dataclass(frozen=True, slots=True)
class Work:
    """One case and its contenders."""

    case: Case
    contenders: tuple[Contender, ...]
    padded: bool = False  # beside the way by hand, which pads


# called with what there is so far: a run may be stopped half way
Keep = Callable[[Conditions, Sequence[Record]], None]


def discard(_conditions: Conditions, _records: Sequence[Record]) -> None:
    """Keep nothing, where only the end counts."""


# ---- on the GPU ----


def on_gpu(
    works: Sequence[Work], ordinal: int, mode: str, rounds: int | None, keep: Keep, drawn: str = ""
) -> tuple[Conditions, list[Record]]:
    """The rows of every case, with cuBLAS in the same process. `keep` gets the rows so far; `drawn` says
    where the cases are from."""
    from lapidist_lab.bench.protocol.conditions import gather
    from lapidist_lab.bench.protocol.measure import Stage
    from lapidist_lab.bench.protocol.peers import find_peers
    from lapidist_lab.bench.protocol.timing import PROTOCOLS, steps

    protocol = PROTOCOLS[mode]
    protocol = replace(protocol, rounds=rounds or protocol.rounds)
    records: list[Record] = []
    with Stage(ordinal, protocol) as stage:
        before = stage.gauge.look()
        maths = list(dict.fromkeys(work.case.math for work in works))
        peers = {math: find_peers(stage.framework, stage.device, math) for math in maths}
        vendors = dict.fromkeys(stage.framework.vendor(math) for math in maths)
        details = {"vendor": "; ".join(vendors), "cutlass": peers[maths[0]][1]}
        conditions = gather(stage.device, stage.device.name, protocol.mode, f"{drawn}{protocol}", **details)
        entered = [
            (work.case, (*peers[work.case.math][0], *ways_to_pad(work, stage.framework), *work.contenders))
            for work in works
        ]
        compile_first(works, stage.device)
        with progress(sum(steps(contenders, protocol) for _, contenders in entered), "measuring") as step:
            for case, contenders in entered:
                records += stage.measure(case, contenders, step, partial=True)
                if stage.gauge.fast:
                    conditions = replace(conditions, seen=sensor_range(before, stage.gauge.look()))
                keep(conditions, records)
                if stage.stopped:
                    raise KeyboardInterrupt
        conditions = replace(conditions, seen=sensor_range(before, stage.gauge.look()))
    return conditions, records


def ways_to_pad(work: Work, framework: Framework) -> list[Contender]:
    """What torch's users have where lines do not start on 16 bytes: padding by hand, and torch.compile."""
    from lapidist_lab.bench.protocol.peers import Compiled, Padded

    if not work.padded:
        return []
    padded: list[Contender] = [Padded(framework, work.case.math)]
    by_compiler = framework.name == "torch" and Compiled.takes(work.case)
    return [*padded, Compiled(framework, work.case.math)] if by_compiler else padded


def compile_first(works: Sequence[Work], device: Device) -> None:
    """Compile all that will run, in parallel. Errors are reported when it runs."""
    plans = []
    for work in works:
        for contender in work.contenders:
            with suppress(LapidistError):
                plans += (
                    [contender.planned(work.case, device)] if isinstance(contender, KernelContender) else []
                )
    build_all(builds_of(plans))


def sensor_range(before: Any, after: Any) -> dict[str, Any]:
    """Two readings of the sensors, as the conditions have them."""
    return {
        name: {sensor: getattr(reading, sensor) for sensor in reading.__slots__}
        for name, reading in (("before", before), ("after", after))
    }


# ---- without one ----


def in_machine(
    works: Sequence[Work], rounds: int = 1, keep: Keep = discard, mode: str = "machine"
) -> tuple[Conditions, list[Record]]:
    """The rows of the same kernels in the PTX machine: verdicts and counts. Wall times are the machine's; the
    first of `rounds` includes the translation to Python. Other modes have the CPU time of schedules with all
    checks, or of their parts."""
    from lapidist_lab.bench.protocol.conditions import gather

    one, how = {
        "machine": (run_in_machine, ""),
        "schedule": (run_schedules, " with all checks, each beside a plain run, in CPU time"),
        "schedule parts": (run_parts, " with all checks; CPU time of each part of the work"),
    }[mode]
    protocol = f"{rounds} run{'s' if rounds > 1 else ''} in the PTX machine{how}"
    conditions = gather(chip(MACHINE_CHIP), "machine", mode, protocol)
    return conditions, _without_gpu(works, partial(one, rounds=rounds), mode, partial(keep, conditions))


class Launched(NamedTuple):
    """A kernel that is to run in the machine, on fresh inputs and poisoned output."""

    a: Any
    b: Any
    c: Any
    plan: Plan
    facts: Facts
    launch: Launch

    def runs(self, seed: int | None = None) -> Callable[[], Any]:
        """A run: plain, or the schedule of a seed with all checks."""
        from lapidist import machine

        # Blocks that wait for each other need all of them; of others a seed draws how many run at a time.
        every = math.prod(self.launch.grid) if seed is not None and self.plan.schedule is not None else None
        run = partial(machine.run, self.launch, counting=False, residency=every)
        return run if seed is None else partial(run, sanitize=True, seed=seed)

    def row(self, case: Case, contender: Contender, mode: str, **measured: Any) -> Record:
        """The row of what was measured, with the verdict about its result."""
        verdict = judge(self.c, self.a, self.b, precision=case.precision, unit=self.facts.unit)
        error = (
            None
            if verdict.ok
            else f"wrong result: the error at {verdict.where} is {verdict.worst:.3g} times its bound"
        )
        worst = verdict.worst if math.isfinite(verdict.worst) else None
        head = blank(case, contender, "machine", mode, self.facts)
        return replace(head, worst=worst, ok=verdict.ok, error=error, **measured)


def launched(case: Case, contender: Contender) -> Launched:
    from lapidist.calls import planned_call

    a = random_matrix(case.m, case.k, case.dtype)
    b = (
        random_matrix(case.n, case.k, case.dtype).T
        if contender.columns
        else random_matrix(case.k, case.n, case.dtype)
    )
    c = poisoned_matrix(case.m, case.n, case.out_dtype)
    plan = planned_call.plan(
        a, b, out=c, kernel=_kernel_name(contender), device="machine", precision=case.precision
    ).plan
    assert plan is not None
    facts = facts_of(plan, plan.device, chosen=_kernel_name(contender) is None, disassembled=False)
    launch = plan.launch(operand_of(a, "a"), operand_of(b, "b"), None, operand_of(c, "out"), 1.0, 0.0)
    return Launched(a, b, c, plan, facts, launch)


def run_in_machine(case: Case, contender: Contender, rounds: int = 1) -> Record:
    """The row of one kernel, with its counts."""
    from lapidist import machine

    kernel = launched(case, contender)
    reports = [machine.run(kernel.launch, merge_loads=True) for _ in range(rounds)]
    report, times = reports[-1], sorted(report.seconds for report in reports)
    measured = {**times_of(times), **_counts_of(report), "note": _bound_of(report, kernel.plan, case)}
    return kernel.row(case, contender, "machine", tflops=case.flops / times[rounds // 2] / 1e12, **measured)


def run_schedules(case: Case, contender: Contender, rounds: int = 1) -> Record:
    """The row of one kernel: what schedules take, each by a seed of its own beside a plain run. CPU time, as
    other work on the computer adds to the wall time of the longer one."""
    kernel = launched(case, contender)
    run = kernel.runs()
    run()  # translates to Python
    plain, checked = list[float](), list[float]()
    for seed in range(rounds):
        plain.append(cpu_time(run))
        checked.append(cpu_time(kernel.runs(seed)))
    over = sorted(checked)[rounds // 2] / sorted(plain)[rounds // 2]
    return kernel.row(case, contender, "schedule", over_plain=over, **times_of(checked))


def run_parts(case: Case, contender: Contender, rounds: int = 1) -> Record:
    """The row of one kernel: which part of schedules takes how much of their CPU time."""
    from lapidist_lab.machine_studies.schedule_parts import watched

    kernel = launched(case, contender)
    kernel.runs()()  # translates to Python
    with watched() as watch:
        times = [cpu_time(kernel.runs(seed)) for seed in range(rounds)]
    return kernel.row(case, contender, "schedule parts", parts=watch.shares(sum(times)), **times_of(times))


def cpu_time(run: Callable[[], Any]) -> float:
    start = process_time()
    run()
    return process_time() - start


def times_of(times: Sequence[float]) -> dict[str, Any]:
    ordered = sorted(times)
    middle = ordered[len(ordered) // 2]
    return {"seconds": middle, "seconds_min": ordered[0], "seconds_max": ordered[-1], "replays": len(ordered)}


def random_matrix(rows: int, cols: int, dtype: str) -> np.ndarray[Any, Any]:
    """Standard normal; integers uniform over all that the type holds."""
    rng, kind = np.random.default_rng(), numpy_dtype(dtype)
    if kind.kind in "iu":
        return rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, (rows, cols), kind, endpoint=True)
    return rng.standard_normal((rows, cols)).astype(kind)


def poisoned_matrix(rows: int, cols: int, dtype: str) -> np.ndarray[Any, Any]:
    kind = numpy_dtype(dtype)
    return np.full((rows, cols), np.iinfo(kind).min if kind.kind in "iu" else math.nan, kind)


def _kernel_name(contender: Contender) -> str | None:
    kernel = getattr(contender, "kernel", None)
    return kernel.name if kernel else None


def _counts_of(report: Any) -> dict[str, Any]:
    """The machine's counts by a Record's names; empty where it did not count."""
    counts = report.counts
    if counts is None or not counts.warp_instructions:
        return {}
    multiplies = sum(count for name, count in counts.instructions.items() if name.startswith(MULTIPLIERS))
    return {
        "warp_instructions": int(counts.warp_instructions),
        "ffma_share": multiplies / counts.warp_instructions,
        "bytes_per_flop": counts.bytes_per_flop,
        "sectors": counts.global_load.per_request or None,
        "wavefronts": counts.shared_load.per_request or None,
        "global_sectors": counts.global_load.turns,
        "shared_turns": counts.shared_load.turns + counts.shared_store.turns,
    }


def _bound_of(report: Any, plan: Plan, case: Case) -> str | None:
    """What bounds this kernel at this size on the chip that the machine plays, and what to do about it."""
    from lapidist_lab.machine_studies.explain import explain
    from lapidist_lab.machine_studies.resources import residence_of

    if report.counts is None:
        return None
    device = chip(MACHINE_CHIP)
    residence, unit = residence_of(plan, (plan.problem.m, plan.problem.n), device), plan.kernel.unit
    answer = explain(
        report.counts, device, residence=residence, compulsory_bytes=case.set_bytes, math=case.math, unit=unit
    )
    return f"{answer.bound.name}; next: {answer.advice}"


def compile_only(works: Sequence[Work], keep: Keep = discard) -> tuple[Conditions, list[Record]]:
    """The rows of kernels that are compiled but not run."""
    from lapidist_lab.bench.protocol.conditions import gather

    device = chip(MACHINE_CHIP)
    conditions = gather(device, "none", "static", "compiled by NVRTC, nothing was run")
    compile_first(works, device)
    return conditions, _without_gpu(works, compile_one, "static", partial(keep, conditions))


def compile_one(case: Case, contender: Contender) -> Record:
    device = chip(MACHINE_CHIP)
    plan = make_plan(problem_of(case, contender.columns), device, getattr(contender, "kernel", None))
    disassembled = getattr(contender, "disassembled", True)
    facts = facts_of(plan, device, chosen=_kernel_name(contender) is None, disassembled=disassembled)
    return replace(blank(case, contender, "none", "static", facts), error=STATIC_ERROR)


def _without_gpu(
    works: Sequence[Work],
    one: Callable[[Case, Contender], Record],
    mode: str,
    keep: Callable[[Sequence[Record]], None],
) -> list[Record]:
    records: list[Record] = []
    with progress(sum(len(work.contenders) for work in works), mode) as step:
        for work in works:
            for contender in work.contenders:
                records.append(_attempt(work.case, contender, one, mode))
                keep(records)
                step(f"{contender.name} {work.case.shape}")
    return records


def _attempt(case: Case, contender: Contender, one: Callable[[Case, Contender], Record], mode: str) -> Record:
    """The row; where the kernel refuses, one with the reason. Other errors are the project's own and stop the
    run."""
    try:
        return one(case, contender)
    except LapidistError as error:
        row = blank(case, contender, "none" if mode == "static" else "machine", mode, Facts())
        return replace(row, error=f"{type(error).__name__}: {error}")


def blank(case: Case, contender: Contender, device: str, mode: str, facts: Facts) -> Record:
    """A row that holds what is known before anything ran."""
    facts_by_name = {name: getattr(facts, name) for name in Facts.__slots__}
    head = (contender.name, contender.kind, device, case.math, case.layouts(contender.columns), *case.extents)
    return Record(*head, None, None, None, None, None, False, mode, out_dtype=case.out_dtype, **facts_by_name)


def place_of(device: str) -> int | str:
    """`--device` as a GPU's number, 0 for "gpu"; or "machine"; or "auto": a GPU where there is one."""
    from lapidist.errors import ArgumentError

    if device in ("auto", "machine"):
        return device
    if device == "gpu":
        return 0
    if device.isdigit():
        return int(device)
    raise ArgumentError(
        f"--device: must be auto, gpu, machine or a GPU's number; got {device!r}. Use one of these"
    )
