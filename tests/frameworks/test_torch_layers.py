"""Layers of 8-bit floats, and gradients kept elsewhere, as models meet them: copied, saved, loaded, moved,
compiled, under autocast.
"""

from __future__ import annotations

import copy
import importlib
import pickle
from typing import Any

import pytest

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture
def lt(torch: Any) -> Any:
    return importlib.import_module("lapidist.torch")


@pytest.fixture
def small(torch: Any, lt: Any) -> Any:
    """A layer of 8-bit floats that is not trained."""
    layer = torch.nn.Linear(32, 16).requires_grad_(False)
    lt.swap(layer, dtype=torch.float8_e4m3fn, factors="blocks")
    return layer


def meant(torch: Any, layer: Any, x: Any) -> Any:
    return torch.nn.functional.linear(x, layer.weight, layer.bias)


def near(torch: Any, found: Any, expected: Any) -> None:
    """As 8 bits can have it."""
    torch.testing.assert_close(found, expected, rtol=0.1, atol=0.1 * expected.abs().max().item())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_copies_multiply_as_their_models(torch: Any, small: Any, copied: Any) -> None:
    x, other = torch.randn(3, 32), copied(small)
    torch.testing.assert_close(other(x), small(x), rtol=0, atol=0)
    other.weight.mul_(-2)
    near(torch, other(x), meant(torch, other, x))
    near(torch, small(x), meant(torch, small, x))


@pytest.mark.parametrize("assign", [False, True])
def test_compiled_graphs_see_weights_that_are_loaded(torch: Any, small: Any, assign: bool) -> None:
    x, compiled = torch.randn(3, 32), torch.compile(small, fullgraph=True, backend="aot_eager")
    near(torch, compiled(x), meant(torch, small, x))
    small.load_state_dict(torch.nn.Linear(32, 16).state_dict(), assign=assign)
    near(torch, compiled(x), meant(torch, small, x))


def test_compiled_graphs_see_weights_that_an_eager_call_saw(torch: Any, small: Any) -> None:
    x, compiled = torch.randn(3, 32), torch.compile(small, fullgraph=True, backend="aot_eager")
    compiled(x)
    small.weight.mul_(-2)
    small(x)
    near(torch, compiled(x), meant(torch, small, x))


def test_moved_layers_are_rounded_anew(torch: Any, small: Any) -> None:
    small.to("meta")
    assert small.quantised_weight().values.is_meta
    small.to_empty(device="cpu").load_state_dict(torch.nn.Linear(32, 16).state_dict())
    x = torch.randn(3, 32)
    near(torch, torch.compile(small, fullgraph=True, backend="aot_eager")(x), meant(torch, small, x))


def test_what_was_rounded_in_inference_mode_is_used_outside_of_it(torch: Any, lt: Any) -> None:
    layer, x = torch.nn.Linear(32, 16).requires_grad_(False), torch.randn(3, 32, requires_grad=True)
    with torch.inference_mode():
        lt.swap(layer, dtype=torch.float8_e4m3fn)
    layer.weight.mul_(2)
    result = layer(x)
    near(torch, result, meant(torch, layer, x))
    result.sum().backward()
    near(torch, x.grad, layer.weight.sum(0).expand(3, 32))


@pytest.mark.parametrize("trained", [False, True])
def test_autocast_reaches_eight_bits(torch: Any, small: Any, trained: bool) -> None:
    small.requires_grad_(trained)
    x = torch.randn(3, 32, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = small(x), meant(torch, small, x)
    assert ours.dtype is theirs.dtype is torch.bfloat16
    near(torch, ours, theirs)
    wanted = [x, *(small.parameters() if trained else ())]
    found, expected = (torch.autograd.grad(each.sum(), wanted) for each in (ours, theirs))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype is other.dtype
        near(torch, one, other)


# ---- gradients kept elsewhere ----


def test_a_gradient_kept_elsewhere_has_no_history(torch: Any, lt: Any) -> None:
    layer, x = lt.Linear(4, 5), torch.randn(3, 4, requires_grad=True)
    layer.weight.main_grad = torch.zeros(5, 4)
    (of_x,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    once = layer.weight.main_grad.clone()
    torch.testing.assert_close(once, 2 * layer(x).detach().T @ x.detach())
    of_x.sum().backward()
    assert not layer.weight.main_grad.requires_grad


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_gradients_are_kept_elsewhere_by_compiled_graphs(torch: Any, lt: Any, backend: str) -> None:
    layer, x = lt.Linear(4, 5), torch.randn(3, 4)
    layer.weight.main_grad = torch.zeros(5, 4)
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    for times in (1, 2):
        compiled(x).sum().backward()
        torch.testing.assert_close(layer.weight.main_grad, times * x.sum(0).expand(5, 4))
    assert layer.weight.grad is None
