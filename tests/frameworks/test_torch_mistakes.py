"""Mistakes of new users of lapidist.torch: each refusal says what to write instead."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch")

import lapidist  # noqa: E402
import lapidist.distributed  # noqa: E402
import lapidist.torch as lapidist_torch  # noqa: E402
from lapidist import api  # noqa: E402
from lapidist.errors import ArgumentError, DeviceError, DTypeError, ShapeError  # noqa: E402

pytestmark = pytest.mark.frameworks
A, B, W = torch.ones(4, 5), torch.ones(5, 6), torch.ones(6, 5)


@pytest.mark.parametrize(
    ("function", "keyword", "words"),
    [
        (lapidist_torch.matmul, "out", "lapidist.matmul, gemm and grouped write into out="),
        (lapidist_torch.linear, "out", "lapidist.matmul, gemm and grouped write into out="),
        (lapidist_torch.matmul, "trans_b", r"lapidist.torch.gemm\(trans_b=\), or pass b.T"),
        (lapidist_torch.matmul, "device", "Tensors are multiplied where they are"),
        (lapidist_torch.gemm, "transB", r"Write trans_b=$"),
        (lapidist_torch.matmul, "scale_a", r"Write lapidist.torch.scaled\(a, b, scale_a, scale_b\)$"),
        (lapidist_torch.linear, "act", r"Write activation=$"),
        (lapidist_torch.mlp, "nonlinearity", r"Write activation=$"),
        (lapidist_torch.mlp, "bias", r"Write up_bias=$"),
        (lapidist_torch.mlp, "epilogue", "this product takes no epilogue$"),
        (lapidist_torch.grouped, "dtype", r"Write out_dtype=$"),
        (lapidist_torch.grouped, "bias", "this product takes no epilogue$"),
        (lapidist_torch.grouped, "epilogue", "this product takes no epilogue$"),
    ],
)
def test_an_unknown_keyword_names_the_right_one(
    function: Callable[..., Any], keyword: str, words: str
) -> None:
    operands = {"mlp": (A, W, None, B, None), "grouped": (A, B[None], A)}.get(function.__name__, (A, B))
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{keyword}'.*{words}"):
        function(*operands, **{keyword: None})


@pytest.mark.parametrize(
    ("activation", "words"),
    [
        ("rleu", 'Write activation="relu"$'),
        ("GELU", 'Write activation="gelu"$'),
        ("swish", 'Write activation="silu"$'),
        ("gelu_new", 'Write activation="gelu_tanh"$'),
        (torch.nn.ReLU(), 'Write activation="relu"$'),
        (torch.nn.functional.silu, 'Write activation="silu"$'),
        ("tanh", "Write it as an epilogue"),
        ("relu6", "Write it as an epilogue"),
        ("elu", "Write it as an epilogue"),
        ("softmax", "Write others as an epilogue"),
    ],
)
def test_activations_of_other_names(activation: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        lapidist_torch.linear(A, W, activation=activation)


@pytest.mark.parametrize("value", [torch.nn.ReLU(), torch.relu, "relu"])
def test_an_activation_as_an_epilogue_names_the_ready_made_one(value: Any) -> None:
    with pytest.raises(ArgumentError, match=r"Write epilogue=lapidist.epilogues.relu$"):
        lapidist_torch.matmul(A, B, epilogue=value)


def test_tensors_in_place_of_types_and_names() -> None:
    with pytest.raises(DTypeError, match=r"out_dtype: must be one of float16, .* Name one of them"):
        lapidist.matmul(A, B, out_dtype=torch.tensor(2.0))
    with pytest.raises(ArgumentError, match='precision: must be "ieee"'):
        lapidist_torch.linear(A, W, precision=numpy.zeros(2))
    with pytest.raises(ArgumentError, match="axes: must be dimensions of a"):
        lapidist.tensordot(A, B, torch.ones(2, dtype=torch.int32))


def test_meta_tensors_and_transforms_name_lapidist_torch() -> None:
    with pytest.raises(DeviceError, match=r"meta\. lapidist.torch multiplies tensors without"):
        lapidist.matmul(A.to("meta"), B.to("meta"))
    with pytest.raises(DTypeError, match=r"lapidist\.torch follows transforms"):
        torch.vmap(lapidist.matmul)(A[None], B[None])


CALLS = {
    "matmul": lambda a, b: lapidist.matmul(a, b),
    "gemm": lambda a, b: lapidist.gemm(a, b),
    "epilogue": lambda a, b: lapidist.matmul(a, b, epilogue=lapidist.epilogues.relu),
    "list": lambda a, b: lapidist.gemm([a], [b])[0],
    "gram": lambda a, b: lapidist.gram(a),
    "groups": lambda a, b: lapidist.grouped(a, b[None], torch.tensor([4], dtype=torch.int32)),
}


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_what_records_operators_names_lapidist_torch(name: str, early: bool) -> None:
    """It would record a result of unset memory, and no product; `early`: before autograd."""
    from torch.fx.experimental.proxy_tensor import make_fx

    for _ in range(3):
        CALLS[name](A, B)  # what serves it fast then looks, too
    with pytest.raises(ArgumentError, match=r"under make_fx.*call lapidist.torch, whose operators"):
        make_fx(CALLS[name], pre_dispatch=early)(A, B)
    recorded = make_fx(lambda a, b: lapidist_torch.matmul(a, b), pre_dispatch=early)(A, B)
    assert torch.equal(recorded(A + 1, B), (A + 1) @ B)


@pytest.mark.parametrize("name", CALLS)
def test_symbols_in_place_of_sizes_name_lapidist_torch(name: str) -> None:
    """They have no hash, and calls are remembered by sizes."""
    from torch.fx.experimental.proxy_tensor import make_fx

    with pytest.raises(ArgumentError, match=r"under FakeTensorMode.*or call lapidist.torch"):
        make_fx(CALLS[name], tracing_mode="symbolic")(A, B)


def test_a_default_device_keeps_fast_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch has a mode of functions for it, and records nothing."""
    for _ in range(3):
        lapidist.matmul(A, B)
    monkeypatch.setattr(api, "multiplied", None)
    with torch.device("cpu"):
        assert torch.equal(lapidist.matmul(A, B), A @ B)


@pytest.mark.parametrize("name", ["matmul", "gemm", "einsum"])
@pytest.mark.parametrize("inside", [True, False])
def test_compiled_graphs_name_the_operator(name: str, inside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also once calls with arrays beside their operands have fast paths."""
    monkeypatch.setitem(api.ARRAY_PATHS, "any key", lambda *_: None)
    call = getattr(lapidist, name)
    first = ("ij,jk->ik",) if name == "einsum" else ()
    function = (lambda *operands: call(*operands)) if inside or name == "einsum" else call
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="eager")
    with pytest.raises(torch._dynamo.exc.Unsupported, match=rf"lapidist.{name} reads addresses.*write\s+"):
        compiled(*first, A, B)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dynamo looks into what it does not compile
        assert torch.equal(torch.compile(function, backend="eager")(*first, A, B), A @ B)


class Derived(torch.nn.Linear):  # type: ignore[misc]
    pass


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (torch.nn.Conv2d(3, 3, 3), "no torch.nn.Linear"),
        (torch.nn.Sequential(Derived(4, 4)), "of their own, Derived, which stay"),
    ],
)
def test_a_model_without_layers_to_swap_says_so(model: Any, words: str) -> None:
    with pytest.warns(UserWarning, match=words):
        assert len(lapidist_torch.swap(model)) == 0


def test_a_model_that_is_swapped_says_so_and_is_told_apart() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(16, 16))
    stock = repr(model)
    with lapidist_torch.swap(model):
        assert "bias=True, by lapidist)" in repr(model)
        with pytest.warns(UserWarning, match="its 1 are swapped already"):
            lapidist_torch.swap(model)
    with lapidist_torch.swap(model, dtype=torch.float8_e4m3fn):
        assert "by lapidist in float8_e4m3fn with factors of rows)" in repr(model)
    assert repr(model) == stock
    with pytest.warns(UserWarning, match="where= is true of none"):
        lapidist_torch.swap(model, where=lambda name, layer: False)


def test_layers_of_packed_weights_count_as_swapped() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(128, 128))
    lapidist_torch.swap(model, weights="int8")
    for weights in (None, "int8"):
        with pytest.warns(UserWarning, match="its 1 are swapped already"):
            assert not len(lapidist_torch.swap(model, weights=weights))


def test_values_of_the_wrong_kind_are_told_what_to_pass() -> None:
    with pytest.raises(
        ArgumentError, match=r"into: must be a tensor; got str. Make it with torch.zeros_like"
    ):
        lapidist_torch.linear(A, W, into="tree")
    with pytest.raises(ArgumentError, match=r"invariant: .*write lapidist.torch.swap\(model\)"):
        lapidist_torch.everywhere(torch.nn.Linear(4, 4)).__enter__()
    with pytest.raises(ArgumentError, match="It is that of the model itself, which is a layer"):
        lapidist_torch.swap(torch.nn.Linear(60, 64, device="meta"), weights="int4")
    with pytest.raises(TypeError, match=r"keyword argument 'group_name'. Write group=$"):
        lapidist.distributed.matmul_all_reduce(A, B, group_name=None)


@pytest.mark.parametrize(
    ("keyword", "words"),
    [
        ("bits", 'Write weights="int4"'),
        ("exclude", "Write where=, a function"),
        ("filter_fn", "Write where=, a function"),
        ("recipe", "Write dtype=torch.float8_e4m3fn"),
        ("device_mesh", "Write mesh=$"),
        ("group_size", "Write group=$"),
        ("colour", "It takes model, where, dtype"),
    ],
)
def test_keywords_of_other_quantisers_name_those_of_swap(keyword: str, words: str) -> None:
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{keyword}'. {words}"):
        lapidist_torch.swap(torch.nn.Linear(64, 64), **{keyword: None})


def test_a_layer_that_cannot_be_packed_is_named_and_no_layer_changes() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 8), torch.nn.Linear(8, 6))
    model[1].weight.data[2, 3] = torch.inf
    with pytest.raises(ArgumentError, match=r"got NaN or infinity\. .* It is that of the layer '1'$"):
        lapidist_torch.swap(model, weights="int4")
    assert [type(layer) for layer in model] == 2 * [torch.nn.Linear]
    with pytest.raises(ArgumentError, match=r"^weights: must be one of int4, .*; got 'nf4'"):
        lapidist_torch.swap(model, weights="nf4")


def test_modules_and_files_in_place_of_weights() -> None:
    layer = torch.nn.Linear(64, 64)
    with pytest.raises(ArgumentError, match=r"got a Linear\. Pass linear.weight.T"):
        lapidist.quantised.pack(layer, "int4")
    with pytest.raises(DTypeError, match="must be a PackedWeight; got int"):
        lapidist_torch.PackedLinear(64, 64)
    packed = lapidist.quantised.pack(layer.weight.T, "int4")
    with pytest.raises(DTypeError, match=r"bias: must be a torch\.Tensor; got str"):
        lapidist_torch.PackedLinear(packed, "bias")
    with pytest.raises(ShapeError, match=r"bias: must have 64 elements, .*; got shape \(3,\)"):
        lapidist_torch.PackedLinear(packed, torch.ones(3))
    with pytest.raises(DTypeError, match=r"bias: must be a torch\.Tensor; got str"):
        lapidist_torch.linear(torch.ones(2, 64, dtype=torch.float16), packed, "bias")
    with pytest.raises(ArgumentError, match=r"layer: must be a torch\.nn\.Linear; got None"):
        lapidist_torch.PackedLinear.packed(None, "int4")
    with pytest.raises(ArgumentError, match=r"got str\. Read the file first"):
        lapidist_torch.load_packed(layer, "model.safetensors")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("grouped_mm", r"grouped\(a, b, offsets\)"),
        ("lineer", "linear$"),
        ("scaled_mm", "scaled"),
        ("Float8Linear", r"swap\(model, dtype="),
        ("MoE", r"swap\(model\)"),
    ],
)
def test_names_of_torch_say_what_stands_for_them(name: str, words: str) -> None:
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'\. Write lapidist.torch.{words}"):
        getattr(lapidist_torch, name)


def test_a_device_of_torch_is_taken() -> None:
    assert torch.equal(lapidist.matmul(A, B, device=torch.device("cpu")), A @ B)
