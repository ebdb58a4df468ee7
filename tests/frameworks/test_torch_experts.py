"""Mixtures of experts, whose experts are swapped for grouped products, beside the same ones as they were."""

from __future__ import annotations

import copy
import importlib
import pickle
from typing import Any

import pytest

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
COUNT, TOP_K, FEATURES, INNER = 6, 2, 16, 12


@pytest.fixture
def stock(torch: Any, lt: Any) -> Any:
    torch.manual_seed(0)
    return importlib.import_module("mixtures")


@pytest.fixture
def mixture(stock: Any) -> Any:
    return stock.StockMixture(COUNT, TOP_K, FEATURES, INNER)


def learned(torch: Any, model: Any, x: Any) -> list[Any]:
    """The result, and the gradients of what it was made of."""
    x = x.detach().requires_grad_()
    result = model(x)
    return [result, *torch.autograd.grad(result.square().sum(), [x, *model.parameters()])]


def alike(torch: Any, ours: list[Any], theirs: list[Any]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        largest = other.abs().max().item() if other.numel() else 0.0
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * largest)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("tokens", [(3, 7), (1, 1), (40,), (0,)])
def test_a_layer_learns_as_before(
    torch: Any, lt: Any, stock: Any, tokens: tuple[int, ...], transposed: bool
) -> None:
    layer = stock.StockMixture(COUNT, TOP_K, FEATURES, INNER, transposed)
    x = torch.randn(*tokens, FEATURES)
    expected = learned(torch, layer, x)
    with lt.swap(layer) as swapped:
        assert len(swapped) == 2  # the router's layer and the experts
        assert type(layer.experts) is not stock.StockExperts
        alike(torch, learned(torch, layer, x), expected)
        with torch.no_grad():
            alike(torch, [layer(x)], expected[:1])
    assert type(layer.experts) is stock.StockExperts


@pytest.mark.parametrize("recorded", [False, True])
def test_experts_of_other_devices_add_nothing(torch: Any, lt: Any, stock: Any, recorded: bool) -> None:
    """Their numbers begin behind the last one here, and their weights may be anything."""
    experts = stock.StockExperts(COUNT, FEATURES, INNER).requires_grad_(recorded)
    x, weights = torch.randn(9, FEATURES), torch.rand(9, 3)
    index = torch.stack([torch.randperm(COUNT + 1)[:3] for _ in range(9)])
    assert (index == COUNT).any()
    expected = experts(x, index, weights)
    lt.swap(experts)
    torch.testing.assert_close(experts(x, index, weights), expected, rtol=1e-4, atol=1e-5)


def test_no_length_reaches_the_host(torch: Any, lt: Any, mixture: Any) -> None:
    """One graph, without a break, serves other tokens and other routes."""
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    lt.swap(mixture)
    compiled = torch.compile(mixture, fullgraph=True, backend=counter)
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(2, 5, FEATURES)
        alike(torch, learned(torch, compiled, x), learned(torch, mixture, x))
    assert counter.frame_count == 1


def test_inductor_compiles_swapped_experts(torch: Any, lt: Any, mixture: Any) -> None:
    torch._dynamo.reset()
    x = torch.randn(2, 5, FEATURES)
    expected = learned(torch, mixture, x)
    lt.swap(mixture)
    alike(torch, learned(torch, torch.compile(mixture, fullgraph=True), x), expected)


@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_gradients_of_weights_are_added_up_elsewhere(
    torch: Any, lt: Any, mixture: Any, backend: str | None
) -> None:
    torch._dynamo.reset()
    x, weights = torch.randn(2, 5, FEATURES), [mixture.experts.gate_up_proj, mixture.experts.down_proj]
    expected = torch.autograd.grad(mixture(x).square().sum(), weights)
    lt.swap(mixture)
    for weight in weights:
        weight.main_grad = torch.zeros(weight.shape)
    run = torch.compile(mixture, fullgraph=True, backend=backend) if backend else mixture
    for times in (1, 2):
        run(x).square().sum().backward()
        sums = [weight.main_grad for weight in weights]
        alike(torch, sums, [times * gradient for gradient in expected])
    assert weights[0].grad is weights[1].grad is None


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_multiply_as_their_models(torch: Any, lt: Any, stock: Any, copied: Any) -> None:
    experts = stock.StockExperts(COUNT, FEATURES, INNER)
    x, index, weights = torch.randn(5, FEATURES), torch.randint(COUNT, (5, TOP_K)), torch.rand(5, TOP_K)
    swapped = lt.swap(experts)
    other = copied(experts)
    torch.testing.assert_close(other(x, index, weights), experts(x, index, weights), rtol=0, atol=0)
    with torch.no_grad():
        other.down_proj.zero_()
    assert experts(x, index, weights).abs().max() > 0
    assert not other(x, index, weights).any()
    assert type(other) is type(experts)
    assert isinstance(other, stock.StockExperts)
    swapped.undo()
    assert type(experts) is stock.StockExperts


def test_a_functional_gradient_is_autograds(torch: Any, lt: Any, mixture: Any) -> None:
    lt.swap(mixture)
    x, weights = torch.randn(7, FEATURES), dict(mixture.named_parameters())
    results = torch.func.grad(
        lambda weights: torch.func.functional_call(mixture, weights, (x,)).square().sum()
    )({name: weight.detach() for name, weight in weights.items()})
    alike(torch, list(results.values()), learned(torch, mixture, x)[2:])


def test_layers_that_are_none_of_these_stay(torch: Any, lt: Any, stock: Any) -> None:
    for change in ({"has_bias": True}, {"has_gate": False}, {"is_transposed": None}):
        experts = stock.StockExperts(COUNT, FEATURES, INNER)
        for name, value in change.items():
            setattr(experts, name, value)
        with pytest.warns(UserWarning, match="no experts"):
            assert len(lt.swap(experts)) == 0
    eight = stock.StockExperts(COUNT, FEATURES, INNER).requires_grad_(False)
    eight.down_proj.data = eight.down_proj.data.to(torch.float8_e4m3fn)
    with pytest.warns(UserWarning, match="no experts"):
        assert len(lt.swap(eight)) == 0


def test_a_choice_of_layers_sees_experts(torch: Any, lt: Any, mixture: Any, stock: Any) -> None:
    names: list[str] = []
    swapped = lt.swap(mixture, where=lambda name, layer: names.append(name) or name == "gate")
    assert names == ["gate", "experts"]
    assert len(swapped) == 1
    assert type(mixture.experts) is stock.StockExperts
    lt.swap(mixture)
    with pytest.warns(UserWarning, match="must have layers to swap"):
        assert len(lt.swap(mixture)) == 0


def test_eight_bits_are_for_linear_layers(torch: Any, lt: Any, mixture: Any) -> None:
    x = torch.randn(7, FEATURES)
    with torch.no_grad():
        expected = mixture(x)
        lt.swap(mixture, dtype=torch.float8_e4m3fn, where=lambda name, layer: name == "experts")
        torch.testing.assert_close(mixture(x), expected, rtol=1e-4, atol=1e-5)
