"""Emulated float32 through torch's operators: results without numbers, gradients, compiled graphs."""

from __future__ import annotations

from typing import Any

import pytest

import lapidist
from lapidist.errors import DTypeError

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
