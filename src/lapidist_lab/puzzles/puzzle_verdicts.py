"""Whether a reader's source is mended: what the machine finds in it, its results, and its counts beside the
rung's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lapidist.build.compiler import compile_options, compile_to_ptx
from lapidist.knobs.header import config_header
from lapidist.launch import Launch
from lapidist.machine.authors.findings import LINE, Finding, Findings, Judge
from lapidist.machine.counters import Counts, Traffic
from lapidist.machine.faults import MachineFault
from lapidist.machine.lanes import Lanes
from lapidist.machine.observer import Observer
from lapidist.machine.program import compile_program
from lapidist.machine.ptx.syntax_tree import Imm, Instruction
from lapidist.machine.run import run
from lapidist.planning.binaries import order_of
from lapidist_lab.machine_studies.explain import DATA_PARALLEL
from lapidist_lab.machine_studies.registered import Product, product_of
from lapidist_lab.puzzles.broken_rungs import Puzzle, Shape

Array = np.ndarray
SEEDS = 4
MOST_SHOWN = 3  # the first ones are the cause of the others, more often than not
MORE_INSTRUCTIONS = 1.05  # than the rung's: another way to say the same costs a few


@dataclass(frozen=True)
class Measure:
    """A count of the reader's source, and the rung's. `lines` are those that cost the most of it."""

    name: str
    yours: float
    rung: float
    lines: tuple[int, ...] = ()
    allowed: float = 1.0

    @property
    def good(self) -> bool:
        return self.yours <= self.rung * self.allowed

    def __str__(self) -> str:
        lines = f"; most in lines {', '.join(map(str, self.lines))}" if self.lines and not self.good else ""
        return f"{self.name}: {self.yours:,.0f}, the rung's {self.rung:,.0f}{lines}"


@dataclass(frozen=True)
class Verdict:
    puzzle: Puzzle
    lines: tuple[str, ...]  # the reader's source
    reader_line_of_ptx: Mapping[int, int]  # of lines of PTX, the reader's
    findings: Findings
    wrong: tuple[str, ...]  # results, in words
    measures: tuple[Measure, ...]  # none where something is wrong

    @property
    def right(self) -> bool:
        return not self.wrong and bool(self.findings)

    @property
    def solved(self) -> bool:
        return self.right and all(measure.good for measure in self.measures)

    def data(self) -> dict[str, Any]:
        return {
            "puzzle": self.puzzle.number,
            "rung": self.puzzle.rung,
            "solved": self.solved,
            "right": self.right,
            "findings": [finding.data() for finding in self.findings],
            "wrong": list(self.wrong),
            "measures": [
                {"name": measure.name, "yours": measure.yours, "rung": measure.rung, "good": measure.good}
                for measure in self.measures
            ],
        }

    def __str__(self) -> str:
        if not self.right:
            return "\n".join([*shown_findings(self), *self.wrong, "Not mended yet."])
        costly = [f"  {measure}" for measure in self.measures if not measure.good]
        if costly:
            head = "The results are right on every schedule, but it costs more than the rung:"
            return "\n".join([head, *costly])
        counted = [f"  {measure}" for measure in self.measures]
        return "\n".join([f"Solved: right on every schedule, and as good as {self.puzzle.rung}.", *counted])


def shown_findings(verdict: Verdict) -> list[str]:
    """A paragraph for each rule and line of the reader's file; those that most schedules found come first."""
    by_line: dict[tuple[str, int], list[Finding]] = {}
    for finding in sorted(verdict.findings.errors, key=lambda finding: -len(finding.seeds)):
        place = finding.rule, reader_line(verdict.puzzle, finding.lines)
        by_line.setdefault(place, []).append(finding)
    paragraphs = [paragraph(verdict, line, alike) for (_, line), alike in list(by_line.items())[:MOST_SHOWN]]
    more = len(by_line) - MOST_SHOWN
    return paragraphs + ([f"Lines with further findings: {more}"] if more > 0 else [])


def paragraph(verdict: Verdict, line: int, alike: Sequence[Finding]) -> str:
    first = alike[0]
    message = [by_reader_lines(verdict, text) for text in first.fault.rule.splitlines()]
    lines = [f"{verdict.puzzle.file_name}:{line}: {message[0]} [{first.rule}]"]
    if 0 < line <= len(verdict.lines):
        lines.append(f"  {line} | {verdict.lines[line - 1].strip()}")
    lines += [f"  {text.strip()}" for text in dict.fromkeys(message[1:])]
    thread = str(first.fault.thread)
    lines += [f"  by {thread}"] if thread else []
    lines.append(f"  in {len(first.seeds)} of {verdict.findings.runs} runs")
    return "\n".join(lines)


def by_reader_lines(verdict: Verdict, message: str) -> str:
    """A message that names lines of the reader's file in place of PTX."""
    short = re.sub(r"at kernel \w+, (PTX line \d+): [^;]*;( \([^)]*\))?", r"at \1", message)
    known = verdict.reader_line_of_ptx
    return re.sub(
        r"PTX line (\d+)(, (inlined at )?[^\s,;)]+:\d+)*",
        lambda match: f"line {known[int(match[1])]}" if int(match[1]) in known else match[0],
        short,
    )


def reader_line(puzzle: Puzzle, sites: Sequence[str]) -> int:
    """The line of the reader's file, where a header's function was inlined; 0 if there is none."""
    numbers = (place.rpartition(":") for place in sites)
    return next((int(number) for file, _, number in numbers if file == puzzle.file_name), 0)


def judge(puzzle: Puzzle, text: str, seeds: int = SEEDS) -> Verdict:
    """Compile the text in the rung's place and run it, on many schedules and plainly. The first product that
    shows a fault is the last one.
    """
    judging = Judge(puzzle.kernel.entry, (), {}, {})
    wrong: tuple[str, ...] = ()
    reader_line_of_ptx: Mapping[int, int] = {}
    runs = 0
    for shape in puzzle.shapes:
        product = product_for(puzzle, shape)
        launch = launch_of(puzzle, product, text)
        reader_line_of_ptx = reader_lines(puzzle, launch)
        for seed in [*range(seeds), None]:
            judging.begin(seed)
            runs += 1
            words = run_once(product, launch, judging, seed)
            if words and not wrong:
                wrong = (f"{' x '.join(map(str, shape))}: {words}",)
        if wrong or judging.entries:
            break
    findings = judging.findings(runs)
    measures = measures_of(puzzle, text) if findings and not wrong else ()
    return Verdict(puzzle, tuple(text.splitlines()), reader_line_of_ptx, findings, wrong, measures)


def reader_lines(puzzle: Puzzle, launch: Launch) -> dict[int, int]:
    """The reader's line of each line of PTX."""
    sites = (i.site for i in compile_program(launch.binary.ptx, launch.binary.entry).kernel.instructions)
    lines = ((site.line, reader_line(puzzle, inlined_at(site.source))) for site in sites)
    return {line: own for line, own in lines if own}


def inlined_at(source: str) -> list[str]:
    """FILE:LINE of a site's source, innermost first."""
    return [match[0] for match in LINE.finditer(source)]


def product_for(puzzle: Puzzle, shape: Shape) -> Product:
    return product_of(puzzle.kernel, puzzle.math, shape, schedule=DATA_PARALLEL)


def launch_of(puzzle: Puzzle, product: Product, text: str) -> Launch:
    """The rung's launch with the reader's source in place of the rung's."""
    order = order_of(*product.plan.build)
    options = (*compile_options(order.architecture), *order.more)
    config = config_header(order.source, order.defines)
    binary = compile_to_ptx(text, order.entry, options, order.architecture, puzzle.file_name, config)
    return replace(product.launch(), binary=binary)


def run_once(product: Product, launch: Launch, judging: Judge, seed: int | None) -> str:
    """What is wrong with the result of a run, in words; nothing where it ended by a fault."""
    product.reset(launch, 0.0)
    faults = judging.count
    try:
        run(launch, sanitize=seed is not None, seed=seed, counting=False, judge=judging.take)
    except MachineFault as fault:
        judging.take(fault)
    return "" if judging.count > faults else difference(product.d, product.expected(0.0))


def difference(got: Array, expected: Array) -> str:
    """Where two results differ, in words."""
    rows, columns = np.nonzero(~(got == expected))
    if not len(rows):
        return ""
    row, column = rows[0], columns[0]
    return (
        f"{len(rows):,} of {got.size:,} results are wrong, in rows {rows.min()} to {rows.max()} and columns"
        f" {columns.min()} to {columns.max()}; C[{row}, {column}] is {got[row, column]:g}, and must be"
        f" {expected[row, column]:g}"
    )


# ---- as good as the rung? ----


class Waits(Observer):
    """Counts the waits of warps for everything that is under way: copies, or products of tensor cores."""

    def __init__(self, launch: Launch) -> None:
        program = compile_program(launch.binary.ptx, launch.binary.entry)
        code = program.kernel.instructions
        self.inside = [
            sum(waits_for_all(i) for i in code[block.start : block.stop]) for block in program.blocks
        ]
        self.count = 0

    def executed(self, number: int, lanes: Lanes) -> None:
        self.count += self.inside[number] * lanes.warps


def waits_for_all(i: Instruction) -> bool:
    counted = "wait_group" in i.mods and isinstance(i.operands[0], Imm) and i.operands[0].value == 0
    return counted or "wait_all" in i.mods


def counted(launch: Launch) -> tuple[Counts, int]:
    waits = Waits(launch)
    counts = run(launch, exact_counts=True, merge_loads=True, watch=waits).counts
    assert counts is not None
    return counts, waits.count


def measures_of(puzzle: Puzzle, text: str) -> tuple[Measure, ...]:
    """The reader's counts beside the rung's, of the same product."""
    product = product_for(puzzle, puzzle.shapes[0])
    (yours, waits), (rung, rung_waits) = (
        counted(launch) for launch in (launch_of(puzzle, product, text), product.launch())
    )
    traffic = (
        Measure(name, of(yours).turns, of(rung).turns, costliest(puzzle, yours, space, opcodes))
        for name, of, space, opcodes in TRAFFIC
    )
    rows = (
        *traffic,
        Measure("bytes copied by TMA", yours.copied_bytes, rung.copied_bytes),
        Measure("barriers of blocks", yours.barriers, rung.barriers),
        Measure("waits for all that is under way", waits, rung_waits),
        Measure(
            "warp instructions", yours.warp_instructions, rung.warp_instructions, allowed=MORE_INSTRUCTIONS
        ),
    )
    return tuple(row for row in rows if row.yours or row.rung)


LOADS, STORES = ("ld", "ldmatrix", "wmma"), ("st", "stmatrix")
TRAFFIC: tuple[tuple[str, Callable[[Counts], Traffic], str, tuple[str, ...]], ...] = (
    ("turns of shared loads", lambda counts: counts.shared_load, "shared", LOADS),
    ("turns of shared stores", lambda counts: counts.shared_store, "shared", (*STORES, "cp")),
    ("sectors of global loads", lambda counts: counts.global_load, "global", (*LOADS, "cp")),
    ("sectors of global stores", lambda counts: counts.global_store, "global", STORES),
)


def costliest(puzzle: Puzzle, counts: Counts, space: str, opcodes: tuple[str, ...]) -> tuple[int, ...]:
    """The lines of the reader's file whose requests take the most turns."""
    sites = [site for site in counts.sites if site.space == space and opcode_of(site.text) in opcodes]
    most = max((site.traffic.per_request for site in sites), default=0.0)
    costly = (site for site in sites if site.traffic.per_request > most / 2)
    lines = {reader_line(puzzle, inlined_at(site.source)) for site in costly}
    return tuple(sorted(lines - {0}))


def opcode_of(text: str) -> str:
    """The opcode of an instruction's text, behind its predicate."""
    words = text.split()
    return next(word for word in words if not word.startswith("@")).partition(".")[0]
