"""The host's path: NumPy's BLAS with the semantics of the kernels, and the rules that hold wherever a product
runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lapidist
from lapidist.backends.host_product import multiply
from lapidist.dtypes import FP8, MATHS, element_of, numpy_dtype, outputs_of
from lapidist.verify.sum_bound import judge
from typed import fresh, precision_of, whole

Array = np.ndarray[Any, Any]
DTYPES = ["float16", "float32", "float64"]
NAN = float("nan")


def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "float32") -> Array:
    return rng.standard_normal(shape).astype(dtype)


def poisoned(shape: tuple[int, ...], dtype: str = "float32") -> Array:
    return np.full(shape, NAN, dtype)


# ---- the product itself ----


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (3, 5, 7), (33, 65, 31), (64, 64, 64), (1, 200, 9), (200, 1, 9), (5, 5, 1)]
)
def test_products(rng: np.random.Generator, dtype: str, m: int, n: int, k: int) -> None:
    a, b, c = normal(rng, (m, k), dtype), normal(rng, (k, n), dtype), normal(rng, (m, n), dtype)
    out = poisoned((m, n), dtype)
    assert lapidist.gemm(a, b, c, alpha=-1.5, beta=0.75, out=out) is out
    assert judge(out, a, b, c, -1.5, 0.75).ok
    product = lapidist.matmul(a, b)
    assert product.dtype == dtype
    assert judge(product, a, b).ok


@pytest.mark.parametrize("dtype", DTYPES)
def test_integers_come_out_exactly(rng: np.random.Generator, dtype: str) -> None:
    a, b = (rng.integers(-4, 5, shape).astype(dtype) for shape in ((40, 30), (30, 50)))
    assert judge(lapidist.matmul(a, b), a, b, exact=True).ok


def test_half_is_summed_in_float() -> None:
    """4096 ones: a sum in half stops at 2048, where adding one no longer changes it."""
    ones = np.ones((1, 4096), np.float16)
    assert lapidist.matmul(ones, ones.T)[0, 0] == 4096


def test_half_is_rounded_once_at_the_end() -> None:
    """1 + 2^-11 + 2^-11 rounds to 1 when each sum is rounded, and to 1 + 2^-10 when only the last one is."""
    a = np.array([[1, 2.0**-11, 2.0**-11]], np.float16)
    assert lapidist.matmul(a, np.ones((3, 1), np.float16))[0, 0] == np.float16(1 + 2.0**-10)
    c = np.array([[2.0**-11]], np.float16)
    both = lapidist.gemm(np.array([[1, 2.0**-11]], np.float16), np.ones((2, 1), np.float16), c, beta=1)
    assert both[0, 0] == np.float16(1 + 2.0**-10)


def test_half_that_overflows_becomes_infinite_without_a_warning() -> None:
    a = np.full((1, 2), 60000, np.float16)
    assert lapidist.matmul(a, np.ones((2, 1), np.float16))[0, 0] == np.inf


# ---- every type ----


@pytest.mark.parametrize("math", MATHS)
def test_every_type(rng: np.random.Generator, math: str) -> None:
    a, b = fresh(rng, (33, 65), math), fresh(rng, (65, 31), math)
    for output in outputs_of(element_of(math).name, element_of(math).name):
        c = whole(rng, (33, 31), math).astype(numpy_dtype(output))
        result = lapidist.gemm(a, b, c, alpha=-2, beta=3, out_dtype=output, precision=precision_of(math))
        assert result.dtype == numpy_dtype(output)
        assert judge(result, a, b, c, -2, 3, precision=precision_of(math), unit="fma").ok, output
    assert lapidist.matmul(a, b).dtype == numpy_dtype(element_of(math).outputs[0])


@pytest.mark.parametrize(("left", "right"), [("int8", "uint8"), ("uint8", "int8"), FP8, FP8[::-1]])
def test_two_types_at_once(rng: np.random.Generator, left: str, right: str) -> None:
    a, b = fresh(rng, (9, 33), left), fresh(rng, (33, 7), right)
    assert judge(lapidist.matmul(a, b), a, b).ok


def test_integers_wrap_around_and_8_bits_saturate() -> None:
    a, b = np.full((2, 3), 127, np.int8), np.full((3, 2), -128, np.int8)
    assert (lapidist.matmul(a, b) == -3 * 127 * 128).all()
    assert (lapidist.matmul(a, b, out_dtype="int8") == -128).all()
    assert (lapidist.gemm(a, b, alpha=-1, out_dtype="int8") == 127).all()
    assert (lapidist.gemm(a, b, alpha=100000) == (-100000 * 3 * 127 * 128 + 2**31) % 2**32 - 2**31).all()
    u, v = np.full((2, 3), 255, np.uint8), np.full((3, 2), 255, np.uint8)
    assert (lapidist.matmul(u, v, out_dtype="uint8") == 255).all()
    assert (lapidist.gemm(u, v, alpha=-1, out_dtype="uint8") == 0).all()


def test_8_bit_floats_saturate_and_keep_nan() -> None:
    a, b = (np.full(shape, 400, numpy_dtype("float8_e4m3fn")) for shape in ((1, 2), (2, 1)))
    assert lapidist.matmul(a, b, out_dtype="e4m3")[0, 0] == 448
    assert lapidist.gemm(a, b, alpha=-1, out_dtype="e4m3")[0, 0] == -448
    a[0, 0] = NAN
    assert np.isnan(lapidist.matmul(a, b, out_dtype="e4m3")[0, 0].astype("f4"))


def test_tf32_rounds_its_factors() -> None:
    """1 + 2^-11 lies halfway between two neighbours of 10 bits and goes to the even one; 1 + 3 2^-12 lies
    above.
    """
    one, a = (
        np.ones((1, 1), np.float32),
        np.array([[1 + 2.0**-11], [1 + 3 * 2.0**-12], [np.inf], [NAN], [-1 - 2.0**-10]], "f4"),
    )
    rounded = lapidist.matmul(a, one, precision="tf32")
    np.testing.assert_array_equal(
        rounded, np.array([[1], [1 + 2.0**-10], [np.inf], [NAN], [-1 - 2.0**-10]], "f4")
    )
    assert lapidist.matmul(a, one)[0, 0] == a[0, 0]


def test_half_may_be_summed_in_half() -> None:
    """4096 ones and a half: sums in half are rounded at the latest when they are complete."""
    a = np.array([[2048.0, 1.0]], np.float16)
    ones = np.ones((2, 1), np.float16)
    assert lapidist.matmul(a, ones, out_dtype="float32")[0, 0] == 2049
    assert lapidist.matmul(a, ones, acc_dtype="float16", out_dtype="float32")[0, 0] == 2048


# ---- what is never read ----


@pytest.mark.parametrize("dtype", DTYPES)
def test_beta_zero_never_reads_c(rng: np.random.Generator, dtype: str) -> None:
    a, b = normal(rng, (4, 6), dtype), normal(rng, (6, 5), dtype)
    expected = lapidist.matmul(a, b)
    assert np.array_equal(lapidist.gemm(a, b, poisoned((4, 5), dtype), beta=0), expected)
    assert np.array_equal(lapidist.gemm(a, b, np.ones(3, "int8"), beta=0), expected)  # whatever it is
    out = poisoned((4, 5), dtype)
    assert np.array_equal(lapidist.gemm(a, b, out, beta=0, out=out), expected)
    assert np.array_equal(lapidist.gemm(a, b, alpha=1, out=poisoned((4, 5), dtype)), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("beta", [0.0, 2.0])
def test_alpha_zero_never_reads_a_and_b(rng: np.random.Generator, dtype: str, beta: float) -> None:
    c = normal(rng, (4, 5), dtype)
    result = lapidist.gemm(poisoned((4, 6), dtype), poisoned((6, 5), dtype), c, alpha=0, beta=beta)
    assert np.array_equal(result, (beta * c.astype("float64")).astype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_products_leave_c_scaled(rng: np.random.Generator, dtype: str) -> None:
    a, b, c = np.empty((4, 0), dtype), np.empty((0, 5), dtype), normal(rng, (4, 5), dtype)
    assert np.array_equal(lapidist.matmul(a, b), np.zeros((4, 5), dtype))
    assert np.array_equal(lapidist.gemm(a, b, c, alpha=3, beta=2), c * np.dtype(dtype).type(2))
    assert np.array_equal(lapidist.gemm(a, b, out=poisoned((4, 5), dtype)), np.zeros((4, 5), dtype))


@pytest.mark.parametrize(("alpha", "beta"), [(2.0, 0.0), (0.0, 2.0), (0.0, 0.0)])
def test_what_is_multiplied_by_zero_is_not_read(alpha: float, beta: float) -> None:
    """A scalar in an array may be 0, too: then c is given."""
    a, b, c = (np.ones((2, 2), np.float32) if scalar else poisoned((2, 2)) for scalar in (alpha, alpha, beta))
    out = poisoned((2, 2))
    multiply(a, b, c, out, alpha, beta, "float32", "ieee")
    assert (out == 2 * alpha + beta).all()


def test_nan_in_a_and_b_is_passed_on() -> None:
    a = np.array([[1, NAN], [1, 1]], np.float32)
    result = lapidist.matmul(a, np.ones((2, 2), np.float32))
    assert np.isnan(result[0]).all()
    assert (result[1] == 2).all()


# ---- shapes ----


@pytest.mark.parametrize(
    ("a", "b"),
    [((0, 3), (3, 4)), ((4, 3), (3, 0)), ((0, 0), (0, 0)), ((0, 2, 3), (3, 4)), ((2, 0, 3, 0), (0, 5))],
)
def test_empty_outputs(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    left, right = np.ones(a, np.float32), np.ones(b, np.float32)
    expected = np.matmul(left, right)
    for result in (lapidist.matmul(left, right), lapidist.gemm(left, right, alpha=2)):
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((5,), (5,)),
        ((5,), (5, 3)),
        ((4, 5), (5,)),
        ((2, 4, 5), (5,)),
        ((5,), (2, 5, 3)),
        ((0,), (0,)),
        ((0,), (0, 3)),
        ((2, 1, 4, 5), (5,)),
    ],
)
def test_vectors_are_taken_as_numpy_takes_them(
    rng: np.random.Generator, a: tuple[int, ...], b: tuple[int, ...]
) -> None:
    left, right = rng.integers(-9, 9, a).astype(np.float32), rng.integers(-9, 9, b).astype(np.float32)
    expected = np.matmul(left, right)
    result = lapidist.matmul(left, right)
    assert np.shape(result) == np.shape(expected)
    assert np.array_equal(result, expected)
    out = poisoned(expected.shape)
    assert lapidist.matmul(left, right, out=out) is out
    assert np.array_equal(out, expected)


batch_shapes = st.lists(st.sampled_from([1, 2, 3]), max_size=3)


@settings(deadline=None)
@given(st.data())
def test_batches_broadcast_as_numpy_broadcasts_them(data: st.DataObject) -> None:
    batch = data.draw(batch_shapes)

    def of(rows: int, cols: int) -> Array:
        kept = [extent if data.draw(st.booleans()) else 1 for extent in batch][
            data.draw(st.integers(0, len(batch))) :
        ]
        return np.random.default_rng(rows).integers(-9, 9, (*kept, rows, cols)).astype(np.float32)

    m, n, k = (data.draw(st.integers(1, 4)) for _ in range(3))
    a, b = of(m, k), of(k, n)
    expected = np.matmul(a, b)
    assert np.array_equal(lapidist.matmul(a, b), expected)
    c = np.broadcast_to(
        np.float32(3), data.draw(st.sampled_from([(n,), (1, n), (m, 1), (m, n), (1, 1), expected.shape]))
    )
    assert np.array_equal(lapidist.gemm(a, b, c, alpha=2, beta=-1), 2 * expected - 3)


@pytest.mark.parametrize(("trans_a", "trans_b"), [(True, False), (False, True), (True, True)])
def test_transposes(rng: np.random.Generator, trans_a: bool, trans_b: bool) -> None:
    a, b = normal(rng, (2, 4, 6)), normal(rng, (2, 6, 5))
    given_a, given_b = (
        (a.swapaxes(1, 2).copy() if trans_a else a),
        (b.swapaxes(1, 2).copy() if trans_b else b),
    )
    assert judge(lapidist.gemm(given_a, given_b, trans_a=trans_a, trans_b=trans_b), a, b).ok


@pytest.mark.parametrize("shape", [(5,), (1, 5), (4, 1), (1, 1), (), (4, 5)])
def test_c_broadcasts_to_the_output(rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    a, b, c = normal(rng, (4, 6)), normal(rng, (6, 5)), np.asarray(normal(rng, shape))
    result = lapidist.gemm(a, b, c, beta=2.0)
    assert judge(result, a, b, np.broadcast_to(c, (4, 5)), 1.0, 2.0).ok


# ---- out ----


def test_c_may_be_the_output(rng: np.random.Generator) -> None:
    a, b, c = normal(rng, (4, 6)), normal(rng, (6, 5)), normal(rng, (4, 5))
    before = c.copy()
    assert lapidist.gemm(a, b, c, alpha=2, beta=3, out=c) is c
    assert judge(c, a, b, before, 2, 3).ok


@pytest.mark.parametrize("device", [None, "machine"])
@pytest.mark.parametrize(
    "view", [np.s_[2:6, 1:6], np.s_[6:2:-1, 1:6], np.s_[::3, ::2]], ids=["inside", "reversed", "spread"]
)
def test_out_may_be_part_of_a_larger_array(rng: np.random.Generator, view: Any, device: str | None) -> None:
    a, b = normal(rng, (4, 6)), normal(rng, (6, 5))
    base = poisoned((10, 10))
    out = base[view]
    assert lapidist.matmul(a, b, out, device=device) is out
    assert judge(base[view], a, b).ok
    base[view] = NAN
    assert np.isnan(base).all()


def test_out_may_be_column_major(rng: np.random.Generator) -> None:
    a, b = normal(rng, (4, 6)), normal(rng, (6, 5))
    out = np.asfortranarray(poisoned((4, 5)))
    assert lapidist.gemm(a, b, out=out) is out
    assert judge(out, a, b).ok


def test_inputs_may_have_any_strides_and_stay_as_they_are(rng: np.random.Generator) -> None:
    base = normal(rng, (20, 20))
    a, b = base[1:9:2, ::-3], base.T[3:10, 2::4]
    before = base.copy()
    assert judge(lapidist.gemm(a, b, alpha=0.5), a, b, alpha=0.5).ok
    assert np.array_equal(base, before)


# ---- plans ----


def test_a_plan_runs_again_on_other_arrays(rng: np.random.Generator) -> None:
    a, b = normal(rng, (4, 6)), normal(rng, (6, 5))
    plan = lapidist.plan(a, b, alpha=2.0)
    assert "NumPy" in str(plan)
    assert plan.config is None
    assert plan.workspace_bytes == 0
    for _ in range(3):
        a, b = normal(rng, (4, 6)), normal(rng, (6, 5))
        assert judge(plan.execute(a, b), a, b, alpha=2.0).ok
    out = poisoned((4, 5))
    assert plan.execute(a, b, None, out) is out
    assert judge(out, a, b, alpha=2.0).ok


def test_many_geometries_are_forgotten_and_still_right(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lapidist.calls import repeat

    monkeypatch.setattr(repeat, "REMEMBERED_LIMIT", 3)
    monkeypatch.setattr(repeat, "PREPARED", {})
    for m in (*range(1, 5), *range(1, 5)):
        a, b = normal(rng, (m, 4)), normal(rng, (4, m))
        assert judge(lapidist.matmul(a, b, device="machine"), a, b).ok
    assert 1 <= len(repeat.PREPARED) <= 3
