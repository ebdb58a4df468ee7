"""Rows of groups that wgmma gathers from A, and scatters to D: tokens of experts. Whole numbers, so that
every sum is exact, in the machine, sanitized, in orders that seeds draw.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

import lapidist
from group_products import (
    UNTOUCHED,
    GroupProduct,
    group_product,
    require_right,
    routed,
    run_cut,
    run_sanitized,
    stretches,
)
from in_turns import in_turns, surveyed, surveyed_but
from lapidist.calls.operation import Factors
from lapidist.device import chip
from lapidist.errors import RefusalError
from lapidist.kernels.registry import kernel_named
from lapidist.kernels.wgmma.family import tile
from lapidist.kernels.wgmma.group_parts import LEAST_STEPS

LENGTHS = [0, 33, 1, 0, 90, 0]
MANY = {  # more groups than a warp has lanes
    "few have a line": [3 * (i % 19 == 14) for i in range(70)],
    "most have one": [(7 * i) % 5 for i in range(70)],
}
CONFIGS = {
    "two stages": tile("float16", 64, 32, 2),
    "more steps than stages": tile("float16", 64, 32, 5),
    "two warpgroups": tile("float16", 128, 64, 4),
    "a pair along m": tile("float16", 64, 32, 3, (2, 1)),
    "ping-pong": next(
        config
        for config, _ in kernel_named("wgmma").configs_for("float16")
        if config.ping_pong and not config.exchanged and config.cluster == 1
    ),
}


FOR_OTHERS = 3, 4  # a pair of blocks, and two warpgroups by turns


@pytest.mark.often(1)
@pytest.mark.parametrize("seed", [0, *surveyed([1])])
@pytest.mark.parametrize("name", surveyed_but(CONFIGS, *FOR_OTHERS))
def test_rows_lie_anywhere(rng: np.random.Generator, name: str, seed: int) -> None:
    """With a last step of k, and a last chunk of 16 bytes, that are not full."""
    product = routed(rng, group_product(rng, "m", LENGTHS, (72, 200), "float16", 29, (False, True)))
    require_right(product, run_sanitized(product, "wgmma", CONFIGS[name], seed))


@pytest.mark.parametrize(("name", "seed"), in_turns(MANY, range(2), often=[("few have a line", 0)], share=1))
def test_rows_of_many_groups_lie_anywhere(rng: np.random.Generator, name: str, seed: int) -> None:
    product = routed(rng, group_product(rng, "m", MANY[name], (40, 56), "float16", 29, (False, True)))
    require_right(product, run_sanitized(product, "wgmma", CONFIGS["two stages"], seed))


@pytest.mark.often(1)
@pytest.mark.parametrize("k", [36, 60])
def test_a_chunk_ends_with_k(rng: np.random.Generator, k: int) -> None:
    """Rows start on multiples of 16 bytes, and end elsewhere, where NaN follows."""
    product = group_product(rng, "m", LENGTHS, (72, k), "float16", 29, (False, True))
    for operand in (product.a, product.b.swapaxes(1, 2)):
        assert operand.shape[-1] == k
    wide_a = np.full((len(product.a), k + 4), np.nan, np.float16)
    wide_b = np.full((len(product.ends), 72, k + 4), np.nan, np.float16)
    wide_a[:, :k], wide_b[..., :k] = product.a, product.b.swapaxes(1, 2)
    index = np.arange(len(wide_a), dtype=np.int32)
    inside = product._replace(a=wide_a[:, :k], b=wide_b[..., :k].swapaxes(1, 2), index=index)
    require_right(inside, run_sanitized(inside, "wgmma", CONFIGS["two stages"], 0))


@pytest.mark.parametrize(("long", "n", "sms"), [(20, 40, 3), *surveyed([(70, 72, 7)])])
def test_parts_of_k_are_gathered(rng: np.random.Generator, long: int, n: int, sms: int) -> None:
    """The last tiles are cut along k: the block that has all sums of a tile scatters it."""
    k = 64 * 2 * LEAST_STEPS + 24
    product = routed(rng, group_product(rng, "m", [0, 33, long], (n, k), "float16", 5, (False, True)))
    found, parts = run_cut(product, tile("float16", 64, 32, 4), 0, replace(chip("h200"), sms=sms))
    assert parts
    require_right(product, found)


@pytest.mark.often(1)
@pytest.mark.parametrize("way", ["gathers", "scatters"])
def test_one_way_alone(rng: np.random.Generator, way: str) -> None:
    ways = {"gathers": False, "scatters": False} | {way: True}
    wide = tile("float16", 64, 192, 3)  # patches of D are held for the next tile's products
    product = routed(rng, group_product(rng, "m", LENGTHS, (328, 264), "float16", 29, (False, True)), **ways)
    require_right(product, run_sanitized(product, "wgmma", wide, 0))


def test_indices_behind_the_last_end_are_not_read(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host would refuse them, but cannot see those of a GPU."""
    product = routed(rng, group_product(rng, "m", LENGTHS, (72, 40), "float16", 29, (False, True)))
    assert product.index is not None
    assert product.target is not None
    right, last = product.target.copy(), int(product.ends[-1])
    product.index[last:] = product.target[last:] = 1 << 30
    monkeypatch.setattr("lapidist.calls.index_operands.IndexOperands._require_range", lambda *_: None)
    found = run_sanitized(product, "wgmma", CONFIGS["two warpgroups"], 0)
    require_right(product._replace(target=right), found)


@lapidist.epilogue
def dressed(acc, bias: lapidist.Row, shares: lapidist.Column, residual: lapidist.Tile):  # type: ignore[no-untyped-def]
    return (acc + bias) * shares + residual


@pytest.mark.parametrize("bn", [32, 256])
def test_a_functions_rows_are_those_of_d(rng: np.random.Generator, bn: int) -> None:
    """A bias of each group; shares and a residual of the output's rows, in pieces and by elements."""
    product = routed(rng, group_product(rng, "m", [40, 0, 70], (264, 72), "float16", 10, (False, True)))
    assert product.target is not None
    bias, residual = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((3, 264), (240, 264)))
    shares = rng.integers(1, 4, 240).astype(np.float32)
    out = np.full((240, 264), UNTOUCHED, np.float16)
    how: dict[str, Any] = {"gather_a": product.index, "scatter_d": product.target, "out": out}
    after = dressed(bias=bias, shares=shares, residual=residual)
    config = tile("float16", 64, bn, 3)
    place = {"device": "machine", "kernel": "wgmma", "config": config}
    lapidist.grouped(product.a, product.b, product.ends, **how, epilogue=after, **place)
    rows = product.target
    expected = (product.expected + bias[[0] * 40 + [2] * 80]) * shares[rows, None] + residual[rows]
    require_right(product._replace(expected=expected), out)


def scaled(rng: np.random.Generator, kind: str, lengths: list[int], k: int) -> GroupProduct:
    """An e4m3 product with factors by `kind`, powers of two, so that each sum is exact; to bfloat16."""
    n, count, blocks = 72, len(lengths), -(-k // 128)
    plain = group_product(rng, "m", lengths, (n, k), "float8_e4m3fn", 5, (False, True))
    drawn = routed(rng, plain._replace(out_dtype="bfloat16"))
    shapes = {
        "lines": ((len(drawn.a),), (count, n)),
        "strips": ((len(drawn.a), blocks), (count, blocks, n)),
        "squares": ((len(drawn.a), blocks), (count, blocks, -(-n // 128))),
    }[kind]
    of_a, of_b = (2.0 ** rng.integers(-2, 3, shape).astype(np.float32) for shape in shapes)
    expected = np.zeros(drawn.expected.shape)
    for number, part in enumerate(stretches(lengths)):
        rows, parts = drawn.index[part], range(blocks if kind != "lines" else 1)  # type: ignore[index]
        for block in parts:
            of_k = slice(block * 128, (block + 1) * 128) if kind != "lines" else slice(None)
            left = of_a[rows, None] if kind == "lines" else of_a[rows, block, None]
            right = of_b[number] if kind == "lines" else of_b[number, block].repeat(n // of_b.shape[-1])
            expected[part] += (
                left * right * (drawn.a[rows, of_k].astype("f8") @ drawn.b[number, of_k].astype("f8"))
            )
    return drawn._replace(expected=expected.astype(bfloat16), factors=Factors(of_a, of_b))


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("way", "kind"), in_turns(["wgmma", "a pair", "two warpgroups", "mma"], ["lines", "strips", "squares"])
)
def test_factors_go_with_their_rows(rng: np.random.Generator, kind: str, way: str) -> None:
    """Factors of A are those of its rows as they lie. With a last block of k that is not full."""
    configs = {
        "wgmma": tile("float8_e4m3fn", 64, 64, 2),
        "a pair": tile("float8_e4m3fn", 64, 64, 3, (2, 1)),
        "two warpgroups": tile("float8_e4m3fn", 128, 128, 3),
        "mma": None,
    }
    product = scaled(rng, kind, [0, 33, 1, 0, 90], 272)
    kernel = "mma" if way == "mma" else "wgmma"
    require_right(product, run_sanitized(product, kernel, configs[way], 0))


def test_without_k_there_are_zeros(rng: np.random.Generator) -> None:
    product = routed(rng, group_product(rng, "m", [3, 70], (72, 0), "float16", 2, (False, True)))
    require_right(product, run_sanitized(product, "wgmma", CONFIGS["a pair along m"], 0))


def test_hopper_chooses_it(rng: np.random.Generator) -> None:
    product = routed(rng, group_product(rng, "m", [32] * 8, (1024, 512), "float16", 0, (False, True)))
    out = np.zeros((512, 1024), np.float16)
    how: dict[str, Any] = {"gather_a": product.index, "scatter_d": product.target, "out": out}
    plan = lapidist.plan(product.a, product.b, offsets=product.ends, **how, device="machine")
    assert plan.plan.kernel.name == "wgmma"


def test_what_it_does_not_route(rng: np.random.Generator) -> None:
    halves = group_product(rng, "m", LENGTHS, (72, 40), "float16", 2, (False, True))
    with pytest.raises(RefusalError, match="four warps of each block copy the gathered rows"):
        run_sanitized(routed(rng, halves, True, False), "wgmma", tile("float16", 64, 32, 3, (1, 2)), None)
    with pytest.raises(RefusalError, match="two lanes would store a scattered row's"):
        run_sanitized(routed(rng, halves, False, True), "wgmma", tile("float16", 128, 200, 3, (2, 1)), None)
    out, place = np.zeros((126, 72), np.float16), {"device": "machine", "kernel": "wgmma"}
    target = np.arange(126, dtype=np.int32)
    with pytest.raises(RefusalError, match="rows of D that are made of 16 bytes, without C"):
        lapidist.grouped(halves.a, halves.b, halves.ends, out, beta=1, scatter_d=target, out=out, **place)
    singles = group_product(rng, "m", LENGTHS, (72, 40), "float32", 2, (False, True))
    index = np.arange(len(singles.a), dtype=np.int32)
    with pytest.raises(RefusalError, match="TMA rounds float32"):
        lapidist.grouped(singles.a, singles.b, singles.ends, gather_a=index, precision="tf32", **place)
