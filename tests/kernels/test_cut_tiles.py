"""The last tiles of groups, which several blocks share where fewer are left than blocks. Where groups cut k,
all of them.

Whole numbers, so that every sum is exact, in orders that seeds draw.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lapidist
from group_products import group_product, require_right, run_cut, run_sanitized
from in_turns import in_turns
from lapidist.calls.bound import Bound
from lapidist.calls.operation import Groups, Operation
from lapidist.device import Device, chip
from lapidist.kernels.blocks.group_parts import MOST_PARTS
from lapidist.kernels.registry import kernel_named
from lapidist.kernels.wgmma import group_parts
from lapidist.kernels.wgmma.family import tile
from lapidist.kernels.wgmma.group_parts import LEAST_STEPS

H200 = chip("h200")
LENGTHS = [0, 33, 1, 0, 70]
LONG = 64 * 3 * LEAST_STEPS - 24  # three parts of k, the last one with a short step
SMALL = tile("float16", 64, 32, 2)
CONFIGS = {
    "alone": SMALL,
    "pair along m": tile("float16", 64, 32, 2, (2, 1)),
    "pair along n": tile("float16", 64, 32, 2, (1, 2)),
    "exchanged": next(
        config
        for config, _ in kernel_named("wgmma").configs_for("float16")
        if config.exchanged and config.bn <= 64 and not config.skewed and not config.ping_pong
    ),
}
# Multiprocessors, for which tiles are too few from the start, or after one tile each.
CHIPS = {
    "alone": {"few tiles": 24, "after whole ones": 6},
    "pair along m": {"few tiles": 24, "after whole ones": 8},
    "pair along n": {"few tiles": 24, "after whole ones": 6},
    "exchanged": {"few tiles": 48, "after whole ones": 20},
}


LEAST = 2  # steps of k of a part, so that a short k is cut
# Of k, in steps of 64: empty groups, short ones, and one longer than all others.
LENGTHS_OF_K = [0, 64 * LEAST, 1, 0, 64 * 6 * LEAST - 24, 200]


@pytest.mark.parametrize(("groups", "n", "cut"), [(4, 1024, True), (2, 2048, False)])
def test_tiles_are_whole_where_one_group_fills_half_the_chip(groups: int, n: int, cut: bool) -> None:
    a, b, ends = np.empty((8192, 2048), "f2").T, np.empty((8192, n), "f2"), np.full(groups, 8192, "i4")
    problem = Bound(a, b, None, None, Operation(groups=Groups(ends))).problem()
    parts = group_parts.parts_of_tiles(problem, tile("float16", 128, 256, 4, (2, 1)))
    assert (parts > 1) == cut


def few_sms(count: int) -> Device:
    """A chip on which blocks have several tiles each before the last ones are cut."""
    return replace(H200, sms=count)


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_parts, "LEAST_STEPS", LEAST)


@pytest.mark.often(1)
@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize(
    ("name", "sms"),
    in_turns(CONFIGS, [6, 16], leave=[("exchanged", 6)], often=[("alone", 16), ("pair along m", 6)], share=1),
)
def test_long_groups_of_k_are_shared(rng: np.random.Generator, name: str, sms: int) -> None:
    product = group_product(rng, "k", LENGTHS_OF_K, (72, 40), "float16", 29, (True, False))
    found, parts = run_cut(product, CONFIGS[name], sms, few_sms(sms))
    assert parts
    require_right(product, found)


def test_a_large_d_leaves_the_l2_first(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patches of a tile with few steps are held for the next one, also of one step."""
    monkeypatch.setattr(group_parts, "d_streams", lambda *_: True)
    product = group_product(rng, "k", [60, 0, 130, 70], (136, 304), "float16", 4, (True, False))
    wide = tile("float16", 64, 192, 2)
    require_right(product, run_sanitized(product, "wgmma", wide, 0, few_sms(2)))


@pytest.mark.usefixtures("short_parts")
def test_empty_groups_of_k_are_stored(rng: np.random.Generator) -> None:
    """All of them: what lies behind the last group is NaN."""
    product = group_product(rng, "k", [0] * 5, (72, 40), "float16", 64 * 8 * LEAST, (True, False))
    require_right(product, run_sanitized(product, "wgmma", SMALL, 0, few_sms(4)))


@pytest.mark.parametrize(
    ("name", "place"),
    in_turns(CONFIGS, CHIPS["alone"], often=[("pair along n", "after whole ones")], share=1),
)
def test_parts_are_added(rng: np.random.Generator, name: str, place: str) -> None:
    sms = CHIPS[name][place]
    product = group_product(rng, "m", LENGTHS, (40, LONG), "float16", 29, (False, True))
    found, parts = run_cut(product, CONFIGS[name], sms, few_sms(sms))
    assert parts
    require_right(product, found)


@pytest.mark.parametrize(("sms", "count"), in_turns([40, 3], [70, 300], often=[(3, 300)]))
def test_a_walk_begins_near_its_first_tile(rng: np.random.Generator, sms: int, count: int) -> None:
    """With more groups than a warp has lanes, and than its lanes find at once."""
    lengths = [0] * count
    lengths[1], lengths[33], lengths[min(257, count - 3)] = 5, 70, 1
    product = group_product(
        rng, "m", lengths, (40, LONG // 3 + 64 * LEAST_STEPS), "float16", 3, (False, True)
    )
    require_right(product, run_sanitized(product, "wgmma", SMALL, 0, few_sms(sms)))


def test_patches_are_not_held_for_parts(rng: np.random.Generator) -> None:
    """Patches of a tile may be stored during the next tile's steps. A part has too few."""
    product = group_product(rng, "m", LENGTHS, (200, LONG), "float16", 29, (False, True))
    wide = tile("float16", 64, 192, 2)
    found, parts = run_cut(product, wide, None, few_sms(6))
    assert parts
    require_right(product, found)


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("lengths", "sms", "slots"),
    [
        ([0, 0, 64, 0], 132, 3 * 2),  # three tiles in three parts each, of which the last leaves nothing
        ([64, 64, 64, 0], 16, 0),  # nine tiles for 16 blocks stay whole
        ([64, 64, 64, 64], 10, 2 * 2),  # twelve tiles for ten blocks: two are left
        ([0, 0, 0, 0], 132, 0),
    ],
)
def test_as_many_parts_as_blocks(rng: np.random.Generator, lengths: list[int], sms: int, slots: int) -> None:
    product = group_product(rng, "m", lengths, (72, LONG), "float16", 29, (False, True))
    found, parts = run_cut(product, SMALL, None, few_sms(sms))
    assert parts == slots
    require_right(product, found)


def test_lengths_decide_the_bits(rng: np.random.Generator) -> None:
    """Equal lengths are cut alike in every run; whoever wants rows to keep their bits has those of the dense
    product.
    """
    a = rng.standard_normal((64, 64 * 2 * LEAST_STEPS)).astype(np.float16)
    b = rng.standard_normal((4, 72, a.shape[1])).astype(np.float16).swapaxes(1, 2)
    ends = {"one": np.int32([0, 64, 64, 64]), "even": np.int32([16, 32, 48, 64])}
    how: dict[str, Any] = {"kernel": "wgmma", "config": SMALL, "device": "machine"}
    same = [lapidist.grouped(a, b, ends["one"], **how) for _ in range(2)]
    assert np.array_equal(*same)
    plans = {flag: lapidist.plan(a, b, offsets=ends["one"], invariant=flag, **how) for flag in (False, True)}
    assert "cut into up to 2 stretches" in str(plans[False].sum_order)
    assert plans[True].sum_order == lapidist.plan(a, b[1], invariant=True, device="machine").sum_order
    alone = lapidist.matmul(a[20:30], b[1], invariant=True, device="machine")
    kept = [lapidist.grouped(a, b, ends[name], invariant=True, **how)[20:30] for name in ("one", "even")]
    assert all(np.array_equal(rows.view("u2"), alone.view("u2")) for rows in kept)


def test_what_follows_sums_is_done_once(rng: np.random.Generator) -> None:
    """With C, factors of blocks and a caller's function, by the block that has all sums."""
    k = 128 * 2 * LEAST_STEPS
    a = rng.integers(-3, 4, (90, k)).astype(ml_dtypes.float8_e4m3fn)
    b = rng.integers(-3, 4, (3, 128, k)).astype(ml_dtypes.float8_e4m3fn).swapaxes(1, 2)
    ends, blocks = np.int32([0, 70, 90]), k // 128
    of_a = 2.0 ** rng.integers(-1, 2, (90, blocks)).astype(np.float32)
    of_b = 2.0 ** rng.integers(-1, 2, (3, blocks, 1)).astype(np.float32)
    c = rng.integers(-3, 4, (90, 128)).astype(np.float32)
    how: dict[str, Any] = {"scale_a": of_a, "scale_b": of_b, "beta": 2.0, "epilogue": lapidist.epilogues.relu}
    found = lapidist.grouped(a, b, ends, c, **how, device="machine", kernel="wgmma")
    host = lapidist.grouped(a, b, ends, c, **how)
    assert MOST_PARTS >= 2
    assert np.array_equal(found, host)
