"""Pairs of blocks and the GPCs they lie in: the order of their tiles; any order is right; a GPU's own is
found.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist import machine
from lapidist.backends.gpu.placement import further, groups_of, order_of, probed
from lapidist.frameworks.arrays import operand_of
from lapidist.kernels.wgmma.family import tile
from lapidist.launch import MOST_PAIRS
from wgmma_products import check, whole

GPCS = 4, 9, 9, 8, 8, 8, 8, 8, 4  # pairs that each holds


def round_robin(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(gpc for turn in range(max(sizes)) for gpc, size in enumerate(sizes) if turn < size)


@pytest.mark.parametrize(("clusters", "band"), [(66, 8), (64, 8), (60, 8), (33, 4), (10, 3), (9, 8)])
def test_tiles_are_dealt_once(clusters: int, band: int) -> None:
    found = further(round_robin(GPCS), clusters, band)
    assert sorted(pair + step for pair, step in enumerate(found)) == list(range(clusters))


def test_a_gpc_takes_a_row() -> None:
    groups = round_robin(GPCS)
    tiles = [pair + step for pair, step in enumerate(further(groups, 64, 8))]
    rows = [{groups[pair] for pair in range(64) if tiles[pair] % 8 == row} for row in range(8)]
    assert [len(row) for row in rows] == [1] * 7 + [2]


@pytest.mark.parametrize(("clusters", "band"), [(67, 8), (8, 8), (1, 1), (0, 1), (MOST_PAIRS + 1, 8)])
def test_more_than_the_chip_holds_or_one_column_stay_as_they_are(clusters: int, band: int) -> None:
    assert further(round_robin(GPCS), clusters, band) == ()


def test_a_larger_chip_has_no_more_pairs_in_order_than_the_kernel_has_room_for() -> None:
    groups = round_robin((40,) * 9)
    assert len(groups) > MOST_PAIRS
    assert len(further(groups, MOST_PAIRS, 8)) == MOST_PAIRS
    assert further(groups, MOST_PAIRS + 1, 8) == ()


def test_groups_are_what_clusters_have_in_common() -> None:
    clusters = [[0, 1, 4, 5], [2, 3, 6, 7], [4, 5, 8, 9]]
    assert groups_of(clusters, [2, 3, 0, 1, 8, 9, 4, 5, 6, 7, 10, 11]) == (2, 0, 0, 0, 2, 12)
    assert groups_of(clusters, [2, 3, 0, 1, 2, 3]) == ()  # the chip was busy, and an SM took two


@pytest.mark.parametrize("cluster", [(2, 1), (1, 2)])
def test_any_order_is_right(cluster: tuple[int, int]) -> None:
    a, b = whole((1100, 72), 1, "bfloat16"), whole((72, 96), 2, "bfloat16")
    plan = lapidist.plan(
        a, b, kernel="wgmma", config=tile("bfloat16", 64, 16, 2, cluster), device="machine"
    ).plan
    assert plan is not None
    d = np.zeros((1100, 96), a.dtype)
    launch = plan.launch(operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out"), 1.0, 0.0)
    pairs = plan.grid[0] // 2
    order = (*further(round_robin(GPCS), pairs, 8), *[0] * (MOST_PAIRS - pairs))
    ordered = launch.patched({"order": order})
    assert ordered.arguments != launch.arguments
    machine.run(ordered)
    check(d, a, b, alpha=1.0)


@pytest.mark.gpu
def test_the_chip_says_where_pairs_lie(torch: Any) -> None:
    a, b = (torch.randn(4096, 4096, device="cuda").bfloat16() for _ in range(2))
    gemm = lapidist.plan(a, b, kernel="wgmma", config=tile("bfloat16", 128, 256, 4, (2, 1)))
    assert gemm.plan is not None
    groups = probed(0, gemm.plan.device.sms, gemm.plan.device.architecture)
    assert len(groups) == gemm.plan.device.sms // 2
    assert all(1 < groups.count(group) <= 9 for group in set(groups))
    order = order_of(gemm.plan, 0)
    assert len(order) == MOST_PAIRS
    assert any(order)
    torch.testing.assert_close(gemm.execute(a, b), a @ b, rtol=2**-6, atol=1.0)
