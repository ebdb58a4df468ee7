"""The machine's own proof: break real kernels in their PTX, one instruction at a time, and see what is found.

A mutant loses one barrier, wait, arrival, fence or bounds check. It counts as found if some schedule raises a fault, or
if the result is wrong. The unbroken kernel must raise nothing at any seed: each fault there is a false alarm.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lapidist.launch import Launch
from lapidist.machine.faults import MachineFault
from lapidist.machine.parse import parse_kernel
from lapidist.machine.ptx import Instruction, Sym
from lapidist.machine.run import run

if TYPE_CHECKING:
    from lapidist.device import Device
    from lapidist.kernel import Kernel

KINDS = ("barrier", "warp barrier", "wait", "arrival", "fence", "bounds")
BUDGET_FACTOR = 12


@dataclass(frozen=True)
class Mutant:
    """A kernel with one line changed."""

    kind: str
    line: int
    text: str
    ptx: str = field(repr=False)


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: the seed and the fault that found it ("result": only the numbers were wrong)."""

    kernel: str
    kind: str
    line: int
    text: str
    found_by: str | None
    seed: int | None


@dataclass
class Survey:
    """All verdicts of some kernels, and the false alarms of the unbroken ones."""

    verdicts: list[Verdict] = field(default_factory=list)
    clean_runs: int = 0
    false_alarms: list[str] = field(default_factory=list)

    def share(self, kind: str) -> tuple[int, int]:
        """(found, all) of a kind."""
        mine = [verdict for verdict in self.verdicts if verdict.kind == kind]
        return sum(verdict.found_by is not None for verdict in mine), len(mine)

    def as_json(self) -> dict[str, object]:
        shares = {kind: self.share(kind) for kind in KINDS}
        return {
            "found": {kind: {"found": found, "of": total} for kind, (found, total) in shares.items()},
            "clean_runs": self.clean_runs,
            "false_alarms": self.false_alarms,
            "mutants": [asdict(verdict) for verdict in self.verdicts],
        }

    def __str__(self) -> str:
        lines = ["| removed | found | share |", "|---|---|---|"]
        for kind in KINDS:
            found, total = self.share(kind)
            if total:
                lines.append(f"| {kind} | {found} of {total} | {found / total:.0%} |")
        lines.append("")
        lines.append(f"{len(self.false_alarms)} false alarms in {self.clean_runs} runs of unbroken kernels")
        missed = [verdict for verdict in self.verdicts if verdict.found_by is None]
        lines += [f"not found: {verdict.kernel} line {verdict.line}: {verdict.text}" for verdict in missed]
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
            yield Mutant(kind, i.site.line, i.site.text, "\n".join([*lines[:line], broken, *lines[line + 1 :]]))


Change = Callable[[str], str]


def breaking(i: Instruction, code: list[Instruction], index: int, labels: dict[str, int]) -> tuple[str, Change]:
    """The kind of mutant that this instruction gives ("" for none), and how its line changes."""
    name = ".".join((i.opcode, *i.mods))
    drop = dropper(i)
    if i.opcode in ("bar", "barrier"):
        return "warp barrier" if "warp" in i.mods else "barrier", drop
    if re.match(r"cp\.async\.(bulk\.)?wait|wgmma\.wait_group", name):
        return "wait", drop
    if name.startswith("mbarrier.try_wait"):
        return "wait", always_ready
    if name.startswith("mbarrier.arrive"):
        return "arrival", drop
    if i.opcode in ("fence", "membar") or name.startswith("wgmma.fence"):
        return "fence", drop
    if i.opcode == "bra" and i.predicate is not None and guards_memory(i, code, index, labels):
        return "bounds", drop
    return "", drop


def dropper(i: Instruction) -> Change:
    """Delete the statement from its line; other statements there stay."""
    mnemonic = re.escape(".".join((i.opcode, *i.mods)))

    def drop(line: str) -> str:
        return re.sub(rf"(@!?[\w%$]+\s+)?{mnemonic}\b[^;]*;", "", line, count=1)

    return drop


def always_ready(line: str) -> str:
    """A wait that never waits: its predicate is true at once."""
    return re.sub(r"mbarrier\.try_wait[\w.:]*\s+([\w%$@]+)\s*,[^;]*;", r"setp.eq.u32 \1, 0, 0;", line, count=1)


def guards_memory(i: Instruction, code: list[Instruction], index: int, labels: dict[str, int]) -> bool:
    """A forward branch around stores to global memory: what keeps a border tile inside its matrix."""
    target = i.operands[0]
    stop = labels.get(target.name, -1) if isinstance(target, Sym) else -1
    skipped = code[index + 1 : stop] if stop > index else []
    straight = all(one.opcode != "bra" or one.predicate is not None for one in skipped)
    return straight and any(one.opcode == "st" and "global" in one.mods for one in skipped)


# ---- judging ----


@dataclass(frozen=True)
class Variant:
    """A launch, a way to make its arrays fresh, and the test of its result."""

    launch: Launch
    reset: Callable[[], None]
    right: Callable[[], bool]


@dataclass(frozen=True)
class Case:
    """One compiled kernel, launched in several ways: seed s runs variant s modulo their number."""

    kernel: str
    variants: tuple[Variant, ...]

    @property
    def launch(self) -> Launch:
        return self.variants[0].launch


def judge(case: Case, mutant: Mutant, seeds: Iterable[int], budget: int) -> Verdict:
    """Run a mutant until some seed finds it."""
    for seed in seeds:
        variant = case.variants[seed % len(case.variants)]
        broken = replace(variant.launch, binary=replace(variant.launch.binary, ptx=mutant.ptx))
        variant.reset()
        try:
            run(broken, sanitize=True, seed=seed, budget=budget)
        except MachineFault as fault:
            return Verdict(case.kernel, mutant.kind, mutant.line, mutant.text, type(fault).__name__, seed)
        if not variant.right():
            return Verdict(case.kernel, mutant.kind, mutant.line, mutant.text, "result", seed)
    return Verdict(case.kernel, mutant.kind, mutant.line, mutant.text, None, None)


def survey(
    cases: Iterable[Case],
    seeds: int = 10,
    on_verdict: Callable[[Verdict], None] | None = None,
    kinds: tuple[str, ...] = KINDS,
) -> Survey:
    """Break every kernel everywhere, and run each unbroken as often."""
    result = Survey()
    for case in cases:
        steps = check_clean(case, seeds, result)
        for mutant in mutants(case.launch.binary.ptx, case.launch.binary.entry):
            if mutant.kind not in kinds:
                continue
            verdict = judge(case, mutant, range(seeds), BUDGET_FACTOR * steps + 10_000)
            result.verdicts.append(verdict)
            if on_verdict is not None:
                on_verdict(verdict)
    return result


def check_clean(case: Case, seeds: int, result: Survey) -> int:
    """Run the unbroken kernel at every seed; returns the most steps it takes."""
    steps = 0
    for seed in range(seeds):
        variant = case.variants[seed % len(case.variants)]
        variant.reset()
        result.clean_runs += 1
        try:
            steps = max(steps, run(variant.launch, sanitize=True, seed=seed).steps)
        except MachineFault as fault:
            result.false_alarms.append(f"{case.kernel}, seed {seed}: {fault}")
        else:
            if not variant.right():
                result.false_alarms.append(f"{case.kernel}, seed {seed}: a wrong result")
    return steps


# ---- the project's own kernels ----

# Small, with a tail in both directions.
ROWS, COLUMNS = 72, 136
UNROLLED = 4


def registered_cases(names: Iterable[str] | None = None, dtype: str = "float32") -> Iterator[Case]:
    """One case for each registered kernel that takes such a problem."""
    from lapidist.device import chip
    from lapidist.errors import RefusalError
    from lapidist.kernels import KERNELS

    chosen = None if names is None else set(names)
    for kernel in KERNELS:
        if chosen is None or kernel.name in chosen:
            try:
                yield gemm_case(kernel, chip("h200"), dtype, (ROWS, COLUMNS, depth_for(kernel, dtype)))
            except RefusalError:
                continue


def depth_for(kernel: Kernel, dtype: str) -> int:
    """Enough steps of k to go twice around the pipeline and through an unrolled loop, and a tail."""
    config = kernel.config_for(dtype)
    steps = 2 * max(config.stages, 1) + UNROLLED
    return max(72, steps * config.bk + 8)


def gemm_case(kernel: Kernel, device: Device, dtype: str, shape: tuple[int, int, int]) -> Case:
    """C = A B and C = A B + C, with up to three steps of k less: every remainder of a loop unrolled by four."""
    m, n, k = shape
    step = kernel.config_for(dtype).bk
    variants = []
    for less in range(UNROLLED):
        depth = k - less * step
        if depth > 0:
            variants.append(gemm_variant(kernel, device, dtype, (m, n, depth), float(less % 2)))
    same = [variant for variant in variants if variant.launch.binary.ptx == variants[0].launch.binary.ptx]
    return Case(kernel.name, tuple(same))


def gemm_variant(kernel: Kernel, device: Device, dtype: str, shape: tuple[int, int, int], beta: float) -> Variant:
    """Small integers, so that the right result is exact in every order of summation."""
    from lapidist.arrays import operand_of
    from lapidist.errors import RefusalError
    from lapidist.plans import make_plan
    from lapidist.problem import Problem

    m, n, k = shape
    random = np.random.default_rng(1)
    a, b, c = (random.integers(-4, 5, size).astype(dtype) for size in ((m, k), (k, n), (m, n)))
    d = np.empty((m, n), dtype)
    first, second, out = operand_of(a, "a"), operand_of(b, "b"), operand_of(d, "out")
    try:
        plan = make_plan(Problem.of(first, second, None, out), device, kernel)
    except RefusalError:
        # The other layout of B; what refuses that too is refused.
        second = operand_of(np.asfortranarray(b), "b")
        plan = make_plan(Problem.of(first, second, None, out), device, kernel)
    before = c if beta else np.full_like(d, np.nan)
    wanted = (a.astype("f8") @ b.astype("f8") + (c if beta else 0)).astype(dtype)
    launch = plan.launch(first, second, None, out, 1.0, beta)
    return Variant(launch, partial(np.copyto, d, before), partial(np.array_equal, d, wanted))
