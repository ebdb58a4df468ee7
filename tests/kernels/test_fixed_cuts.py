"""Rows of groups whose k is cut in all tiles alike: the bits of the product of one group that is cut so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

import lapidist
from group_products import GroupProduct, run_sanitized, stretches
from in_turns import in_turns
from lapidist.calls.operation import Factors, types_named
from lapidist.config import Config
from lapidist.device import Device, chip
from lapidist.kernels.registry import kernel_named
from lapidist.kernels.wgmma.family import tile
from lapidist.problems.ragged import FixedCuts
from same_sums import spread

Array = np.ndarray[Any, Any]
H200 = chip("h200")
LENGTHS = [0, 33, 1, 0, 70]
TINY = {4: 1e-30, 8: 1e-200}  # by bytes: numbers whose squares underflow


class Way(NamedTuple):
    """A kernel that multiplies groups, and the dense product whose bits they shall have."""

    kernel: str
    math: str
    config: Config
    reduction: str
    parts: int
    steps: int  # of k
    short: int = 0  # elements that the last one lacks
    factors: bool = False


def config_of(kernel: str, math: str, slices: int = 1) -> Config:
    """The smallest tile."""
    listed = [config for config, _ in kernel_named(kernel).configs_for(math) if config.slices == slices]
    return min(listed, key=lambda config: config.bm * config.bn)


SMALL = tile("float16", 64, 32, 2)
EXCHANGED = next(
    config
    for config, _ in kernel_named("wgmma").configs_for("float16")
    if config.exchanged and config.bn <= 64 and not config.skewed and not config.ping_pong
)
WAYS = {
    "wgmma": Way("wgmma", "float16", SMALL, "turnstile", 4, 7, 8),
    "wgmma, eight parts": Way("wgmma", "float16", SMALL, "cluster", 8, 9),
    "pair along m": Way("wgmma", "float16", tile("float16", 64, 32, 2, (2, 1)), "turnstile", 4, 4),
    "pair along n": Way("wgmma", "float16", tile("float16", 64, 32, 2, (1, 2)), "turnstile", 2, 5, 24),
    "exchanged": Way("wgmma", "float16", EXCHANGED, "turnstile", 2, 3),
    "tf32": Way("wgmma", "tf32", tile("tf32", 64, 32, 2), "turnstile", 3, 5, 4),
    "factors": Way("wgmma", "float8_e4m3fn", tile("float8_e4m3fn", 64, 64, 2), "turnstile", 4, 5, 0, True),
    "mma": Way("mma", "float16", config_of("mma", "float16"), "turnstile", 4, 7, 3),
    "mma float64": Way("mma", "float64", config_of("mma", "float64"), "cluster", 3, 4),
    "simt": Way("simt", "float32", config_of("simt", "float32"), "turnstile", 4, 6),
    "simt in a cluster": Way("simt", "float32", config_of("simt", "float32"), "cluster", 2, 5),
    "simt in slices": Way("simt", "float32", config_of("simt", "float32", 2), "cluster", 3, 5, 7),
    "sgemm": Way("sgemm", "float32", config_of("sgemm", "float32", 1), "turnstile", 3, 4, 5),
    "sgemm in slices": Way("sgemm", "float32", config_of("sgemm", "float32", 4), "turnstile", 2, 4, 5),
}
ON_WGMMA = {name: way for name, way in WAYS.items() if way.kernel == "wgmma"}
OFTEN = [(name,) for name in ("wgmma", "factors", "mma float64", "simt in slices", "sgemm")]


def product_of(rng: np.random.Generator, way: Way, more_columns: bool = False) -> GroupProduct:
    """Numbers of many sizes, one row and one column among them of products that underflow to -0."""
    k, n = way.steps * way.config.bk - way.short, 128 if way.factors else 72 if more_columns else 40
    total, count = sum(LENGTHS) + 9, len(LENGTHS)
    a, b = spread(rng, (total, k), way.math), spread(rng, (count, n, k), way.math)
    if a.dtype.itemsize in TINY:
        a[5], b[1, 3] = -TINY[a.dtype.itemsize], TINY[a.dtype.itemsize]
    factors = Factors()
    if way.factors:
        of_a = np.exp2(rng.integers(-2, 3, (k // 128, total))).astype(np.float32).T
        of_b = rng.uniform(0.5, 2.0, (count, n // 128, k // 128)).astype(np.float32).swapaxes(1, 2)
        factors = Factors(of_a, of_b)
    ends = np.cumsum(LENGTHS).astype(np.int32)
    cuts = FixedCuts(
        way.parts, way.config.bk, way.reduction, way.reduction == "cluster" and way.kernel != "wgmma"
    )
    types = types_named(of_sums(way), None, "tf32" if way.math == "tf32" else "ieee")
    return GroupProduct(a, b.swapaxes(1, 2), ends, a, None, factors=factors, types=types, cuts=cuts)


def of_sums(way: Way) -> str:
    """The type of sums, so that no bit of theirs is rounded away."""
    return "float64" if way.math == "float64" else "float32"


def alone(product: GroupProduct, way: Way) -> Array:
    """All rows by the matrix of each group, of which its own are taken: one kernel serves all."""
    how: dict[str, Any] = {
        "device": "machine",
        "kernel": way.kernel,
        "config": way.config,
        "split_k": way.parts,
        "reduction": way.reduction,
        "out_dtype": of_sums(way),
        "precision": product.types.precision,
    }
    rows = []
    for number, part in enumerate(stretches(LENGTHS)):
        if way.factors:
            how |= {"scale_a": product.factors.a, "scale_b": product.factors.b[number]}
        if part.start < part.stop:
            rows.append(lapidist.gemm(product.a, product.b[number], **how)[part])
    return np.concatenate(rows)


def require_same(found: Array, expected: Array) -> None:
    bits = f"u{expected.dtype.itemsize}"
    np.testing.assert_array_equal(found[: len(expected)].view(bits), expected.view(bits))


@pytest.mark.often(2)
@pytest.mark.parametrize("name", in_turns(WAYS, often=OFTEN))
def test_rows_have_the_bits_of_the_dense_product(rng: np.random.Generator, name: str) -> None:
    way = WAYS[name]
    product = product_of(rng, way)
    require_same(run_sanitized(product, way.kernel, way.config, 3), alone(product, way))


def few_sms(count: int) -> Device:
    return replace(H200, sms=count)


@pytest.mark.often(1)
@pytest.mark.parametrize(
    ("name", "sms"), in_turns(ON_WGMMA, [1, 7, 10, 26], often=[("wgmma, eight parts", 26), ("wgmma", 10)])
)
def test_idle_blocks_take_parts(rng: np.random.Generator, name: str, sms: int) -> None:
    """Of nine tiles, some or all are left for more blocks: each has one part of a tile, or several."""
    way = WAYS[name]
    product = product_of(rng, way, more_columns=True)
    require_same(run_sanitized(product, "wgmma", way.config, sms, few_sms(sms)), alone(product, way))
