"""invariant=True in torch reaches each product, also of compiled graphs, but not the gradient of a weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import lapidist
from lapidist import api
from lapidist.calls import full_path
from lapidist.calls.call import Call
from lapidist.errors import ArgumentError

pytestmark = pytest.mark.frameworks

torch = pytest.importorskip("torch")
import lapidist.torch as lt  # noqa: E402

Asked = list[tuple[tuple[int, ...], tuple[int, ...], bool]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    """The shapes of each product and whether it was invariant. NumPy multiplies them, in place of a GPU."""
    calls: Asked = []
    bound = Call.bound

    def noted(call: Call) -> Any:
        operands = bound(call)
        invariant = operands.operation.types.invariant
        calls.append((tuple(operands.a.shape), tuple(operands.b.shape), invariant))
        return operands

    monkeypatch.setattr(Call, "bound", noted)
    monkeypatch.setattr("lapidist.calls.destination.require_a_kernel", lambda *_: None)
    forget_paths()
    yield calls
    forget_paths()


def forget_paths() -> None:
    """Let every call come to the full path again, where it is noted."""
    for paths in (full_path.MATRIX_PATHS, full_path.ARRAY_PATHS):
        paths.clear()


def operands(rows: int = 7) -> tuple[Any, Any, Any]:
    return torch.randn(rows, 24), torch.randn(12, 24), torch.randn(12)


CALLS: dict[str, Callable[..., Any]] = {
    "matmul": lambda x, w, b, **how: lt.matmul(x, w.t(), **how),
    "gemm": lambda x, w, b, **how: lt.gemm(x, w, trans_b=True, **how),
    "linear": lambda x, w, b, **how: lt.linear(x, w, b, **how),
    "activation": lambda x, w, b, **how: lt.linear(x, w, b, activation="relu", **how),
    "mlp": lambda x, w, b, **how: lt.mlp(x, w, b, w.t().contiguous(), None, **how),
}


@pytest.mark.parametrize("name", CALLS)
def test_each_call_asks_for_it(name: str, asked: Asked) -> None:
    x, w, b = operands()
    expected = CALLS[name](x, w, b)
    assert not any(invariant for *_, invariant in asked)
    asked.clear()
    torch.testing.assert_close(CALLS[name](x, w, b, invariant=True), expected)
    assert asked
    assert all(invariant for *_, invariant in asked)


@pytest.mark.parametrize("name", CALLS)
def test_a_block_asks_for_it_after_fast_paths_were_made(name: str, asked: Asked) -> None:
    x, w, b = operands()
    for _ in range(3):
        CALLS[name](x, w, b)
    asked.clear()
    with lapidist.invariant():
        CALLS[name](x, w, b)
        assert asked
        assert all(invariant for *_, invariant in asked)
        asked.clear()
        CALLS[name](x, w, b, invariant=False)
    assert not any(invariant for *_, invariant in asked)


@pytest.mark.parametrize("of_block", [True, False])
def test_the_gradient_of_the_input_keeps_it_and_that_of_the_weight_does_not(
    of_block: bool, asked: Asked
) -> None:
    x, w, b = (tensor.requires_grad_() for tensor in operands())
    if of_block:
        with lapidist.invariant():
            y = lt.linear(x, w, b)
    else:
        y = lt.linear(x, w, b, invariant=True)
    asked.clear()
    y.backward(torch.ones_like(y))  # after the block has ended, as in another thread
    by_shape = {(a, b): invariant for a, b, invariant in asked}
    assert by_shape == {((7, 12), (12, 24)): True, ((12, 7), (7, 24)): False}
    torch.testing.assert_close(x.grad, torch.ones(7, 12) @ w.detach())


def test_groups_and_the_gradient_of_their_rows_ask_for_it(asked: Asked) -> None:
    a, b = torch.randn(9, 24, requires_grad=True), torch.randn(2, 24, 12, requires_grad=True)
    offsets = torch.tensor([4, 9], dtype=torch.int32)
    d = lt.grouped(a, b, offsets, invariant=True)
    assert [invariant for *_, invariant in asked] == [True]
    asked.clear()
    d.sum().backward()
    assert [invariant for *_, invariant in asked] == [True, False]


def test_swapped_layers_ask_for_it_until_they_are_restored(asked: Asked) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(24, 12), torch.nn.ReLU(), torch.nn.Linear(12, 4))
    x = torch.randn(7, 24)
    swapped = lt.swap(model, invariant=True)
    model(x)
    assert [invariant for *_, invariant in asked] == [True, True]
    swapped.undo()
    assert all("invariant" not in vars(layer) for layer in model)
    asked.clear()
    with lt.swap(model):
        model(x)
    assert not any(invariant for *_, invariant in asked)
    with pytest.raises(ArgumentError, match="invariant: must be True or False; got 'yes'"):
        lt.swap(model, invariant="yes")


@pytest.mark.parametrize("factors", ["rows", "blocks"])
def test_layers_of_8_bits_ask_for_it(factors: Any, asked: Asked) -> None:
    layer = torch.nn.Linear(128, 16)
    with lt.swap(layer, dtype=torch.float8_e4m3fn, factors=factors, invariant=True):
        x = torch.randn(5, 128, requires_grad=True)
        y = layer(x)
        assert [invariant for *_, invariant in asked] == [True]
        asked.clear()
        y.sum().backward()
    assert {(a, b): invariant for a, b, invariant in asked} == {
        ((5, 16), (16, 128)): True,
        ((16, 5), (5, 128)): False,
    }


def test_everywhere_asks_for_it_while_such_a_block_is_open(asked: Asked) -> None:
    x, w, b = operands()
    with lt.everywhere():
        torch.nn.functional.linear(x, w, b)
        with lt.everywhere(invariant=True):
            torch.nn.functional.linear(x, w, b)
        torch.mm(x, w.t())
    assert [invariant for *_, invariant in asked] == [False, True, False]


@pytest.mark.parametrize("how", [{}, {"invariant": True}])
def test_a_compiled_graph_decides_in_each_run(how: dict[str, Any], asked: Asked) -> None:
    compiled = torch.compile(lambda x, w, b: lt.linear(x, w, b, **how), backend="aot_eager", dynamic=True)
    for rows in (7, 9):
        compiled(*operands(rows))
    asked.clear()
    forget_paths()
    with lapidist.invariant():
        compiled(*operands(7))
        compiled(*operands(11))
    compiled(*operands(13))
    assert [invariant for *_, invariant in asked] == [True, True, bool(how)]


@pytest.mark.parametrize("precision", [21, None, True, b"tf32", "high"])
def test_precisions_that_are_none_are_refused_beside_it(precision: Any) -> None:
    x, w, b = operands()
    for name in ("matmul", "gemm", "linear"):
        for invariant in (True, False):
            with pytest.raises(ArgumentError, match='precision: must be "ieee"'):
                CALLS[name](x, w, b, precision=precision, invariant=invariant)
        with lapidist.invariant(), pytest.raises(ArgumentError, match='precision: must be "ieee"'):
            CALLS[name](x, w, b, precision=precision)


def test_tensors_on_the_host_are_refused_in_words() -> None:
    x, w, b = operands()
    for call in CALLS.values():
        with pytest.raises(ArgumentError, match="invariant: holds for kernels, and NumPy multiplies"):
            call(x, w, b, invariant=True)
    assert api.matmul(x, w.t()).shape == (7, 12)
    whole = torch.ones(2, 2, dtype=torch.int64)
    with lt.everywhere(invariant=True):  # torch's kernel, in its place, would not keep the bits of rows
        with pytest.raises(ArgumentError, match=r"invariant: holds for kernels on a GPU; .*outside of the"):
            torch.nn.functional.linear(x, w, b)
        assert torch.equal(whole @ whole, 2 * whole)  # lapidist multiplies no such integers
    with lapidist.invariant(), lt.everywhere(), pytest.raises(ArgumentError, match="invariant"):
        torch.mm(x, w.t())
