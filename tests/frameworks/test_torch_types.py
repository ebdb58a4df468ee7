"""lapidist.torch beyond one type: results of another, tf32, 8-bit floats with factors, gradients that are
added up in float32.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

import lapidist

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
# torch's own check of schemas multiplies, which it has no means to do in 8 bits
OF_EIGHT_BITS = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def compiled(torch: Any, call: Any) -> Any:
    return torch.compile(call, fullgraph=True, backend="aot_eager")


# ---- results of another type ----


@pytest.mark.parametrize("name", ["matmul", "gemm", "linear"])
def test_results_and_gradients_of_other_types(torch: Any, lt: Any, name: str) -> None:
    a, b = (torch.randn(2, 4, 4, dtype=torch.bfloat16)[i].requires_grad_() for i in (0, 1))

    def call(a: Any, b: Any) -> Any:
        return getattr(lt, name)(a, b, out_dtype=torch.float32)

    right = (b if name != "linear" else b.T).double()
    for each in (call, compiled(torch, call)):
        d = each(a, b)
        assert d.dtype is torch.float32
        torch.testing.assert_close(d.double(), a.double() @ right, rtol=1e-5, atol=1e-5)
        direction = torch.randn(4, 4).bfloat16().float()
        found = torch.autograd.grad(d, (a, b), direction)
        expected = torch.autograd.grad(a.double() @ right, (a, b), direction.double())
        torch.testing.assert_close(found, expected, rtol=2e-2, atol=1e-1)
    given = (a, b, None, 1.0, 0.0, False, False) if name == "gemm" else (a, b, *[None] * (name == "linear"))
    op = getattr(torch.ops.lapidist, name).default
    torch.library.opcheck(op, (*given, torch.float32), test_utils=OF_EIGHT_BITS)
    mapped = torch.vmap(call, (0, None))(torch.stack([a, 2 * a]), b)
    torch.testing.assert_close(mapped, torch.stack([call(a, b), call(2 * a, b)]))
    tangent = torch.func.jvp(lambda x: call(x, b.detach()), (a.detach(),), (a.detach(),))
    torch.testing.assert_close(tangent[0], tangent[1])


def test_tf32_rounds_there_and_back(torch: Any, lt: Any) -> None:
    a, b = torch.randn(5, 7, requires_grad=True), torch.randn(7, 3)
    d = lt.matmul(a, b, precision="tf32")
    assert torch.equal(d, lapidist.matmul(a.detach(), b, precision="tf32"))
    direction = torch.randn_like(d)
    d.backward(direction)
    assert torch.equal(a.grad, lapidist.matmul(direction, b.mT, precision="tf32"))
    with pytest.raises(lapidist.ArgumentError, match="precision"):
        lt.matmul(a.double(), b.double(), precision="tf32")


# ---- factors ----


@pytest.mark.parametrize("kind", ["one", "rows", "blocks"])
def test_scaled_is_lapidists_gemm_with_factors(torch: Any, lt: Any, kind: str) -> None:
    m, k, n = 5, 300, 130
    a, b = torch.randn(m, k).to(torch.float8_e4m3fn), torch.randn(n, k).to(torch.float8_e4m3fn).t()
    shapes = {"one": ((1,), (1,)), "rows": ((m, 1), (1, n)), "blocks": ((m, 3), (3, 2))}[kind]
    scale_a, scale_b = (torch.rand(shape) + 0.5 for shape in shapes)
    c = torch.randn(n, dtype=torch.bfloat16, requires_grad=True)
    given = a, b, scale_a, scale_b, c
    expected = lapidist.gemm(
        a, b, c.detach(), beta=1.0, scale_a=scale_a, scale_b=scale_b, out_dtype="bfloat16"
    )

    def call(*given: Any) -> Any:
        return lt.scaled(*given, out_dtype=torch.bfloat16)

    for each in (call, compiled(torch, call)):
        d = each(*given)
        assert torch.equal(d, expected)
        (of_c,) = torch.autograd.grad(d, c, torch.ones_like(d))
        assert torch.equal(of_c, torch.full_like(c, m))
    torch.library.opcheck(
        torch.ops.lapidist.scaled.default, (*given, torch.bfloat16), test_utils=OF_EIGHT_BITS
    )


def test_wrong_factors_are_told_before_there_are_numbers(torch: Any, lt: Any) -> None:
    for device in ("cpu", "meta"):
        a, one = torch.ones(4, 4, device=device).to(torch.float8_e4m3fn), torch.ones(1, device=device)
        with pytest.raises(lapidist.ShapeError, match="scale_b: must be one factor"):
            lt.scaled(a, a, one, torch.ones(3, device=device))
        with pytest.raises(lapidist.DTypeError, match="scale_a"):
            lt.scaled(a.float(), a.float(), one, one)


# ---- layers in 8 bits ----


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("factors", ["rows", "blocks"])
def test_layers_in_eight_bits_are_near_and_come_back(torch: Any, lt: Any, factors: Any, dtype: str) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(200, 150), torch.nn.ReLU(), torch.nn.Linear(150, 7))
    x, kept = torch.randn(3, 5, 200), copy.deepcopy(model.state_dict())
    exact = model(x)
    with lt.swap(model, dtype=getattr(torch, dtype), factors=factors) as swapped, torch.no_grad():
        assert len(swapped) == 2
        near = model(x)
        assert (near.dtype, near.shape) == (torch.float32, exact.shape)
        error = (near - exact).norm() / exact.norm()
        assert 0 < error < (0.06 if dtype == "float8_e4m3fn" else 0.12)
        torch.testing.assert_close(compiled(torch, model)(x), near)
        assert model.state_dict().keys() == kept.keys()
        assert (copy.deepcopy(model)(x) - near).abs().max() == 0
        assert model.bfloat16()(x.bfloat16()).dtype is torch.bfloat16
    model.float().load_state_dict(kept)
    assert torch.equal(model(x), exact)
    assert all(type(layer) is torch.nn.Linear and "eight_bits" not in vars(layer) for layer in model[::2])


def test_weights_are_quantised_once_and_when_they_have_changed(torch: Any, lt: Any, monkeypatch: Any) -> None:
    from lapidist.torch import layers

    made = []
    quantise = layers.of_weight
    monkeypatch.setattr(layers, "of_weight", lambda *given: made.append(1) or quantise(*given))
    layer = torch.nn.Linear(8, 8)
    lt.swap(layer, dtype=torch.float8_e4m3fn)
    with torch.no_grad():
        before = layer(x := torch.randn(2, 8))
        layer(x)
        assert len(made) == 1
        layer.weight.mul_(2)
        torch.testing.assert_close(layer(x) - layer.bias, 2 * (before - layer.bias))
    assert len(made) == 2


def test_gradients_through_eight_bits_are_those_of_what_was_not_rounded(torch: Any, lt: Any) -> None:
    layer = torch.nn.Linear(16, 8)
    x = torch.randn(2, 3, 16, requires_grad=True)
    direction = torch.randn(2, 3, 8)
    wanted = [x, *layer.parameters()]
    expected = torch.autograd.grad(layer(x), wanted, direction)
    with lt.swap(layer, dtype=torch.float8_e4m3fn):
        for each in (layer, compiled(torch, layer)):
            torch.testing.assert_close(torch.autograd.grad(each(x), wanted, direction), expected)


def test_what_eight_bits_cannot_be_is_told(torch: Any, lt: Any) -> None:
    with pytest.raises(lapidist.DTypeError, match="dtype: must be"):
        lt.swap(torch.nn.Linear(4, 4), dtype=torch.int8)
    with pytest.raises(lapidist.ArgumentError, match="factors: must be"):
        lt.swap(torch.nn.Linear(4, 4), dtype=torch.float8_e4m3fn, factors="columns")


# ---- gradients that are added up elsewhere ----


def test_gradients_of_weights_are_added_up_in_float32(torch: Any, lt: Any) -> None:
    layer = torch.nn.Linear(8, 4).bfloat16()
    layer.weight.main_grad = torch.zeros(4, 8)
    xs = [torch.randn(2, 3, 8, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    expected = sum((x.detach().double().sum((0, 1)).expand(4, 8) for x in xs), torch.zeros(4, 8).double())
    with lt.swap(layer):
        for each in (layer, compiled(torch, layer)):
            layer.weight.main_grad.zero_()
            for x in xs:
                x.grad = None
                each(x).sum().backward()
                torch.testing.assert_close(
                    x.grad, layer.weight.detach().float().sum(0).bfloat16().expand_as(x)
                )
            assert layer.weight.grad is None
            torch.testing.assert_close(layer.weight.main_grad.double(), expected, rtol=1e-5, atol=1e-5)
    for into in (torch.zeros(8, 4), torch.zeros(4, 8, requires_grad=True)):
        with pytest.raises(lapidist.ShapeError, match="into: must be"):
            lt.linear(xs[0], layer.weight, into=into)


def test_the_update_in_place_is_what_torch_expects(torch: Any, lt: Any) -> None:
    a, b, out = torch.randn(3, 4), torch.randn(4, 5), torch.randn(3, 5)
    op, expected = torch.ops.lapidist.gemm_, 0.5 * out + 2 * (a @ b)
    torch.library.opcheck(op.default, (out.clone(), a, b))
    op(out, a, b, 2.0, 0.5)
    torch.testing.assert_close(out, expected)
    with pytest.raises(lapidist.ShapeError, match="out"):
        op(out, b, a, 1.0, 0.0, True, True)
