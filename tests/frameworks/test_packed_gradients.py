"""Gradients through weights of few bits that are differentiated again, tangents, and torch.func."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lapidist
from lapidist import quantised

torch = pytest.importorskip("torch")
lt = pytest.importorskip("lapidist.torch")
pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
K, N = 64, 24


@pytest.fixture
def packed() -> Any:
    torch.manual_seed(64)
    return quantised.pack(torch.randn(K, N) / 4, "int4", group=32)


@pytest.fixture
def ordered(packed: Any) -> Any:
    order = torch.randperm(K).int()
    return quantised.load({**packed.state_dict(), "order": order})


def activated(sums: Any, activation: str | None) -> Any:
    return sums if activation is None else getattr(torch.nn.functional, activation)(sums)


def second(function: Callable[..., Any], x: Any, bias: Any) -> tuple[Any, ...]:
    """Gradients of the gradient's square."""
    sums = function(x, bias)
    (first,) = torch.autograd.grad(sums.to(x.dtype).square().sum(), x, create_graph=True)
    return torch.autograd.grad(first.square().sum(), (x, bias))


def assert_near(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert (one.double() - other).abs().max() <= 0.03 * other.abs().max()


@pytest.mark.parametrize("activation", [None, "gelu", "silu"])
@pytest.mark.parametrize("which", ["packed", "ordered"])
def test_gradients_have_gradients(request: pytest.FixtureRequest, which: str, activation: Any) -> None:
    weight = request.getfixturevalue(which)
    numbers = quantised.unpack(weight, "float64")
    tensors = [torch.randn(shape, dtype=torch.float16) for shape in ((2, 3, K), (N,))]
    exact = [tensor.double().requires_grad_() for tensor in tensors]
    expected = second(lambda x, bias: activated(x @ numbers + bias, activation), *exact)
    calls = [lambda x, bias: lt.linear(x, weight, bias, activation=activation)]
    if activation is None:
        calls.append(lambda x, bias: quantised.matmul(x, weight, bias))
    for call in calls:
        assert_near(second(call, *(tensor.requires_grad_() for tensor in tensors)), expected)


def test_gradients_of_groups_have_gradients(packed: Any) -> None:
    experts, ends = quantised.stack([packed, packed]), torch.tensor([1, 4], dtype=torch.int32)
    numbers = quantised.unpack(packed, "float64")
    x, bias = torch.randn(4, K, dtype=torch.float16), torch.zeros(N, dtype=torch.float16)
    exact = x.double().requires_grad_(), bias.double().requires_grad_()
    expected = second(lambda x, bias: x @ numbers + bias, *exact)
    given = x.requires_grad_(), bias.requires_grad_()
    assert_near(second(lambda x, bias: lt.grouped(x, experts, ends) + bias, *given), expected)


def test_tangents_pass_through_packed_weights(packed: Any) -> None:
    numbers, jvp = quantised.unpack(packed, "float64"), torch.func.jvp
    given = [torch.randn(shape, dtype=torch.bfloat16) for shape in ((3, K), (N,))]
    tangents = [torch.randn_like(tensor) for tensor in given]
    of_x, of_bias = (tangent.double() for tangent in tangents)
    _, both = jvp(lambda x, bias: lt.linear(x, packed, bias), tuple(given), tuple(tangents))
    _, of_rows = jvp(lambda x: lt.linear(x, packed, given[1]), (given[0],), (tangents[0],))
    _, of_addend = jvp(lambda bias: lt.linear(given[0], packed, bias), (given[1],), (tangents[1],))
    expected = of_x @ numbers
    assert_near((both, of_rows, of_addend), (expected + of_bias, expected, of_bias.expand(3, N)))
    experts, ends = quantised.stack([packed, packed]), torch.tensor([1, 3], dtype=torch.int32)
    _, of_groups = jvp(lambda x: lt.grouped(x, experts, ends), (given[0],), (tangents[0],))
    assert_near((of_groups,), (expected,))


def test_transforms_go_through_packed_weights(packed: Any) -> None:
    x, numbers = torch.randn(5, K, dtype=torch.float16), quantised.unpack(packed, "float64")
    hessian = torch.func.hessian(lambda row: lt.linear(row, packed).float().square().sum())(x[0])
    assert_near((hessian,), (2 * numbers @ numbers.T,))
    rows = torch.vmap(lambda row: lt.linear(row, packed))(x)
    of_rows = torch.vmap(torch.func.grad(lambda row: lt.linear(row, packed).double().sum()))(x)
    assert torch.equal(rows, lt.linear(x, packed))
    assert_near((of_rows,), (numbers.sum(1).expand(5, K),))
    biases = torch.randn(5, N, dtype=torch.float16)
    of_biases = torch.vmap(lambda row, bias: lt.linear(row, packed, bias))(x, biases)
    assert_near((of_biases,), (x.double() @ numbers + biases.double(),))
    experts, ends = quantised.stack([packed, packed]), torch.tensor([2, 5], dtype=torch.int32)
    of_groups = torch.vmap(lambda x: lt.grouped(x, experts, ends))(torch.stack([x, x]))
    assert torch.equal(of_groups[1], lt.grouped(x, experts, ends))
    for call in (lambda x: quantised.matmul(x, packed), lambda x: x @ packed):
        with pytest.raises(lapidist.LapidistError, match="x: must be a tensor with memory of its own"):
            torch.func.grad(lambda x, call=call: call(x).float().sum())(x)


def test_a_direct_product_is_not_for_whole_graphs(packed: Any) -> None:
    x = torch.randn(2, K, dtype=torch.bfloat16)
    torch._dynamo.reset()
    for call in (lambda x: lapidist.matmul(x, packed), lambda x: quantised.matmul(x, packed)):
        with pytest.raises(Exception, match=r"In what is compiled write lapidist\.torch\.matmul"):
            torch.compile(call, backend="aot_eager", fullgraph=True)(x)
