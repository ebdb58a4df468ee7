"""Muon's Newton-Schulz steps on all matrices of a language model of 1.3 billion parameters, beside torch's.

`python -m lapidist_lab.bench.studies.muon_steps FILE` writes its Records to FILE."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lapidist.backends.gpu.driver import query_device
from lapidist.build.compile_policy import VARIABLE, WAIT
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.record import Record, write_run
from lapidist_lab.bench.studies.llama import captured
from lapidist_lab.bench.studies.turns import ROUNDS, TURN_SECONDS, compare, pair

MODE, NAME, STEPS = "muon", "lapidist.torch.orthogonalised", 5
WAYS = {  # torch's; ours takes a batch at once, in a graph or not
    "graph": "torch, a batch in a CUDA graph",
    "eager": "torch, a batch",
    "compiled": "torch.compile, a batch",
    "optimiser": "torch.optim.Muon's steps",
}
PROTOCOL = (
    f"gradients in float32, products in bfloat16, {STEPS} steps; median of {ROUNDS} turns of {TURN_SECONDS}"
    " s, turn by turn, ending with a wait; kernels are compiled before; ratio: torch's time over ours;"
    " error: of a matrix, over twice that of torch's own steps, both against float32"
)
Call = Callable[[], Any]


@dataclass(frozen=True)
class Matrices:
    """As many of one shape as 24 layers with 2048 features have: of attention, and of the MLP."""

    count: int
    rows: int
    columns: int

    @property
    def flops(self) -> float:
        """Of whole products, as torch computes them."""
        least, most = sorted((self.rows, self.columns))
        return 2.0 * STEPS * self.count * (2 * least**2 * most + least**3)


ALL = (Matrices(96, 2048, 2048), Matrices(48, 2048, 8192))


def torchs(gradient: Any, steps: int = STEPS) -> Any:
    """A batch of matrices by torch's own products, in the steps of torch.optim.Muon."""
    import torch
    from torch.optim._muon import DEFAULT_A, DEFAULT_B, DEFAULT_C

    x = gradient.bfloat16()
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(steps):
        squared = torch.bmm(x, x.mT)
        update = torch.baddbmm(squared, squared, squared, beta=DEFAULT_B, alpha=DEFAULT_C)
        x = torch.baddbmm(x, update, x, beta=DEFAULT_A)
    return x


def in_float32(gradient: Any) -> Any:
    """The same steps without rounding to bfloat16, but for the gradient's."""
    from torch.optim._muon import DEFAULT_A, DEFAULT_B, DEFAULT_C

    x = gradient.bfloat16().float()
    x = x / x.norm()
    for _ in range(STEPS):
        squared = x @ x.mT
        x = DEFAULT_A * x + (DEFAULT_B * squared + DEFAULT_C * (squared @ squared)) @ x
    return x


def peer_of(way: str, gradients: Any) -> Call:
    import torch

    def one_by_one() -> Any:
        from torch.optim import _muon

        coefficients = _muon.DEFAULT_A, _muon.DEFAULT_B, _muon.DEFAULT_C
        return [_muon._zeropower_via_newtonschulz(each, coefficients, STEPS, 1e-7) for each in gradients]

    if way == "optimiser":
        return one_by_one
    if way == "compiled":
        compiled = torch.compile(torchs, dynamic=False)
        return lambda: compiled(gradients)
    return captured(lambda: torchs(gradients)) if way == "graph" else lambda: torchs(gradients)


def ours(way: str, gradients: Any) -> Call:
    import lapidist.torch

    def call() -> Any:
        return lapidist.torch.orthogonalised(gradients, STEPS)

    return captured(call) if way == "graph" else call


def error_of(result: Any, peer: Any, gradient: Any) -> float:
    expected = in_float32(gradient)
    mine, theirs = ((each.float() - expected).abs().max() for each in (result, peer))
    return float(mine / (2 * theirs))


def of_matrices(matrices: Matrices, device: str, place: str = "cuda") -> list[Record]:
    import torch

    torch.manual_seed(0)
    shape = matrices.count, matrices.rows, matrices.columns
    gradients = torch.randn(shape, device=place)
    wait = torch.cuda.synchronize if gradients.is_cuda else bool
    records = []
    for way, peer in WAYS.items():
        calls = ours(way, gradients), peer_of(way, gradients)
        worst = error_of(calls[0]()[0], calls[1]()[0], gradients[0])
        times = compare(calls, lambda _: wait())
        label = f"{matrices.count} x {matrices.rows} x {matrices.columns}"
        names = f"{NAME}, {way}, {label}", f"{peer}, {label}"
        records += pair(names, times, (*shape[1:], matrices.rows), matrices.flops, worst, device)
    return [replace(record, mode=MODE) for record in records]


def main(path: str) -> None:
    import torch

    os.environ.setdefault(VARIABLE, WAIT)
    device = query_device(0)
    gathered = gather(device, device.name, MODE, PROTOCOL, vendor=f"torch {torch.__version__}")
    command = "python -m lapidist_lab.bench.studies.muon_steps"
    conditions = replace(gathered, command=command, inputs="standard normal")
    records: list[Record] = []
    for matrices in ALL:
        records += of_matrices(matrices, device.name)
        write_run(Path(path), conditions, records)


if __name__ == "__main__":
    main(*sys.argv[1:])
