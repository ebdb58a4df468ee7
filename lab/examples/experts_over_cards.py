"""A layer of experts over several cards: each card has some experts, and its own tokens.

    torchrun --nproc-per-node 2 lab/examples/experts_over_cards.py

Tokens travel to the cards of their experts and back (torch.distributed's all-to-all), and each card
multiplies what it received with grouped products. NCCL takes the sizes of what travels from the host, so the
host waits once a layer for them. The products do not: they read where groups end on the device.
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist

import lapidist


def exchanged(rows: torch.Tensor, sent: list[int], received: list[int]) -> torch.Tensor:
    """Rows to every rank, `sent` of them to each, and those that come from every rank."""
    arrived = rows.new_empty((sum(received), *rows.shape[1:]))
    dist.all_to_all_single(arrived, rows.contiguous(), received, sent)
    return arrived


def experts_of(x: torch.Tensor, ends: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """Each row by the expert of its group: a gate, and two products."""
    gate, value = lapidist.grouped(x, up.mT, ends).chunk(2, -1)
    return lapidist.grouped((torch.nn.functional.silu(gate) * value).contiguous(), down.mT, ends)


def layer(
    x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor, up: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    """x: this card's tokens (tokens, width). chosen, weights: experts of each, (tokens, top). up and down: of
    this card's experts, (experts, 2 hidden, width) and (experts, width, hidden).
    """
    ranks, here, top = dist.get_world_size(), len(up), chosen.shape[1]
    order = chosen.flatten().argsort(stable=True)
    counts = torch.bincount(chosen.flatten(), minlength=ranks * here)
    theirs = torch.empty_like(counts)  # from each rank, for each expert of this card
    dist.all_to_all_single(theirs, counts)
    sent = counts.view(ranks, here).sum(1).tolist()
    received = theirs.view(ranks, here).sum(1).tolist()
    arrived = exchanged(x[order // top], sent, received)
    # They lie rank by rank, each by expert. Products want them by expert.
    expert = torch.arange(here, device=x.device).repeat(ranks).repeat_interleave(theirs)
    by_expert = expert.argsort(stable=True)
    ends = theirs.view(ranks, here).sum(0).cumsum(0).to(torch.int32)
    results = torch.empty_like(arrived)
    results[by_expert] = experts_of(arrived[by_expert], ends, up, down)
    back = torch.empty_like(x).new_empty((len(order), x.shape[1]))
    back[order] = exchanged(results, received, sent)
    # in the order of a token's experts, whatever card they were on
    return (back.view(len(x), top, -1) * weights[..., None]).sum(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name, default in (("tokens", 4096), ("width", 2048), ("hidden", 768), ("experts", 128), ("top", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--cpu", action="store_true", help="processes on the host, in float32")
    options = parser.parse_args()
    rank = int(os.environ["RANK"])
    if options.cpu:
        place, dtype = torch.device("cpu"), torch.float32
    else:
        place, dtype = torch.device("cuda", int(os.environ["LOCAL_RANK"])), torch.bfloat16
        torch.cuda.set_device(place)
    dist.init_process_group("gloo" if options.cpu else "nccl")
    here = options.experts // dist.get_world_size()
    torch.manual_seed(1)  # the same weights everywhere, of which each card takes its own
    up = torch.randn(options.experts, 2 * options.hidden, options.width) / options.width**0.5
    down = torch.randn(options.experts, options.width, options.hidden) / options.hidden**0.5
    torch.manual_seed(2 + rank)
    x = torch.randn(options.tokens, options.width).to(place, dtype)
    weights, chosen = torch.randn(options.tokens, options.experts).softmax(-1).topk(options.top)
    weights, chosen = weights.to(place, dtype), chosen.to(place)
    mine = slice(rank * here, (rank + 1) * here)
    found = layer(x, chosen, weights, up[mine].to(place, dtype), down[mine].to(place, dtype))
    # the same on one card, expert by expert
    expected = torch.zeros(len(x), options.width, device=place, dtype=torch.float32)
    for expert in chosen.unique().tolist():
        token, place_of = (chosen == expert).nonzero(as_tuple=True)
        ends = torch.tensor([len(token)], device=place, dtype=torch.int32)
        of_expert = slice(expert, expert + 1)
        of_one = experts_of(x[token], ends, up[of_expert].to(place, dtype), down[of_expert].to(place, dtype))
        expected.index_add_(0, token, (of_one * weights[token, place_of, None]).float())
    off = ((found.float() - expected).abs().max() / expected.abs().max()).item()
    if off > (1e-5 if dtype == torch.float32 else 2e-2):
        raise SystemExit(f"rank {rank}: off by {off:.2g} of the largest value")
    line = f"rank {rank}: {len(x)} tokens, {here} of {options.experts} experts here, off by {off:.2g}\n"
    print(line, end="")  # in one write: ranks share the terminal
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
