"""How the peers of few tiles bring their sums together in kernels whose blocks have a tile each: the cheapest
way that is possible, and what clusters find room for."""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.device import chip
from lapidist.kernels.blocks.splits import SPLITS, Peers, busiest, clusters_at_once, gathering, reduction_of
from lapidist.kernels.blocks.time import paces, standing
from lapidist.kernels.kernel_table import ScalarRow, config_alone
from lapidist.kernels.registry import kernel_named
from lapidist.planning.plans import make_plan
from lapidist.problems.problem import dense_problem
from lapidist.schedule.schedule_options import (
    CLUSTER,
    SEPARATE,
    TURNSTILE,
    Grids,
    ScalarOption,
    ScheduleOption,
)

H100, H200, A100 = chip("h100"), chip("h200"), chip("a100")
KIB = 1024


def asked(tile_bytes: int = 8 * KIB, per_sm: int = 3, fits: bool = True) -> Peers:
    return Peers(H200.sms, per_sm, tile_bytes, fits)


def test_the_cheapest_way_brings_sums_together() -> None:
    for splits in SPLITS:
        tiles = 10
        found = reduction_of(splits, tiles, asked())
        options = [SEPARATE, *[TURNSTILE] * (splits <= 4), *[CLUSTER] * (splits <= 8)]
        assert found == min(options, key=lambda option: gathering(option, splits, tiles * splits, 8 * KIB))
    assert reduction_of(4, 10, asked()) == CLUSTER
    assert reduction_of(2, 10, asked(fits=False)) == TURNSTILE
    assert reduction_of(12, 10, asked()) == SEPARATE
    assert reduction_of(12, 40, asked()) == 0  # more blocks than separate sums are worth


def test_clusters_must_all_find_room_with_some_to_spare() -> None:
    assert clusters_at_once(4, 3, 132) == 96
    assert reduction_of(4, 72, asked()) == CLUSTER
    assert reduction_of(4, 73, asked()) != CLUSTER
    assert reduction_of(4, 73, asked(per_sm=4)) == CLUSTER


@pytest.mark.parametrize("per_sm", [1, 2, 8])
def test_columns_and_numbers_choose_alike(per_sm: int) -> None:
    tiles, tile_bytes = np.array([1, 7, 16, 40, 100, 131]), np.array([2, 4, 8, 16, 32, 128]) * KIB
    fits = np.array([True, False, True, True, True, True])
    columns = reduction_of(np.array(SPLITS)[:, None], tiles, Peers(132, np.full(6, per_sm), tile_bytes, fits))
    for row, splits in enumerate(SPLITS):
        for at in range(len(tiles)):
            one = Peers(132, per_sm, int(tile_bytes[at]), bool(fits[at]))
            assert columns[row, at] == reduction_of(splits, int(tiles[at]), one)


def test_clusters_leave_sms_idle_that_others_fill() -> None:
    """17 clusters of six blocks lie on SMs of their own, the next one's blocks on SMs that have one."""
    grid = Grids(1, 18, 60, 18)
    option = ScalarOption(grid, ScheduleOption.split(True, 18, 6, CLUSTER, 1))
    assert busiest(option, 132, 2).iterations == 20
    assert (
        busiest(ScalarOption(grid, ScheduleOption.split(True, 18, 6, TURNSTILE, 1)), 132, 2).iterations == 10
    )
    fewer = ScalarOption(Grids(1, 17, 60, 17), ScheduleOption.split(True, 17, 6, CLUSTER, 1))
    assert busiest(fewer, 132, 2).iterations == 10


def row_of(bm: int, bn: int) -> ScalarRow:
    kernel = kernel_named("mma")
    config = next(each for each, _ in kernel.configs_for("float64") if (each.bm, each.bn) == (bm, bn))
    return config_alone(kernel, config, "float64").scalar_row


def test_a_block_alone_on_its_sm_waits_for_its_operands_in_double() -> None:
    problem = dense_problem(144, 304, 1520, "float64")
    small, large = (row_of(side, side) for side in (32, 128))
    for row, longer, most in ((small, 1.3, 1.5), (large, 1.0, 1.05)):
        alone, along = paces(problem, row, H200, standing(problem, row, H200))
        per_sm = standing(problem, row, H200).per_sm
        together = (alone + (per_sm - 1) * along) / per_sm
        assert longer <= alone / together <= most
    alone, _ = paces(problem, small, H200, standing(problem, small, H200))
    assert alone == pytest.approx(250e-9, rel=0.1)  # as was measured


@pytest.mark.parametrize("shape", [(144, 304, 1520), (352, 160, 1520), (152, 166, 1056)], ids=str)
def test_few_tiles_of_doubles_are_split_in_clusters(shape: tuple[int, int, int]) -> None:
    """Where there are clusters. On an H200 stream-K and turnstiles took 12 to 22 % longer."""
    problem = dense_problem(*shape, "float64")
    for device in (H100, H200):
        schedule = make_plan(problem, device).schedule
        assert schedule is not None
        assert schedule.reduction == "cluster"
        assert schedule.sk_blocks >= 3 * schedule.grid.tiles
    on_older = make_plan(problem, A100).schedule
    assert on_older is None or on_older.reduction != "cluster"
