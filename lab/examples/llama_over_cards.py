"""A model of Llama's shape over several cards: prefill, decode and a training step, beside one card's.

    torchrun --nproc-per-node 2 lab/examples/llama_over_cards.py

`lapidist.torch.swap(model, mesh=...)` splits its linear layers. In prefill and decode all ranks have all
tokens, and sums over ranks go to all of them. In training each rank has a part of the sequence between the
layers: parts are gathered under the products, and sums are scattered.
"""

from __future__ import annotations

import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import lapidist.torch

PLAN = {
    **dict.fromkeys(("*.q", "*.k", "*.v", "*.gate", "*.up"), "columns"),
    **dict.fromkeys(("*.o", "*.down"), "rows"),
}
SEQUENCE = 1  # the dimension of tokens
Cache = list[list[torch.Tensor]]  # keys and values of each layer


def rotated(x: torch.Tensor, start: int) -> torch.Tensor:
    """Positions as rotations of halves of a head; x: (batch, heads, tokens, width)."""
    half = x.shape[-1] // 2
    rates = 10000.0 ** (-torch.arange(half, device=x.device) / half)
    angles = torch.outer(torch.arange(start, start + x.shape[2], device=x.device), rates)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    left, right = x[..., :half], x[..., half:]
    return torch.cat((left * cos - right * sin, right * cos + left * sin), -1)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, shared: int) -> None:
        super().__init__()
        self.head = width // heads
        self.q, self.o = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(width, shared * self.head, bias=False) for _ in range(2))

    def forward(self, x: torch.Tensor, cache: list[torch.Tensor] | None) -> torch.Tensor:
        # a rank has the heads that its columns hold
        q, k, v = (
            layer(x).unflatten(-1, (-1, self.head)).transpose(1, 2) for layer in (self.q, self.k, self.v)
        )
        start = cache[0].shape[2] if cache else 0
        q, k = rotated(q, start), rotated(k, start)
        if cache is not None:
            cache[:] = [torch.cat(pair, 2) for pair in zip(cache, (k, v), strict=True)] if cache else [k, v]
            k, v = cache
        y = F.scaled_dot_product_attention(q, k, v, is_causal=start == 0, enable_gqa=True)
        return self.o(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, width: int, hidden: int, heads: int, shared: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.attention = Attention(width, heads, shared)
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor, cache: list[torch.Tensor] | None) -> torch.Tensor:
        x = x + self.attention(self.norms[0](x), cache)
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        sizes = options.width, options.hidden, options.heads, options.shared
        self.embedding = nn.Embedding(options.words, options.width)
        self.layers = nn.ModuleList(Layer(*sizes) for _ in range(options.layers))
        self.norm = nn.RMSNorm(options.width)
        self.head = nn.Linear(options.width, options.words, bias=False)

    def forward(
        self, words: torch.Tensor, cache: Cache | None = None, part: slice = slice(None)
    ) -> torch.Tensor:
        """`part`: the words whose logits this rank computes."""
        x = self.embedding(words)[:, part]
        for index, layer in enumerate(self.layers):
            x = layer(x, None if cache is None else cache[index])
        return self.head(self.norm(x))


@torch.no_grad()
def generated(model: Llama, words: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of the prompt, and of `count` words that follow, one after the other."""
    cache: Cache = [[] for _ in model.layers]
    prompt = model(words, cache)
    following = []
    word = prompt[:, -1:].argmax(-1)
    for _ in range(count):
        following.append(model(word, cache))
        word = following[-1].argmax(-1)
    return prompt, torch.cat(following, 1)


def trained(model: Llama, words: torch.Tensor, ranks: int = 1, rank: int = 0) -> torch.Tensor:
    """The loss of a step, with gradients. A rank has the losses of its part of the words."""
    inputs, targets = words[:, :-1], words[:, 1:]
    length = inputs.shape[1] // ranks
    part = slice(rank * length, (rank + 1) * length)
    logits = model(inputs, part=part)
    loss = F.cross_entropy(logits.float().flatten(0, 1), targets[:, part].flatten(), reduction="sum")
    loss = loss / targets.numel()
    loss.backward()
    total = loss.detach()
    if ranks > 1:
        dist.all_reduce(total)
        for parameter in model.parameters():
            if not hasattr(parameter, "placements"):  # every rank has it, and saw its own words
                dist.all_reduce(parameter.grad)
    return total


def off(result: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference, over the largest value."""
    return ((result - expected).abs().max() / expected.abs().max()).item()


def gradient(parameter: torch.Tensor) -> torch.Tensor:
    grad = parameter.grad
    return grad.full_tensor() if hasattr(grad, "full_tensor") else grad


def options_of_command() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    sizes = {"width": 4096, "hidden": 14336, "heads": 32, "shared": 8, "layers": 4, "words": 32000}
    for name, default in (sizes | {"tokens": 1024, "batch": 2, "decode": 8}).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--cpu", action="store_true", help="processes on the host, in float32")
    return parser.parse_args()


def main() -> None:
    options = options_of_command()
    place, dtype = torch.device("cpu"), torch.float32
    if not options.cpu:
        place, dtype = torch.device("cuda", int(os.environ["LOCAL_RANK"])), torch.bfloat16
        torch.cuda.set_device(place)
    dist.init_process_group("gloo" if options.cpu else "nccl")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mesh = dist.device_mesh.init_device_mesh(place.type, (ranks,))
    torch.manual_seed(1)
    one_card = Llama(options).to(place, dtype)
    words = torch.randint(options.words, (options.batch, options.tokens + 1), device=place)
    weights = {name: value.clone() for name, value in one_card.state_dict().items()}

    def split(sequence_dim: int | None) -> Llama:
        model = Llama(options).to(place, dtype)
        model.load_state_dict(weights)
        lapidist.torch.swap(model, mesh=mesh, plan=PLAN, sequence_dim=sequence_dim)
        return model

    results = zip(
        generated(split(None), words, options.decode), generated(one_card, words, options.decode), strict=True
    )
    prefill, decode = (off(*pair) for pair in results)
    model = split(SEQUENCE)
    loss = off(trained(model, words, ranks, rank), trained(one_card, words))
    pairs = zip(model.parameters(), one_card.parameters(), strict=True)
    gradients = max(off(gradient(one), gradient(other)) for one, other in pairs)
    worst = max(prefill, decode, loss, gradients)
    if worst > (1e-4 if dtype == torch.float32 else 5e-2):
        raise SystemExit(f"rank {rank}: off by {worst:.2g} of the largest value")
    print(
        f"rank {rank} of {ranks}: off by {prefill:.1g} in prefill, {decode:.1g} in decode,"
        f" {loss:.1g} in the loss, {gradients:.1g} in gradients"
    )
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # threads of gloo's groups may outlive them, and abort a process that ends as others do


if __name__ == "__main__":
    main()
