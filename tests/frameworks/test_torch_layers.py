"""Layers of 8-bit floats, and gradients kept elsewhere, as models meet them: copied, saved, loaded, moved,
compiled, under autocast.
"""

from __future__ import annotations

import copy
import importlib
import pickle
from pathlib import Path
from typing import Any

import pytest

import lapidist
from lapidist.errors import ArgumentError

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture
def small(torch: Any, lt: Any) -> Any:
    """A layer of 8-bit floats that is not trained."""
    layer = torch.nn.Linear(32, 16).requires_grad_(False)
    lt.swap(layer, dtype=torch.float8_e4m3fn, factors="blocks")
    return layer


def meant(torch: Any, layer: Any, x: Any) -> Any:
    return torch.nn.functional.linear(x, layer.weight, layer.bias)


def near(torch: Any, found: Any, expected: Any) -> None:
    """As 8 bits can have it."""
    torch.testing.assert_close(found, expected, rtol=0.1, atol=0.1 * expected.abs().max().item())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_copies_multiply_as_their_models(torch: Any, small: Any, copied: Any) -> None:
    x, other = torch.randn(3, 32), copied(small)
    torch.testing.assert_close(other(x), small(x), rtol=0, atol=0)
    other.weight.mul_(-2)
    near(torch, other(x), meant(torch, other, x))
    near(torch, small(x), meant(torch, small, x))


@pytest.mark.parametrize("assign", [False, True])
def test_compiled_graphs_see_weights_that_are_loaded(torch: Any, small: Any, assign: bool) -> None:
    x, compiled = torch.randn(3, 32), torch.compile(small, fullgraph=True, backend="aot_eager")
    near(torch, compiled(x), meant(torch, small, x))
    small.load_state_dict(torch.nn.Linear(32, 16).state_dict(), assign=assign)
    near(torch, compiled(x), meant(torch, small, x))


def test_compiled_graphs_see_weights_that_an_eager_call_saw(torch: Any, small: Any) -> None:
    x, compiled = torch.randn(3, 32), torch.compile(small, fullgraph=True, backend="aot_eager")
    compiled(x)
    small.weight.mul_(-2)
    small(x)
    near(torch, compiled(x), meant(torch, small, x))


def test_moved_layers_are_rounded_anew(torch: Any, small: Any) -> None:
    small.to("meta")
    assert small.quantised_weight().values.is_meta
    small.to_empty(device="cpu").load_state_dict(torch.nn.Linear(32, 16).state_dict())
    x = torch.randn(3, 32)
    near(torch, torch.compile(small, fullgraph=True, backend="aot_eager")(x), meant(torch, small, x))


def test_what_was_rounded_in_inference_mode_is_used_outside_of_it(torch: Any, lt: Any) -> None:
    layer, x = torch.nn.Linear(32, 16).requires_grad_(False), torch.randn(3, 32, requires_grad=True)
    with torch.inference_mode():
        lt.swap(layer, dtype=torch.float8_e4m3fn)
    layer.weight.mul_(2)
    result = layer(x)
    near(torch, result, meant(torch, layer, x))
    result.sum().backward()
    near(torch, x.grad, layer.weight.sum(0).expand(3, 32))


@pytest.mark.parametrize("trained", [False, True])
def test_autocast_reaches_eight_bits(torch: Any, small: Any, trained: bool) -> None:
    small.requires_grad_(trained)
    x = torch.randn(3, 32, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = small(x), meant(torch, small, x)
    assert ours.dtype is theirs.dtype is torch.bfloat16
    near(torch, ours, theirs)
    wanted = [x, *(small.parameters() if trained else ())]
    found, expected = (torch.autograd.grad(each.sum(), wanted) for each in (ours, theirs))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype is other.dtype
        near(torch, one, other)


@pytest.mark.parametrize("factors", ["rows", "blocks"])
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_rows_of_zeros_stay_zero(torch: Any, lt: Any, factors: str, dtype: str) -> None:
    layer, x = torch.nn.Linear(32, 16, bias=False), torch.randn(3, 32)
    with torch.no_grad():
        layer.weight[2], x[1] = 0, 0
        lt.swap(layer, dtype=getattr(torch, dtype), factors=factors)
        found = layer(x)
        near(torch, found, meant(torch, layer, x))
        layer.weight.zero_()
        assert not torch.count_nonzero(layer(x))
    assert not torch.count_nonzero(found[1])
    assert not torch.count_nonzero(found[:, 2])


# ---- gradients kept elsewhere ----


def test_a_gradient_kept_elsewhere_has_no_history(torch: Any, lt: Any) -> None:
    layer, x = lt.Linear(4, 5), torch.randn(3, 4, requires_grad=True)
    layer.weight.main_grad = torch.zeros(5, 4)
    (of_x,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    once = layer.weight.main_grad.clone()
    torch.testing.assert_close(once, 2 * layer(x).detach().T @ x.detach())
    of_x.sum().backward()
    assert not layer.weight.main_grad.requires_grad


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_gradients_are_kept_elsewhere_by_compiled_graphs(torch: Any, lt: Any, backend: str) -> None:
    layer, x = lt.Linear(4, 5), torch.randn(3, 4)
    layer.weight.main_grad = torch.zeros(5, 4)
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    for times in (1, 2):
        compiled(x).sum().backward()
        torch.testing.assert_close(layer.weight.main_grad, times * x.sum(0).expand(5, 4))
    assert layer.weight.grad is None


# ---- inputs of any shape ----


@pytest.mark.parametrize("shape", [(32,), (2, 32), (0, 32), (2, 3, 32)], ids=str)
@pytest.mark.parametrize("kept", ["kept elsewhere", "rows", "blocks"])
def test_inputs_have_gradients_of_their_shape(torch: Any, lt: Any, kept: str, shape: Any) -> None:
    layer, x = torch.nn.Linear(32, 16), torch.randn(shape, requires_grad=True)
    (expected,) = torch.autograd.grad(layer(x).square().sum(), x)
    lt.swap(layer, **{} if kept == "kept elsewhere" else {"dtype": torch.float8_e4m3fn, "factors": kept})
    if kept == "kept elsewhere":
        layer.weight.main_grad = torch.zeros(16, 32)
    layer(x).square().sum().backward()
    assert x.grad.shape == expected.shape
    if expected.numel():
        near(torch, x.grad, expected)


@pytest.mark.filterwarnings("ignore:Initializing zero-element")
@pytest.mark.parametrize("extents", [(0, 16), (32, 0)], ids=["no inputs", "no outputs"])
@pytest.mark.parametrize("kept", ["kept elsewhere", "rows", "blocks"])
def test_layers_without_inputs_or_outputs(torch: Any, lt: Any, kept: str, extents: Any) -> None:
    layer, x = torch.nn.Linear(*extents), torch.randn(2, 3, extents[0], requires_grad=True)
    expected = layer(x)
    lt.swap(layer, **{} if kept == "kept elsewhere" else {"dtype": torch.float8_e4m3fn, "factors": kept})
    if kept == "kept elsewhere":
        layer.weight.main_grad = torch.zeros(extents[::-1])
    found = layer(x)
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    assert x.grad.shape == x.shape


# ---- weights that are made of others ----


def pruned(torch: Any, layer: Any) -> Any:
    importlib.import_module("torch.nn.utils.prune").random_unstructured(layer, "weight", 0.5)
    return layer.weight_orig


def normed(torch: Any, layer: Any) -> Any:
    torch.nn.utils.parametrizations.weight_norm(layer)
    return layer.parametrizations.weight.original0


@pytest.mark.parametrize("made", [pruned, normed])
@pytest.mark.parametrize("dtype", [None, "float8_e4m3fn"])
def test_weights_that_are_made_in_each_call(torch: Any, lt: Any, made: Any, dtype: str | None) -> None:
    """A new one may lie where the last one lay, and has been written to as often."""
    layer, x = torch.nn.Linear(32, 16), torch.randn(3, 32)
    swapped = lt.swap(layer, dtype=dtype and getattr(torch, dtype))
    source = made(torch, layer)
    for _ in range(3):
        with torch.no_grad():
            source.mul_(-2)
            near(torch, layer(x), meant(torch, layer, x))
    layer(x).sum().backward()
    assert source.grad is not None
    swapped.undo()
    assert not any(kind.__module__.startswith("lapidist") for kind in type(layer).__mro__)
    assert "eight_bits" not in vars(layer)
    near(torch, layer(x), meant(torch, layer, x))


def test_a_normed_layer_is_put_back_and_freed_of_its_norm(torch: Any, lt: Any) -> None:
    layer, x = torch.nn.Linear(32, 16), torch.randn(3, 32)
    expected = layer(x)
    with lt.swap(layer):
        normed(torch, layer)
    torch.nn.utils.parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is torch.nn.Linear
    torch.testing.assert_close(layer(x), expected)


def test_tied_and_checkpointed_layers_train_as_torchs(torch: Any, lt: Any) -> None:
    embedding, head = torch.nn.Embedding(10, 32), torch.nn.Linear(32, 10, bias=False)
    head.weight = embedding.weight
    checkpoint = importlib.import_module("torch.utils.checkpoint").checkpoint

    def gradient() -> Any:
        embedding.zero_grad()
        for way in (False, True):
            checkpoint(head, embedding(torch.arange(4)), use_reentrant=way).square().sum().backward()
        return embedding.weight.grad

    expected = gradient().clone()
    with lt.swap(head):
        torch.testing.assert_close(gradient(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_scripted_layers_hold_the_operator(torch: Any, lt: Any, tmp_path: Path) -> None:
    """Also where they are read from a file; options, which a script does not see, are refused."""
    model, x = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()), torch.randn(3, 64)
    expected = model(x)
    swapped = lt.swap(model)
    scripted = torch.jit.script(model)
    assert "lapidist::linear" in str(scripted.inlined_graph)
    torch.testing.assert_close(scripted(x), expected)
    scripted.save(str(tmp_path / "model.pt"))
    torch.testing.assert_close(torch.jit.load(str(tmp_path / "model.pt"))(x), expected)
    swapped.undo()
    kinds = {"dtype": torch.float8_e4m3fn}, {"weights": "int8"}
    for options in ({"invariant": False}, {"precision": "emulated"}, *kinds):
        with (
            lt.swap(model, **options),
            pytest.raises(ArgumentError, match=r"torch\.jit\.script: .*torch\.export"),
        ):
            torch.jit.script(model)


def test_what_is_no_model_or_no_choice_of_layers_is_refused(torch: Any) -> None:
    lt = importlib.import_module("lapidist.torch")
    with pytest.raises(lapidist.ArgumentError, match=r"model: must be a torch.nn.Module; got int"):
        lt.swap(3)
    with pytest.raises(lapidist.ArgumentError, match=r"where: must be a function .*; got str"):
        lt.swap(torch.nn.Linear(3, 4), where="head")
    with pytest.raises(lapidist.ArgumentError, match=r"where: must be a function .*; got function\(name\)"):
        lt.swap(torch.nn.Linear(3, 4), where=lambda name: True)
    swapped = lt.swap(torch.nn.Linear(3, 4))
    assert repr(swapped) == "<lapidist.torch.Swapped: 1 layers>"
    with pytest.raises(lapidist.ArgumentError, match=r"model: .* in place; .*Write swap\(model\) alone"):
        swapped(torch.ones(1, 3))
    with pytest.raises(AttributeError, match=r"'state_dict'\. Write swap\(model\) alone"):
        swapped.state_dict()
