"""Decode of a Llama-shaped model whose weights have few bits, beside the same numbers in bfloat16.

All weights are whole numbers by a power of two, which bfloat16, int4 and mxfp4 hold exactly: so all ways have
one result but for rounding. Each step is a CUDA graph, as servers have them; ways take turns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

from lapidist.build.compile_policy import VARIABLE, WAIT
from lapidist.epilogues.ready_made import swiglu
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.measure import Stage
from lapidist_lab.bench.protocol.record import Conditions, Record
from lapidist_lab.bench.protocol.timing import SUSTAINED
from lapidist_lab.bench.studies.few_bits import MODE, packed, whole_numbers
from lapidist_lab.bench.studies.ladder_runs import Keep, sensor_range
from lapidist_lab.bench.studies.llama import BOUND, captured, worst_of
from lapidist_lab.bench.studies.served_model import PAST, Shape
from lapidist_lab.bench.studies.turns import compare

SUFFIX = ", model"
STOCK, PLAIN, *FEW_BITS = NAMES = [
    f"{name}{SUFFIX}" for name in ("torch, bf16", "lapidist, bf16", "lapidist, int4", "lapidist, mxfp4")
]
BATCHES, ROUNDS, EXPONENT, THREADS = (1, 16, 64), 7, -8, 16
EPSILON = 1e-6  # of norms
Layer = tuple[Any, ...]  # q k v, out, gate and up, down
Call = Callable[[], Any]


@dataclass(frozen=True)
class Way:
    """How products are computed. One may have a norm before it, and a residual behind; gated ones have a
    norm.
    """

    name: str
    layers: Sequence[Layer]
    head: Any
    product: Callable[..., Any]
    gated: Callable[[Any, Any], Any]


class Decoder:
    """Weights as torch has them, (n, k), and caches of random keys and values, with a place for a token more.
    Rows of gates and of what they gate take turns.
    """

    def __init__(self, shape: Shape, device: str, batches: Sequence[int] = BATCHES) -> None:
        import torch

        torch.manual_seed(0)
        self.shape, self.device = shape, device
        *of_layer, of_head = shape.matrices
        numbers = partial(whole_numbers, device=device)
        every = [of_layer] * shape.layers
        self.layers = [tuple(numbers(*size) * 2.0**EXPONENT for size in sizes) for sizes in every]
        self.head = numbers(*of_head) * 2.0**EXPONENT
        sizes = 2, max(batches), shape.shared, PAST + 1, shape.hidden // shape.heads
        make = partial(torch.randn, device=device, dtype=torch.bfloat16)
        self.caches = [make(*sizes) for _ in range(shape.layers)]
        self.tokens = {batch: make(batch, 1, shape.hidden) for batch in batches}

    def ways(self) -> list[Way]:
        plain = Way(PLAIN, self.layers, self.head, fused_product, fused_gates)
        stock = [(*rest, apart(up), down) for *rest, up, down in self.layers]
        return [
            Way(STOCK, stock, self.head, stock_product, stock_gates),
            plain,
            *(self.in_few_bits(plain, name) for name in FEW_BITS),
        ]

    def in_few_bits(self, plain: Way, name: str) -> Way:
        format = name.removesuffix(SUFFIX).partition(", ")[2]
        layers = [tuple(packed(rows, format, EXPONENT) for rows in layer) for layer in plain.layers]
        return replace(plain, name=name, layers=layers, head=packed(plain.head, format, EXPONENT))

    def decode(self, way: Way, batch: int) -> Any:
        """The logits of a token of each sequence."""
        x = self.tokens[batch]
        for (qkv, joined, up, down), cache in zip(way.layers, self.caches, strict=True):
            x = way.product(self.attended(way.product(x, qkv, norm=True), cache), joined, x)
            x = way.product(way.gated(x, up), down, x)
        return way.product(x, way.head, norm=True)

    def attended(self, qkv: Any, cache: Any) -> Any:
        """The token's key and value are written behind those of the cache, in one copy."""
        import torch

        heads, shared = self.shape.heads, self.shape.shared
        parts = qkv.unflatten(-1, (heads + 2 * shared, -1)).transpose(1, 2)
        q, of_token = parts.split((heads, 2 * shared), 1)
        here = cache[:, : len(q)]
        here[:, :, :, PAST:] = of_token.unflatten(1, (2, shared)).transpose(0, 1)
        keys, values = here
        attention = torch.nn.functional.scaled_dot_product_attention
        return attention(q, keys, values, enable_gqa=True).transpose(1, 2).flatten(2)

    def warm(self, ways: Sequence[Way], threads: int = THREADS) -> None:
        """All kernels are compiled, in parallel: those of a layer's products, and of the head's."""
        import torch

        def once(way: Way, batch: int, number: int) -> None:
            with torch.inference_mode():
                weight, x = (*way.layers[0], way.head)[number], self.tokens[batch]
                if number == 2:
                    way.gated(x, weight)
                elif number == 3:
                    way.product(way.gated(x, way.layers[0][2]), weight, x)
                else:
                    way.product(x, weight, *([x] if number == 1 else []), norm=number != 1)

        with ThreadPoolExecutor(threads) as pool:
            tasks = [(way, batch, number) for way in ways for batch in self.tokens for number in range(5)]
            list(pool.map(lambda task: once(*task), tasks))


# ---- ways of products ----


def apart(rows: Any) -> Any:
    """Gates first, then what they gate, as torch's layers have them."""
    import torch

    return torch.cat((rows[::2], rows[1::2]))


def normed(x: Any) -> Any:
    import torch

    return torch.nn.functional.rms_norm(x, x.shape[-1:], eps=EPSILON)


def stock_product(x: Any, weight: Any, residual: Any = None, norm: bool = False) -> Any:
    import torch

    result = torch.nn.functional.linear(normed(x) if norm else x, weight)
    return result if residual is None else residual + result


def stock_gates(x: Any, up: Any) -> Any:
    import torch

    gate, hidden = torch.nn.functional.linear(normed(x), up).chunk(2, -1)
    return torch.nn.functional.silu(gate) * hidden


def fused_product(x: Any, weight: Any, residual: Any = None, norm: bool = False) -> Any:
    from lapidist.torch import linear

    return linear(x, weight, residual=residual, norm_eps=EPSILON if norm else None)


def fused_gates(x: Any, up: Any) -> Any:
    from lapidist.torch import linear

    return linear(x, up, epilogue=swiglu, norm_eps=EPSILON)


# ---- what is measured ----


def contest(
    model: Decoder, ways: Sequence[Way], batch: int, capture: Callable[[Call], Call], wait: Any, rounds: int
) -> tuple[list[list[float]], list[float]]:
    """Seconds of each way's turns; and how far its logits are from those of bfloat16, over the bound."""
    calls = [capture(partial(model.decode, way, batch)) for way in ways]
    logits = [call().clone() for call in calls]
    expected = next(result for way, result in zip(ways, logits, strict=True) if way.name == PLAIN)
    return compare(calls, wait, rounds), [worst_of(result, expected) for result in logits]


def records_of(
    times: Sequence[list[float]], worst: Sequence[float], batch: int, shape: Shape, device: str
) -> list[Record]:
    """`ratio`: the seconds of the fastest way in bfloat16 over these."""
    middles = [median(seconds) for seconds in times]
    seconds_of = dict(zip(NAMES, middles, strict=True))
    peer = min((STOCK, PLAIN), key=seconds_of.__getitem__)
    *of_layer, of_head = (n * k for n, k in shape.matrices)
    flops = 2.0 * batch * (shape.layers * sum(of_layer) + of_head)
    records = []
    for name, seconds, middle, error in zip(NAMES, times, middles, worst, strict=True):
        kind = "peer" if name == STOCK else "production"
        what = name, kind, device, "bfloat16", "rcr", batch, shape.inner, shape.hidden
        ratio = seconds_of[peer] / middle
        row = Record(*what, middle, flops / middle / 1e12, ratio, None, error, error <= 1.0, MODE)
        note = f"{batch / middle:.0f} tokens/s"
        records.append(replace(row, seconds_min=min(seconds), seconds_max=max(seconds), peer=peer, note=note))
    return records


def measure(ordinal: int, keep: Keep) -> tuple[Conditions, list[Record]]:
    """Nothing without torch, whose attention and graphs it takes."""
    os.environ.setdefault(VARIABLE, WAIT)
    records: list[Record] = []
    shape = Shape()
    protocol = (
        f"{shape}; {BATCHES} sequences decode a token each, which sees {PAST} others; layers and head have"
        f" few bits, norms of few rows no launch; CUDA graphs;"
        f" median of {ROUNDS} turns; logits within {BOUND} of the largest of bf16's"
    )
    with Stage(ordinal, SUSTAINED) as stage:
        before, device = stage.gauge.look(), stage.device
        inputs = "weights whole numbers of int4 and e2m1 by a power of two; random keys, values and tokens"
        vendor = stage.framework.vendor("bfloat16")
        conditions = gather(device, device.name, MODE, protocol, vendor=vendor, inputs=inputs)
        if stage.framework.name == "torch":
            import torch

            with torch.inference_mode():
                model = Decoder(shape, "cuda")
                ways = model.ways()
                model.warm(ways)
                for batch in BATCHES:
                    found = contest(model, ways, batch, captured, lambda _: torch.cuda.synchronize(), ROUNDS)
                    records += records_of(*found, batch, shape, device.name)
        conditions = replace(conditions, seen=sensor_range(before, stage.gauge.look()))
        keep(conditions, records)
        return conditions, records
