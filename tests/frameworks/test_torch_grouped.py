"""Grouped products in torch, on the CPU: the operator, its gradients and compilers, and torch's own under
`everywhere`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

import pytest

import lapidist
from lapidist.calls import grouped as grouped_calls

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
ENDS = [2, 2, 5, 9]  # the second group is empty
TOTAL, GROUPS, M, N, K = 9, 4, 3, 5, 6
FORMS = {
    "rows": ((TOTAL, K), (GROUPS, K, N)),
    "columns": ((GROUPS, M, K), (K, TOTAL)),
    "k": ((M, TOTAL), (TOTAL, N)),
}
FLAGS = list(product([False, True], repeat=2))
EACH_FORM = pytest.mark.parametrize("form", FORMS)
EACH_LAYOUT = pytest.mark.parametrize("flags", FLAGS, ids=["nn", "nt", "tn", "tt"])


def ends_of(torch: Any, ends: list[int] = ENDS) -> Any:
    return torch.tensor(ends, dtype=torch.int32)


def operands(
    torch: Any, form: str, flags: tuple[bool, bool] = (False, False), dtype: str = "float64"
) -> list[Any]:
    matrices = [torch.randn(shape, dtype=getattr(torch, dtype)) for shape in FORMS[form]]
    return [
        (matrix.mT.contiguous() if flag else matrix).requires_grad_()
        for matrix, flag in zip(matrices, flags, strict=True)
    ]


def call(lt: Any, torch: Any, flags: tuple[bool, bool] = (False, False)) -> Callable[[Any, Any], Any]:
    return lambda a, b: lt.grouped(a, b, ends_of(torch), trans_a=flags[0], trans_b=flags[1])


def loop(torch: Any, a: Any, b: Any, ends: list[int], flags: tuple[bool, bool] = (False, False)) -> Any:
    """A product for each group."""
    a, b = a.mT if flags[0] else a, b.mT if flags[1] else b
    stretches = list(pairwise([0, *ends]))
    if b.ndim == 3:
        return torch.cat([a[start:end] @ b[i] for i, (start, end) in enumerate(stretches)])
    if a.ndim == 3:
        return torch.cat([a[i] @ b[:, start:end] for i, (start, end) in enumerate(stretches)], 1)
    return torch.stack([a[:, start:end] @ b[start:end] for start, end in stretches])


# ---- the operator ----


@EACH_LAYOUT
@EACH_FORM
def test_results_and_gradients_are_those_of_a_loop(
    torch: Any, lt: Any, form: str, flags: tuple[bool, bool]
) -> None:
    pair = operands(torch, form, flags)
    ours, theirs = call(lt, torch, flags)(*pair), loop(torch, *pair, ENDS, flags)
    torch.testing.assert_close(ours, theirs)
    g = torch.randn_like(theirs)
    torch.testing.assert_close(torch.autograd.grad(ours, pair, g), torch.autograd.grad(theirs, pair, g))


@EACH_LAYOUT
@EACH_FORM
def test_gradients_are_right_to_the_second_order(
    torch: Any, lt: Any, form: str, flags: tuple[bool, bool]
) -> None:
    pair = operands(torch, form, flags)
    assert torch.autograd.gradcheck(call(lt, torch, flags), pair, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call(lt, torch, flags), pair)


@EACH_FORM
def test_the_operator_is_what_torch_expects(torch: Any, lt: Any, form: str) -> None:
    for flags in FLAGS:
        arguments = (*operands(torch, form, flags), ends_of(torch), *flags)
        torch.library.opcheck(torch.ops.lapidist.grouped.default, arguments)


@EACH_FORM
def test_gradients_are_in_compiled_graphs(torch: Any, lt: Any, form: str) -> None:
    torch._dynamo.reset()
    pair, function = operands(torch, form, dtype="float32"), call(lt, torch)
    expected = torch.autograd.grad(function(*pair).relu().sum(), pair)
    compiled = torch.compile(lambda a, b: function(a, b).relu(), fullgraph=True)
    torch.testing.assert_close(torch.autograd.grad(compiled(*pair).sum(), pair), expected)


def test_one_graph_serves_all_lengths(torch: Any, lt: Any) -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter, b = CompileCounterWithBackend("inductor"), torch.randn(GROUPS, K, N)
    compiled = torch.compile(
        lambda a, ends: lt.grouped(a, b, ends), fullgraph=True, dynamic=True, backend=counter
    )
    for ends in ([2, 2, 5, 9], [0, 0, 0, 9], [3, 7, 20, 31]):
        a = torch.randn(ends[-1], K)
        torch.testing.assert_close(compiled(a, ends_of(torch, ends)), loop(torch, a, b, ends))
    assert counter.frame_count == 1


def test_rows_behind_the_last_group_are_not_read(torch: Any, lt: Any) -> None:
    a, b = operands(torch, "rows")
    ends, last = ends_of(torch, [2, 2, 5, 6]), 6
    with torch.no_grad():
        a[last:] = float("nan")
    g = torch.randn(TOTAL, N, dtype=torch.float64)
    expected = torch.autograd.grad(loop(torch, a, b, [2, 2, 5, 6]), (a, b), g[:last])
    g[last:] = float("nan")
    of_a, of_b = torch.autograd.grad(lt.grouped(a, b, ends), (a, b), g)
    torch.testing.assert_close((of_a[:last], of_b), (expected[0][:last], expected[1]))


def test_autocast_casts_matrices_and_not_offsets(torch: Any, lt: Any) -> None:
    a, b = operands(torch, "rows", dtype="float32")
    with torch.autocast("cpu", torch.bfloat16):
        for product_of in (lt.grouped, torch.ops.lapidist.grouped):
            result = product_of(a, b, ends_of(torch))
            assert result.dtype is torch.bfloat16
            with torch.autocast("cpu", enabled=False):
                torch.testing.assert_close(result.float(), loop(torch, a, b, ENDS), rtol=0.05, atol=0.1)
    of_a, of_b = torch.autograd.grad(result.sum(), (a, b))
    assert of_a.dtype is of_b.dtype is torch.float32


def test_transforms_of_torch_func(torch: Any, lt: Any) -> None:
    a, b = (matrix.detach() for matrix in operands(torch, "rows"))
    ours, theirs = call(lt, torch), lambda a, b: loop(torch, a, b, ENDS)
    for transform in (torch.func.grad, torch.func.hessian):
        results = [
            transform(lambda b, function=function: function(a, b).square().sum())(b)
            for function in (ours, theirs)
        ]
        torch.testing.assert_close(*results)


def test_vmap_is_a_loop(torch: Any, lt: Any) -> None:
    a, b = (matrix.detach() for matrix in operands(torch, "rows"))
    several, ends = (
        torch.stack([a, 2 * a, -a], 1),
        torch.stack([ends_of(torch), ends_of(torch, [0, 3, 3, 9])]),
    )
    ours = torch.vmap(call(lt, torch), in_dims=(1, None))(several, b)
    torch.testing.assert_close(ours, torch.stack([loop(torch, x, b, ENDS) for x in several.unbind(1)]))
    ours = torch.vmap(lambda ends: lt.grouped(a, b, ends))(ends)
    torch.testing.assert_close(ours, torch.stack([loop(torch, a, b, x.tolist()) for x in ends]))


def test_flops_are_those_of_full_operands(torch: Any, lt: Any) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    for form, flops in (("rows", TOTAL * K * N), ("columns", M * K * TOTAL), ("k", M * TOTAL * N)):
        with FlopCounterMode(display=False) as mode, torch.no_grad():
            call(lt, torch, (True, True))(*operands(torch, form, (True, True)))
        assert mode.get_total_flops() == 2 * flops


def test_a_frozen_operand_lets_the_other_go(torch: Any, lt: Any) -> None:
    frozen, inner = torch.randn(GROUPS, K, N), torch.randn(TOTAL, K, requires_grad=True) * 2
    gone = weakref.ref(inner)
    result = lt.grouped(inner, frozen, ends_of(torch))
    del inner
    assert gone() is None
    result.sum().backward()


WRONG: dict[str, tuple[Callable[[Any, Any, Any], tuple[Any, Any, Any]], str]] = {
    "type": (lambda a, b, ends: (a, b, ends.float()), "offsets: must be of int32 or int64; got float32"),
    "count": (lambda a, b, ends: (a, b, ends[:2]), "b: must have a matrix for each of the 2 groups"),
    "inner": (lambda a, b, ends: (a[:, 1:], b, ends), "a, b: must have one inner extent"),
    "list": (lambda a, b, ends: (a, b, ENDS), "offsets: must be a tensor; got list"),
}


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("case", WRONG)
def test_refusals_are_lapidists(torch: Any, lt: Any, case: str, device: str) -> None:
    change, words = WRONG[case]
    arguments = change(*(x.to(device) for x in (*operands(torch, "rows"), ends_of(torch))))
    with pytest.raises(lapidist.LapidistError, match=words):
        lt.grouped(*arguments)


def test_ends_that_fall_are_refused_where_the_host_reads_them(torch: Any, lt: Any) -> None:
    a, b = operands(torch, "rows")
    with pytest.raises(lapidist.ArgumentError, match="of group 1 must lie from 5 to 9; got 2"):
        lt.grouped(a, b, ends_of(torch, [5, 2, 7, 9]))


# ---- gradients that are added up elsewhere ----


@EACH_LAYOUT
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_gradients_of_weights_are_added_up_in_float32(
    torch: Any, lt: Any, flags: tuple[bool, bool], mode: str
) -> None:
    torch._dynamo.reset()
    a, b = operands(torch, "rows", flags, "bfloat16")
    into = torch.zeros(b.shape)

    def product_of(a: Any, b: Any) -> Any:
        return lt.grouped(a, b, ends_of(torch), trans_a=flags[0], trans_b=flags[1], into=into)

    run = torch.compile(product_of, fullgraph=True, backend="aot_eager") if mode == "compiled" else product_of
    exact = [x.detach().double().requires_grad_() for x in (a, b)]
    of_a, of_b = torch.autograd.grad(loop(torch, *exact, ENDS, flags).sum(), exact)
    for times in (1, 2):
        a.grad = None
        run(a, b).sum().backward()
        torch.testing.assert_close(a.grad.double(), of_a, rtol=0.01, atol=0.01)
        torch.testing.assert_close(into.double(), times * of_b, rtol=1e-5, atol=1e-5)
    assert b.grad is None


def test_the_update_in_place_is_what_torch_expects(torch: Any, lt: Any) -> None:
    (a, b), out = operands(torch, "k"), torch.randn(GROUPS, M, N, dtype=torch.float64)
    a, b, op = a.detach(), b.detach(), torch.ops.lapidist.grouped_
    expected = out + loop(torch, a, b, ENDS)
    torch.library.opcheck(op.default, (out.clone(), a, b, ends_of(torch)))
    op(out, a, b, ends_of(torch))
    torch.testing.assert_close(out, expected)


def test_what_cannot_be_added_to_is_refused(torch: Any, lt: Any) -> None:
    (a, b), ends = operands(torch, "rows"), ends_of(torch)
    for into in (torch.zeros(GROUPS, N, K), torch.zeros(b.shape, requires_grad=True)):
        with pytest.raises(lapidist.ShapeError, match="into: must be a tensor of b's 3 dimensions"):
            lt.grouped(a, b, ends, into=into)


# ---- torch's own, under everywhere ----


@pytest.fixture
def grouped_calls_made(monkeypatch: Any) -> list[Any]:
    """The results that lapidist gave."""
    results: list[Any] = []
    grouped = grouped_calls.grouped

    def watched(*arguments: Any, **options: Any) -> Any:
        result = grouped(*arguments, **options)
        results.append(result)
        return result

    monkeypatch.setattr(grouped_calls, "grouped", watched)
    return results


def aligned(torch: Any, form: str, n: int, dtype: str = "float32") -> tuple[Any, Any]:
    """Operands by torch's rule that rows begin at 16 bytes."""
    of_groups, of_all = (
        torch.randn(shape, dtype=getattr(torch, dtype)) for shape in ((GROUPS, 16, 16), (16, 16))
    )
    weights, columns = of_groups[:, :n].mT, of_all[:, :TOTAL]
    return {
        "rows": (of_all[:TOTAL], weights),
        "columns": (of_groups[:, :M], columns),
        "k": (columns[:M], of_all[:TOTAL, :n]),
        "batch": (of_groups[:, :M], weights),
    }[form]


@pytest.mark.parametrize("n", [6, 8])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("form", [*FORMS, "batch"])
def test_torchs_grouped_products_are_routed(
    torch: Any, lt: Any, grouped_calls_made: list[Any], form: str, dtype: str, n: int
) -> None:
    ends = None if form == "batch" else ends_of(torch)
    pair = aligned(torch, form, n, dtype)
    theirs = torch.nn.functional.grouped_mm(*pair, offs=ends)
    with lt.everywhere():
        ours = torch.nn.functional.grouped_mm(*pair, offs=ends)
    assert ours.stride() == theirs.stride()
    tolerance = 8 * torch.finfo(theirs.dtype).eps
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance * 16)
    assert len(grouped_calls_made) == (form != "batch")


def test_gradients_of_torchs_grouped_products_are_routed(
    torch: Any, lt: Any, grouped_calls_made: list[Any]
) -> None:
    a, b = (x.requires_grad_() for x in aligned(torch, "rows", 8))
    g = torch.randn(TOTAL, 8)
    theirs = torch.autograd.grad(torch._grouped_mm(a, b, ends_of(torch)), (a, b), g)
    with lt.everywhere():
        ours = torch.autograd.grad(torch._grouped_mm(a, b, ends_of(torch)), (a, b), g)
    assert len(grouped_calls_made) == 3
    torch.testing.assert_close(ours, theirs)


def test_what_lapidist_does_not_take_stays_torchs(torch: Any, lt: Any, grouped_calls_made: list[Any]) -> None:
    a, b = aligned(torch, "rows", 8)
    refused: list[tuple[Any, ...]] = [
        (a.long(), b.long(), ends_of(torch)),
        (a, b, ends_of(torch).long()),
        (a, b, ends_of(torch), torch.zeros(8)),
        (a, b, None),
        (a, a, None),
        (a, b[:2], ends_of(torch)),
    ]
    for arguments in refused:
        with pytest.raises(RuntimeError) as alone:
            torch._grouped_mm(*arguments)
        with lt.everywhere(), pytest.raises(RuntimeError) as routed:
            torch._grouped_mm(*arguments)
        assert str(routed.value).partition("\n")[0] == str(alone.value).partition("\n")[0]
    assert not grouped_calls_made


@pytest.mark.parametrize("form", FORMS)
def test_eight_bit_groups_are_routed(torch: Any, lt: Any, grouped_calls_made: list[Any], form: str) -> None:
    """torch has these on GPUs alone. Where k is cut it has factors for each group's lines, which lapidist
    does not take.
    """
    pair = [x.to(torch.float8_e4m3fn) for x in aligned(torch, form, 8)]
    factors = [torch.rand(x.shape[:-1]) + 0.5 for x in (pair[0], pair[1].mT)]
    exact = [x.float() * factor[..., None] for x, factor in zip((pair[0], pair[1].mT), factors, strict=True)]
    with lt.everywhere():
        if form == "k":
            with pytest.raises(NotImplementedError):
                torch._scaled_grouped_mm(
                    *pair, factors[0].repeat(GROUPS), factors[1].repeat(GROUPS), ends_of(torch)
                )
            return
        ours = torch._scaled_grouped_mm(*pair, *factors, ends_of(torch))
    assert ours.dtype is torch.bfloat16
    assert len(grouped_calls_made) == 1
    expected = loop(torch, exact[0], exact[1].mT, ENDS)
    torch.testing.assert_close(ours.float(), expected, rtol=0.01, atol=0.05)
