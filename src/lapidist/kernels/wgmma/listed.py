"""The configs of gemm/wgmma.cu that the planner weighs, by type.

Tiles are counted in 64 rows and 16 columns; a step along k is 128 bytes, one row of TMA's
swizzle."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lapidist.config import Config
from lapidist.dtypes import FP8, element_of
from lapidist.kernels.budgets import SHARED_OF_BLOCK, STAGE_BARRIERS, SWIZZLE_PERIOD
from lapidist.kernels.row import Tuned
from lapidist.kernels.rules.hopper import INTEGERS
from lapidist.kernels.wgmma.configs import HALF_PATCHED, tile
from lapidist.kernels.wgmma.maps import SKEWED_BYTES
from lapidist.kernels.wgmma.operands import EITHER_WAY
from lapidist.kernels.wgmma.shared import BESIDE_ROW
from lapidist.kernels.wgmma.tiles import PATCH_ROWS, ROW_BYTES, SLAB_BYTES

Fit = tuple[tuple[int, int], tuple[int, int], bool]  # a tile, its cluster, whether A and B are exchanged
MOST_STAGES = 12  # 190 KB on their way hide any latency


def deepest(bm: int, bn: int, transposed_b: bool = True, skewed: bool = False) -> int:
    """As many stages as fit, whatever the types and layouts: slabs of B, patches of D."""
    stage = (
        bm * (SKEWED_BYTES if skewed else ROW_BYTES)
        + (-(-bn // 64) * SLAB_BYTES if transposed_b else bn * ROW_BYTES)
        + STAGE_BARRIERS
    )
    patches = (4 if bm == 64 else 8) * PATCH_ROWS * (ROW_BYTES + BESIDE_ROW if skewed else 2 * ROW_BYTES)
    return min(MOST_STAGES, (SHARED_OF_BLOCK - SWIZZLE_PERIOD - patches) // stage)


# Where rows do not start on lines of the L2, requests to it bound: clusters of four share what they load, and
# tiles fit closely. Of two hundred that were weighed on products of all sizes, those that gave most: (tile,
# cluster, A and B exchanged).
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
    *(
        ((192, bn), (1, 1), True) for bn in (144, 176)
    ),  # a few hundred rows times weights: a tile for each multiprocessor
    *(((64, bn), (1, 1), True) for bn in (80, 112)),
    *(((128, bn), (1, 1), True) for bn in (96, 112)),
)
# The same by clusters of eight, in 16-bit types: of fifty that were measured, those that won a twentieth
# somewhere. Tiles of few columns and a long k win up to an eighth.
OF_EIGHT = (
    *(((64, bn), (4, 2), False) for bn in (96, 160)),
    *(((64, bn), (4, 2), True) for bn in (96, 144, 160)),
    *(((64, bn), (2, 4), True) for bn in (48, 64, 80)),
    *(((128, bn), (8, 1), False) for bn in (128, 192)),
)
# Tiles that fit more closely, in 16-bit types: those that gave most, by the model, of all tiles in clusters
# on 400 products of multiples of 16; and the fastest of forty on some of 70 others, by up to a seventh.
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
# The same in 8 bits: tiles, clusters, in turns.
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
# Where threads store D, A and B are not exchanged: tiles that fill the last round, or the only one.
BY_HAND = ((192, 192), (1, 1)), ((256, 160), (1, 2)), ((128, 208), (2, 1))
# Rows of A that start anywhere, of tall products with few columns: few tiles load them, and to pack them
# would be dear.
SKEWED = (
    ((128, 192), (1, 1)),
    ((128, 192), (2, 1)),
    *(((128, bn), (2, 2)) for bn in (192, 160)),
    *(((64, bn), (1, 1)) for bn in (256, 192)),
    *(((64, 192), cluster) for cluster in ((2, 1), (2, 2))),
)
# columns, stages: the next launch's blocks find place beside these
BESIDE_ANOTHER = ((32, 6), (64, 6), (64, 5), (96, 4), (128, 4))
FEW_REQUESTS_BY_TURNS = (128, 128), (128, 144), (128, 192)  # by clusters of 2 x 2


def family_configs(math: str) -> Tuned:
    """From the largest tiles to small ones, which fill the chip when the product is small."""
    shapes = [(128, bn) for bn in (256, 224, 192, 160, 128, 96)] + [(64, bn) for bn in (256, 224, 192, 128)]
    shapes += [(128, 64), (64, 96), (64, 64), (64, 32)]
    tiles = [tile(math, *shape, deepest(*shape)) for shape in shapes]
    pairs = [
        tile(math, *shape, deepest(*shape), (2, 1))
        for shape in ((128, 256), (128, 224), (128, 192), (128, 128))
    ]
    # Where only A may lie either way, through registers, a B that lies by rows takes its place.
    lines = ROW_BYTES // element_of(math).nbytes
    others = [config for config in (*pairs, *tiles) if math not in EITHER_WAY and config.bm % lines == 0]
    exchanged = [replace(config, exchanged=True) for config in others]
    # The fewest bytes to move for a product: the least power. B by rows has slabs of 64 columns, so it is the
    # one to be A.
    pairs.append(tile(math, 256, 192, deepest(256, 192), (1, 2)))
    widest = tile(math, 256, 208, deepest(256, 208, transposed_b=False), (2, 1))
    pairs.append(replace(widest, exchanged=math in EITHER_WAY))
    if math not in INTEGERS:
        # At 8192^3 128 of 132 multiprocessors have ten rounds of those; of these, narrower by a twenty-fifth,
        # all have ten.
        narrower = tile(math, 256, HALF_PATCHED, deepest(256, HALF_PATCHED, transposed_b=False), (2, 1))
        pairs.append(replace(narrower, exchanged=math in EITHER_WAY))
    # Where k is short, stores are long: they run beside the other warpgroup's products.
    by_turns = [tile(math, *shape, deepest(*shape), ping_pong=True) for shape in ((128, 192), (128, 128))]
    # Beside an epilogue that takes as long as many steps along k.
    by_turns += [tile(math, *shape, (2, 1), ping_pong=True) for shape in ((64, 256, 4), (128, 128, 6))]
    shared = in_clusters(math, FEW_REQUESTS)
    by_turns += [
        tile(math, *shape, deepest(*shape), (2, 2), ping_pong=True) for shape in FEW_REQUESTS_BY_TURNS
    ]
    if math not in EITHER_WAY:
        shared = [each for each in shared if not each.exchanged or each.bm <= 128]
    shared += close_fits(math)
    # Beside factors that change along k, a stage less finds room.
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
    beside = [tile(math, 64, bn, stages) for bn, stages in BESIDE_ANOTHER if math in EITHER_WAY]
    found = (
        *pairs,
        *exchanged,
        *by_turns,
        *tiles,
        *(skewed if math in EITHER_WAY else ()),
        *shared,
        *shallow,
        *for_few_lines(math),
    )
    return tuple((config, 0.95) for config in dict.fromkeys((*found, *beside)))


def in_clusters(math: str, listed: Iterable[Fit]) -> list[Config]:
    """B is A by columns where they are exchanged, and A lies by rows: a stage more may find room."""
    return [
        tile(math, *shape, deepest(*shape, transposed_b=not ex), cluster, exchanged=ex)
        for shape, cluster, ex in listed
    ]


def close_fits(math: str) -> list[Config]:
    """What 16-bit and 8-bit types have besides, to fit D or the L2 more closely."""
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


def for_few_lines(math: str) -> list[Config]:
    """Weights times few rows: as many tiles as the chip has multiprocessors, whatever the width. With more
    rows than a tile has, these become columns, of which tiles have just enough. They are not transposed: rows
    of activations touch along k."""
    beside = [tile(math, 64, bn, deepest(64, bn)) for bn in (48, 80, 112, 144, 160, 176)]
    beside += [tile(math, 128, bn, deepest(128, bn)) for bn in (80, 112)]
    shapes = [(64, bn) for bn in (144, 160, 176, 192, 208, 224)] + [(128, bn) for bn in (144, 160, 176, 208)]
    rows = ROW_BYTES // element_of(math).nbytes  # of A, that are transposed at once, through registers
    above = [
        tile(math, *shape, deepest(*shape, transposed_b=False))
        for shape in shapes
        if math in EITHER_WAY or shape[0] % rows == 0
    ]
    return [*beside, *(replace(config, exchanged=True) for config in above)]
