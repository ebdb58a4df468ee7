"""Values of a column, or of a row, that lanes join before a second pass reads them: the same bits by every
way out, whole numbers as on the host, and each value left where lanes cannot. In the machine, sanitized."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import lapidist
from fused_cases import judge_finished, watch
from in_turns import in_turns, surveyed
from lapidist.dtypes import numpy_dtype
from lapidist.epilogues.passes import JOINED, Reduction
from lapidist.errors import RefusalError
from lapidist.kernels.wgmma.configs import HALF_PATCHED, tile
from lapidist.planning.in_kernel_reductions import in_kernel_work

Array = np.ndarray[Any, Any]
BF16 = partial(tile, "bfloat16")
PLAIN: dict[str, Any] = {"config": BF16(64, 32, 3), "split_k": 1}
WAYS: list[dict[str, Any]] = [
    {"config": BF16(128, 192, 3), "split_k": 1},
    {"config": BF16(64, 48, 3), "split_k": 3, "reduction": "cluster"},
    {"config": BF16(64, 32, 3), "split_k": 3, "reduction": "turnstile"},
    {"config": BF16(64, 32, 3), "schedule": "stream_k", "avail_sms": 3},
]
MORE_WAYS: list[dict[str, Any]] = [
    {"config": BF16(64, 96, 3, (1, 2)), "split_k": 1},
    {"config": BF16(128, 64, 3, ping_pong=True), "split_k": 1},
    {"config": BF16(192, 128, 3, (2, 1)), "split_k": 1},
    {"config": BF16(64, 256, 3), "split_k": 2, "reduction": "turnstile"},
]
HALF: dict[str, Any] = {"config": BF16(256, HALF_PATCHED, 3, (2, 1)), "split_k": 1}
SKEWED: dict[str, Any] = {"config": BF16(64, 32, 3, skewed=True)}
# each leaves its values, as kernels of other families do
LEAVING: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"config": BF16(64, 48, 3, exchanged=True)}, {}),
    (SKEWED, {"k": 97, "n": 62}),
    ({"config": BF16(64, 32, 3)}, {"batch": (2,)}),
]


@pytest.fixture(autouse=True)
def sanitized(monkeypatch: pytest.MonkeyPatch) -> None:
    watch(monkeypatch)


@lapidist.epilogue
def of_columns(acc: Any, row: lapidist.Row) -> Any:
    x = acc + row
    return (
        lapidist.relu(x),
        lapidist.column_sum(x),
        lapidist.column_max(2 * x),
        lapidist.all_sum(x),
        lapidist.column_amax(3 * x),
    )


@lapidist.epilogue
def of_rows(acc: Any, row: lapidist.Row) -> Any:
    x = acc + row
    return (
        lapidist.relu(x),
        lapidist.row_sum(x),
        lapidist.row_max(2 * x),
        lapidist.all_sum(x),
        lapidist.row_amax(3 * x),
        lapidist.all_sum(acc),
        lapidist.column_sum(x + 1),
    )


@lapidist.epilogue
def of_sums(acc: Any, row: lapidist.Row) -> Any:
    """What of a sum depends on its order, by rows and by columns."""
    x = acc + row
    return x, lapidist.row_sum(x), lapidist.all_sum(x), lapidist.column_sum(x + 1)


@lapidist.epilogue
def of_pairs(acc: lapidist.Pair, row: lapidist.Row) -> Any:
    gate, up = acc
    return gate * row, lapidist.column_sum(gate * up), lapidist.column_amax(lapidist.Pair(up, gate + 1)), up


@lapidist.epilogue
def rows_of_pairs(acc: lapidist.Pair, row: lapidist.Row) -> Any:
    gate, up = acc
    return gate * row, lapidist.row_sum(gate * up), lapidist.row_amax(lapidist.Pair(up, gate + 1)), up


@lapidist.epilogue
def long_rows(acc: Any, before: lapidist.Tile) -> Any:
    """No short one: it is in a loop."""
    x = lapidist.where(lapidist.tanh(acc) * lapidist.exp(-abs(acc)) > 0, acc, before)
    return x, lapidist.row_sum(x), lapidist.row_max(x + before)


@lapidist.epilogue
def slope(acc: Any, before: lapidist.Tile) -> Any:
    found = lapidist.where(before > 0, acc, 0)
    return found, lapidist.column_sum(found), lapidist.column_max(acc)


@lapidist.epilogue
def summed(acc: Any) -> Any:
    return acc, lapidist.column_sum(acc)


def whole(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(-2, 3, shape).astype(numpy_dtype("bfloat16"))


def run(a: Array, b: Array, given: Any, **how: Any) -> tuple[Any, bool]:
    """The results, and whether lanes joined rows."""
    how = {"epilogue": given, "kernel": "wgmma", "device": "machine", **how}
    plan = lapidist.plan(a, b, **how).plan
    assert plan is not None
    return lapidist.gemm(a, b, **how), in_kernel_work([plan]).joined


def same(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.astype("f8"), other.astype("f8"))


def operands_of(rng: np.random.Generator, function: Any, m: int, n: int) -> dict[str, Any]:
    if function in (slope, long_rows):
        return {"before": whole(rng, m, n)}
    return {"row": whole(rng, n // 2 if function.function.paired else n).astype("f4")}


FUNCTIONS = {each.function.name: each for each in (of_columns, of_rows, of_pairs, rows_of_pairs, long_rows)}
MORE_FUNCTIONS = {**FUNCTIONS, "slope": slope}
ALL_WAYS = [PLAIN, *WAYS, *MORE_WAYS]
OFTEN, LATER = range(1 + len(WAYS)), range(1 + len(WAYS), len(ALL_WAYS))


@pytest.mark.often(1)
@pytest.mark.parametrize(
    ("name", "way"),
    [
        *in_turns(FUNCTIONS, OFTEN),
        *surveyed([("slope", way) for way in OFTEN]),
        *surveyed([(name, way) for name in MORE_FUNCTIONS for way in LATER]),
    ],
)
def test_whole_numbers(rng: np.random.Generator, name: str, way: int) -> None:
    """Rows and columns end inside of a tile, and rows inside of those that lanes join. By each way, sums of
    rows and of columns have the bits of the others, as the next test says.
    """
    function, how = MORE_FUNCTIONS[name], ALL_WAYS[way]
    m, n = (137, 200) if how in (PLAIN, WAYS[0]) else (70, 72)
    a, b = whole(rng, m, 192), whole(rng, 192, n)
    given = function(**operands_of(rng, function, m, n))
    found, joined = run(a, b, given, **how)
    assert joined
    same(found, lapidist.gemm(a, b, epilogue=given))


def of_one_factor(rng: np.random.Generator, m: int, n: int, k: int = 192) -> tuple[Array, Array]:
    """Their product has the same values everywhere; of many sizes, so that its sums round by their order."""
    a, b = np.zeros((m, k), numpy_dtype("bfloat16")), np.zeros((k, n), numpy_dtype("bfloat16"))
    a[:, 0], b[0] = (rng.standard_normal(size) * 2.0 ** rng.integers(-8, 9, size) for size in (m, n))
    return a, b


@pytest.mark.survey
@pytest.mark.parametrize("ways", [WAYS, *surveyed([MORE_WAYS])], ids=["some", "others"])
@pytest.mark.parametrize(
    "function", [of_sums, *surveyed([of_columns, of_rows])], ids=lambda each: each.function.name
)
def test_all_ways_out_have_the_same_bits(rng: np.random.Generator, function: Any, ways: Any) -> None:
    """Rows and columns beyond D add nothing."""
    m, n = (70, 120) if function is of_sums else (137, 200)
    a, b = of_one_factor(rng, m, n)
    row = np.zeros(n, "f4")
    given = function(row=row)
    expected, _ = run(a, b, given, **PLAIN)
    exact = lapidist.gemm(a, b, epilogue=given)
    assert np.any(expected[1] != exact[1])
    for how in ways:
        same(run(a, b, given, **how)[0], expected)
    for place, found in enumerate(expected):
        assert judge_finished(np.asarray(found), function, {"row": row}, a, b, result=place).ok


ROWS = lapidist.epilogue(lambda acc: (acc, lapidist.row_sum(acc)))


@lapidist.epilogue
def rows_of_two(acc: lapidist.Pair) -> Any:
    gate, up = acc
    return gate, lapidist.row_sum(gate * up), lapidist.row_sum(lapidist.Pair(gate, up))


@pytest.mark.survey
@pytest.mark.parametrize(
    ("function", "rows", "n"),
    [(ROWS, 37, 200), *surveyed([(rows_of_two, 37, 200), (ROWS, 1, 4200), (rows_of_two, 1, 4200)])],
    ids=str,
)
def test_sums_of_rows_have_the_same_bits_in_each_kernel(
    rng: np.random.Generator, function: Any, rows: int, n: int
) -> None:
    """Lanes of one join 16 columns, and a pass does those of the others: batches, columns for rows, and
    kernels that are no wgmma's. More rows change nothing."""
    a, b = of_one_factor(rng, rows, n, 32)
    kernels: list[dict[str, Any]] = [{"kernel": "wgmma", "batched": True}, {"kernel": "mma"}]
    if function is ROWS and n % 8 == 0:
        kernels.append({"kernel": "wgmma", "config": BF16(64, 48, 3, exchanged=True), "split_k": 1})
    expected, joined = run(a, b, function(), **PLAIN)
    assert joined
    assert rows == 1 or np.any(expected[1] != lapidist.gemm(a, b, epilogue=function())[1])
    for how in kernels:
        batch = how.pop("batched", False)
        operands = (np.stack([a, a]), np.stack([b, b])) if batch else (a, b)
        found = lapidist.gemm(*operands, epilogue=function(), device="machine", **how)
        same([each[1] for each in found] if batch else found, expected)
    more = np.concatenate([a, a[:1], a])
    again = lapidist.gemm(more, b, epilogue=function(), device="machine", kernel="wgmma", **PLAIN)
    same([each[:rows] for each in again], expected)


@pytest.mark.parametrize("dtype", ["bfloat16", *surveyed(["float32"])])
def test_rows_of_which_c_is_a_part(rng: np.random.Generator, dtype: str) -> None:
    """C comes patch by patch, and so the values do."""
    a, b, c = whole(rng, 137, 96), whole(rng, 96, 200), whole(rng, 137, 200).astype(numpy_dtype(dtype))
    more = {"beta": 2.0, "out_dtype": dtype}
    given = of_rows(row=whole(rng, 200).astype("f4"))
    how = {"epilogue": given, "kernel": "wgmma", "device": "machine", **WAYS[0]}
    same(lapidist.gemm(a, b, c, **how, **more), lapidist.gemm(a, b, c, epilogue=given, **more))


def test_a_tile_of_half_a_group_is_refused(rng: np.random.Generator) -> None:
    a, b, row = whole(rng, 300, 40), whole(rng, 40, 200), np.zeros(200, "f4")
    with pytest.raises(RefusalError, match="joins columns in 16s"):
        lapidist.plan(a, b, epilogue=of_rows(row=row), kernel="wgmma", device="machine", **HALF)
    found, joined = run(a, b, of_columns(row=row), **HALF)
    assert joined
    same(found, lapidist.gemm(a, b, epilogue=of_columns(row=row)))


@pytest.mark.often(2)
@pytest.mark.parametrize("function", [of_columns, of_rows], ids=lambda each: each.function.name)
@pytest.mark.parametrize("rows", [1, 17, *surveyed([3, 48])])
def test_few_rows(rng: np.random.Generator, rows: int, function: Any) -> None:
    a, b = whole(rng, rows, 96), whole(rng, 96, 70)
    given = function(row=-99 * np.ones(70, "f4"))  # maxima are negative: what is beyond D has none
    found, joined = run(a, b, given, **PLAIN)
    assert joined
    same(found, lapidist.gemm(a, b, epilogue=given))


@pytest.mark.often(2)
@pytest.mark.parametrize("function", [of_columns, of_rows], ids=lambda each: each.function.name)
@pytest.mark.parametrize(("how", "shape"), LEAVING, ids=str)
def test_others_leave_each_value(rng: np.random.Generator, how: Any, shape: Any, function: Any) -> None:
    batch, k, n = shape.get("batch", ()), shape.get("k", 96), shape.get("n", 64)
    rows = 21 if function is of_rows and how is not SKEWED else 70 if batch else 137
    a, b = whole(rng, *batch, rows, k), whole(rng, *batch, k, n)
    given = function(row=whole(rng, n).astype("f4"))
    found, joined = run(a, b, given, split_k=1, **how)
    assert not joined
    same(found, lapidist.gemm(a, b, epilogue=given))


def test_shifted_tiles_join_columns_of_rows(rng: np.random.Generator) -> None:
    a, b = whole(rng, 137, 97), whole(rng, 97, 62)
    found, joined = run(a, b, ROWS(), split_k=1, **SKEWED)
    assert joined
    same(found, lapidist.gemm(a, b, epilogue=ROWS()))


def test_what_is_not_a_number_stays(rng: np.random.Generator) -> None:
    a, b = whole(rng, 70, 96), np.ones((96, 64), numpy_dtype("bfloat16"))
    a[69, 3], a[17, 0] = np.nan, np.inf
    (_, sums, most, total, sizes), joined = run(a, b, of_columns(row=np.zeros(64, "f4")), **PLAIN)
    assert joined
    assert np.isnan([*sums, *most, *sizes, total]).all()
    for each in run(a, b, of_rows(row=np.zeros(64, "f4")), **PLAIN)[0][1:]:
        assert np.all(np.isnan(each[-1]) if each.shape == (70,) else np.isnan(each))


def test_a_function_says_what_may_be_joined() -> None:
    joined = [Reduction("column", "sum"), Reduction("column", "max"), Reduction("column", "amax")]
    assert of_columns.function.joined == tuple(joined)
    along = [
        Reduction("row", "sum"),
        Reduction("row", "max"),
        Reduction("row", "amax"),
        Reduction("row", "sum"),
    ]
    assert of_rows.function.joined == (*along, Reduction("column", "sum"))
    mixed = lapidist.epilogue(lambda acc: (acc, lapidist.column_sum(acc), lapidist.row_sum(acc)))
    others = lapidist.epilogue(lambda acc: (2 * acc, lapidist.row_sum(acc), lapidist.row_max(acc)))
    quantised = lapidist.epilogue(lambda acc: (lapidist.Quantised(acc, "int8"), lapidist.row_amax(acc)))
    assert mixed.function.joined == others.function.joined == quantised.function.joined == (None,)
    neighbours = [rows_of_pairs.function.neighbours(each) for each in rows_of_pairs.function.sources]
    assert neighbours == [JOINED // 2, JOINED]


@pytest.mark.often(1)
@pytest.mark.parametrize(("batch", "rows"), [(20, 1), (6, 4), (2, 40), (3, 16)])
def test_a_batch_that_shares_b_has_sums_of_each_matrix(batch: int, rows: int) -> None:
    """Stacked, it is one product; lanes must not join rows of two matrices. Sums of rows may stay stacked."""
    rng = np.random.default_rng(batch)
    a, b = whole(rng, batch, rows, 32), whole(rng, 32, 64)
    how: dict[str, Any] = {"epilogue": summed, "out_dtype": "float32", "kernel": "wgmma", **PLAIN}
    d, sums = lapidist.gemm(a, b, device="machine", **how)
    expected = a.astype("f4") @ b.astype("f4")
    assert np.array_equal(d, expected)
    assert np.array_equal(sums, expected.sum(1))
    d, sums = lapidist.gemm(a, b, device="machine", **{**how, "epilogue": ROWS()})
    assert np.array_equal(sums, expected.sum(2))
    assert np.array_equal(d, expected)
