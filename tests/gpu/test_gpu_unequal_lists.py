"""Lists of products of any shapes on a GPU: again and again, and in a graph."""

from __future__ import annotations

from typing import Any

import pytest

import lapidist
from lapidist.calls import bound_lists, repeat
from lapidist.verify.sum_bound import judge
from on_gpu import normal, poisoned

pytestmark = pytest.mark.gpu
SHAPES = [(32, 48, 64), (200, 72, 33), (32, 48, 64), (1, 512, 256), (200, 72, 33)]  # m, n, k


def lists(torch: Any, shapes: Any = SHAPES) -> Any:
    every = [((m, k), (k, n), (m, n)) for m, n, k in shapes]
    return tuple([normal(torch, *shape) for shape in column] for column in zip(*every, strict=True))


@pytest.mark.parametrize("form", ["new", "c", "out", "epilogue"])
def test_the_fast_path_serves_other_memory(torch: Any, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """Lists that begin with one shape take turns, and from the third turn on no rule is looked up again."""
    checked: list[Any] = []
    bound = bound_lists.bound_products
    repeat.LISTS.clear()
    plus_one = lapidist.epilogue(lambda acc: acc + 1)
    kept = lists(torch), lists(torch, [SHAPES[0]] * 3), lists(torch, SHAPES[2:])
    outs = [[torch.empty_like(x) for x in c] for _, _, c in kept]
    for turn in range(5):
        if turn == 2:
            for module in ("bound_lists", "followed_lists"):
                monkeypatch.setattr(
                    f"lapidist.calls.{module}.bound_products",
                    lambda *given: checked.append(given) or bound(*given),
                )
        for (a, b, c), out in zip(kept, outs, strict=True):
            if form == "out":
                assert lapidist.gemm(a, b, c, beta=0.5, out=out) is out
                results = out
            else:
                a, b, c = ([x.clone() for x in matrices] for matrices in (a, b, c))
                more: dict[str, Any] = {"epilogue": plus_one} if form == "epilogue" else {}
                more |= {"c": c, "beta": 0.5} if form == "c" else {}
                results = lapidist.gemm(a, b, **more)
            beta = 0.5 if form in ("c", "out") else 0.0
            moved = [x - 1 for x in results] if form == "epilogue" else results
            assert all(judge(d, x, y, z, beta=beta).ok for d, x, y, z in zip(moved, a, b, c, strict=True))
    assert not checked


def test_empty_matrices_among_others(torch: Any) -> None:
    a, b, c = lists(torch, [(0, 4, 5), *SHAPES, (3, 0, 5), (2, 6, 0)])
    for _ in range(3):
        results = lapidist.gemm(a, b, c, beta=1.0)
        assert all(judge(d, x, y, z, beta=1.0).ok for d, x, y, z in zip(results, a, b, c, strict=True))


def test_a_graph_replays_all_launches(torch: Any) -> None:
    a, b, c = lists(torch)
    plan, out = lapidist.plan(a, b), [poisoned(torch, *x.shape) for x in c]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan.execute(a, b, None, out)
    for x in a:
        x.mul_(-2)
    graph.replay()
    assert all(judge(*each).ok for each in zip(out, a, b, strict=True))
