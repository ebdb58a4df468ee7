"""Grouped products in torch on a GPU: gradients, torch's own under `everywhere`, experts, CUDA graphs."""

from __future__ import annotations

import importlib
from itertools import pairwise
from typing import Any

import pytest

from lapidist.calls import grouped as grouped_calls

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
ENDS = [200, 200, 203, 500, 516]
GROUPS, TOTAL, M, N, K = 5, 520, 136, 72, 264
FORMS = {
    "rows": ((TOTAL, K), (GROUPS, K, N)),
    "columns": ((GROUPS, M, K), (K, TOTAL)),
    "k": ((M, TOTAL), (TOTAL, N)),
}
COUNT, TOP_K, FEATURES, INNER, TOKENS = 16, 4, 256, 192, 300


@pytest.fixture
def lt(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("LAPIDIST_COMPILE", "wait")
    torch.manual_seed(0)
    return importlib.import_module("lapidist.torch")


@pytest.fixture
def experts(torch: Any, lt: Any) -> Any:
    return importlib.import_module("mixtures").StockExperts(COUNT, FEATURES, INNER).to("cuda", torch.bfloat16)


def near(torch: Any, ours: list[Any], theirs: list[Any], tolerance: float = 0.02) -> None:
    for one, other in zip(ours, theirs, strict=True):
        bound = tolerance * other.abs().max().item()
        torch.testing.assert_close(one.double(), other.double(), rtol=tolerance, atol=bound)


def loop(torch: Any, a: Any, b: Any) -> Any:
    """A product for each group; what belongs to none is left out."""
    stretches = list(pairwise([0, *ENDS]))
    if b.ndim == 3:
        return torch.cat([a[start:end] @ b[i] for i, (start, end) in enumerate(stretches)])
    if a.ndim == 3:
        return torch.cat([a[i] @ b[:, start:end] for i, (start, end) in enumerate(stretches)], 1)
    return torch.stack([a[:, start:end] @ b[start:end] for start, end in stretches])


def in_groups(form: str, tensors: list[Any]) -> list[Any]:
    """The result and the gradients of a and b, without what belongs to no group."""
    last = ENDS[-1]
    cuts = {
        "rows": ((slice(last),), (slice(last),), ()),
        "columns": ((slice(None), slice(last)), (), (slice(None), slice(last))),
        "k": ((), (slice(None), slice(last)), (slice(last),)),
    }[form]
    return [tensor[cut] for tensor, cut in zip(tensors, cuts, strict=True)]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_those_of_a_loop(torch: Any, lt: Any, form: str, dtype: str) -> None:
    kind, ends = getattr(torch, dtype), torch.tensor(ENDS, device="cuda", dtype=torch.int32)
    a, b = (torch.randn(shape, device="cuda").to(kind).requires_grad_() for shape in FORMS[form])
    exact = [x.detach().double().requires_grad_() for x in (a, b)]
    theirs, ours = loop(torch, *exact), lt.grouped(a, b, ends)
    g = torch.randn(ours.shape, device="cuda").to(kind)
    (cut_g, *_) = in_groups(form, [g, a, b])
    expected = [theirs, *torch.autograd.grad(theirs, exact, cut_g.double())]
    results = in_groups(form, [ours, *torch.autograd.grad(ours, (a, b), g)])
    near(torch, results, in_groups(form, expected), 1e-4 if dtype == "float32" else 0.02)


@pytest.fixture
def results_of_ours(monkeypatch: Any) -> list[Any]:
    results: list[Any] = []
    grouped = grouped_calls.grouped

    def watched(*arguments: Any, **options: Any) -> Any:
        results.append(grouped(*arguments, **options))
        return results[-1]

    monkeypatch.setattr(grouped_calls, "grouped", watched)
    return results


@pytest.mark.parametrize("n", [N, N - 5])
def test_torchs_grouped_products_are_routed(torch: Any, lt: Any, results_of_ours: list[Any], n: int) -> None:
    ends = torch.tensor(ENDS, device="cuda", dtype=torch.int32)
    a = torch.randn(TOTAL, K, device="cuda").bfloat16()
    b = torch.randn(GROUPS, n, K, device="cuda").bfloat16().mT
    theirs = torch._grouped_mm(a, b, ends)
    with lt.everywhere():
        ours = torch._grouped_mm(a, b, ends)
    assert len(results_of_ours) == 1
    assert ours.stride() == theirs.stride()
    near(torch, [ours[: ENDS[-1]]], [theirs[: ENDS[-1]]])


def test_torchs_grouped_products_of_eight_bits_are_routed(
    torch: Any, lt: Any, results_of_ours: list[Any]
) -> None:
    ends = torch.tensor(ENDS, device="cuda", dtype=torch.int32)
    a = torch.randn(TOTAL, 256, device="cuda").to(torch.float8_e4m3fn)
    b = torch.randn(GROUPS, N + 8, 256, device="cuda").to(torch.float8_e4m3fn).mT
    scale_a, scale_b = torch.rand(TOTAL, device="cuda"), torch.rand(GROUPS, N + 8, device="cuda")
    with lt.everywhere():
        ours = torch._scaled_grouped_mm(a, b, scale_a, scale_b, ends, use_fast_accum=True)
    assert len(results_of_ours) == 1
    exact = loop(torch, a.double() * scale_a[:, None], b.double() * scale_b[:, None])
    near(torch, [ours[: ENDS[-1]]], [exact])


# ---- experts ----


def routes(torch: Any, seed: int) -> tuple[Any, Any, Any]:
    """Tokens, their experts and weights. The last expert has none."""
    torch.manual_seed(seed)
    x = torch.randn(TOKENS, FEATURES, device="cuda").bfloat16()
    index = torch.rand(TOKENS, COUNT - 1, device="cuda").topk(TOP_K).indices
    return x, index, torch.rand(TOKENS, TOP_K, device="cuda")


def learned(torch: Any, experts: Any, x: Any, index: Any, weights: Any) -> list[Any]:
    x, weights = x.detach().requires_grad_(), weights.detach().requires_grad_()
    result = experts(x, index, weights)
    operands = [x, weights, *experts.parameters()]
    return [result.detach(), *torch.autograd.grad(result.float().square().mean(), operands)]


@pytest.mark.parametrize("compiled", [False, True])
def test_swapped_experts_learn_as_before(torch: Any, lt: Any, experts: Any, compiled: bool) -> None:
    torch._dynamo.reset()
    several = [routes(torch, seed) for seed in range(3)]
    expected = [learned(torch, experts, *route) for route in several]
    lt.swap(experts)
    for route, theirs in zip(several, expected, strict=True):
        run = torch.compile(experts, fullgraph=True) if compiled else experts
        near(torch, learned(torch, run, *route), theirs, 0.03)
        with torch.no_grad():
            near(torch, [run(*route)], theirs[:1], 0.03)


@pytest.mark.parametrize("trained", [False, True])
def test_a_graph_takes_other_routes(torch: Any, lt: Any, experts: Any, trained: bool) -> None:
    """Forward, or forward and backward, in one CUDA graph: no length is known when it is captured."""
    lt.swap(experts)

    def step(*route: Any) -> list[Any]:
        if trained:
            return learned(torch, experts, *route)
        with torch.no_grad():
            return [experts(*route)]

    held, other = routes(torch, 1), routes(torch, 2)
    expected = [result.clone() for result in step(*other)]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step(*held)
        step(*held)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step(*held)
    for target, source in zip(held, other, strict=True):
        target.copy_(source)
    graph.replay()
    near(torch, results, expected)


def test_gradients_are_the_same_bits_each_time(torch: Any, lt: Any, experts: Any) -> None:
    """No two threads add to one address."""
    lt.swap(experts)
    route = routes(torch, 1)
    learned(torch, experts, *route)
    first, second = learned(torch, experts, *route), learned(torch, experts, *route)
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)
