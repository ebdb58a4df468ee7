"""What `lapidist explain` and `lapidist mutants` do: answers from the machine, on the terminal, as JSON, or
kept as a file.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from lapidist.build.processes import Pool
from lapidist.commands.fold import folded, terminal_columns
from lapidist.commands.progress import Step, progress
from lapidist.device import Device, chip
from lapidist.dtypes import short_name
from lapidist.errors import ArgumentError
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.registry import RUNGS, kernel_named
from lapidist.writable import require_folder
from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.protocol.conditions import gather, nvrtc
from lapidist_lab.bench.protocol.record import Conditions, Record, row_of, run_name, write_run
from lapidist_lab.bench.studies.predicted import climbable, conditions_of, has_instructions, predict
from lapidist_lab.machine_studies.explain import COUNTED_AT, Explanation, next_step
from lapidist_lab.machine_studies.mutants import (
    NOTHING_RUN,
    Baseline,
    Cut,
    Survey,
    Verdict,
    baseline_survey,
    merged,
)
from lapidist_lab.machine_studies.registered import MACHINE_CHIP
from lapidist_lab.machine_studies.specimens import Specimen, baseline_part, extent_of, mutants_part, specimens

LADDER = "ladder"
WHY_COLUMN = 35  # where an Explanation says why a resource takes its time
PIPE_COLUMNS = 100
SHARE = 1  # mutants that a process breaks at a time: one that nobody finds takes long


def explain_command(name: str, device: Device, case: Case, as_json: bool, record: Path | None) -> None:
    """Print one kernel in full, or a line for each rung that the chip and the type allow."""
    if record is not None:
        require_folder("--record", record)
    kernels = (
        climbable(device, case.math) if name == LADDER else [runnable(kernel_named(name), device, case.math)]
    )
    if not kernels:
        raise ArgumentError(
            f"--dtype: no rung multiplies {case.math} on {device.name}. Choose another type, or a newer chip"
        )
    answers = []
    if not as_json:
        print_head(kernels, device, case, name == LADDER)
    for kernel in kernels:
        answers.append(predict(kernel, device, case))
        if not as_json:
            print_row(*answers[-1]) if name == LADDER else print_one(kernel, case, answers[-1][1], device)
    if as_json:
        rows = [
            as_row(row, answer, kernel, case, device)
            for kernel, (row, answer) in zip(kernels, answers, strict=True)
        ]
        print(json.dumps(rows if name == LADDER else rows[0]))
    if record is not None:
        conditions = conditions_of(device)
        write_run(
            record / run_name(conditions, f"explain-{case.shape.removesuffix('^3')}"),
            conditions,
            [row for row, _ in answers],
        )


def runnable(kernel: Kernel, device: Device, math: str) -> Kernel:
    if math not in kernel.types.maths:
        names = [short_name(each) for each in kernel.types.maths]
        raise ArgumentError(
            f"--dtype: {kernel.name} multiplies {', '.join(names)}; got {short_name(math)}."
            f" Add --dtype {names[0]}"
        )
    if not has_instructions(device, kernel):
        needs = "{}.{}".format(*kernel.capability)
        raise ArgumentError(
            f"--chip: {kernel.name} needs compute capability {needs}; {device.name} is older. Choose a newer"
            " chip"
        )
    return kernel


def as_row(record: Record, answer: Explanation, kernel: Kernel, case: Case, device: Device) -> dict[str, Any]:
    return {
        "kernel": kernel.name,
        "size": [record.m, record.n, record.k],
        "nvrtc": nvrtc(),
        **asdict(answer),
    } | {"next": next_step(kernel, case.math, device)}


def print_head(kernels: list[Kernel], device: Device, case: Case, ladder: bool) -> None:
    """Print what is to be explained before the machine has counted: that takes seconds a kernel."""
    if not ladder:
        product = f"{case.m} x {case.n} x {case.k}, {case.math}"
        print(f"{label(kernels[0].name)} at {product}, PTX of NVRTC {nvrtc()}", flush=True)
        return
    counted = f"counts at {COUNTED_AT}^3, PTX of NVRTC {nvrtc()}"
    print(folded(f"{case.shape}, {case.math}, predicted for {device.name} from {counted}", 2, columns()))
    print(f"  {'rung':21s}{'time':>10s} {'TFLOP/s':>8s} {'% of its unit':>14s}  bound by", flush=True)


def print_row(record: Record, answer: Explanation) -> None:
    numbers = f"{record.tflops:8.2f} {answer.share_of_peak * 100:14.1f}"
    print(
        f"  {label(record.kernel):21s}{answer.seconds * 1e3:7.3f} ms {numbers}  {answer.bound.name}",
        flush=True,
    )


def print_one(kernel: Kernel, case: Case, answer: Explanation, device: Device) -> None:
    for line in str(answer).splitlines():
        print(folded(line, WHY_COLUMN if line[WHY_COLUMN - 2 : WHY_COLUMN] == "  " else 4, columns()))
    sys.stdout.flush()
    step = next_step(kernel, case.math, device)
    if step is not None:
        print("\n    ".join([f"  next rung {step[0]}:", *step[1]]))


def columns() -> int:
    """The width of the terminal; of a pipe that of tables."""
    return terminal_columns(PIPE_COLUMNS)


def label(name: str) -> str:
    """A rung with its number, as `lapidist kernels` has it."""
    kernel = kernel_named(name)
    return f"{RUNGS.index(kernel) + 1:02d} {name}" if kernel in RUNGS else name


# ---- mutants ----


def mutants_command(
    name: str | None,
    maths: list[str],
    seeds: int,
    drawn: tuple[int, int],
    jobs: int,
    part: str,
    limit: float | None,
    as_json: bool,
    record: Path | None,
) -> Survey:
    """Break kernels in several processes, and print which mutants were found. `drawn`: so many small faults,
    and the seed that draws them; none for all that `mutants` breaks."""
    if record is not None:
        require_folder("--record", record)
    names = [kernel_named(part).name for part in name.split(",")] if name else None
    chosen = list(specimens(names, maths))[part_of(part)]
    if drawn[0]:
        chosen = [replace(specimen, drawn=drawn) for specimen in chosen]
    survey = in_processes(chosen, seeds, jobs, limit)
    for verdict in survey.verdicts:
        tell(verdict)
    conditions = gather(chip(MACHINE_CHIP), "machine", "mutants", f"{seeds} seeds")
    text = json.dumps({"conditions": row_of(conditions), "seeds": seeds, **survey.as_json()}, indent=1)
    if record is not None:
        (record / mutants_file(conditions, "faults" if drawn[0] else "mutants")).write_text(text + "\n")
    print(text if as_json else survey)
    return survey


def part_of(text: str) -> slice:
    """The slice of "I/N": every N-th from the I-th on."""
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise ArgumentError(f"--part: must be I/N with I from 1 to N, as 2/4; got {text!r}")
    return slice(int(number) - 1, None, int(count))


Piece = tuple[Specimen, Callable[..., Any], tuple[Any, ...]]


class Work:
    """A survey in pieces, kernel after kernel: its extent, its unbroken runs one by one, then its mutants."""

    def __init__(self, chosen: list[Specimen], seeds: int) -> None:
        self.seeds, self.ahead = seeds, [(specimen, extent_of, (specimen,)) for specimen in chosen]
        self.place = {specimen: place for place, specimen in enumerate(chosen)}
        self.ready: list[Piece] = []  # in the order of the kernels
        self.extent: dict[Specimen, tuple[range, int]] = {}  # schedules and mutants
        self.unfinished: dict[Specimen, int] = {}  # pieces of what is under way
        self.unbroken = dict.fromkeys(chosen, NOTHING_RUN)
        self.parts: dict[Specimen, list[Survey]] = {specimen: [] for specimen in chosen}
        self.finished: list[Specimen] = []

    def take(self) -> Piece | None:
        """The next piece, of the first kernel that has one: at the end of the time few kernels are cut."""
        queue = self.ready or self.ahead
        return queue.pop(0) if queue else None

    def done(self, specimen: Specimen, result: Any) -> None:
        if isinstance(result, Survey):
            self.parts[specimen].append(result)
        elif isinstance(result, Baseline):
            self.unbroken[specimen] |= result
        else:
            variants, mutants = result
            schedules = range(max(self.seeds, variants))
            self.extent[specimen] = schedules, mutants
            self.begin(specimen, [(specimen, baseline_part, (specimen, seed)) for seed in schedules])
            return
        self.unfinished[specimen] -= 1
        if self.unfinished[specimen]:
            return
        schedules, mutants = self.extent[specimen]
        shares = (
            []
            if self.parts[specimen]
            else [slice(start, start + SHARE) for start in range(0, mutants, SHARE)]
        )
        self.begin(
            specimen,
            [
                (specimen, mutants_part, (specimen, share, self.unbroken[specimen], schedules))
                for share in shares
            ],
        )
        if not shares:
            self.finished.append(specimen)

    def begin(self, specimen: Specimen, pieces: list[Piece]) -> None:
        self.unfinished[specimen] = len(pieces)
        self.ready = sorted([*self.ready, *pieces], key=lambda piece: self.place[piece[0]])

    def survey(self) -> Survey:
        """The survey of finished work, and of what was cut."""
        wholes = [
            baseline_survey(str(specimen), specimen.math, self.unbroken[specimen]) for specimen in self.extent
        ]
        survey = merged([*wholes, *(part for parts in self.parts.values() for part in parts)])
        survey.cut = [self.cut_of(specimen) for specimen in self.unbroken if specimen not in self.finished]
        return survey

    def cut_of(self, specimen: Specimen) -> Cut:
        if specimen not in self.extent:
            return Cut(str(specimen), specimen.math)
        so_far = merged(self.parts[specimen])
        return Cut(
            str(specimen), specimen.math, len(so_far.verdicts) + so_far.unreached, self.extent[specimen][1]
        )


def in_processes(chosen: list[Specimen], seeds: int, jobs: int, limit: float | None) -> Survey:
    """The survey. At the end of the time, or at Ctrl-C, running work is dropped."""
    work, end = Work(chosen, seeds), time.monotonic() + (limit or threading.TIMEOUT_MAX / 2)
    with Pool(jobs) as pool, progress(len(chosen), "kernels") as step:
        with suppress(Empty, KeyboardInterrupt):
            work_off(work, pool, jobs, end, step)
        return work.survey()


def work_off(work: Work, pool: Pool, jobs: int, end: float, step: Step) -> None:
    """Run all pieces; raise Empty when the time is over."""
    results, running = SimpleQueue[tuple[Specimen, Future[Any]]](), 0
    while True:
        while running < jobs and (piece := work.take()):
            specimen, function, arguments = piece
            pool.submit(function, *arguments).add_done_callback(partial(tell_of, results, specimen))
            running += 1
        if not running:
            return
        specimen, answer = results.get(timeout=max(end - time.monotonic(), 0.0))
        running -= 1
        work.done(specimen, answer.result())
        if work.finished[-1:] == [specimen]:
            step(str(specimen))


def tell_of(
    results: SimpleQueue[tuple[Specimen, Future[Any]]], specimen: Specimen, answer: Future[Any]
) -> None:
    results.put((specimen, answer))


def mutants_file(conditions: Conditions, kind: str) -> str:
    return run_name(conditions, kind).replace(".jsonl", ".json")


def tell(verdict: Verdict) -> None:
    print(f"{verdict.kernel}: {verdict.text}: {verdict.found_by or 'not found'}", file=sys.stderr)
