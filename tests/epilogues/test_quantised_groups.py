"""Columns quantised by the kernel itself, with no second pass behind: the bits of one that leaves it to the
pass, whatever the values are. In the machine, sanitized."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import lapidist
from fused_cases import watch
from in_turns import surveyed, surveyed_but
from lapidist import epilogues
from lapidist.config import Config
from lapidist.dtypes import numpy_dtype
from lapidist.kernels.wgmma.configs import tile

Array = np.ndarray[Any, Any]
BF16 = partial(tile, "bfloat16")
LEFT = "behind it: quantise"  # what a plan says where a pass follows
WAYS = [
    (epilogues.quantise_e4m3_groups, BF16(128, 256, 2), (150, 400)),
    (epilogues.quantise_e4m3_groups, BF16(64, 128, 2), (70, 144)),
    (epilogues.quantise_int8_groups, BF16(192, 128, 2, (2, 1)), (390, 256)),
    (epilogues.swiglu_e4m3_groups, BF16(64, 256, 2, ping_pong=True), (150, 544)),
    (epilogues.swiglu_e4m3_groups, BF16(128, 256, 2, (2, 1)), (140, 512)),
]


@pytest.fixture(autouse=True)
def sanitized(monkeypatch: pytest.MonkeyPatch) -> None:
    watch(monkeypatch)


def operands(rng: np.random.Generator, m: int, n: int, k: int = 64) -> tuple[Array, Array]:
    """Rows of numbers of every size: infinite, none, nothing but zeros, subnormal, with sums that
    overflow."""
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    a[0, 0], a[1, 0], a[2] = np.inf, np.nan, 0
    a[3:8] *= np.array([1e-38, 1e-39, 2e37, 3e38, 1e-20])[:, None]
    b[:, ::3] *= 1e-3
    with np.errstate(over="ignore"):
        return a.astype(numpy_dtype("bfloat16")), b.astype(numpy_dtype("bfloat16"))


def made(a: Array, b: Array, epilogue: Any, config: Config, **more: Any) -> tuple[Any, bool]:
    """The results, and whether a pass made them."""
    how = {"epilogue": epilogue, "kernel": "wgmma", "config": config, "device": "machine", **more}
    return lapidist.gemm(a, b, **how), LEFT in str(lapidist.plan(a, b, **how))


def same_bits(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(np.isnan(one.astype("f4")), np.isnan(other.astype("f4")))
        left = ~np.isnan(one.astype("f4"))
        whole = f"u{one.itemsize}"
        np.testing.assert_array_equal(one[left].view(whole), other[left].view(whole))


@pytest.mark.often(1)
@pytest.mark.parametrize(("function", "config", "extents"), surveyed_but(WAYS, 1, 3), ids=str)
def test_bits_are_those_of_the_pass(
    rng: np.random.Generator, function: Any, config: Config, extents: tuple[int, int]
) -> None:
    a, b = operands(rng, *extents)
    found, left = made(a, b, function, config)
    expected, left_there = made(a, b, function, BF16(128, 192, 2))
    assert (left, left_there) == (False, True)
    same_bits(found, expected)
    assert {*found[1][2]} == {1.0}  # of zeros


@lapidist.epilogue
def with_others(acc: Any, row: lapidist.Row, tile: lapidist.Tile) -> Any:
    value = acc * row + tile
    return lapidist.Quantised(value, "float8_e5m2"), value > 0, lapidist.row_sum(acc), acc


@pytest.mark.parametrize("shared", [{}, *surveyed([{"split_k": 2, "reduction": "turnstile"}])], ids=str)
def test_other_results_are_made_beside_it(rng: np.random.Generator, shared: dict[str, Any]) -> None:
    a, b = rng.integers(-2, 3, (2, 96, 96)).astype(numpy_dtype("bfloat16"))
    b = np.tile(b, (1, 3))
    row, tiled = (rng.integers(-2, 3, shape).astype("f4") for shape in ((288,), (96, 288)))
    given = with_others(row=row, tile=tiled)
    found, left = made(a, b, given, BF16(128, 128, 2), **shared)
    expected, left_there = made(a, b, given, BF16(128, 96, 2), **shared)
    assert (left, left_there) == (False, True)
    same_bits(found, expected)
    same_bits(found, lapidist.gemm(a, b, epilogue=given))


@lapidist.epilogue
def read_twice(acc: Any) -> Any:
    return lapidist.Quantised(acc, "int8"), lapidist.row_sum(acc)


def test_the_pass_stays_where_it_must(rng: np.random.Generator) -> None:
    """D apart from 16 bytes or by columns, a batch, peers in a cluster, values that another pass reads."""
    a, b = rng.integers(-2, 3, (2, 128, 128)).astype(numpy_dtype("bfloat16"))
    groups, config = epilogues.quantise_int8_groups, BF16(128, 128, 2)
    apart = np.empty((128, 136), np.int8)[:, 1:129], np.empty((128, 1), np.float32)
    down = np.empty((128, 128), np.int8).T, np.empty((128, 1), np.float32)
    in_cluster = {"split_k": 2, "reduction": "cluster"}
    cases = [
        (a, b, groups, {"out": apart}),
        (a, b, groups, {"out": down}),
        (np.stack([a, b]), np.stack([b, a]), groups, {}),
        (a, b, groups, in_cluster),
        (a, b, read_twice, {}),
    ]
    for first, second, function, more in cases:
        found, left = made(first, second, function, config, **more)
        assert left
        same_bits(found, lapidist.gemm(first, second, epilogue=function))


def test_a_plan_makes_them_again(rng: np.random.Generator) -> None:
    a, b = rng.integers(-2, 3, (2, 128, 128)).astype(numpy_dtype("bfloat16"))
    how = {"kernel": "wgmma", "config": BF16(128, 128, 2), "device": "machine"}
    planned = lapidist.plan(a, b, epilogue=epilogues.quantise_e4m3_groups, **how)
    first = planned.execute(a, b)
    again = planned.execute(-a, b)
    same_bits(again[1:], first[1:])
    np.testing.assert_array_equal(again[0].astype("f4"), -first[0].astype("f4"))


# ---- pieces of 16 bytes ----


@lapidist.epilogue
def every_kind(acc: Any, tile: lapidist.Tile) -> Any:
    value = acc + tile
    kinds = "bfloat16", "float16", "int8", "float32"
    return (value, *(lapidist.Output(value - place, kind) for place, kind in enumerate(kinds)))


@lapidist.epilogue
def every_kind_of_pairs(acc: lapidist.Pair, tile: lapidist.Tile) -> Any:
    one = acc.first + tile
    both = lapidist.Output(lapidist.Pair(one, acc.second), "bfloat16")
    return one, lapidist.Output(one, "float32"), lapidist.Output(one > 0, "bool"), both


@pytest.mark.often(1)
@pytest.mark.parametrize("function", [every_kind, every_kind_of_pairs], ids=lambda each: each.function.name)
@pytest.mark.parametrize(
    ("config", "n"),
    [
        (BF16(128, 48, 2), 112),
        *surveyed((BF16(*tiled), 288) for tiled in ((128, 48, 2), (128, 256, 2), (256, 128, 3))),
    ],
    ids=str,
)
def test_pieces_are_the_same_as_elements(
    rng: np.random.Generator, function: Any, config: Config, n: int
) -> None:
    """Where rows of what is read and stored start on 16 bytes, and where they do not."""
    a, b = (rng.integers(-2, 3, shape).astype(numpy_dtype("bfloat16")) for shape in ((140, 64), (64, n)))
    columns = n // 2 if function.function.paired else n
    values = rng.integers(-2, 3, (140, columns)).astype(numpy_dtype("bfloat16"))
    expected = lapidist.gemm(a, b, epilogue=function(tile=values))
    how: dict[str, Any] = {"kernel": "wgmma", "config": config, "device": "machine"}
    found = lapidist.gemm(a, b, epilogue=function(tile=values), **how)
    same_bits(found, expected)
    apart = np.zeros((140, columns + 1), values.dtype)[:, 1:]
    apart[...] = values
    same_bits(lapidist.gemm(a, b, epilogue=function(tile=apart), **how), expected)
    odd = tuple(np.empty((each.shape[0], each.shape[1] + 2), each.dtype)[:, 2:] for each in expected[1:])
    same_bits(lapidist.gemm(a, b, epilogue=function(tile=values), out=(None, *odd), **how), expected)
