"""Grouped products on a GPU: whole numbers, so that every element is exact; lengths that a graph's replays
change; and what lies behind the last group.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

import lapidist

pytestmark = pytest.mark.gpu
torch: Any = pytest.importorskip("torch")

UNTOUCHED = 77.0
LENGTHS = {
    "mixed": [0, 333, 1, 130, 0, 400, 64],
    "one": [0, 0, 900, 0],
    "many": [(i * 37) % 11 for i in range(200)],
    "none": [0, 0, 0],
}
TYPES = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
}
WAYS = {name: (dtype, None) for name, dtype in TYPES.items()} | {"sgemm": (torch.float32, "sgemm")}


@pytest.fixture(autouse=True)
def the_best_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAPIDIST_COMPILE", "wait")


def ends_of(lengths: list[int], dtype: Any = torch.int32) -> Any:
    return torch.tensor(lengths, device="cuda").cumsum(0).to(dtype)


def whole(*shape: int, dtype: Any) -> Any:
    return torch.randint(-3, 4, shape, device="cuda").to(dtype)


def parts(lengths: list[int]) -> list[slice]:
    begin, found = 0, []
    for length in lengths:
        found.append(slice(begin, begin + length))
        begin += length
    return found


def rows_expected(a: Any, b: Any, lengths: list[int]) -> Any:
    expected = torch.full((a.shape[0], b.shape[2]), UNTOUCHED, device="cuda", dtype=torch.float64)
    for group, part in enumerate(parts(lengths)):
        expected[part] = (a[part].double() @ b[group].double()).to(a.dtype).double()
    return expected


@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("n", "k", "turned"), [(768, 512, True), (768, 512, False), (200, 72, True), (37, 29, False)]
)
def test_rows(name: str, way: str, n: int, k: int, turned: bool) -> None:
    lengths, (type_of, kernel) = LENGTHS[name], WAYS[way]
    total = sum(lengths) + 50
    a = whole(total, k, dtype=type_of)
    count = len(lengths)
    b = whole(count, n, k, dtype=type_of).mT if turned else whole(count, k, n, dtype=type_of)
    expected = rows_expected(a, b, lengths)
    a[sum(lengths) :] = float("nan")
    ends, out = ends_of(lengths), torch.full((total, n), UNTOUCHED, device="cuda", dtype=type_of)
    for _ in range(3):  # the full path, then the fast one
        out.fill_(UNTOUCHED)
        lapidist.grouped(a, b, ends, out=out, kernel=kernel)
        assert torch.equal(out.double(), expected)


@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("m", "n"), [(512, 768), (37, 200)])
def test_gradients_of_weights(name: str, way: str, m: int, n: int) -> None:
    lengths, (type_of, kernel) = LENGTHS[name], WAYS[way]
    total = sum(lengths) + 50
    x, y = whole(total, m, dtype=type_of), whole(total, n, dtype=type_of)
    expected = torch.stack([x[part].double().mT @ y[part].double() for part in parts(lengths)])
    x[sum(lengths) :] = float("nan")
    y[sum(lengths) :] = float("nan")
    for _ in range(3):
        found = lapidist.grouped(x.mT, y, ends_of(lengths), kernel=kernel)
        assert torch.equal(found, expected.to(type_of))
    c = whole(len(lengths), m, n, dtype=type_of)
    added = lapidist.grouped(x.mT, y, ends_of(lengths), c, beta=1.0, out_dtype=type_of, kernel=kernel)
    assert torch.equal(added, (expected + c.double()).to(type_of))


def test_a_graphs_replays_see_other_lengths() -> None:
    total, count = 1024, 16
    a, b = whole(total, 256, dtype=torch.bfloat16), whole(count, 512, 256, dtype=torch.bfloat16).mT
    ends, out = (
        ends_of([total // count] * count),
        torch.empty(total, 512, device="cuda", dtype=torch.bfloat16),
    )
    for _ in range(3):
        lapidist.grouped(a, b, ends, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        lapidist.grouped(a, b, ends, out=out)
    drawn = random.Random(49)
    for _ in range(5):
        cuts = sorted(drawn.randint(0, total) for _ in range(count))
        lengths = [end - begin for begin, end in zip([0, *cuts[:-1]], cuts, strict=True)]
        ends.copy_(ends_of(lengths))
        out.fill_(UNTOUCHED)
        graph.replay()
        assert torch.equal(out.double(), rows_expected(a, b, lengths))


def test_counts() -> None:
    counts = [0, 5, 130, 256]
    a, b = whole(4, 256, 64, dtype=torch.bfloat16), whole(4, 96, 64, dtype=torch.bfloat16).mT
    expected = a.double() @ b.double()
    out = torch.full((4, 256, 96), UNTOUCHED, device="cuda", dtype=torch.bfloat16)
    for group, count in enumerate(counts):
        a[group, count:] = float("nan")
        expected[group, count:] = UNTOUCHED
    lapidist.grouped(a, b, counts=torch.tensor(counts, device="cuda"), out=out)
    assert torch.equal(out.double(), expected)


@pytest.mark.parametrize("ends", [[50, 20, 900, 4000], [-5, 600, 1 << 40, 3]])
def test_wrong_ends_touch_nothing_outside(ends: list[int]) -> None:
    store = torch.full((1200, 256), UNTOUCHED, device="cuda", dtype=torch.bfloat16)
    out = store[100:1100]
    a, b = whole(1000, 128, dtype=torch.bfloat16), whole(4, 256, 128, dtype=torch.bfloat16).mT
    for kernel in ("wgmma", "mma"):
        lapidist.grouped(a, b, torch.tensor(ends, device="cuda"), out=out, kernel=kernel)
        torch.cuda.synchronize()
        assert (store[:100] == UNTOUCHED).all()
        assert (store[1100:] == UNTOUCHED).all()
    with pytest.raises(lapidist.ArgumentError, match="offsets: of group"):
        lapidist.grouped(a, b, torch.tensor(ends, device="cuda"), out=out, check_offsets=True)


@pytest.mark.parametrize("kind", ["lines", "strips", "squares"])
def test_factors(kind: str) -> None:
    lengths, n, k = LENGTHS["mixed"], 256, 384
    total, count = sum(lengths), len(lengths)
    a, b = whole(total, k, dtype=torch.float8_e4m3fn), whole(count, n, k, dtype=torch.float8_e4m3fn).mT
    of_a = 2.0 ** torch.randint(-1, 2, {"lines": (total,)}.get(kind, (total, 3)), device="cuda").float()
    shape = {"lines": (count, n), "strips": (count, 3, n), "squares": (count, 3, 2)}[kind]
    of_b = 2.0 ** torch.randint(-1, 2, shape, device="cuda").float()
    found = lapidist.grouped(a, b, ends_of(lengths), scale_a=of_a, scale_b=of_b)
    lines = of_a[:, None] if kind == "lines" else of_a.repeat_interleave(128, 1)
    for group, part in enumerate(parts(lengths)):
        columns = of_b[group]
        if kind != "lines":
            columns = columns.repeat_interleave(128, 0)
        if kind == "squares":
            columns = columns.repeat_interleave(128, 1)
        expected = (a[part].double() * lines[part]) @ (b[group].double() * columns)
        assert torch.equal(found[part].double(), expected)
    order, tokens, of_tokens = torch.randperm(total, device="cuda"), torch.empty_like(a), of_a.clone()
    tokens.view(torch.uint8)[order], of_tokens[order] = a.view(torch.uint8), of_a
    how: dict[str, Any] = {"gather_a": order.int(), "scale_a": of_tokens, "scale_b": of_b}
    for kernel in ("wgmma", "mma"):
        gathered = lapidist.grouped(tokens, b, ends_of(lengths), **how, kernel=kernel)
        assert torch.equal(gathered, found)


@lapidist.epilogue
def dressed(acc, bias: lapidist.Row, residual: lapidist.Tile):  # type: ignore[no-untyped-def]
    return lapidist.relu(acc + bias) + residual


@pytest.mark.parametrize("kernel", [None, "wgmma", "mma"])
def test_epilogues(kernel: str | None) -> None:
    lengths, n, k = LENGTHS["mixed"], 256, 128
    total, count = sum(lengths), len(lengths)
    a, b = whole(total, k, dtype=torch.bfloat16), whole(count, n, k, dtype=torch.bfloat16).mT
    bias, residual = whole(count, n, dtype=torch.float32), whole(total, n, dtype=torch.bfloat16)
    for _ in range(3):
        found = lapidist.grouped(
            a, b, ends_of(lengths), epilogue=dressed(bias=bias, residual=residual), kernel=kernel
        )
    for group, part in enumerate(parts(lengths)):
        sums = a[part].double() @ b[group].double()
        expected = torch.relu(sums + bias[group].double()) + residual[part].double()
        assert torch.equal(found[part], expected.to(torch.bfloat16))


@lapidist.epilogue
def twice(acc):  # type: ignore[no-untyped-def]
    return acc, acc * 2


@pytest.mark.parametrize("kernel", [None, "wgmma", "mma"])
@pytest.mark.parametrize("n", [256, 200])
def test_quantised_and_further_results(n: int, kernel: str | None) -> None:
    """By the kernel itself, and by a pass that reads where groups end; the full path, then the fast one."""
    lengths, k = LENGTHS["mixed"], 128
    total, count = sum(lengths) + 50, len(lengths)
    a, b = whole(total, k, dtype=torch.bfloat16), whole(count, n, k, dtype=torch.bfloat16).mT
    expected, rows = rows_expected(a, b, lengths)[: sum(lengths)], slice(sum(lengths))
    a[sum(lengths) :] = float("nan")
    small = torch.empty(total, n, device="cuda", dtype=torch.float8_e4m3fn)
    factors = torch.empty(total, -(-n // 128), device="cuda")
    parts_of_row = torch.nn.functional.pad(expected, (0, -n % 128)).unflatten(1, (-1, 128))
    largest = parts_of_row.abs().amax(2) / 448
    right = torch.where(largest == 0, 1.0, largest)
    for ends in (ends_of(lengths), ends_of(lengths, torch.int64)):
        for _ in range(3):
            small.copy_(torch.full((total, n), 7.0))
            factors.fill_(UNTOUCHED)
            how = {"epilogue": lapidist.epilogues.quantise_e4m3_groups, "out": (small, factors)}
            lapidist.grouped(a, b, ends, **how, kernel=kernel)
            assert torch.allclose(factors[rows].double(), right, rtol=1e-6)
            spread = factors.repeat_interleave(128, 1)[rows, :n].double()
            assert ((small[rows].double() * spread - expected).abs() <= 16.01 * spread).all()
            assert (factors[sum(lengths) :] == UNTOUCHED).all()
            assert (small[sum(lengths) :].float() == 7).all()
            first, second = lapidist.grouped(a, b, ends, epilogue=twice, kernel=kernel)
            assert torch.equal(first[rows], expected.bfloat16())
            assert torch.equal(second[rows], (2 * expected).bfloat16())


@pytest.mark.parametrize("k", [1024, 4096])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_few_rows_of_one_group_are_shared(dtype: str, k: int) -> None:
    """Fewer tiles than blocks, whose k is cut: exact sums, the same bits in each run, and in a graph."""
    a, b = whole(64, k, dtype=TYPES[dtype]), whole(8, 1024, k, dtype=TYPES[dtype]).mT
    out = torch.empty(64, 1024, device="cuda", dtype=TYPES[dtype])
    draws = torch.randn(64, k, device="cuda").to(TYPES[dtype])
    for hot in (0, 3, 7):
        lengths = [64 * (group == hot) for group in range(8)]
        ends = ends_of(lengths)
        for _ in range(3):
            out.fill_(UNTOUCHED)
            lapidist.grouped(a, b, ends, out=out)
            assert torch.equal(out.double(), rows_expected(a, b, lengths))
        first = lapidist.grouped(draws, b, ends).clone()
        assert all(torch.equal(lapidist.grouped(draws, b, ends), first) for _ in range(20))


@pytest.mark.parametrize("kernel", [None, "wgmma", "mma"])
@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize(("n", "k"), [(256, 128), (1032, 1096)])
@pytest.mark.parametrize("index_type", [torch.int32, torch.int64])
def test_tokens_by_their_indices(
    name: str, n: int, k: int, kernel: str | None, index_type: torch.dtype
) -> None:
    """From their rows, and to their rows. Indices behind the last end, and rows without one, are not read."""
    lengths = LENGTHS[name]
    rows, count = sum(lengths), len(lengths)
    tokens, b = whole(300, k, dtype=torch.bfloat16), whole(count, n, k, dtype=torch.bfloat16).mT
    index = torch.randint(0, 299, (rows + 50,), device="cuda").to(index_type)
    target = torch.randperm(rows + 90, device="cuda")[: rows + 50].to(index_type)
    expected = rows_expected(tokens[index.long()], b, lengths)[:rows]
    tokens[299] = float("nan")
    index[rows:], ends = 1 << 30, ends_of(lengths, index_type)
    scattered = torch.full((rows + 90, n), UNTOUCHED, device="cuda", dtype=torch.bfloat16)
    right = scattered.double().index_copy(0, target[:rows].long(), expected)
    for _ in range(3):
        found = lapidist.grouped(tokens, b, ends, gather_a=index, kernel=kernel)
        assert torch.equal(found[:rows].double(), expected)
        scattered.fill_(UNTOUCHED)
        how = {"gather_a": index, "scatter_d": target, "out": scattered}
        lapidist.grouped(tokens, b, ends, **how, kernel=kernel)
        assert torch.equal(scattered.double(), right)


def test_tf32_and_integers() -> None:
    lengths = LENGTHS["mixed"]
    total, count = sum(lengths), len(lengths)
    a, b = whole(total, 128, dtype=torch.float32), whole(count, 256, 128, dtype=torch.float32).mT
    expected = rows_expected(a, b, lengths)
    assert torch.equal(lapidist.grouped(a, b, ends_of(lengths), precision="tf32").double(), expected)
    a8, b8 = a.to(torch.int8), b.mT.to(torch.int8).mT
    assert torch.equal(lapidist.grouped(a8, b8, ends_of(lengths)).double(), expected)
