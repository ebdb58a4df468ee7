"""Random schedules, drawn with any function that picks an int between two bounds: hypothesis for proofs, a
generator for bulk.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st

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

Pick = Callable[[int, int], int]
REDUCTIONS = ("turnstile", "atomic", "separate")
FREE = CostModel(start=0.1, fixup=0.1, peer=0.0)  # so that sharing nearly always pays


def draw_raster(pick: Pick) -> Raster:
    if pick(0, 3) == 0:
        return Raster("n", 8, 4)
    return Raster("mn"[pick(0, 1)], pick(1, 9), pick(1, 5))


def draw_schedule(pick: Pick) -> tuple[Schedule, int]:
    """A schedule, and how many blocks are resident at once."""
    grid = TileGrid(pick(0, 7), pick(0, 7), pick(0, 20), pick(1, 2))
    raster, reduction, fragments = draw_raster(pick), REDUCTIONS[pick(0, 2)], pick(1, 4)
    kind, sms, occupancy = pick(0, 5), pick(1, 20), pick(1, 3)
    if kind == 0:
        return data_parallel(grid, raster=raster, persistent_blocks=pick(0, 1) * sms), sms
    if kind == 1:
        splits = pick(1, max(grid.iterations, 1))
        return split_k(grid, splits, reduction=reduction, fragments=fragments, raster=raster), 1
    forced: dict[str, int] = {}
    if kind == 2 and grid.tiles and grid.iterations:
        forced = draw_forced(pick, grid)
    schedule = stream_k(
        grid,
        sms=sms,
        avail_sms=pick(1, sms) if pick(0, 3) == 0 else None,
        occupancy=occupancy,
        reduction=reduction,
        fragments=fragments,
        raster=raster,
        dp_first=bool(pick(0, 1)),
        min_iterations=pick(1, 3),
        semi_persistent=bool(pick(0, 1)),
        remap=bool(pick(0, 1)),
        persistent=pick(0, 3) == 0,
        costs=FREE,
        **forced,
    )
    return schedule, sms * occupancy if schedule.remap or schedule.launched else 1


def draw_forced(pick: Pick, grid: TileGrid) -> dict[str, int]:
    """Tiles, blocks and regions of the caller's choice."""
    tiles = pick(1, grid.tiles)
    regions = pick(1, tiles)
    while tiles % regions:
        regions -= 1
    blocks = regions * pick(1, min(tiles // regions * grid.iterations, 12))
    return {"sk_tiles": tiles, "sk_blocks": blocks, "regions": regions}


# ---- for hypothesis ----

many = settings(max_examples=200, deadline=None, derandomize=True)


@st.composite
def schedules(draw: st.DrawFn) -> tuple[Schedule, int]:
    return draw_schedule(lambda low, high: draw(st.integers(low, high)))


@st.composite
def rasters(draw: st.DrawFn) -> Raster:
    return draw_raster(lambda low, high: draw(st.integers(low, high)))


def work(schedule: Schedule) -> list[list[WorkUnit]]:
    """The units of each launched block, in its order."""
    return [[unit for _, unit in schedule.units_of_launch(index)] for index in range(schedule.launch_blocks)]
