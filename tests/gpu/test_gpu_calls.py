"""Calls that are repeated on a GPU: the short way is as strict as the long one, and keeps nothing."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

import lapidist
from lapidist.backends.gpu import list_kernels
from lapidist.calls import lists, planned_products, prepared, repeat
from lapidist.calls.call import Call
from lapidist.errors import ArgumentError, LapidistError, StrideError
from lapidist.planning import plans
from lapidist.verify.sum_bound import judge
from on_gpu import fresh, normal, poisoned

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    "form", ["new", "out", "out by columns", "in place", "c", "c and out", "vectors", "batch"]
)
def test_every_form_again_and_again(torch: Any, form: str) -> None:
    """Three turns: the long way, and twice the short one; with new memory each time, and numbers that
    change.
    """
    for _ in range(3):
        a, b = normal(torch, 40, 72), normal(torch, 72, 24)
        if form == "batch":
            a, b = normal(torch, 5, 40, 72), normal(torch, 72, 24)
        if form == "vectors":
            a = a[0]
        c = normal(torch, *(a @ b).shape)
        before = c.clone()
        if form in ("new", "batch", "vectors"):
            assert judge(lapidist.matmul(a, b), a, b).ok
        elif form == "out":
            out = poisoned(torch, 40, 24)
            assert lapidist.matmul(a, b, out=out) is out
            assert judge(out, a, b).ok
        elif form == "out by columns":
            out = poisoned(torch, 24, 40).T
            assert judge(lapidist.matmul(a, b, out=out), a, b).ok
        elif form == "in place":
            assert lapidist.gemm(a, b, c, beta=0.5, out=c) is c
            assert judge(c, a, b, before, beta=0.5).ok
        elif form == "c":
            assert judge(lapidist.gemm(a, b, c, alpha=2.0, beta=0.5), a, b, c, alpha=2.0, beta=0.5).ok
        else:
            out = poisoned(torch, 40, 24)
            assert judge(lapidist.gemm(a, b, c, beta=0.5, out=out), a, b, c, beta=0.5).ok


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64", "complex64"])
def test_an_output_may_have_any_strides(torch: Any, dtype: str) -> None:
    """Neither rows nor columns touch: results come by a copy, and nothing between them is written."""
    kind = getattr(torch, dtype)
    for _ in range(3):
        a, b = normal(torch, 40, 72).to(kind), normal(torch, 72, 24).to(kind)
        room = torch.full((80, 48), 7, device="cuda", dtype=kind)
        out, kept = room[::2, ::2], room.clone()
        assert lapidist.matmul(a, b, out=out) is out
        kept[::2, ::2] = lapidist.matmul(a, b)
        assert torch.equal(room, kept)
        expected = lapidist.gemm(a, b, out.clone(), beta=2.0)
        assert torch.equal(lapidist.gemm(a, b, out, beta=2.0, out=out), expected)
    with pytest.raises(ArgumentError, match="stream: must be left out where out is copied"):
        lapidist.matmul(a, b, out=out, stream=torch.cuda.Stream())


def test_groups_leave_what_lies_behind_them_in_any_output(torch: Any) -> None:
    a, b = normal(torch, 40, 72), normal(torch, 2, 72, 24)
    out = torch.full((40, 48), 7.0, device="cuda")[:, ::2]
    ends = torch.tensor([10, 30], device="cuda", dtype=torch.int32)
    lapidist.grouped(a, b, ends, out=out)
    assert judge(out[:10].contiguous(), a[:10], b[0]).ok
    assert (out[30:] == 7).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_lengths_of_a_served_model(torch: Any, dtype: str) -> None:
    """Each length twice and three times: prepared from another one's, looked up, and by its own short way.
    Lengths stand for few rows, shared tiles and whole ones; weights are a new one at times."""
    lengths, way = (3, 17, 64, 200, 257, 1024, 1, 0), getattr(torch, dtype)
    for n, k in ((520, 256), (136, 2048), (33, 71)):
        for _ in range(4):
            weight = normal(torch, n, k).to(way)
            for rows in lengths:
                x = normal(torch, rows, k).to(way)
                assert judge(lapidist.matmul(x, weight.T), x, weight.T).ok, (rows, n, k)
                assert judge(lapidist.gemm(x, weight, trans_b=True), x, weight.T).ok, (rows, n, k)
                tall = lapidist.matmul(x.view(1, rows, k), weight.T)
                assert judge(tall[0], x, weight.T).ok, (rows, n, k)
    assert any(key[1] in ((256, 520), (520, 256)) for key in repeat.ROWS)


def test_a_new_length_is_captured(torch: Any) -> None:
    """As each new problem is: nothing changes while a graph is captured."""
    weight, x = normal(torch, 136, 256).bfloat16(), normal(torch, 300, 256).bfloat16()
    for rows in (300, 280, 260):
        lapidist.matmul(x[:rows], weight.T)
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph, stream=stream):
        found = [lapidist.matmul(x[:rows], weight.T) for rows in (299, 280, 299)]
    x.copy_(normal(torch, 300, 256))
    graph.replay()
    for rows, each in zip((299, 280, 299), found, strict=True):
        assert judge(each, x[:rows], weight.T).ok


def test_layouts_types_and_alignments_by_turns(torch: Any) -> None:
    """What one call was prepared for does not serve the next one of other strides, types or addresses."""
    x = normal(torch, 48, 48)
    kinds = [
        x,
        x.T,
        x.half(),
        x.bfloat16(),
        normal(torch, 48, 49)[:, 1:],
        normal(torch, 48 * 48 + 1)[1:].view(48, 48),
    ]
    for _ in range(3):
        for a in kinds:
            for b in (a, a.T):
                assert judge(lapidist.matmul(a, b), a, b).ok
                out = poisoned(torch, 48, 48, dtype=str(a.dtype)[6:])
                assert judge(lapidist.matmul(a, b, out=out), a, b).ok


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_overlaps_are_refused_on_the_short_way_too(torch: Any, name: str) -> None:
    given = {"a": normal(torch, 32, 32), "b": normal(torch, 32, 32), "c": normal(torch, 32, 32)}
    out = normal(torch, 33, 32)
    for _ in range(3):
        lapidist.gemm(**given, beta=1.0, out=out[:32])
    kept = out.clone()
    given[name] = out[1:]
    with pytest.raises(StrideError, match=f"out: must not overlap {name}"):
        lapidist.gemm(**given, beta=1.0, out=out[:32])
    assert torch.equal(out, kept)


def test_arrays_die_with_their_calls(torch: Any) -> None:
    torch.cuda.synchronize()
    gc.collect()
    plans, before = [], torch.cuda.memory_allocated()
    for m in range(64, 512, 64):
        a, b, c = normal(torch, m, 512), normal(torch, 512, 512), normal(torch, m, 512)
        for _ in range(2):
            lapidist.matmul(a, b)
            lapidist.matmul(a, b, out=c)
            lapidist.gemm(a, b, c, beta=1.0, out=c)
            lapidist.gemm([a, a], [b, b])
        plans.append(lapidist.plan(a, b, c, beta=1.0, out=c))
        plans[-1].execute(a, b, c, c)
        plans.append(lapidist.plan([a], [b]))
    del a, b, c
    gc.collect()
    assert torch.cuda.memory_allocated() == before


def test_lists_in_two_places_are_refused(torch: Any) -> None:
    a, b, out = ([normal(torch, 64, 64) for _ in range(3)] for _ in range(3))
    for given in (None, out):
        elsewhere = None if given is None else [*given[:-1], given[-1].cpu()]
        for _ in range(4):  # once the fast path is known, too
            lapidist.gemm(a, b, out=given)
            with pytest.raises(lapidist.DeviceError, match=r"a\[2\]: must be where a\[0\] is, GPU 0"):
                lapidist.gemm([*a[:-1], a[-1].cpu()], [*b[:-1], b[-1].cpu()], out=elsewhere)


def test_negative_bits(torch: Any) -> None:
    z = torch.randn(40, 40, dtype=torch.complex64, device="cuda")
    a, b = z.conj().imag, normal(torch, 40, 40)
    assert a.is_neg()
    for _ in range(2):
        for x, y in ((a, b), (b, a), (a, a)):
            assert judge(lapidist.matmul(x, y), x.resolve_neg(), y.resolve_neg()).ok
        assert judge(lapidist.gemm(b, b, a, beta=1.0), b, b, a.resolve_neg(), beta=1.0).ok


def test_autograd_hears_of_every_write(torch: Any) -> None:
    x, y, buffer = normal(torch, 32, 16), normal(torch, 16, 24), normal(torch, 32, 24)
    w = torch.randn(32, 24, device="cuda", requires_grad=True)
    for _ in range(3):
        loss = (w * buffer).sum()
        lapidist.matmul(x, y, out=buffer)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    version = buffer._version
    lapidist.plan(x, y, out=buffer).execute(x, y, None, buffer)
    assert buffer._version > version


def test_gradients_are_asked_for_at_each_call(torch: Any) -> None:
    """What was prepared under no_grad does not let a gradient get lost later."""
    weight, x = torch.nn.Parameter(normal(torch, 32, 32)), normal(torch, 32, 32)
    with torch.no_grad():
        for _ in range(3):
            assert judge(lapidist.matmul(x, weight), x, weight.detach()).ok
    with pytest.raises(ArgumentError, match="b: requires a gradient"):
        lapidist.matmul(x, weight)
    out = torch.zeros(32, 32, device="cuda", requires_grad=True)
    with torch.no_grad():
        for _ in range(3):
            lapidist.matmul(x, x, out=out)
    with pytest.raises(ArgumentError, match="out: requires a gradient"):
        lapidist.matmul(x, x, out=out)
    with torch.inference_mode():
        made = torch.zeros(32, 32, device="cuda")
        for _ in range(3):
            assert judge(lapidist.matmul(x, x, out=made), x, x).ok


def test_what_has_lost_its_memory_is_refused(torch: Any) -> None:
    a, b = normal(torch, 32, 32), normal(torch, 32, 32)
    for _ in range(3):
        lapidist.matmul(a, b)
    a.untyped_storage().resize_(0)
    with pytest.raises(LapidistError, match="a: must be a tensor with memory of its own"):
        lapidist.matmul(a, b)


def test_lists_from_several_threads(torch: Any) -> None:
    plan = lapidist.plan([normal(torch, 32, 32)] * 3, [normal(torch, 32, 32)] * 3)
    wrong: list[Any] = []

    def work() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(50):
                a, b = ([normal(torch, 32, 32) for _ in range(3)] for _ in range(2))
                out = [poisoned(torch, 32, 32) for _ in range(3)]
                plan.execute(a, b, None, out)
                wrong.extend(x for x in zip(out, a, b, strict=True) if not judge(*x).ok)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_cupy_again_and_again(torch: Any) -> None:
    import cupy

    for _ in range(3):
        a, b = cupy.random.randn(40, 24, dtype="float32"), cupy.random.randn(24, 32, dtype="float32")
        out = cupy.full((40, 32), cupy.nan, dtype="float32")
        for made in (
            lapidist.matmul(a, b),
            lapidist.matmul(a, b, out=out),
            lapidist.gemm(a, b, out, beta=0.0, out=out),
        ):
            assert judge(torch.from_dlpack(made), torch.from_dlpack(a), torch.from_dlpack(b)).ok
        with pytest.raises(StrideError, match="out: must not overlap a"):
            lapidist.matmul(a[:, :24], b[:, :24], out=a)


def test_cupy_writes_backwards(torch: Any) -> None:
    """Steps of CuPy's arrays keep their sign on the way to a kernel."""
    import cupy

    a, b = cupy.random.randn(48, 24, dtype="float32"), cupy.random.randn(24, 64, dtype="float32")
    for precision in ("ieee", "tf32"):
        out = cupy.full((48, 64), cupy.nan, dtype="float32")
        lapidist.matmul(a[::-1], b, out=out[::-1], precision=precision)
        assert judge(*(torch.from_dlpack(x) for x in (out, a, b)), precision=precision).ok


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8", "float8_e4m3fn"])
@pytest.mark.parametrize("batch", [2, 3, 4])
def test_matrices_of_a_batch_that_interleave(torch: Any, dtype: str, batch: int) -> None:
    """The batch is what touches in memory: no matrix but the first starts on 16 bytes."""
    for rows, k, cols in ((5, 16, 1), (1, 16, 7), (40, 1, 1), (16, 64, 1), (33, 4, 9)):
        a = fresh(torch, dtype, rows, k, batch).permute(2, 0, 1)
        b = fresh(torch, dtype, k, cols, batch).permute(2, 0, 1)
        for x, y in ((a, b), (a.contiguous(), b), (a, b.contiguous())):
            assert judge(lapidist.matmul(x, y), x, y).ok


def test_gathered_rows_start_anywhere(torch: Any) -> None:
    a, b = fresh(torch, "bfloat16", 1, 8).T, fresh(torch, "bfloat16", 145, 1)
    rows = torch.tensor([3], dtype=torch.int32, device="cuda")
    assert judge(lapidist.gemm(a, b, trans_b=True, gather_a=rows), a[rows.long()], b.T).ok


# ---- alpha and beta that change ----


@pytest.mark.parametrize("form", ["matrices", "in place", "batch", "trans", "bfloat16", "plain wgmma"])
def test_other_numbers_go_the_short_way(torch: Any, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """Two calls the long way, and from then on the plan's parameter bytes are patched."""
    long_ways = []
    run = planned_products.run
    monkeypatch.setenv("LAPIDIST_COMPILE", "wait")  # a stand-in binary is asked about again at each call
    monkeypatch.setattr(planned_products, "run", lambda *given: long_ways.append(given[0]) or run(*given))
    repeat.MATRIX_PATHS.clear()
    dtype = "bfloat16" if form in ("bfloat16", "plain wgmma") else "float32"
    shape = (128, 128) if form == "plain wgmma" else (48, 72)
    a, b = normal(torch, *shape, dtype=dtype), normal(torch, shape[1], 40, dtype=dtype)
    a = torch.stack([a, a]) if form == "batch" else a
    for alpha, beta in ((0.5, 0.7), (0.7, -0.25), (0.9, 0.5), (3, 2.0), (0.5, 0.7)):
        c = normal(torch, *(a @ b).shape, dtype=dtype)
        before = c.clone()
        how: dict[str, Any] = {"alpha": alpha, "beta": beta, "out": c if form == "in place" else None}
        left = a.mT.contiguous() if form == "trans" else a
        d = lapidist.gemm(left, b, c, trans_a=form == "trans", **how)
        assert judge(d, a, b, before, alpha, beta).ok
    assert len(long_ways) == 2  # the second one has the short way made


def test_the_short_way_refuses_what_the_long_way_refuses(torch: Any) -> None:
    a = fresh(torch, "float32", 48, 48)
    for _ in range(2):
        lapidist.gemm(a, a)
    for wrong in ({"check_indices": 1}, {"permuted": 0}, {"deterministic": 1}, {"trans_a": 2}):
        with pytest.raises(lapidist.ArgumentError, match=f"{next(iter(wrong))}: must be"):
            lapidist.gemm(a, a, **wrong)


def test_numbers_that_ask_for_another_problem_by_turns(torch: Any) -> None:
    """One, zero and what rounds to them, between ordinary ones; no C, C with NaN in it, and C."""
    a, b, c = normal(torch, 48, 72), normal(torch, 72, 40), normal(torch, 48, 40)
    nan = torch.full_like(c, float("nan"))
    for _ in range(2):
        for alpha in (1.0, 0.5, 1 + 1e-12, 0.7, 0.0, 1e-60, 2.0, 1):
            for beta in (0.0, 0.5, 1e-60, 1.0):
                given = nan if abs(beta) < 1e-50 else c
                d = lapidist.gemm(a, b, given, alpha=alpha, beta=beta)
                assert judge(d, a, b, c, float(alpha), beta).ok, (alpha, beta)


def test_factors_and_lists_take_other_numbers_without_a_plan(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for module in (prepared, plans):
        plan = module.make_plan
        monkeypatch.setattr(module, "make_plan", lambda *given, plan=plan: made.append(1) or plan(*given))
    monkeypatch.setattr(repeat, "PREPARED", {})
    repeat.ARRAY_PATHS.clear()
    repeat.LISTS.clear()
    lists.plan_once.cache_clear()
    list_kernels.KERNELS.clear()
    a, b = (normal(torch, 64, 64).to(torch.float8_e4m3fn) for _ in "ab")
    rows = torch.rand(64, 1, device="cuda")
    c = normal(torch, 64, 64)
    index = torch.arange(63, -1, -1, device="cuda")
    planned = []
    for alpha, beta in ((0.5, 0.7), (0.7, 0.9), (0.9, 0.5)):
        d = lapidist.gemm(a, b.T, c, alpha=alpha, beta=beta, scale_a=rows)
        assert judge(d, a, b.T, c, alpha, beta, scale_a=rows).ok
        x, y, z = ([normal(torch, 32, 32) for _ in range(3)] for _ in "xyz")
        results = lapidist.gemm(x, y, z, alpha=alpha, beta=beta)
        assert all(judge(*each, alpha, beta).ok for each in zip(results, x, y, z, strict=True))
        d = lapidist.gemm(c, c, c, alpha=alpha, beta=beta, gather_a=index)
        assert judge(d, c[index], c, c, alpha, beta).ok
        planned.append(len(made))
    assert planned == planned[:1] * 3  # e4m3 may find its binary in a covering set, without a plan
    assert planned[0]


@lapidist.epilogue
def shifted(acc: Any, bias: lapidist.Row, s: lapidist.Scalar) -> Any:
    return lapidist.relu(acc + bias) * s, acc


def test_arrays_beside_the_matrices_go_the_short_way(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six turns: new memory and new numbers each time; after the second one no rule is looked up again."""
    checked: list[Call] = []
    bound = Call.bound
    monkeypatch.setattr(Call, "bound", lambda call: checked.append(call) or bound(call))
    for turn in range(6):
        a, b, c = normal(torch, 48, 64), normal(torch, 64, 32), normal(torch, 48, 32)
        rows = torch.randperm(48, device="cuda")
        alpha, beta = 0.5 + turn, 0.25 + turn
        d = lapidist.gemm(a, b, c, alpha=alpha, beta=beta, gather_a=rows)
        assert judge(d, a[rows], b, c, alpha, beta).ok
        out = poisoned(torch, 48, 32)
        assert lapidist.gemm(a, b, out=out, alpha=alpha, scatter_d=rows) is out
        assert judge(out[rows], a, b, alpha=alpha).ok
        number = torch.full((), alpha, device="cuda")
        assert judge(lapidist.gemm(a, b, alpha=number), a, b, alpha=alpha).ok
        small, other = (x.to(torch.float8_e4m3fn) for x in (a, b.T.contiguous()))
        scale_a, scale_b = torch.rand(48, 1, device="cuda"), torch.rand(1, 32, device="cuda")
        d = lapidist.matmul(small, other.T, scale_a=scale_a, scale_b=scale_b)
        assert judge(d, small, other.T, scale_a=scale_a, scale_b=scale_b).ok
        bias = normal(torch, 32)
        d, sums = lapidist.matmul(a, b, epilogue=shifted(bias=bias, s=alpha))
        assert judge(sums, a, b).ok
        torch.testing.assert_close(d, torch.relu(sums + bias) * alpha)
        a_list, b_list = ([normal(torch, 16, 16) for _ in range(3)] for _ in "ab")
        results = lapidist.gemm(a_list, b_list, alpha=alpha)
        assert all(judge(*each, alpha=alpha).ok for each in zip(results, a_list, b_list, strict=True))
        if turn == 1:
            checked.clear()
    assert checked == []


def test_arrays_beside_the_matrices_are_looked_at(torch: Any) -> None:
    """What the short way must not serve: other shapes, what overlaps, addresses in between, gradients."""
    a, b = normal(torch, 48, 64), normal(torch, 64, 32)
    bias = normal(torch, 32)
    for _ in range(3):
        lapidist.matmul(a, b, epilogue=shifted(bias=bias, s=2.0))
    with pytest.raises(LapidistError):
        lapidist.matmul(a, b, epilogue=shifted(bias=bias[:31], s=2.0))
    with pytest.raises(LapidistError):
        lapidist.matmul(a, b, epilogue=shifted(bias=bias.cpu(), s=2.0))
    strided = normal(torch, 64)[::2]
    d, sums = lapidist.matmul(a, b, epilogue=shifted(bias=strided, s=-1.0))
    torch.testing.assert_close(d, -torch.relu(sums + strided))
    wide = normal(torch, 33)[1:]  # starts on 4 bytes alone
    d, sums = lapidist.matmul(a, b, epilogue=shifted(bias=wide, s=2.0))
    torch.testing.assert_close(d, 2 * torch.relu(sums + wide))
    for _ in range(2):
        out, other = poisoned(torch, 48, 32), poisoned(torch, 48, 32)
        lapidist.matmul(a, b, epilogue=shifted(bias=bias, s=2.0), out=(out, other))
        torch.testing.assert_close(out, 2 * torch.relu(other + bias))
    with pytest.raises(LapidistError):
        lapidist.matmul(a, b, epilogue=shifted(bias=bias, s=2.0), out=(out, out))
    with pytest.raises(LapidistError):
        lapidist.matmul(a, b, epilogue=shifted(bias=out[0], s=2.0), out=(out, other))
    with pytest.raises(LapidistError):
        lapidist.matmul(a, b, epilogue=shifted(bias=bias, s="2"))


def test_threads_with_numbers_of_their_own(torch: Any) -> None:
    a, b, c = normal(torch, 48, 72), normal(torch, 72, 40), normal(torch, 48, 40)
    wrong: list[float] = []

    def work(alpha: float) -> None:
        for _ in range(50):
            d = lapidist.gemm(a, b, c, alpha=alpha, beta=1 - alpha)
            torch.cuda.synchronize()
            if not judge(d, a, b, c, alpha, 1 - alpha).ok:
                wrong.append(alpha)

    threads = [threading.Thread(target=work, args=(0.1 * (1 + number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
