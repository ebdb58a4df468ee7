"""What lapidist.torch refuses, in words, of tensors with and without numbers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

import lapidist

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


MISTAKES: dict[str, tuple[type[Exception], str, Callable[[Any, Any], Any]]] = {
    "inner": (lapidist.ShapeError, "b: must have as many rows", lambda x, lt: lt.matmul(x(3, 4), x(3, 4))),
    "batch": (
        lapidist.ShapeError,
        "b: batch dimensions must",
        lambda x, lt: lt.matmul(x(2, 3, 4), x(3, 4, 3)),
    ),
    "scalar": (lapidist.ShapeError, "a: must have at least 1", lambda x, lt: lt.matmul(x(), x(3, 4))),
    "vector": (lapidist.ShapeError, "a: must have at least 2", lambda x, lt: lt.gemm(x(3), x(3, 4))),
    "types": (
        lapidist.DTypeError,
        "b: element type must be that of a",
        lambda x, lt: lt.matmul(x(3, 3), x(3, 3).double()),
    ),
    "complex": (
        lapidist.DTypeError,
        "b: element type must be that of a, complex64; got float64. Convert both to complex128",
        lambda x, lt: lt.matmul(x(3, 3) * 1j, x(3, 3).double()),
    ),
    "no c": (lapidist.ArgumentError, "beta: must be 0", lambda x, lt: lt.gemm(x(3, 3), x(3, 3), beta=1.0)),
    "c": (lapidist.ShapeError, "c: must broadcast", lambda x, lt: lt.gemm(x(3, 3), x(3, 3), x(4), beta=1.0)),
    "features": (
        lapidist.ShapeError,
        "weight: must have as many columns",
        lambda x, lt: lt.linear(x(3, 4), x(4, 5)),
    ),
    "weight": (lapidist.ShapeError, "weight: must have 1 or 2", lambda x, lt: lt.linear(x(3, 4), x(2, 5, 4))),
    "bias": (lapidist.ShapeError, "bias: must broadcast", lambda x, lt: lt.linear(x(3, 4), x(5, 4), x(4))),
    "bias' type": (
        lapidist.DTypeError,
        "bias: element type",
        lambda x, lt: lt.linear(x(3, 4), x(5, 4), x(5).double()),
    ),
    "a layer's types": (
        lapidist.DTypeError,
        "weight: element type must be that of input",
        lambda x, lt: lt.linear(x(3, 4), x(5, 4).double()),
    ),
    "with an activation": (
        lapidist.DTypeError,
        "weight: element type must be that of input",
        lambda x, lt: lt.linear(x(3, 4), x(5, 4).double(), activation="gelu"),
    ),
    "with a residual": (
        lapidist.DTypeError,
        "weight: element type must be that of input",
        lambda x, lt: lt.linear(x(3, 4), x(5, 4).double(), residual=x(3, 5)),
    ),
    "a complex residual": (
        lapidist.DTypeError,
        "residual: must be of real numbers",
        lambda x, lt: lt.linear(x(3, 4), x(5, 4), residual=x(3, 5) * 1j),
    ),
}


@pytest.mark.parametrize("kind", ["plain", "with gradients", "meta", "fake"])
@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_told_in_words_before_there_are_numbers(
    torch: Any, lt: Any, case: str, kind: str
) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    def make(*shape: int) -> Any:
        return torch.ones(
            shape, requires_grad=kind == "with gradients", device="meta" if kind == "meta" else "cpu"
        )

    error, words, call = MISTAKES[case]
    with FakeTensorMode() if kind == "fake" else nullcontext(), pytest.raises(error, match=words):
        call(make, lt)


def test_devices_apart_are_told_before_there_are_numbers(torch: Any, lt: Any) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(), pytest.raises(lapidist.DeviceError, match="b: must be where a is, host memory"):
        lt.matmul(torch.ones(3, 3), torch.ones(3, 3, device="cuda"))


# of tensors that have numbers, and some that have none
WITHOUT_NUMBERS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "b: must be where a is, host memory; it is in torch's meta": lambda x, meta, lt: lt.matmul(x, meta),
    "b: must be where a is, torch's meta device; it is in host": lambda x, meta, lt: lt.matmul(meta, x),
    "c: must be where a is": lambda x, meta, lt: lt.gemm(x, x, meta, beta=1.0),
    "weight: must be where input is": lambda x, meta, lt: lt.linear(x, meta),
    "bias: must be where input is": lambda x, meta, lt: lt.linear(x, x, meta[0], activation="relu"),
    "mask: must be where a is": lambda x, meta, lt: lt.matmul(
        x, x, epilogue=lapidist.epilogues.relu_backward(mask=meta)
    ),
}


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("words", WITHOUT_NUMBERS)
def test_there_are_numbers_in_all_tensors_or_none(torch: Any, lt: Any, words: str, recorded: bool) -> None:
    x, meta = torch.ones(3, 3, requires_grad=recorded), torch.ones(3, 3, device="meta")
    with pytest.raises(lapidist.DeviceError, match=words):
        WITHOUT_NUMBERS[words](x, meta, lt)


NO_TENSOR: dict[str, Callable[[Any, Any, Any], object]] = {
    "a: must be a tensor; got float": lambda x, value, lt: lt.matmul(3.0, 4.0),
    "b: must be a tensor": lambda x, value, lt: lt.matmul(x, value),
    "c: must be a tensor": lambda x, value, lt: lt.gemm(x, x, value or [1.0], beta=1.0),
    "input: must be a tensor": lambda x, value, lt: lt.linear(value, x),
    "weight: must be a tensor": lambda x, value, lt: lt.linear(x, value),
    "bias: must be a tensor": lambda x, value, lt: lt.linear(x, x, value or [1.0]),
    "down: must be a tensor": lambda x, value, lt: lt.mlp(x, x, None, value, None),
    "scale_a: must be a tensor": lambda x, value, lt: lt.scaled(x, x, value or [1.0], x),
}


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("value", [None, 1.0, [[1.0] * 3] * 3], ids=["None", "number", "list"])
@pytest.mark.parametrize("words", NO_TENSOR)
def test_what_is_no_tensor_is_told_in_words(
    torch: Any, lt: Any, words: str, value: Any, recorded: bool
) -> None:
    with pytest.raises(lapidist.DTypeError, match=f"{words}.* torch.as_tensor"):
        NO_TENSOR[words](torch.ones(3, 3, requires_grad=recorded), value, lt)


def test_a_layer_in_place_of_its_weight(torch: Any, lt: Any) -> None:
    layer = torch.nn.Linear(3, 2)
    with pytest.raises(lapidist.DTypeError, match=r"weight: must be a tensor; got Linear\. Pass its .weight"):
        lt.linear(torch.ones(1, 3), layer)
    with pytest.raises(lapidist.DTypeError, match=r"bias: must be a tensor; got Linear\. Pass its .bias"):
        lt.linear(torch.ones(1, 3), layer.weight, layer)


def test_parts_of_a_nested_tensor_are_multiplied(torch: Any) -> None:
    """As its refusal says."""
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)
    b = torch.ones(3, 2)
    with pytest.raises(
        lapidist.DTypeError, match=r"got nested. Multiply its parts, list\(tensor.unbind\(\)\)"
    ):
        lapidist.matmul(nested, b)
    results = lapidist.gemm(list(nested.unbind()), [b, b])
    assert [tuple(result.shape) for result in results] == [(2, 2), (4, 2)]


def test_a_tensor_whose_memory_was_freed_is_called_so(torch: Any) -> None:
    freed = torch.ones(3, 3)
    freed.untyped_storage().resize_(0)
    with pytest.raises(lapidist.DTypeError, match=r"got Tensor, whose memory was freed\. Resize its storage"):
        lapidist.matmul(freed, torch.ones(3, 3))


def test_what_fx_traces_is_traced_before_it_is_swapped(torch: Any, lt: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2))
    with lt.swap(model), pytest.raises(lapidist.DTypeError, match=r"Call torch.fx.symbolic_trace before"):
        torch.fx.symbolic_trace(model)
    traced, x = torch.fx.symbolic_trace(model), torch.ones(1, 3)
    with lt.swap(traced) as swapped:
        assert len(swapped) == 1
        torch.testing.assert_close(traced(x), model(x))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", ["strided", "jagged"])
def test_no_operator_takes_nested_tensors(torch: Any, lt: Any, layout: str) -> None:
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=getattr(torch, layout))
    b = torch.ones(3, 3)
    for name, call in (
        ("a", lambda: lt.matmul(nested, b)),
        ("b", lambda: lt.gemm(b, nested)),
        ("a", lambda: lt.gram(nested)),
        ("input", lambda: lt.linear(nested, b)),
        ("gradient", lambda: lt.orthogonalised(nested)),
    ):
        with pytest.raises(lapidist.DTypeError, match=rf"{name}: must be a dense tensor; got nested\. Mult"):
            call()


@pytest.mark.parametrize("keyword", ["quantise", "quantize"])
def test_layers_are_quantised_by_weights(torch: Any, lt: Any, keyword: str) -> None:
    with pytest.raises(TypeError, match='Write weights="int4"'):
        lt.swap(torch.nn.Linear(64, 64), **{keyword: "int4"})
