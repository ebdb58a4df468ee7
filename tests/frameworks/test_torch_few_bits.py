"""Weights of few bits in torch's tensors: packed, saved, loaded, moved and multiplied."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist import quantised
from lapidist.quantised import packed_weight, packing
from lapidist.quantised.number_formats import format_named
from lapidist.quantised.packed_weight import made

torch = pytest.importorskip("torch")
pytest.importorskip("lapidist.torch")
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


@pytest.mark.parametrize("format", ["int4", "mxfp4", "int8"])
def test_tensors_are_put_in_order_as_arrays_are(format: str) -> None:
    """Where they are: NumPy sees none of them."""
    codes = torch.randint(16 if format != "int8" else 256, (128, 72), dtype=torch.uint8)
    factors = torch.randint(1, 200, (4, 72), dtype=torch.uint8)
    named = format_named(format)
    kind = "e8m0" if format == "mxfp4" else "float32"
    scales = factors if format == "mxfp4" else factors.float()
    zeros = factors % 16 if format == "int4" else None
    tensors = made(codes, scales, zeros, named, kind, codes)
    arrays = made(
        *(None if x is None else x.numpy() for x in (codes, scales, zeros)), named, kind, np.ones(1)
    )
    for name in ("codes", "scales", "zeros"):
        if (array := getattr(arrays, name)) is not None:
            assert np.array_equal(getattr(tensors, name).numpy(), array)
    assert np.array_equal(quantised.unpack(tensors).numpy(), quantised.unpack(arrays))


def floats(kind: str) -> Any:
    """Numbers of many sizes, halfway between codes or factors, too small for factors, or near the largest."""
    rng, shape = np.random.default_rng(52), (256, 37)
    numbers = rng.standard_normal(shape)
    if kind == "halfway":
        numbers = rng.integers(-12, 13, shape) / 4
    elif kind == "factors":
        numbers = (2 * rng.integers(128, 256, shape) + 1) * rng.choice([0, 7, 15, 127], shape)
    elif kind == "sizes":
        numbers = numbers * 2.0 ** rng.integers(-20, 20, shape)
    elif kind == "small":
        numbers = numbers * 2.0 ** rng.integers(-149, -100, shape)
        numbers[:64], numbers[:, 5] = -0.0, 0.0
    elif kind == "large":
        numbers = numbers * 3e37
    return numbers.astype(np.float32)


KINDS = "halfway", "factors", "sizes", "small", "large"
PACKINGS = [
    *(("int4", {"group": 32}), ("int4", {"group": 64, "zero_points": True}), ("mxfp4", {})),
    *(("nvfp4", {}), ("int8", {"group": 128}), ("e4m3", {})),
]


def same_bits(found: Any, right: Any) -> None:
    """A weight of tensors, and one of arrays."""
    for name in ("codes", "scales", "zeros"):
        array, like = getattr(found, name), getattr(right, name)
        assert (array is None) == (like is None)
        if like is not None:
            assert array.shape == like.shape
            assert array.view(torch.uint8).cpu().numpy().tobytes() == like.tobytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("format", "more"), PACKINGS)
def test_floats_are_packed_where_they_are(
    monkeypatch: pytest.MonkeyPatch, format: str, more: Any, kind: str
) -> None:
    """NumPy sees none of a tensor, whose bits are those of its array, also of experts and in bfloat16."""
    tensor = torch.from_numpy(floats(kind))
    expected = quantised.pack(tensor.numpy(), format, **more)
    short = quantised.pack(tensor.bfloat16().float().numpy(), format, **more)
    for module in (packing, packed_weight):
        monkeypatch.setattr(module, "on_host", lambda _: pytest.fail("a tensor went by way of the host"))
    pair = quantised.pack(torch.stack([tensor.double(), tensor.bfloat16().double()]), format, **more)
    packed = (
        quantised.pack(tensor, format, **more),
        pair[0],
        pair[1],
        quantised.pack(tensor.bfloat16(), format, **more),
    )
    for found, right in zip(packed, (expected, expected, short, short), strict=True):
        same_bits(found, right)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("format", "more"), PACKINGS)
def test_a_gpu_packs_the_same_bits(format: str, more: Any, kind: str) -> None:
    numbers = floats(kind)
    packed = quantised.pack(torch.from_numpy(numbers).cuda(), format, **more)
    assert packed.codes.is_cuda
    same_bits(packed, quantised.pack(numbers, format, **more))


def test_what_has_no_numbers_is_not_packed() -> None:
    for weight, words in (
        (torch.empty(64, 8, device="meta"), "weight: must have numbers; got a tensor on meta"),
        (torch.full((64, 8), torch.nan), "weight: must be finite"),
        (torch.ones(64, 8, dtype=torch.int32), "weight: must hold floats to be quantised; got int32"),
        (torch.ones(64, 0), "weight: must be a matrix .* with rows and columns"),
        (torch.ones(64, 8).to_sparse(), "weight: must be a dense tensor; got torch.sparse_coo"),
    ):
        with pytest.raises(lapidist.LapidistError, match=words):
            quantised.pack(weight, "int8")


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


# ---- operator and layers ----


def model_of(dtype: Any = torch.bfloat16) -> Any:
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(128, 64, dtype=dtype),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 10, bias=False, dtype=dtype),
    )


def unpacked_result(model: Any, x: Any) -> Any:
    """The same model of the packed weights' numbers, in float64."""
    hidden = x.double() @ quantised.unpack(model[0].packed_weight).double() + model[0].bias.double()
    return hidden.relu() @ quantised.unpack(model[2].packed_weight).double()


@pytest.mark.parametrize("weights", ["int4", "mxfp4", "int8", "e4m3"])
def test_a_swapped_model_multiplies_packed_weights(weights: str) -> None:
    model, x = model_of(), torch.randn(5, 128, dtype=torch.bfloat16)
    hooked: list[Any] = []
    model[0].register_forward_hook(lambda *_: hooked.append(1))
    swapped = lapidist.torch.swap(model, weights=weights)
    assert len(swapped) == 2
    assert [type(layer) for layer in model] == [
        lapidist.torch.PackedLinear,
        torch.nn.ReLU,
        lapidist.torch.PackedLinear,
    ]
    assert [name for name, _ in model.named_parameters()] == ["0.bias"]
    expected = unpacked_result(model, x)
    assert torch.allclose(model(x).double(), expected, rtol=0.02, atol=0.02)
    assert hooked
    numbers = quantised.unpack(model[2].packed_weight)
    swapped.undo()
    assert type(model[2]) is torch.nn.Linear
    assert torch.equal(model[2].weight, numbers.T.to(torch.bfloat16))
    assert sorted(model.state_dict()) == ["0.bias", "0.weight", "2.weight"]
    assert torch.allclose(model(x).double(), expected, rtol=0.05, atol=0.05)


def test_layers_load_what_others_saved() -> None:
    """Also of another format, and through safetensors where it is installed."""
    model, other = model_of(), model_of()
    lapidist.torch.swap(model, weights="int4", group=32)
    lapidist.torch.swap(other, weights="mxfp4")
    x, state = torch.randn(3, 128, dtype=torch.bfloat16), model.state_dict()
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(x), model(x))
    assert other[0].packed_weight.format.name == "int4"
    broken = {**state, "0.codes": state["0.codes"][:, :1]}
    with pytest.raises(lapidist.LapidistError, match=r"state: codes must have shape \(1, 2, 512\)"):
        other.load_state_dict(broken)
    assert torch.equal(other(x), model(x))


@pytest.mark.parametrize("format", ["int8", "nvfp4"])
def test_a_change_of_type_leaves_packed_weights(format: str) -> None:
    """nvfp4 has a float32 for the whole weight."""
    layer = lapidist.torch.PackedLinear.packed(model_of()[0], format)
    before = layer.state_dict()
    layer.to(torch.float16)
    assert layer.bias.dtype is torch.float16
    for name, array in layer.state_dict().items():
        assert name == "bias" or torch.equal(array, before[name])
        assert name == "bias" or array.dtype == before[name].dtype
    assert layer(torch.ones(2, 128, dtype=torch.float16)).dtype is torch.float16


def test_the_layer_compiles_and_records() -> None:
    layer = lapidist.torch.PackedLinear.packed(model_of()[0], "int4", group=64)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 3, 128, dtype=torch.bfloat16, requires_grad=True)
    results = []
    for function in (layer, compiled):
        x.grad = layer.bias.grad = None
        y = function(x)
        y.float().square().sum().backward()
        results.append((y.detach(), x.grad, layer.bias.grad))
    for eager, other in zip(*results, strict=True):
        assert torch.equal(eager, other)
    exact = x.detach().double().requires_grad_()
    numbers = quantised.unpack(layer.packed_weight).double()
    (exact @ numbers + layer.bias.double()).square().sum().backward()
    assert (results[0][1].double() - exact.grad).abs().max() <= 0.02 * exact.grad.abs().max()


def test_fake_results_obey_the_rules() -> None:
    weight = quantised.pack(torch.randn(64, 24), "int8")
    arrays = [array.to("meta") for array in (weight.codes, weight.scales)]
    call = torch.ops.lapidist.few_bits
    x = torch.empty(2, 5, 64, dtype=torch.float16, device="meta")
    assert call(x, *arrays, None, weight.layout).shape == (2, 5, 24)
    with pytest.raises(lapidist.LapidistError, match="x: must have k = 64 columns"):
        call(x[..., :32], *arrays, None, weight.layout)


def test_rows_of_8_bits_are_a_node_and_leave_the_bias_its_gradient() -> None:
    packed = quantised.pack(torch.randn(128, 24), "int4", group=64)
    x, factors = torch.randint(-128, 128, (2, 3, 128), dtype=torch.int8), torch.rand(2, 3, 1) + 0.5
    bias = torch.randn(24, requires_grad=True)
    exact = (x.double() * factors.double()) @ quantised.unpack(packed, "float64")

    def layer(x: Any, factors: Any, bias: Any) -> Any:
        return lapidist.torch.linear(x, packed, bias, scale_a=factors, activation="relu")

    for run in (layer, torch.compile(layer, backend="aot_eager", fullgraph=True)):
        bias.grad = None
        found = run(x, factors, bias)
        assert torch.allclose(found.double(), (exact + bias).relu().double(), rtol=1e-5, atol=1e-3)
        found.sum().backward()
        assert torch.equal(bias.grad, (found > 0).sum((0, 1)).float())
    of_one = lapidist.torch.scaled(x, packed, 0.5, None, out_dtype=torch.bfloat16)
    assert torch.equal(of_one, lapidist.matmul(x, packed, scale_a=0.5, out_dtype="bfloat16"))
    arrays = packed.codes, packed.scales, packed.zeros, packed.layout
    operands = x, factors, None, *arrays, bias, None
    torch.library.opcheck(torch.ops.lapidist.few_bits_scaled.default, operands)


def test_rows_of_8_bits_that_do_not_fit_are_refused_alike() -> None:
    """With numbers, and where a compiler has none."""
    packed = quantised.pack(torch.randn(128, 24), "int4", group=64)
    x = torch.zeros(2, 128).to(torch.float8_e4m3fn)
    arrays = [array.to("meta") for array in (packed.codes, packed.scales)]
    call = torch.ops.lapidist.few_bits_scaled
    for factors, words in ((None, "scale_a: rows of x in 8 bits"), (torch.ones(3), "scale_a: must be one")):
        with pytest.raises(lapidist.LapidistError, match=words):
            lapidist.torch.scaled(x, packed, factors, None)
        of_none = None if factors is None else factors.to("meta")
        with pytest.raises(lapidist.LapidistError, match=words):
            call(x.to("meta"), of_none, None, *arrays, None, packed.layout)
    assert call(x.to("meta"), None, 1.0, *arrays, None, packed.layout).dtype == torch.float32
    for more, words in (
        ({"scale_b": torch.ones(24)}, "scale_b: is not for weights of few bits"),
        ({"scale_b": None, "promote": True}, "promote: is not for weights of few bits"),
    ):
        with pytest.raises(lapidist.LapidistError, match=words):
            lapidist.torch.scaled(x, packed, torch.ones(2), **more)
    with pytest.raises(lapidist.LapidistError, match="weight: must be a PackedWeight; got Tensor"):
        lapidist.torch.linear(x, torch.zeros(24, 128), scale_a=1.0)


def test_swap_refuses_before_it_changes_a_layer() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 8), torch.nn.Linear(8, 64))
    model[1].weight.data[3] = torch.nan
    with pytest.raises(lapidist.LapidistError, match="weight: must be finite to be quantised"):
        lapidist.torch.swap(model, weights="int4")
    assert {type(layer) for layer in model} == {torch.nn.Linear}
    for more, words in (
        ({"weights": "int3"}, "weights: must be one of"),
        ({"weights": "int4", "dtype": torch.float8_e4m3fn}, "dtype: must be None with weights='int4'"),
        ({"group": 64}, "group: is for weights of few bits"),
    ):
        with pytest.raises(lapidist.LapidistError, match=words):
            lapidist.torch.swap(model, **more)


# ---- tensors of files ----


def tensors_of_files() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Functions of packings by name, each with what files have for it, in tensors."""
    integers = {"dtype": torch.int32}
    words = [torch.randint(-(2**31), 2**31 - 1, shape, **integers) for shape in ((16, 72), (128, 9), (2, 9))]
    pairs, scales = (torch.randint(256, size, dtype=torch.uint8) for size in ((72, 4, 16), (72, 4)))
    factors, small = torch.rand(2, 72).bfloat16(), torch.rand(72, 8).to(torch.float8_e4m3fn)
    numbers = torch.randint(-128, 128, (128, 72), dtype=torch.int8)
    rest = {"scales": factors, "qzeros": words[2]}
    return {
        "from_gptq": (quantised.from_gptq, {"qweight": words[0], **rest, "g_idx": torch.arange(128) // 64}),
        "from_awq": (quantised.from_awq, {"qweight": words[1], **rest}),
        "from_mxfp4": (quantised.from_mxfp4, {"blocks": pairs, "scales": scales}),
        "from_nvfp4": (quantised.from_nvfp4, {"pairs": pairs.flatten(1), "scales": small, "factor": 0.5}),
        "from_codes": (quantised.from_codes, {"codes": numbers, "scales": factors, "format": "int8"}),
    }


PACKINGS_OF_FILES = "from_gptq", "from_awq", "from_mxfp4", "from_nvfp4", "from_codes"


def on_device(parts: dict[str, Any], place: Any) -> dict[str, Any]:
    return {name: place(part) if isinstance(part, torch.Tensor) else part for name, part in parts.items()}


@pytest.mark.parametrize("name", PACKINGS_OF_FILES)
def test_files_are_packed_where_their_tensors_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By torch's functions, with the bits of NumPy's arrays, and refused without numbers."""
    function, parts = tensors_of_files()[name]
    expected = function(**on_device(parts, packed_weight.on_host))
    taken = packed_weight.on_host

    def of_vectors(array: Any) -> Any:
        assert getattr(array, "ndim", 0) < 2
        return taken(array)

    monkeypatch.setattr(packing, "on_host", of_vectors)
    same_bits(function(**parts), expected)
    with pytest.raises(lapidist.LapidistError, match="must have numbers; got a tensor on meta"):
        function(**on_device(parts, lambda tensor: tensor.to("meta")))


@pytest.mark.gpu
@pytest.mark.parametrize("name", PACKINGS_OF_FILES)
def test_a_gpu_packs_files_with_the_same_bits(name: str) -> None:
    function, parts = tensors_of_files()[name]
    packed = function(**on_device(parts, torch.Tensor.cuda))
    assert packed.codes.is_cuda
    assert packed.scales.is_cuda
    same_bits(packed, function(**on_device(parts, packed_weight.on_host)))


def test_layers_with_a_norm() -> None:
    """In the launch of the product, or as torch computes it where it must see the norm: for gradients, or of
    plain weights.
    """
    torch.manual_seed(0)
    packed = quantised.pack(torch.randn(256, 64), "int4", group=64)
    numbers = quantised.unpack(packed).double()
    x, residual = (torch.randn(3, size, dtype=torch.bfloat16) for size in (256, 64))
    wide = x.double().requires_grad_()
    expected = torch.nn.functional.rms_norm(wide, (256,), eps=0.1) @ numbers + residual.double()
    expected.sum().backward()
    recorded = x.clone().requires_grad_()
    plain = numbers.T.to(torch.bfloat16)
    how = {"residual": residual, "norm_eps": 0.1}
    found = [
        lapidist.torch.linear(x, packed, **how),
        lapidist.torch.linear(recorded, packed, **how),
        lapidist.torch.linear(x, plain, **how),
        lapidist.torch.linear(x, packed, norm_eps=0.1) + residual,
        torch.compile(lambda x: lapidist.torch.linear(x, packed, **how), backend="aot_eager")(x),
    ]
    for result in found:
        assert torch.allclose(result.double(), expected.detach(), rtol=2**-6, atol=0.25)
    found[1].sum().backward()
    assert torch.allclose(recorded.grad.double(), wide.grad, rtol=2**-6, atol=0.25)
    bare = quantised.matmul(recorded, packed, norm_eps=0.1)
    assert torch.allclose(bare.double() + residual, expected.detach(), rtol=2**-6, atol=0.25)
