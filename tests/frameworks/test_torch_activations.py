"""linear with an activation: fused where torch need not see between, with gradients and compilers too."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import lapidist
from lapidist import api

pytestmark = pytest.mark.frameworks
SHAPES = [((3, 4), (5, 4), (5,)), ((4,), (5, 4), (5,)), ((2, 3, 4), (5, 4), None), ((2, 3, 4), (4,), ())]


@pytest.fixture
def epilogues(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Those that reach the library."""
    seen, gemm = [], api.gemm

    def watched(*given: Any, epilogue: Any = None, **more: Any) -> Any:
        seen.append(epilogue)
        return gemm(*given, epilogue=epilogue, **more)

    monkeypatch.setattr(api, "gemm", watched)
    return seen


def layer(torch: Any, shapes: Any, **more: Any) -> list[Any]:
    return [None if shape is None else torch.randn(shape, dtype=torch.float64, **more) for shape in shapes]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu"])
def test_it_is_torchs(torch: Any, lt: Any, epilogues: list[Any], activation: str, shapes: Any) -> None:
    given = layer(torch, shapes)
    known = importlib.import_module("lapidist.torch.activations").ACTIVATIONS[activation]
    expected = known(torch.nn.functional.linear(*given))
    torch.testing.assert_close(lt.linear(*given, activation=activation), expected)
    assert (epilogues[0] is not None) == (len(shapes[1]) == 2)


def test_a_layers_parameters_are_fused_without_gradients(torch: Any, lt: Any, epilogues: list[Any]) -> None:
    own = torch.nn.Linear(4, 5)
    input = torch.randn(3, 4)
    with torch.no_grad():
        found = lt.linear(input, own.weight, own.bias, activation="gelu")
    torch.testing.assert_close(found, torch.nn.functional.gelu(own(input)).detach())
    assert epilogues[0] is not None


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "silu"])
def test_gradients(torch: Any, lt: Any, activation: str) -> None:
    given = layer(torch, SHAPES[0], requires_grad=True)
    assert torch.autograd.gradcheck(lambda *all: lt.linear(*all, activation=activation), given)
    assert torch.autograd.gradgradcheck(lambda *all: lt.linear(*all, activation=activation), given)


# ---- and a residual ----


def plainly(torch: Any, activation: str | None, residual: Any, *given: Any) -> Any:
    known = importlib.import_module("lapidist.torch.activations").ACTIVATIONS
    return known.get(activation, lambda hidden: hidden)(torch.nn.functional.linear(*given)) + residual


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_tanh", "silu"])
def test_a_residual_is_added_in_the_launch(
    torch: Any, lt: Any, epilogues: list[Any], activation: str | None, shapes: Any
) -> None:
    """With gradients, too, but for one without an activation."""
    plain = layer(torch, shapes)
    residual = torch.randn(*shapes[0][:-1], *shapes[1][:-1], dtype=torch.float64)
    torch.testing.assert_close(
        lt.linear(*plain, activation=activation, residual=residual),
        plainly(torch, activation, residual, *plain),
    )
    fused = len(shapes[1]) == 2
    assert not fused or "residual" in epilogues[0].values
    del epilogues[:]
    given = [each.requires_grad_() for each in (*plain, residual) if each is not None]
    found = lt.linear(*plain, activation=activation, residual=residual)
    assert not fused or activation is None or "residual" in epilogues[0].values
    expected = plainly(torch, activation, residual, *plain)
    torch.testing.assert_close(found, expected)
    g = torch.randn_like(expected)
    torch.testing.assert_close(torch.autograd.grad(found, given, g), torch.autograd.grad(expected, given, g))


@pytest.mark.parametrize("shape", [(4,), (2, 3), ()], ids=str)
@pytest.mark.parametrize("extents", [(0, 5), (4, 0)], ids=["no inputs", "no outputs"])
@pytest.mark.parametrize("activation", [None, "silu"])
def test_layers_without_inputs_or_outputs(
    torch: Any, lt: Any, activation: str | None, extents: tuple[int, int], shape: tuple[int, ...]
) -> None:
    inputs, outputs = extents
    given = layer(torch, ((*shape, inputs), (outputs, inputs), (outputs,), (*shape, outputs)))
    for bias in (given[2], None):
        own = {"activation": activation, "residual": given[3]}
        expected = plainly(torch, activation, given[3], *given[:2], bias)
        torch.testing.assert_close(lt.linear(*given[:2], bias, **own), expected)
        recorded = [each.clone().requires_grad_() for each in given[:2]]
        found = lt.linear(*recorded, bias, **own)
        torch.testing.assert_close(found, expected)
        found.sum().backward()
        assert [each.grad.shape for each in recorded] == [each.shape for each in recorded]


@pytest.mark.parametrize("activation", [None, "silu"])
@pytest.mark.parametrize("has_bias", [False, True])
def test_gradients_with_a_residual(torch: Any, lt: Any, activation: str | None, has_bias: bool) -> None:
    *given, residual = layer(torch, (*SHAPES[0], (3, 5)), requires_grad=True)

    def call(input: Any, weight: Any, bias: Any, residual: Any) -> Any:
        return lt.linear(
            input, weight, bias if has_bias else None, activation=activation, residual=residual
        ) + (0 * bias.sum())

    assert torch.autograd.gradcheck(call, (*given, residual))
    assert torch.autograd.gradgradcheck(call, (*given, residual))


@pytest.mark.parametrize("activation", [None, "gelu"])
def test_a_residual_under_transforms_and_compilers(torch: Any, lt: Any, activation: str | None) -> None:
    input, weight, bias, residual = layer(torch, ((6, 3, 4), (5, 4), (5,), (6, 3, 5)))

    def call(input: Any, residual: Any) -> Any:
        return lt.linear(input, weight, bias, activation=activation, residual=residual)

    expected = plainly(torch, activation, residual, input, weight, bias)
    torch.testing.assert_close(torch.vmap(call)(input, residual), expected)
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(input, residual), expected)
    single = [each.float() for each in (input, weight, bias)]
    with torch.autocast("cpu", torch.bfloat16):
        found = lt.linear(*single, activation=activation, residual=residual.float())
        assert found.dtype is torch.bfloat16


def test_residuals_that_do_not_fit(torch: Any, lt: Any) -> None:
    given, residual = layer(torch, SHAPES[0]), torch.zeros(3, 5)
    for other in (residual[0], residual.T, 1.0):
        with pytest.raises(lapidist.LapidistError, match=r"residual: must be a tensor of the result's shape"):
            lt.linear(*given, activation="relu", residual=other)
    with pytest.raises(lapidist.ArgumentError, match="residual: must be None with an epilogue"):
        lt.linear(*given, residual=residual, epilogue=lapidist.epilogues.relu)
    with pytest.raises(lapidist.ArgumentError, match="into: must be None with an activation, a residual"):
        lt.linear(*given, residual=residual, into=torch.zeros(5, 4))


def test_under_vmap(torch: Any, lt: Any) -> None:
    input, weight, bias = layer(torch, ((6, 3, 4), (5, 4), (5,)))
    found = torch.vmap(lambda each: lt.linear(each, weight, bias, activation="relu"))(input)
    torch.testing.assert_close(found, torch.nn.functional.linear(input, weight, bias).relu())


def test_others_are_refused_in_words(torch: Any, lt: Any) -> None:
    given = layer(torch, SHAPES[0])
    with pytest.raises(lapidist.ArgumentError, match=r"activation: must be 'relu', .* got 'swish'"):
        lt.linear(*given, activation="swish")
    with pytest.raises(lapidist.ArgumentError, match="into: must be None with an activation"):
        lt.linear(*given, activation="relu", into=torch.zeros(5, 4))


@pytest.mark.parametrize("activation", ["gelu", "silu"])
def test_compilers_take_it_whole_with_its_gradients(torch: Any, lt: Any, activation: str) -> None:
    input, weight, bias = (
        torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((5, 16), (12, 16), (12,))
    )

    def loss(*given: Any) -> Any:
        return lt.linear(*given, activation=activation).square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    given = input, weight, bias
    found, expected = (torch.autograd.grad(each(*given), given) for each in (compiled, loss))
    torch.testing.assert_close(found, expected)
