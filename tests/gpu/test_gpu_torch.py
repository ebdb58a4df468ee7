"""lapidist.torch on a GPU: gradients, autocast, CUDA graphs, torch.compile, and torch's own samples."""

from __future__ import annotations

import importlib
import sys
import unittest
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
NAMES = ["mm", "addmm", "bmm", "baddbmm", "matmul", "nn.functional.linear"]


@pytest.fixture
def lt(torch: Any) -> Any:
    return importlib.import_module("lapidist.torch")


def close(torch: Any, found: Any, exact: Any) -> None:
    """A few units in the last place of the largest."""
    tolerance = 8 * torch.finfo(found.dtype).eps
    largest = exact.abs().max().item() if exact.numel() else 0.0
    torch.testing.assert_close(found, exact.to(found.dtype), rtol=tolerance, atol=tolerance * largest)


def network(torch: Any, dtype: str = "bfloat16") -> Any:
    nn = torch.nn
    layers = nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256, bias=False), nn.GELU(), nn.Linear(256, 40)
    return nn.Sequential(*layers).to("cuda", getattr(torch, dtype))


def learned(torch: Any, model: Any, x: Any) -> list[Any]:
    result = model(x)
    gradients = torch.autograd.grad(result.float().square().mean(), list(model.parameters()))
    return [result.detach().clone(), *(each.clone() for each in gradients)]


def near(torch: Any, found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0.02, atol=0.02 * other.abs().max().item())


@pytest.mark.parametrize("mode", [None, "default", "reduce-overhead"])
def test_swapped_networks_learn_as_before(torch: Any, lt: Any, mode: str | None) -> None:
    """Alone, in inductor's code, and in CUDA graph trees, which are replayed with other numbers."""
    torch._dynamo.reset()
    model, inputs = network(torch), [torch.randn(48, 64, device="cuda").bfloat16() for _ in range(4)]
    expected = [learned(torch, model, x) for x in inputs]
    with lt.swap(model):
        run = model if mode is None else torch.compile(model, fullgraph=True, mode=mode)
        run = run if mode is None else Marked(torch, run)
        for x, each in zip(inputs, expected, strict=True):
            near(torch, learned(torch, run, x), each)


class Marked:
    """Each call is a step of its own for CUDA graph trees."""

    def __init__(self, torch: Any, run: Any) -> None:
        self.torch, self.run = torch, run

    def __call__(self, x: Any) -> Any:
        self.torch.compiler.cudagraph_mark_step_begin()
        return self.run(x)

    def parameters(self) -> Any:
        return self.run.parameters()


def test_graphs_of_one_length_serve_others(torch: Any, lt: Any) -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter, w = CompileCounterWithBackend("inductor"), torch.randn(40, 64, device="cuda").bfloat16()
    compiled = torch.compile(lambda x: lt.linear(x, w).relu(), fullgraph=True, backend=counter)
    for m in (48, 3, 77, 300):
        x = torch.randn(m, 64, device="cuda").bfloat16()
        torch._dynamo.mark_dynamic(x, 0)
        near(torch, [compiled(x)], [torch.nn.functional.linear(x, w).relu()])
    assert counter.frame_count == 1


def test_steps_of_training_are_captured(torch: Any, lt: Any) -> None:
    """Forward and backward in one CUDA graph, by hand."""
    model, x = network(torch), torch.randn(48, 64, device="cuda").bfloat16()
    lt.swap(model)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        learned(torch, model, x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = learned(torch, model, x)
    x.copy_(torch.randn_like(x))
    graph.replay()
    near(torch, kept, learned(torch, model, x))


def test_autocast_is_torchs(torch: Any, lt: Any) -> None:
    model, x = network(torch, "float32"), torch.randn(48, 64, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        expected = learned(torch, model, x)
        lt.swap(model)
        found = learned(torch, model, x)
    assert [each.dtype for each in found] == [each.dtype for each in expected]
    near(torch, found, expected)


def test_work_goes_to_the_current_stream(torch: Any, lt: Any) -> None:
    a = torch.ones(512, 512, device="cuda").bfloat16().requires_grad_()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        b = a.detach() * 2
        (gradient,) = torch.autograd.grad(lt.linear(a, b).sum(), a)
    side.synchronize()
    assert gradient.eq(1024).all()


def test_inductor_calls_ours(torch: Any, lt: Any) -> None:
    torch._dynamo.reset()
    a, b = (torch.randn(256, 256, device="cuda").bfloat16() for _ in range(2))
    options = {"external_matmul": [lt.mm], "max_autotune": True, "max_autotune_gemm_backends": ""}
    near(torch, [torch.compile(lambda a, b: (a @ b).relu(), options=options)(a, b)], [(a @ b).relu()])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
def test_torchs_own_samples(torch: Any, lt: Any, monkeypatch: Any, name: str, dtype: str) -> None:
    if "expecttest" not in sys.modules:  # torch's list of operators asks for its TestCase and nothing else
        monkeypatch.setitem(sys.modules, "expecttest", SimpleNamespace(TestCase=unittest.TestCase))
    known = importlib.import_module("torch.testing._internal.common_methods_invocations").op_db
    info = next(each for each in known if each.name == name)
    samples = list(info.sample_inputs("cuda", getattr(torch, dtype), requires_grad=True))
    assert samples
    for sample in samples:
        given = [each for each in (sample.input, *sample.args) if isinstance(each, torch.Tensor)]
        exact = [each.detach().double().requires_grad_() for each in given]
        wide = iter(exact)
        more = [
            next(wide) if isinstance(each, torch.Tensor) else each for each in (sample.input, *sample.args)
        ]
        theirs = info(*more, **sample.kwargs)
        with lt.everywhere():
            ours = info(sample.input, *sample.args, **sample.kwargs)
            direction = torch.randn_like(ours)
            found = torch.autograd.grad(ours, given, direction, materialize_grads=True)
        close(torch, ours, theirs)
        expected = torch.autograd.grad(theirs, exact, direction.double(), materialize_grads=True)
        for one, other in zip(found, expected, strict=True):
            close(torch, one, other)
