"""linear that autograd alone must see: torch's gradients, through fast paths kept for a layer's shapes."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import lapidist
from lapidist.calls.repeat import MATRIX_PATHS

pytestmark = pytest.mark.frameworks
FEATURES, OUTPUTS, WARM = 4, 5, 3
SHAPES = [(6, FEATURES), (2, 3, FEATURES), (2, 1, 3, FEATURES)]
BIASES = [None, (OUTPUTS,), (1, OUTPUTS), (1,)]


@pytest.fixture
def recorded(lt: Any) -> Iterator[Any]:
    """The module, without what earlier tests left in it."""
    from lapidist.torch import recorded_linear

    MATRIX_PATHS.clear()
    recorded_linear.PATHS.clear()
    yield recorded_linear
    recorded_linear.PATHS.clear()


def operands(torch: Any, shape: Any = SHAPES[0], bias: Any = (OUTPUTS,), **options: Any) -> list[Any]:
    shapes = [shape, (OUTPUTS, FEATURES), *([] if bias is None else [bias])]
    return [torch.randn(extents, **options, requires_grad=True) for extents in shapes]


def gradients(torch: Any, layer: Any, tensors: list[Any], **options: Any) -> list[Any]:
    result = layer(*tensors)
    return [result.detach(), *torch.autograd.grad(result, tensors, torch.cos(result.detach()), **options)]


def warm(torch: Any, lt: Any, **options: Any) -> None:
    for _ in range(WARM):
        gradients(torch, lt.linear, operands(torch, **options))


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("shape", SHAPES)
def test_repeated_layers_are_torchs_by_fast_paths_alone(
    torch: Any, lt: Any, recorded: Any, monkeypatch: Any, shape: Any, bias: Any
) -> None:
    warm(torch, lt, shape=shape, bias=bias)
    for name in ("paths_of", "looked_up"):
        monkeypatch.setattr(recorded, name, lambda *_: pytest.fail("a look-up"))
    tensors = operands(torch, shape, bias)
    torch.testing.assert_close(
        gradients(torch, lt.linear, tensors), gradients(torch, torch.nn.functional.linear, tensors)
    )


@pytest.mark.parametrize("number", range(3))
def test_the_gradients_that_are_needed_alone(torch: Any, lt: Any, recorded: Any, number: int) -> None:
    warm(torch, lt)
    tensors = [tensor.detach() for tensor in operands(torch)]
    tensors[number].requires_grad_()
    for _ in range(WARM):
        (gradient,) = torch.autograd.grad(lt.linear(*tensors).sum(), tensors[number])
        (expected,) = torch.autograd.grad(torch.nn.functional.linear(*tensors).sum(), tensors[number])
        torch.testing.assert_close(gradient, expected)


def test_operands_of_another_layout_and_type(torch: Any, lt: Any, recorded: Any) -> None:
    """They have the key of those that were met, and not their fast paths."""
    warm(torch, lt)
    stock = torch.nn.functional.linear
    for _ in range(2):
        input, weight, bias = operands(torch)
        turned = weight.detach().T.contiguous().T.requires_grad_()
        sliced = torch.randn(6, 2 * FEATURES)[:, ::2].requires_grad_()
        for tensors in ([input, turned, bias], [sliced, weight, bias], [input, weight, bias]):
            torch.testing.assert_close(gradients(torch, lt.linear, tensors), gradients(torch, stock, tensors))
        with pytest.raises(lapidist.DTypeError):
            lt.linear(input, weight.double(), bias)
        with pytest.raises(lapidist.DTypeError, match="input: must be a tensor"):
            lt.linear(input.detach().numpy(), weight, bias)


def test_gradients_that_were_expanded_or_are_of_another_type(torch: Any, lt: Any, recorded: Any) -> None:
    tensors = operands(torch, dtype=torch.bfloat16)
    for _ in range(WARM):
        lt.linear(*tensors).sum().backward()  # its gradient has strides of 0
        lt.linear(*tensors).float().square().sum().backward()
    stock = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    for _ in range(WARM):
        torch.nn.functional.linear(*stock).sum().backward()
        torch.nn.functional.linear(*stock).float().square().sum().backward()
    for ours, theirs in zip(tensors, stock, strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=0.05, atol=0.3)


def test_repeated_layers_are_differentiated_again(torch: Any, lt: Any, recorded: Any) -> None:
    options = {"dtype": torch.float64}
    warm(torch, lt, **options)
    tensors = operands(torch, **options)
    assert torch.autograd.gradcheck(lt.linear, tensors)
    assert torch.autograd.gradgradcheck(lt.linear, tensors)


@pytest.mark.parametrize("number", range(2))
def test_a_frozen_factor_lets_the_other_go(torch: Any, lt: Any, recorded: Any, number: int) -> None:
    for _ in range(WARM):
        tensors = operands(torch, bias=None)
        tensors[number] = tensors[number].detach()
        inner = tensors[1 - number] * 2
        tensors[1 - number], gone = inner, weakref.ref(inner)
        result = lt.linear(*tensors)
        del inner, tensors
        assert gone() is None
        result.sum().backward()


def test_a_factor_that_is_overwritten_has_no_gradient(torch: Any, lt: Any, recorded: Any) -> None:
    warm(torch, lt)
    input, weight, bias = operands(torch)
    result = lt.linear(input, weight, bias)
    with torch.no_grad():
        weight.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_what_watches_a_backward_pass_sees_products(torch: Any, lt: Any, recorded: Any) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Names(TorchDispatchMode):
        names: tuple[str, ...] = ()

        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), options: Any = None) -> Any:
            self.names = (*self.names, str(op))
            return op(*args, **(options or {}))

    warm(torch, lt)
    result = lt.linear(*operands(torch))
    with Names() as watch:
        result.sum().backward()
    assert watch.names.count("lapidist.gemm.default") == 2
    warm(torch, lt, shape=SHAPES[1])
    tensors = operands(torch, SHAPES[1])
    result = lt.linear(*tensors)
    many = torch.randn(3, *result.shape)
    batched = torch.autograd.grad(result, tensors, many, is_grads_batched=True, retain_graph=True)
    single = [torch.autograd.grad(result, tensors, g, retain_graph=True) for g in many]
    for all_at_once, singles in zip(batched, zip(*single, strict=True), strict=True):
        torch.testing.assert_close(all_at_once, torch.stack(singles))
    with torch.autocast("cpu", torch.bfloat16):
        (gradient,) = torch.autograd.grad(result, tensors[0], many[0], retain_graph=True)
    assert torch.equal(gradient, gradient.bfloat16().float())
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.autograd.grad(result, tensors, many[0])
    assert "lapidist::gemm" in [event.key for event in profile.key_averages()]


def test_fast_paths_that_ended_are_looked_up_again(torch: Any, lt: Any, recorded: Any) -> None:
    """As they end where a better kernel has come."""
    warm(torch, lt)
    (paths,) = recorded.PATHS.values()
    paths.of_input = paths.of_weight = ended = lambda *_: None
    warm(torch, lt)
    assert ended not in (paths.of_input, paths.of_weight)
    paths.forward = ended
    warm(torch, lt)
    (later,) = recorded.PATHS.values()
    assert later is not paths
