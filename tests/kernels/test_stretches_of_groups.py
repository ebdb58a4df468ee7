"""Stretches of the tiles of groups that are left, in kernels whose blocks share them (share/stretches.cuh).

Whole numbers, so that every sum is exact, in orders that seeds draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import pytest

import lapidist
from group_products import GroupProduct, group_product, launched, require_right, routed
from in_turns import in_turns, surveyed
from lapidist import machine
from lapidist.calls.bound import Bound
from lapidist.calls.operation import Groups, Operation
from lapidist.config import Config
from lapidist.device import chip
from lapidist.kernels.blocks import group_parts
from lapidist.kernels.blocks.group_parts import MOST_PARTS, OF_THREADS, parts_of_tiles
from lapidist.kernels.registry import kernel_named
from lapidist.kernels.simt import Simt
from lapidist.problems.problem import Problem
from lapidist.schedule.grid import ceil_div

H200 = chip("h200")
LEAST = 2  # steps of k of a part, so that a short k is cut
ONE, ZIPF, EVEN = [0, 0, 60, 0], [29, 0, 14, 10, 7], [15, 15, 15, 15]
SGEMM = [config for config, _ in kernel_named("sgemm").configs_for("float32")]


def smallest(kernel: str, dtype: str) -> Config:
    configs = [config for config, _ in kernel_named(kernel).configs_for(dtype)]
    return min(configs, key=lambda config: (config.bm * config.bn, config.bk))


SMALL = smallest("simt", "float32")
WAYS: dict[str, tuple[str, str, Config]] = {
    "mma float64": ("mma", "float64", smallest("mma", "float64")),
    "simt float32": ("simt", "float32", SMALL),
    "sgemm": ("sgemm", "float32", SGEMM[0]),
    "sgemm in slices": ("sgemm", "float32", SGEMM[-1]),
}
FIVE = "sgemm", "sgemm in slices", "mma float64"  # multiprocessors, over which their tiles are unequal


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_parts, "least_steps", lambda *_: LEAST)
    monkeypatch.setattr(Simt, "blocks_together", lambda *_: 1)


def run_cut(
    product: GroupProduct, way: str, sms: int, seed: int | None = None
) -> tuple[np.ndarray[Any, Any], int, int]:
    """The result, how many blocks left sums for another one, and how many blocks there are."""
    kernel, _, config = WAYS[way]
    launch, scratch, result = launched(product, kernel, config, replace(H200, sms=sms))
    assert scratch is not None
    # a driver is passed Python's integers
    assert all(type(number) is int for number in (*launch.grid, *launch.scratch))
    machine.run(launch, sanitize=seed is not None, seed=seed, counting=False, residency=launch.grid[0])
    scratch.require_zero_flags()
    of_block = scratch.partials.reshape(launch.grid[0], -1)
    return result, int((~np.isnan(of_block)).any(axis=1).sum()), launch.grid[0]


def stretches_inside_tiles(
    extent: str, lengths: Sequence[int], others: tuple[int, int], blocks: int, together: int = 1
) -> int:
    """How many stretches of SMALL's tiles end inside one, and so leave sums."""
    first, last = others
    if extent == "k":
        of_each = ceil_div(first, SMALL.bm) * ceil_div(last, SMALL.bn)
        steps = [ceil_div(length, SMALL.bk) for length in lengths if length for _ in range(of_each)]
        tiles = len(lengths) * of_each
    else:
        lines = sum(ceil_div(length, SMALL.bm) for length in lengths)
        tiles = lines * ceil_div(first, SMALL.bn) % blocks
        steps = [ceil_div(last, SMALL.bk)] * tiles
    if not steps:
        return 0
    each = max(ceil_div(sum(steps), blocks), LEAST, ceil_div(max(steps), MOST_PARTS))
    if extent == "k":
        longest_of_blocks = ceil_div(tiles, blocks) * max(steps)
        uncut = min(longest_of_blocks, ceil_div(of_each, blocks) * sum(steps) // of_each)
    else:
        uncut = ceil_div(len(steps) * together, blocks) * max(steps) // together
    if each + LEAST > uncut:
        return 0
    ends = set(accumulate(steps))
    return sum(place not in ends for place in range(each, sum(steps), each))


@pytest.mark.often(1)
@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize(
    ("way", "extent"),
    in_turns(
        WAYS,
        ["m", "k"],
        leave=[("sgemm", "m"), ("sgemm in slices", "m")],
        often=[("mma float64", "m"), ("simt float32", "k")],
    ),
)
def test_parts_are_added(rng: np.random.Generator, way: str, extent: str) -> None:
    """With a last step of k that is not full, and, of sgemm, tiles that a large group leaves to others."""
    _, dtype, config = WAYS[way]
    if extent == "m":
        rows = max(20, config.bm // 2)
        lengths, others = [0, rows, 1, 0, 2 * rows - 3], (40, config.bk * 6 - 4)
    else:
        lengths, others = [0, 2 * config.bk, 1, 0, 8 * config.bk - 3], (24, 40)
    product = group_product(rng, extent, lengths, others, dtype, 5, (extent == "k", False))
    found, left, _ = run_cut(product, way, 5 if way in FIVE else 3, 0)
    assert left
    require_right(product, found)


@pytest.mark.often(2)
@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize("extent", ["m", "k"])
@pytest.mark.parametrize("lengths", [ONE, ZIPF, EVEN], ids=["one", "zipf", "even"])
@pytest.mark.parametrize(("sms", "together"), [(1, 1), *surveyed([(3, 1), (1, 2), (3, 4)])])
def test_blocks_have_equal_stretches(
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
    extent: str,
    lengths: list[int],
    sms: int,
    together: int,
) -> None:
    """A large group is shared by blocks that would wait, as the rule of stretches says."""
    monkeypatch.setattr(Simt, "blocks_together", lambda *_: together)
    if extent == "k":
        lengths = [8 * length for length in lengths]
    others = (40, 200) if extent == "m" else (20, 40)
    product = group_product(rng, extent, lengths, others, "float32", 3, (extent == "k", False))
    found, left, blocks = run_cut(product, "simt float32", sms)
    assert left == stretches_inside_tiles(extent, lengths, others, blocks, together)
    assert left or lengths[0] == lengths[-1] or together > 1
    require_right(product, found)


@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize("extent", ["m", *surveyed(["k"])])
def test_groups_are_found_backwards(rng: np.random.Generator, extent: str) -> None:
    """With more groups than a warp has lanes, and than its lanes count at once."""
    long = 30 if extent == "m" else 600
    count = 300 if extent == "m" else 90
    lengths = [long * (number in (1, 33, count - 40)) for number in range(count)]
    others = (40, 200) if extent == "m" else (8, 8)
    product = group_product(rng, extent, lengths, others, "float32", 3, (extent == "k", False))
    found, left, blocks = run_cut(product, "simt float32", 1)
    assert left == stretches_inside_tiles(extent, lengths, others, blocks) > 0
    require_right(product, found)


@pytest.mark.usefixtures("short_parts")
def test_rows_are_gathered_and_scattered_once(rng: np.random.Generator) -> None:
    product = routed(rng, group_product(rng, "m", ZIPF, (40, 200), "float32", 5))
    found, left, _ = run_cut(product, "simt float32", 1)
    assert left
    require_right(product, found)


@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize(("kernel", "dtype"), [("simt", "float32"), *surveyed([("mma", "float64")])])
def test_what_follows_sums_is_done_once(rng: np.random.Generator, kernel: str, dtype: str) -> None:
    """With counts, C and a caller's function, by the block that has all sums."""
    a, b = (rng.integers(-2, 3, shape).astype(dtype) for shape in ((3, 40, 600), (3, 600, 32)))
    counts = np.int32([0, 33, 2])
    for number, count in enumerate(counts):
        a[number, count:] = np.nan
    c = rng.integers(-3, 4, (3, 40, 32)).astype(dtype)
    how: dict[str, Any] = {"counts": counts, "beta": 2.0, "epilogue": lapidist.epilogues.relu}
    out = np.full_like(c, 7)
    lapidist.grouped(a, b, None, c, **how, out=out, device="machine", kernel=kernel)
    host = lapidist.grouped(np.nan_to_num(a), b, None, c, **how)
    for number, count in enumerate(counts):
        assert np.array_equal(out[number, :count], host[number, :count])
        assert (out[number, count:] == 7).all()


@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize("extent", ["m", *surveyed(["k"])])
def test_alpha_of_zero_reads_nothing(rng: np.random.Generator, extent: str) -> None:
    """Nor does an empty k, whose groups are stored all the same."""
    others = (40, 200) if extent == "m" else (20, 40)
    product = group_product(rng, extent, ONE, others, "float32", 3, (extent == "k", False))
    a, b = (np.full_like(operand, np.nan) for operand in (product.a, product.b))
    alpha = np.zeros((), np.float32) if extent == "m" else 0.0  # in memory, or known to the host
    found = lapidist.grouped(a, b, product.ends, alpha=alpha, device="machine", kernel="simt")
    assert not found[: len(product.expected) if extent == "k" else product.ends[-1]].any()


@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize("extent", ["m", "k"])
def test_wrong_ends_stay_inside(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, extent: str
) -> None:
    """Ends that fall, or lie outside: the machine refuses accesses outside of the arrays."""
    others = (40, 200) if extent == "m" else (20, 40)
    product = group_product(rng, extent, [30, 0, 30, 1], others, "float32", 0, (extent == "k", False))
    wrong = product._replace(ends=np.int32([50, 20, 900, -4]))
    monkeypatch.setattr("lapidist.calls.group_operands.GroupOperands.require_fit", lambda *_: None)
    result, _, _ = run_cut(wrong, "simt float32", 1)
    assert result.shape == product.expected.shape


def test_invariant_rows_have_the_order_of_the_product_alone() -> None:
    a, b = np.ones((32, 2048), np.float32), np.ones((2, 2048, 40), np.float32)
    how: dict[str, Any] = {"kernel": "simt", "device": "machine"}
    plans = {
        flag: lapidist.plan(a, b, offsets=np.int32([32, 32]), invariant=flag, **how) for flag in (False, True)
    }
    assert "stretches" in str(plans[False].sum_order)
    alone = str(lapidist.plan(a, b[0], invariant=True, **how).sum_order)
    assert str(plans[True].sum_order) == alone != str(plans[False].sum_order)


def problem_of(rows: int, k: int) -> Problem:
    a, b = np.empty((rows, k), np.float32), np.empty((2, k, 64), np.float32)
    return Bound(a, b, None, None, Operation(groups=Groups(np.int32([rows, rows])))).problem()


def parts(rows: int, k: int) -> int:
    return parts_of_tiles(problem_of(rows, k), SMALL, "fma", 2, OF_THREADS)


def test_tiles_are_cut_where_it_pays() -> None:
    """Not where k is short, nor where so many tiles follow each other that the last ones hardly matter."""
    assert parts(64, 1 << 14) == MOST_PARTS
    assert parts(64, 256) == 1
    most = OF_THREADS.rows * 2 * H200.sms * SMALL.bm * SMALL.bn // 64
    assert parts(most, 4096) > 1
    assert parts(most + 1, 4096) == 1


@pytest.mark.parametrize(("kernel", "dtype"), [("mma", "float16"), ("mma", "int8"), ("sgemm", "float32")])
def test_rows_of_these_stay_whole(kernel: str, dtype: str) -> None:
    """They gained nothing, or lost."""
    a, b = np.ones((512, 4096), dtype), np.ones((8, 4096, 1024), dtype)
    ends = np.arange(64, 513, 64, dtype=np.int32)
    assert lapidist.plan(a, b, offsets=ends, device="machine", kernel=kernel).workspace_bytes == 0
