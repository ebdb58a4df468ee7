"""The configs of gemm/wgmma.cu that the planner weighs, by type.

Tiles have multiples of 64 rows and of 16 columns. An iteration is 128 bytes of k, one row of TMA's swizzle.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lapidist.config import Config
from lapidist.dtypes import FP8, TF32, element_of
from lapidist.kernels.budgets import SHARED_OF_BLOCK, STAGE_BARRIERS, SWIZZLE_PERIOD
from lapidist.kernels.kernel import Tuned
from lapidist.kernels.rules.hopper import INTEGERS
from lapidist.kernels.wgmma.configs import HALF_PATCHED, tile
from lapidist.kernels.wgmma.maps import SKEWED_BYTES
from lapidist.kernels.wgmma.operands import EITHER_WAY
from lapidist.kernels.wgmma.shared import BESIDE_ROW
from lapidist.kernels.wgmma.tiles import PATCH_ROWS, ROW_BYTES, SLAB_BYTES

Fit = tuple[tuple[int, int], tuple[int, int], bool]  # a tile, its cluster, whether A and B are exchanged
MOST_STAGES = 12  # 190 KB in flight hide any latency


def deepest(bm: int, bn: int, transposed_b: bool = True, skewed: bool = False) -> int:
    """As many stages as fit for all types and layouts, beside patches of D."""
    stage = (
        bm * (SKEWED_BYTES if skewed else ROW_BYTES)
        + (-(-bn // 64) * SLAB_BYTES if transposed_b else bn * ROW_BYTES)
        + STAGE_BARRIERS
    )
    patches = (4 if bm == 64 else 8) * PATCH_ROWS * (ROW_BYTES + BESIDE_ROW if skewed else 2 * ROW_BYTES)
    return min(MOST_STAGES, (SHARED_OF_BLOCK - SWIZZLE_PERIOD - patches) // stage)


# Where rows do not start on lines of the L2, requests to the L2 are the bound. Clusters of four share loads,
# and close-fitting tiles need fewer. The best of two hundred, by the model, on products of all sizes.
FEW_REQUESTS = (
    *(((128, bn), (2, 2), False) for bn in (96, 128, 160, 192, 256)),
    *(((128, bn), (2, 2), True) for bn in (112, 144, 176, 192)),
    *(((64, bn), (2, 2), False) for bn in (32, 48, 64, 128)),
    *(((64, bn), (4, 1), True) for bn in (96, 112, 144, 160, 192)),
    *(((64, bn), (2, 2), True) for bn in (16, 80, 96)),
    *(((64, bn), (4, 1), False) for bn in (96, 192)),
    ((64, 192), (2, 1), False),
    ((128, 96), (4, 1), False),
    ((128, 96), (4, 1), True),
    *(((128, bn), (2, 1), True) for bn in (176, 192, 240)),
    ((256, 192), (1, 2), True),
    ((256, 160), (1, 2), True),
    ((192, 80), (1, 2), True),
    ((192, 112), (1, 2), False),
    *(((192, bn), (2, 2), True) for bn in (96, 160)),
    # a few hundred rows times weights: a tile for each SM
    *(((192, bn), (1, 1), True) for bn in (144, 176)),
    *(((64, bn), (1, 1), True) for bn in (80, 112)),
    *(((128, bn), (1, 1), True) for bn in (96, 112)),
)
# Clusters of eight, in 16-bit types: of fifty that were measured, those that were a twentieth faster for some
# product. Tiles of few columns gain up to an eighth if k is long.
OF_EIGHT = (
    *(((64, bn), (4, 2), False) for bn in (96, 160)),
    *(((64, bn), (4, 2), True) for bn in (96, 144, 160)),
    *(((64, bn), (2, 4), True) for bn in (48, 64, 80)),
    *(((128, bn), (8, 1), False) for bn in (128, 192)),
)
# Close-fitting tiles in 16-bit types: the best of all tiles in clusters, by the model, on 400 products of
# multiples of 16. Also the fastest of forty measured on some of 70 other products, by up to a seventh.
CLOSELY = (
    *(((64, bn), (4, 1), False) for bn in (64, 128, 160, 224)),
    *(((64, bn), (4, 1), True) for bn in (64, 128, 176, 208, 240)),
    *(((64, 128), (2, 1), exchanged) for exchanged in (False, True)),
    *(((64, bn), (4, 2), False) for bn in (64, 80, 144)),
    *(((64, bn), (4, 2), True) for bn in (80, 112)),
    *(((64, bn), (2, 4), True) for bn in (32, 96)),
    ((64, 176), (2, 2), False),
    *(((128, 112), cluster, False) for cluster in ((1, 2), (4, 1))),
    *(((128, 112), cluster, True) for cluster in ((4, 1), (8, 1))),
    *(((128, bn), (2, 1), True) for bn in (112, 128, 160, 208)),
    *(((128, bn), (4, 1), True) for bn in (128, 176, 224)),
    *(((128, bn), (4, 1), False) for bn in (160, 176, 256)),
    *(((128, bn), (2, 2), False) for bn in (176, 224)),
    *(((128, bn), (2, 2), True) for bn in (160, 224)),
    ((128, 160), (2, 1), False),
    ((128, 48), (2, 4), True),
    *(((192, 80), cluster, False) for cluster in ((2, 1), (4, 1), (2, 4))),
    *(((192, 96), cluster, True) for cluster in ((2, 1), (4, 1), (8, 1))),
    *(((192, bn), (2, 2), True) for bn in (80, 112)),
    ((192, 112), (1, 2), True),
    ((192, 160), (1, 1), True),
    *(((256, bn), (1, 2), True) for bn in (112, 176, 208)),
    ((256, 192), (1, 1), True),
)
# The same in 8-bit types: tile, cluster, ping-pong.
CLOSELY_OF_BYTES = (
    *(((64, bn), (4, 2), False) for bn in (80, 112, 144)),
    *(((64, bn), (2, 4), False) for bn in (32, 48, 64, 240)),
    ((64, 208), (8, 1), False),
    ((128, 208), (8, 1), False),
    ((128, 144), (4, 2), False),
    *(((192, bn), (2, 4), False) for bn in (80, 160)),
    ((256, 96), (4, 2), False),
    ((192, 128), (2, 4), True),
    *(((128, 176), cluster, True) for cluster in ((4, 1), (4, 2))),
)
# Tiles that fill the last round, or the only one, where threads store D; then A and B are not exchanged.
BY_HAND = ((192, 192), (1, 1)), ((256, 160), (1, 2)), ((128, 208), (2, 1))
# Unaligned rows of A in tall products with few columns: few tiles load each row, so packing would not pay.
SKEWED = (
    ((128, 192), (1, 1)),
    ((128, 192), (2, 1)),
    *(((128, bn), (2, 2)) for bn in (192, 160)),
    *(((64, bn), (1, 1)) for bn in (256, 192)),
    *(((64, 192), cluster) for cluster in ((2, 1), (2, 2))),
)
# columns and stages of tiles that leave room for a block of the next launch
BESIDE_ANOTHER = ((32, 6), (64, 6), (64, 5), (96, 4), (128, 4))
# In ping-pong: for groups of few rows, and for epilogues that take as long as many iterations.
SHORT_PRODUCTS = (64, 256, 4), (64, 256, 4, (2, 1)), (128, 128, 6, (2, 1))
FEW_REQUESTS_BY_TURNS = (128, 128), (128, 144), (128, 192)  # in ping-pong, in clusters of 2 x 2


def family_configs(math: str) -> Tuned:
    """From the largest tiles to small ones, which fill the chip if the product is small."""
    shapes = [(128, bn) for bn in (256, 224, 192, 160, 128, 96)] + [(64, bn) for bn in (256, 224, 192, 128)]
    shapes += [(128, 64), (64, 96), (64, 64), (64, 32)]
    tiles = [tile(math, *shape, deepest(*shape)) for shape in shapes]
    pairs = [
        tile(math, *shape, deepest(*shape), (2, 1))
        for shape in ((128, 256), (128, 224), (128, 192), (128, 128))
    ]
    # Only A may be M-major in these types, through registers. So an N-major B is exchanged to its place.
    lines = ROW_BYTES // element_of(math).nbytes
    unexchanged = [config for config in (*pairs, *tiles) if math not in EITHER_WAY and config.bm % lines == 0]
    exchanged = [replace(config, exchanged=True) for config in unexchanged]
    # The largest tiles move the fewest bytes, and so need the least power. An N-major B is loaded in slabs of
    # 64 columns, and 208 is no multiple, so it is exchanged with A.
    pairs.append(tile(math, 256, 192, deepest(256, 192), (1, 2)))
    widest = tile(math, 256, 208, deepest(256, 208, transposed_b=False), (2, 1))
    pairs.append(replace(widest, exchanged=math in EITHER_WAY))
    if math not in INTEGERS:
        # At 8192^3 tiles of 208 columns keep 128 of 132 SMs busy for ten rounds. Tiles of 200 columns keep
        # all SMs busy.
        narrower = tile(math, 256, HALF_PATCHED, deepest(256, HALF_PATCHED, transposed_b=False), (2, 1))
        pairs.append(replace(narrower, exchanged=math in EITHER_WAY))
    # With a short k, stores take long. Ping-pong hides them behind the other warpgroup's products.
    by_turns = [tile(math, *shape, deepest(*shape), ping_pong=True) for shape in ((128, 192), (128, 128))]
    by_turns += [tile(math, *shape, ping_pong=True) for shape in SHORT_PRODUCTS]
    shared = in_clusters(math, FEW_REQUESTS)
    by_turns += [
        tile(math, *shape, deepest(*shape), (2, 2), ping_pong=True) for shape in FEW_REQUESTS_BY_TURNS
    ]
    if math not in EITHER_WAY:
        shared = [row for row in shared if not row.exchanged or row.bm <= 128]
    shared += close_fits(math)
    # Factors along k take shared memory, which leaves room for one stage less.
    shallow = (
        [
            tile(math, 128, 128, 5),
            tile(math, 128, 160, 5, (2, 1)),
            tile(math, 128, 128, 5, (2, 1)),
            tile(math, 128, 64, 7),
        ]
        if math in FP8
        else []
    )
    skewed = [
        tile(math, *shape, deepest(*shape, skewed=True), cluster, skewed=True) for shape, cluster in SKEWED
    ]
    narrow = [tile(math, 64, bn, stages) for bn, stages in BESIDE_ANOTHER if math in EITHER_WAY]
    configs = (
        *pairs,
        *exchanged,
        *by_turns,
        *tiles,
        *(skewed if math in EITHER_WAY else ()),
        *shared,
        *shallow,
        *for_few_lines(math),
    )
    return tuple((config, 0.95) for config in dict.fromkeys((*configs, *narrow)))


def in_clusters(math: str, listed: Iterable[Fit]) -> list[Config]:
    """Exchanged configs are for K-major operands, so one more stage may fit."""
    return [
        tile(math, *shape, deepest(*shape, transposed_b=not ex), cluster, exchanged=ex)
        for shape, cluster, ex in listed
    ]


def close_fits(math: str) -> list[Config]:
    """Further configs of 16-bit and 8-bit types, which fit D or the L2 more closely."""
    if element_of(math).nbytes == 1:
        return [
            tile(math, *shape, deepest(*shape, transposed_b=False), cluster, ping_pong=turns)
            for shape, cluster, turns in CLOSELY_OF_BYTES
        ]
    if math not in EITHER_WAY:
        return []
    eights = [
        tile(math, *shape, deepest(*shape, transposed_b=False), cluster, exchanged=ex)
        for shape, cluster, ex in OF_EIGHT
    ]
    by_hand = [tile(math, *shape, deepest(*shape), cluster) for shape, cluster in BY_HAND]
    return [*eights, *by_hand, *in_clusters(math, CLOSELY)]


def for_triangles(math: str) -> list[tuple[Config, float]]:
    """Configs of tf32 and of 16-bit types for the tiles of one triangle, and what the model's time is
    multiplied by: as measured on an H200, over that of whole products.
    """
    if math not in (*EITHER_WAY, TF32):
        return []
    alone = [
        (tile(math, 192, 96, 5), 1.0 if math == TF32 else 0.96),  # 132 tiles, one for each SM, at 2048 rows
        (tile(math, 128, 128, 6, ping_pong=True, raster=4), 0.88 if math == TF32 else 0.89),  # 528 at 4096
        (tile(math, 64, 192, 6, ping_pong=True), 0.9 if math == TF32 else 0.87),
        (tile(math, 64, 128, 8), 1.18 if math == TF32 else 1.04),
    ]
    pairs = [
        (tile(math, 128, 256, 4, (2, 1)), 1.01),
        (tile(math, 192, 128, 4, (2, 1)), 1.0 if math == TF32 else 0.95),
    ]
    if math == TF32:  # with a mirror pass: a second store of so large a tile is waited for
        pairs.append((tile(math, 128, 256, 4, (2, 1), exchanged=True), 0.89))
    return [*alone, *pairs]


def for_few_lines(math: str) -> list[Config]:
    """Configs for weights times few rows: as many tiles as the chip has SMs. If there are more rows than a
    tile has, A and B are exchanged and the tile has just enough columns. Activations are K-major then.
    """
    narrow = [tile(math, 64, bn, deepest(64, bn)) for bn in (48, 80, 112, 144, 160, 176)]
    narrow += [tile(math, 128, bn, deepest(128, bn)) for bn in (80, 112)]
    shapes = [(64, bn) for bn in (144, 160, 176, 192, 208, 224)] + [(128, bn) for bn in (144, 160, 176, 208)]
    rows = ROW_BYTES // element_of(math).nbytes  # rows of A that registers transpose at once
    above = [
        tile(math, *shape, deepest(*shape, transposed_b=False))
        for shape in shapes
        if math in EITHER_WAY or shape[0] % rows == 0
    ]
    return [*narrow, *(replace(config, exchanged=True) for config in above)]
