"""Products that end with an epilogue, as a linear layer's do: beside the product alone, torch's kernels,
separate and by torch.compile, and cuBLASLt's own epilogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lapidist.backends.gpu.doctor import TORCH_HINT
from lapidist.commands.progress import progress
from lapidist.device import Device
from lapidist.dtypes import FP8, size_of
from lapidist.epilogues.passes import GROUP
from lapidist.errors import ArgumentError, DeviceError
from lapidist.verify.sum_bound import Expected, expect, to_float64
from lapidist_lab.bench.protocol.cases import EVERY_CASE, Case, Part
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.contenders import Call, Contender, Facts, KernelContender
from lapidist_lab.bench.protocol.measure import Entry, Inputs, Stage
from lapidist_lab.bench.protocol.record import Conditions, Record
from lapidist_lab.bench.protocol.timing import SUSTAINED, steps
from lapidist_lab.bench.studies.after_products import ENDINGS, LT, PLAIN, SWIGLU, Ending, EpilogueArrays
from lapidist_lab.bench.studies.ladder_runs import Keep, sensor_range

MODE = "epilogue"
PROTOCOL = replace(SUSTAINED, rounds=1, turn_seconds=0.25)
ROWS = (16, 512, 8192)
# up and down of an 8B model, down of a 70B one
LAYERS = ((28672, 4096), (4096, 14336), (8192, 28672))
SQUARES = ((1024, 4096, 4096), (4096, 4096, 4096), (8192, 8192, 8192), (8192, 4096, 512))
SHAPES = (*SQUARES, *((m, n, k) for n, k in LAYERS for m in ROWS))


class LayerCase(Case):
    """A product of a layer: results of 8-bit operands are bf16."""

    @property
    def out_dtype(self) -> str:
        return "bfloat16"


class Operands:
    """The arrays of a case's epilogues, one for each set of inputs."""

    def __init__(self, torch: Any, case: Case) -> None:
        self.torch, self.case, self.kind = torch, case, getattr(torch, case.out_dtype)
        self.one = torch.ones((), device="cuda")  # torch's factor of 8-bit operands
        self.sets: list[dict[str, Any]] = []

    def of(self, ending: Ending, index: int, d: Any) -> EpilogueArrays:
        """The arrays of an ending for a set; `d` is the set's array of m x n."""
        while len(self.sets) <= index:
            self.sets.append(self.make())
        one = self.sets[index] | {"d": d}
        return EpilogueArrays(one["bias"], one["residual"], tuple(one[name] for name in ending.stored))

    def make(self) -> dict[str, Any]:
        torch, (m, n) = self.torch, self.case.extents[:2]
        return {
            "bias": torch.randn(n, device="cuda").to(self.kind),
            "residual": torch.randn(m, n, device="cuda").to(self.kind),
            "second": torch.empty(m, n, device="cuda", dtype=self.kind),
            "half": torch.empty(m, n // 2, device="cuda", dtype=self.kind),
            "largest": torch.empty((), device="cuda"),
            "small": torch.empty(m, n, device="cuda", dtype=torch.float8_e4m3fn),
            "factors": torch.empty(m, n // GROUP, device="cuda"),
        }

    def sums_of(self, ending: Ending, index: int, d: Any) -> Any:
        """The array that torch's product is written to."""
        self.of(ending, index, d)
        return (self.sets[index] | {"d": d})[ending.sums_in]


class OursFused(KernelContender):
    """The planner's choice with this epilogue."""

    def __init__(self, ending: Ending, operands: Operands, math: str) -> None:
        super().__init__(None, math, name=f"lapidist, {ending.name}", disassembled=False)
        self.ending, self.operands = ending, operands

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        from lapidist.calls import planned_call

        plans, outs = [], []
        for i in range(len(a)):
            arrays = self.operands.of(self.ending, i, c[i])
            outs.append(arrays.results if len(arrays.results) > 1 else arrays.results[0])
            plans.append(
                planned_call.plan(a[i], b[i], out=outs[i], epilogue=self.ending.bound_epilogue(arrays))
            )
        self.plan = plans[0].plan
        return lambda i: plans[i].execute(a[i], b[i], None, outs[i])


class TorchSeparate:
    """The product with its bias, and a kernel for each following step."""

    kind, columns, capturable, how = "peer", False, True, "torch"

    def __init__(self, ending: Ending, operands: Operands) -> None:
        self.ending, self.operands, self.name = ending, operands, f"{self.how}, {ending.name}"

    def multiply(self, a: Any, b: Any, bias: Any, out: Any = None) -> Any:
        torch, bias = self.operands.torch, bias if self.ending.biased else None
        if size_of(self.operands.case.dtype) == 1:
            return torch._scaled_mm(
                a,
                b,
                self.operands.one,
                self.operands.one,
                bias=bias,
                out_dtype=self.operands.kind,
                use_fast_accum=True,
                out=out,
            )
        return torch.mm(a, b, out=out) if bias is None else torch.addmm(bias, a, b, out=out)

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        torch, ending = self.operands.torch, self.ending
        more = [self.operands.of(ending, i, c[i]) for i in range(len(a))]
        sums = [self.operands.sums_of(ending, i, c[i]) for i in range(len(a))]

        def work(i: int) -> None:
            ending.in_place(torch, self.multiply(a[i], b[i], more[i].bias, sums[i]), more[i])

        return work

    def facts(self, device: Device) -> Facts:
        return Facts(config="its own choice")


class TorchCompiled(TorchSeparate):
    """The same by torch.compile, which joins the kernels after the product."""

    how = "torch.compile"

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        torch, ending = self.operands.torch, self.ending
        more = [self.operands.of(ending, i, c[i]) for i in range(len(a))]

        def work(a: Any, b: Any, bias: Any, residual: Any, *results: Any) -> None:
            values = ending.after(torch, self.multiply(a, b, bias), EpilogueArrays(bias, residual, results))
            for result, value in zip(results, values, strict=True):
                result.copy_(value)

        compiled = torch.compile(work, dynamic=False)
        return lambda i: compiled(a[i], b[i], more[i].bias, more[i].residual, *more[i].results)


class CublasLt(TorchSeparate):
    """Bias and GELU by cuBLASLt's epilogue."""

    how = "cublaslt"

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        torch = self.operands.torch
        more = [self.operands.of(self.ending, i, c[i]) for i in range(len(a))]
        return lambda i: torch._addmm_activation(more[i].bias, a[i], b[i], use_gelu=True, out=c[i])


class FusedStage(Stage):
    """Judges results after the epilogue. torch rounds once between any two of its kernels."""

    def judge(self, entry: Entry, case: Case, inputs: Inputs, index: int) -> None:
        assert entry.call is not None
        assert isinstance(entry.contender, (OursFused, TorchSeparate))
        ending, operands = entry.contender.ending, entry.contender.operands
        arrays = operands.of(ending, index, inputs.c[index])
        for output in (inputs.c[index], *arrays.results):
            output.view(operands.torch.uint8).fill_(0xFF) if output.dim() else output.fill_(float("nan"))
        entry.call(index)
        peer = entry.contender.kind == "peer"
        sums = self.sums(entry, ending, inputs, index, arrays, operands)
        expected = ending.expected(operands.torch, sums, arrays, case.out_dtype, 3 if peer else 0)
        self.keep_verdict(entry, expected.judge(ending.combined(operands.torch, arrays.results)))

    def sums(
        self,
        entry: Entry,
        ending: Ending,
        inputs: Inputs,
        index: int,
        arrays: EpilogueArrays,
        operands: Operands,
    ) -> Expected:
        """The product with its bias in float64; of pairs all first columns, then all second ones."""
        torch = operands.torch
        b = inputs.b_for(entry.contender)[index]
        product = expect(inputs.a[index], b, out_dtype=torch.float32, unit=entry.facts.unit)
        bias = to_float64(arrays.bias) if ending.biased else 0
        reference, bound = product.reference + bias, product.bound
        if ending.name == SWIGLU and entry.contender.kind != "peer":
            reference, bound = (torch.cat([x[:, ::2], x[:, 1::2]], dim=1) for x in (reference, bound))
        return Expected(reference, bound)


def cases_of(part: Part) -> list[Case]:
    every = [LayerCase(*shape, "bfloat16", "rc") for shape in SHAPES]
    every += [LayerCase(*shape, FP8[0], "rc") for shape in SHAPES]
    cases: list[Case] = list(every[part.skip :][: part.count])
    if not cases:
        raise ArgumentError(f"--skip: must leave something of {len(every)}; got {part.skip}. Skip less")
    return cases


def contenders_of(operands: Operands) -> list[Contender]:
    """Ours and torch's ways for every ending. The first is the vendor's product alone."""
    contenders: list[Contender] = []
    bytewise = size_of(operands.case.dtype) == 1
    for ending in ENDINGS:
        contenders.append(TorchSeparate(ending, operands))
        if ending.compiled:
            contenders.append(TorchCompiled(ending, operands))
        if ending.name == LT and not bytewise:  # torch has cuBLASLt's GELU for 16 bits alone
            contenders.append(CublasLt(ending, operands))
        contenders.append(OursFused(ending, operands, operands.case.math))
    return contenders


def with_peer_ratios(records: Sequence[Record]) -> list[Record]:
    """Ratios to the fastest peer with the same epilogue, and what ours takes over the product alone."""
    ending_of = {record.kernel: record.kernel.partition(", ")[2] for record in records}
    plain = next((r.seconds for r in records if r.kernel == f"lapidist, {PLAIN}"), None)
    rows = []
    for record in records:
        peers = [
            r.seconds
            for r in records
            if r.kind == "peer" and r.seconds and ending_of[r.kernel] == ending_of[record.kernel]
        ]
        best, seconds = min(peers, default=None), record.seconds
        ratio = best / seconds if best and seconds else None
        over = seconds / plain if plain and seconds and record.kind != "peer" else None
        rows.append(replace(record, mode=MODE, ratio=ratio, over_plain=over))
    return rows


def measure(ordinal: int, keep: Keep, part: Part = EVERY_CASE) -> tuple[Conditions, list[Record]]:
    """Every ending on one shape after another, on inputs of its own."""
    records: list[Record] = []
    cases = cases_of(part)
    with FusedStage(ordinal, PROTOCOL) as stage:
        if stage.framework.name != "torch":
            raise DeviceError(
                f"bench epilogue: compares with torch; it was not found. Install it with: {TORCH_HINT}"
            )
        before, torch = stage.gauge.look(), stage.framework.torch  # type: ignore[attr-defined]
        vendor = (
            "torch.addmm (of 8 bits torch._scaled_mm) and its own kernels, separate and by torch.compile,"
            f" torch._addmm_activation for cuBLASLt's GELU (torch {torch.__version__})"
        )
        conditions = gather(stage.device, stage.device.name, MODE, str(PROTOCOL), vendor=vendor)
        total = sum(steps(contenders_of(Operands(torch, case)), PROTOCOL) for case in cases)
        with progress(total, MODE) as step:
            for case in cases:
                torch._dynamo.reset()  # it compiles a function eight times, and then runs it uncompiled
                contenders = contenders_of(Operands(torch, case))
                records += with_peer_ratios(stage.measure(case, contenders, step))
                conditions = replace(conditions, seen=sensor_range(before, stage.gauge.look()))
                keep(conditions, records)
        return conditions, records
