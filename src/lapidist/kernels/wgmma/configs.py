"""The knobs of the kernels with wgmma: how a config follows from the free ones. rules/hopper.py has their
rules.

Free are the tile, the stages, clusters, ping-pong, A and B exchanged, rows of A shifted, and the height and
direction of bands.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lapidist.config import Config
from lapidist.dtypes import MATHS, element_of, math_named
from lapidist.errors import ArgumentError, shown
from lapidist.kernels.wgmma.tiles import ROW_BYTES

TILE_ROWS = 64, 128, 192, 256
COLUMNS, MOST_COLUMNS = 16, 256
HALF_PATCHED = 200  # columns: the last patch stores eight columns of the one before it again
PRODUCERS = 128  # threads: registers move between whole warpgroups
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
    """A config for products of type `math` ("bfloat16", "tf32", …): tiles of bm x bn, and blocks of a cluster
    along m and n.
    """
    if not (isinstance(cluster, (tuple, list)) and len(cluster) == 2):
        raise ArgumentError(
            f"cluster: must be a pair, blocks along m and along n; got {shown(cluster)}. Example: (2, 1)"
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
    """Elements of k in an iteration: one row of TMA's swizzle. Short names ("bf16") are allowed."""
    return ROW_BYTES // element_of(math if math in MATHS else math_named(math, "math")).nbytes


def rows_of_warp(bm: Any, ping_pong: Any) -> Any:
    """Rows of a warp's sums: 16 of each 64 that its warpgroup has. A warpgroup has all rows in ping-pong, 128
    in tiles of 256, else 64. Of arrays, too.
    """
    return -(-bm // 4) * (ping_pong != 0) + (16 + 16 * (bm == 256)) * (ping_pong == 0)
