"""The machine's own proof: break real kernels in their PTX, one instruction at a time, and see what is found.

A mutant loses one barrier, wait, arrival, fence or bounds check, or a release or acquire of memory becomes
relaxed. It counts as found if some schedule raises a fault, or if the result is wrong. The unbroken kernel
must raise nothing at any seed: each fault there is a false alarm."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from lapidist.launch import Launch
from lapidist.machine.faults import MachineFault
from lapidist.machine.ptx.parse import parse_kernel
from lapidist.machine.ptx.syntax_tree import Instruction, Sym
from lapidist.machine.run import run
from lapidist_lab.machine_studies.equivalents import equivalent

KINDS = ("barrier", "warp barrier", "wait", "arrival", "fence", "order", "bounds")
BUDGET_FACTOR = 12
ROUNDS = 6  # of schedules for a mutant that nothing found and no rule explains


@dataclass(frozen=True)
class Mutant:
    """A kernel with one line changed."""

    kind: str
    line: int
    text: str
    original: str = field(repr=False)
    changed: str = field(repr=False)
    equivalent: str = ""  # why it behaves as the kernel does, if a rule says so

    @property
    def ptx(self) -> str:
        lines = self.original.splitlines()
        lines[self.line - 1] = self.changed
        return "\n".join(lines)


@dataclass(frozen=True)
class Verdict:
    """The verdict on a mutant: the fault that found it, "result" if only the numbers were wrong, and the
    seed, None for the plain schedule."""

    kernel: str
    math: str
    kind: str
    line: int
    text: str
    found_by: str | None
    seed: int | None
    equivalent: str = ""  # why there was nothing to find

    @property
    def missed(self) -> bool:
        return self.found_by is None and not self.equivalent


@dataclass(frozen=True)
class Unbroken:
    """Runs of a kernel as it is, their false alarms, and how many places to break it they never come to."""

    kernel: str
    math: str
    runs: int
    false_alarms: tuple[str, ...] = ()
    unreached: int = 0


@dataclass(frozen=True)
class Cut:
    """A kernel that a survey was stopped in, or before (`of` is None): how many mutants need no more."""

    kernel: str
    math: str
    judged: int = 0
    of: int | None = None

    def __str__(self) -> str:
        return f"{self.kernel} in {self.math}: " + (
            "not begun" if self.of is None else f"{self.judged} of {self.of} mutants"
        )


@dataclass
class Survey:
    """All verdicts of some kernels, and the false alarms of the unbroken ones. What no run of the unbroken
    kernel comes to cannot be missed there: it is counted, not broken."""

    verdicts: list[Verdict] = field(default_factory=list)
    unbroken: list[Unbroken] = field(default_factory=list)
    cut: list[Cut] = field(default_factory=list)

    def share(self, kind: str) -> tuple[int, int, int]:
        """How many mutants of a kind were found, how many could not be, and their number."""
        mine = [verdict for verdict in self.verdicts if verdict.kind == kind]
        caught = sum(verdict.found_by is not None for verdict in mine)
        return caught, len(mine) - caught - sum(verdict.missed for verdict in mine), len(mine)

    @property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys([*KINDS, *(verdict.kind for verdict in self.verdicts)]))

    @property
    def clean_runs(self) -> int:
        return sum(kernel.runs for kernel in self.unbroken)

    @property
    def unreached(self) -> int:
        return sum(kernel.unreached for kernel in self.unbroken)

    @property
    def false_alarms(self) -> list[str]:
        return [alarm for kernel in self.unbroken for alarm in kernel.false_alarms]

    def as_json(self) -> dict[str, object]:
        shares = {
            kind: dict(zip(("found", "equivalent", "of"), self.share(kind), strict=True))
            for kind in self.kinds
        }
        unbroken, verdicts, cut = (
            [asdict(row) for row in rows] for rows in (self.unbroken, self.verdicts, self.cut)
        )
        return {"found": shares, "unbroken": unbroken, "mutants": verdicts, "cut": cut}

    @classmethod
    def of_json(cls, stored: Mapping[str, Any]) -> Survey:
        unbroken = [
            Unbroken(**{**row, "false_alarms": tuple(row["false_alarms"])}) for row in stored["unbroken"]
        ]
        cut = [Cut(**row) for row in stored.get("cut", ())]
        return cls([Verdict(**row) for row in stored["mutants"]], unbroken, cut)

    def __str__(self) -> str:
        lines = ["| removed | found | changes nothing | share |", "|---|---|---|---|"]
        for kind in self.kinds:
            caught, equal, total = self.share(kind)
            if total > equal:
                lines.append(
                    f"| {kind} | {caught} of {total - equal} | {equal} | {caught / (total - equal):.0%} |"
                )
        lines.append("")
        lines.append(f"{self.unreached} places that no run comes to")
        lines.append(f"{len(self.false_alarms)} false alarms in {self.clean_runs} runs of unbroken kernels")
        lines += [
            f"not found: {verdict.kernel} in {verdict.math}, line {verdict.line}: {verdict.text}"
            for verdict in self.verdicts
            if verdict.missed
        ]
        lines += [f"stopped before the end: {cut}" for cut in self.cut]
        return "\n".join(lines)


# ---- breaking ----


def mutants(ptx: str, entry: str) -> Iterator[Mutant]:
    """Every mutant of a kernel, in order of lines."""
    kernel = parse_kernel(ptx, entry)
    lines = ptx.splitlines()
    for index, i in enumerate(kernel.instructions):
        kind, change = breaking(i, kernel.instructions, index, kernel.labels)
        if not kind:
            continue
        line = i.site.line - 1
        broken = change(lines[line])
        if broken != lines[line]:
            yield Mutant(kind, i.site.line, i.site.text, ptx, broken, equivalent(i, ptx))


Change = Callable[[str], str]


def breaking(
    i: Instruction, code: list[Instruction], index: int, labels: dict[str, int]
) -> tuple[str, Change]:
    """The kind of mutant that this instruction gives ("" for none), and how its line changes."""
    name = ".".join((i.opcode, *i.mods))
    drop = dropper(i)
    if i.opcode in ("bar", "barrier"):
        return "warp barrier" if "warp" in i.mods else "barrier", drop
    if re.match(r"cp\.async\.(bulk\.)?wait|wgmma\.wait_group|griddepcontrol\.wait", name):
        return "wait", drop
    if name.startswith("mbarrier.try_wait"):
        return "wait", always_ready
    if name.startswith("mbarrier.arrive"):
        return "arrival", drop
    if i.opcode in ("fence", "membar") or name.startswith("wgmma.fence"):
        return "fence", drop
    if i.opcode in ("ld", "st", "red", "atom") and {"acquire", "release", "acq_rel"} & set(i.mods):
        return "order", relaxed
    if i.opcode == "bra" and i.predicate is not None and guards_memory(i, code, index, labels):
        return "bounds", drop
    return "", drop


def dropper(i: Instruction) -> Change:
    """The change that deletes the statement from its line; other statements there stay."""
    mnemonic = re.escape(".".join((i.opcode, *i.mods)))

    def drop(line: str) -> str:
        return re.sub(rf"(@!?[\w%$]+\s+)?{mnemonic}\b[^;]*;", "", line, count=1)

    return drop


def relaxed(line: str) -> str:
    """The line with a relaxed access in place of an acquire or release."""
    return re.sub(r"\.(acquire|release|acq_rel)\b", ".relaxed", line, count=1)


def always_ready(line: str) -> str:
    """A wait that never waits: its predicate is true at once."""
    return re.sub(
        r"mbarrier\.try_wait[\w.:]*\s+([\w%$@]+)\s*,[^;]*;", r"setp.eq.u32 \1, 0, 0;", line, count=1
    )


def guards_memory(i: Instruction, code: list[Instruction], index: int, labels: dict[str, int]) -> bool:
    """Whether it is a forward branch around stores to global memory, which keeps tiles inside the matrix."""
    target = i.operands[0]
    stop = labels.get(target.name, -1) if isinstance(target, Sym) else -1
    skipped = code[index + 1 : stop] if stop > index else []
    straight = all(one.opcode != "bra" or one.predicate is not None for one in skipped)
    return straight and any(one.opcode == "st" and "global" in one.mods for one in skipped)


# ---- judging ----


@dataclass(frozen=True)
class Variant:
    """A launch, a way to make its arrays fresh, and the test of its result. Blocks that wait for each other
    are resident together."""

    launch: Launch
    reset: Callable[[], None]
    right: Callable[[], bool]
    residency: int | None = None


@dataclass(frozen=True)
class Case:
    """One compiled kernel, launched in several ways: seed s runs variant s modulo their number."""

    kernel: str
    math: str
    variants: tuple[Variant, ...]

    @property
    def launch(self) -> Launch:
        return self.variants[0].launch


def judge(case: Case, mutant: Mutant, seeds: range, budget: int, reaching: Sequence[int]) -> Verdict:
    """Run a mutant until some schedule finds it, in the variants that come to its line, the cheapest first.
    What a bounds check holds back the plain schedule sees as well, and it is fast. A mutant without a reason
    to be missed meets more schedules."""
    place = case.kernel, case.math, mutant.kind, mutant.line, mutant.text
    variants, ptx = len(case.variants), mutant.ptx
    tries: list[tuple[int, int | None]] = (
        [(number, None) for number in reaching] if mutant.kind == "bounds" else []
    )
    for start in range(0, len(seeds) * (1 if mutant.equivalent else ROUNDS), len(seeds)):
        tried = [start + seed for seed in seeds if (start + seed) % variants in reaching]
        tries += [
            (seed % variants, seed)
            for seed in sorted(tried, key=lambda seed: reaching.index(seed % variants))
        ]
    for number, seed in tries:
        fault = fault_of(case.variants[number], ptx, seed, budget)
        if fault:
            return Verdict(*place, fault, seed)
    return Verdict(*place, None, None, mutant.equivalent)


def fault_of(variant: Variant, ptx: str, seed: int | None, budget: int) -> str:
    """The fault of a kernel, "result" for wrong numbers, "" if all is well."""
    launch = replace(variant.launch, binary=replace(variant.launch.binary, ptx=ptx))
    variant.reset()
    try:
        run(
            launch,
            sanitize=seed is not None,
            seed=seed,
            budget=budget,
            residency=variant.residency,
            counting=False,
        )
    except MachineFault as fault:
        return type(fault).__name__
    return "" if variant.right() else "result"


@dataclass(frozen=True)
class Baseline:
    """What runs of the unbroken kernel show: by variant its steps and the lines that it comes to, and
    false alarms."""

    runs: int
    steps: Mapping[int, int]
    reached: Mapping[int, frozenset[int]]
    false_alarms: tuple[str, ...]

    def __or__(self, other: Baseline) -> Baseline:
        numbers = {**self.steps, **other.steps}
        steps = {number: max(self.steps.get(number, 0), other.steps.get(number, 0)) for number in numbers}
        nowhere = frozenset[int]()
        reached = {
            number: self.reached.get(number, nowhere) | other.reached.get(number, nowhere)
            for number in numbers
        }
        return Baseline(self.runs + other.runs, steps, reached, self.false_alarms + other.false_alarms)

    def reaching(self, line: int) -> list[int]:
        """The variants that come to a line, the cheapest first."""
        coming = [number for number, lines in self.reached.items() if line in lines]
        return sorted(coming, key=lambda number: self.steps[number])


NOTHING_RUN = Baseline(0, {}, {}, ())


def run_baseline(case: Case, seeds: Iterable[int]) -> Baseline:
    """What the unbroken kernel does in these schedules."""
    baseline = NOTHING_RUN
    for seed in seeds:
        number = seed % len(case.variants)
        variant = case.variants[number]
        variant.reset()
        steps, reached = 0, frozenset[int]()
        try:
            report = run(
                variant.launch, sanitize=True, seed=seed, residency=variant.residency, counting=False
            )
            steps, reached = report.steps, report.reached
            fault = "" if variant.right() else "a wrong result"
        except MachineFault as raised:
            fault = str(raised)
        alarms = [f"{case.kernel} in {case.math}, seed {seed}: {fault}"] if fault else []
        baseline |= Baseline(1, {number: steps}, {number: reached}, tuple(alarms))
    return baseline


def mutants_of(case: Case) -> list[Mutant]:
    return list(mutants(case.launch.binary.ptx, case.launch.binary.entry))


def break_mutants(case: Case, chosen: Iterable[Mutant], baseline: Baseline, seeds: range) -> Survey:
    """The verdicts of mutants that a run of the unbroken kernel comes to."""
    result, unreached, budget = Survey(), 0, BUDGET_FACTOR * max(baseline.steps.values(), default=0) + 10_000
    for mutant in chosen:
        if reaching := baseline.reaching(mutant.line):
            result.verdicts.append(judge(case, mutant, seeds, budget, reaching))
        else:
            unreached += 1
    result.unbroken.append(Unbroken(case.kernel, case.math, 0, (), unreached))
    return result


def survey(cases: Iterable[Case], seeds: int = 10, kinds: tuple[str, ...] = KINDS) -> Survey:
    """Break every kernel everywhere, and run each unbroken as often."""
    parts = []
    for case in cases:
        every = range(max(seeds, len(case.variants)))
        baseline = run_baseline(case, every)
        chosen = [mutant for mutant in mutants_of(case) if mutant.kind in kinds]
        parts += [
            baseline_survey(case.kernel, case.math, baseline),
            break_mutants(case, chosen, baseline, every),
        ]
    return merged(parts)


def baseline_survey(kernel: str, math: str, baseline: Baseline) -> Survey:
    """A survey of the unbroken kernel alone."""
    return Survey([], [Unbroken(kernel, math, baseline.runs, baseline.false_alarms)])


def merged(parts: Iterable[Survey]) -> Survey:
    """The surveys as one, with one entry for each kernel and math."""
    result, unbroken = Survey(), dict[tuple[str, str], Unbroken]()
    for part in parts:
        result.verdicts += part.verdicts
        result.cut += part.cut
        for kernel in part.unbroken:
            old = unbroken.get((kernel.kernel, kernel.math), Unbroken(kernel.kernel, kernel.math, 0))
            unbroken[kernel.kernel, kernel.math] = replace(
                old,
                runs=old.runs + kernel.runs,
                false_alarms=old.false_alarms + kernel.false_alarms,
                unreached=old.unreached + kernel.unreached,
            )
    result.unbroken = list(unbroken.values())
    return result
