"""Calls with arrays beside their matrices, for tests of how they are repeated.

Tensors of the CPU stand for those of a GPU; what would be launched is written down."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

import lapidist
import lapidist.calls.grouped
from lapidist import api
from lapidist.calls import full_path
from lapidist.calls.call import Call
from lapidist.calls.repeat.shape import extra_values
from lapidist.calls.repeat.with_arrays import fast_path_with_arrays

M, N, K = 32, 16, 48
Launched = list[tuple[Any, ...]]


class Like:
    framework, device = "torch", 0


class Ready:
    """In place of what was prepared for a GPU."""

    like, settled = Like(), True

    def __init__(self) -> None:
        self.launched: Launched = []
        self.parts: list[Any] = []
        self.kernel: Any = None

    def start(self, *given: Any) -> None:
        self.launched.append(given)


def call_of(monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Any]) -> Call:
    """What a caller's function asks for."""
    calls: list[Call] = []
    with monkeypatch.context() as patch:
        patch.setattr(full_path, "multiplied_with_arrays", calls.append)
        for module in (api, sys.modules["lapidist.calls.grouped"]):
            patch.setattr(module, "ARRAY_PATHS", {})
        ask()
    return calls[0]


@lapidist.epilogue
def scaled(acc: Any, bias: lapidist.Row, s: lapidist.Scalar) -> Any:
    return lapidist.relu(acc + bias) * s


@lapidist.epilogue
def with_sums(acc: Any, by: lapidist.Column) -> Any:
    return acc * by, acc


@lapidist.epilogue
def dropped(acc: Any, seed: lapidist.Scalar) -> Any:
    return lapidist.dropout(acc, 0.5, seed)


def asked_again(again: Any, call: Call) -> Any:
    return again(call.a, call.b, call.c, call.out, extra_values(call.operation), call.stream)


def matrices(torch: Any) -> tuple[Any, Any, Any]:
    return torch.randn(M, K), torch.randn(K, N), torch.empty(M, N)


def asks(torch: Any, form: str, number: float) -> dict[str, Any]:
    """New arrays and numbers each time, in the keywords of gemm."""
    a, b, out = matrices(torch)
    given: dict[str, Any] = {"a": a, "b": b, "out": out}
    rows = torch.randperm(M)
    if form == "gather":
        given.update(gather_a=rows, alpha=number)
    elif form == "scatter":
        given.update(scatter_d=rows, alpha=number)
    elif form == "numbers in memory":
        given.update(alpha=torch.tensor(number), beta=torch.tensor(2.0), c=torch.randn(M, N))
    elif form == "c is out":
        given.update(gather_a=rows, alpha=number, beta=0.5, c=out.normal_())
    elif form == "epilogue":
        given.update(epilogue=scaled(bias=torch.randn(N), s=number), c=torch.randn(M, N), beta=number)
    elif form == "further results":
        given.update(epilogue=with_sums(by=torch.randn(M)), out=(out, torch.empty(M, N)))
    elif form == "seed":
        given.update(epilogue=dropped(seed=int(number * 8)))
    else:
        small = [x.to(torch.float8_e4m3fn) for x in (a, b.T.contiguous())]
        given.update(a=small[0], b=small[1].T, scale_a=torch.rand(M, 1), alpha=number)
        given.update(scale_b=torch.rand(1, N) if form == "factors" else 0.5)
    return given


FORMS = ["gather", "scatter", "numbers in memory", "c is out", "epilogue", "further results", "seed"]


def path_of(monkeypatch: pytest.MonkeyPatch, ready: Ready, given: dict[str, Any]) -> tuple[Call, Any]:
    call = call_of(monkeypatch, lambda: lapidist.gemm(**given))
    bound = call.bound()
    result = full_path.run(None, bound, call.choices, None)
    return call, fast_path_with_arrays(ready, bound, call, result)  # type: ignore[arg-type]


@lapidist.epilogue
def largest(acc: Any, bias: lapidist.Row) -> Any:
    return acc + bias, lapidist.amax(acc)


@lapidist.epilogue
def sums(acc: Any, by: lapidist.Column) -> Any:
    return acc, lapidist.row_sum(acc * by), lapidist.column_amax(acc)


@lapidist.epilogue
def quantised(acc: Any) -> Any:
    return lapidist.Quantised(acc, "float8_e4m3fn")


@lapidist.epilogue
def in_steps(acc: Any, s: lapidist.Scalar) -> Any:
    return lapidist.relu(acc), lapidist.all_sum(acc * s)


# of epilogues that second passes follow: columns of D, and the operands, of which a number may change
FOLLOWED: dict[str, tuple[int, Callable[[Any, float], Any]]] = {
    "largest": (N, lambda torch, number: largest(bias=torch.randn(N))),
    "sums": (N, lambda torch, number: sums(by=torch.randn(M))),
    "groups": (256, lambda torch, number: quantised()),
    "in steps": (320, lambda torch, number: in_steps(s=number)),
    "rows of groups": (200, lambda torch, number: quantised()),
}


def asks_followed(torch: Any, form: str, number: float) -> dict[str, Any]:
    if form == "groups at once":
        a, b = torch.randn(256, 256).bfloat16(), torch.randn(256, 512).bfloat16()
        return {"a": a, "b": b, "epilogue": quantised()}
    cols, function = FOLLOWED[form]
    if form == "rows of groups":
        ends = torch.tensor([M // 4, M - 2], dtype=torch.int32)
        b = torch.randn(2, K, cols)
        return {"a": torch.randn(M, K), "b": b, "offsets": ends, "epilogue": function(torch, number)}
    return {"a": torch.randn(M, K), "b": torch.randn(K, cols), "epilogue": function(torch, number)}
