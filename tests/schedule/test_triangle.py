"""The tiles of one triangle: each of them once, and no other."""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.schedule import Raster, TileGrid, data_parallel, split_k
from lapidist.schedule.schedule_options import Grids
from lapidist.schedule.triangle import Triangle


def meet(n: int, bm: int, bn: int, upper: bool) -> set[tuple[int, int]]:
    """Tiles that hold an element of the triangle."""
    row, column = np.indices((n, n))
    here = row <= column if upper else row >= column
    return set(zip((row[here] // bm).tolist(), (column[here] // bn).tolist(), strict=True))


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize(("bm", "bn"), [(1, 1), (4, 2), (2, 4), (4, 1), (1, 4)])
def test_each_tile_once(bm: int, bn: int, upper: bool) -> None:
    triangle = Triangle(max(bm, bn) // bm, max(bm, bn) // bn, upper)
    for n in range(1, 24):
        right = meet(n, bm, bn, upper)
        for panel in (1, 2, 3, 8):
            grid = TileGrid.of(n, n, 8, bm, bn, 8, triangle=triangle)
            placed = [grid.place(index, Raster("n", panel)) for index in range(grid.tiles_of_matrix)]
            assert len(placed) == len(right)
            assert set(placed) == right


def test_bands_by_hand() -> None:
    order = [TileGrid(4, 4, 1, 1, Triangle(1, 1)).place(index, Raster("n", 2)) for index in range(10)]
    lines = [(0, 0), (1, 0), (1, 1)], [(2, 0), (3, 0), (2, 1), (3, 1), (2, 2), (3, 2), (3, 3)]
    assert order == [*lines[0], *lines[1]]


def test_schedules_count_them_in_each_matrix() -> None:
    grid = TileGrid.of(24, 24, 16, 4, 8, 8, batches=3, triangle=Triangle(2, 1))
    assert grid.tiles == 3 * grid.tiles_of_matrix == 3 * 12
    for schedule in (data_parallel(grid, persistent_blocks=5), split_k(grid, 2)):
        units = [unit for block in range(schedule.blocks) for unit in schedule.units(block)]
        places = {(unit.batch, unit.row, unit.column) for unit in units}
        assert places == {(batch, *place) for batch in range(3) for place in meet(24, 4, 8, False)}


def test_columns_of_configs_count_as_one_does() -> None:
    bm, bn = np.array([4, 2, 4, 1]), np.array([4, 4, 2, 4])
    side = np.maximum(bm, bn)
    for n in (1, 9, 24, 31):
        grids = Grids.of(n, n, 8, bm, bn, 8, 2, Triangle(side // bm, side // bn).tiles)
        assert grids.tiles.tolist() == [2 * len(meet(n, *tile, False)) for tile in zip(bm, bn, strict=True)]
