"""Packed weights where they do not belong, and states that are not theirs: refused in words."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import lapidist
from lapidist import quantised
from lapidist.errors import LapidistError

torch = pytest.importorskip("torch")
pytest.importorskip("lapidist.torch")
from lapidist.torch.packed_layer import PackedStack  # noqa: E402

pytestmark = pytest.mark.frameworks
REFUSED = "invariant: is not for weights of few bits"


def test_states_whose_types_or_layouts_were_changed_are_refused() -> None:
    """Kernels would read other numbers."""
    state = quantised.pack(torch.randn(128, 40), "int4", group=64).state_dict()
    for more, words in (
        ({"scales": state["scales"].float()}, "state: scales must be bfloat16, .*; got float32"),
        ({"codes": state["codes"].long()}, "state: codes must be int32, .*; got int64"),
        ({"layout": torch.tensor([128, 40, 64, 2, 77])}, "state: layout must be k, n, group"),
        ({"layout": torch.tensor([128, 40, 16, 2, 0])}, "state: layout must be k, n, group"),
        ({"layout": torch.tensor([128, 40, 64, 1, 0])}, "state: scales must be float16"),
    ):
        with pytest.raises(LapidistError, match=words):
            quantised.load({**state, **more})


def test_groups_are_named_by_numbers() -> None:
    experts = quantised.pack(torch.randn(3, 64, 8), "int8")
    assert torch.equal(quantised.unpack(experts[-1]), quantised.unpack(experts)[2])
    for number in (slice(1, None), 3, -4, torch.tensor([1, 2])):
        with pytest.raises(LapidistError, match="number: must be that of a group, from -3 to 2; got "):
            experts[number]


def test_an_order_of_sums_is_not_promised() -> None:
    """Neither by an argument nor by a block around the call, also in a graph that was compiled before."""
    x, offsets = torch.randn(3, 64).bfloat16(), torch.tensor([1, 3], dtype=torch.int32)
    packed = quantised.pack(torch.randn(64, 8), "int4")
    experts = quantised.stack([packed, packed])
    layer = lapidist.torch.PackedLinear(packed)
    compiled = torch.compile(layer, backend="aot_eager")
    compiled(x)
    calls = (
        lambda **how: lapidist.matmul(x, packed, **how),
        lambda **how: lapidist.torch.linear(x, packed, **how),
        lambda **how: lapidist.grouped(x, experts, offsets, **how),
        lambda **how: lapidist.matmul(x, packed, epilogue=lapidist.epilogue(lambda acc: acc + 1), **how),
        lambda **how: layer(x),
        lambda **how: compiled(x),
    )
    for number, call in enumerate(calls):
        with pytest.raises(LapidistError, match=REFUSED), lapidist.invariant():
            call()
        if number < 4:
            with pytest.raises(LapidistError, match=REFUSED):
                call(invariant=True)
        with lapidist.invariant(), lapidist.invariant(False):
            call()


def test_other_functions_say_what_multiplies() -> None:
    x, packed = torch.randn(3, 64).bfloat16(), quantised.pack(torch.randn(64, 8), "int4")
    for call in (lambda: lapidist.gemm(x, packed), lambda: lapidist.einsum("ab,bc->ac", x, packed)):
        with pytest.raises(LapidistError, match=r"Multiply by it with lapidist\.matmul or"):
            call()


def test_python_s_operator_multiplies_by_packed_weights() -> None:
    packed = quantised.pack(torch.eye(64, 32), "int8")
    x = torch.randn(3, 64).bfloat16().requires_grad_()
    result = x @ packed
    assert torch.equal(result, x[:, :32])
    result.sum().backward()
    assert torch.equal(x.grad, torch.eye(64, 32).sum(1).expand(3, 64).bfloat16())
    rows = x.detach().float().numpy().astype(np.float16)
    assert np.array_equal(rows @ quantised.pack(np.eye(64, 32), "int8"), rows[:, :32])
    with pytest.raises(LapidistError, match="x: must have k = 64 columns"):
        np.ones((2, 32), np.float16) @ quantised.pack(np.eye(64, 32), "int8")


def test_all_attributes_of_a_layer_can_be_read() -> None:
    """As tracers do. torch's distribute_module reads one, which then says that it cannot split."""
    layer = lapidist.torch.PackedLinear(quantised.pack(torch.randn(64, 8), "int4"))
    assert dict(inspect.getmembers(layer))["_distribute_module_applied"] is False


def layer_of(n: int, **how: object) -> object:
    torch.manual_seed(65)
    weight = quantised.pack(torch.randn(128, n), **{"format": "int4", "group": 64, **how})
    return lapidist.torch.PackedLinear(weight)


def test_a_loaded_state_stays_the_callers() -> None:
    """As that of torch's layers: its numbers are copied, unless they are assigned."""
    for how in ({}, {"format": "int8", "group": None}):
        layer, state = layer_of(64), layer_of(64, **how).state_dict()
        layer.load_state_dict(state)
        numbers = quantised.unpack(layer.packed_weight)
        for array in state.values():
            array.zero_()
        assert torch.equal(quantised.unpack(layer.packed_weight), numbers)
        assert numbers.any()


def test_a_layer_on_meta_takes_a_state_that_is_assigned() -> None:
    layer, state = layer_of(64), layer_of(64, format="mxfp4", group=None).state_dict()
    layer.to("meta").load_state_dict(state, assign=True)
    assert layer.codes is state["codes"]
    assert torch.equal(quantised.unpack(layer.packed_weight), quantised.unpack(quantised.load(state)))


def test_states_of_other_layers_are_refused() -> None:
    layer, x = layer_of(64), torch.randn(2, 128).bfloat16()
    expected = layer(x)
    with pytest.raises(LapidistError, match=r"state: must have a weight of \(128, 64\), as the layer has; g"):
        layer.load_state_dict(layer_of(128).state_dict())
    assert torch.equal(layer(x), expected)


def test_arrays_lie_in_rows_whatever_was_loaded() -> None:
    """Kernels read them one element after another."""
    experts, ends = quantised.pack(torch.randn(3, 128, 128), "int4"), torch.tensor([1, 1, 2])
    x = torch.randn(2, 128).bfloat16()
    expected = lapidist.grouped(x, experts, ends, device="machine")
    state = {name: array.mT.contiguous().mT for name, array in experts.state_dict().items() if array.ndim > 1}
    again = quantised.load({**experts.state_dict(), **state})
    assert torch.equal(lapidist.grouped(x, again, ends, device="machine"), expected)
    assert not state["codes"].is_contiguous()
    layer = PackedStack(experts)
    layer.to(memory_format=torch.channels_last)
    assert torch.equal(lapidist.grouped(x, layer.packed_weight, ends, device="machine"), expected)
