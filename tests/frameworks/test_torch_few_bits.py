"""Weights of few bits in torch's tensors: packed, saved, loaded, moved and multiplied."""

from __future__ import annotations

import io
from typing import Any

import pytest

import lapidist
from lapidist import quantised

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.frameworks


@pytest.mark.parametrize(
    ("format", "more"),
    [("int4", {"group": 32, "zero_points": True}), ("mxfp4", {}), ("int8", {}), ("e4m3", {})],
)
def test_a_saved_weight_is_the_same(format: str, more: Any) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(128, 24, dtype=torch.bfloat16)
    packed = quantised.pack(layer.weight.T, format, **more)
    file = io.BytesIO()
    torch.save(packed.state_dict(), file)
    file.seek(0)
    again = quantised.load(torch.load(file, weights_only=True)).to("cpu")
    numbers = quantised.unpack(packed)
    assert torch.equal(quantised.unpack(again), numbers)
    x = torch.randn(3, 128, dtype=torch.bfloat16)
    expected = x.double() @ numbers.double() + layer.bias.double()
    found = quantised.matmul(x, again, layer.bias.detach())
    assert torch.allclose(found.double(), expected, rtol=2**-8, atol=1e-5)
    assert torch.equal(lapidist.matmul(x, packed), lapidist.matmul(x, again))


@pytest.mark.parametrize("decode", [False, True])
def test_tensors_run_in_the_machine(decode: bool) -> None:
    torch.manual_seed(1)
    packed = quantised.pack(torch.randn(64, 16), "int4", group=32)
    x = torch.randn(2, 5, 64, dtype=torch.float16)
    found = quantised.matmul(x, packed, device="machine", decode=decode)
    assert found.shape == (2, 5, 16)
    expected = x.double() @ quantised.unpack(packed).double()
    assert torch.allclose(found.double(), expected, rtol=2**-9, atol=2**-6)


@pytest.mark.parametrize("device", [None, "machine"])
@pytest.mark.parametrize("decode", [None, True])
def test_gradients_go_to_x_and_to_the_bias(device: Any, decode: Any) -> None:
    torch.manual_seed(2)
    packed = quantised.pack(torch.randn(64, 24), "int4", group=32)
    x = torch.randn(2, 3, 64, dtype=torch.bfloat16, requires_grad=True)
    bias = torch.randn(24, dtype=torch.bfloat16, requires_grad=True)
    result = quantised.matmul(x, packed, bias, device=device, decode=decode)
    found = torch.autograd.grad(result.float().square().sum(), (x, bias))
    exact = [array.detach().double().requires_grad_() for array in (x, bias)]
    sums = exact[0] @ quantised.unpack(packed).double() + exact[1]
    expected = torch.autograd.grad(sums.square().sum(), exact)
    for one, other in zip(found, expected, strict=True):
        assert (one.double() - other).abs().max() <= 0.01 * other.abs().max()


def test_an_output_records_nothing_in_silence() -> None:
    packed = quantised.pack(torch.randn(64, 24), "int8")
    x = torch.randn(3, 64, dtype=torch.bfloat16, requires_grad=True)
    with pytest.raises(lapidist.LapidistError, match="x: requires a gradient, and none would be recorded"):
        lapidist.matmul(x, packed, torch.empty(3, 24, dtype=torch.bfloat16))
