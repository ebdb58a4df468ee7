"""On a GPU, with torch: epilogues in every family and by every way out of a sum, against float64."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

import lapidist
from fused_cases import judge_finished, of_all_kinds
from lapidist import epilogues
from lapidist.errors import RefusalError
from lapidist.kernels.registry import kernel_named
from lapidist.kernels.wgmma.configs import tile
from on_gpu import laid_out, normal, poisoned

pytestmark = pytest.mark.gpu
BF16 = partial(tile, "bfloat16")
FAMILIES = [
    ("simt", "float32", {}),
    ("simt", "float64", {}),
    ("simt", "float16", {}),
    ("sgemm", "float32", {}),
    ("mma", "bfloat16", {}),
    ("mma", "float64", {}),
    ("mma", "float8_e4m3fn", {}),
    ("mma", "float32", {"precision": "tf32"}),
    ("wgmma", "bfloat16", {}),
    ("wgmma", "float16", {}),
    ("wgmma", "float8_e4m3fn", {}),
    ("wgmma", "float32", {"precision": "tf32"}),
]
SHARED: list[dict[str, Any]] = [{}, {"split_k": 3}, {"schedule": "stream_k"}]


def operands(torch: Any, m: int, n: int, batch: tuple[int, ...] = (), dtype: str = "float32") -> Any:
    shapes = {"row": (*batch, n), "column": (m,), "tile": (m, n)}
    return {**{name: normal(torch, *each, dtype=dtype) for name, each in shapes.items()}, "one": 0.75}


def check(
    torch: Any,
    dtype: str,
    extents: tuple[int, int, int],
    layouts: str = "rcr",
    *,
    batch: tuple[int, ...] = (),
    with_c: bool = False,
    **more: Any,
) -> None:
    (m, n, k), (of_a, of_b, of_d) = extents, ("row" if each == "r" else "col" for each in layouts)
    a = laid_out(normal(torch, *batch, m, k, dtype=dtype), of_a)
    b = laid_out(normal(torch, *batch, k, n, dtype=dtype), of_b)
    out = more.pop("out", "bfloat16" if dtype == "float8_e4m3fn" else dtype)
    d = laid_out(poisoned(torch, *batch, m, n, dtype=out), of_d)
    c, beta = (laid_out(normal(torch, *batch, m, n, dtype=out), of_d), 0.5) if with_c else (None, 0.0)
    values = operands(torch, m, n, batch, out)
    lapidist.gemm(a, b, c, alpha=1.5, beta=beta, out=d, epilogue=of_all_kinds(**values), **more)
    precision = {"precision": more["precision"]} if "precision" in more else {}
    assert judge_finished(d, of_all_kinds, values, a, b, c, alpha=1.5, beta=beta, **precision).ok


@pytest.mark.parametrize("shared", SHARED, ids=str)
@pytest.mark.parametrize("extents", [(304, 528, 720), (301, 515, 259), (130, 70, 0)], ids=str)
@pytest.mark.parametrize(("kernel", "dtype", "more"), FAMILIES, ids=str)
def test_every_family(
    torch: Any, kernel: str, dtype: str, more: Any, extents: Any, shared: dict[str, Any]
) -> None:
    for with_c in (False, True):
        try:
            check(torch, dtype, extents, kernel=kernel, with_c=with_c, **more, **shared)
        except RefusalError:
            if not shared:
                raise


@pytest.mark.parametrize("layouts", ["rrr", "ccr", "rcc", "crc"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64", "float8_e4m3fn"])
def test_layouts_and_batches(torch: Any, dtype: str, layouts: str) -> None:
    check(torch, dtype, (264, 200, 128), layouts)
    check(torch, dtype, (99, 105, 77), layouts, batch=(2, 3))


TILES = [config for config, _ in kernel_named("wgmma").configs_for("bfloat16")][::5]


@pytest.mark.parametrize("config", TILES, ids=str)
def test_every_tile(torch: Any, config: Any) -> None:
    for extents in ((528, 808, 400), (517, 803, 391)):
        try:
            check(torch, "bfloat16", extents, kernel="wgmma", config=config)
        except RefusalError:
            continue


def test_captured_in_a_graph_with_operands_that_change(torch: Any) -> None:
    a, b = normal(torch, 256, 128, dtype="bfloat16"), normal(torch, 128, 512, dtype="bfloat16")
    d, values = poisoned(torch, 256, 512, dtype="bfloat16"), operands(torch, 256, 512)
    planned = lapidist.plan(a, b, out=d, epilogue=of_all_kinds(**values))
    planned.execute(a, b, None, d)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        planned.execute(a, b, None, d)
    values["tile"].copy_(normal(torch, 256, 512))
    a.copy_(normal(torch, 256, 128, dtype="bfloat16"))
    graph.replay()
    assert judge_finished(d, of_all_kinds, values, a, b).ok


def test_operands_elsewhere_are_refused(torch: Any) -> None:
    a, b = normal(torch, 64, 64), normal(torch, 64, 64)
    with pytest.raises(lapidist.DeviceError, match="row: must be where a is"):
        lapidist.matmul(a, b, epilogue=of_all_kinds(**{**operands(torch, 64, 64), "row": np.zeros(64)}))


# ---- what leaves straight from the registers: whole numbers have the host's bits ----


@lapidist.epilogue
def and_mask(acc: Any, row: lapidist.Row) -> Any:
    return lapidist.relu(acc + row), acc, lapidist.Output(acc > 0, "bool"), lapidist.Output(acc, "float16")


@lapidist.epilogue
def of_pairs(acc: lapidist.Pair, row: lapidist.Row) -> Any:
    gate, up = acc
    return gate * row + up, lapidist.Pair(up, gate), lapidist.Output(gate > up, "bool")


@lapidist.epilogue
def of_8_bits(acc: Any, row: lapidist.Row) -> Any:
    return lapidist.Output(acc * row * 0.125, "float8_e4m3fn"), lapidist.Output(acc, "int8")


def whole(torch: Any, *shape: int, dtype: str = "float32") -> Any:
    return torch.randint(-2, 3, shape, device="cuda").to(getattr(torch, dtype))


@pytest.mark.parametrize("shared", SHARED, ids=str)
@pytest.mark.parametrize("extents", [(304, 528, 720), (301, 514, 259), (130, 70, 0)], ids=str)
@pytest.mark.parametrize(("kernel", "dtype", "more"), FAMILIES, ids=str)
def test_results_beside_d_pairs_and_8_bits(
    torch: Any, kernel: str, dtype: str, more: Any, extents: Any, shared: dict[str, Any]
) -> None:
    m, n, k = extents
    a, b = whole(torch, m, k, dtype=dtype), whole(torch, k, n, dtype=dtype)
    for function in (and_mask, of_pairs, of_8_bits):
        row = whole(torch, n // 2 if function is of_pairs else n)
        expected = lapidist.gemm(a.cpu(), b.cpu(), epilogue=function(row=row.cpu()), **more)
        try:
            found = lapidist.gemm(a, b, epilogue=function(row=row), kernel=kernel, **more, **shared)
        except RefusalError:
            if not shared:
                raise
            continue
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype
            assert torch.equal(one.cpu().double(), other.double())


# ---- what second passes make ----


@lapidist.epilogue
def reduced(acc: Any, row: lapidist.Row) -> Any:
    x = acc + row
    return (
        lapidist.relu(x),
        lapidist.row_sum(x),
        lapidist.column_sum(x),
        lapidist.Output(lapidist.column_max(2 * x), "float16"),
        lapidist.all_sum(x),
        lapidist.amax(x),
    )


@lapidist.epilogue
def of_columns(acc: Any, row: lapidist.Row) -> Any:
    x = acc + row
    return lapidist.relu(x), lapidist.column_sum(x), lapidist.all_sum(x), lapidist.column_amax(2 * x)


@lapidist.epilogue
def columns_of_pairs(acc: lapidist.Pair, row: lapidist.Row) -> Any:
    gate, up = acc
    both = lapidist.Pair(up, gate + 1)
    return gate * row, lapidist.column_sum(gate * up), lapidist.column_max(both), up


@lapidist.epilogue
def of_rows(acc: Any, row: lapidist.Row) -> Any:
    x = acc + row
    return lapidist.relu(x), lapidist.row_sum(x), lapidist.all_sum(x), lapidist.row_amax(2 * x)


@lapidist.epilogue
def rows_of_pairs(acc: lapidist.Pair, row: lapidist.Row) -> Any:
    gate, up = acc
    both = lapidist.Pair(up, gate + 1)
    return gate * row, lapidist.row_sum(gate * up), lapidist.row_max(both), up


@lapidist.epilogue
def in_groups(acc: Any, row: lapidist.Row) -> Any:
    return lapidist.Quantised(acc + row, "float8_e4m3fn"), lapidist.row_amax(acc + row)


@lapidist.epilogue
def pairs_in_groups(acc: lapidist.Pair, row: lapidist.Row) -> Any:
    gate, up = acc
    return lapidist.Quantised(gate * up + row, "int8"), lapidist.row_max(lapidist.Pair(gate, up))


@lapidist.epilogue
def groups_alone(acc: Any, row: lapidist.Row) -> Any:
    return lapidist.Quantised(acc + row, "int8")


def same_as_on_the_host(torch: Any, found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert torch.equal(one.cpu().double(), other.double())


@pytest.mark.parametrize("shared", SHARED, ids=str)
@pytest.mark.parametrize("extents", [(304, 528, 720), (301, 514, 259), (130, 70, 0)], ids=str)
@pytest.mark.parametrize(("kernel", "dtype", "more"), FAMILIES, ids=str)
def test_reductions_and_computed_factors(
    torch: Any, kernel: str, dtype: str, more: Any, extents: Any, shared: dict[str, Any]
) -> None:
    m, n, k = extents
    a, b = whole(torch, m, k, dtype=dtype), whole(torch, k, n, dtype=dtype)
    of_lines = of_columns, columns_of_pairs, of_rows, rows_of_pairs
    for function in (reduced, *of_lines, in_groups, pairs_in_groups, groups_alone):
        row = whole(torch, n // 2 if function.function.paired else n)
        expected = lapidist.gemm(a.cpu(), b.cpu(), epilogue=function(row=row.cpu()), **more)
        try:
            found = lapidist.gemm(a, b, epilogue=function(row=row), kernel=kernel, **more, **shared)
        except RefusalError:
            if not shared:
                raise
            continue
        same_as_on_the_host(torch, found, expected)


@pytest.mark.parametrize("name", ["quantise_e4m3_groups", "quantise_int8_groups", "swiglu_e4m3_groups"])
def test_tiles_that_quantise_have_the_bits_of_the_pass(torch: Any, name: str) -> None:
    function = getattr(epilogues, name)
    for m, n, k in ((1000, 2064, 512), (130, 1056, 4096), (4000, 4096, 64)):
        a, b = normal(torch, m, k, dtype="bfloat16"), normal(torch, k, n, dtype="bfloat16")
        a[3] *= 1e-38
        how: dict[str, Any] = {"epilogue": function, "kernel": "wgmma", "split_k": 1}
        expected = lapidist.gemm(a, b, config=BF16(128, 192, 4), **how)
        for config in (BF16(128, 256, 4, (2, 1)), BF16(64, 256, 4), BF16(64, 256, 4, ping_pong=True)):
            found = lapidist.gemm(a, b, config=config, **how)
            assert torch.equal(found[0].view(torch.uint8), expected[0].view(torch.uint8))
            assert torch.equal(found[1], expected[1])


ROW_SUMS = lapidist.epilogue(
    lambda acc: (acc, lapidist.row_sum(acc), lapidist.row_max(2 * acc), lapidist.all_sum(acc + 1))
)


@pytest.mark.parametrize("m", [1, 70, 4100])
@pytest.mark.parametrize("n", [512, 5003])
def test_sums_of_rows_are_the_same_in_each_kernel_and_near_those_of_doubles(
    torch: Any, m: int, n: int
) -> None:
    """A product of one factor has the same values everywhere."""
    a, b = (torch.zeros(shape, device="cuda", dtype=torch.bfloat16) for shape in ((m, 64), (64, n)))
    a[:, 0], b[0] = normal(torch, m, dtype="bfloat16"), normal(torch, n, dtype="bfloat16")
    ways: list[dict[str, Any]] = [
        {"config": BF16(*each), "split_k": 1} for each in ((128, 192, 4), (64, 48, 4))
    ]
    ways += [{"config": BF16(64, 128, 4, ping_pong=True), "split_k": 1}, {"schedule": "stream_k"}, {}]
    found = [lapidist.gemm(a, b, epilogue=ROW_SUMS(), kernel="wgmma", **how) for how in ways]
    found.append(lapidist.gemm(a, b, epilogue=ROW_SUMS(), kernel="mma"))
    twice = lapidist.gemm(torch.stack([a, a]), torch.stack([b, b]), epilogue=ROW_SUMS(), kernel="wgmma")
    found.append([each[1] for each in twice[:3]])
    for each in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(each[:3], found[0][:3], strict=False))
    for place in (1, 2, 3):
        verdict = judge_finished(found[0][place], ROW_SUMS, {}, a.cpu(), b.cpu(), result=place)
        assert verdict.ok, verdict


def test_sums_of_rows_beside_long_products(torch: Any) -> None:
    a, b = normal(torch, 1000, 4096, dtype="bfloat16"), normal(torch, 4096, 2064, dtype="bfloat16")
    for how in ({}, {"split_k": 4}, {"schedule": "stream_k"}, {"config": BF16(256, 112, 4, (2, 1))}):
        found = lapidist.gemm(a, b, epilogue=ROW_SUMS(), kernel="wgmma", **how)
        for place in (1, 2, 3):
            assert judge_finished(found[place], ROW_SUMS, {}, a.cpu(), b.cpu(), result=place).ok
        again = lapidist.gemm(a, b, epilogue=ROW_SUMS(), kernel="wgmma", **how)
        assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True))


def test_reductions_of_large_results_and_batches(torch: Any) -> None:
    for shape in ((3, 4096, 5000), (1, 50000, 640)):
        a, b = whole(torch, *shape[:2], 8, dtype="bfloat16"), whole(torch, 8, shape[2], dtype="bfloat16")
        row = whole(torch, shape[2])
        found = lapidist.matmul(a, b, epilogue=reduced(row=row))
        x = (a.double() @ b.double()) + row
        assert torch.equal(found[1].double(), x.sum(-1))
        assert torch.equal(found[2].double(), x.sum(-2))
        assert found[5] == x.abs().max()
        assert abs(found[4] - x.sum()) <= 1e-4 * x.abs().sum()
        again = lapidist.matmul(a, b, epilogue=reduced(row=row))
        assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True))


def test_second_passes_in_a_graph_and_on_another_stream(torch: Any) -> None:
    a, b, row = whole(torch, 256, 128), whole(torch, 128, 512), whole(torch, 512)
    planned = lapidist.plan(a, b, epilogue=in_groups(row=row))
    out = lapidist.matmul(a, b, epilogue=in_groups(row=row))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        planned.execute(a, b, None, out)
    a.copy_(whole(torch, 256, 128))
    graph.replay()
    expected = lapidist.gemm(a.cpu(), b.cpu(), epilogue=in_groups(row=row.cpu()))
    same_as_on_the_host(torch, out, expected)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    found = [lapidist.matmul(a, b, epilogue=in_groups(row=row), stream=stream) for _ in range(3)]
    stream.synchronize()
    for each in found:
        same_as_on_the_host(torch, each, expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_second_passes_again_and_again(torch: Any, dtype: str) -> None:
    """The short way: two shapes by turns, new memory, outputs that are given or new, a graph in between."""
    graphs = []
    for turn in range(5):
        for m, n, k in ((304, 528, 72), (130, 256, 64)):
            for function in (reduced, of_rows, in_groups, groups_alone):
                row = whole(torch, n)
                a, b = whole(torch, m, k, dtype=dtype), whole(torch, k, n, dtype=dtype)
                expected = lapidist.gemm(a.cpu(), b.cpu(), epilogue=function(row=row.cpu()))
                outputs = tuple(torch.empty_like(each, device="cuda") for each in expected)
                for out in (None, outputs):
                    found = lapidist.gemm(a, b, epilogue=function(row=row), out=out)
                    same_as_on_the_host(torch, found, expected)
                if turn == 3:
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph):
                        lapidist.gemm(a, b, epilogue=function(row=row), out=outputs)
                    graphs.append((graph, (a, b, row), outputs, expected))
    for graph, _, outputs, expected in graphs:
        for each in outputs:
            each.zero_()
        graph.replay()
        same_as_on_the_host(torch, outputs, expected)


def lists_of(torch: Any, count: int = 5, dtype: str = "float32") -> Any:
    shapes = ((130, 64), (64, 256), (256,))
    a, b = ([whole(torch, *shape, dtype=dtype) for _ in range(count)] for shape in shapes[:2])
    return a, b, [whole(torch, *shapes[2]) for _ in range(count)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_lists_again_and_again(torch: Any, dtype: str) -> None:
    """The long way and the short one: new arrays, given ones, and a plan."""
    for _ in range(4):
        a, b, rows = lists_of(torch, dtype=dtype)
        for function in (and_mask, reduced, in_groups):
            expected = [
                lapidist.gemm(x.cpu(), y.cpu(), epilogue=function(row=row.cpu()))
                for x, y, row in zip(a, b, rows, strict=True)
            ]
            found = lapidist.gemm(a, b, epilogue=function(row=rows))
            out = tuple([torch.empty_like(each) for each in of_place] for of_place in found)
            lapidist.gemm(a, b, out=out, epilogue=function(row=rows))
            plan = lapidist.plan(a, b, epilogue=function(row=rows))
            for lists in (found, out, plan.execute(a, b), plan.execute(a, b)):
                for each, wanted in zip(zip(*lists, strict=True), expected, strict=True):
                    same_as_on_the_host(torch, each, wanted)


def test_lists_in_a_graph(torch: Any) -> None:
    a, b, rows = lists_of(torch)
    out = lapidist.gemm(a, b, epilogue=reduced(row=rows))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        lapidist.gemm(a, b, out=out, epilogue=reduced(row=rows))
    for each in (*a, *rows):
        each.copy_(whole(torch, *each.shape))
    graph.replay()
    for each, x, y, row in zip(zip(*out, strict=True), a, b, rows, strict=True):
        expected = lapidist.gemm(x.cpu(), y.cpu(), epilogue=reduced(row=row.cpu()))
        same_as_on_the_host(torch, each, expected)


def partly_elsewhere(*lists: Any) -> list[Any]:
    return [[*each[:-1], each[-1].cpu()] for each in lists]


def test_lists_of_which_one_is_elsewhere_are_refused(torch: Any) -> None:
    a, b, rows = lists_of(torch)
    for _ in range(4):  # once the short way is known, too
        lapidist.gemm(a, b, epilogue=and_mask(row=rows))
        with pytest.raises(
            lapidist.DeviceError, match=r"a\[4\]: must be where a\[0\] is, GPU 0; it is in host"
        ):
            lapidist.gemm(*partly_elsewhere(a, b), epilogue=and_mask(row=[*rows[:-1], rows[-1].cpu()]))
        with pytest.raises(
            lapidist.DeviceError, match="row, product 4: must be where a is, host memory; it is in GPU 0"
        ):
            lapidist.gemm(*partly_elsewhere(a, b), epilogue=and_mask(row=rows[0]))


def test_threads_that_share_a_stream(torch: Any) -> None:
    """Nobody's product comes between another's and what reads its values."""
    inputs = [(whole(torch, 300, 64), whole(torch, 64, 520), whole(torch, 520)) for _ in range(8)]
    expected = [lapidist.matmul(a, b, epilogue=reduced(row=row)) for a, b, row in inputs]

    def call(number: int) -> list[Any]:
        a, b, row = inputs[number]
        return [lapidist.matmul(a, b, epilogue=reduced(row=row)) for _ in range(20)]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(call, range(8)))
    for several, wanted in zip(found, expected, strict=True):
        for each in several:
            assert all(torch.equal(one, other) for one, other in zip(each, wanted, strict=True))


def test_factors_scale_the_next_product(torch: Any) -> None:
    a, w = normal(torch, 512, 1024, dtype="bfloat16"), normal(torch, 1024, 2048, dtype="bfloat16")
    b = normal(torch, 256, 2048).to(torch.float8_e4m3fn)
    activated = lapidist.epilogue(lambda acc: lapidist.Quantised(lapidist.silu(acc), "float8_e4m3fn"))
    d, factors = lapidist.matmul(a, w, epilogue=activated)
    found = lapidist.matmul(d, b.T, scale_a=factors, scale_b=torch.ones(256, device="cuda"))
    exact = torch.nn.functional.silu(a.double() @ w.double()) @ b.double().T
    assert (found.double() - exact).norm() < 0.04 * exact.norm()
