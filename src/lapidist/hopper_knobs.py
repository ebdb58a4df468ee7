"""The knobs of the kernels on wgmma: how a config is made of those that are free, and what a config must be to be compiled.

Free are the tile, the stages, clusters, ping-pong, A and B exchanged, rows of A shifted, the height of the bands and
their direction.
All else follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lapidist.config import Config
from lapidist.dtypes import MATHS, element_of, math_named, size_of
from lapidist.errors import ArgumentError
from lapidist.hopper_operands import ROW_BYTES
from lapidist.kernel import Tuned
from lapidist.problem import Problem

TILE_ROWS = 64, 128, 192, 256
COLUMNS, MOST_COLUMNS = 16, 256
HALF_PATCHED = 200  # columns, the last eight of which leave with eight others once more
RUNG_COLUMNS = 64  # of a slab of B, which a block loads as a whole
PRODUCERS = 128  # a warpgroup: registers move between whole ones
CLUSTERS = (1, 1), (2, 1), (1, 2), (2, 2), (4, 1)


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
    """A config for products in `math` ("bfloat16", "tf32", …): tiles of bm x bn, clusters of so many blocks along m and n."""
    if not (isinstance(cluster, (tuple, list)) and len(cluster) == 2):
        raise ArgumentError(f"cluster: must be a pair, blocks along m and along n; got {cluster!r}. Example: (2, 1)")
    plain = Config(
        bm, bn, step_of(math), bm, bn, 0, 0, stages, producers, *cluster, exchanged, ping_pong, raster, along_m, skewed
    )
    return replace(plain, wm=rows_of_warp(bm, ping_pong))


def step_of(math: str) -> int:
    """Elements of k in a step: one row of the copy engine's swizzle. Short names ("bf16") do as well."""
    return ROW_BYTES // element_of(math if math in MATHS else math_named(math, "math")).nbytes


def rows_of_warp(bm: int, ping_pong: bool) -> int:
    """A warp owns 16 rows of each 64 that its warpgroup has: of all in ping-pong, of 128 in tiles of 256, else of 64."""
    return -(-bm // 4) if ping_pong else 32 if bm == 256 else 16


def refuse_knobs(problem: Problem, config: Config) -> str | None:
    """What no problem changes: the instruction's extents, whole warpgroups, and clusters that share their loads."""
    step, rows = ROW_BYTES // size_of(problem.dtype), rows_of_warp(config.bm, config.ping_pong)
    if config.bm not in TILE_ROWS:
        return f"a warpgroup multiplies 64 rows: bm is 64, 128, 192 or 256; it is {config.bm}"
    if config.bn not in (*range(COLUMNS, MOST_COLUMNS + 1, COLUMNS), HALF_PATCHED):
        return f"an instruction multiplies up to 256 columns: bn is a multiple of 16 up to 256, or 200; it is {config.bn}"
    if config.bk != step:
        return f"a step along k is a row of the swizzle, 128 bytes: bk is {step} of {problem.dtype}; it is {config.bk}"
    if (config.wm, config.wn, config.tm, config.tn) != (rows, config.bn, 0, 0):
        return (
            f"sums lie where the instruction leaves them: of tiles of {config.bm}x{config.bn} wm, wn, tm, tn are {rows}, "
            f"{config.bn}, 0, 0; they are {config.wm}, {config.wn}, {config.tm}, {config.tn}"
        )
    if config.stages < 2:
        return f"a stage is given back when the next one's products are on their way: it takes 2 at least; it is {config.stages}"
    if (config.cluster_m, config.cluster_n) not in CLUSTERS:
        shapes = ", ".join(f"{m}x{n}" for m, n in CLUSTERS)
        return f"clusters are {shapes} blocks: larger ones find no place; got {config.cluster_m}x{config.cluster_n}"
    return None


def refuse_rung_knobs(tuned: Mapping[str, Tuned], problem: Problem, config: Config) -> str | None:
    """A rung is its own config: the columns of its tiles and the stages are free."""
    (own, _), columns = tuned[problem.math][0], RUNG_COLUMNS * config.cluster
    if config.bn % columns or not 0 < config.bn <= MOST_COLUMNS or config.stages < 2:
        return f"a rung's tiles have columns in {columns}s, up to 256, and 2 stages at least; the config is {config}"
    if replace(own, bn=config.bn, wn=config.bn, stages=config.stages) != config:
        return f"a rung is one config, of which bn, wn = bn and stages are free: {own}; got {config}"
    return None
