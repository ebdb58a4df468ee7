"""Layers of experts of `transformers`, whose experts are swapped, beside the same ones as they were.

Of Mixtral's and of Qwen3-MoE's shape, forward and with gradients, eager, as a CUDA graph and compiled. The
peer is transformers' own choice for experts, its "grouped_mm", which calls torch's.

`python -m lapidist_lab.bench.studies.mixture_layers FILE [START ...]` writes its Records to FILE: all, or
whose names start so, as mixtral or qwen3/forward/graph."""

from __future__ import annotations

import copy
import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from lapidist.backends.gpu.driver import query_device
from lapidist.build.compile_policy import VARIABLE, WAIT
from lapidist_lab.bench.protocol.conditions import gather, version_of
from lapidist_lab.bench.protocol.record import Record, write_run
from lapidist_lab.bench.studies.llama import captured, worst_of
from lapidist_lab.bench.studies.turns import ROUNDS, TURN_SECONDS, compare, pair

VARIANTS = ("eager", "graph", "compiled")
TOKENS = {"forward": (16, 256, 8192, 32768), "gradients": (8192,)}
PROTOCOL = (
    f"one layer, bf16, random weights and tokens; median of {ROUNDS} turns of {TURN_SECONDS} s, turn by turn,"
    " ending with a wait; kernels are compiled before; ratio: time as it was over time swapped"
)
Call = Callable[[], Any]


@dataclass(frozen=True)
class Layer:
    """A layer as transformers names it, and its shape in the words of this model's config."""

    name: str
    package: str
    prefix: str
    shape: dict[str, int]
    experts: int
    top_k: int
    features: int
    inner: int

    def built(self, device: str) -> Any:
        """A layer with random weights, so that tokens are routed about evenly."""
        import torch

        place = f"transformers.models.{self.package}"
        config_class = getattr(
            importlib.import_module(f"{place}.configuration_{self.package}"), f"{self.prefix}Config"
        )
        block = getattr(
            importlib.import_module(f"{place}.modeling_{self.package}"), f"{self.prefix}SparseMoeBlock"
        )
        config = config_class(**self.shape)
        config._experts_implementation = "grouped_mm"
        torch.manual_seed(0)
        with torch.device(device):
            layer = block(config).to(torch.bfloat16)
        for weight in layer.parameters():
            torch.nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)
        return layer

    def flops(self, kind: str, tokens: int) -> float:
        passes = 3 if kind == "gradients" else 1
        return 2.0 * passes * tokens * self.top_k * 3 * self.inner * self.features


def mixtral(features: int = 4096, inner: int = 14336, experts: int = 8, top_k: int = 2) -> Layer:
    shape = {
        "hidden_size": features,
        "intermediate_size": inner,
        "num_local_experts": experts,
        "num_experts_per_tok": top_k,
    }
    return Layer("mixtral", "mixtral", "Mixtral", shape, experts, top_k, features, inner)


def qwen3(features: int = 2048, inner: int = 768, experts: int = 128, top_k: int = 8) -> Layer:
    shape = {
        "hidden_size": features,
        "moe_intermediate_size": inner,
        "num_experts": experts,
        "num_experts_per_tok": top_k,
    }
    return Layer(
        "qwen3", "qwen3_moe", "Qwen3Moe", {**shape, "norm_topk_prob": True}, experts, top_k, features, inner
    )


LAYERS = (mixtral(), qwen3())


@dataclass(frozen=True)
class Case:
    layer: Layer
    kind: str  # forward or gradients
    variant: str
    tokens: int

    @property
    def name(self) -> str:
        return f"{self.layer.name}/{self.kind}/{self.variant}/{self.tokens}"


CASES = tuple(
    Case(layer, kind, variant, tokens)
    for layer, kind, variant in product(LAYERS, TOKENS, VARIANTS)
    for tokens in TOKENS[kind]
)


def step(layer: Any, run: Any, kind: str, x: Any) -> Call:
    """A call that returns the result, or the gradients of x and all weights."""
    import torch

    def forward() -> Any:
        with torch.no_grad():
            return run(x)

    def with_gradients() -> Any:
        return torch.autograd.grad(run(x).float().square().mean(), [x, *layer.parameters()])

    return forward if kind == "forward" else with_gradients


def formed(case: Case, layer: Any, x: Any) -> Call:
    import torch

    torch._dynamo.reset()
    run = torch.compile(layer, dynamic=False) if case.variant == "compiled" else layer
    call = step(layer, run, case.kind, x)
    return captured(call) if case.variant == "graph" else call


def worst_of_all(results: Any, expected: Any) -> float:
    """The largest difference over its bound, of one result or of several."""
    if not isinstance(results, tuple):
        return worst_of(results, expected)
    return max(worst_of(one, other) for one, other in zip(results, expected, strict=True))


def of_case(case: Case, layers: tuple[Any, Any], device: str) -> list[Record]:
    import torch

    shape = 1, case.tokens, case.layer.features
    weight = next(layers[0].parameters())
    x = torch.randn(shape, device=weight.device, dtype=weight.dtype).requires_grad_(case.kind == "gradients")
    calls = [formed(case, layer, x) for layer in layers]
    worst = worst_of_all(calls[0](), calls[1]())
    wait = torch.cuda.synchronize if weight.is_cuda else bool
    times = compare(calls, lambda _: wait())
    label = f"{case.layer.name} experts, {case.kind}, {case.variant}"
    size = case.tokens, 2 * case.layer.inner, case.layer.features
    names = f"lapidist.torch, {label}", f"transformers grouped_mm, {label}"
    return pair(names, times, size, case.layer.flops(case.kind, case.tokens), worst, device)


def chosen(starts: tuple[str, ...], cases: tuple[Case, ...] = CASES) -> list[Case]:
    return [case for case in cases if case.name.startswith(starts or "")]


def contestants(layer: Layer, device: str) -> tuple[Any, Any]:
    """The layer with its experts swapped, and as it was: of the same weights and the same router."""
    import lapidist.torch

    stock = layer.built(device)
    swapped = copy.deepcopy(stock)
    if len(lapidist.torch.swap(swapped, where=lambda name, _: name == "experts")) != 1:
        raise RuntimeError("this transformers has other experts: version 5 has them in one module")
    return swapped, stock


def main(path: str, *starts: str) -> None:
    import torch

    os.environ.setdefault(VARIABLE, WAIT)
    device = query_device(0)
    vendor = f"torch {torch.__version__}, transformers {version_of('transformers')}"
    gathered = gather(device, device.name, "model", PROTOCOL, vendor=vendor)
    command = " ".join(("python -m lapidist_lab.bench.studies.mixture_layers", *starts))
    conditions = replace(gathered, command=command, inputs="random weights and tokens")
    records: list[Record] = []
    for layer in LAYERS:
        cases = [case for case in chosen(starts) if case.layer is layer]
        layers = contestants(layer, "cuda") if cases else None
        for case in cases:
            assert layers is not None
            records += of_case(case, layers, device.name)
            write_run(Path(path), conditions, records)


if __name__ == "__main__":
    main(*sys.argv[1:])
