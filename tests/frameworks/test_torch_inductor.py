"""Code that inductor writes calls the operators as functions, into memory of its own."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
ROWS, FEATURES, OUTPUTS = 6, 8, 5


@pytest.fixture
def lt(torch: Any) -> Any:
    torch.manual_seed(0)
    return importlib.import_module("lapidist.torch")


def called_in(torch: Any, call: Any) -> list[str]:
    """What code written in `call` calls of ours."""
    from torch._inductor.utils import run_and_get_code

    with (
        torch._inductor.config.patch(fx_graph_cache=False),
        torch._functorch.config.patch(enable_autograd_cache=False),
    ):
        _, codes = run_and_get_code(call)
    lines = [line.strip() for code in codes for line in code.splitlines()]
    return [line for line in lines if line.startswith(("torch.ops.lapidist", "buf")) and "lapidist" in line]


@pytest.mark.parametrize(
    ("names", "form"),
    [
        ("matmul", lambda lt, a, w, bias: lt.matmul(a, w.mT)),
        ("matmul", lambda lt, a, w, bias: lt.matmul(a[0], w[0])),
        ("matmul", lambda lt, a, w, bias: lt.matmul(a * 2, (w + 1).mT) - 1),
        ("linear", lambda lt, a, w, bias: lt.linear(a, w)),
        ("linear", lambda lt, a, w, bias: lt.linear(a, w, bias)),
        ("linear", lambda lt, a, w, bias: lt.linear(a[0], w, bias)),
        ("linear", lambda lt, a, w, bias: lt.linear(a, w[0])),
        ("linear", lambda lt, a, w, bias: lt.linear(a.expand(2, 3, ROWS, FEATURES), w, bias)),
        ("grouped", lambda lt, a, w, bias: lt.grouped(a, w[None], (0 * bias[:1] + ROWS).int(), trans_b=True)),
        ("gemm", lambda lt, a, w, bias: lt.gemm(a, w, bias, alpha=2.0, beta=0.5, trans_b=True)),
        ("gemm", lambda lt, a, w, bias: lt.gemm(a, w, trans_b=True, out_dtype=a.dtype)),
    ],
)
def test_results_are_written_where_inductor_says(torch: Any, lt: Any, names: str, form: Any) -> None:
    given = torch.randn(ROWS, FEATURES), torch.randn(OUTPUTS, FEATURES), torch.randn(OUTPUTS)
    compiled = torch.compile(lambda *given: form(lt, *given), fullgraph=True)
    found: list[Any] = []
    lines = called_in(torch, lambda: found.append(compiled(*given)))
    assert [line.partition("(")[0] for line in lines] == [f"torch.ops.lapidist.runs.{names}"]
    assert "out=buf" in lines[0]
    torch.testing.assert_close(found[0], form(lt, *given), rtol=0, atol=0)


def test_gradients_are_written_so_too(torch: Any, lt: Any) -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(FEATURES, 7), torch.nn.ReLU(), torch.nn.Linear(7, OUTPUTS))
    x = torch.randn(2, ROWS, FEATURES, requires_grad=True)
    expected = torch.autograd.grad(layer(x).square().sum(), (x, *layer.parameters()))
    lt.swap(layer)
    compiled, found = torch.compile(layer, fullgraph=True), []
    lines = called_in(
        torch, lambda: found.extend(torch.autograd.grad(compiled(x).square().sum(), (x, *layer.parameters())))
    )
    assert lines
    assert all(line.startswith("torch.ops.lapidist.runs.") for line in lines)
    torch.testing.assert_close(found, list(expected))


def test_one_code_for_all_rows(torch: Any, lt: Any) -> None:
    w = torch.randn(OUTPUTS, FEATURES)
    compiled = torch.compile(lambda x: lt.linear(x, w).relu(), fullgraph=True, dynamic=True)
    for rows in (4, 5, 9):
        x = torch.randn(rows, FEATURES)
        torch.testing.assert_close(compiled(x), lt.linear(x, w).relu())


def test_code_in_cpp_goes_through_the_dispatcher(torch: Any, lt: Any) -> None:
    a, b = torch.randn(ROWS, FEATURES), torch.randn(FEATURES, OUTPUTS)
    torch._dynamo.reset()  # other tests may have compiled it as often as torch does
    compiled = torch.compile(lt.matmul, fullgraph=True, options={"cpp_wrapper": True})
    torch.testing.assert_close(compiled(a, b), a @ b)
