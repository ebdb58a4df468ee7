"""The bound: results of the arithmetic it stands for pass, one lost product does not, in every type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.backends.host_product import rounded_to_tf32
from lapidist.dtypes import MATHS, TF32, element_of, numpy_dtype, outputs_of
from lapidist.machine.instructions.sums import tensor_sum
from lapidist.verify.sum_bound import judge
from typed import fresh, precision_of

Array = np.ndarray[Any, Any]
KINDS = {"float16": "f16", "bfloat16": "bf16", TF32: "tf32", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
DEPTH = {"float16": 16, "bfloat16": 16, TF32: 8, "float8_e4m3fn": 32, "float8_e5m2": 32}


def as_the_chip_sums(a: Array, b: Array, math: str, unit: str = "mma") -> Array:
    """Instruction after instruction, bit for bit as an H200."""
    left, right = ((rounded_to_tf32(x) if math == TF32 else x).astype("f8") for x in (a, b))
    total = np.zeros((a.shape[0], b.shape[1]))
    for start in range(0, a.shape[1], DEPTH[math]):
        part = slice(start, start + DEPTH[math])
        total = tensor_sum(left[:, part], right[part], total, ("f32", KINDS[math]), chip=True, unit=unit)
    return total.astype(np.float32)


@pytest.mark.parametrize("math", KINDS)
def test_sums_as_the_chip_does_them_pass(rng: np.random.Generator, math: str) -> None:
    """Normal numbers, and positive ones, whose cuts all point the same way."""
    for a, b in (
        (fresh(rng, (8, 1024), math), fresh(rng, (1024, 8), math)),
        (abs(fresh(rng, (8, 1024), math).astype("f4")), abs(fresh(rng, (1024, 8), math).astype("f4"))),
    ):
        a, b = a.astype(numpy_dtype(element_of(math).name)), b.astype(numpy_dtype(element_of(math).name))
        assert judge(as_the_chip_sums(a, b, math), a, b, precision=precision_of(math), unit="mma").ok
        if "float8" in math:
            assert judge(as_the_chip_sums(a, b, math, "wgmma"), a, b, unit="wgmma").ok
        if math == TF32:
            assert judge(as_the_chip_sums(a, b, math, "wmma"), a, b, precision=TF32).ok


@pytest.mark.parametrize("math", MATHS)
def test_one_lost_product_is_seen(rng: np.random.Generator, math: str) -> None:
    """At k = 512, in a result that does not hide it; the lost one is of the size that products have."""
    a, b = fresh(rng, (4, 512), math), fresh(rng, (512, 4), math)
    lost = a.astype("f8").copy()
    lost[2, 100] = 0
    output = numpy_dtype(
        "float64" if math == "float64" else outputs_of(element_of(math).name, element_of(math).name)[0]
    )
    output = np.dtype(np.float32) if output.itemsize < 4 else output
    d = (lost @ b.astype("f8")).astype(output)
    size = abs(a[2, 100].astype("f8") * b[100].astype("f8"))
    verdict = judge(d, a, b, precision=precision_of(math), unit="mma")
    assert size.max() < 0.5 or not verdict.ok
    whole = (a.astype("f8") @ b.astype("f8")).astype(output)
    assert judge(whole, a, b, precision=precision_of(math), unit="mma").ok


@pytest.mark.parametrize("alpha", [1.0, 3.0])
def test_products_that_underflow_are_lost_one_by_one(alpha: float) -> None:
    """100 products of 0.49 of the smallest number, each of which rounds to zero; the sum of them does not."""
    least = 2.0**-149
    a, b = np.full((1, 100), least * 2.0**20, np.float32), np.full((100, 1), 0.49 * 2.0**-20, np.float32)
    assert judge(np.zeros((1, 1), np.float32), a, b, alpha=alpha).ok
    assert judge(np.full((1, 1), 98 * least * alpha, np.float32), a, b, alpha=alpha).ok
    assert not judge(np.full((1, 1), 110 * least * alpha, np.float32), a, b, alpha=alpha).ok
    assert judge(lapidist.gemm(a, b, alpha=alpha), a, b, alpha=alpha).ok


def test_subnormal_sums_in_half_round_once_a_step() -> None:
    a, b = np.full((1, 160), 2.0**-14, np.float16), np.full((160, 1), 0.49 * 2.0**-14, np.float16)
    exact = float(a[0].astype("f8") @ b[:, 0].astype("f8"))
    assert judge(np.full((1, 1), exact + 10 * 2.0**-25, np.float32), a, b, accumulator="float16").ok
    assert not judge(np.full((1, 1), exact + 12 * 2.0**-25, np.float32), a, b, accumulator="float16").ok


def test_subnormal_factors_are_cut_to_those_of_tf32() -> None:
    a, b = np.full((2, 3), 2.0**-137 * 0.9, np.float32), np.full((3, 2), 2.0**100, np.float32)
    assert judge(lapidist.matmul(a, b, precision=TF32), a, b, precision=TF32).ok
    assert not judge(lapidist.matmul(a, b, precision=TF32), a, b).ok


def test_integers_have_no_bound(rng: np.random.Generator) -> None:
    a, b = fresh(rng, (5, 40), "int8"), fresh(rng, (40, 5), "int8")
    exact = a.astype(np.int32) @ b.astype(np.int32)
    assert judge(exact, a, b).ok
    exact[3, 2] += 1
    verdict = judge(exact, a, b)
    assert (verdict.ok, verdict.where) == (False, (3, 2))


def test_integers_wrap_and_saturate() -> None:
    a, b = np.full((1, 3), 127, np.int8), np.full((3, 1), 127, np.int8)
    assert judge(np.array([[127]], np.int8), a, b).ok
    assert judge(np.array([[-128]], np.int8), a, b, alpha=-1).ok
    wrapped = (50000 * 3 * 127 * 127 + 2**31) % 2**32 - 2**31
    assert judge(np.array([[wrapped]], np.int32), a, b, alpha=50000).ok


def test_not_a_number_is_wrong() -> None:
    a = np.ones((2, 2), np.float32)
    assert not judge(np.full((2, 2), np.nan, np.float32), a, a).ok
    assert not judge(np.full((2, 2), np.nan, np.float32), a, a, exact=True).ok


def test_tf32_is_no_excuse_for_ieee(rng: np.random.Generator) -> None:
    a, b = fresh(rng, (16, 64), TF32), fresh(rng, (64, 16), TF32)
    rough = (rounded_to_tf32(a) @ rounded_to_tf32(b)).astype(np.float32)
    assert judge(rough, a, b, precision=TF32).ok
    assert not judge(rough, a, b).ok


def test_half_sums_have_their_own_bound(rng: np.random.Generator) -> None:
    a, b = fresh(rng, (16, 256), "float16"), fresh(rng, (256, 16), "float16")
    total = np.zeros((16, 16), np.float16)
    for start in range(0, 256, 16):
        part = slice(start, start + 16)
        total = (total.astype("f8") + a[:, part].astype("f8") @ b[part].astype("f8")).astype(np.float16)
    result = total.astype(np.float32)
    assert judge(result, a, b, accumulator="float16").ok
    assert not judge(result, a, b).ok
