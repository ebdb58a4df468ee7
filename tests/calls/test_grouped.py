"""lapidist.grouped on the host and in the machine: forms, factors, epilogues, indices, plans and refusals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lapidist
from group_products import UNTOUCHED, group_product, require_right, stretches
from in_turns import in_turns
from lapidist import Column, Pair, Row, Tile
from lapidist.errors import ArgumentError, DTypeError, RefusalError, ShapeError

LENGTHS = [0, 33, 1, 0, 90]
BEHIND = 16
TOTAL, LAST = sum(LENGTHS) + BEHIND, sum(LENGTHS)
ENDS = np.cumsum(LENGTHS).astype(np.int32)
PLACES: list[dict[str, Any]] = [
    {"device": "host"},
    {"device": "machine", "kernel": "wgmma"},
    {"device": "machine", "kernel": "mma"},
    {"device": "machine", "kernel": "simt"},
    {"device": "machine", "kernel": "sgemm"},
]
IDS = ["host", "wgmma", "mma", "simt", "sgemm"]
OF_SINGLES = ("simt", "sgemm")


def whole(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    return rng.integers(-3, 4, shape).astype(dtype)


@pytest.mark.parametrize("extent", ["m", "n", "k"])
def test_forms_on_the_host(rng: np.random.Generator, extent: str) -> None:
    product = group_product(rng, extent, LENGTHS, (24, 40), "float32", BEHIND)
    out = np.full(product.expected.shape, UNTOUCHED, np.float32)
    assert lapidist.grouped(product.a, product.b, product.ends, out=out) is out
    require_right(product, out)


@pytest.mark.often(2)
@pytest.mark.parametrize(("name", "expected_rows"), in_turns(IDS[1:], [1, 5000, 100], share=1))
def test_lengths_are_not_those_of_the_plan(rng: np.random.Generator, name: str, expected_rows: int) -> None:
    place = PLACES[IDS.index(name)]
    dtype = "float32" if place["kernel"] in OF_SINGLES else "float16"
    for extent, turned in (("m", (False, True)), ("k", (True, False))):
        product = group_product(rng, extent, LENGTHS, (40, 72), dtype, BEHIND, turned)
        out = np.full(product.expected.shape, UNTOUCHED, dtype)
        lapidist.grouped(product.a, product.b, product.ends, out=out, expected_rows=expected_rows, **place)
        require_right(product, out)


@pytest.mark.often(2)
@pytest.mark.parametrize("kernel", [None, "mma", "simt"])
@pytest.mark.parametrize("sizes", [(1, 40), (24, 1), (1, 1)])
def test_one_row_or_column(rng: np.random.Generator, kernel: str | None, sizes: tuple[int, int]) -> None:
    for extent in "mnk":
        product = group_product(rng, extent, LENGTHS, sizes, "float16", BEHIND)
        out = np.full(product.expected.shape, UNTOUCHED, np.float16)
        lapidist.grouped(product.a, product.b, product.ends, out=out, device="machine", kernel=kernel)
        require_right(product, out)


@pytest.mark.parametrize("extent", ["m", "n", "k"])
def test_one_group_is_planned(rng: np.random.Generator, extent: str) -> None:
    product = group_product(rng, extent, [3], (2, 5), "float32", BEHIND)
    out = np.full(product.expected.shape, UNTOUCHED, np.float32)
    lapidist.grouped(product.a, product.b, product.ends, out=out, device="machine")
    require_right(product, out)


@lapidist.epilogue
def dressed(acc, bias: Row, residual: Tile, gate: Column):  # type: ignore[no-untyped-def]
    return lapidist.relu(acc + bias) * gate + residual


@lapidist.epilogue
def halves(acc: Pair):  # type: ignore[no-untyped-def]
    return acc[0] * lapidist.relu(acc[1])


@pytest.mark.often(2)
@pytest.mark.parametrize("place", PLACES, ids=IDS)
def test_epilogues_have_operands_of_each_group(rng: np.random.Generator, place: dict[str, Any]) -> None:
    dtype = np.float32 if place.get("kernel") in OF_SINGLES else np.float16
    a, b = whole(rng, (TOTAL, 40), dtype), whole(rng, (5, 72, 40), dtype).swapaxes(1, 2)
    bias, residual, gate = whole(rng, (5, 72)), whole(rng, (TOTAL, 72)), whole(rng, (TOTAL,))
    found = lapidist.grouped(a, b, ENDS, epilogue=dressed(bias=bias, residual=residual, gate=gate), **place)
    gated = lapidist.grouped(a, b, ENDS, epilogue=halves, **place)
    for group, part in enumerate(stretches(LENGTHS)):
        sums = a[part].astype("f8") @ b[group].astype("f8")
        expected = np.maximum(sums + bias[group], 0) * gate[part, None] + residual[part]
        assert np.array_equal(found[part], expected.astype(dtype))
        assert np.array_equal(gated[part], (sums[:, ::2] * np.maximum(sums[:, 1::2], 0)).astype(dtype))


FACTORS = {
    "one": ((1,), (5,)),
    "lines": ((TOTAL,), (5, 160)),
    "strips": ((TOTAL, 3), (5, 3, 160)),
    "squares": ((TOTAL, 3), (5, 3, 2)),
}


def spread(factors: Any, lines: int, k: int) -> Any:
    """A factor for each element, of (lines or blocks of lines or 1, blocks of k or 1)."""
    factors = factors[:, None] if factors.ndim < 2 else factors
    if factors.shape[0] not in (1, lines):
        factors = factors.repeat(128, 0)[:lines]
    return factors.repeat(128, 1)[:, :k] if factors.shape[1] > 1 else factors


# Each form by one of the kernels, and all by the host; tests of forms and of gathered rows have more.
FORMS_OFTEN = [("wgmma", "strips"), ("wgmma", "lines"), ("mma", "one"), ("mma", "squares")]
FORMS_OFTEN += [("host", kind) for kind in FACTORS]


@pytest.mark.often(2)
@pytest.mark.parametrize(("name", "kind"), in_turns(IDS[:3], FACTORS, often=FORMS_OFTEN, share=1))
def test_factors_of_each_group(rng: np.random.Generator, name: str, kind: str) -> None:
    k, place = 272, PLACES[IDS.index(name)]
    a = whole(rng, (TOTAL, k), ml_dtypes.float8_e4m3fn)
    b = whole(rng, (5, 160, k), ml_dtypes.float8_e4m3fn).swapaxes(1, 2)
    of_a, of_b = (2.0 ** rng.integers(-1, 2, shape).astype(np.float32) for shape in FACTORS[kind])
    found = lapidist.grouped(a, b, ENDS, scale_a=of_a, scale_b=of_b, **place)
    for group, part in enumerate(stretches(LENGTHS)):
        lines = spread(of_a[part] if len(of_a) > 1 else of_a, part.stop - part.start, k)
        of_group = np.atleast_1d(of_b[group])
        columns = spread(of_group.T if of_group.ndim > 1 else of_group, 160, k)
        expected = (a[part].astype("f8") * lines) @ (b[group].astype("f8") * columns.T)
        assert np.array_equal(found[part], expected.astype(np.float32))
    order, tokens = rng.permutation(TOTAL).astype(np.int32), np.empty_like(a)
    tokens[order] = a
    if len(of_a) > 1:
        of_tokens = np.empty_like(of_a)
        of_tokens[order] = of_a
        of_a = of_tokens
    gathered = lapidist.grouped(tokens, b, ENDS, gather_a=order, scale_a=of_a, scale_b=of_b, **place)
    assert np.array_equal(gathered[:LAST], found[:LAST])


@pytest.mark.often(2)
@pytest.mark.parametrize("place", [PLACES[0], *PLACES[2:]], ids=["host", "mma", *OF_SINGLES])
def test_tokens_by_their_indices(rng: np.random.Generator, place: dict[str, Any]) -> None:
    dtype = np.float32 if place.get("kernel") in OF_SINGLES else np.float16
    tokens, b = whole(rng, (50, 40), dtype), whole(rng, (5, 40, 72), dtype)
    index, target = (x.astype(np.int32) for x in (rng.integers(0, 50, TOTAL), rng.permutation(200)[:TOTAL]))
    out, expected = np.full((200, 72), UNTOUCHED, dtype), np.full((200, 72), UNTOUCHED, dtype)
    lapidist.grouped(tokens, b, ENDS, gather_a=index, scatter_d=target, out=out, **place)
    for group, part in enumerate(stretches(LENGTHS)):
        expected[target[part]] = tokens[index[part]].astype("f8") @ b[group].astype("f8")
    assert np.array_equal(out, expected)


@pytest.mark.often(2)
@pytest.mark.parametrize("place", [PLACES[0], *PLACES[2:]], ids=["host", "mma", *OF_SINGLES])
@pytest.mark.parametrize("behind", [0, -1, 1 << 30])
def test_indices_behind_the_last_group_are_not_read(
    rng: np.random.Generator, place: dict[str, Any], behind: int
) -> None:
    """They may name rows that groups use, or none."""
    dtype = np.float32 if place.get("kernel") in OF_SINGLES else np.float16
    tokens, b = whole(rng, (50, 40), dtype), whole(rng, (2, 40, 72), dtype)
    index, target = np.full((2, 9), behind, np.int32)
    index[:6], target[:6] = [3, 49, 0, 3, 1, 2], [5, 3, 0, 2, 1, 4]
    out, shares = np.full((12, 72), UNTOUCHED, dtype), np.arange(12, dtype=np.float32)
    after = lapidist.epilogues.scaled_rows(factors=shares)
    how: dict[str, Any] = {"gather_a": index, "scatter_d": target, "out": out, "epilogue": after}
    lapidist.grouped(tokens, b, np.int32([2, 6]), **how, **place)
    sums = np.concatenate([tokens[index[:2]].astype("f8") @ b[0], tokens[index[2:6]].astype("f8") @ b[1]])
    expected = np.full((12, 72), UNTOUCHED, dtype)
    expected[target[:6]] = sums * target[:6, None]
    assert np.array_equal(out, expected)
    target[1] = 5
    with pytest.raises(ArgumentError, match="row of out once where check_offsets is True; got row 5 twice"):
        lapidist.grouped(tokens, b, np.int32([2, 6]), **how, **place, check_offsets=True)


def test_a_plan_reads_the_ends_in_each_run(rng: np.random.Generator) -> None:
    ends = ENDS.copy()
    a, b = whole(rng, (TOTAL, 24)), whole(rng, (5, 24, 16))
    plan = lapidist.plan(a, b, offsets=ends, device="machine")
    assert "140 rows in 5 groups" in str(plan)
    for lengths in (LENGTHS, [10, 20, 30, 40, 24]):
        ends[:] = np.cumsum(lengths)
        found = plan.execute(a, b)
        for group, part in enumerate(stretches(lengths)):
            assert np.array_equal(found[part], a[part] @ b[group])


EMPTY: list[tuple[tuple[int, ...], tuple[int, ...], list[int]]] = [
    ((5, 4), (0, 4, 3), []),
    ((0, 4), (2, 4, 3), [0, 0]),
    ((5, 0), (2, 0, 3), [2, 5]),
    ((5, 4), (2, 4, 0), [2, 5]),
    ((4, 0), (0, 3), [0, 0]),
]


@pytest.mark.often(2)
@pytest.mark.parametrize("place", [PLACES[0], {"device": "machine"}], ids=["host", "machine"])
@pytest.mark.parametrize(("a", "b", "ends"), EMPTY)
def test_nothing_to_add_up(
    place: dict[str, Any], a: tuple[int, ...], b: tuple[int, ...], ends: list[int]
) -> None:
    found = lapidist.grouped(
        np.ones(a, np.float32), np.ones(b, np.float32), np.array(ends, np.int32), **place
    )
    assert not ends or not found.any()


@pytest.mark.often(2)
@pytest.mark.parametrize("place", PLACES, ids=IDS)
@pytest.mark.parametrize("extent", ["m", "k"])
def test_alpha_zero_reads_neither_a_nor_b(place: dict[str, Any], extent: str) -> None:
    dtype = np.float32 if place.get("kernel") in OF_SINGLES else np.float16
    a, b = np.full((TOTAL, 40), np.nan, dtype), np.full((5, 72, 40), np.nan, dtype).swapaxes(1, 2)
    if extent == "k":
        a, b = a.T, np.full((TOTAL, 72), np.nan, dtype)
        if place.get("kernel") in ("wgmma", "sgemm"):  # a sum of nothing has no lines that TMA could cut
            place = {"device": "machine"}
    found = lapidist.grouped(a, b, ENDS, alpha=0.0, **place)
    assert not found[..., :LAST, :].any()


def test_integers(rng: np.random.Generator) -> None:
    a, b = whole(rng, (TOTAL, 48), np.int8), whole(rng, (5, 32, 48), np.int8).swapaxes(1, 2)
    host = lapidist.grouped(a, b, ENDS)
    for place in PLACES[1:3]:
        assert np.array_equal(lapidist.grouped(a, b, ENDS, **place)[:LAST], host[:LAST])


@lapidist.epilogue
def summed(acc):  # type: ignore[no-untyped-def]
    return acc, lapidist.row_sum(acc)


A, B = np.zeros((TOTAL, 24), np.float32), np.zeros((5, 24, 16), np.float32)
A8, B8 = A.astype(ml_dtypes.float8_e4m3fn), B.astype(ml_dtypes.float8_e4m3fn)
WRONG: list[tuple[type[Exception], str, dict[str, Any]]] = [
    (ArgumentError, "offsets: one of offsets and counts", {"offsets": None}),
    (ArgumentError, "offsets: one of offsets and counts", {"counts": ENDS}),
    (DTypeError, "offsets: must be of int32 or int64", {"offsets": ENDS.astype(np.float32)}),
    (ShapeError, "offsets: must have one dimension", {"offsets": ENDS.reshape(1, 5)}),
    (ShapeError, "b: must have a matrix for each of the 4 groups", {"offsets": ENDS[:4]}),
    (ShapeError, "6 groups; .* and no zero before the first", {"offsets": np.append(np.int32(0), ENDS)}),
    (ShapeError, "a, b: with offsets a", {"a": A.reshape(5, 28, 24)}),
    (ShapeError, "a, b: must have one inner extent", {"a": A[:, :20]}),
    (
        ArgumentError,
        "offsets: of group 2 must lie from 60 to 140",
        {"offsets": np.int32([30, 60, 20, 90, 91])},
    ),
    (
        ArgumentError,
        "offsets: of group 4 must lie from 90 to 140",
        {"offsets": np.int32([3, 6, 20, 90, 141])},
    ),
    (ArgumentError, "offsets: of group 0 must lie from 0 to 140", {"offsets": np.int64([-1, 6, 20, 90, 91])}),
    (ArgumentError, "expected_rows: must be a whole number", {"expected_rows": 0}),
    (ArgumentError, "check_offsets: must be True or False", {"check_offsets": "yes"}),
    (ShapeError, "c: ", {"c": np.zeros((3, 16), np.float32), "beta": 1.0}),
    (ShapeError, "out: ", {"out": np.zeros((5, TOTAL, 16), np.float32)}),
    (ArgumentError, "epilogue: of groups must give values for each sum", {"epilogue": summed}),
    (
        ArgumentError,
        'precision: "emulated" cuts whole matrices .*; got groups. Take precision="ieee"',
        {"precision": "emulated", "device": "machine"},
    ),
    (
        ArgumentError,
        "scale_a, scale_b: matrices with factors",
        {"a": A8, "b": B8, "scale_a": np.ones(TOTAL, np.float32), "alpha": np.ones((), np.float32)},
    ),
    (RefusalError, "its blocks find no groups", {"device": "machine", "kernel": "small"}),
]


@pytest.mark.parametrize(("error", "words", "change"), WRONG, ids=[words for _, words, _ in WRONG])
def test_what_is_refused(error: type[Exception], words: str, change: dict[str, Any]) -> None:
    arguments = {"a": A, "b": B, "offsets": ENDS, **change}
    a, b = arguments.pop("a"), arguments.pop("b")
    out = arguments.get("out")
    with pytest.raises(error, match=words):
        lapidist.grouped(a, b, **arguments)
    assert out is None or not out.any()


def test_expected_rows_may_be_a_number_of_numpy() -> None:
    d = lapidist.grouped(A, B, ENDS, expected_rows=np.diff(ENDS).max())
    assert d.shape == (TOTAL, 16)
    with pytest.raises(ArgumentError, match="expected_rows: must be a whole number"):
        lapidist.grouped(A, B, ENDS, expected_rows=np.float32(3))  # type: ignore[arg-type]
    in_array: Any = np.array(3)
    again = lapidist.grouped(A, B, ENDS, expected_rows=in_array)
    np.testing.assert_array_equal(again[: ENDS[-1]], d[: ENDS[-1]])
    with pytest.raises(ArgumentError, match="expected_rows: must be a whole number"):
        lapidist.grouped(A, B, ENDS, expected_rows=np.zeros(2))  # type: ignore[arg-type]


def test_counts_lie_inside_their_matrix() -> None:
    a, b = np.zeros((2, 8, 4), np.float32), np.zeros((2, 4, 4), np.float32)
    with pytest.raises(ArgumentError, match="counts: of group 1 must lie between 0 and 8; got 9"):
        lapidist.grouped(a, b, counts=np.int32([8, 9]))
    with pytest.raises(ShapeError, match="a: with counts, matrices must lie one after another"):
        lapidist.grouped(np.zeros((4, 8, 4), np.float32)[::2], b, counts=np.int32([8, 2]))


@pytest.mark.parametrize("device", [None, "machine"])
def test_counted_matrices_of_one_row_may_lie_apart(device: Any) -> None:
    """The stride of an extent of 1 is never taken; NumPy and torch leave any number there."""
    rng = np.random.default_rng(3)
    a, b = (
        rng.integers(-4, 5, (3, 4, 20)).astype("f4")[:, 1:2, :16],
        rng.integers(-4, 5, (3, 16, 8)).astype("f4"),
    )
    c, room = np.ones((3, 2, 8), "f4")[:, :1], np.full((3, 3, 8), 7, "f4")
    lapidist.grouped(a, b, c=c, beta=2.0, out=room[:, 1:2], counts=np.int32([1, 0, 1]), device=device)
    expected = np.full_like(room, 7)
    expected[::2, 1:2] = (a @ b + 2 * c)[::2]
    np.testing.assert_array_equal(room, expected)


@pytest.mark.often(2)
@pytest.mark.parametrize("place", [PLACES[0], PLACES[2]], ids=["host", "mma"])
@pytest.mark.parametrize(("of_row", "of_b"), [((), (3, 40)), ((2,), (3, 2, 1))], ids=["lines", "blocks"])
def test_factors_of_counted_rows(
    rng: np.random.Generator, place: dict[str, Any], of_row: tuple[int, ...], of_b: tuple[int, ...]
) -> None:
    """They are shaped as the rows of each group, or as those of all groups one after another."""
    a, b = (whole(rng, shape, ml_dtypes.float8_e4m3fn) for shape in ((3, 16, 256), (3, 256, 40)))
    factors, counts = 2.0 ** whole(rng, (3, 16, *of_row)), np.int32([0, 3, 16])
    how: dict[str, Any] = {"counts": counts, "scale_b": 2.0 ** whole(rng, of_b), **place}
    shaped = lapidist.grouped(a, b, scale_a=factors, **how)
    tall = lapidist.grouped(a, b, scale_a=factors.reshape(48, *of_row), **how)
    for group, count in enumerate(counts):
        values = factors[group].repeat(128, 1) if of_row else factors[group][:, None]
        columns = how["scale_b"][group].repeat(128, 0) if of_row else how["scale_b"][group]
        expected = (a[group].astype("f8") * values) @ (b[group].astype("f8") * columns)
        for found in (shaped, tall):
            assert np.array_equal(found[group, :count].astype("f8"), expected[:count])
    with pytest.raises(
        ShapeError, match="scale_a: with counts, factors of groups must lie one after another"
    ):
        lapidist.grouped(a, b, scale_a=np.ones((6, 16, *of_row), np.float32)[::2], **how)


def test_indices_of_another_type() -> None:
    with pytest.raises(DTypeError, match="gather_a: must have the type of offsets, int32"):
        lapidist.grouped(A, B, ENDS, gather_a=np.zeros(TOTAL, np.int64))
    with pytest.raises(ArgumentError, match="are for rows that offsets cut"):
        lapidist.grouped(A.T, A, ENDS, gather_a=np.zeros(24, np.int32))
