"""What sharing costs: the model that picks the number of blocks, its constants from measurements, and the
simulated times.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lapidist.errors import ArgumentError
from lapidist.schedule import (
    CostModel,
    Measurement,
    Schedule,
    TileGrid,
    data_parallel,
    fit,
    split_k,
    stream_k,
)
from lapidist.schedule.calibrate import calibrate, probes
from lapidist.schedule.grid import most_peers
from lapidist.schedule.makers import Search
from lapidist.schedule.schedule_options import TURNSTILE, Grids, ScheduleOption, ScheduleOptions
from lapidist.schedule.simulate import simulate
from schedule_cases import FREE, many, schedules, work

# ---- the cost model ----


def test_only_what_32_bits_count_is_weighed() -> None:
    """All tiles in one region have more iterations than that; those of a tile alone have not."""
    grid = Grids.one(TileGrid(2, 2, 2**30))
    options = ScheduleOptions(
        grid,
        [
            ScheduleOption.stream(True, 4, 3),
            ScheduleOption.split(True, 4, 2, TURNSTILE),
            ScheduleOption.split(False, 4, 2, TURNSTILE),
        ],
    )
    assert options.countable.tolist() == [[False], [True], [False]]


@many
@given(st.integers(1, 30), st.integers(1, 40), st.integers(1, 60))
def test_peers_are_not_underestimated(tiles: int, iterations: int, blocks: int) -> None:
    blocks = min(blocks, tiles * iterations)
    found = most_peers(tiles, blocks, iterations)
    schedule = stream_k(TileGrid(1, tiles, iterations), sms=99, sk_tiles=tiles, sk_blocks=blocks)
    assert max(unit.peers for units in work(schedule) for unit in units) <= found
    assert found <= min(blocks, iterations)  # each has an iteration of the tile, or none of it


@many
@given(st.integers(1, 60), st.integers(1, 64), st.integers(2, 20))
def test_the_choice_is_no_worse_than_any_other(tiles: int, iterations: int, sms: int) -> None:
    grid, costs = TileGrid(1, tiles, iterations), CostModel()
    chosen = simulate(stream_k(grid, sms=sms), sms).end
    assert chosen <= simulate(data_parallel(grid), sms).end + 1e-6
    found = Search(grid, sms, 1, 2, costs).best()
    if found is not None:
        most = min(sms, iterations)
        others = [
            Search(grid, sms, 1, 2, costs, 1.0, found.tiles, blocks).best() for blocks in range(1, most + 1)
        ]
        assert all(
            found.cost <= other.cost
            for other in others
            if other is not None and other.blocks > min(sms - 1, found.tiles)
        )


def test_the_last_full_wave_is_shared_too_where_that_saves_peers() -> None:
    """Nine tiles on four SMs: the ninth alone would have four peers; five tiles for four blocks have two."""
    schedule = stream_k(TileGrid(3, 3, 32), sms=4)
    assert (schedule.sk_tiles, schedule.sk_blocks, schedule.dp_tiles) == (5, 4, 4)
    alone = stream_k(TileGrid(3, 3, 32), sms=4, sk_tiles=1)
    assert simulate(alone, 4).end > simulate(schedule, 4).end


@many
@given(st.integers(1, 60), st.integers(1, 64), st.integers(2, 12), st.integers(1, 4), st.integers(1, 9))
def test_chosen_blocks_are_long_enough_and_fit_beside_the_others(
    tiles: int, depth: int, sms: int, occupancy: int, least: int
) -> None:
    schedule = stream_k(
        TileGrid(1, tiles, depth), sms=sms, occupancy=occupancy, min_iterations=least, costs=FREE
    )
    if schedule.sk_blocks:
        waves = -(-schedule.sk_blocks // sms) + schedule.dp_tiles // sms % occupancy
        assert schedule.normal_iterations >= least
        assert waves <= occupancy


def test_fit_finds_the_costs_again(rng: np.random.Generator) -> None:
    true = CostModel(2e-6, 1.5e-6, 4e-7, 8e-7)
    shapes = [(int(rng.integers(1, 200)), int(rng.integers(1, 9))) for _ in range(60)]
    found = fit([Measurement(i, p, true.block(i, p) * float(rng.normal(1, 0.01))) for i, p in shapes])
    for name in ("start", "fixup", "iteration", "peer"):
        assert getattr(found, name) == pytest.approx(getattr(true, name), rel=0.2)
    assert found.iteration == pytest.approx(true.iteration, rel=0.01)
    assert (found.unit, found.source) == ("seconds", "fitted to 60 measurements")


def test_fit_holds_costs_at_zero() -> None:
    found = fit(
        [Measurement(i, p, 1e-6 * i + (0 if p == 1 else 1e-9)) for i in (10, 20, 40) for p in (1, 2, 3)]
    )
    assert found.peer >= 0
    assert found.fixup >= 0


def test_fit_needs_variety() -> None:
    with pytest.raises(ArgumentError, match="do not tell 4 costs apart"):
        fit([Measurement(i, 1, 1e-6 * i) for i in range(1, 20)])


@many
@given(st.integers(1, 12), st.integers(1, 6), st.integers(1, 30))
def test_simulation_of_one_wave_is_the_model(tiles: int, splits: int, each: int) -> None:
    costs = CostModel(1.5, 4, 1, 2.5)
    end = simulate(split_k(TileGrid(1, tiles, each * splits), splits), tiles * splits, costs=costs).end
    assert end == pytest.approx(costs.block(each, splits))


def test_calibration_finds_the_costs_of_the_simulated_chip() -> None:
    true = CostModel(2e-6, 1.5e-6, 4e-7, 8e-7)
    found = calibrate(132, 1, lambda schedule: simulate(schedule, 132, costs=true).end, "a simulated chip")
    for name in ("start", "fixup", "iteration", "peer"):
        assert getattr(found, name) == pytest.approx(getattr(true, name), rel=1e-6)
    assert (found.source, found.alongside) == ("a simulated chip", None)


def test_blocks_beside_each_other_hide_each_others_waits() -> None:
    true = CostModel(0.0, 1.5e-6, 4e-7, 8e-7, alongside=3e-7)
    found = calibrate(20, 3, lambda schedule: simulate(schedule, 20, occupancy=3, costs=true).end)
    assert found.iteration == pytest.approx(true.iteration, rel=1e-6)
    assert found.alongside == pytest.approx(true.alongside, rel=1e-6)
    assert [true.pace(blocks) for blocks in (1, 2, 3)] == pytest.approx([1.0, 4 / 7, 4 / 10])


def test_a_balanced_launch_is_left_data_parallel() -> None:
    """Eight tiles on two SMs that hold three blocks each: two waves of blocks, but as much to do for either
    SM.
    """
    costs = CostModel(alongside=0.8)
    assert stream_k(TileGrid(1, 8, 50), sms=2, occupancy=3, costs=costs).kind == "data-parallel"
    assert stream_k(TileGrid(1, 9, 50), sms=2, occupancy=3, costs=costs).kind == "Stream-K"


def test_probes_fill_one_wave_with_blocks_that_are_alike() -> None:
    for schedule, probe in probes(20, per_sm=3):
        assert 20 * probe.resident - probe.peers < schedule.blocks <= 20 * probe.resident
        alike = {(unit.iterations, unit.peers) for units in work(schedule) for unit in units}
        assert alike == {(probe.iterations, probe.peers)}


def test_defaults_say_that_they_are_not_measured() -> None:
    assert "uncalibrated" in CostModel().source


# ---- the simulation ----


@many
@given(schedules(), st.integers(1, 2), st.integers(2, 9))
def test_simulation_keeps_the_work(case: tuple[Schedule, int], occupancy: int, sms: int) -> None:
    schedule, resident = case
    assume(resident <= sms * occupancy)
    costs = CostModel()
    line = simulate(schedule, sms, occupancy=occupancy, costs=costs)
    computed = sum(span.k_end - span.k_begin for span in line.spans if span.kind == "compute")
    assert computed == schedule.grid.tiles * schedule.grid.iterations
    assert line.end >= computed * costs.iteration / sms - 1e-6
    places: dict[tuple[int, int], float] = defaultdict(float)
    for span in line.spans:
        assert span.begin >= places[span.sm, span.place] - 1e-6
        places[span.sm, span.place] = span.end


def test_simulation_by_hand() -> None:
    costs = CostModel(start=2, fixup=8, iteration=1, peer=3)
    assert simulate(data_parallel(TileGrid(1, 5, 10)), 2, costs=costs).end == 3 * 12
    assert simulate(data_parallel(TileGrid(1, 4, 10)), 2, occupancy=2, costs=costs).end == pytest.approx(
        2 * 12
    )
    # Blocks go to empty SMs first.
    assert simulate(data_parallel(TileGrid(1, 2, 10)), 2, occupancy=2, costs=costs).end == 12
    # Two blocks share the rate of one SM until the smaller one, of six iterations, is done at 12.
    assert simulate(
        split_k(TileGrid(1, 1, 13), 2), 1, occupancy=2, costs=CostModel(0, 0, 1, 0)
    ).end == pytest.approx(13)
    # Two blocks of five: one hands on at 15, the other takes in from there on.
    line = simulate(split_k(TileGrid(1, 1, 10), 2), 2, costs=costs)
    assert line.end == 2 + 5 + 8 + 3
    assert line.busy("wait") == 8
    assert line.efficiency == 10 / 2 / line.end
    # Both hand on at 15; then a third block, which waits from 2 on, takes in both.
    line = simulate(split_k(TileGrid(1, 1, 10), 2, reduction="separate"), 3, costs=costs)
    assert line.end == 2 + 5 + 8 + 2 * 3
    assert (line.busy("fixup"), line.busy("wait"), line.busy("reduce")) == (16, 13, 6)


def test_steps_that_take_no_time_leave_no_span_but_products_do() -> None:
    for costs, kinds in ((CostModel(0, 0, 1, 0), ["compute"]), (CostModel(2, 0, 0, 0), ["start", "compute"])):
        line = simulate(data_parallel(TileGrid(1, 1, 8)), 1, costs=costs)
        assert [span.kind for span in line.spans] == kinds
