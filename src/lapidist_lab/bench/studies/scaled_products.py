"""8-bit floats as models use them: factors in four forms and promoted sums, beside cuBLAS with the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lapidist.backends.gpu.doctor import TORCH_HINT
from lapidist.commands.progress import progress
from lapidist.device import Device
from lapidist.errors import ArgumentError, DeviceError
from lapidist.planning.plans import Plan, make_plan
from lapidist.planning.warm import build_all, builds_of, plans_of
from lapidist.problems.problem import Problem, dense_problem
from lapidist.problems.scaling import K_BLOCK, LINES, ONE, STRIPS, Scale, Scaling
from lapidist.problems.scaling import SQUARES as SQUARE_BLOCKS
from lapidist.verify.sum_bound import judge
from lapidist_lab.bench.protocol.cases import EVERY_CASE, Case, Part
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.contenders import Call, Facts, KernelContender
from lapidist_lab.bench.protocol.measure import Entry, Inputs, Stage
from lapidist_lab.bench.protocol.record import Conditions, Record
from lapidist_lab.bench.protocol.timing import BURST, SUSTAINED, steps
from lapidist_lab.bench.studies.ladder_runs import Keep, sensor_range

MODE, BURST_MODE = "scaled", "scaled burst"
MATH = "float8_e4m3fn"
PROTOCOLS = {MODE: replace(SUSTAINED, rounds=1), BURST_MODE: BURST}  # each pair stands for itself
KINDS = {"one": ONE, "line": LINES, "strip": STRIPS, "square": SQUARE_BLOCKS}
SHAPES = ((4096, 4096, 4096), (8192, 8192, 8192), (64, 8192, 8192), (64, 28672, 8192))
# Of a mixture of experts: what publishers of kernels with block factors give figures for.
MODEL_SHAPES = ((4096, 7168, 16384), (8192, 4096, 7168), (8192, 7168, 2048))


class ScaledCase(Case):
    """A product with results in bfloat16, as cuBLAS with factors writes them."""

    __slots__ = ()

    @property
    def out_dtype(self) -> str:
        return "bfloat16"


@dataclass(frozen=True, slots=True)
class Scheme:
    """The shapes of A's and B's factors. Sums are promoted where `promoted`: cuBLAS does so unless it may be
    fast."""

    name: str
    a_shape: str
    b_shape: str
    promoted: bool

    def factors(self, torch: Any, case: Case) -> tuple[Any, Any]:
        """Factors between 1/2 and 3/2, in the layout that cuBLAS demands."""
        blocks, squares = -(-case.k // K_BLOCK), -(-case.n // K_BLOCK)
        rows = {"one": (1, 1), "line": (1, case.m), "strip": (blocks, case.m)}[self.a_shape]
        a = (torch.rand(*rows, device="cuda") + 0.5).T
        if self.b_shape == "square":
            return a, (torch.rand(squares, blocks, device="cuda") + 0.5).T
        cols = {"one": (1, 1), "line": (1, case.n), "strip": (blocks, case.n)}[self.b_shape]
        return a, torch.rand(*cols, device="cuda") + 0.5

    def problem(self, case: Case) -> Problem:
        """The problem that is compiled: it does not depend on where factors lie."""
        scaling = Scaling(Scale(KINDS[self.a_shape]), Scale(KINDS[self.b_shape]), self.promoted)
        return replace(dense_problem(*case.extents, MATH, "rc"), out_dtype=case.out_dtype, scaling=scaling)


SCHEMES = (
    Scheme("one factor each", "one", "one", False),
    Scheme("one factor each, promoted", "one", "one", True),
    Scheme("rows and columns", "line", "line", False),
    Scheme("rows and columns, promoted", "line", "line", True),
    Scheme("1 x 128 and 128 x 128", "strip", "square", True),
    Scheme("1 x 128 each", "strip", "strip", True),
)


# on which products of models are multiplied: as plain ones, and by blocks
OF_MODELS = SCHEMES[0], SCHEMES[4]


class OursScaled(KernelContender):
    """The planner's choice with these factors. `invariant`: in the one order of any number of rows."""

    def __init__(
        self, scheme: Scheme, factors: tuple[Any, Any], name: str = "", invariant: bool = False
    ) -> None:
        super().__init__(None, MATH, name=name or f"lapidist, {scheme.name}")
        self.scheme, self.factors, self.invariant = scheme, factors, invariant

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        from lapidist.calls import planned_call

        scale_a, scale_b = self.factors
        how: dict[str, Any] = {"promote": self.scheme.promoted, "invariant": self.invariant}
        gemm = planned_call.plan(a[0], b[0], out=c[0], scale_a=scale_a, scale_b=scale_b, **how)
        self.plan = gemm.plan
        return lambda i: gemm.execute(a[i], b[i], None, c[i])

    def planned(self, case: Case, device: Device) -> Plan:
        return make_plan(replace(self.scheme.problem(case), invariant=self.invariant), device)


class VendorScaled:
    """torch._scaled_mm with these factors. It promotes those along k by itself."""

    kind = "peer"
    columns = True
    capturable = True

    def __init__(self, scheme: Scheme, factors: tuple[Any, Any], torch: Any) -> None:
        self.name = f"cublas, {scheme.name}"
        self.scheme, self.factors, self.torch = scheme, factors, torch

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        scaled, out_dtype = self.torch._scaled_mm, c[0].dtype
        options = {"use_fast_accum": True} if not self.scheme.promoted else {}
        scale_a, scale_b = self.factors
        return lambda i: scaled(a[i], b[i], scale_a, scale_b, out_dtype=out_dtype, out=c[i], **options)

    def facts(self, device: Device) -> Facts:
        return Facts(config="its own choice")


class ScaledStage(Stage):
    """Judges with the factors of the contender."""

    def judge(self, entry: Entry, case: Case, inputs: Inputs, index: int) -> None:
        assert entry.call is not None
        assert isinstance(entry.contender, (OursScaled, VendorScaled))
        self.framework.poison(inputs.c[index])
        entry.call(index)
        (scale_a, scale_b), ours = entry.contender.factors, entry.contender.kind != "peer"
        promoted = entry.contender.scheme.promoted and ours  # what cuBLAS does inside is its own
        b, more = (
            inputs.b_for(entry.contender)[index],
            {"scale_a": scale_a, "scale_b": scale_b, "promoted": promoted},
        )
        self.keep_verdict(entry, judge(inputs.c[index], inputs.a[index], b, unit=entry.facts.unit, **more))


def pairs_of(part: Part) -> list[tuple[Case, Scheme]]:
    """A part of all schemes on all shapes, those of models on theirs."""
    every = [(shape, scheme) for shape in SHAPES for scheme in SCHEMES]
    every += [(shape, scheme) for shape in MODEL_SHAPES for scheme in OF_MODELS]
    pairs: list[tuple[Case, Scheme]] = [(ScaledCase(*shape, MATH), scheme) for shape, scheme in every]
    chosen = pairs[part.skip :][: part.count]
    if not chosen:
        raise ArgumentError(f"--skip: must leave something of {len(pairs)} pairs; got {part.skip}. Skip less")
    return chosen


def measure(
    ordinal: int, keep: Keep, part: Part = EVERY_CASE, mode: str = MODE
) -> tuple[Conditions, list[Record]]:
    """The rows of each pair, on inputs of its own."""
    records: list[Record] = []
    pairs, protocol = pairs_of(part), PROTOCOLS[mode]
    with ScaledStage(ordinal, protocol) as stage:
        if stage.framework.name != "torch":
            raise DeviceError(
                "bench scaled: compares with torch._scaled_mm; torch was not found. Install it with:"
                f" {TORCH_HINT}"
            )
        before, torch = stage.gauge.look(), stage.framework.torch  # type: ignore[attr-defined]
        vendor = f"cuBLAS by torch._scaled_mm (torch {torch.__version__})"
        conditions = gather(stage.device, stage.device.name, mode, str(protocol), vendor=vendor)
        build_all(builds_of(plans_of([scheme.problem(case) for case, scheme in pairs], stage.device)))
        with progress(len(pairs) * steps([_PAIR, _PAIR], protocol), "scaled") as step:
            for case, scheme in pairs:
                factors = scheme.factors(torch, case)
                pair = VendorScaled(scheme, factors, torch), OursScaled(scheme, factors)
                records += [replace(row, mode=mode) for row in stage.measure(case, pair, step)]
                conditions = replace(conditions, seen=sensor_range(before, stage.gauge.look()))
                keep(conditions, records)
        return conditions, records


_PAIR = VendorScaled(SCHEMES[0], (None, None), None)
