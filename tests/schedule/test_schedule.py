"""Schedules by proof: every product computed once, nobody waits in vain, memory as promised, in random
cases.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lapidist.errors import ArgumentError
from lapidist.schedule import (
    CostModel,
    Raster,
    Schedule,
    TileGrid,
    WorkUnit,
    data_parallel,
    split_k,
    stream_k,
)
from lapidist.schedule.simulate import simulate
from schedule_cases import FREE, many, rasters, schedules, work

# ---- each product once ----


@many
@given(schedules())
def test_each_iteration_of_each_tile_once(case: tuple[Schedule, int]) -> None:
    schedule, _ = case
    grid = schedule.grid
    done = np.zeros((grid.tiles, grid.iterations), int)
    finished: Counter[tuple[int, int]] = Counter()
    for units in work(schedule):
        for unit in units:
            done[unit.tile, unit.k_begin : unit.k_end] += 1
            if schedule.finishes(unit):
                finished[unit.tile, unit.fragment] += 1
    assert (done == 1).all()
    assert set(finished.values()) <= {1}
    fragments = {tile: {f for t, f in finished if t == tile} for tile, _ in finished}
    assert len(fragments) == grid.tiles
    assert all(found in ({-1}, set(range(schedule.fragments))) for found in fragments.values())


@many
@given(schedules())
def test_peers_are_those_that_share_the_tile(case: tuple[Schedule, int]) -> None:
    schedule, _ = case
    sharing: dict[int, list[WorkUnit]] = defaultdict(list)
    for units in work(schedule):
        for unit in units:
            if unit.fragment < 0:
                sharing[unit.tile].append(unit)
    for units in sharing.values():
        ordered = sorted(units, key=lambda unit: unit.k_begin)
        assert [unit.peer for unit in ordered] == list(range(len(ordered)))
        assert {unit.peers for unit in ordered} == {len(ordered)}
        assert ordered[0].first
        assert ordered[-1].last
        assert all(unit.iterations > 0 for unit in ordered) or schedule.grid.iterations == 0


@many
@given(rasters(), st.integers(1, 20), st.integers(1, 20))
def test_rasters_are_permutations(raster: Raster, tiles_m: int, tiles_n: int) -> None:
    places = [raster.place(index, tiles_m, tiles_n) for index in range(tiles_m * tiles_n)]
    assert sorted(places) == [(row, column) for row in range(tiles_m) for column in range(tiles_n)]


def test_rasters_by_hand() -> None:
    def order(raster: Raster) -> list[list[int]]:
        picture = [[-1] * 4 for _ in range(3)]
        for index in range(12):
            row, column = raster.place(index, 3, 4)
            picture[row][column] = index
        return picture

    assert order(Raster()) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert order(Raster("n", 2)) == [[0, 2, 4, 6], [1, 3, 5, 7], [8, 9, 10, 11]]
    assert order(Raster("n", 2, 2)) == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 10, 11]]
    assert order(Raster("m")) == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]
    assert order(Raster("m", 2)) == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]
    assert Raster("n", 8, 4).place(31, 16, 8) == (7, 3)
    assert Raster("n", 8, 4).place(32, 16, 8) == (0, 4)


def test_every_schedule_visits_its_tiles_in_the_order_of_its_raster() -> None:
    grid, raster = TileGrid(3, 4, 6), Raster("m", 2)
    for make, more in ((data_parallel, {}), (split_k, {"splits": 2}), (stream_k, {"sms": 5})):
        assert make(grid, raster=raster, **more).raster == raster, make.__name__


# ---- nobody waits in vain ----


def play(schedule: Schedule, resident: int, choose: random.Random) -> list[tuple[int, WorkUnit]]:
    """Blocks dispatched in order into `resident` places; who moves next is random. Returns (launch index,
    unit) as handed on.
    """
    flags: Counter[int] = Counter()
    places: list[tuple[int, list[WorkUnit]]] = []
    handed, waiting = [], [(index, units) for index, units in enumerate(work(schedule))]
    while waiting or places:
        while waiting and len(places) < resident:
            places.append(waiting.pop(0))
        able = [
            place
            for place in places
            if not place[1] or flags[place[1][0].flag] >= schedule.arrivals_needed(place[1][0])
        ]
        assert able, f"{len(places)} blocks wait for each other in {schedule}"
        index, units = place = choose.choice(able)
        if not units:
            places.remove(place)
            continue
        unit = units.pop(0)
        if unit.peers > 1:
            handed.append((index, unit))
        if unit.peers > 1 and schedule.finishes(unit):
            assert flags[unit.flag] == schedule.arrivals_needed(unit)
            flags[unit.flag] = 0
        elif unit.peers > 1:
            for flag in range(
                unit.flag, unit.flag + (schedule.fragments if schedule.reduction == "separate" else 1)
            ):
                assert 0 <= flag < schedule.flags
                flags[flag] += 1
    assert not +flags, "a flag is left raised for the next launch"
    return handed


@many
@given(schedules(), st.integers(0, 2**32))
def test_no_deadlock_however_few_are_resident(case: tuple[Schedule, int], seed: int) -> None:
    """One resident block must do, unless the schedule says that it needs more."""
    schedule, resident = case
    play(schedule, resident, random.Random(seed))


@many
@given(schedules(), st.integers(0, 2**32))
@example((split_k(TileGrid(1, 1, 9), 5, reduction="atomic"), 1), 1)
@example((split_k(TileGrid(1, 1, 9), 5, reduction="atomic"), 1), 2)
def test_order_of_sums(case: tuple[Schedule, int], seed: int) -> None:
    schedule, _ = case
    orders: dict[int, list[int]] = defaultdict(list)
    for _, unit in play(schedule, max(schedule.launch_blocks, 1), random.Random(seed)):
        orders[unit.tile].append(unit.peer)
    if schedule.reduction == "turnstile":
        assert all(order == list(range(len(order))) for order in orders.values())
    if schedule.reduction == "atomic":
        assert all(order[0] == 0 and order[-1] == len(order) - 1 for order in orders.values())


@many
@given(schedules())
def test_waits_are_on_lower_indices_or_residents(case: tuple[Schedule, int]) -> None:
    schedule, resident = case
    launched_by = {
        (unit.tile, unit.peer): index
        for index, units in enumerate(work(schedule))
        for unit in units
        if unit.fragment < 0
    }
    for index, units in enumerate(work(schedule)):
        for unit in units:
            last = unit.peers if unit.fragment >= 0 else unit.peer
            for peer in range(last if schedule.arrivals_needed(unit) else 0):
                other = launched_by[unit.tile, peer]
                assert other <= index or max(other, index) < resident


def test_too_many_persistent_blocks_are_found_out() -> None:
    schedule = replace(
        stream_k(TileGrid(1, 3, 40), sms=4, sk_tiles=3, sk_blocks=16, persistent=True), launched=8
    )
    with pytest.raises(ArgumentError, match="wait for ones that are not resident"):
        simulate(schedule, 2)


# ---- shares ----


@many
@given(schedules())
def test_big_blocks_come_first_and_have_one_more(case: tuple[Schedule, int]) -> None:
    schedule, _ = case
    if schedule.sk_blocks:
        start = schedule.dp_blocks if schedule.dp_first else 0
        sizes = [
            sum(u.iterations for u in schedule.units(start + block)) for block in range(schedule.sk_blocks)
        ]
        assert max(sizes) - min(sizes) <= 1
        assert sizes == sorted(sizes, reverse=True)
        assert sum(sizes) == schedule.sk_tiles * schedule.grid.iterations


@many
@given(schedules())
def test_shared_tiles_are_walked_backwards_from_the_one_that_others_finish(
    case: tuple[Schedule, int],
) -> None:
    schedule, _ = case
    for block in range(schedule.blocks):
        shared = [unit for unit in schedule.units(block) if unit.peers > 1 and unit.fragment < 0]
        assert len(shared) <= 2
        assert [unit.k_begin for unit in shared[:-1]] == [0] * len(shared[:-1])
        if len(shared) == 2:
            assert shared[0].first
            assert shared[1].last
            assert shared[0].tile > shared[1].tile


@many
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 40), st.integers(1, 3))
def test_one_sm_is_the_data_parallel_kernel(
    tiles_m: int, tiles_n: int, iterations: int, occupancy: int
) -> None:
    grid = TileGrid(tiles_m, tiles_n, iterations)
    assert stream_k(grid, sms=132, avail_sms=1, occupancy=occupancy) == data_parallel(grid)
    assert stream_k(grid, sms=132, avail_sms=1, sk_tiles=1, occupancy=occupancy) == data_parallel(grid)
    assert split_k(grid, 1) == data_parallel(grid)


@pytest.mark.parametrize("dp_first", [False, True])
def test_hybrid_by_hand(dp_first: bool) -> None:
    """Ten tiles on four SMs: one full wave alone, the other full wave and the two left over shared by four
    blocks.
    """
    schedule = stream_k(
        TileGrid(2, 5, 8), sms=4, dp_first=dp_first, costs=CostModel(1, 1, 1, 1), sk_tiles=6, sk_blocks=4
    )
    assert (schedule.dp_tiles, schedule.dp_blocks, schedule.blocks) == (4, 4, 8)
    first, base = (4, 4) if dp_first else (0, 0)
    shared = [
        [(u.tile - base, u.k_begin, u.k_end, u.peer, u.peers) for u in schedule.units(first + b)]
        for b in range(4)
    ]
    assert shared == [
        [(1, 0, 4, 0, 2), (0, 0, 8, 0, 1)],
        [(2, 0, 8, 0, 1), (1, 4, 8, 1, 2)],
        [(4, 0, 4, 0, 2), (3, 0, 8, 0, 1)],
        [(5, 0, 8, 0, 1), (4, 4, 8, 1, 2)],
    ]


def test_splits_that_divide_evenly_become_regions() -> None:
    emulated = stream_k(TileGrid(2, 2, 9), sms=100, sk_tiles=4, sk_blocks=8)
    assert emulated.regions == 4
    assert work(emulated) == work(split_k(TileGrid(2, 2, 9), 2))


def test_the_longest_block_takes_what_does_not_divide() -> None:
    assert [split_k(TileGrid(1, 1, iterations), 2).longest for iterations in (10, 11)] == [5, 6]
    assert data_parallel(TileGrid(1, 1, 10)).longest == 0


def test_first_wave_takes_what_is_left_of_the_waves() -> None:
    """Three waves of tiles and one of shared blocks at an occupancy of three: the first wave takes a second
    tile.
    """
    schedule = stream_k(TileGrid(1, 14, 20), sms=4, occupancy=3, costs=FREE, sk_tiles=2, sk_blocks=4)
    assert schedule.first_wave_tiles == 2
    assert [[u.tile for u in schedule.units(4 + block)] for block in range(8)] == [
        [2, 6],
        [3, 7],
        [4, 8],
        [5, 9],
        [10],
        [11],
        [12],
        [13],
    ]


@pytest.mark.parametrize(
    ("whole", "occupancy", "expected"), [(4, 3, (1, 4)), (5, 2, (1, 5)), (8, 2, (2, 4)), (9, 4, (1, 9))]
)
def test_first_wave_takes_no_more_tiles_than_there_are_waves(
    whole: int, occupancy: int, expected: tuple[int, int]
) -> None:
    """Of tiles that no one shares, on 4 SMs behind one wave of shared ones."""
    grid = TileGrid(1, whole + 2, 20)
    schedule = stream_k(grid, sms=4, occupancy=occupancy, costs=FREE, sk_tiles=2, sk_blocks=4)
    assert (schedule.first_wave_tiles, schedule.dp_blocks) == expected


def test_remap_pairs_shared_blocks_with_whole_tiles() -> None:
    schedule = stream_k(
        TileGrid(1, 10, 20),
        sms=4,
        occupancy=2,
        costs=FREE,
        sk_tiles=2,
        sk_blocks=4,
        remap=True,
        semi_persistent=False,
    )
    assert schedule.remap
    assert schedule.blocks == 16
    assert [schedule.block_of_launch(index) for index in range(10)] == [0, 4, 1, 5, 2, 6, 3, 7, 8, 9]


@pytest.mark.parametrize(
    "where", [{"occupancy": 1}, {"occupancy": 2, "avail_sms": 3}, {"occupancy": 2, "persistent": True}]
)
def test_remap_stays_off_where_it_could_lock_up(where: dict[str, int]) -> None:
    assert not stream_k(TileGrid(1, 10, 20), sms=4, sk_tiles=2, sk_blocks=4, remap=True, **where).remap  # type: ignore[arg-type]


def test_remap_is_for_more_than_two_waves() -> None:
    for whole, remap in ((4, False), (5, True)):
        grid, shared = TileGrid(1, whole + 2, 20), {"sk_tiles": 2, "sk_blocks": 4}
        schedule = stream_k(grid, sms=4, occupancy=2, remap=True, semi_persistent=False, **shared)
        assert (schedule.sk_blocks + schedule.dp_blocks, schedule.remap) == (4 + whole, remap)


def test_no_more_blocks_are_balanced_or_launched_than_there_are_places() -> None:
    """More than are resident would wait for each other."""
    for more in ({}, {"persistent": True, "occupancy": 2}):
        grid = TileGrid(3, 7, 40)
        found, expected = (stream_k(grid, sms=8, avail_sms=sms, **more) for sms in (20, None))
        assert found == expected
        assert found.launched == (16 if more else 0)


# ---- workspace ----


@many
@given(schedules())
@example((stream_k(TileGrid(1, 6, 7), sms=8, sk_tiles=6, sk_blocks=4, regions=2), 1))
def test_slots_are_private_and_within_the_workspace(case: tuple[Schedule, int]) -> None:
    schedule, _ = case
    owners: dict[int, set[tuple[int, ...]]] = defaultdict(set)
    for units in work(schedule):
        for unit in units:
            if unit.peers > 1 and unit.fragment < 0:
                owners[unit.slot].add(
                    (unit.tile, unit.peer) if schedule.reduction == "separate" else (unit.tile,)
                )
    for units in work(schedule):
        for unit in (unit for unit in units if unit.fragment >= 0):
            read = {schedule.peer_slot(unit, peer): (unit.tile, peer) for peer in range(unit.peers)}
            assert len(read) == unit.peers
            assert all(owners[slot] == {owner} for slot, owner in read.items())
    assert all(len(owner) == 1 for owner in owners.values())
    assert all(0 <= slot < schedule.slots for slot in owners)
    assert schedule.slots <= 2 * schedule.sk_blocks
    assert schedule.partials_offset >= 4 * schedule.flags
    assert schedule.workspace_bytes(1000) == schedule.partials_offset + 1000 * schedule.slots


def test_workspace_does_not_grow_with_the_problem() -> None:
    small, large = (
        stream_k(TileGrid(side, side, 64), sms=132, costs=FREE).workspace_bytes(1) for side in (12, 99)
    )
    assert 0 < large <= 2 * small


def test_workspace_too_small() -> None:
    schedule = split_k(TileGrid(2, 2, 9), 3)
    schedule.require_workspace(schedule.workspace_bytes(512), 512)
    with pytest.raises(ArgumentError, match="workspace: this schedule needs 2304 bytes; got 2303"):
        schedule.require_workspace(2303, 512)


# ---- errors ----


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda g: split_k(g, 9), "split_k: must not be larger than the iterations along k, 8; got 9"),
        (lambda g: split_k(g, 0), "split_k: must be at least 1; got 0"),
        (lambda g: stream_k(g, sms=8, avail_sms=0), "avail_sms: must be at least 1; got 0"),
        (lambda g: stream_k(g, sms=0), "sms: must be at least 1; got 0"),
        (lambda g: stream_k(g, sms=8, occupancy=0), "occupancy: must be at least 1; got 0"),
        (
            lambda g: stream_k(g, sms=8, reduction="none"),
            "reduction: must be one of atomic, turnstile, separate",
        ),
        (lambda g: stream_k(g, sms=8, sk_tiles=13), "sk_tiles: must be between 1 and 12, the tiles; got 13"),
        (
            lambda g: stream_k(g, sms=8, sk_tiles=2, sk_blocks=17),
            "sk_blocks: must be between 1 and 16, the iterations; got 17",
        ),
        (
            lambda g: stream_k(g, sms=8, sk_tiles=6, sk_blocks=6, regions=4),
            "regions: must divide sk_tiles, 6; got 4",
        ),
        (
            lambda g: stream_k(g, sms=8, sk_tiles=3, sk_blocks=4, fragments=0),
            "fragments: must be at least 1; got 0",
        ),
        (
            lambda g: Schedule("mine", g, sk_tiles=3, sk_blocks=4),
            "reduction: must not be 'none' where blocks share tiles",
        ),
        (lambda g: TileGrid(1, -1, 1), "tiles_n: must be at least 0; got -1"),
        (lambda g: TileGrid(70000, 70000, 1), "tiles: at most 2147483647 in one launch; got 4900000000"),
        (lambda g: TileGrid.of(8, 8, 8, 0, 8, 8), "bm: must be at least 1; got 0"),
        (lambda g: Raster("k"), "along: must be 'm' or 'n'; got 'k'"),
        (lambda g: CostModel(peer=-1.0), "peer: a cost is not negative; got -1.0"),
    ],
)
def test_errors_say_what_is_wrong(build, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ArgumentError) as caught:
        build(TileGrid(3, 4, 8))
    assert message in str(caught.value)


def test_nothing_to_do_launches_nothing() -> None:
    for grid in (TileGrid(0, 4, 8), TileGrid(3, 4, 8, batches=0)):
        assert stream_k(grid, sms=8).launch_blocks == split_k(grid, 2).launch_blocks == 0
    assert work(stream_k(TileGrid(1, 1, 0), sms=8)) == [[WorkUnit(0, 0, 0, 0, 0, 0)]]


def test_printing_explains_the_choice() -> None:
    text = str(stream_k(TileGrid.of(1024, 1152, 4096, 128, 128, 32), sms=132))
    assert (
        "72 tiles shared by 132 blocks: 108 big blocks of 70, others of 69 iterations; reduction turnstile"
        in text
    )
    assert "because 72 tiles leave 72 over in waves of 132" in text


# ---- clusters ----


@many
@given(st.integers(1, 5), st.integers(1, 5), st.integers(8, 30), st.integers(2, 8))
def test_peers_of_a_tile_are_one_cluster(tiles_m: int, tiles_n: int, iterations: int, splits: int) -> None:
    """Neighbours in launch order, all of k between them, nothing in the workspace and no one to wait for."""
    schedule = split_k(TileGrid(tiles_m, tiles_n, iterations), splits, reduction="cluster")
    assert schedule.cluster == splits
    assert schedule.workspace_bytes(1 << 20) == 0
    launched = work(schedule)
    for start in range(0, len(launched), splits):
        peers = [unit for units in launched[start : start + splits] for unit in units]
        assert len({unit.tile for unit in peers}) == 1
        assert [unit.peer for unit in peers] == list(range(splits))
        assert [unit.k_begin for unit in peers] == [0, *(unit.k_end for unit in peers[:-1])]
        assert peers[-1].k_end == iterations
        assert all(schedule.finishes(unit) and not schedule.arrivals_needed(unit) for unit in peers)


def test_clusters_are_of_eight_blocks_at_most_and_for_split_k() -> None:
    with pytest.raises(ArgumentError, match="a cluster has at most 8 blocks; got 9"):
        split_k(TileGrid(2, 2, 32), 9, reduction="cluster")
    with pytest.raises(ArgumentError, match="'cluster' is for a split-K of all tiles"):
        stream_k(TileGrid(3, 3, 8), sms=4, sk_tiles=5, sk_blocks=4, reduction="cluster")
