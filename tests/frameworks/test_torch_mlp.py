"""Two layers with an activation between: torch's values and gradients, by epilogues forth and back."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import lapidist
from lapidist import api

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")
FEATURES, HIDDEN, OUTPUTS = 4, 6, 5


def layers(torch: Any, shape: tuple[int, ...] = (3, FEATURES), biased: bool = True, **more: Any) -> list[Any]:
    shapes: list[Any] = [shape, (HIDDEN, FEATURES), (HIDDEN,), (OUTPUTS, HIDDEN), (OUTPUTS,)]
    how = {"dtype": torch.float64, "requires_grad": True} | more
    given = [torch.randn(each, **how) for each in shapes]
    return given if biased else [given[0], given[1], None, given[3], None]


def by_torch(torch: Any, input: Any, up: Any, up_bias: Any, down: Any, down_bias: Any, name: str) -> Any:
    linear = torch.nn.functional.linear
    activation = importlib.import_module("lapidist.torch.activations").ACTIVATIONS[name]
    return linear(activation(linear(input, up, up_bias)), down, down_bias)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("shape", [(3, FEATURES), (2, 3, FEATURES), (FEATURES,)], ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_it_is_torchs(torch: Any, lt: Any, activation: str, shape: tuple[int, ...], biased: bool) -> None:
    given = layers(torch, shape, biased)
    found, expected = lt.mlp(*given, activation=activation), by_torch(torch, *given, activation)
    torch.testing.assert_close(found, expected)
    seed, there = torch.randn_like(expected), [each for each in given if each is not None]
    torch.testing.assert_close(
        torch.autograd.grad(found, there, seed), torch.autograd.grad(expected, there, seed)
    )
    with torch.no_grad():
        torch.testing.assert_close(lt.mlp(*given, activation=activation), expected)


@pytest.mark.parametrize("activation", ACTIVATIONS[1:])
def test_gradients_have_gradients(torch: Any, lt: Any, activation: str) -> None:
    given = layers(torch)
    assert torch.autograd.gradcheck(lambda *all: lt.mlp(*all, activation=activation), given)
    assert torch.autograd.gradgradcheck(lambda *all: lt.mlp(*all, activation=activation), given)
    found, expected = lt.mlp(*given, activation=activation), by_torch(torch, *given, activation)
    seed = torch.randn_like(expected)
    torch.testing.assert_close(  # those that have a history are made in another way
        torch.autograd.grad(found, given, seed, create_graph=True), torch.autograd.grad(expected, given, seed)
    )


def test_many_gradients_at_once(torch: Any, lt: Any) -> None:
    given = layers(torch)
    found, expected = lt.mlp(*given), by_torch(torch, *given, "gelu")
    seeds = torch.randn(3, *expected.shape, dtype=torch.float64)
    torch.testing.assert_close(
        torch.autograd.grad(found, given, seeds, is_grads_batched=True),
        torch.autograd.grad(expected, given, seeds, is_grads_batched=True),
    )


@pytest.mark.parametrize("needed", range(5))
def test_each_gradient_alone(torch: Any, lt: Any, needed: int) -> None:
    given = layers(torch, requires_grad=False)
    given[needed].requires_grad_()
    found, expected = lt.mlp(*given), by_torch(torch, *given, "gelu")
    seed = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, given[needed], seed), torch.autograd.grad(expected, given[needed], seed)
    )


def test_the_derivative_is_in_a_products_launch(torch: Any, lt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    functions, gemm = [], api.gemm

    def watched(*given: Any, epilogue: Any = None, **more: Any) -> Any:
        functions.append(None if epilogue is None else getattr(epilogue, "function", epilogue).name)
        return gemm(*given, epilogue=epilogue, **more)

    monkeypatch.setattr(api, "gemm", watched)
    result = lt.mlp(*layers(torch))
    assert functions[0] == "of_bias"
    functions.clear()
    result.backward(torch.ones_like(result))
    assert functions[0] == "gelu_backward"
    assert set(functions[1:]) <= {None}


def test_compilers_and_transforms_see_through_it(torch: Any, lt: Any) -> None:
    given = layers(torch)
    expected = by_torch(torch, *given, "silu")
    compiled = torch.compile(
        lambda *all: lt.mlp(*all, activation="silu"), fullgraph=True, backend="aot_eager"
    )
    torch.testing.assert_close(compiled(*given), expected)
    inputs = torch.randn(7, 3, FEATURES, dtype=torch.float64)
    mapped = torch.vmap(lambda each: lt.mlp(each, *given[1:], activation="silu"))(inputs)
    torch.testing.assert_close(mapped, by_torch(torch, inputs, *given[1:], "silu"))
    x, tangent = given[0].detach(), torch.randn_like(given[0])
    pushed = torch.func.jvp(lambda x: lt.mlp(x, *given[1:], activation="silu"), (x,), (tangent,))
    torch.testing.assert_close(
        pushed, torch.func.jvp(lambda x: by_torch(torch, x, *given[1:], "silu"), (x,), (tangent,))
    )


def test_autocast_casts_all_of_it(torch: Any, lt: Any) -> None:
    given = layers(torch, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = lt.mlp(*given), by_torch(torch, *given, "gelu")
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.1)
    found.float().sum().backward()
    assert all(each.grad.dtype is torch.float32 for each in given)


def test_what_does_not_fit_is_refused_by_its_name(torch: Any, lt: Any) -> None:
    input, up, up_bias, down, down_bias = layers(torch)
    with pytest.raises(lapidist.ArgumentError, match="activation: must be 'relu'"):
        lt.mlp(input, up, up_bias, down, down_bias, activation="swish")
    for given, name in (
        ((input, up.float(), up_bias, down, down_bias), "up"),
        ((input, up, up_bias[1:], down, down_bias), "up_bias"),
        ((input, up, up_bias, down.float(), down_bias), "down"),
        ((input, up, up_bias, down, down_bias[1:]), "down_bias"),
        ((input, up, up_bias, down[:, 1:], down_bias), "down: must have as many columns"),
    ):
        with pytest.raises(lapidist.LapidistError, match=rf"\b{name}\b"):
            lt.mlp(*given)
