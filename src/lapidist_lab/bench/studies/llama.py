"""A Llama of `transformers` whose linear layers are swapped, beside the same one as it was.

Prefill and decode, eager, compiled and as a CUDA graph.

`python -m lapidist_lab.bench.studies.llama FILE [START ...]` writes its Records to FILE: all, or whose names
start so, as graph or compiled/decode/16."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lapidist.backends.gpu.driver import query_device
from lapidist.build.compile_policy import VARIABLE, WAIT
from lapidist_lab.bench.protocol.conditions import gather, version_of
from lapidist_lab.bench.protocol.record import Record, write_run
from lapidist_lab.bench.studies.turns import ROUNDS, TURN_SECONDS, compare, pair

SHAPE = {
    "num_hidden_layers": 8,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
PAST, LONGEST = 512, 1024  # tokens that a decoded one sees, and room for
FORMS = ("eager", "graph", "compiled")
BOUND = 0.05  # of the largest logit: bf16 in 8 layers
PROTOCOL = (
    f"8 layers of 4096, 14336, 32 heads, 8 of keys, bf16; decode after {PAST} tokens; median of {ROUNDS}"
    f" turns of {TURN_SECONDS} s, turn by turn, ending with a wait; kernels are compiled before;"
    " ratio: time as it was over time swapped"
)
Call = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    kind: str  # prefill or decode
    batch: int
    tokens: int

    @property
    def rows(self) -> int:
        return self.batch * self.tokens


CASES = (
    *(Case("prefill", *shape) for shape in ((1, 77), (1, 1000), (4, 2048))),
    *(Case("decode", batch, 1) for batch in (1, 16, 64)),
)


def model_of(shape: dict[str, int], device: str) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    with torch.device(device):
        return LlamaForCausalLM(LlamaConfig(**shape)).to(torch.bfloat16).eval().requires_grad_(False)


def step(model: Any, case: Case) -> Call:
    """A call of the model on tokens of its own. A decoded token is dropped from the cache before each
    call."""
    import torch
    from transformers import StaticCache

    tokens = torch.randint(1, model.config.vocab_size, (case.batch, case.tokens), device=model.device)
    if case.kind == "prefill":
        return lambda: model(tokens, use_cache=False, logits_to_keep=1).logits
    cache = StaticCache(config=model.config, max_cache_len=LONGEST)
    model(
        torch.randint(1, model.config.vocab_size, (case.batch, PAST), device=model.device),
        past_key_values=cache,
    )
    lengths = [layer.cumulative_length for layer in cache.layers]
    first, position = (
        [length.clone() for length in lengths],
        torch.full((case.batch, 1), PAST, device=model.device),
    )

    def decode() -> Any:
        torch._foreach_copy_(lengths, first)
        return model(tokens, past_key_values=cache, position_ids=position).logits

    return decode


def captured(call: Call) -> Call:
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()

    def replay() -> Any:
        graph.replay()
        assert call is not None  # which holds the tokens that the graph reads
        return result

    return replay


def formed(variant: str, model: Any, case: Case) -> Call:
    import torch

    call = step(model, case)
    torch._dynamo.reset()
    model._compiled_call_impl = None
    if variant == "compiled":
        model.compile(dynamic=False)
    return captured(call) if variant == "graph" else call


def worst_of(logits: Any, expected: Any) -> float:
    """The largest difference over its bound."""
    logits, expected = logits.float(), expected.float()
    return float((logits - expected).abs().max() / expected.abs().max()) / BOUND


def of_case(variant: str, case: Case, models: tuple[Any, Any], device: str) -> list[Record]:
    import torch

    calls = []
    for model in models:
        torch.manual_seed(case.rows)  # the same tokens
        calls.append(formed(variant, model, case))
    worst = worst_of(calls[0]().clone(), calls[1]().clone())
    times = compare(calls, lambda _: torch.cuda.synchronize())
    case_name = f"llama, {case.kind}, {variant}"
    weights = sum(parameter.numel() for parameter in models[0].model.layers.parameters())
    names = f"lapidist.torch, {case_name}", f"torch, {case_name}"
    size, note = (case.rows, 14336, 4096), f"{case.batch} x {case.tokens}"
    return pair(names, times, size, 2.0 * case.rows * weights, worst, device, note)


def chosen(starts: tuple[str, ...]) -> list[tuple[str, Case]]:
    named = (
        (f"{variant}/{case.kind}/{case.batch}x{case.tokens}", variant, case)
        for variant in FORMS
        for case in CASES
    )
    return [(variant, case) for name, variant, case in named if name.startswith(starts or "")]


def main(path: str, *starts: str) -> None:
    import torch

    import lapidist.torch

    os.environ.setdefault(VARIABLE, WAIT)
    device = query_device(0)
    vendor = f"torch {torch.__version__}, transformers {version_of('transformers')}"
    gathered = gather(device, device.name, "model", PROTOCOL, vendor=vendor)
    command = " ".join(("python -m lapidist_lab.bench.studies.llama", *starts))
    conditions = replace(gathered, command=command, inputs="random weights and tokens")
    models = model_of(SHAPE, "cuda"), model_of(SHAPE, "cuda")
    lapidist.torch.swap(models[0])
    records: list[Record] = []
    with torch.inference_mode():
        for variant, case in chosen(starts):
            records += of_case(variant, case, models, device.name)
            write_run(Path(path), conditions, records)


if __name__ == "__main__":
    main(*sys.argv[1:])
