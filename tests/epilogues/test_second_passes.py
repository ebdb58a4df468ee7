"""Reductions of D, and 8 bits with factors that are found on the way: by hand, on the host, and by every
family in the machine, sanitized."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import lapidist
from fused_cases import judge_finished, watch
from in_turns import sampled, surveyed
from lapidist import epilogues
from lapidist.dtypes import numpy_dtype
from lapidist.epilogues.passes import AMAX, GROUP, REDUCTIONS, SUM, roundings
from lapidist.errors import ArgumentError, DTypeError, LapidistError, RefusalError, ShapeError, StrideError
from lapidist.kernels.wgmma.configs import HALF_PATCHED, tile
from lapidist.planning.second_passes import Pass, Target, lines_of, room_of
from lapidist.problems.scaling import K_BLOCK

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def sanitized(monkeypatch: pytest.MonkeyPatch) -> None:
    watch(monkeypatch, passes=True)


@lapidist.epilogue
def all_of_them(acc: Any, row: lapidist.Row) -> Any:
    x = acc + row
    return (
        lapidist.relu(x),
        lapidist.row_sum(x),
        lapidist.Output(lapidist.row_max(x), "float64"),
        lapidist.row_amax(x),
        lapidist.column_sum(x),
        lapidist.Output(x > 0, "bool"),
        lapidist.column_max(x),
        lapidist.column_amax(2 * x),
        lapidist.all_sum(x),
        lapidist.Output(lapidist.all_max(x), "float16"),
        lapidist.amax(x),
    )


@lapidist.epilogue
def three_of_them(acc: Any, row: lapidist.Row) -> Any:
    x = acc + row
    return (
        lapidist.relu(x),
        lapidist.row_sum(x),
        lapidist.Output(lapidist.column_max(x), "float64"),
        lapidist.Output(x > 0, "bool"),
        lapidist.amax(x),
    )


def whole(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "float32") -> Array:
    return rng.integers(-2, 3, shape).astype(numpy_dtype(dtype))


def same(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one.astype(np.float64), other.astype(np.float64))


def by_hand(x: Array) -> tuple[Any, ...]:
    """Of values as the function has them."""
    return (
        np.maximum(x, 0),
        x.sum(-1),
        x.max(-1).astype("f8"),
        abs(x).max(-1),
        x.sum(-2),
        x > 0,
        x.max(-2),
        abs(2 * x).max(-2),
        x.sum(),
        x.max().astype("f2"),
        abs(x).max(),
    )


def three_by_hand(x: Array) -> tuple[Any, ...]:
    return np.maximum(x, 0), x.sum(-1), x.max(-2).astype("f8"), x > 0, abs(x).max()


# ---- on the host ----


@pytest.mark.often(1)
@pytest.mark.parametrize("device", [None, "machine"])
def test_by_hand(rng: np.random.Generator, device: str | None) -> None:
    a, b, row = whole(rng, (2, 3, 5, 4)), whole(rng, (4, 6)), whole(rng, (6,))
    same(lapidist.matmul(a, b, epilogue=all_of_them(row=row), device=device), by_hand(a @ b + row))


@pytest.mark.often(1)
@pytest.mark.parametrize("device", [None, "machine"])
def test_vectors_have_no_rows_or_no_columns(rng: np.random.Generator, device: str | None) -> None:
    a, b, one = whole(rng, (5, 4)), whole(rng, (4, 6)), np.ones(1, "f4")
    x, made = a[0] @ b + 1, lapidist.matmul(a[0], b, epilogue=all_of_them(row=np.ones(6)), device=device)
    assert [each.shape for each in made[1:5]] == [(), (), (), (6,)]
    same(made[:5], (np.maximum(x, 0), x.sum(), x.max().astype("f8"), abs(x).max(), x))
    x, made = a @ b[:, 0] + 1, lapidist.matmul(a, b[:, 0], epilogue=all_of_them(row=one), device=device)
    same(made[:5], (np.maximum(x, 0), x, x.astype("f8"), abs(x), x.sum()))
    made = lapidist.matmul(a[0], b[:, 0], epilogue=all_of_them(row=one), device=device)
    assert {np.shape(each) for each in made} == {()}


@pytest.mark.parametrize("device", [None, "machine"])
def test_of_nothing(device: str | None) -> None:
    both = lapidist.epilogue(
        lambda acc: (acc, lapidist.row_sum(acc + 1), lapidist.column_max(acc), lapidist.amax(acc))
    )
    for m, k, n in ((3, 0, 4), (0, 2, 4), (3, 2, 0)):
        d, sums, most, size = lapidist.matmul(np.ones((m, k)), np.ones((k, n)), epilogue=both, device=device)
        assert d.shape == (m, n)
        np.testing.assert_array_equal(sums, np.full(m, n * (1 + k)))
        np.testing.assert_array_equal(most, np.full(n, k if m else -np.inf))
        assert size == (k if m and n else 0)


@pytest.mark.parametrize("device", [None, "machine"])
def test_nan_stays_and_infinities_are_numbers(device: str | None) -> None:
    a = np.array([[1.0], [np.nan], [-np.inf], [-2.0]])
    three = lapidist.epilogue(
        lambda acc: (acc, lapidist.row_amax(acc), lapidist.row_max(acc), lapidist.row_sum(acc))
    )
    _, size, most, total = lapidist.gemm(a, np.ones((1, 3)), epilogue=three, device=device)
    np.testing.assert_array_equal(size, [1, np.nan, np.inf, 2])
    np.testing.assert_array_equal(most, [1, np.nan, -np.inf, -2])
    np.testing.assert_array_equal(total, [3, np.nan, -np.inf, -6])


@pytest.mark.parametrize("device", [None, "machine"])
def test_they_go_to_the_arrays_of_out(rng: np.random.Generator, device: str | None) -> None:
    """Steps may be any, if they are even; a type that is not named is that of the array."""
    a, b = whole(rng, (2, 5, 4)), whole(rng, (4, 6))
    three = lapidist.epilogue(
        lambda acc: (acc, lapidist.row_sum(acc), lapidist.column_amax(acc), lapidist.amax(acc))
    )
    rows, columns = np.full(30, 7.0, np.float16), np.full((2, 9), 7.0)[:, ::-1]
    d, size = np.empty((2, 5, 6), np.float32), np.full(3, 7.0, np.float32)
    out = d, rows[::3].reshape(2, 5), columns[:, :6], size[1:2].reshape(())
    found = lapidist.gemm(a, b, out=out, epilogue=three, device=device)
    assert all(one is other for one, other in zip(found, out, strict=True))
    same(found[:3], (a @ b, (a @ b).sum(-1).astype("f2"), abs(a @ b).max(-2).astype("f8")))
    assert float(size[1]) == abs(a @ b).max()
    assert {*rows[1::3], *rows[2::3], *columns[:, 6:].ravel(), size[0], size[2]} == {7.0}


def test_a_plan_makes_them_again(rng: np.random.Generator) -> None:
    a, b, row = whole(rng, (40, 8)), whole(rng, (8, 24)), whole(rng, (24,))
    planned = lapidist.plan(a, b, epilogue=three_of_them(row=row), device="machine", kernel="simt")
    first = tuple(map(np.asarray, planned.execute(a, b)))
    same(first, three_by_hand(a @ b + row))
    again = planned.execute(-a, b, out=first)
    assert again[1] is first[1]
    same(again[:4], three_by_hand(row - a @ b)[:4])


# ---- in the machine: whole numbers have the host's bits ----


@lapidist.epilogue
def of_pairs(acc: lapidist.Pair, row: lapidist.Row) -> Any:
    gate, up = acc
    return gate * row, lapidist.row_sum(gate * up), lapidist.column_sum(lapidist.Pair(up, gate)), gate > up


@lapidist.epilogue
def in_groups(acc: Any, row: lapidist.Row) -> Any:
    return lapidist.Quantised(acc + row, "float8_e4m3fn"), lapidist.row_amax(acc + row)


@lapidist.epilogue
def pairs_in_groups(acc: lapidist.Pair, row: lapidist.Row) -> Any:
    gate, up = acc
    return lapidist.Quantised(gate * up + row, "int8"), lapidist.Quantised(lapidist.Pair(up, gate), "int8")


FUNCTIONS = (all_of_them, of_pairs, in_groups, pairs_in_groups)
# Ten reductions of batches take minutes in the machine: a survey gives those to small products.
IN_TURN = (of_pairs, all_of_them, in_groups, pairs_in_groups)
BF16 = partial(tile, "bfloat16")
KERNELS: list[tuple[str, str, tuple[int, int, int], dict[str, Any]]] = [
    ("simt", "float32", (70, 50, 33), {}),
    ("simt", "float32", (72, 560, 16), {"with_c": True}),
    ("simt", "float64", (20, 30, 17), {"batch": (2, 3)}),
    ("simt", "float16", (70, 50, 0), {}),
    ("simt", "float32", (70, 50, 100), {"split_k": 3, "reduction": "separate"}),
    ("simt", "float32", (70, 50, 100), {"schedule": "stream_k", "avail_sms": 3}),
    ("mma", "float16", (70, 50, 33), {}),
    ("mma", "bfloat16", (72, 264, 64), {"with_c": True}),
    ("mma", "bfloat16", (70, 50, 0), {}),
    ("mma", "float16", (70, 50, 200), {"split_k": 3, "reduction": "cluster"}),
    ("mma", "float16", (70, 50, 200), {"schedule": "stream_k", "avail_sms": 3}),
    ("sgemm", "float32", (75, 130, 37), {}),
    ("sgemm", "float32", (80, 136, 32), {"with_c": True, "batch": (2,)}),
    ("sgemm", "float32", (75, 140, 64), {"split_k": 2, "reduction": "separate"}),
    ("wgmma", "bfloat16", (136, 72, 96), {"config": BF16(64, 32, 3)}),
    ("wgmma", "bfloat16", (75, 130, 37), {"config": BF16(64, 64, 3), "with_c": True}),
    ("wgmma", "bfloat16", (136, 72, 96), {"config": BF16(64, 48, 3, exchanged=True)}),
    ("wgmma", "bfloat16", (264, 208, 64), {"config": BF16(256, HALF_PATCHED, 3, (2, 1))}),  # leave twice
    ("wgmma", "bfloat16", (264, 208, 64), {"config": BF16(128, 64, 3, ping_pong=True)}),
    ("wgmma", "bfloat16", (72, 40, 0), {"config": BF16(64, 32, 3)}),
    ("wgmma", "bfloat16", (72, 40, 64), {"config": BF16(64, 48, 3), "batch": (2, 2)}),
    ("wgmma", "bfloat16", (200, 62, 97), {"config": BF16(64, 32, 3, skewed=True)}),
    ("wgmma", "bfloat16", (72, 64, 640), {"config": BF16(64, 32, 3), "split_k": 3, "reduction": "cluster"}),
    ("wgmma", "bfloat16", (72, 62, 384), {"config": BF16(64, 32, 3), "split_k": 3, "reduction": "turnstile"}),
    (
        "wgmma",
        "bfloat16",
        (136, 64, 384),
        {"config": BF16(64, 32, 3), "schedule": "stream_k", "avail_sms": 3},
    ),
]


def check(
    rng: np.random.Generator,
    function: Any,
    kernel: str,
    dtype: str,
    extents: tuple[int, int, int],
    *,
    batch: tuple[int, ...] = (),
    with_c: bool = False,
    **more: Any,
) -> None:
    m, n, k = extents
    a, b = whole(rng, (*batch, m, k), dtype), whole(rng, (*batch, k, n), dtype)
    c, beta = (whole(rng, (*batch, m, n), dtype), 2.0) if with_c else (None, 0.0)
    columns = n // 2 if function.function.paired else n
    given = function(row=whole(rng, (columns,)))
    expected = lapidist.gemm(a, b, c, beta=beta, epilogue=given)
    found = lapidist.gemm(a, b, c, beta=beta, epilogue=given, kernel=kernel, device="machine", **more)
    same(found, expected)


def alone(kernel: str, more: dict[str, Any]) -> dict[str, Any]:
    """Tiles of such small products would be shared, unless they are told not to be."""
    return {} if kernel != "wgmma" or "split_k" in more or "schedule" in more else {"split_k": 1}


ONE_OF_EACH = [next(each for each in KERNELS[::5] if each[0] == name) for name in ("simt", "mma", "wgmma")]


@pytest.mark.parametrize(
    ("function", "kernel", "dtype", "extents", "more"),
    [(three_of_them, *ONE_OF_EACH[2]), *surveyed((all_of_them, *each) for each in ONE_OF_EACH)],
)
def test_every_family(
    rng: np.random.Generator, function: Any, kernel: str, dtype: str, extents: Any, more: dict[str, Any]
) -> None:
    check(rng, function, kernel, dtype, extents, **alone(kernel, more), **more)


@pytest.mark.parametrize(
    ("function", "kernel", "dtype", "extents", "more"), sampled(IN_TURN, KERNELS, share=8)
)
def test_every_way_out(
    rng: np.random.Generator, function: Any, kernel: str, dtype: str, extents: Any, more: dict[str, Any]
) -> None:
    config = more.get("config")
    own_d = function.function.stores_d and config is not None
    if own_d and (config.exchanged or config.bn == HALF_PATCHED):  # tiles from which TMA alone stores D
        with pytest.raises(RefusalError):
            check(rng, function, kernel, dtype, extents, **alone(kernel, more), **more)
        return
    check(rng, function, kernel, dtype, extents, **alone(kernel, more), **more)


@pytest.mark.often(1)
@pytest.mark.parametrize("function", FUNCTIONS[1:], ids=lambda each: each.function.name)
def test_every_kind(rng: np.random.Generator, function: Any) -> None:
    check(rng, function, "mma", "bfloat16", (40, 264, 32), with_c=True)


def test_gathered_rows_and_permuted_outputs(rng: np.random.Generator) -> None:
    a, b, rows = whole(rng, (50, 20)), whole(rng, (20, 24)), rng.integers(0, 50, 40)
    d = np.zeros((6, 4, 5, 8), np.float32).transpose(2, 3, 0, 1)
    two = lapidist.epilogue(lambda acc: (2 * acc, lapidist.row_sum(acc), lapidist.column_amax(acc)))
    how = {"gather_a": rows, "permuted": True, "kernel": "simt", "device": "machine"}
    _, sums, sizes = lapidist.gemm(a, b, out=(d, None, None), epilogue=two, **how)
    x = a[rows] @ b
    np.testing.assert_array_equal(d.reshape(40, 24), 2 * x)
    same((sums, sizes), (x.sum(-1), abs(x).max(-2)))


def test_batches_that_take_several_launches(rng: np.random.Generator) -> None:
    a, b = whole(rng, (2, 3, 2, 5, 7))[:, ::2], whole(rng, (2, 3, 2, 7, 6))[:, ::2]
    planned = lapidist.plan(a, b, epilogue=three_of_them(row=np.zeros(6)), kernel="simt", device="machine")
    assert len(planned.parts) > 1  # type: ignore[union-attr]
    same(planned.execute(a, b), three_by_hand(a @ b))


# ---- the order of a sum ----


@pytest.mark.survey
def test_it_is_the_same_in_every_kernel_and_for_any_number_of_rows(rng: np.random.Generator) -> None:
    """A product of one factor has the same values everywhere."""
    a, b = rng.standard_normal((40, 1)).astype("f4"), rng.standard_normal((1, 136)).astype("f4")
    sums = lapidist.epilogue(lambda acc: (acc, lapidist.row_sum(acc), lapidist.column_sum(acc)))
    how = {"epilogue": sums, "device": "machine"}
    found = [lapidist.gemm(a, b, kernel=kernel, **how) for kernel in ("simt", "sgemm")]
    same(*found)
    assert any(found[0][1] != (a @ b).sum(-1, dtype="f8").astype("f4"))
    same(lapidist.gemm(a[:3], b, kernel="simt", **how)[1:2], (found[0][1][:3],))


PASSES = [
    ("row_sum", (1, 2, 4100)),
    ("column_sum", (2, 700, 3)),
    ("all_sum", (1, 40, 300)),
    ("amax", (2, 9, 9)),
    *surveyed([("row_sum", (1, 3, 20000)), ("all_sum", (1, 1000, 300))]),
]


@pytest.mark.often(1)
@pytest.mark.parametrize(("then", "shape"), PASSES, ids=str)
def test_sums_of_blocks_are_summed(rng: np.random.Generator, then: str, shape: tuple[int, int, int]) -> None:
    made = lapidist.epilogue(lambda acc: (acc, getattr(lapidist, then)(acc)))
    x = whole(rng, (*shape[:2], 1)), whole(rng, (1, shape[2]))
    lines = lines_of(Pass(then, "float32", shape, Target("float32", 1, 1)))
    assert (lines.chunks > 1) == (then != "amax")
    how = {"epilogue": made, "kernel": "simt", "device": "machine"}
    same(lapidist.gemm(*x, **how), lapidist.gemm(*x, epilogue=made))


def test_room_between_steps() -> None:
    target = Target("float32", 1, 1)
    assert room_of(Pass("row_sum", "float32", (1, 4, 4096), target)) == 0
    assert room_of(Pass("row_sum", "float32", (1, 4, 4097), target)) == 4 * 2 * 4
    halves = Pass("row_sum", "float32", (1, 4, 4096), target, neighbours=8)
    assert room_of(halves) == 4 * 2 * 4
    assert room_of(Pass("all_sum", "float64", (1, 8192, 8193), target)) == (8193 + 2) * 8
    assert room_of(Pass("column_sum", "float32", (3, 257, 5), target)) == 3 * 2 * 5 * 4


@pytest.mark.parametrize(
    ("dtype", "m", "n", "k"),
    [("float32", 24, 400, 8), *surveyed([("float32", 300, 90, 40), ("float64", 300, 90, 40)])],
)
def test_sums_are_within_the_bound(rng: np.random.Generator, dtype: str, m: int, n: int, k: int) -> None:
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    made = lapidist.epilogue(
        lambda acc: (
            lapidist.tanh(acc),
            lapidist.row_sum(lapidist.exp(acc)),
            lapidist.column_sum(acc * acc),
            lapidist.all_sum(acc),
            lapidist.amax(acc),
        )
    )
    for how in ({}, {"kernel": "simt", "device": "machine"}):
        for place, found in enumerate(lapidist.gemm(a, b, epilogue=made, **how)):
            assert judge_finished(np.asarray(found), made, {}, a, b, result=place).ok
    assert roundings(256) == 40
    assert roundings(300) == 80


# ---- 8 bits, and factors for 128 neighbours ----


@pytest.mark.often(2)
@pytest.mark.parametrize("device", [None, "machine"])
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "int8"])
@pytest.mark.parametrize("extents", [(5, 3, 300), (4, 2, 256), (3, 1, 1)], ids=str)
def test_quantised_by_hand(rng: np.random.Generator, dtype: str, extents: Any, device: str | None) -> None:
    m, k, n = extents
    a, b = rng.standard_normal((m, k)).astype("f4"), whole(rng, (k, n))
    a[0] = 0
    made = lapidist.epilogue(lambda acc: lapidist.Quantised(acc, dtype))
    d, factors = lapidist.gemm(a, b, epilogue=made, device=device)
    x, most = lapidist.gemm(a, b, device=device), {"float8_e4m3fn": 448, "float8_e5m2": 57344, "int8": 127}
    assert (d.dtype, factors.dtype) == (numpy_dtype(dtype), np.float32)
    for group in range(-(-n // GROUP)):
        own = slice(GROUP * group, GROUP * (group + 1))
        factor = (abs(x[:, own]).max(-1) / np.float32(most[dtype])).astype("f4")
        np.testing.assert_array_equal(factors[:, group], np.where(factor > 0, factor, 1))
        wide = x[:, own] / factors[:, group, None]
        wide = np.clip(wide, -most[dtype], most[dtype])
        np.testing.assert_array_equal(d[:, own], (np.rint(wide) if dtype == "int8" else wide).astype(d.dtype))
    np.testing.assert_array_equal(d[0].astype("f4"), 0)


def test_factors_scale_the_next_product(rng: np.random.Generator) -> None:
    """What one product quantises, the next one takes as it is."""
    a, w = rng.standard_normal((20, 64)).astype("f4"), rng.standard_normal((64, 256)).astype("f4")
    b = rng.standard_normal((256, 32)).astype(numpy_dtype("float8_e4m3fn"))
    made = lapidist.epilogue(lambda acc: lapidist.Quantised(lapidist.relu(acc), "float8_e4m3fn"))
    for how in ({}, {"device": "machine"}):
        d, factors = lapidist.matmul(a, w, epilogue=made, **how)
        found = lapidist.matmul(d, b, scale_a=factors, scale_b=np.ones(32, "f4"), **how)
        assert factors.strides == (4, 80)  # by columns, as they are read fastest
        exact = np.maximum(a @ w, 0) @ b.astype("f4")
        assert np.linalg.norm(found - exact) < 0.04 * np.linalg.norm(exact)
    assert GROUP == K_BLOCK


@pytest.mark.parametrize("device", [None, "machine"])
def test_d_lies_as_it_likes(rng: np.random.Generator, device: str | None) -> None:
    a, b = whole(rng, (2, 6, 4)), whole(rng, (4, 200))
    expected = lapidist.matmul(a, b, epilogue=epilogues.quantise_int8_groups)
    for d in (np.zeros((2, 6, 203), "i1")[..., 1:201], np.zeros((200, 12), "i1").T.reshape(2, 6, 200)):
        factors = np.zeros((2, 6, 5), "f4")[..., ::3]
        out = d, factors
        found = lapidist.matmul(a, b, out, epilogue=epilogues.quantise_int8_groups, device=device)
        assert found[0] is d
        same(found, expected)


# ---- as they print, and what is refused ----


def test_they_print() -> None:
    assert (
        str(lapidist.epilogue(lambda acc: (acc, lapidist.row_sum(acc * acc), lapidist.amax(acc))))
        == "acc, row_sum(acc * acc), amax(acc)"
    )
    text = "quantised(acc) as float8_e4m3fn, factors of float8_e4m3fn(acc) as float32"
    assert str(epilogues.quantise_e4m3_groups) == text


def test_a_plan_names_them() -> None:
    a, b = np.ones((40, 8), "f4"), np.ones((8, 24), "f4")
    for function, names in (
        (all_of_them(row=np.ones(24)), "reduce, largest"),
        (in_groups(row=np.ones(24)), "quantise, reduce"),
    ):
        planned = lapidist.plan(a, b, epilogue=function, device="machine", kernel="simt")
        assert f"behind it: {names}, as the epilogue asks" in str(planned)
    assert "behind it" not in str(
        lapidist.plan(a, b, epilogue=epilogues.relu, device="machine", kernel="simt")
    )


def test_values_are_left_once() -> None:
    assert (len(all_of_them.function.sources), len(all_of_them.function.maxima)) == (2, 2)
    assert len(REDUCTIONS) == 9
    assert {each.operation for each in REDUCTIONS.values()} >= {SUM, AMAX}


A, B, D = np.ones((2, 4, 3), "f4"), np.ones((3, 6), "f4"), np.full((2, 4, 6), 7.0, "f4")
UNEVEN = np.zeros((2, 5), "f4")[:, :4]
WRONG: list[tuple[Any, type[LapidistError], str]] = [
    ((D, np.zeros((2, 3), "f4")), ShapeError, r"out\[1\]: must have shape \(2, 4\)"),
    ((D, UNEVEN), StrideError, r"out\[1\]: rows of a reduction .* must lie evenly"),
    ((D, np.zeros((2, 4), "i8")), DTypeError, r"out\[1\]: must be of float64"),
    ((D, D[..., 0]), StrideError, r"out\[1\]: must not overlap out"),
    (D, ArgumentError, "out: must be a tuple of 2 arrays"),
]


@pytest.mark.parametrize("where", [{}, {"device": "machine"}], ids=str)
@pytest.mark.parametrize(("out", "error", "words"), WRONG)
def test_arrays_that_do_not_fit(out: Any, error: Any, words: str, where: dict[str, Any]) -> None:
    sums = lapidist.epilogue(lambda acc: (acc, lapidist.row_sum(acc)))
    with pytest.raises(error, match=words):
        lapidist.matmul(A, B, out, epilogue=sums, **where)
    np.testing.assert_array_equal(D, 7.0)


def test_what_else_is_refused() -> None:
    with pytest.raises(ArgumentError, match="must return D first; got a reduction"):
        lapidist.epilogue(lambda acc: lapidist.row_sum(acc))
    with pytest.raises(ArgumentError, match=r"Quantised: must have a value for each element of D"):
        lapidist.epilogue(lambda acc: (acc, lapidist.Quantised(lapidist.row_sum(acc), "int8")))
    with pytest.raises(ArgumentError, match=r"lapidist\.amax: belongs into a function of"):
        lapidist.amax(np.ones(3))
    with pytest.raises(DTypeError, match="dtype: must be float8_e4m3fn, float8_e5m2 or int8; got float16"):
        lapidist.Quantised(1.0, "float16")
    sums, to = lapidist.epilogue(lambda acc: (acc, lapidist.row_sum(acc))), np.arange(4)
    with pytest.raises(ArgumentError, match="reduces or quantises all rows of D, so they are not scattered"):
        lapidist.gemm(A[0], B, out=(D[0], None), scatter_d=to, epilogue=sums)
    uneven = np.zeros((2, 5, 6), "i1")[:, :4]
    with pytest.raises(StrideError, match=r"out: rows of .* quantised values must lie evenly"):
        lapidist.matmul(A, B, (uneven, None), epilogue=epilogues.quantise_int8_groups)
