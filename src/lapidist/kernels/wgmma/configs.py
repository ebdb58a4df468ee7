"""The knobs of the kernels on wgmma: how a config is made of those that are free (rules/hopper.py says what
it must be).

Free are the tile, the stages, clusters, ping-pong, A and B exchanged, rows of A shifted, the height of the
bands and their direction. All else follows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lapidist.config import Config
from lapidist.dtypes import MATHS, element_of, math_named
from lapidist.errors import ArgumentError
from lapidist.kernels.wgmma.tiles import ROW_BYTES

TILE_ROWS = 64, 128, 192, 256
COLUMNS, MOST_COLUMNS = 16, 256
HALF_PATCHED = 200  # columns, the last eight of which leave with eight others once more
PRODUCERS = 128  # a warpgroup: registers move between whole ones
CLUSTERS = (1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (2, 4), (4, 2), (8, 1)


def tile(
    math: str,
    bm: int,
    bn: int,
    stages: int,
    cluster: tuple[int, int] = (1, 1),
    producers: int = PRODUCERS,
    *,
    ping_pong: bool = False,
    exchanged: bool = False,
    raster: int = 0,
    along_m: bool = False,
    skewed: bool = False,
) -> Config:
    """A config for products in `math` ("bfloat16", "tf32", …): tiles of bm x bn, clusters of so many blocks
    along m and n.
    """
    if not (isinstance(cluster, (tuple, list)) and len(cluster) == 2):
        raise ArgumentError(
            f"cluster: must be a pair, blocks along m and along n; got {cluster!r}. Example: (2, 1)"
        )
    plain = Config(
        bm,
        bn,
        step_of(math),
        bm,
        bn,
        0,
        0,
        stages,
        producers,
        *cluster,
        exchanged,
        ping_pong,
        raster,
        along_m,
        skewed,
    )
    return replace(plain, wm=rows_of_warp(bm, ping_pong))


def step_of(math: str) -> int:
    """Elements of k in a step: one row of TMA's swizzle. Short names ("bf16") do as well."""
    return ROW_BYTES // element_of(math if math in MATHS else math_named(math, "math")).nbytes


def rows_of_warp(bm: Any, ping_pong: Any) -> Any:
    """A warp owns 16 rows of each 64 that its warpgroup has: of all in ping-pong, of 128 in tiles of 256,
    else of 64. Of arrays, too."""
    return -(-bm // 4) * (ping_pong != 0) + (16 + 16 * (bm == 256)) * (ping_pong == 0)
