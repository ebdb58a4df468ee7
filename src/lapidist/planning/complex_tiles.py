"""The launch that multiplies complex numbers where they lie: small matrices on CUDA cores
(gemm/complex_tile.cu), doubles on tensor cores (gemm/complex_mma.cu).
"""

from __future__ import annotations

import math
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from lapidist.build.compiler import compile_kernel
from lapidist.device import Device
from lapidist.dtypes import TYPES, size_of
from lapidist.launch import Launch, ParameterBlock
from lapidist.planning.modelled_choice import modelled_choice
from lapidist.planning.widening_pass import overlaps_on
from lapidist.problems.problem import batched, dense_problem

STEPS = "row", "col", "matrix"
SIZES = "m", "n", "k", "tiles_m", "tiles"


def parameters_of(part: str) -> ParameterBlock:
    kind = {"float32": "f32", "float64": "f64"}[part]
    return ParameterBlock(
        [
            *((letter, "pointer") for letter in "ABCD"),
            *((name, "i32") for name in SIZES),
            *((f"{letter}_{step}", "i64") for letter in "abcd" for step in STEPS),
            *((name, kind) for name in ("alpha", "beta", "alpha_im", "beta_im")),
        ]
    )


class Lies(NamedTuple):
    """Numbers from row to row, column to column and matrix to matrix."""

    row: int
    col: int
    matrix: int
    conjugated: bool


class Square(NamedTuple):
    """Results of a block, those of a thread, and k: steps at a time, and blocks that share it."""

    side: int
    rows: int
    columns: int
    steps: int
    parts: int = 1

    @property
    def entry(self) -> str:
        return "complex_tile"

    @property
    def threads(self) -> int:
        return self.side**2 // (self.rows * self.columns)

    @property
    def shared_bytes(self) -> int:
        """Beside what the source declares."""
        return 0

    @property
    def macros(self) -> dict[str, int]:
        names = "SIDE", "THREAD_ROWS", "THREAD_COLUMNS", "STEPS", "PARTS"
        return dict(zip(names, self, strict=True))

    def tiles(self, m: int, n: int) -> tuple[int, int]:
        return -(-m // self.side), -(-n // self.side)


class DoubleTile(NamedTuple):
    """Results of a block, those of a warp, steps of k of a stage, stages, blocks on an SM, and blocks that
    share k.
    """

    bm: int
    bn: int
    wm: int
    wn: int
    bk: int
    stages: int
    blocks: int
    parts: int = 1

    @property
    def entry(self) -> str:
        return "complex_mma"

    @property
    def threads(self) -> int:
        return self.bm // self.wm * (self.bn // self.wn) * 32

    @property
    def shared_bytes(self) -> int:
        return self.stages * (self.bm + self.bn) * self.bk * size_of("complex128")

    @property
    def macros(self) -> dict[str, int]:
        names = "BM", "BN", "WM", "WN", "BK", "STAGES", "BLOCKS", "PARTS"
        return dict(zip(names, self, strict=True))

    def tiles(self, m: int, n: int) -> tuple[int, int]:
        return -(-m // self.bm), -(-n // self.bn)


Tile = Square | DoubleTile


@lru_cache(maxsize=256)
def complex_tiles(
    tile: Tile,
    part: str,
    extents: tuple[int, int, int],
    matrices: int,
    lies: tuple[Lies, ...],
    imaginary: tuple[float, float],
    reads_c: bool,
    architecture: str,
    assembled: bool = True,
) -> Launch:
    """`imaginary`: parts of alpha and beta, whose real ones are patched."""
    (m, n, _), (a, b, c, _) = extents, lies
    overlaps = overlaps_on(architecture)
    macros = {
        "Part": TYPES[part].c_type,
        "OVERLAPS": int(overlaps),
        **tile.macros,
        "A_ALONG_K": int(a.row != 1),
        "B_ALONG_K": int(b.col != 1),
        **{f"{name}_CONJUGATED": int(x.conjugated) for name, x in zip("ABC", (a, b, c), strict=True)},
        "ALPHA_REAL": int(imaginary[0] == 0),
        "BETA_REAL": int(imaginary[1] == 0),
        "READS_C": int(reads_c),
    }
    source = f"gemm/{tile.entry}.cu"
    binary = compile_kernel(source, tile.entry, macros, architecture, assembled=assembled)
    tiles_m, tiles_n = tile.tiles(m, n)
    tiles = tiles_m * tiles_n
    steps = {
        f"{letter}_{name}": getattr(x, name) for letter, x in zip("abcd", lies, strict=True) for name in STEPS
    }
    sizes = dict(zip(SIZES, (*extents, tiles_m, tiles), strict=True))
    of_numbers = dict(zip(("alpha_im", "beta_im"), imaginary, strict=True))
    parameters = parameters_of(part)
    content = bytes(parameters.pack({**sizes, **steps, **of_numbers}))
    return Launch(
        binary,
        (tiles * matrices * tile.parts, 1, 1),
        (tile.threads, 1, 1),
        content,
        tile.shared_bytes,
        cluster=(tile.parts, 1, 1),
        overlaps=overlaps,
        parameters=parameters,
        patches=parameters.patches(),
    )


# Where results fill most of one square it beats widening: 4096 x 32^3 in complex64 take 43 us in place of 72
# on an H200. Batches of 16^3 and of 128^3 are faster as products of real numbers.
LEAST, MOST, MOST_K = 17, 32, 64
# So few products of complex64 end before a launch that widens pays: 343x507x129 takes 12.1 us in place of 13,
# and 168x133x455 9.3 in place of 12.1. Of 240x864x130 it is 16.2 in place of 12.7.
FEW, BLOCKS_AN_SM, MOST_PARTS, STEPS_OF_FEW = 25_000_000, 3, 8, 32
HOPPER = (9, 0)

# Tiles of doubles, and microseconds that an SM takes for a stage of one, two ... blocks: 19 products, H200.
DOUBLES = (
    (DoubleTile(64, 64, 32, 16, 16, 3, 1), (1.3,)),
    (DoubleTile(64, 32, 32, 16, 16, 3, 2), (1.05, 1.4)),
    (DoubleTile(32, 32, 16, 16, 16, 3, 3), (0.42, 0.95, 1.15)),
)
PARTS_OF_DOUBLES = 1, 2, 4
STARTS, OF_A_ROUND, WIDENS = 2.0, 2.5, 5.0  # us: of a launch, a round of blocks, a launch that widens
MOVED, WIDENED = 3.4, 5.0  # MB in a us: from memory; to the L2 and back, three times of what is widened


def tile_for(part: str, m: int, n: int, k: int, matrices: int, chip: Device) -> Tile | None:
    """The tile that multiplies numbers where they lie; None: products of real numbers are faster."""
    if min(m, n) < LEAST or k == 0:
        return None
    if part == "float64" and chip.capability == HOPPER:
        return double_tile(m, n, k, matrices, chip)
    if max(m, n) <= MOST and k <= MOST_K:
        return Square(32, 4, 2, 8 if part == "float32" else 16)
    few = Square(32, 4, 2, STEPS_OF_FEW)
    if part != "float32" or m * n * k * matrices > FEW:
        return None
    blocks, parts = math.prod(few.tiles(m, n)) * matrices, 1
    most = MOST_PARTS if chip.capability == HOPPER else 1  # clusters
    while 2 * parts <= min(most, k // STEPS_OF_FEW) and 2 * parts * blocks <= BLOCKS_AN_SM * chip.sms:
        parts *= 2
    return few._replace(parts=parts)


@lru_cache(maxsize=1024)
def double_tile(m: int, n: int, k: int, matrices: int, chip: Device) -> DoubleTile | None:
    """The fastest one, if the model gives widened numbers more time."""
    moved = size_of("complex128") * (m * k + k * n + m * n) * matrices / 1e6 / MOVED
    seconds, best = min(
        (
            (
                max(moved, busy(tile._replace(parts=parts), stages, (m, n, k, matrices), chip)),
                tile._replace(parts=parts),
            )
            for tile, stages in DOUBLES
            for parts in PARTS_OF_DOUBLES
        ),
        key=itemgetter(0),
    )
    return best if seconds < widened(m, n, k, matrices, chip) else None


def busy(
    tile: DoubleTile, stages: tuple[float, ...], extents: tuple[int, int, int, int], chip: Device
) -> float:
    """Microseconds of a launch whose numbers are there in time."""
    m, n, k, matrices = extents
    blocks = math.prod(tile.tiles(m, n)) * matrices * tile.parts
    rounds, last_blocks = divmod(blocks, chip.sms * tile.blocks)
    last = stages[-(-last_blocks // chip.sms) - 1] if last_blocks else 0.0
    steps = -(-k // (tile.bk * tile.parts))
    return STARTS + OF_A_ROUND * (rounds + (last_blocks > 0)) + steps * (rounds * stages[-1] + last)


def widened(m: int, n: int, k: int, matrices: int, chip: Device) -> float:
    """Microseconds of the product of real numbers, with the launch before it."""
    problem = batched(dense_problem(m, 2 * n, 2 * k, "float64"), matrices)
    moved = 3 * size_of("complex128") * k * n * matrices / 1e6
    return WIDENS + moved / WIDENED + 1e6 * modelled_choice(problem, chip).seconds
