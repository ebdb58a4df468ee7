"""Results beside D, each with a type of its own: on the host by NumPy, and in every family in the machine,
sanitized, with the same bits where all sums are whole numbers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import lapidist
from fused_cases import watch
from in_turns import surveyed_but
from lapidist import epilogues
from lapidist.dtypes import numpy_dtype
from lapidist.epilogues.numeric import stored
from lapidist.epilogues.results import STORED
from lapidist.errors import ArgumentError, DTypeError, LapidistError, ShapeError, StrideError
from lapidist.kernels.wgmma.configs import HALF_PATCHED, tile

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def sanitized(monkeypatch: pytest.MonkeyPatch) -> None:
    watch(monkeypatch)


@lapidist.epilogue
def of_four(acc: Any, row: lapidist.Row, tile: lapidist.Tile) -> Any:
    before = acc + row
    return (
        lapidist.relu(before) + tile,
        before,
        lapidist.Output(before > 0, "bool"),
        lapidist.Output(tile, "float32"),
    )


def whole(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "float32") -> Array:
    return rng.integers(-2, 3, shape).astype(numpy_dtype(dtype))


def operands(rng: np.random.Generator, shape: tuple[int, ...]) -> dict[str, Array]:
    return {"row": whole(rng, shape[-1:]), "tile": whole(rng, shape)}


def same(found: Any, expected: Any) -> None:
    assert isinstance(found, tuple)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one.astype(np.float64), other.astype(np.float64))


# ---- on the host ----


def test_they_are_returned_beside_d(rng: np.random.Generator) -> None:
    a, b = whole(rng, (2, 4, 3), "float16"), whole(rng, (3, 5), "float16")
    values = operands(rng, (4, 5))
    before = a.astype(np.float32) @ b.astype(np.float32) + values["row"]
    expected = (
        (np.maximum(before, 0) + values["tile"]).astype(np.float16),
        before.astype(np.float16),
        before > 0,
        np.broadcast_to(values["tile"], before.shape),
    )
    same(lapidist.matmul(a, b, epilogue=of_four(**values)), expected)


def test_they_go_to_the_arrays_of_out(rng: np.random.Generator) -> None:
    """One without a type takes that of its array; None is a new one."""
    a, b, values = whole(rng, (4, 3)), whole(rng, (3, 5)), operands(rng, (4, 5))
    d, before, mask = np.empty((4, 5), np.float32), np.empty((5, 4), np.float16).T, np.empty((4, 5), bool)
    found = lapidist.matmul(a, b, (d, before, mask, None), epilogue=of_four(**values))
    assert found[0] is d
    assert found[1] is before
    assert found[2] is mask
    expected = a @ b + values["row"]
    same(found[1:3], (expected.astype(np.float16), expected > 0))


def test_vectors_and_nothing_at_all(rng: np.random.Generator) -> None:
    both = lapidist.epilogue(lambda acc: (acc + 1, acc))
    x, b = whole(rng, (3,)), whole(rng, (3, 4))
    same(lapidist.matmul(x, b, epilogue=both), (x @ b + 1, x @ b))
    d, before = lapidist.matmul(x, x, epilogue=both)
    assert (d, before) == (x @ x + 1, x @ x)
    same(lapidist.matmul(x[:0], b[:0], epilogue=both), (np.ones(4, np.float32), np.zeros(4, np.float32)))
    same(lapidist.matmul(b[:, :0], b[:0], epilogue=both), (np.ones((3, 4), "f4"), np.zeros((3, 4), "f4")))


def test_whole_numbers_are_the_nearest_and_stop_at_the_largest() -> None:
    values = np.array([0.5, 1.5, -0.6, 1e9, -np.inf, np.nan])
    np.testing.assert_array_equal(stored(values, "int8"), [0, 2, -1, 127, -128, 0])
    np.testing.assert_array_equal(stored(values, "uint8"), [0, 2, 0, 255, 0, 0])
    np.testing.assert_array_equal(stored(values, "bool"), [1, 1, 1, 1, 1, 1])
    np.testing.assert_array_equal(stored(values, "float8_e4m3fn")[3:5].astype(float), [448, -448])


def test_a_plan_fills_them_again_and_again(rng: np.random.Generator) -> None:
    a, b, values = whole(rng, (4, 3)), whole(rng, (3, 5)), operands(rng, (4, 5))
    planned = lapidist.plan(a, b, epilogue=of_four(**values), device="machine", kernel="simt")
    first = planned.execute(a, b)
    again = planned.execute(2 * a, b, out=first)
    assert all(one is other for one, other in zip(first, again, strict=True))
    same(again[1:2], (2 * a @ b + values["row"],))


# ---- in the machine ----


def check(
    rng: np.random.Generator,
    kernel: str,
    dtype: str,
    extents: tuple[int, int, int],
    *,
    batch: tuple[int, ...] = (),
    turned: bool = False,
    with_c: bool = False,
    **more: Any,
) -> None:
    """`turned`: D lies by columns. Results beside it start anywhere, by rows and by columns."""
    m, n, k = extents
    a, b = whole(rng, (*batch, m, k), dtype), whole(rng, (*batch, k, n), dtype)
    shape = (*batch, m, n)
    d = np.empty((*batch, n, m), a.dtype).swapaxes(-1, -2) if turned else np.empty(shape, a.dtype)
    before = np.empty((*batch, m, n + 3), np.float32)[..., 1 : n + 1]
    mask, copied = np.empty((*batch, n, m), bool).swapaxes(-1, -2), np.empty(shape, np.float32)
    c, beta = (whole(rng, shape, dtype), 2.0) if with_c else (None, 0.0)
    given = of_four(**operands(rng, (m, n)))
    names = {each: more[each] for each in ("precision", "acc_dtype") if each in more}
    out = d, before, mask, copied
    lapidist.gemm(a, b, c, beta=beta, out=out, epilogue=given, kernel=kernel, device="machine", **more)
    expected = tuple(np.empty(each.shape, each.dtype) for each in out)
    lapidist.gemm(a, b, c, beta=beta, out=expected, epilogue=given, **names)
    same(out, expected)


FMA: list[tuple[str, tuple[int, int, int], dict[str, Any]]] = [
    ("float32", (70, 50, 33), {}),
    ("float32", (72, 56, 64), {"turned": True, "with_c": True}),
    ("float64", (20, 30, 17), {"batch": (2, 3)}),
    ("float16", (70, 50, 0), {}),
    ("float32", (70, 50, 100), {"split_k": 3, "reduction": "separate"}),
    ("float32", (70, 50, 100), {"schedule": "stream_k", "avail_sms": 3}),
]


@pytest.mark.often(2)
@pytest.mark.parametrize(("dtype", "extents", "more"), surveyed_but(FMA, 0, 1, 2, 3, 5), ids=str)
def test_simt(rng: np.random.Generator, dtype: str, extents: Any, more: dict[str, Any]) -> None:
    check(rng, "simt", dtype, extents, **more)


MMA: list[tuple[str, tuple[int, int, int], dict[str, Any]]] = [
    ("float16", (70, 50, 33), {}),
    ("bfloat16", (72, 56, 64), {"turned": True, "with_c": True}),
    ("float64", (40, 50, 33), {"batch": (2,)}),
    ("bfloat16", (70, 50, 0), {}),
    ("float16", (70, 50, 200), {"split_k": 3, "reduction": "cluster"}),
    ("float16", (70, 50, 200), {"schedule": "stream_k", "avail_sms": 3}),
]


@pytest.mark.often(2)
@pytest.mark.parametrize(("dtype", "extents", "more"), MMA, ids=str)
def test_mma(rng: np.random.Generator, dtype: str, extents: Any, more: dict[str, Any]) -> None:
    check(rng, "mma", dtype, extents, **more)


SGEMM: list[tuple[tuple[int, int, int], dict[str, Any]]] = [
    ((75, 131, 37), {}),
    ((75, 140, 64), {"split_k": 2, "reduction": "separate"}),
]
SGEMM_MORE: list[tuple[tuple[int, int, int], dict[str, Any]]] = [
    ((80, 136, 32), {"turned": True, "with_c": True, "batch": (2,)})
]


@pytest.mark.parametrize(("extents", "more"), surveyed_but([*SGEMM, *SGEMM_MORE], 0), ids=str)
def test_sgemm(rng: np.random.Generator, extents: Any, more: dict[str, Any]) -> None:
    check(rng, "sgemm", "float32", extents, **more)


BF16 = partial(tile, "bfloat16")
WGMMA: list[tuple[tuple[int, int, int], dict[str, Any]]] = [
    ((136, 72, 96), {"config": BF16(64, 32, 3)}),  # by TMA
    ((75, 131, 37), {"config": BF16(64, 32, 3)}),  # by hand
    ((136, 72, 96), {"config": BF16(64, 48, 3, exchanged=True)}),
    ((264, 208, 64), {"config": BF16(256, HALF_PATCHED, 3, (2, 1))}),  # columns of D that leave twice
    ((200, 61, 97), {"config": BF16(64, 32, 3, skewed=True)}),
    ((72, 64, 640), {"config": BF16(64, 32, 3), "split_k": 3, "reduction": "cluster"}),
    ((72, 61, 384), {"config": BF16(64, 32, 3), "split_k": 3, "reduction": "turnstile", "with_c": True}),
    ((136, 64, 384), {"config": BF16(64, 32, 3), "schedule": "stream_k", "avail_sms": 3}),
]
WGMMA_MORE: list[tuple[tuple[int, int, int], dict[str, Any]]] = [
    ((136, 72, 96), {"config": BF16(64, 64, 3), "with_c": True}),
    ((72, 40, 64), {"config": BF16(64, 32, 3), "batch": (2, 2)}),
    ((72, 40, 0), {"config": BF16(64, 32, 3)}),
    ((136, 72, 96), {"config": BF16(64, 48, 3), "turned": True}),
]


@pytest.mark.often(2)
@pytest.mark.parametrize(("extents", "more"), surveyed_but([*WGMMA, *WGMMA_MORE], 0, 1, 2, 7), ids=str)
def test_wgmma(rng: np.random.Generator, extents: Any, more: dict[str, Any]) -> None:
    alone = {} if "split_k" in more or "schedule" in more else {"split_k": 1}
    check(rng, "wgmma", "bfloat16", extents, **alone, **more)


@pytest.mark.often(2)
@pytest.mark.parametrize("kernel", ["simt", "mma", "sgemm"])
def test_scattered_rows_are_scattered_in_all_of_them(rng: np.random.Generator, kernel: str) -> None:
    dtype = "float16" if kernel == "mma" else "float32"
    a, b, to = whole(rng, (40, 20), dtype), whole(rng, (20, 24), dtype), rng.permutation(60)[:40]
    given = of_four(**operands(rng, (60, 24)))
    found, expected = (
        tuple(np.full((60, 24), 9, each) for each in (dtype, dtype, bool, "float32")) for _ in range(2)
    )
    lapidist.gemm(a, b, out=found, scatter_d=to, epilogue=given, kernel=kernel, device="machine")
    lapidist.gemm(a, b, out=expected, scatter_d=to, epilogue=given)
    same(found, expected)
    np.testing.assert_array_equal(found[1][np.setdiff1d(np.arange(60), to)], 9)


@pytest.mark.parametrize("kernel", ["simt", "mma"])
def test_a_permuted_d_has_plain_ones_beside_it(rng: np.random.Generator, kernel: str) -> None:
    a, b = whole(rng, (40, 20), "float16"), whole(rng, (20, 24), "float16")
    d, before = np.empty((6, 4, 5, 8), np.float16).transpose(2, 3, 0, 1), np.empty((40, 24), np.float16)
    both = lapidist.epilogue(lambda acc: (2 * acc, acc))
    lapidist.gemm(a, b, out=(d, before), permuted=True, epilogue=both, kernel=kernel, device="machine")
    np.testing.assert_array_equal(before, a @ b)
    np.testing.assert_array_equal(d.reshape(40, 24), 2 * (a @ b))


@pytest.mark.survey
@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("sums", ["float32", "float64"])
def test_every_type(dtype: str, sums: str) -> None:
    """Numbers of all sizes, halves between two neighbours among them."""
    exact = np.concatenate([np.arange(-300, 300) / 8, 2.0 ** np.arange(-30, 20), [0.0, np.inf, np.nan]])
    values = np.concatenate([exact, -exact * 1.0625, exact * 1.03])[:, None].astype(sums)
    typed = lapidist.epilogue(lambda acc: (acc, lapidist.Output(acc, dtype)))
    one = np.ones((1, 3), sums)
    d, found = lapidist.gemm(values, one, epilogue=typed, kernel="simt", device="machine")
    expected = stored(d, dtype)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


# ---- a type of D that only the function names ----

QUANTISED: list[tuple[str, str, tuple[int, int, int], dict[str, Any]]] = [
    ("simt", "float32", (70, 50, 33), {}),
    ("mma", "bfloat16", (70, 50, 64), {"with_c": True}),
    ("sgemm", "float32", (75, 131, 37), {}),
    ("wgmma", "bfloat16", (75, 131, 64), {"split_k": 1, "config": BF16(64, 32, 3)}),
    ("wgmma", "bfloat16", (136, 72, 384), {"split_k": 2, "config": BF16(64, 64, 3), "with_c": True}),
]


@pytest.mark.survey
@pytest.mark.parametrize(("kernel", "dtype", "extents", "more"), QUANTISED, ids=str)
@pytest.mark.parametrize("function", [epilogues.quantise_e4m3, epilogues.quantise_int8], ids=str)
def test_outputs_of_8_bits(
    rng: np.random.Generator, function: Any, kernel: str, dtype: str, extents: Any, more: dict[str, Any]
) -> None:
    """C has the type that D would have without the function."""
    (m, n, k), with_c = extents, more.get("with_c", False)
    a, b = whole(rng, (m, k), dtype), whole(rng, (k, n), dtype)
    c, beta = (whole(rng, (m, n), dtype), 2.0) if with_c else (None, 0.0)
    how = {name: value for name, value in more.items() if name != "with_c"}
    given = function(factors=2.0 ** rng.integers(-3, 6, m))
    expected = lapidist.gemm(a, b, c, beta=beta, epilogue=given)
    for out in (None, np.zeros((n, m), expected.dtype).T):
        found = lapidist.gemm(
            a, b, c, beta=beta, out=out, epilogue=given, kernel=kernel, device="machine", **how
        )
        assert found is out or out is None
        same((found,), (expected,))


@pytest.mark.often(2)
@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("function", [epilogues.quantise_int8, epilogues.quantise_int8_groups], ids=str)
def test_one_column_lies_by_rows(rng: np.random.Generator, function: Any, batch: tuple[int, ...]) -> None:
    """It lies by columns as well, which only TMA stores."""
    a, b = whole(rng, (*batch, 64, 33), "bfloat16"), whole(rng, (33, 1), "bfloat16")
    given = function(factors=np.full(64, 2.0)) if function is epilogues.quantise_int8 else function
    found, expected = (lapidist.matmul(a, b, epilogue=given, device=place) for place in ("machine", "host"))
    same(*(each if isinstance(each, tuple) else (each,) for each in (found, expected)))
    found, expected = (
        lapidist.matmul(a, b[:, 0], epilogue=given, device=place) for place in ("machine", "host")
    )
    same(*(each if isinstance(each, tuple) else (each,) for each in (found, expected)))


def test_quantised_by_hand(rng: np.random.Generator) -> None:
    a, b, factors = whole(rng, (4, 3)), whole(rng, (3, 5)), np.array([0.5, 1, 100, 1000], np.float32)
    scaled = (a @ b) * factors[:, None]
    d = lapidist.matmul(a, b, epilogue=epilogues.quantise_int8(factors=factors))
    same((d,), (np.clip(np.rint(scaled), -128, 127).astype(np.int8),))
    d = lapidist.matmul(a, b, epilogue=epilogues.quantise_e4m3(factors=factors))
    same((d,), (np.clip(scaled, -448, 448).astype(numpy_dtype("float8_e4m3fn")),))


def test_its_type_is_the_functions() -> None:
    given = epilogues.quantise_int8(factors=np.ones(4))
    with pytest.raises(DTypeError, match="out: must be int8, which the epilogue names; got float32"):
        lapidist.matmul(A, B, D, epilogue=given)
    with pytest.raises(DTypeError, match="out_dtype: must be int8, which the epilogue names; got float16"):
        lapidist.matmul(A, B, out_dtype="float16", epilogue=given)
    with pytest.raises(ArgumentError, match="neither scattered nor permuted"):
        lapidist.gemm(A, B, out=np.zeros((4, 6), "i1"), scatter_d=np.arange(4), epilogue=given)


# ---- what is refused ----

A, B = np.ones((4, 3), np.float32), np.ones((3, 6), np.float32)
D, E = np.full((4, 6), 7.0, np.float32), np.full((4, 6), 7.0, np.float32)
WRONG: list[tuple[Any, type[LapidistError], str]] = [
    (D, ArgumentError, "out: must be a tuple of 2 arrays, one for each value that f returns; got ndarray"),
    ((D,), ArgumentError, "got 1 of them"),
    ((D, E[:3]), ShapeError, r"out\[1\]: must have shape \(4, 6\)"),
    ((D, E.astype(complex)), DTypeError, r"out\[1\]: must be of float64, float32"),
    ((D, D), StrideError, r"out\[1\]: must not overlap out"),
    ((D, np.broadcast_to(E[:1], (4, 6))), ArgumentError, r"out\[1\]: must be writable"),
    ((D, [1]), DTypeError, r"out\[1\]: must be an array"),
]


@pytest.mark.parametrize("where", [{}, {"device": "machine"}], ids=str)
@pytest.mark.parametrize(("out", "error", "words"), WRONG)
def test_arrays_that_do_not_fit(out: Any, error: Any, words: str, where: dict[str, Any]) -> None:
    @lapidist.epilogue
    def f(acc: Any) -> Any:
        return acc, acc + 1

    with pytest.raises(error, match=words):
        lapidist.matmul(A, B, out, epilogue=f, **where)
    np.testing.assert_array_equal(D, 7.0)
    np.testing.assert_array_equal(E, 7.0)


def test_they_lie_beside_what_is_read() -> None:
    plus, both = lapidist.epilogue(plus_tile), lapidist.epilogue(lambda acc: (acc, acc + 1))
    with pytest.raises(StrideError, match=r"out\[1\]: must not overlap tile"):
        lapidist.matmul(A, B, (D, E), epilogue=plus(tile=E))
    with pytest.raises(StrideError, match=r"out\[1\]: must not overlap a"):
        lapidist.matmul(E, np.ones((6, 6), np.float32), (D, E), epilogue=plus(tile=D + 1))
    rows, one = np.zeros(4, np.int32), np.ones((3, 1), np.float32)
    with pytest.raises(StrideError, match=r"out\[1\]: must not overlap gather_a"):
        lapidist.gemm(A, one, gather_a=rows, out=(E[:, :1], rows.view("f4")[:, None]), epilogue=both)


def plus_tile(acc: Any, tile: lapidist.Tile) -> Any:
    return acc, acc + tile


def test_types_that_are_not_stored() -> None:
    with pytest.raises(DTypeError, match="a result must be of float64"):
        lapidist.Output(1.0, "complex64")
    typed = lapidist.epilogue(lambda acc: (acc, lapidist.Output(acc, "float16")))
    with pytest.raises(DTypeError, match=r"out\[1\]: must be of float16; got float32"):
        lapidist.matmul(A, B, (D, E), epilogue=typed)
