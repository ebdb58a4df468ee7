"""Products that end with an epilogue, as a linear layer's do: beside the product alone, and torch's kernels,
separate and by torch.compile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lapidist.backends.gpu.doctor import TORCH_HINT
from lapidist.bench.protocol.cases import WHOLE, Case, Part
from lapidist.bench.protocol.conditions import gather
from lapidist.bench.protocol.contenders import Call, Contender, Facts, KernelContender
from lapidist.bench.protocol.measure import SUSTAINED, Entry, Inputs, Stage, steps
from lapidist.bench.protocol.record import Conditions, Record
from lapidist.bench.studies.climb import Keep, progress, seen_between
from lapidist.device import Device
from lapidist.dtypes import TYPES
from lapidist.epilogues.passes import AMAX, GROUP
from lapidist.epilogues.ready import READY
from lapidist.errors import ArgumentError, DeviceError
from lapidist.verify import Expected, expect, to_float64

MODE = "epilogue"
PROTOCOL = replace(SUSTAINED, rounds=1, turn_seconds=0.4)
SHAPES = ((1024, 4096, 4096), (4096, 4096, 4096), (8192, 4096, 14336))
STEEPEST = 1.13  # GELU's slope, the largest of any here
FAR = 16  # units in the last place of float that its functions may be off


GROUPS = "quantise_e4m3_groups"
LARGEST, E4M3_ROUNDOFF, E4M3_SPACING = 448, 2**-4, 2**-10


@dataclass(frozen=True, slots=True)
class Ending:
    """A ready-made epilogue, or none; `after`: what torch's own kernels do to a bias' sums, in place.
    `aside`: it has no bias, and results in place of D, or beside it."""

    name: str
    after: tuple[str, ...] = ()

    @property
    def aside(self) -> bool:
        return self.name in (AMAX, GROUPS)

    def store_aside(self, torch: Any, sums: Any, *results: Any) -> None:
        """By torch, of what is D without the epilogue."""
        if self.name == AMAX:
            results[0].copy_(torch.linalg.vector_norm(sums, float("inf")))
            return
        small, factors = results
        groups = sums.unflatten(1, (-1, GROUP))
        factors.copy_(groups.abs().amax(-1).float() / LARGEST)
        small.unflatten(1, (-1, GROUP)).copy_(groups / factors.unsqueeze(-1))

    def finish(self, torch: Any, sums: Any, residual: Any) -> Any:
        for each in self.after:
            sums = torch.ops.aten.gelu_(sums) if each == "gelu" else sums.add_(residual)
        return sums

    def operands(self, bias: Any, residual: Any) -> dict[str, Any]:
        known = {"bias": bias, "residual": residual}
        return {each.name: known[each.name] for each in READY[self.name].function.parameters}


PLAIN = "plain"
ENDINGS = (
    Ending(PLAIN),
    Ending("bias"),
    Ending("bias_gelu", ("gelu",)),
    Ending("bias_gelu_residual", ("gelu", "residual")),
    Ending(AMAX),
    Ending(GROUPS),
)


class Operands:
    """Biases, residuals and results beside D of a case, as many as there are sets of inputs."""

    def __init__(self, torch: Any, case: Case) -> None:
        self.torch, self.case = torch, case
        self.bias: list[Any] = []
        self.residual: list[Any] = []
        self.largest: list[Any] = []
        self.small: list[Any] = []
        self.factors: list[Any] = []

    def of(self, count: int) -> Operands:
        kind = getattr(self.torch, self.case.out_dtype)
        while len(self.bias) < count:
            self.bias.append(self.torch.randn(self.case.n, device="cuda").to(kind))
            self.residual.append(self.torch.randn(self.case.m, self.case.n, device="cuda").to(kind))
            empty, (m, n) = self.torch.empty, self.case.extents[:2]
            self.largest.append(empty((), device="cuda"))
            self.small.append(empty(m, n, device="cuda", dtype=self.torch.float8_e4m3fn))
            self.factors.append(empty(m, n // GROUP, device="cuda"))
        return self

    def aside(self, ending: Ending, index: int) -> tuple[Any, ...]:
        """What an ending stores beside D, or in its place."""
        if ending.name == AMAX:
            return (self.largest[index],)
        return (self.small[index], self.factors[index]) if ending.name == GROUPS else ()


class OursFused(KernelContender):
    """The planner's choice with this epilogue."""

    def __init__(self, ending: Ending, operands: Operands, math: str) -> None:
        super().__init__(None, math, name=f"lapidist, {ending.name}", disassembled=False)
        self.ending, self.operands = ending, operands

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        from lapidist import api

        more, plans, outs = self.operands.of(len(a)), [], []
        for i in range(len(a)):
            given, aside = None, more.aside(self.ending, i)
            if self.ending.name != PLAIN:
                given = READY[self.ending.name](**self.ending.operands(more.bias[i], more.residual[i]))
            outs.append(aside if self.ending.name == GROUPS else (c[i], *aside) if aside else c[i])
            plans.append(api.plan(a[i], b[i], out=outs[i], epilogue=given))
        self.plan = plans[0].plan
        return lambda i: plans[i].execute(a[i], b[i], None, outs[i])


class TorchSeparate:
    """torch.addmm, and a kernel for each thing that follows."""

    kind, columns, capturable, how = "peer", False, True, "torch"

    def __init__(self, ending: Ending, operands: Operands) -> None:
        self.ending, self.operands, self.name = ending, operands, f"{self.how}, {ending.name}"

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        torch, more = self.operands.torch, self.operands.of(len(a))
        if self.ending.name == PLAIN:
            return lambda i: torch.mm(a[i], b[i], out=c[i])
        if self.ending.aside:
            return lambda i: self.ending.store_aside(
                torch, torch.mm(a[i], b[i], out=c[i]), *more.aside(self.ending, i)
            )
        return lambda i: self.ending.finish(
            torch, torch.addmm(more.bias[i], a[i], b[i], out=c[i]), more.residual[i]
        )

    def facts(self, device: Device) -> Facts:
        return Facts(config="its own choice")


class TorchCompiled(TorchSeparate):
    """The same by torch.compile, which joins what follows the product."""

    how = "torch.compile"

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        torch, more = self.operands.torch, self.operands.of(len(a))

        def work(a: Any, b: Any, bias: Any, residual: Any, out: Any) -> None:
            out.copy_(self.ending.finish(torch, torch.addmm(bias, a, b), residual))

        def with_results(a: Any, b: Any, out: Any, *results: Any) -> None:
            sums = torch.mm(a, b)
            if self.ending.name == AMAX:
                out.copy_(sums)
            self.ending.store_aside(torch, sums, *results)

        if self.ending.aside:
            both = torch.compile(with_results, dynamic=False)
            return lambda i: both(a[i], b[i], c[i], *more.aside(self.ending, i))
        compiled = torch.compile(work, dynamic=False)
        return lambda i: compiled(a[i], b[i], more.bias[i], more.residual[i], c[i])


class FusedStage(Stage):
    """Judges what comes after the epilogue. torch rounds between its kernels, once for each."""

    def judge(self, entry: Entry, case: Case, inputs: Inputs, index: int) -> None:
        assert entry.call is not None
        assert isinstance(entry.contender, (OursFused, TorchSeparate))
        ending, more = entry.contender.ending, entry.contender.operands.of(len(inputs.a))
        self.framework.poison(inputs.c[index])
        results = more.aside(ending, index)
        for each in results:
            each.view(more.torch.uint8).fill_(0xFF) if each.dim() else each.fill_(float("nan"))
        entry.call(index)
        found = inputs.c[index]
        if ending.name == AMAX:
            found = more.torch.cat([to_float64(found).flatten(), to_float64(results[0]).reshape(1)])
        elif ending.name == GROUPS:
            small, factors = map(to_float64, results)
            found = small * factors.repeat_interleave(GROUP, 1)
        self.keep_verdict(entry, self.expected(entry, ending, case, inputs, index).judge(found))

    def expected(self, entry: Entry, ending: Ending, case: Case, inputs: Inputs, index: int) -> Expected:
        assert isinstance(entry.contender, (OursFused, TorchSeparate))
        if ending.name == PLAIN:
            return inputs.expected(entry.contender, index, case, entry.facts.unit)
        more, output = entry.contender.operands.of(len(inputs.a)), TYPES[case.out_dtype]
        if ending.aside:
            return self.with_results(ending, inputs.expected(entry.contender, index, case, entry.facts.unit))
        sums = expect(inputs.a[index], inputs.b[index], out_dtype=more.torch.float32, unit=entry.facts.unit)
        before = sums.reference + to_float64(more.bias[index])
        after = ending.finish(more.torch, before.clone(), to_float64(more.residual[index]))
        size, times = abs(before) + abs(after), len(ending.after) if entry.contender.kind == "peer" else 0
        off = STEEPEST * sums.bound + FAR * TYPES["float32"].roundoff * size
        return Expected(after, off + output.roundoff * (abs(after) + times * size) + output.spacing)

    def with_results(self, ending: Ending, d: Expected) -> Expected:
        """D with its largest absolute value behind it, or D as 8 bits have it."""
        torch = self.framework.torch  # type: ignore[attr-defined]
        if ending.name == AMAX:
            largest = d.reference.abs().max().reshape(1), d.bound.max().reshape(1)
            return Expected(
                *(torch.cat([x.flatten(), y]) for x, y in zip((d.reference, d.bound), largest, strict=True))
            )
        factors = d.reference.abs().unflatten(1, (-1, GROUP)).amax(-1).repeat_interleave(GROUP, 1) / LARGEST
        return Expected(
            d.reference, 1.1 * d.bound + E4M3_ROUNDOFF * d.reference.abs() + 1.1 * E4M3_SPACING * factors
        )


def pairs_of(part: Part) -> list[tuple[int, int, int]]:
    found = list(SHAPES[part.skip :][: part.count])
    if not found:
        raise ArgumentError(f"--skip: must leave something of {len(SHAPES)}; got {part.skip}. Skip less")
    return found


def contenders_of(operands: Operands, math: str) -> list[Contender]:
    """The first is the vendor's product alone."""
    found: list[Contender] = []
    for ending in ENDINGS:
        found.append(TorchSeparate(ending, operands))
        if len(ending.after) or ending.aside:
            found.append(TorchCompiled(ending, operands))
        found.append(OursFused(ending, operands, math))
    return found


def beside_peers(records: Sequence[Record]) -> list[Record]:
    """Ratios to the fastest peer with the same epilogue, and what ours takes over the product alone."""
    ending_of = {record.kernel: record.kernel.partition(", ")[2] for record in records}
    plain = next((r.seconds for r in records if r.kernel == f"lapidist, {PLAIN}"), None)
    found = []
    for record in records:
        peers = [
            r.seconds
            for r in records
            if r.kind == "peer" and r.seconds and ending_of[r.kernel] == ending_of[record.kernel]
        ]
        best, seconds = min(peers, default=None), record.seconds
        ratio = best / seconds if best and seconds else None
        over = seconds / plain if plain and seconds and record.kind != "peer" else None
        found.append(replace(record, mode=MODE, ratio=ratio, over_plain=over))
    return found


def measure(ordinal: int, keep: Keep, part: Part = WHOLE) -> tuple[Conditions, list[Record]]:
    """Every ending on one shape after another, on inputs of its own."""
    records: list[Record] = []
    shapes, math = pairs_of(part), "bfloat16"
    with FusedStage(ordinal, PROTOCOL) as stage:
        if stage.framework.name != "torch":
            raise DeviceError(
                f"bench epilogue: compares with torch; it was not found. Install it with: {TORCH_HINT}"
            )
        before, torch = stage.gauge.look(), stage.framework.torch  # type: ignore[attr-defined]
        vendor = f"torch.addmm and its own kernels, separate and by torch.compile (torch {torch.__version__})"
        conditions = gather(stage.device, stage.device.name, MODE, str(PROTOCOL), vendor=vendor)
        cases = [Case(*shape, math, "rc") for shape in shapes]
        total = sum(steps(contenders_of(Operands(torch, case), math), PROTOCOL) for case in cases)
        with progress(total, MODE) as step:
            for case in cases:
                contenders = contenders_of(Operands(torch, case), math)
                records += beside_peers(stage.measure(case, contenders, step))
                conditions = replace(conditions, seen=seen_between(before, stage.gauge.look()))
                keep(conditions, records)
        return conditions, records
