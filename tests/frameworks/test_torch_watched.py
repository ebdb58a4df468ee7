"""What watches torch's calls sees lapidist's: counters, profilers, autocast, batched gradients, inductor."""

from __future__ import annotations

from typing import Any

import pytest

import lapidist

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
ROWS, FEATURES, OUTPUTS = 6, 4, 5


def test_the_flop_counter_counts_as_it_does_torchs_own(torch: Any, lt: Any) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    x, w = (torch.randn(shape, requires_grad=True) for shape in ((2, 3, FEATURES), (OUTPUTS, FEATURES)))
    v, linear = torch.randn(FEATURES), torch.nn.functional.linear
    pairs = [
        (lambda: lt.linear(x, w), lambda: linear(x, w)),
        (lambda: lt.linear(x, w[0]), lambda: x @ w[:1].T),
        (lambda: lt.matmul(x, w.T), lambda: x @ w.T),
        (lambda: lt.matmul(v, w.T), lambda: v[None] @ w.T),
        (lambda: lt.gemm(x, w, trans_b=True), lambda: x @ w.T),
        (lambda: lt.gemm(x[0], x, trans_a=True), lambda: x[0].T.expand(2, FEATURES, 3) @ x),
    ]

    def counted(call: Any) -> int:
        with FlopCounterMode(display=False) as count:
            call().sum().backward()
        return int(count.get_total_flops())

    found = [tuple(map(counted, pair)) for pair in pairs]
    assert all(found[0])
    assert found == [(theirs, theirs) for _, theirs in found]


def test_the_flop_counter_counts_products_without_gradients(torch: Any, lt: Any) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    x, one = torch.ones(ROWS, 16).to(torch.float8_e4m3fn), torch.ones(())
    with FlopCounterMode(display=False) as count:
        lt.scaled(x, x.T, one, one)
        torch.ops.lapidist.gemm_(torch.zeros(16, 16), x.float(), x.float(), trans_a=True)
    assert count.get_total_flops() == 2 * ROWS * 16 * ROWS + 2 * 16 * ROWS * 16


def test_the_profiler_names_the_operators(torch: Any, lt: Any) -> None:
    x = torch.randn(ROWS, FEATURES)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        lt.matmul(x, x.T)
    assert "lapidist::matmul" in [each.key for each in profile.key_averages()]


def test_batched_gradients_are_a_loop(torch: Any, lt: Any) -> None:
    x, w = torch.randn(3, FEATURES, requires_grad=True), torch.randn(OUTPUTS, FEATURES, requires_grad=True)
    directions = torch.randn(7, 3, OUTPUTS)
    for ours, theirs in ((lt.linear(x, w), x @ w.T), (lt.matmul(x, w.T), x @ w.T)):
        found, expected = (
            torch.autograd.grad(each, (x, w), directions, is_grads_batched=True) for each in (ours, theirs)
        )
        torch.testing.assert_close(found, expected)
    functional = torch.autograd.functional
    for vectorize in (False, True):
        ours, theirs = (
            functional.hessian(lambda w, f=f: f(x, w).square().sum(), w, vectorize=vectorize)
            for f in (lt.linear, torch.nn.functional.linear)
        )
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_torchs_operators_cast_under_autocast(torch: Any, lt: Any, dtype: str) -> None:
    x, kind, ops = torch.randn(4, 4), getattr(torch, dtype), torch.ops.lapidist
    calls = (lambda: ops.linear(x, x, x[0]), lambda: ops.matmul(x, x), lambda: ops.gemm(x, x, x, 1.0, 1.0))
    with torch.autocast("cpu", kind):
        assert [call().dtype for call in calls] == [kind] * 3
    assert [call().dtype for call in calls] == [torch.float32] * 3


def test_inductor_chooses_among_its_kernels_and_ours(torch: Any, lt: Any) -> None:
    """Its code calls kernels by name, also when it comes from a cache: ours is known once it is asked for."""
    from torch._inductor.select_algorithm import extern_kernels

    a, b = torch.randn(ROWS, 8), torch.randn(8, 3)
    options = {"external_matmul": [lt.mm], "max_autotune": True, "max_autotune_gemm_backends": ""}
    compiled = torch.compile(lambda a, b: a @ b, fullgraph=True, options=options)
    torch.testing.assert_close(compiled(a, b), a @ b)
    assert extern_kernels.lapidist_mm is lt.mm
    torch.testing.assert_close(lt.mm(a, b), a @ b)
    out = torch.empty(ROWS, 3)
    assert lt.mm(a, b, out=out) is out


@pytest.mark.parametrize("name", ["linear", "matmul"])
def test_what_was_called_before_is_seen(torch: Any, lt: Any, name: str) -> None:
    """The short way of a repeated call is nobody's business: each who must see a call still does."""
    from torch.utils._python_dispatch import TorchDispatchMode

    call = getattr(lt, name)
    x, y = torch.randn(ROWS, FEATURES), torch.randn(FEATURES, FEATURES)
    plain = [call(x, y) for _ in range(4)][-1]

    class Names(TorchDispatchMode):
        seen: list[str]

        def __torch_dispatch__(self, op: Any, types: Any, given: Any = (), more: Any = None) -> Any:
            self.seen.append(str(op))
            return op(*given, **(more or {}))

    names = Names()
    names.seen = []
    with names:
        call(x, y)
    assert names.seen == [f"lapidist.{name}.default"]
    with torch.autocast("cpu", torch.bfloat16):
        assert call(x, y).dtype is torch.bfloat16
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call(x, y)
    assert f"lapidist::{name}" in [each.key for each in profile.key_averages()]
    mapped = torch.vmap(call, in_dims=(0, None))(torch.stack([x, x]), y)
    torch.testing.assert_close(mapped[1], plain)
    weight = y.clone().requires_grad_()
    assert call(x, weight).grad_fn is not None
    with torch.no_grad():
        assert call(x, weight).grad_fn is None
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        assert torch.autograd.forward_ad.unpack_dual(call(dual, y)).tangent is not None
    with torch._subclasses.FakeTensorMode() as fake:
        assert isinstance(call(fake.from_tensor(x), fake.from_tensor(y)), torch._subclasses.FakeTensor)
    assert call(x.to("meta"), y.to("meta")).is_meta
    torch._dynamo.reset()  # other tests may have compiled it as often as torch does
    compiled = torch.compile(call, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, y), plain)
    torch.testing.assert_close(call(x, y), plain)


def test_other_names_are_attribute_errors(lt: Any) -> None:
    with pytest.raises(AttributeError, match=r"module 'lapidist.torch' has no attribute 'mn'"):
        _ = lt.mn


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_sparse_rows_are_refused_in_words(torch: Any, lt: Any) -> None:
    rows = torch.eye(3).to_sparse_csr()
    for call in (lt.linear, lt.matmul, lt.gemm):
        with pytest.raises(lapidist.DTypeError, match=r"(a|input): must be a dense tensor"):
            call(rows, torch.eye(3))


def test_what_a_transform_left_behind_is_the_tensor_it_stood_for(torch: Any, lt: Any) -> None:
    x, w, left = torch.randn(ROWS, FEATURES), torch.randn(OUTPUTS, FEATURES, requires_grad=True), []
    torch.func.grad(lambda inner: (left.append(inner), inner.square().sum())[1])(x)
    for _ in range(4):  # the later calls go the way of repeated ones
        (found,) = torch.autograd.grad(lt.linear(left[0], w).sum(), w)
        torch.testing.assert_close(found, x.sum(0).expand(OUTPUTS, FEATURES))
