"""Rows of tokens by packed experts: gathered by their indices, or scattered to tokens with a factor each.

Weights are whole numbers by a power of two, as in few_bits_model. A graph has several calls; ways take turns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import lapidist
from lapidist.build.compile_policy import VARIABLE, WAIT
from lapidist.epilogues.ready_made import scaled_rows
from lapidist.quantised import stack
from lapidist_lab.bench.protocol.cases import EVERY_CASE, Part
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.measure import Stage
from lapidist_lab.bench.protocol.record import Conditions, Record
from lapidist_lab.bench.protocol.timing import SUSTAINED
from lapidist_lab.bench.studies.few_bits import MODE, packed, whole_numbers
from lapidist_lab.bench.studies.group_cases import Layer
from lapidist_lab.bench.studies.ladder_runs import Keep, sensor_range
from lapidist_lab.bench.studies.llama import captured, worst_of
from lapidist_lab.bench.studies.turns import compare

GATHERED, SCATTERED = "gathered", "scattered"
STOCK, PLAIN, *FEW_BITS = WAYS = ["torch, bf16", "lapidist, bf16", "lapidist, int4", "lapidist, mxfp4"]
NAMES = [f"{way}, {routing}" for routing in (GATHERED, SCATTERED) for way in WAYS]
ROUNDS, EXPONENT, CALLS = 5, -8, 10
Call = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """Each of `tokens` goes to `top` experts of a layer, which are drawn."""

    layer: Layer
    routing: str
    tokens: int
    top: int

    @property
    def pairs(self) -> int:
        return self.tokens * self.top


EIGHT, QWEN = Layer("DeepSeek-V3, 8 experts", 8, 7168, 4096), Layer("Qwen3-30B", 128, 2048, 1536)
CASES = [
    *(Case(EIGHT, GATHERED, tokens, 1) for tokens in (8, 48)),
    Case(EIGHT, SCATTERED, 48, 1),
    *(Case(QWEN, GATHERED, tokens, 8) for tokens in (1, 16, 64)),
    *(Case(QWEN._replace(k=768, n=2048), SCATTERED, tokens, 8) for tokens in (16, 64)),
]


class Routed:
    """The rows, routes and weights of a case; weights are (experts, n, k) as torch's layers have them."""

    def __init__(self, case: Case, weights: Any) -> None:
        import torch

        torch.manual_seed(case.pairs)
        device, experts = weights.device, case.layer.experts
        chosen = torch.rand(case.tokens, experts, device=device).topk(case.top).indices.flatten()
        order, counts = chosen.argsort(stable=True), chosen.bincount(minlength=experts)
        self.case, self.weights = case, weights
        self.offsets = counts.cumsum(0).to(torch.int32)
        self.token = (order // case.top).to(torch.int32)  # of each row
        self.order = order.to(torch.int32)
        self.factors = torch.rand(case.pairs, device=device)
        self.indices, self.weighed = order, self.factors[order, None]
        rows = case.tokens if case.routing == GATHERED else case.pairs
        self.x = torch.randn(rows, case.layer.k, device=device, dtype=torch.bfloat16)
        self.out = self.x.new_zeros(case.pairs, case.layer.n)

    def weight_of(self, way: str) -> Any:
        if way in (STOCK, PLAIN):
            return self.weights.transpose(1, 2)
        format = way.partition(", ")[2]
        return stack([packed(rows, format, EXPONENT) for rows in self.weights])

    def product(self, way: str) -> Call:
        """What starts the product in that way."""
        weight = self.weight_of(way)
        if way == STOCK:
            return partial(self.by_torch, weight)
        multiply = partial(lapidist.grouped, self.x, weight, self.offsets)
        if self.case.routing == GATHERED:
            return partial(multiply, gather_a=self.token)
        return partial(
            multiply, scatter_d=self.order, out=self.out, epilogue=scaled_rows(factors=self.factors)
        )

    def by_torch(self, weight: Any) -> Any:
        import torch

        x = self.x[self.token] if self.case.routing == GATHERED else self.x
        result = torch._grouped_mm(x, weight, offs=self.offsets)
        if self.case.routing == GATHERED:
            return result
        return self.out.index_copy_(0, self.indices, (result * self.weighed).to(result.dtype))


def repeated(call: Call) -> Call:
    """A graph of several calls."""

    def several() -> Any:
        for _ in range(CALLS):
            result = call()
        return result

    return captured(several)


def contest(
    routed: Routed, capture: Callable[[Call], Call], wait: Any, rounds: int
) -> tuple[list[list[float]], list[float]]:
    """Seconds of each way's turns, and how far its results are from those of bfloat16, over the bound."""
    calls = [routed.product(way) for way in WAYS]
    results = [call().clone() for call in calls]
    expected = results[WAYS.index(PLAIN)]
    times = compare([capture(call) for call in calls], wait, rounds)
    return times, [worst_of(result, expected) for result in results]


def records_of(
    times: Sequence[list[float]], worst: Sequence[float], case: Case, device: str, calls: int = CALLS
) -> list[Record]:
    """`ratio`: the seconds of the fastest way in bfloat16 over these."""
    middles = [median(seconds) / calls for seconds in times]
    peer = min((STOCK, PLAIN), key=lambda way: middles[WAYS.index(way)])
    base, (_, experts, k, n) = middles[WAYS.index(peer)], case.layer
    flops, records = 2.0 * case.pairs * n * k, []
    for way, seconds, middle, error in zip(WAYS, times, middles, worst, strict=True):
        kind, ratio, ok = "peer" if way == STOCK else "production", base / middle, error <= 1.0
        names, speed = (f"{way}, {case.routing}", kind, device, "bfloat16", "rcr"), flops / middle / 1e12
        row = Record(*names, case.pairs, n, k, middle, speed, ratio, None, error, ok, MODE)
        tokens = f"{case.tokens} token" + "s" * (case.tokens > 1)
        note = f"{case.layer.name}: {experts} experts, {tokens}, each to {case.top}"
        least, most = min(seconds) / calls, max(seconds) / calls
        row = replace(row, seconds_min=least, seconds_max=most, calls=calls)
        records.append(replace(row, peer=f"{peer}, {case.routing}", note=note))
    return records


def measure(ordinal: int, keep: Keep, part: Part = EVERY_CASE) -> tuple[Conditions, list[Record]]:
    """Nothing without torch, whose graphs it takes."""
    os.environ.setdefault(VARIABLE, WAIT)
    records: list[Record] = []
    protocol = f"{CALLS} calls in a CUDA graph; median of {ROUNDS} turns; tokens' experts drawn once"
    with Stage(ordinal, SUSTAINED) as stage:
        before, device = stage.gauge.look(), stage.device
        inputs = "weights whole numbers of int4 and e2m1 by a power of two; rows standard normal"
        vendor = f"torch._grouped_mm; {stage.framework.vendor('bfloat16')}"
        conditions = gather(device, device.name, MODE, protocol, vendor=vendor, inputs=inputs)
        if stage.framework.name == "torch":
            import torch

            for case in CASES[part.skip :][: part.count]:
                experts, k, n = case.layer[1:]
                weights = torch.stack([whole_numbers(n, k) * 2.0**EXPONENT for _ in range(experts)])
                found = contest(Routed(case, weights), repeated, lambda _: torch.cuda.synchronize(), ROUNDS)
                records += records_of(*found, case, device.name)
                keep(conditions, records)
        conditions = replace(conditions, seen=sensor_range(before, stage.gauge.look()))
        keep(conditions, records)
        return conditions, records
