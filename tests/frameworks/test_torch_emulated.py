"""Emulated float32 through torch's operators: results without numbers, gradients, compiled graphs."""

from __future__ import annotations

from typing import Any

import pytest

import lapidist
from lapidist.errors import ArgumentError, DTypeError

pytestmark = pytest.mark.frameworks
BOTH = pytest.mark.parametrize("precision", ["emulated", "emulated_any_range"])


def assert_close(torch: Any, found: Any, expected: Any) -> None:
    """As sums of 300 float32 in any order."""
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.fixture
def operators() -> Any:
    from lapidist import torch as operators

    return operators


@BOTH
def test_gradients(torch: Any, operators: Any, precision: str) -> None:
    """Those of float32, from products of the same precision."""
    leaves = [torch.randn(shape, requires_grad=True) for shape in ((20, 300), (24, 300), (24,))]
    others = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    found = operators.linear(*leaves, precision=precision)
    expected = torch.nn.functional.linear(*others)
    assert_close(torch, found, expected)
    g = torch.randn_like(expected)
    found.backward(g)
    expected.backward(g)
    for leaf, other in zip(leaves, others, strict=True):
        assert_close(torch, leaf.grad, other.grad)


@BOTH
def test_compiled(torch: Any, operators: Any, precision: str) -> None:
    def layer(x: Any, w: Any, bias: Any) -> Any:
        return operators.linear(x, w, bias, precision=precision).relu() + operators.matmul(
            x, w.mT, precision=precision
        )

    x, w, bias = torch.randn(20, 300), torch.randn(24, 300), torch.randn(24)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    assert_close(torch, compiled(x, w, bias), layer(x, w, bias))


@BOTH
def test_operators_obey_torchs_rules(torch: Any, operators: Any, precision: str) -> None:
    """With all arguments, each of which has a gradient or None."""
    a, b, weight = (torch.randn(shape, requires_grad=True) for shape in ((5, 300), (300, 6), (6, 300)))
    torch.library.opcheck(torch.ops.lapidist.matmul.default, (a, b, None, precision))
    torch.library.opcheck(torch.ops.lapidist.linear.default, (a, weight, None, None, precision))
    torch.library.opcheck(
        torch.ops.lapidist.gemm.default, (a, b, None, 2.0, 0.0, False, False, None, precision)
    )


@lapidist.epilogue
def doubled(acc: Any, bias: lapidist.Row) -> Any:
    return acc * 2 + bias


@BOTH
def test_an_epilogue_and_its_gradient(torch: Any, operators: Any, precision: str) -> None:
    a, b, bias = torch.randn(20, 300), torch.randn(300, 24), torch.randn(24)
    found = operators.matmul(a, b, precision=precision, epilogue=doubled(bias=bias))
    assert_close(torch, found, 2 * (a @ b) + bias)
    a.requires_grad_()
    operators.matmul(a, b, precision=precision, epilogue=doubled(bias=bias)).sum().backward()
    assert_close(torch, a.grad, (2 * b.sum(1)).expand(20, 300))


@BOTH
def test_layers_with_activations(torch: Any, operators: Any, precision: str) -> None:
    x, up, down, bias = (torch.randn(shape) / 17 for shape in ((20, 300), (280, 300), (24, 280), (280,)))
    hidden = torch.nn.functional.gelu(x @ up.mT + bias)
    gelu = operators.linear(x, up, bias, activation="gelu", precision=precision)
    assert_close(torch, gelu, hidden)
    residual = operators.linear(hidden, down, residual=x[:, :24], precision=precision)
    assert_close(torch, residual, hidden @ down.mT + x[:, :24])
    mlp = operators.mlp(x, up, bias, down, None, activation="gelu", precision=precision)
    assert_close(torch, mlp, hidden @ down.mT)


@BOTH
def test_other_types_are_refused_without_numbers_too(torch: Any, operators: Any, precision: str) -> None:
    for device in ("cpu", "meta"):
        halves = torch.ones(4, 300, dtype=torch.float16, device=device)
        with pytest.raises(DTypeError, match=f'"{precision}" is a way to multiply float32; a is float16'):
            operators.matmul(halves, halves.mT, precision=precision)


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The weights that are cut, and each time one is cut anew."""
    from lapidist.calls.prepared_weights import PreparedWeight

    cuts: list[Any] = []
    renew = PreparedWeight.renew

    def noted(weight: Any) -> None:
        cuts.append(weight)
        renew(weight)

    monkeypatch.setattr(PreparedWeight, "renew", noted)
    return cuts


@BOTH
def test_swapped_layers_keep_their_weights_cut(
    torch: Any, operators: Any, precision: Any, prepared: list[Any]
) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(300, 40), torch.nn.ReLU(), torch.nn.Linear(40, 8))
    x = torch.randn(2, 5, 300)
    expected = model(x)
    swapped = operators.swap(model, precision=precision)
    assert_close(torch, model(x), expected)
    assert not prepared  # gradients are recorded
    with torch.no_grad():
        for _ in range(3):
            assert_close(torch, model(x), expected)
        assert len(prepared) == 2
        model[0].weight.mul_(2)
        model[0].bias.mul_(2)
        assert_close(torch, model(x) - model[2].bias, 2 * (expected - model[2].bias))
        assert len(prepared) == 3
        assert_close(torch, model[0](x[0, 0]), 2 * (x[0, 0] @ (model[0].weight.T / 2)) + model[0].bias)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert model(x).dtype == torch.bfloat16
    swapped.undo()
    assert all(type(layer) is not operators.Linear and "_prepared" not in vars(layer) for layer in model)
    assert type(model[0]) is torch.nn.Linear


def test_swapped_by_bits(torch: Any, operators: Any, prepared: list[Any]) -> None:
    model, x = torch.nn.Linear(300, 40), torch.randn(5, 300)
    expected = model(x).detach()
    with operators.swap(model, precision=lapidist.Accuracy(21)), torch.no_grad():
        assert_close(torch, model(x), expected)
        assert_close(torch, model(x), expected)
    assert len(prepared) == 1


def test_what_swapped_precisions_refuse(torch: Any, operators: Any) -> None:
    layer = torch.nn.Linear(300, 8)
    with pytest.raises(ArgumentError, match=r'precision: must be "emulated", .* here; got \'tf32\''):
        operators.swap(layer, precision="tf32")
    with pytest.raises(ArgumentError, match="invariant: must be None with precision"):
        operators.swap(layer, precision="emulated", invariant=True)
    with pytest.raises(ArgumentError, match="dtype: must be None with precision"):
        operators.swap(layer, precision="emulated", dtype=torch.float8_e4m3fn)
    assert type(layer) is torch.nn.Linear


def test_by_bits(operators: Any) -> None:
    """An operator takes its text, also where invariance is written behind it."""
    torch = pytest.importorskip("torch")
    a, b = torch.randn(4, 300, requires_grad=True), torch.randn(300, 5)
    bits = lapidist.Accuracy(21)
    torch.testing.assert_close(operators.matmul(a, b, precision=bits, invariant=False), a @ b)
    compiled = torch.compile(
        lambda a: operators.matmul(a, b, precision=bits).sum(), fullgraph=True, backend="aot_eager"
    )
    compiled(a).backward()
    assert a.grad is not None
    with pytest.raises(lapidist.ArgumentError, match="21 at most"):
        operators.matmul(a, b, precision="30 bits")
