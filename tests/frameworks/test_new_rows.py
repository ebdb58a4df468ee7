"""Products like an earlier one but for their rows: which they are, and what is planned and started for
them."""

from __future__ import annotations

from math import prod
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lapidist.calls.bound import Bound
from lapidist.calls.call import Call
from lapidist.calls.kernel_choice import OPEN, Choices
from lapidist.calls.operation import Operation, Routing
from lapidist.calls.repeat.new_rows import NewRows, new_rows
from lapidist.calls.repeat.shape import key_of_rows_of

pytestmark = pytest.mark.frameworks

MATMUL, LINEAR = Operation(vectors=True), Operation(trans_b=True)
K, N = 24, 40


class Ready(SimpleNamespace):
    """What a Prepared says of itself; its launches are written down."""

    def __init__(self, problem: Any, bound: Bound | None = None, **more: Any) -> None:
        like = bound.like.alone() if bound else None
        super().__init__(
            problem=problem,
            shape=(problem.m, problem.n),
            direct=True,
            settled=True,
            out_dtype=problem.out_dtype,
            **more,
        )
        self.like, self.started = like, []

    def start(self, *given: Any) -> None:
        self.started.append(given)


def of(a: Any, b: Any, operation: Operation) -> tuple[Bound, NewRows | None]:
    bound = Bound(a, b, None, None, operation)
    return bound, new_rows(Ready(bound.problem(), bound), bound)  # type: ignore[arg-type]


def called(way: NewRows, a: Any, b: Any) -> tuple[Any, Any] | None:
    return way(a, b, 0, lambda problem, _first, _stream: Ready(problem))  # type: ignore[arg-type, return-value]


def operands(torch: Any, rows: int, operation: Operation, name: str = "bfloat16") -> tuple[Any, Any]:
    dtype = getattr(torch, name)
    b = torch.zeros((N, K), dtype=dtype) if operation.trans_b else torch.zeros((K, N), dtype=dtype)
    return torch.zeros((rows, K), dtype=dtype), b


@pytest.mark.parametrize("operation", [MATMUL, LINEAR], ids=["matmul", "linear"])
@given(first=st.integers(2, 300), then=st.integers(2, 300), dtype=st.sampled_from(["bfloat16", "float32"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_problem_is_what_the_long_way_finds(
    torch: Any, operation: Operation, first: int, then: int, dtype: str
) -> None:
    a, b = operands(torch, first, operation, dtype)
    _, way = of(a, b, operation)
    assert way is not None
    a, b = operands(torch, then, operation, dtype)
    found = called(way, a, b)
    assert found is not None
    out, ready = found
    assert ready.problem == Bound(a, b, None, None, operation).problem()
    assert ready.shape == out.shape == (then, N)
    assert out.dtype == a.dtype
    assert out.is_contiguous()
    at = out.data_ptr()
    assert ready.started == [(a.data_ptr(), b.data_ptr(), at, at, (1.0, 0.0), 0)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), dims=st.integers(1, 3))
def test_rows_of_several_dimensions(torch: Any, data: st.DataObject, dims: int) -> None:
    """As layers have them: batches of sequences, of which some are one."""
    draw = st.lists(st.integers(1, 9), min_size=dims, max_size=dims).filter(lambda each: prod(each) > 1)
    first, then = data.draw(draw), data.draw(draw)
    b = torch.zeros((N, K))
    _, way = of(torch.zeros((*first, K)), b, LINEAR)
    assert way is not None
    a = torch.zeros((*then, K))
    found = called(way, a, b)
    assert found is not None
    out, ready = found
    bound = Bound(a, b, None, None, LINEAR)
    assert ready.problem == bound.problem()
    assert out.shape == bound.result_shape
    assert out.is_contiguous()
    assert called(way, torch.zeros((*then, 2 * K))[..., :K], b) is None


def test_a_view_of_weights_is_a_class_of_its_own(torch: Any) -> None:
    a, b = operands(torch, 8, LINEAR)
    _, way = of(a, b.T, MATMUL)
    assert way is not None
    assert called(way, a[:5], b.T) is not None
    assert called(way, a[:5], b.T.contiguous()) is None


def test_others_go_the_long_way(torch: Any) -> None:
    a, b = operands(torch, 8, MATMUL)
    _, way = of(a, b, MATMUL)
    assert way is not None
    store = torch.zeros(9 * K, dtype=a.dtype)
    others = {
        "a single row": (a[:1], b),
        "no rows": (a[:0], b),
        "lines elsewhere": (store[1 : 1 + 8 * K].view(8, K), b),
        "steps": (torch.zeros((8, 2 * K), dtype=a.dtype)[:, :K], b),
        "another k": (torch.zeros((8, K + 8), dtype=a.dtype), b),
        "another type": (a.float(), b.float()),
        "three dimensions": (a[None], b),
        "matrices apart": (torch.zeros((2, 2, 4, K), dtype=a.dtype)[:, 0], b),
        "a subclass": (a.as_subclass(type("Mine", (torch.Tensor,), {})), b),
        "a gradient": (a.clone().requires_grad_(), b),
        "negatives": (torch.complex(a.float(), a.float()).conj().imag, b),
        "another b": (a, torch.zeros((N, K), dtype=a.dtype).T),
    }
    for name, (x, y) in others.items():
        assert called(way, x, y) is None, name
    assert called(way, a[:3], b) is not None


def test_what_is_traced_goes_the_long_way(torch: Any) -> None:
    a, b = operands(torch, 8, MATMUL)
    _, way = of(a, b, MATMUL)
    assert way is not None
    with torch.autograd.forward_ad.dual_level():
        assert called(way, a, b) is None
    assert called(way, a, b) is not None


def test_parameters_without_gradients_are_served(torch: Any) -> None:
    a, b = operands(torch, 8, MATMUL)
    b = torch.nn.Parameter(b)
    with torch.no_grad():
        _, way = of(a, b, MATMUL)
        assert way is not None
        assert called(way, a[:4], b) is not None
    assert called(way, a[:4], b) is None


@pytest.mark.parametrize(
    "operation",
    [
        MATMUL._replace(alpha=2.0),
        MATMUL._replace(alpha=True),
        LINEAR._replace(beta=1.0),
        LINEAR._replace(trans_a=True),
        LINEAR._replace(trans_b=1),
        LINEAR._replace(routing=Routing(check_indices=1)),
    ],
)
def test_what_is_not_usual_has_no_key(torch: Any, operation: Operation) -> None:
    a, b = operands(torch, 8, operation)
    assert key_of_rows_of(Call(a, b, None, None, operation)) is None


def test_keys_say_all_but_the_rows(torch: Any) -> None:
    a, b = operands(torch, 8, MATMUL)

    def key(a: Any, b: Any, c: Any = None, out: Any = None, choices: Choices = OPEN) -> Any:
        return key_of_rows_of(Call(a, b, c, out, MATMUL, choices))

    assert key(a, b) == key(a[:3], b) is not None
    assert key(a.float(), b) != key(a, b) != key(a, b[:, :8])
    assert key(a, b, out=a) is key(a, b, c=a) is key(a.T, b) is key(a[0], b) is key(a, b[0]) is None
    assert key(a, b) != key(a[None], b) == key(a[None, :3], b)
    assert key(a, b, choices=Choices(compile="wait")) is None
    assert key(a.numpy() if a.dtype is torch.float32 else a.float().numpy(), b) is None


def test_nothing_of_a_callers_is_kept(torch: Any) -> None:
    import gc
    import weakref

    a, b = operands(torch, 8, MATMUL)
    _, way = of(a, b, MATMUL)
    assert way is not None
    kept = [weakref.ref(each) for each in (a, b)]
    del a, b, _
    gc.collect()
    assert [each() for each in kept] == [None, None]
