"""Checkpoints of GPTQ and AWQ as transformers writes them, and packed weights that files hold."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

import lapidist
from lapidist import quantised

torch = pytest.importorskip("torch")
pytest.importorskip("lapidist.torch")
pytestmark = pytest.mark.frameworks


def words_of(codes: Any, along: int) -> Any:
    """Eight codes of a word, neighbours along a dimension."""
    split = codes.long().unflatten(along, (-1, 8))
    shape = [1] * split.ndim
    shape[along + 1] = 8
    words = (split << torch.arange(0, 32, 4).reshape(shape)).sum(along + 1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def gptq_state(name: str, codes: Any, scales: Any, zeros: Any) -> dict[str, Any]:
    k, groups = len(codes), len(scales)
    return {
        f"{name}.qweight": words_of(codes, 0),
        f"{name}.scales": scales,
        f"{name}.qzeros": words_of(zeros, 1),
        f"{name}.g_idx": torch.arange(k) // (k // groups),
    }


def test_layers_take_a_checkpoint_of_gptq_and_of_awq() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(128, 64), torch.nn.Linear(64, 16, bias=False)).half()
    codes, scales = torch.randint(16, (128, 64)), torch.rand(2, 64).half()
    zeros = torch.randint(1, 16, (2, 64))
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
    second, factors, points = (
        torch.randint(16, (64, 16)),
        torch.rand(2, 16).half(),
        torch.randint(16, (2, 16)),
    )
    by_awq = (part.unflatten(1, (-1, 8))[..., order].flatten(1) for part in (second, points))
    awq = dict(zip(("1.qweight", "1.qzeros"), (words_of(part, 1) for part in by_awq), strict=True))
    state = {**gptq_state("0", codes, scales, zeros - 1), "0.bias": torch.rand(64).half(), **awq}
    rest = lapidist.torch.load_packed(model, {**state, "1.scales": factors, "norm": torch.ones(1)})
    assert list(rest) == ["norm"]
    expected = (codes - zeros.repeat_interleave(64, 0)) * scales.float().repeat_interleave(64, 0)
    assert torch.equal(quantised.unpack(model[0].packed_weight), expected)
    assert torch.equal(model[0].bias.data, state["0.bias"])
    expected = (second - points.repeat_interleave(32, 0)) * factors.float().repeat_interleave(32, 0)
    assert torch.equal(quantised.unpack(model[1].packed_weight), expected)


def test_a_checkpoint_that_does_not_fit_changes_no_layer() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(128, 64), torch.nn.Linear(128, 32))
    right = gptq_state("0", torch.zeros(128, 64), torch.ones(1, 64), torch.zeros(1, 64))
    eights = gptq_state("1", torch.zeros(128, 32), torch.ones(1, 32), torch.full((1, 32), 8))
    other = gptq_state("1", torch.zeros(64, 32), torch.ones(1, 32), torch.zeros(1, 32))
    for wrong, words in (
        (eights, "zero_offset: must be said where all zero points are stored as 8"),
        (other, r"state: 1 must have shape \(128, 32\), as the layer has; got \(64, 32\)"),
        ({"2.qweight": torch.zeros(1, 1)}, "state: 2 must be a torch.nn.Linear of the model; got NoneType"),
        ({"1.qweight": torch.zeros(1, 1)}, "state: 1.scales is missing"),
    ):
        with pytest.raises(lapidist.errors.LapidistError, match=words):
            lapidist.torch.load_packed(model, {**right, **wrong})
        assert [type(layer) for layer in model] == [torch.nn.Linear] * 2
    assert not lapidist.torch.load_packed(model, {**right, **eights}, zero_offset=0)
    with pytest.raises(lapidist.errors.LapidistError, match="state: must have packed weights"):
        lapidist.torch.load_packed(model, {})
    with pytest.raises(
        lapidist.errors.LapidistError, match="state: 0 must be a layer that is not packed yet"
    ):
        lapidist.torch.load_packed(model, right)


def test_a_model_without_numbers_takes_those_of_a_checkpoint() -> None:
    with torch.device("meta"):
        model = torch.nn.Sequential(torch.nn.Linear(64, 32, dtype=torch.bfloat16))
    state = gptq_state("0", torch.full((64, 32), 9), torch.ones(1, 32).half(), torch.zeros(1, 32))
    lapidist.torch.load_packed(model, {**state, "0.bias": torch.arange(32.0)})
    result = model(torch.ones(2, 64, dtype=torch.bfloat16))
    assert torch.equal(result, (64 * 8 + torch.arange(32.0)).bfloat16().expand(2, 32))


# ---- groups by the sizes of activations ----


def ordered_state(k: int, n: int, group: int) -> tuple[dict[str, Any], Any]:
    """A layer "0" of desc_act, and its numbers (k, n)."""
    codes, scales = torch.randint(16, (k, n)), torch.rand(-(-k // group), n).half() / 16
    zeros, groups = torch.randint(1, 16, scales.shape), (torch.arange(k) // group)[torch.randperm(k)]
    numbers = (codes - zeros[groups]) * scales[groups].double()
    plain = gptq_state("0", codes, scales, zeros - 1)
    return {**plain, "0.g_idx": groups.int(), "0.bias": torch.rand(n).half()}, numbers


def ordered_model(k: int = 200, n: int = 48, group: int = 64) -> tuple[Any, Any]:
    torch.manual_seed(8)
    model = torch.nn.Sequential(torch.nn.Linear(k, n)).half()
    state, numbers = ordered_state(k, n, group)
    assert not lapidist.torch.load_packed(model, state)
    return model, numbers


def test_a_checkpoint_in_the_order_of_activations_gives_its_numbers() -> None:
    """Results and gradients, of calls and of a graph; and the layer that undo() leaves."""
    model, numbers = ordered_model()
    layer = model[0]
    assert "in the order of activations" in repr(layer)
    assert torch.equal(quantised.unpack(layer.packed_weight, "float64"), numbers)
    x, g = torch.randn(2, 3, 200).half(), torch.randn(2, 3, 48).half()
    exact, of_x = x.double() @ numbers + layer.bias.double(), g.double() @ numbers.T
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for call in (model, compiled, lambda x: lapidist.torch.linear(x, layer.packed_weight, layer.bias)):
        inputs = x.detach().requires_grad_()
        result = call(inputs)
        torch.testing.assert_close(result.double(), exact, rtol=2e-3, atol=2e-3)
        (gradient,) = torch.autograd.grad(result, inputs, g)
        torch.testing.assert_close(gradient.double(), of_x, rtol=2e-3, atol=2e-3)
    inputs = x.detach().requires_grad_()
    result = lapidist.torch.linear(inputs, layer.packed_weight, layer.bias, activation="relu")
    torch.testing.assert_close(result.double(), exact.relu(), rtol=2e-3, atol=2e-3)
    (gradient,) = torch.autograd.grad(result, inputs, g)
    of_positive = (g * (result > 0)).double() @ numbers.T
    torch.testing.assert_close(gradient.double(), of_positive, rtol=2e-3, atol=2e-3)
    small = x[0].to(torch.float8_e4m3fn)
    result = lapidist.torch.scaled(small, layer.packed_weight, torch.ones(3), None)
    torch.testing.assert_close(result.double(), small.double() @ numbers, rtol=2e-3, atol=2e-3)


def test_x_follows_the_order_in_the_machine() -> None:
    model, numbers = ordered_model(104, 16, 32)
    x = torch.randn(3, 104).half().requires_grad_()
    result = quantised.matmul(x, model[0].packed_weight, device="machine")
    torch.testing.assert_close(result.double(), x.double() @ numbers, rtol=2e-3, atol=2e-3)
    (gradient,) = torch.autograd.grad(result.sum(), x)
    torch.testing.assert_close(gradient.double(), numbers.sum(1).expand(3, 104), rtol=2e-3, atol=4e-3)


def test_orders_are_saved_loaded_and_copied(tmp_path: Path) -> None:
    """By safetensors; and a layer without an order takes a state that has one, and the other way round."""
    from safetensors.torch import load_file, save_file

    (model, numbers), plain = ordered_model(), torch.nn.Sequential(torch.nn.Linear(200, 48)).half()
    lapidist.torch.swap(plain, weights="int4", group=32)
    before, without = model.state_dict(), copy.deepcopy(plain.state_dict())
    assert "0.order" in before
    assert "0.order" not in without
    save_file(before, tmp_path / "model.safetensors")
    saved = load_file(tmp_path / "model.safetensors")
    x = torch.randn(3, 200).half()
    expected, others = model(x), plain(x)
    for other in (plain, copy.deepcopy(model)):
        other.load_state_dict(saved)
        assert torch.equal(other(x), expected)
        other.load_state_dict(without)
        assert torch.equal(other(x), others)
    broken = {**saved, "0.order": saved["0.order"][1:]}
    with pytest.raises(lapidist.LapidistError, match=r"state: order must have shape \(200,\)"):
        model.load_state_dict(broken)
    weight = quantised.load({name.removeprefix("0."): array for name, array in saved.items()})
    assert torch.equal(quantised.unpack(weight, "float64"), numbers)


def test_experts_have_no_order() -> None:
    model, _ = ordered_model()
    weight = model[0].packed_weight
    with pytest.raises(lapidist.LapidistError, match="weights: groups must be neighbours along k"):
        quantised.stack([weight, weight])
    with pytest.raises(lapidist.LapidistError, match=r"x: must have k = 200 columns, .*; got \(3, 256\)"):
        model(torch.zeros(3, 256).half())
    with pytest.raises(lapidist.LapidistError, match="weight: must be where x is, on meta; got one on cpu"):
        model(torch.zeros(3, 200, device="meta").half())
