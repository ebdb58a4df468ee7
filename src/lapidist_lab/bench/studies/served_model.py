"""What it costs a served model that rows keep their bits: decode of 1 to 64 sequences, with prefills between.

The model is Llama-shaped. A trace is drawn once; all its steps are CUDA graphs, as servers have them. Both
ways take turns over the whole trace.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.contenders import KernelContender
from lapidist_lab.bench.protocol.measure import Stage
from lapidist_lab.bench.protocol.record import Conditions, Record
from lapidist_lab.bench.protocol.timing import SUSTAINED
from lapidist_lab.bench.studies.invariant_products import LAYERS as OF_MODELS
from lapidist_lab.bench.studies.invariant_products import MATH, NAME, Invariant
from lapidist_lab.bench.studies.ladder_runs import Keep, Work, compile_first, sensor_range
from lapidist_lab.bench.studies.llama import captured
from lapidist_lab.bench.studies.turns import compare

MODE, FREE = "served invariant", "lapidist, served"
SERVED = f"{NAME}, served"
SEQUENCES, PREFILLS, STEPS, EVERY = (1, 2, 4, 8, 16, 32, 64), (128, 512, 1024), 64, 8
PAST, ROUNDS = 512, 7  # tokens that a decoded one sees
Linear = Callable[[Any, Any], Any]


class Shape(NamedTuple):
    layers: int = 8
    hidden: int = 4096
    inner: int = 14336
    heads: int = 32
    shared: int = 8  # heads of keys and values
    words: int = 32000

    @property
    def matrices(self) -> tuple[tuple[int, int], ...]:
        """n and k of a layer's products, as the 8B model of the other study has them, and of the head."""
        size = self.hidden // self.heads
        ours = ((self.heads + 2 * self.shared) * size, self.hidden), (self.hidden, self.hidden)
        return *ours, (2 * self.inner, self.hidden), (self.hidden, self.inner), (self.words, self.hidden)


class Step(NamedTuple):
    """Sequences that decode one token each, or one prefill of so many tokens."""

    batch: int
    tokens: int

    @property
    def rows(self) -> int:
        return self.batch * self.tokens


def trace(seed: int = 0) -> list[Step]:
    """Steps of as many sequences as are drawn, with a prefill every few steps."""
    draw = random.Random(seed)
    return [
        Step(draw.choice(SEQUENCES), 1) if number % EVERY else Step(1, draw.choice(PREFILLS))
        for number in range(STEPS)
    ]


def tokens_of(steps: Sequence[Step]) -> int:
    """Tokens that come out: one for each sequence of a step, a prefill's too."""
    return sum(step.batch for step in steps)


class Model:
    """Random weights, and caches of random keys and values."""

    def __init__(self, shape: Shape, device: str) -> None:
        import torch

        torch.manual_seed(0)
        make = partial(torch.randn, device=device, dtype=torch.bfloat16)
        *of_layer, of_head = shape.matrices
        self.shape = shape
        self.layers = [[make(n, k) / k**0.5 for n, k in of_layer] for _ in range(shape.layers)]
        self.head = make(*of_head) / shape.hidden**0.5
        size = shape.hidden // shape.heads
        self.cache = [make(2, max(SEQUENCES), shape.shared, PAST, size) for _ in range(shape.layers)]
        self.make = make

    def run(self, x: Any, linear: Linear) -> Any:
        """The logits of each sequence's last token; x: (sequences, tokens, hidden)."""
        import torch

        norm = torch.nn.functional.rms_norm
        for (qkv, joined, up, down), cache in zip(self.layers, self.cache, strict=True):
            x = x + linear(self.attended(linear(norm(x, x.shape[-1:]), qkv), cache), joined)
            first, second = linear(norm(x, x.shape[-1:]), up).chunk(2, -1)
            x = x + linear(torch.nn.functional.silu(first) * second, down)
        return linear(norm(x[:, -1], x.shape[-1:]), self.head)

    def attended(self, qkv: Any, cache: Any) -> Any:
        """A decoded token sees the cache and itself, one of a prefill those before it."""
        import torch

        heads, shared = self.shape.heads, self.shape.shared
        parts = qkv.unflatten(-1, (heads + 2 * shared, -1)).transpose(1, 2)
        q, k, v = parts.split((heads, shared, shared), 1)
        if qkv.shape[1] == 1:
            k, v = (torch.cat((past[: len(q)], new), 2) for past, new in zip(cache, (k, v), strict=True))
        causal = qkv.shape[1] > 1
        attention = torch.nn.functional.scaled_dot_product_attention
        return attention(q, k, v, is_causal=causal, enable_gqa=True).transpose(1, 2).flatten(2)


def calls_of(model: Model, steps: Sequence[Step], linear: Linear, capture: Any) -> Callable[[], Any]:
    """All steps of a trace, one after another. `capture` makes one call of a step: a graph, on a GPU."""
    made = {}
    for step in sorted(set(steps), key=lambda step: -step.rows):
        x = model.make(step.batch, step.tokens, model.shape.hidden)
        made[step] = capture(partial(model.run, x, linear))

    def run() -> Any:
        for step in steps:
            result = made[step]()
        return result

    return run


def contest(
    model: Model, steps: Sequence[Step], ways: Sequence[Linear], capture: Any, wait: Any, rounds: int = ROUNDS
) -> list[list[float]]:
    return compare([calls_of(model, steps, linear, capture) for linear in ways], wait, rounds)


def records_of(
    times: Sequence[list[float]], steps: Sequence[Step], shape: Shape, device: str
) -> list[Record]:
    """`ratio`: of the free choice's seconds over these."""
    weights = shape.layers * sum(n * k for n, k in shape.matrices[:-1]) + shape.words * shape.hidden
    flops, free = 2.0 * weights * sum(step.rows for step in steps), sorted(times[1])[len(times[1]) // 2]
    records = []
    for name, seconds in zip((SERVED, FREE), times, strict=True):
        middle = sorted(seconds)[len(seconds) // 2]
        row = Record(
            name,
            "production",
            device,
            MATH,
            "rcr",
            tokens_of(steps),
            shape.inner,
            shape.hidden,
            seconds=middle,
            tflops=flops / middle / 1e12,
            ratio=free / middle,
            limit_share=None,
            worst=None,
            ok=True,
        )
        more: dict[str, Any] = {"seconds_min": min(seconds), "seconds_max": max(seconds), "calls": len(steps)}
        note = f"{tokens_of(steps) / middle:.0f} tokens/s"
        records.append(replace(row, mode=MODE, peer=FREE, note=note, **more))
    return records


def measure(ordinal: int, keep: Keep) -> tuple[Conditions, list[Record]]:
    """Nothing without torch, whose attention and graphs it takes."""
    records: list[Record] = []
    shape, steps = Shape(), trace()
    assert shape.matrices[:-1] == OF_MODELS["8B"]
    protocol = (
        f"{shape}; {STEPS} steps of {SEQUENCES} sequences that see {PAST} tokens, every"
        f" {EVERY}th a prefill of {PREFILLS}; CUDA graphs; median of {ROUNDS} turns"
    )
    with Stage(ordinal, SUSTAINED) as stage:
        before, device = stage.gauge.look(), stage.device
        conditions = gather(device, device.name, MODE, protocol, vendor=stage.framework.vendor(MATH))
        if stage.framework.name == "torch":
            import torch

            from lapidist.torch import linear

            ways = partial(linear, invariant=True), linear
            contenders = Invariant(MATH), KernelContender(None, MATH)
            rows = sorted({step.rows for step in steps})
            cases = [Case(m, n, k, MATH, "rc") for n, k in shape.matrices for m in rows]
            compile_first([Work(case, contenders) for case in cases], device)
            with torch.inference_mode():
                model = Model(shape, "cuda")
                times = contest(model, steps, ways, captured, lambda _: torch.cuda.synchronize())
            records = records_of(times, steps, shape, device.name)
        conditions = replace(conditions, seen=sensor_range(before, stage.gauge.look()))
        keep(conditions, records)
        return conditions, records
