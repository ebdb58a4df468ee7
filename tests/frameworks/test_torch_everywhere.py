"""torch's products by lapidist in code that is not edited, on the CPU."""

from __future__ import annotations

import importlib
import sys
import unittest
from collections.abc import Callable
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest

from lapidist import api

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
NAMES = ["mm", "addmm", "bmm", "baddbmm", "matmul", "nn.functional.linear"]
DTYPES = ["bfloat16", "float16", "float32", "float64", "complex64"]


@pytest.fixture
def served(monkeypatch: Any) -> list[Any]:
    """The operands of each product that lapidist multiplied."""
    seen: list[Any] = []
    gemm = api.gemm

    def watched(a: Any, b: Any, *given: Any, **more: Any) -> Any:
        result = gemm(a, b, *given, **more)
        seen.append((a, b))
        return result

    monkeypatch.setattr(api, "gemm", watched)
    return seen


@pytest.fixture
def known(torch: Any, monkeypatch: Any) -> dict[str, Any]:
    """torch's own list of operators, with samples of what each is called with."""
    if "expecttest" not in sys.modules:  # it asks for its TestCase and nothing else
        monkeypatch.setitem(sys.modules, "expecttest", SimpleNamespace(TestCase=unittest.TestCase))
    found = importlib.import_module("torch.testing._internal.common_methods_invocations").op_db
    return {each.name: each for each in found if each.name in NAMES}


def close(torch: Any, found: Any, exact: Any) -> None:
    """A few units in the last place of the largest."""
    tolerance = 8 * torch.finfo(found.dtype).eps
    largest = exact.abs().max().item() if exact.numel() else 0.0
    torch.testing.assert_close(found, exact.to(found.dtype), rtol=tolerance, atol=tolerance * largest)


def recorded(torch: Any, given: Any) -> list[Any]:
    return [
        each.detach().requires_grad_(each.is_floating_point() or each.is_complex())
        if isinstance(each, torch.Tensor)
        else each
        for each in given
    ]


def widened(torch: Any, tensor: Any) -> Any:
    if not isinstance(tensor, torch.Tensor):
        return tensor
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    return tensor.detach().to(wide).requires_grad_(tensor.requires_grad)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_torchs_own_samples(
    torch: Any, lt: Any, known: Any, served: list[Any], name: str, dtype: str
) -> None:
    info, kind = known[name], getattr(torch, dtype)
    floats = kind.is_floating_point
    samples = list(info.sample_inputs("cpu", kind, requires_grad=False))
    assert samples
    for sample in samples:
        given = recorded(torch, [sample.input, *sample.args])
        exact = [widened(torch, each) for each in given]
        theirs = info(*exact, **sample.kwargs)
        before = len(served)
        with lt.everywhere():
            ours = info(*given, **sample.kwargs)
            close(torch, ours.detach(), theirs.detach())
            direction = torch.randn_like(ours)
            wanted = [each for each in given if isinstance(each, torch.Tensor) and each.requires_grad]
            found = torch.autograd.grad(ours, wanted, direction, materialize_grads=True)
        alike = [each for each in exact if isinstance(each, torch.Tensor) and each.requires_grad]
        grads = torch.autograd.grad(theirs, alike, widened(torch, direction), materialize_grads=True)
        for one, other in zip(found, grads, strict=True):
            close(torch, one, other)
        if floats and all(each.ndim > 1 for each in given[-2:] if isinstance(each, torch.Tensor)):
            assert len(served) > before
    assert floats or not served


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_right(torch: Any, lt: Any, known: Any, name: str) -> None:
    info = known[name]
    small = [
        sample
        for sample in info.sample_inputs("cpu", torch.float64, requires_grad=False)
        if sample.input.numel() <= 30
    ]
    with lt.everywhere():
        for sample in small[:6]:
            given = recorded(torch, [sample.input, *sample.args])

            def call(*tensors: Any, more: Any = sample.kwargs) -> Any:
                return info(*tensors, **more)

            assert torch.autograd.gradcheck(call, given, check_forward_ad=True)
            assert torch.autograd.gradgradcheck(call, given)


def test_every_way_that_torch_calls_them(torch: Any, lt: Any, served: list[Any]) -> None:
    """With and without out=, in place, recorded or not, of two types."""
    x, y = torch.randn(2, 3, 3), torch.randn(2, 3, 3)
    half, out, flat = x.bfloat16(), torch.empty(2, 3, 3), torch.empty(3, 3)
    calls: list[Callable[[], Any]] = [
        lambda: torch.mm(x[0], y[0]),
        lambda: torch.mm(x[0], y[0], out=flat),
        lambda: torch.addmm(flat, x[0], y[0].T, beta=2, alpha=0.5),
        lambda: torch.addmm(x[0, 0], x[0], y[0], out=flat.T),
        lambda: y[0].clone().addmm_(x[0], y[1], beta=-1),
        lambda: torch.bmm(x, y.mT),
        lambda: torch.bmm(x, y, out=out),
        lambda: torch.baddbmm(x[0], x, y, beta=0),
        lambda: torch.baddbmm(x, x, y, out=out),
        lambda: y.clone().baddbmm_(x, y, alpha=3),
        lambda: torch.nn.functional.linear(x, y[0], y[0, 0]),
        lambda: torch.matmul(x[:, None], y[None]),
        lambda: torch.mm(half[0], half[1]),
        lambda: torch.einsum("bij,bkj->bik", x, y),
    ]
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        for call in calls:
            with mode():
                theirs, before = call().clone(), len(served)
                assert not served[before:]
                with lt.everywhere():
                    ours = call()
                assert len(served) == before + 1
                torch.testing.assert_close(ours, theirs)


def test_eight_bit_floats_with_factors(torch: Any, lt: Any, served: list[Any]) -> None:
    a, b = (torch.randn(16, 32).to(torch.float8_e4m3fn) for _ in range(2))
    rows, bias = torch.rand(16, 1) + 0.5, torch.randn(16, dtype=torch.bfloat16)
    one = torch.tensor(0.5)
    for scales, more in (((one, one), {"bias": bias}), ((rows, rows.T), {}), ((one, one), {})):
        with lt.everywhere():
            product = torch._scaled_mm(a, b.T, *scales, out_dtype=torch.bfloat16, **more)
        # by float32: torch 2.11 has no factors of rows on the CPU
        expected = scales[0] * a.float() @ (b.float().T * scales[1]) + more.get("bias", 0)
        torch.testing.assert_close(product, expected.bfloat16())
    assert len(served) == 3


NOT_OF_ITS_RANK = [  # gemm would take a batch, and broadcast it
    ("mm", [(2, 3, 4), (2, 4, 5)]),
    ("mm", [(2, 3, 4), (4, 5)]),
    ("bmm", [(3, 4), (4, 5)]),
    ("bmm", [(1, 3, 4), (2, 4, 5)]),
    ("bmm", [(1, 2, 3, 4), (1, 2, 4, 5)]),
    ("addmm", [(5,), (2, 3, 4), (2, 4, 5)]),
    ("baddbmm", [(2, 3, 5), (2, 3, 4), (1, 4, 5)]),
]


def test_what_lapidist_refuses_stays_torchs(torch: Any, lt: Any, served: list[Any]) -> None:
    x = torch.randn(3, 3)
    with lt.everywhere():
        for dtype in (torch.complex64, torch.int8, torch.int64):
            assert (x.to(dtype) @ x.to(dtype)).dtype is dtype
        with pytest.raises(RuntimeError, match="dtype"):
            torch.mm(x, x.double())
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            torch.mm(x, x[:2])
        for name, shapes in NOT_OF_ITS_RANK:
            with pytest.raises((RuntimeError, IndexError)):
                getattr(torch, name)(*map(torch.ones, shapes))
        with pytest.raises(RuntimeError, match="without overflow"):
            torch.addmm(x, x, x, alpha=1j)
        with pytest.warns(UserWarning, match="resized"):
            torch.mm(x, x, out=torch.empty(7))
        sparse = torch.mm(x.to_sparse(), x)
        torch.testing.assert_close(torch.mm(x.to_mkldnn().to_dense(), x), sparse)
    assert len(served) == 1  # the last, of two dense ones


@pytest.mark.parametrize("form", ["new", "out", "in place"])
def test_addends_that_are_not_read_are_still_torchs_to_refuse(
    torch: Any, lt: Any, served: list[Any], form: str
) -> None:
    """gemm does not look at C where beta = 0."""
    a, b, right = torch.ones(2, 3, 4), torch.ones(2, 4, 5), torch.full((2, 3, 5), float("nan"))
    wrong = [right.bfloat16(), right.int(), right[..., :4], right[None], right.to_sparse()]
    for name, pick in (("baddbmm", slice(None)), ("addmm", 0)):

        def call(c: Any, name: str = name, pick: Any = pick) -> Any:
            if form == "in place":
                return getattr(c.clone(), f"{name}_")(a[pick], b[pick], beta=0)
            more = {"out": torch.empty(2, 3, 5)[pick]} if form == "out" else {}
            return getattr(torch, name)(c, a[pick], b[pick], beta=0, **more)

        with lt.everywhere():
            for c in wrong:
                with pytest.raises((RuntimeError, NotImplementedError)):
                    call(c if name == "baddbmm" or c.ndim < 3 else c[0])
            assert not served
            assert (call(right[pick]) == 4).all()
        assert served.pop()


def test_blocks_lie_in_each_other_and_end_after_exceptions(torch: Any, lt: Any, served: list[Any]) -> None:
    x = torch.ones(2, 2)
    with pytest.raises(KeyError), lt.everywhere(), lt.everywhere():
        raise KeyError
    torch.mm(x, x)
    assert not served
    with lt.everywhere():
        with lt.everywhere():
            torch.mm(x, x)
        torch.mm(x, x)
    torch.mm(x, x)
    assert len(served) == 2


def test_blocks_of_several_threads_end_when_the_last_does(torch: Any, lt: Any, served: list[Any]) -> None:
    x, entered, go_on = torch.ones(2, 2), Event(), Event()

    def other() -> None:
        with lt.everywhere():
            entered.set()
            go_on.wait()
            torch.mm(x, x)

    thread = Thread(target=other)
    with lt.everywhere():
        thread.start()
        entered.wait()
    torch.mm(x, x)
    assert len(served) == 1
    go_on.set()
    thread.join()
    torch.mm(x, x)
    assert len(served) == 2


def test_kernels_are_removed_beside_no_other_thread(torch: Any, lt: Any, served: list[Any]) -> None:
    """Its product might be on the way through the dispatcher's table."""

    def is_registered() -> bool:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key("aten::mm", "BackendSelect"))

    x, go_on = torch.ones(2, 2), Event()
    thread = Thread(target=go_on.wait)
    thread.start()
    with lt.everywhere():
        torch.mm(x, x)
    assert is_registered()
    torch.mm(x, x)
    assert len(served) == 1
    go_on.set()
    thread.join()
    with lt.everywhere():
        torch.mm(x, x)
    assert len(served) == 2
    assert not is_registered()


def test_many_threads_come_and_go(torch: Any, lt: Any) -> None:
    a, b = torch.randn(5, 7), torch.randn(7, 3)
    expected, wrong = a @ b, []

    def work() -> None:
        for _ in range(20):
            with lt.everywhere():
                if not torch.allclose(a @ b, expected, atol=1e-5):
                    wrong.append(1)

    threads = [Thread(target=work) for _ in range(4)]
    with lt.everywhere():
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert not wrong


def test_autocast_vmap_and_compilers_meet_it_below_them(torch: Any, lt: Any, served: list[Any]) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    x, w = torch.randn(4, 8), torch.randn(8, 8)
    with lt.everywhere():
        with torch.autocast("cpu", torch.bfloat16):
            assert (x @ w).dtype is torch.bfloat16
        assert served[-1][0].dtype is torch.bfloat16
        torch.testing.assert_close(torch.vmap(lambda row: (row[None] @ w)[0])(x), x @ w)
        count = FlopCounterMode(display=False)
        with count:
            x @ w
        assert count.get_total_flops() == 2 * 4 * 8 * 8
        before = len(served)
        compiled = torch.compile(lambda y: (y @ w).relu() @ w, fullgraph=True, backend="aot_eager")
        compiled(x)
        assert len(served) == before + 2


def test_models_train_as_before(torch: Any, lt: Any, served: list[Any]) -> None:
    nn = torch.nn
    attention = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.Linear(4, 8), attention, nn.Linear(8, 3)).double()
    x = torch.randn(2, 5, 4, dtype=torch.float64)

    def step() -> list[Any]:
        return list(torch.autograd.grad(model(x).square().sum(), list(model.parameters())))

    before = step()
    with lt.everywhere():
        torch.testing.assert_close(step(), before)
    assert len(served) > 10
