"""Grouped products: whole numbers, so that every group is exact, with groups of no line, of one, of many, and
lines behind the last one. In the machine, in orders that seeds draw.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import lapidist
from group_products import H200, UNTOUCHED, group_product, launched, require_right, run_sanitized
from in_turns import in_turns, surveyed
from lapidist import machine
from lapidist.config import Config
from lapidist.device import chip
from lapidist.errors import RefusalError
from lapidist.frameworks.arrays import HOST, Operand
from lapidist.kernels.clipped_maps import CLIPPED_LINES, CLIPPED_SHIFT, MOST_LINES, clipped
from lapidist.kernels.registry import kernel_named
from lapidist.kernels.wgmma.family import tile
from lapidist.launch import TensorMap
from lapidist.planning.plans import make_plan
from lapidist.problems.modes import Modes
from lapidist.problems.problem import Problem
from lapidist.problems.ragged import Ragged

ALONE = replace(chip("h200"), sms=1)
LENGTHS = [0, 33, 1, 0, 150, 64, 0]
MANY = [(7 * i) % 5 for i in range(70)]  # more groups than a warp has lanes
SPARSE = [3 * (i % 19 == 14) for i in range(70)]  # the same, few of which have a line
SMALL, PAIR_M, PAIR_N = (
    tile("float16", 64, 32, 2),
    tile("float16", 64, 32, 2, (2, 1)),
    tile("float16", 64, 32, 2, (1, 2)),
)
WHOLE_K, SLICES = (kernel_named("sgemm").configs_for("float32")[at][0] for at in (0, -1))
PING_PONG = next(
    c for c, _ in kernel_named("wgmma").configs_for("float16") if c.ping_pong and not c.exchanged
)
WAYS: dict[str, tuple[str, str, Config | None]] = {
    "wgmma": ("wgmma", "float16", SMALL),
    "pair along m": ("wgmma", "float16", PAIR_M),
    "pair along n": ("wgmma", "float16", PAIR_N),
    "ping-pong": ("wgmma", "float16", PING_PONG),
    "mma float16": ("mma", "float16", None),
    "mma int8": ("mma", "int8", None),
    "simt float32": ("simt", "float32", None),
    "simt float64": ("simt", "float64", None),
    "sgemm": ("sgemm", "float32", WHOLE_K),
    "sgemm in slices": ("sgemm", "float32", SLICES),
}
# further tests of sgemm, and those of wgmma's last tiles, stand for the others in `make test`
OFTEN = [
    ("pair along m", "k"),
    ("pair along n", "m"),
    ("ping-pong", "k"),
    ("mma float16", "m"),
    ("mma int8", "k"),
    ("simt float64", "k"),
]
MANY_BY = ("wgmma", "mma float16", "simt float32", "sgemm")
# how A and B lie; wgmma takes groups of lines that lie beside each other
TURNED = {"m": (False, True), "n": (True, True), "k": (True, False)}


@pytest.mark.often(2)
@pytest.mark.parametrize(("way", "extent"), in_turns(WAYS, ["m", "k"], often=OFTEN))
def test_each_group_is_its_own_product(rng: np.random.Generator, way: str, extent: str) -> None:
    kernel, dtype, config = WAYS[way]
    many = [(SPARSE if kernel == "sgemm" else MANY, (40, 40))] if way in MANY_BY else []
    turned = (extent == "k", False) if kernel == "sgemm" else TURNED[extent]  # as it is not packed
    for seed, (lengths, others) in enumerate([(LENGTHS, (72, 40)), *many]):
        product = group_product(rng, extent, lengths, others, dtype, 29, turned)
        require_right(product, run_sanitized(product, kernel, config, seed))


@pytest.mark.often(1)
@pytest.mark.parametrize(
    ("turned", "extent", "kernel"),
    in_turns(product([False, True], repeat=2), ["m", "n", "k"], ["mma", "simt", "sgemm"]),
)
def test_every_layout_and_alignment(
    rng: np.random.Generator, kernel: str, extent: str, turned: tuple[bool, bool]
) -> None:
    dtype = "float16" if kernel == "mma" else "float32"
    groups = group_product(rng, extent, LENGTHS, (37, 29), dtype, 3, turned)
    if kernel == "sgemm" and (extent == "n" or turned[0] != (extent == "k")):
        with pytest.raises(RefusalError, match=r"TMA cuts [AB] between its lines"):
            run_sanitized(groups, kernel, None, 3)
        return
    require_right(groups, run_sanitized(groups, kernel, None, 3))


@pytest.mark.parametrize("seed", [0, *surveyed([1])])
def test_few_tokens_are_columns_of_tiles(rng: np.random.Generator, seed: int) -> None:
    """With A and B exchanged, groups cut columns of the tiles."""
    exchanged = next(
        c
        for c, _ in kernel_named("wgmma").configs_for("float16")
        if c.exchanged and c.bn <= 64 and not c.skewed
    )
    product = group_product(rng, "m", LENGTHS, (72, 40), "float16", 29, (False, True))
    require_right(product, run_sanitized(product, "wgmma", exchanged, seed))


def test_a_map_ends_with_a_group() -> None:
    plain = TensorMap(1 << 20, "float16", (64, 500, 1, 1), (128, 16, 16), (64, 32, 1, 1), 128)
    cut = clipped(plain, 500)
    at, end = 100, 117
    left = end - at
    line, shift = CLIPPED_LINES - left, at + left - CLIPPED_LINES + CLIPPED_SHIFT
    place = sum(x * step for x, step in zip((line, shift, CLIPPED_SHIFT), cut.strides, strict=True))
    assert place % (1 << 64) == at * 128
    assert cut.shape[1] - line == left
    assert all(step % 16 == 0 and 0 < step < 1 << 40 for step in cut.strides)


@pytest.mark.parametrize("kernel", ["simt", "sgemm"])
def test_alpha_beta_and_c_of_gradients(rng: np.random.Generator, kernel: str) -> None:
    product = group_product(rng, "k", LENGTHS, (40, 24), "float32", 0, (True, False))
    c = rng.integers(-3, 4, product.expected.shape).astype(np.float32)
    found = lapidist.grouped(
        product.a, product.b, product.ends, c, alpha=2.0, beta=-1.0, device="machine", kernel=kernel
    )
    assert np.array_equal(found, 2 * product.expected - c)


@pytest.mark.parametrize("place", [{"device": "machine", "kernel": "simt"}, {}], ids=["simt", "host"])
def test_alpha_and_beta_of_gradients_lie_in_memory(rng: np.random.Generator, place: dict[str, Any]) -> None:
    product = group_product(rng, "k", [0, 33, 1], (40, 24), "float32", 0, (True, False))
    c = rng.integers(-3, 4, product.expected.shape).astype(np.float32)
    alpha, beta = np.array(2, np.float32), np.array(-1, np.float32)
    found = lapidist.grouped(product.a, product.b, product.ends, c, alpha=alpha, beta=beta, **place)
    assert np.array_equal(found, 2 * product.expected - c)


@pytest.mark.parametrize(("kernel", "dtype"), [("wgmma", "float16"), ("sgemm", "float32")])
def test_beta_and_c_of_rows(rng: np.random.Generator, kernel: str, dtype: str) -> None:
    product = group_product(rng, "m", LENGTHS, (72, 40), dtype, 5, (False, True))
    c = rng.integers(-3, 4, product.expected.shape).astype(dtype)
    out = np.full(c.shape, UNTOUCHED, dtype)
    lapidist.grouped(
        product.a, product.b, product.ends, c, beta=3.0, out=out, device="machine", kernel=kernel
    )
    last = int(product.ends[-1])
    assert np.array_equal(out[:last], product.expected[:last] + 3 * c[:last])
    assert (out[last:] == UNTOUCHED).all()


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("kernel", "dtype"), [("wgmma", "float16"), ("mma", "float16"), ("sgemm", "float32")]
)
def test_counts_of_rows(rng: np.random.Generator, kernel: str, dtype: str) -> None:
    counts = np.array([0, 5, 40, 17], np.int64)
    a, b = (rng.integers(-3, 4, shape).astype(dtype) for shape in ((4, 40, 24), (4, 24, 32)))
    expected = a.astype("f8") @ b.astype("f8")
    for number, count in enumerate(counts):
        a[number, count:] = np.nan
    out = np.full((4, 40, 32), UNTOUCHED, dtype)
    lapidist.grouped(a, b, counts=counts, out=out, device="machine", kernel=kernel)
    for number, count in enumerate(counts):
        assert np.array_equal(out[number, :count], expected[number, :count])
        assert (out[number, count:] == UNTOUCHED).all()


@pytest.mark.parametrize("ends", [[50, 20, 90, 400], [-5, 60, 1 << 40, 3]])
def test_wrong_ends_stay_inside(rng: np.random.Generator, ends: list[int]) -> None:
    """The machine watches bounds. Groups that overlap write the same rows, each in its own order."""
    of_types = (
        group_product(rng, "m", [30, 30, 20, 10], (72, 40), dtype, 7, (False, True))
        for dtype in ("float16", "float32")
    )
    halves, singles = (product._replace(ends=np.array(ends, np.int64)) for product in of_types)
    ways = ((halves, "wgmma", SMALL), (halves, "mma", None), (halves, "simt", None), (singles, "sgemm", None))
    for wrong, kernel, config in ways:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("lapidist.calls.group_operands.GroupOperands.require_fit", lambda *_: None)
            run_sanitized(wrong, kernel, config, None)


def test_what_wgmma_does_not_cut(rng: np.random.Generator) -> None:
    product = group_product(rng, "k", LENGTHS, (72, 40), "float16", 0, (False, False))
    with pytest.raises(RefusalError, match="their lines start anywhere"):
        lapidist.grouped(product.a, product.b, product.ends, device="machine", kernel="wgmma")


def test_what_sgemm_does_not_cut(rng: np.random.Generator) -> None:
    place = {"device": "machine", "kernel": "sgemm"}
    a, b = np.zeros((4, 40, 23), np.float32), np.zeros((4, 23, 32), np.float32)
    with pytest.raises(RefusalError, match="A is packed up to the last group; with counts"):
        lapidist.grouped(a, b, counts=np.int32([0, 5, 40, 17]), **place)
    columns = group_product(rng, "n", LENGTHS, (72, 40), "float32", 0, (False, True))
    with pytest.raises(RefusalError, match=r"TMA cuts B between its lines; .* columns in 7 groups cut them"):
        lapidist.grouped(columns.a, columns.b, columns.ends, **place)


def test_totals_are_counted_in_32_bits() -> None:
    a = Operand("a", 1 << 32, (4, 64, 64), (0, 64, 1), "float16", HOST, "numpy", None)
    b = Operand("b", 1 << 40, (4, 64, 64), (4096, 1, 64), "float16", HOST, "numpy", None)
    d = Operand("d", 1 << 48, (4, 64, 64), (0, 64, 1), "float16", HOST, "numpy", None)
    for total, words in (
        (1 << 31, "counted in 32 bits; the largest is"),
        (MOST_LINES + 1, "places of lines"),
    ):
        problem = Problem.of(a, b, None, d, modes=Modes(ragged=Ragged("m", 4, total)))
        with pytest.raises(RefusalError, match=words):
            make_plan(problem, chip("h200"), kernel_named("wgmma"))


@pytest.mark.parametrize(
    ("tokens", "b_strides", "fastest"), [(8192, (14336, 1), "sgemm"), (1024, (1, 4096), "simt")]
)
def test_the_faster_of_two_is_chosen(tokens: int, b_strides: tuple[int, int], fastest: str) -> None:
    """As on an H200: sgemm takes 0.94 of simt's time, and 1.13 where it packs a B that few rows read."""
    a = Operand("a", 1 << 32, (8, tokens // 8, 4096), (0, 4096, 1), "float32", HOST, "numpy", None)
    b = Operand("b", 1 << 40, (8, 4096, 14336), (4096 * 14336, *b_strides), "float32", HOST, "numpy", None)
    d = Operand("d", 1 << 48, (8, tokens // 8, 14336), (0, 14336, 1), "float32", HOST, "numpy", None)
    problem = Problem.of(a, b, None, d, modes=Modes(ragged=Ragged("m", 8, tokens)))
    assert make_plan(problem, chip("h200")).kernel.name == fastest


def test_patches_are_held_within_a_group(rng: np.random.Generator) -> None:
    """Patches of a tile of gradients leave during the next tile, if that has as many steps. A shorter group's
    may have fewer than there are patches.
    """
    product = group_product(rng, "k", [64 * 7, 0, 64, 64 * 6 - 5], (64, 384), "float16", 3, (True, False))
    require_right(product, run_sanitized(product, "wgmma", tile("float16", 64, 192, 2), 0, ALONE))


@pytest.mark.often(1)
@pytest.mark.parametrize(
    ("extent", "others"), [("m", (37, 29)), ("k", (40, 40)), *surveyed([("m", (72, 40)), ("k", (72, 130))])]
)
def test_one_block_has_all_tiles(rng: np.random.Generator, extent: str, others: tuple[int, int]) -> None:
    """More of them than the queue has slots. Groups end inside a step of k, with NaN behind the last one."""
    lengths = [0, 70, 1, 0, 65, 40, 0, 3]
    product = group_product(rng, extent, lengths, others, "float32", 29, (extent == "k", False))
    require_right(product, run_sanitized(product, "sgemm", SLICES, 1, ALONE))


def test_rows_behind_the_last_group_are_not_packed(rng: np.random.Generator) -> None:
    product, behind = group_product(rng, "m", [5, 0, 9], (32, 29), "float32", 50), 1234.0
    product.a[14:] = behind
    launch, scratch, result = launched(product, "sgemm", None, H200)
    machine.run(launch, sanitize=False, counting=False, residency=launch.grid[0])
    require_right(product, result)
    assert scratch is not None
    assert not (scratch.partials.view(np.float32) == behind).any()
