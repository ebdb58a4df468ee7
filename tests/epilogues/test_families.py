"""Epilogues in every kernel family, by every way out of a sum: in the machine, sanitized, within the
bound."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import lapidist
from drawn_epilogues import FUNCTIONS, TEXTS, Drawn
from fused_cases import judge_finished, of_all_kinds, operands, watch
from in_turns import in_turns, sampled, surveyed_but
from lapidist.dtypes import numpy_dtype
from lapidist.epilogues.error_bound import Near, near
from lapidist.epilogues.tracing import Epilogue
from lapidist.kernels.wgmma.configs import HALF_PATCHED, tile
from lapidist.problems.epilogue_layout import READS

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def sanitized(monkeypatch: pytest.MonkeyPatch) -> None:
    watch(monkeypatch)


def fresh(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    return rng.standard_normal(shape).astype(numpy_dtype(dtype))


def check(
    rng: np.random.Generator,
    kernel: str,
    dtype: str,
    extents: tuple[int, int, int],
    *,
    batch: tuple[int, ...] = (),
    turned: bool = False,
    out: str = "",
    with_c: bool = False,
    **more: Any,
) -> None:
    """`turned`: A, B and D lie by columns."""
    (m, n, k), out = extents, out or dtype
    a, b = fresh(rng, (*batch, k, m), dtype), fresh(rng, (*batch, n, k), dtype)
    a, b = (x.swapaxes(-1, -2) if turned else np.ascontiguousarray(x.swapaxes(-1, -2)) for x in (a, b))
    d = np.full((*batch, n, m) if turned else (*batch, m, n), np.nan).astype(numpy_dtype(out))
    d = d.swapaxes(-1, -2) if turned else d
    c, beta = (fresh(rng, d.shape, out), 0.5) if with_c else (None, 0.0)
    values = operands(rng, m, n, batch, dtype)
    lapidist.gemm(
        a,
        b,
        c,
        alpha=1.5,
        beta=beta,
        out=d,
        epilogue=of_all_kinds(**values),
        kernel=kernel,
        device="machine",
        **more,
    )
    names = {"precision": "precision", "acc_dtype": "accumulator"}
    as_asked = {names[each]: more[each] for each in names if each in more}
    assert judge_finished(d, of_all_kinds, values, a, b, c, alpha=1.5, beta=beta, **as_asked).ok


FMA = [
    ("float32", (70, 50, 33), {}),
    ("float32", (72, 56, 64), {"turned": True, "with_c": True}),
    ("float64", (20, 30, 17), {"batch": (2, 3)}),
    ("float16", (70, 50, 33), {"out": "float32"}),
    ("float32", (70, 50, 0), {}),
    ("float32", (70, 50, 106), {"split_k": 3, "reduction": "separate"}),
    ("float32", (70, 50, 106), {"split_k": 2, "reduction": "turnstile"}),
]


@pytest.mark.often(1)
@pytest.mark.parametrize(("dtype", "extents", "more"), FMA, ids=str)
def test_simt(rng: np.random.Generator, dtype: str, extents: Any, more: dict[str, Any]) -> None:
    check(rng, "simt", dtype, extents, **more)


MMA = [
    ("float16", (70, 50, 33), {}),
    ("float16", (70, 50, 33), {"acc_dtype": "float16"}),
    ("bfloat16", (72, 56, 64), {"turned": True, "with_c": True}),
    ("float64", (40, 50, 33), {"batch": (2,)}),
    ("float32", (70, 50, 33), {"precision": "tf32"}),
    ("bfloat16", (70, 50, 0), {}),
    ("float16", (70, 50, 530), {"split_k": 3, "reduction": "cluster"}),
    ("float16", (70, 50, 530), {"schedule": "stream_k", "avail_sms": 3}),
]


@pytest.mark.parametrize(("dtype", "extents", "more"), sampled(MMA, share=2))
def test_mma(rng: np.random.Generator, dtype: str, extents: Any, more: dict[str, Any]) -> None:
    check(rng, "mma", dtype, extents, **more)


SGEMM = [
    ((75, 131, 37), {}),  # packed, and out by patches of shared memory
    ((80, 136, 32), {"turned": True, "with_c": True, "batch": (2,)}),
    ((75, 132, 0), {}),
    ((75, 140, 64), {"split_k": 2, "reduction": "separate"}),
]


@pytest.mark.often(1)
@pytest.mark.parametrize(("extents", "more"), surveyed_but(SGEMM, 0, 1, 2), ids=str)
def test_sgemm(rng: np.random.Generator, extents: Any, more: dict[str, Any]) -> None:
    check(rng, "sgemm", "float32", extents, **more)


BF16 = partial(tile, "bfloat16")
WGMMA: list[tuple[str, tuple[int, int, int], dict[str, Any]]] = [
    ("bfloat16", (136, 72, 96), {"config": BF16(64, 32, 3)}),  # by TMA
    ("bfloat16", (75, 131, 37), {"config": BF16(64, 32, 3)}),  # by hand
    ("bfloat16", (136, 72, 96), {"config": BF16(64, 48, 3), "turned": True}),  # columns of D
    ("bfloat16", (136, 72, 96), {"config": BF16(64, 48, 3, exchanged=True)}),
    ("bfloat16", (75, 131, 37), {"config": BF16(64, 64, 3), "with_c": True}),
    ("bfloat16", (264, 208, 64), {"config": BF16(256, HALF_PATCHED, 3, (2, 1))}),  # columns that leave twice
    ("bfloat16", (136, 264, 128), {"config": BF16(64, 256, 4, ping_pong=True)}),
    ("bfloat16", (264, 40, 0), {"config": BF16(64, 32, 3)}),
    ("bfloat16", (200, 61, 97), {"config": BF16(64, 32, 3, skewed=True)}),
    (
        "bfloat16",
        (200, 61, 640),
        {"config": BF16(64, 32, 3), "split_k": 3, "reduction": "cluster", "with_c": True},
    ),
    ("bfloat16", (200, 64, 640), {"config": BF16(64, 32, 3), "schedule": "stream_k", "avail_sms": 3}),
    ("float32", (136, 72, 96), {"config": tile("tf32", 64, 32, 3), "precision": "tf32", "turned": True}),
]
WGMMA_MORE: list[tuple[str, tuple[int, int, int], dict[str, Any]]] = [
    ("bfloat16", (136, 72, 96), {"config": BF16(64, 64, 3), "with_c": True}),
    ("bfloat16", (264, 208, 64), {"config": BF16(128, 64, 3, ping_pong=True)}),
    ("bfloat16", (264, 208, 64), {"config": BF16(64, 32, 3, (2, 2)), "out": "float32"}),
    ("bfloat16", (72, 40, 64), {"config": BF16(64, 32, 3), "batch": (2, 2)}),
    ("bfloat16", (200, 64, 640), {"config": BF16(64, 32, 3), "split_k": 3, "reduction": "cluster"}),
    ("float16", (136, 72, 96), {"config": tile("float16", 64, 32, 3), "out": "float32"}),
    ("bfloat16", (200, 64, 640), {"config": BF16(64, 32, 3), "split_k": 3, "reduction": "turnstile"}),
]


@pytest.mark.often(1)
@pytest.mark.parametrize(
    ("dtype", "extents", "more"),
    [*surveyed_but(WGMMA, 0, 1, 2, 3, 7, 8, 10), *sampled(WGMMA_MORE, share=2)],
    ids=str,
)
def test_wgmma(rng: np.random.Generator, dtype: str, extents: Any, more: dict[str, Any]) -> None:
    """Tiles of such small products would be shared, unless they are told not to be."""
    alone = {} if "split_k" in more or "schedule" in more else {"split_k": 1}
    check(rng, "wgmma", dtype, extents, **alone, **more)


@pytest.mark.often(1)
@pytest.mark.parametrize("kernel", ["wgmma", "mma"])
def test_factors_come_first(rng: np.random.Generator, kernel: str) -> None:
    a, b = fresh(rng, (140, 256), "float8_e4m3fn"), fresh(rng, (72, 256), "float8_e4m3fn").T
    scales = {
        "scale_a": np.abs(fresh(rng, (140,), "float32")),
        "scale_b": np.abs(fresh(rng, (72,), "float32")),
    }
    values = operands(rng, 140, 72)
    given = of_all_kinds(**values)
    d = lapidist.gemm(a, b, epilogue=given, kernel=kernel, device="machine", out_dtype="bfloat16", **scales)
    assert judge_finished(d, of_all_kinds, values, a, b, **scales).ok


# ---- rows and columns that are elsewhere ----


@pytest.mark.often(2)
@pytest.mark.parametrize("kernel", ["simt", "mma", "sgemm"])
def test_scattered_rows_take_operands_where_they_go(rng: np.random.Generator, kernel: str) -> None:
    dtype = "float32" if kernel != "mma" else "float16"
    a, b, d = fresh(rng, (40, 20), dtype), fresh(rng, (20, 24), dtype), fresh(rng, (60, 24), dtype)
    to, before = rng.permutation(60)[:40].astype(np.int32), d.copy()
    values = operands(rng, 60, 24)
    lapidist.gemm(a, b, out=d, scatter_d=to, epilogue=of_all_kinds(**values), kernel=kernel, device="machine")
    seen = {"column": values["column"][to, None].astype("f8"), "tile": values["tile"][to].astype("f8")}
    assert judge_finished(d[to], of_all_kinds, values, a, b, seen=seen).ok
    rest = np.setdiff1d(np.arange(60), to)
    np.testing.assert_array_equal(d[rest], before[rest])


@pytest.mark.often(2)
@pytest.mark.parametrize("kernel", ["simt", "mma", "sgemm"])
def test_gathered_rows_and_permuted_outputs(rng: np.random.Generator, kernel: str) -> None:
    dtype = "float32" if kernel != "mma" else "float16"
    a, b = fresh(rng, (50, 20), dtype), fresh(rng, (20, 24), dtype)
    rows, d = rng.integers(0, 50, 40), np.zeros((6, 4, 5, 8), numpy_dtype(dtype)).transpose(2, 3, 0, 1)
    values = operands(rng, 40, 24)
    lapidist.gemm(
        a,
        b,
        out=d,
        gather_a=rows,
        permuted=True,
        epilogue=of_all_kinds(**values),
        kernel=kernel,
        device="machine",
    )
    assert judge_finished(d.reshape(40, 24), of_all_kinds, values, a[rows], b).ok


def test_batches_that_take_several_launches(rng: np.random.Generator) -> None:
    """Each launch begins further on in the operands, too."""
    a, b = fresh(rng, (2, 3, 2, 5, 7), "float32"), fresh(rng, (2, 3, 2, 7, 6), "float32")
    a, b = a[:, ::2], b[:, ::2]
    tiles, row = fresh(rng, (2, 1, 2, 5, 6), "float32"), fresh(rng, (2, 2, 6), "float32")
    values = {**operands(rng, 5, 6), "tile": tiles, "row": row}
    planned = lapidist.plan(a, b, epilogue=of_all_kinds(**values), kernel="simt", device="machine")
    assert len(planned.parts) > 1  # type: ignore[union-attr]
    assert judge_finished(planned.execute(a, b), of_all_kinds, values, a, b).ok


def test_a_plan_made_once_takes_scalars_from_memory_as_they_are_then(rng: np.random.Generator) -> None:
    times = lapidist.epilogue(scaled)
    a, b, one = fresh(rng, (9, 5), "float32"), fresh(rng, (5, 7), "float32"), np.array([2.0], np.float64)
    planned = lapidist.plan(a, b, epilogue=times(s=one), kernel="simt", device="machine")
    before = planned.execute(a, b)
    one[0] = 6.0
    np.testing.assert_allclose(planned.execute(a, b), 3 * before, rtol=1e-6)


def scaled(acc: Any, s: lapidist.Scalar) -> Any:
    return acc * s


# ---- every function, every type of an operand ----

CASES = (
    "lapidist.exp(acc)",
    "lapidist.log(abs(acc))",
    "lapidist.tanh(acc)",
    "lapidist.erf(acc)",
    "lapidist.sigmoid(acc)",
    "lapidist.silu(acc)",
    "lapidist.gelu(acc)",
    "lapidist.gelu(acc, approximate='tanh')",
    "lapidist.gelu_slope(acc)",
    "lapidist.gelu_slope(acc, approximate='tanh')",
    "lapidist.relu(acc)",
    "lapidist.sqrt(abs(acc))",
    "lapidist.rsqrt(abs(acc))",
    "lapidist.floor(acc)",
    "lapidist.ceil(acc)",
    "lapidist.trunc(acc)",
    "lapidist.rint(acc)",
    "lapidist.clamp(acc, -1, 0.5)",
    "lapidist.cast(acc, 'float16')",
    "lapidist.cast(acc, 'bfloat16')",
    "lapidist.cast(acc, 'float32')",
    "(acc > 0) & (acc < 1)",
    "~(acc >= 0) | (acc == 2)",
    "acc ** 3 / (acc * acc + 1) - 1",
    "-acc + float('inf')",
)


def of_text(text: str, parameters: str) -> Epilogue:
    names: dict[str, Any] = {"lapidist": lapidist, "__name__": "drawn"}
    exec(f"def f(acc, {parameters}):\n    return {text}", names)
    return lapidist.epilogue(names["f"])


@pytest.mark.often(1)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_function(rng: np.random.Generator, dtype: str) -> None:
    """A column of D for each."""
    text = "acc"
    for number, case in enumerate(CASES):
        text = f"lapidist.where(row == {number}, {case}, {text})"
    chosen = of_text(text, "row: lapidist.Row")
    a, b = fresh(rng, (64, 3), dtype), 2 * fresh(rng, (3, len(CASES)), dtype)
    d = lapidist.gemm(
        a, b, epilogue=chosen(row=np.arange(len(CASES))), kernel="simt", device="machine", config=None
    )
    verdict = judge_finished(d[:, :-1], chosen, {"row": np.arange(len(CASES) - 1)}, a, b[:, :-1])
    assert verdict.ok, (verdict, CASES[verdict.where[-1]])
    assert np.all(np.isposinf(d[:, -1]))


def test_gelu_and_its_slope_at_any_float() -> None:
    """Of every sign, exponent and upper mantissa: within the bound, and the limits at infinity."""
    x = (np.arange(2**16, dtype=np.uint32) << 16 | 0x5A5A).view(np.float32).reshape(256, 256)
    x[0, :6] = 0.0, -0.0, np.inf, -np.inf, np.nan, 8.0
    both = of_text("lapidist.gelu(x), lapidist.gelu_slope(x)", "x: lapidist.Tile")
    zero = np.zeros((256, 1), np.float32)
    found = lapidist.gemm(zero, zero.T, epilogue=both(x=x), kernel="simt", device="machine")
    finite = np.where(np.isfinite(x), x, 0)
    exact = near(both.function, Near(np.zeros((256, 256)), 0.0), {"x": finite}, "float32")
    for values, (value, off), limits in zip(found, exact, ((np.inf, 0), (1, 0)), strict=True):
        assert np.all(np.abs(values - value)[np.isfinite(x)] <= np.broadcast_to(off, x.shape)[np.isfinite(x)])
        np.testing.assert_allclose(values[0, 2:5], [*limits, np.nan], atol=1e-14)
        assert np.all(np.isnan(values[np.isnan(x)]))


@pytest.mark.parametrize("kernel", ["simt", "mma"])
def test_nan_is_as_numpy_has_it(kernel: str) -> None:
    function = of_text(
        "lapidist.relu(acc) + lapidist.where(acc != acc, 1, 2) + lapidist.minimum(column, 0)",
        "column: lapidist.Column",
    )
    a = np.array([[np.nan], [1.0], [np.inf]], np.float16)
    column = np.array([0.0, np.nan, -1.0])
    d = lapidist.gemm(
        a, np.ones((1, 2), np.float16), epilogue=function(column=column), kernel=kernel, device="machine"
    )
    np.testing.assert_array_equal(d, [[np.nan] * 2, [np.nan] * 2, [np.inf] * 2])


@pytest.mark.often(2)
@pytest.mark.parametrize("dtype", surveyed_but(list(READS), *range(0, len(READS), 3)))
def test_every_type_of_an_operand(dtype: str) -> None:
    """Every byte, or as many numbers."""
    values = np.arange(256, dtype=np.uint8)
    if dtype == "bool":
        column: Array = values % 2 > 0
    elif numpy_dtype(dtype).itemsize == 1:
        column = values.view(numpy_dtype(dtype))
    else:
        column = (values.astype(np.int64) * 129 - 9000).astype(numpy_dtype(dtype))
    plus = of_text("acc + column", "column: lapidist.Column")
    a, b = np.zeros((256, 1), np.float32), np.zeros((1, 3), np.float32)
    d = lapidist.gemm(a, b, epilogue=plus(column=column), kernel="simt", device="machine")
    np.testing.assert_array_equal(d, np.repeat(column.astype(np.float32)[:, None], 3, axis=1))


@pytest.mark.survey
@given(TEXTS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("kernel", ["simt", "mma"])
def test_drawn_expressions(kernel: str, text: str) -> None:
    function = of_text(f"{text} + 0 * acc", "row: lapidist.Row, one: lapidist.Scalar")
    rng = np.random.default_rng(len(text))
    dtype = "float32" if kernel == "simt" else "bfloat16"
    a, b, values = (
        fresh(rng, (33, 8), dtype),
        fresh(rng, (8, 20), dtype),
        {"row": rng.standard_normal(20), "one": 1.7},
    )
    d = lapidist.gemm(a, b, epilogue=function(**values), kernel=kernel, device="machine", out_dtype="float32")
    host = lapidist.gemm(a, b, epilogue=function(**values), out_dtype="float32")
    sure = np.isfinite(host) & (np.abs(host) < 1e30)
    verdict = judge_finished(d, function, values, a, b)
    assert verdict.ok or not sure[verdict.where], (text, verdict)


@pytest.mark.survey
@given(FUNCTIONS)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("kernel", ["simt", "mma"])
def test_drawn_functions_of_several_results(kernel: str, drawn: Drawn) -> None:
    """Values that may be beyond float32, or not numbers, are left out."""
    function, rng = drawn.traced(), np.random.default_rng(len(drawn.text))
    dtype = "float32" if kernel == "simt" else "bfloat16"
    a, b = fresh(rng, (33, 8), dtype), fresh(rng, (8, 20), dtype)
    values = {"row": rng.standard_normal(10 if drawn.pairs else 20), "one": 1.7}
    how: dict[str, Any] = {"epilogue": function(**values), "out_dtype": "float32"}
    found = lapidist.gemm(a, b, kernel=kernel, device="machine", **how)
    for place, (one, other) in enumerate(zip(found, lapidist.gemm(a, b, **how), strict=True)):
        assert np.shape(one) == np.shape(other)
        sure = np.isfinite(other) & (np.abs(other) < 1e30)
        verdict = judge_finished(np.asarray(one), function, values, a, b, result=place)
        assert verdict.ok or not np.asarray(sure)[verdict.where], (drawn.text, place, verdict)


BIASED: list[tuple[str, str, dict[str, Any]]] = [
    ("wgmma", "bfloat16", {"config": tile("bfloat16", 128, 64, 2)}),
    ("wgmma", "float16", {"config": tile("float16", 64, 64, 2, exchanged=True)}),
    ("wgmma", "bfloat16", {"config": tile("bfloat16", 64, 64, 2), "split_k": 2, "reduction": "cluster"}),
    ("mma", "bfloat16", {}),
]


@pytest.mark.often(2)
@pytest.mark.parametrize(("kernel", "dtype", "more"), surveyed_but(BIASED, 1, 2, 3), ids=str)
def test_a_bias_gives_the_bits_of_one_that_is_c(
    rng: np.random.Generator, kernel: str, dtype: str, more: dict[str, Any]
) -> None:
    """So large layers may have it as an epilogue, and small ones as C."""
    a, b, bias = (fresh(rng, shape, dtype) for shape in ((136, 96), (96, 72), (72,)))
    how: dict[str, Any] = {"kernel": kernel, "device": "machine", **more}
    found = lapidist.gemm(a, b, epilogue=lapidist.epilogues.bias(bias=bias), **how)
    np.testing.assert_array_equal(found.view("u2"), lapidist.gemm(a, b, bias, beta=1.0, **how).view("u2"))


WRITTEN_OUT = {
    "two rows of products by turns": tile("bfloat16", 128, 64, 3, ping_pong=True),
    "one": tile("bfloat16", 64, 64, 3, ping_pong=True),
    "192 sums by turns": tile("bfloat16", 128, 192, 3, ping_pong=True),
    "208 sums": tile("bfloat16", 256, 208, 2),
    "200 sums of D's columns": tile("bfloat16", 256, HALF_PATCHED, 3, (2, 1), exchanged=True),
}


BOUNDS = {"float32": 1e-5, "bfloat16": 2**-8}
OFTEN = [
    ("two rows of products by turns", "float32"),
    ("192 sums by turns", "bfloat16"),
    ("200 sums of D's columns", "bfloat16"),
]


@pytest.mark.often(1)
@pytest.mark.parametrize(("name", "out_dtype"), in_turns(WRITTEN_OUT, BOUNDS, often=OFTEN, share=1))
def test_a_short_function_is_written_out(rng: np.random.Generator, name: str, out_dtype: str) -> None:
    """For all sums of a thread."""
    a, b = (fresh(rng, shape, "bfloat16") for shape in ((264, 64), (64, 208)))
    rows, cols = fresh(rng, (264,), "float32"), fresh(rng, (208,), "float32")
    ended = lapidist.epilogue(scaled_and_moved)(bias=cols, factors=rows)
    found = lapidist.gemm(
        a, b, out_dtype=out_dtype, epilogue=ended, kernel="wgmma", config=WRITTEN_OUT[name], device="machine"
    )
    exact = (a.astype("f8") @ b.astype("f8") + cols) * rows[:, None]
    np.testing.assert_allclose(found.astype("f8"), exact, rtol=BOUNDS[out_dtype], atol=1e-4)


def scaled_and_moved(acc: Any, bias: lapidist.Row, factors: lapidist.Column) -> Any:
    return (acc + bias) * factors
