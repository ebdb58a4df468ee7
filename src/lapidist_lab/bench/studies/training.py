"""200 steps of training a GPT of 350 million parameters, with its linear layers swapped and as it was.

Time a step, and the loss at the end.

`python -m lapidist_lab.bench.studies.training FILE` writes its Records to FILE."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from lapidist.backends.gpu.driver import query_device
from lapidist.build.compile_policy import VARIABLE, WAIT
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.record import Record, write_run
from lapidist_lab.bench.studies.turns import pair

LAYERS, WIDTH, HEADS, WORDS = 24, 1024, 16, 50304
BATCH, TOKENS, STEPS, LAST = 8, 1024, 200, 20
BOUND = 0.01  # of the mean loss of the last steps
PROTOCOL = (
    f"{LAYERS} layers of {WIDTH}, {HEADS} heads, {WORDS} words, bf16; {STEPS} steps of {BATCH} x {TOKENS}"
    f" tokens, forward, backward, AdamW; seconds a step in turns of {LAST} steps, without the first turn;"
    f" worst: the difference of the mean losses of the last {LAST} steps over {BOUND:.0%}"
)


def network(layers: int, width: int, heads: int, words: int, tokens: int, fused: bool = False) -> Any:
    """A GPT. `fused`: pairs of layers are lapidist.torch.mlp."""
    from torch import nn

    from lapidist.torch import mlp

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            q, k, v = self.qkv(self.before(x)).unflatten(-1, (3, heads, -1)).movedim(-3, 0).transpose(-2, -3)
            attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.joined(attended.transpose(-2, -3).flatten(-2))
            up, down, after = self.up, self.down, self.after(x)
            if fused:
                return x + mlp(after, up.weight, up.bias, down.weight, down.bias)
            return x + down(nn.functional.gelu(up(after)))

    class GPT(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.positions = nn.Embedding(words, width), nn.Embedding(tokens, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
            self.head.weight = self.words.weight
            nn.init.normal_(self.words.weight, std=0.02)

        def forward(self, x: Any) -> Any:
            x = self.words(x) + self.positions.weight[: x.shape[1]]
            return self.head(self.norm(self.blocks(x)))

    return GPT()


def sentences(count: int, words: int, batch: int, tokens: int, device: str) -> Any:
    """Random words, each with four possible successors, one of them likely: there is something to learn."""
    import torch

    torch.manual_seed(1)
    following = torch.randint(0, words, (512, 4), device=device)
    chosen = torch.multinomial(
        torch.tensor([0.85, 0.05, 0.05, 0.05], device=device), count * batch * tokens, True
    )
    chosen, text = (
        chosen.view(count, batch, tokens),
        [following[torch.randint(0, 512, (count, batch)).to(device), 0]],
    )
    for place in range(tokens):
        text.append(following[text[-1] % 512, chosen[..., place]])
    return torch.stack(text, -1)


class Trained:
    """A network, its optimizer, and the losses so far."""

    def __init__(self, model: Any, text: Any) -> None:
        import torch

        self.model, self.text, self.losses = model, text, list[Any]()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=text.is_cuda)

    def steps(self, count: int) -> float:
        """Train for `count` steps; the seconds of one."""
        from torch.nn.functional import cross_entropy

        start = time.perf_counter()
        for _ in range(count):
            text = self.text[len(self.losses)]
            loss = cross_entropy(self.model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.losses.append(loss.detach())
        self.losses[-1].item()  # waits
        return (time.perf_counter() - start) / count


def contest(models: list[Any], text: Any) -> tuple[list[list[float]], list[float]]:
    """Seconds a step in each turn, and the losses' differences from the last model's over their bound."""
    runs = [Trained(model, text) for model in models]
    for run in runs:
        run.steps(LAST)
    turns = [[run.steps(LAST) for run in runs] for _ in range(len(text) // LAST - 1)]
    ends = [mean(float(loss) for loss in run.losses[-LAST:]) for run in runs]
    for run, end in zip(runs, ends, strict=True):
        print(f"loss {float(run.losses[0]):.4f} at first, {end:.4f} at last", flush=True)
    return [list(seconds) for seconds in zip(*turns, strict=True)], [
        abs(end / ends[-1] - 1) / BOUND for end in ends
    ]


def main(path: str) -> None:
    import torch

    import lapidist.torch

    os.environ.setdefault(VARIABLE, WAIT)
    device = query_device(0)
    gathered = gather(device, device.name, "model", PROTOCOL, vendor=f"torch {torch.__version__}")
    command = "python -m lapidist_lab.bench.studies.training"
    conditions = replace(gathered, command=command, inputs="random words with likely successors")
    models = []
    for fused in (False, True, False):
        torch.manual_seed(0)
        with torch.device("cuda"):
            models.append(network(LAYERS, WIDTH, HEADS, WORDS, TOKENS, fused).to(torch.bfloat16))
    for ours in models[:2]:
        lapidist.torch.swap(ours)
    text = sentences(STEPS, WORDS, BATCH, TOKENS, "cuda")
    turns, worst = contest(models, text)
    rows, records = BATCH * TOKENS, list[Record]()
    flops = 6.0 * rows * sum(parameter.numel() for parameter in models[0].parameters())
    note, shape = f"{STEPS} steps of {BATCH} x {TOKENS}", (rows, 4 * WIDTH, WIDTH)
    for place, mode in enumerate(("training", "training, fused")):
        names = f"lapidist.torch, GPT of 350M, {mode}", f"torch, GPT of 350M, {mode}"
        times = [turns[place], turns[-1]]
        records += pair(names, times, shape, flops, worst[place], device.name, note)
    write_run(Path(path), conditions, records)


if __name__ == "__main__":
    main(*sys.argv[1:])
