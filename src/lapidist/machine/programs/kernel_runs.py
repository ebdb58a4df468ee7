"""A program's launches: each on random schedules, which are undone, then plainly, for the program to see."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from io import StringIO
from typing import Any

import numpy as np

from lapidist.errors import ArgumentError
from lapidist.launch import Launch, Memory
from lapidist.machine.authors.findings import Finding, Judge
from lapidist.machine.authors.kernel_text import KernelText, demangled
from lapidist.machine.faults import (
    RESIDENCY,
    AssertionFailed,
    BudgetExceeded,
    Deadlock,
    MachineFault,
    Misaligned,
    OutOfBounds,
)
from lapidist.machine.programs.device_memory import DeviceMemory
from lapidist.machine.programs.stream_order import Operation, StreamOrder, of_copy, of_touched
from lapidist.machine.ptx.parse import parse_kernel
from lapidist.machine.run import Report, run
from lapidist.machine.sanitize.sanitized_launch import Earlier
from lapidist.machine.schedule_budget import is_counted, schedule_budget, warps_of

# What a card reports after a fault, from then on
SEEN_BY_PROGRAM: dict[type[MachineFault], int] = {
    OutOfBounds: 700,  # cudaErrorIllegalAddress
    Misaligned: 716,  # cudaErrorMisalignedAddress
    AssertionFailed: 710,  # cudaErrorAssert
    Deadlock: 702,  # cudaErrorLaunchTimeout
    BudgetExceeded: 702,
}
LAUNCH_FAILURE = 719
LARGE = 4096  # warps of a launch that is announced, as it may take minutes
HOST_SHARE = 2  # the machine may take half of the host's memory, as the program's pieces may


@dataclass
class ProgramReport:
    """What a program's run came to. It is true where nothing is an error."""

    program: str
    seeds: int
    exit_code: int = 0
    launches: dict[str, int] = field(default_factory=dict)  # by kernel
    findings: list[tuple[str, Finding]] = field(default_factory=list)  # each with its kernel
    notes: list[str] = field(default_factory=list)

    @property
    def errors(self) -> list[Finding]:
        return [finding for _, finding in self.findings if finding.level == "error"]

    def __bool__(self) -> bool:
        return not self.errors

    def data(self) -> dict[str, Any]:
        return {
            "program": self.program,
            "exit_code": self.exit_code,
            "runs": self.seeds + 1,
            "launches": self.launches,
            "errors": len(self.errors),
            "findings": [{"kernel": kernel, **finding.data()} for kernel, finding in self.findings],
            "notes": self.notes,
        }

    def __str__(self) -> str:
        lines = [f"{finding}\n  in kernel {kernel}" for kernel, finding in self.findings]
        lines += [f"note: {note}" for note in self.notes]
        errors, warnings = len(self.errors), len(self.findings) - len(self.errors)
        total = f"{self.program}: {errors} errors and {warnings} warnings in {sum(self.launches.values())}"
        total += f" launches of {len(self.launches)} kernels, {self.seeds + 1} runs each"
        return "\n".join([*lines, f"{total}; the program ended with {self.exit_code}"])


class KernelRuns:
    """`most_warps` is how many warps a launch may have to run on schedules; None is any number."""

    def __init__(
        self,
        device: DeviceMemory,
        seeds: int,
        ignore: Collection[str],
        levels: Mapping[str, str],
        memory_budget: int,
        budget: int,
        most_warps: int | None = None,
    ) -> None:
        self.device, self.seeds, self.ignore, self.levels = device, seeds, ignore, levels
        self.memory_budget, self.budget, self.most_warps = memory_budget, budget, most_warps
        self.announced: set[str] = set()
        self.in_order: set[str] = set()  # kernels whose blocks wait for blocks before or beside them
        self.judges: dict[str, Judge] = {}
        self.launches: dict[str, int] = {}
        self.earlier: dict[int, Earlier] = {}  # by seed: what the launches before did
        self.notes: dict[str, None] = {}
        self.order = StreamOrder()
        self.heap: tuple[Memory, ...] = ()  # what kernels took by malloc, and nobody freed

    def run(self, launch: Launch, text: KernelText, stream: int) -> int:
        """All runs of a launch. Returns the error that the program sees from then on, 0 for none."""
        kernel = demangled(text.entry)
        judge = self.judge(kernel, text.sources)
        launch = replace(launch, memory=(*launch.memory, *self.heap))
        self.launches[kernel] = self.launches.get(kernel, 0) + 1
        budget, refusal = self.budget, ""
        if self.is_followed(launch, kernel) and self.seeds:
            if is_counted(launch):
                with self.unseen():
                    plain = self.run_once(launch, judge, None, self.budget)
                if isinstance(plain, BudgetExceeded):
                    return SEEN_BY_PROGRAM[BudgetExceeded]  # it would not end on schedules either
                budget = schedule_budget(budget, plain if isinstance(plain, Report) else None)
            refusal = self.run_schedules(launch, text, stream, judge, budget)
        done = self.run_once(launch, judge, None, self.budget)
        if isinstance(done, Report):
            self.heap = done.heap
        if refusal:  # of the schedules alone
            self.notes[
                f"{kernel} ran plainly, as its schedules were refused: {refusal}. Or give the program a"
                " smaller problem"
            ] = None
        return SEEN_BY_PROGRAM.get(type(done), LAUNCH_FAILURE) if isinstance(done, MachineFault) else 0

    def run_schedules(self, launch: Launch, text: KernelText, stream: int, judge: Judge, budget: int) -> str:
        """The sanitized runs. Returns why they were refused, if they were: they take more memory."""
        for seed in range(self.seeds):
            try:
                done = self.run_schedule(launch, judge, seed, budget)
            except ArgumentError as error:
                return str(error)
            if isinstance(done, Report):
                self.earlier[seed] = done.touched
            if seed == 0 and isinstance(done, Report):
                sites = {i.site.line: i.site for i in parse_kernel(text.ptx, text.entry).instructions}
                self.begin(of_touched(judge.kernel, done.touched.touched, sites), stream, judge)
        return ""

    def run_schedule(self, launch: Launch, judge: Judge, seed: int, budget: int) -> MachineFault | Report:
        """Run a schedule, and undo its effects. Where blocks wait for some that had not started, run it again
        with blocks in order. So are those of the kernel's launches from then on."""
        with self.unseen():
            done = self.run_once(launch, judge, seed, budget)
        if not isinstance(done, MachineFault) or done.name != RESIDENCY:
            return done
        self.in_order.add(judge.kernel)
        return self.run_schedule(launch, judge, seed, budget)

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """Undo what happens meanwhile, and drop what is printed. The plain run behind it is what a program
        sees."""
        with self.device.undone(), undone(self.heap), redirect_stdout(StringIO()):
            yield

    def judge(self, name: str, sources: Mapping[str, Sequence[str]]) -> Judge:
        if name not in self.judges:
            self.judges[name] = Judge(name, self.ignore, self.levels, sources)
        return self.judges[name]

    def begin(self, operation: Operation, stream: int, judge: Judge) -> None:
        """Look whether an operation races with those of other streams."""
        race = self.order.begin(operation, stream)
        if race is not None:
            judge.begin(0)
            judge.take(race)

    def copied(
        self, name: str, targets: Sequence[int], sources: Sequence[int], nbytes: int, stream: int
    ) -> None:
        self.begin(of_copy(name, targets, sources, nbytes), stream, self.judge(name, {}))

    def is_followed(self, launch: Launch, kernel: str) -> bool:
        """Whether a launch runs on schedules: one of more warps than the user allows does not."""
        warps = warps_of(launch)
        if self.most_warps is not None and warps > self.most_warps:
            self.notes[
                f"{kernel} ran plainly in launches of more than {self.most_warps:,} warps (--most-warps):"
                " races and unset memory are not looked for there"
            ] = None
            return False
        if warps > LARGE and self.seeds and kernel not in self.announced:
            self.announced.add(kernel)
            print(
                f"lapidist: a launch of {kernel} has {warps:,} warps, and may take minutes on schedules;"
                f" --most-warps {LARGE} lets such launches run plainly",
                file=sys.stderr,
                flush=True,
            )
        return True

    def run_once(self, launch: Launch, judge: Judge, seed: int | None, budget: int) -> MachineFault | Report:
        """What the launch did, or the fault that ended it."""
        judge.begin(seed)
        earlier = None if seed is None else self.earlier.get(seed, Earlier(known=True))
        try:
            return run(
                replace(launch, overlaps=launch.overlaps and seed is not None),
                sanitize=seed is not None,
                seed=seed,
                in_order=judge.kernel in self.in_order,
                counting=False,
                budget=budget,
                memory_budget=self.memory_budget,
                judge=judge.take,
                earlier=earlier,
            )
        except MachineFault as fault:
            judge.take(fault)
            return fault

    def findings(self) -> list[tuple[str, Finding]]:
        return [(judge.kernel, finding) for judge in self.judges.values() for finding in judge.findings(0)]


@contextmanager
def undone(heap: Sequence[Memory]) -> Iterator[None]:
    """What is written meanwhile is put back at the end."""
    contents = [memory.owner.copy() for memory in heap]
    try:
        yield
    finally:
        for memory, content in zip(heap, contents, strict=True):
            np.copyto(memory.owner, content)
