"""Rows of a column that lanes join before a second pass reads them: the same bits by every way out, whole
numbers as on the host, and each value left where lanes cannot. In the machine, sanitized."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import lapidist
from fused_cases import judge_finished, watch
from in_turns import surveyed
from lapidist.dtypes import numpy_dtype
from lapidist.kernels.wgmma.configs import HALF_PATCHED, tile
from lapidist.planning.before_passes import made_before

Array = np.ndarray[Any, Any]
BF16 = partial(tile, "bfloat16")
PLAIN: dict[str, Any] = {"config": BF16(64, 32, 3), "split_k": 1}
WAYS: list[dict[str, Any]] = [
    {"config": BF16(128, 192, 3), "split_k": 1},
    {"config": BF16(256, HALF_PATCHED, 3, (2, 1)), "split_k": 1},
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
# each leaves its values, as kernels of other families do
LEAVING: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"config": BF16(64, 48, 3, exchanged=True)}, {}),
    ({"config": BF16(64, 32, 3, skewed=True)}, {"k": 97, "n": 62}),
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
        lapidist.row_sum(acc),
    )


@lapidist.epilogue
def of_pairs(acc: lapidist.Pair, row: lapidist.Row) -> Any:
    gate, up = acc
    return gate * row, lapidist.column_sum(gate * up), lapidist.column_amax(lapidist.Pair(up, gate + 1)), up


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
    return lapidist.gemm(a, b, **how), made_before([plan]).joined


def same(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.astype("f8"), other.astype("f8"))


def operands_of(rng: np.random.Generator, function: Any, m: int, n: int) -> dict[str, Any]:
    if function is slope:
        return {"before": whole(rng, m, n)}
    return {"row": whole(rng, n // 2 if function is of_pairs else n).astype("f4")}


@pytest.mark.parametrize(
    "how", [PLAIN, *WAYS, *surveyed(MORE_WAYS)], ids=lambda how: f"{how['config']}, {len(how)}"
)
@pytest.mark.parametrize("function", [of_columns, of_pairs, slope], ids=lambda each: each.function.name)
def test_whole_numbers(rng: np.random.Generator, function: Any, how: dict[str, Any]) -> None:
    """Rows and columns end inside of a tile, and rows inside of those that lanes join."""
    if function is of_pairs and how["config"].bn == HALF_PATCHED:
        return  # TMA alone stores D there, and a function of pairs stores it itself
    for m, n in ((70, 72), (137, 200)):
        a, b = whole(rng, m, 384), whole(rng, 384, n)
        given = function(**operands_of(rng, function, m, n))
        found, joined = run(a, b, given, **how)
        assert joined
        same(found, lapidist.gemm(a, b, epilogue=given))


def test_all_ways_out_have_the_same_bits(rng: np.random.Generator) -> None:
    """A product of one factor has the same values everywhere; rows beyond D add nothing."""
    a, b = np.zeros((137, 384), numpy_dtype("bfloat16")), np.zeros((384, 200), numpy_dtype("bfloat16"))
    a[:, 0], b[0] = rng.standard_normal(137), rng.standard_normal(200)
    given = of_columns(row=np.zeros(200, "f4"))
    expected, _ = run(a, b, given, **PLAIN)
    exact = lapidist.gemm(a, b, epilogue=given)
    assert np.any(expected[1] != exact[1])
    for how in (*WAYS, *MORE_WAYS):
        same(run(a, b, given, **how)[0], expected)
    for place, found in enumerate(expected):
        assert judge_finished(
            np.asarray(found), of_columns, {"row": np.zeros(200, "f4")}, a, b, result=place
        ).ok


@pytest.mark.parametrize("rows", [1, 3, 17, 48])
def test_few_rows(rng: np.random.Generator, rows: int) -> None:
    a, b = whole(rng, rows, 96), whole(rng, 96, 64)
    given = of_columns(row=-9 * np.ones(64, "f4"))  # maxima are negative: rows beyond D have none
    found, joined = run(a, b, given, **PLAIN)
    assert joined
    same(found, lapidist.gemm(a, b, epilogue=given))


@pytest.mark.parametrize(("how", "shape"), LEAVING, ids=str)
def test_others_leave_each_value(rng: np.random.Generator, how: Any, shape: Any) -> None:
    batch, k, n = shape.get("batch", ()), shape.get("k", 96), shape.get("n", 64)
    a, b = whole(rng, *batch, 137, k), whole(rng, *batch, k, n)
    given = of_columns(row=whole(rng, n).astype("f4"))
    found, joined = run(a, b, given, split_k=1, **how)
    assert not joined
    same(found, lapidist.gemm(a, b, epilogue=given))


def test_what_is_not_a_number_stays(rng: np.random.Generator) -> None:
    a, b = whole(rng, 70, 96), np.ones((96, 64), numpy_dtype("bfloat16"))
    a[69, 3], a[17, 0] = np.nan, np.inf
    (_, sums, most, total, sizes, _), joined = run(a, b, of_columns(row=np.zeros(64, "f4")), **PLAIN)
    assert joined
    assert np.isnan([*sums, *most, *sizes, total]).all()


def test_a_function_says_what_may_be_joined() -> None:
    assert of_columns.function.joined == ("sum", "max", "amax", "")
    mixed = lapidist.epilogue(lambda acc: (acc, lapidist.column_sum(acc), lapidist.row_sum(acc)))
    others = lapidist.epilogue(lambda acc: (2 * acc, lapidist.column_sum(acc), lapidist.column_max(acc)))
    assert mixed.function.joined == others.function.joined == ("",)


@pytest.mark.parametrize(("batch", "rows"), [(20, 1), (6, 4), (2, 40), (3, 16)])
def test_columns_of_a_batch_that_shares_b_are_each_matrixs_own(batch: int, rows: int) -> None:
    """Stacked, it is one product; lanes must not join rows of two matrices."""
    rng = np.random.default_rng(batch)
    a, b = whole(rng, batch, rows, 32), whole(rng, 32, 64)
    how: dict[str, Any] = {"epilogue": summed, "out_dtype": "float32", "kernel": "wgmma", **PLAIN}
    d, sums = lapidist.gemm(a, b, device="machine", **how)
    expected = a.astype("f4") @ b.astype("f4")
    assert np.array_equal(d, expected)
    assert np.array_equal(sums, expected.sum(1))
