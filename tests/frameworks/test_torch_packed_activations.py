"""Layers of few bits with activations, residuals and epilogues, beside torch's of the decoded weights."""

from __future__ import annotations

from typing import Any

import pytest

import lapidist
from lapidist import epilogues, quantised

pytestmark = pytest.mark.frameworks
K, N = 64, 24
NAMES = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu", "silu": "silu"}


def operands(torch: Any, *rows: int) -> list[Any]:
    """A packed weight, its numbers; x, bias and residual."""
    torch.manual_seed(52)
    packed = quantised.pack(torch.randn(K, N) / 4, "int4", group=32)
    shapes = (*rows, K), (N,), (*rows, N)
    tensors = [torch.randn(shape, dtype=torch.bfloat16) for shape in shapes]
    return [packed, quantised.unpack(packed, "float64"), *tensors]


def plainly(torch: Any, x: Any, numbers: Any, bias: Any, activation: str | None, residual: Any) -> Any:
    sums = x @ numbers if bias is None else x @ numbers + bias
    if activation is not None:
        more = {"approximate": "tanh"} if activation == "gelu_tanh" else {}
        sums = getattr(torch.nn.functional, NAMES[activation])(sums, **more)
    return sums if residual is None else sums + residual


def near(one: Any, other: Any) -> None:
    assert one.shape == other.shape
    assert (one.double() - other).abs().max() <= 0.01 * other.abs().max()


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The epilogues that reach the library."""
    seen, matmul = [], quantised.matmul

    def watched(*given: Any, epilogue: Any = None, **more: Any) -> Any:
        seen.append(epilogue)
        return matmul(*given, epilogue=epilogue, **more)

    monkeypatch.setattr(quantised, "matmul", watched)
    return seen


@pytest.mark.parametrize("activation", [None, *NAMES])
@pytest.mark.parametrize("parts", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("recorded", [False, True])
def test_layers_end_in_their_launch(
    torch: Any, lt: Any, functions: list[Any], activation: str | None, parts: Any, recorded: bool
) -> None:
    """With gradients, too, but for a residual without an activation."""
    packed, numbers, x, bias, residual = operands(torch, 2, 3)
    bias, residual = bias if parts[0] else None, residual if parts[1] else None
    given = [None if tensor is None else tensor.requires_grad_(recorded) for tensor in (x, bias, residual)]
    found = lt.linear(*given[:1], packed, given[1], activation=activation, residual=given[2])
    exact = [
        None if tensor is None else tensor.detach().double().requires_grad_(recorded) for tensor in given
    ]
    expected = plainly(torch, exact[0], numbers, exact[1], activation, exact[2])
    near(found.detach(), expected.detach())
    fused = activation is not None or (residual is not None and not recorded)
    assert len(functions) == fused
    if recorded:
        direction = torch.randn(2, 3, N)
        tensors = [[t for t in each if t is not None] for each in (given, exact)]
        of_found = torch.autograd.grad(found, tensors[0], direction.bfloat16())
        of_expected = torch.autograd.grad(expected, tensors[1], direction.double())
        for one, other in zip(of_found, of_expected, strict=True):
            near(one, other)


@pytest.mark.parametrize("recorded", [False, True])
def test_a_function_of_the_callers(torch: Any, lt: Any, functions: list[Any], recorded: bool) -> None:
    packed, numbers, x, bias, _ = operands(torch, 5)
    x.requires_grad_(recorded)
    epilogue = epilogues.bias_gelu(bias=bias)
    expected = torch.nn.functional.gelu(x.detach().double() @ numbers + bias)
    for found in (lt.matmul(x, packed, epilogue=epilogue), lt.linear(x, packed, epilogue=epilogue)):
        near(found.detach(), expected)
        assert found.requires_grad == recorded
        assert found.dtype is torch.bfloat16
    near(lt.matmul(x[0], packed, epilogue=epilogue).detach(), expected[0])
    assert bool(functions) != recorded


def test_a_network_compiles(torch: Any, lt: Any) -> None:
    _, _, x, _, _ = operands(torch, 4)
    down = quantised.pack(torch.randn(K, 8), "mxfp4")
    up = quantised.pack(torch.randn(K, K) / 4, "mxfp4")
    results = []
    for call in (lt.mlp, torch.compile(lt.mlp, fullgraph=True, backend="aot_eager")):
        given = x.detach().requires_grad_()
        result = call(given, up, None, down, None, activation="silu")
        results.append((result.detach(), *torch.autograd.grad(result.float().square().sum(), given)))
    hidden = torch.nn.functional.silu(x.double() @ quantised.unpack(up).double())
    expected = hidden @ quantised.unpack(down).double()
    for result, _ in results:
        near(result, expected)
    assert (results[0][1] - results[1][1]).abs().max() <= 0.05 * results[0][1].abs().max()


def test_what_packed_layers_refuse(torch: Any, lt: Any) -> None:
    packed, _, x, bias, residual = operands(torch, 5)
    for more, words in (
        ({"activation": "tanh"}, "activation: must be 'relu', 'gelu'"),
        ({"residual": residual[:, 1:]}, r"residual: must be a tensor of the result's shape, \(5, 24\)"),
        ({"epilogue": epilogues.gelu, "bias": bias}, "bias: must be an operand of the epilogue"),
        ({"epilogue": epilogues.gelu, "activation": "relu"}, "activation: must be None with an epilogue"),
        ({"into": residual}, "into: is not for weights of few bits"),
        ({"out_dtype": torch.float32}, "out_dtype: is not for weights of few bits"),
    ):
        with pytest.raises(lapidist.LapidistError, match=words):
            lt.linear(x, packed, **more)
    with pytest.raises(lapidist.LapidistError, match="precision: is not for weights of few bits"):
        lt.matmul(x, packed, precision="tf32")
