"""Operands as the wgmma kernels want them: which lines touch, what is packed first, the copy engine's maps of
A, B and D.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from lapidist.config import Config, Knobs
from lapidist.dtypes import TF32, size_of
from lapidist.kernels.signatures import TMA_ALIGNMENT
from lapidist.launch import TensorMap
from lapidist.problems.facts import fact
from lapidist.problems.problem import Matrix, Problem
from lapidist.problems.scaling import SQUARES, STRIPS, Scaling

EITHER_WAY = ("float16", "bfloat16")  # wgmma also reads these with neighbours along m or n
ROW_BYTES = 128  # of a slab: of a tile's row, or of a turned one's k
SLAB_BYTES = 64 * ROW_BYTES  # of 64 rows of a tile, or of 64 columns of a turned one in 16-bit types
PATCH_BYTES = 32  # at least, in each row of a patch
PATCH_ROWS = 16  # of D that a warp lays down at once
BESIDE_ROW = (
    48  # bytes of a patch's row, where they leave by hand: the end of the patch before, and for the banks
)
TURN_BYTES = 16  # barriers of ping-pong
# Bytes of a block and columns of its tile at most, where two are to fit on a multiprocessor; tiles up to
# which launches find room beside each other anyway.
HALF_SHARED, MOST_BESIDE, LEAST_BESIDE = 113 * 1024, 128, 16
LONGEST_BESIDE = 160 * 1024  # k times columns of a tile
FLAG_BYTES = 256
L2_LINE, SECTOR = 128, 32
SKEWED_ROWS = 128  # of A at least, where they are skewed: as many as the largest tile has
SKEWED_STEP = 1 << 27  # elements from row to row at most: those of eight rows are counted in 32 bits
SKEWED_BYTES = ROW_BYTES + 16  # of such a row, from the 16 bytes on in which it begins
ROUNDED = {TF32: "tfloat32"}  # the copy engine rounds float on the way
Lines = tuple[int, int, int]  # how many lines of touching elements, their length, the step between them


# ---- how operands lie ----


def along_k(matrix: Matrix, is_a: bool) -> bool:
    """Neighbours along k touch: rows of A, columns of B."""
    return matrix.lies("row" if is_a else "col")


def line(matrix: Matrix, by_rows: bool) -> tuple[int, int, int]:
    """(how many lines of touching elements, their length, the step between them)"""
    if by_rows:
        return matrix.rows, matrix.cols, matrix.row_stride
    return matrix.cols, matrix.rows, matrix.col_stride


@fact
def lines_of(problem: Problem) -> tuple[Lines, Lines]:
    """The lines of A and of B, as they lie."""
    return line(problem.a, along_k(problem.a, True)), line(problem.b, not along_k(problem.b, False))


@fact
def mn_major(problem: Problem) -> tuple[bool, bool]:
    """Whether tiles of A, and of B, have neighbours along m or n in shared memory: where wgmma reads them
    so.
    """
    a, b = transposed(problem)
    return not along_k(problem.a, True) and not a, not along_k(problem.b, False) and not b


@fact
def transposed(problem: Problem) -> tuple[bool, bool]:
    """Whether A, and B, are packed with k touching because wgmma reads this type no other way. A never is: it
    takes its way through registers."""
    return False, problem.math not in EITHER_WAY and not along_k(problem.b, False)


@fact
def by_registers(problem: Problem) -> bool:
    """Whether A is turned while it is loaded into registers: then wgmma takes it from there."""
    return problem.math not in EITHER_WAY and mn_major(problem)[0]


@fact
def packed_lines(problem: Problem) -> tuple[Lines, Lines]:
    """The lines of A and of B as the copy engine finds them: packed ones start on 16 bytes."""
    found = []
    for lines, packs, turns in zip(lines_of(problem), packed(problem), transposed(problem), strict=True):
        count, length, step = lines
        if turns:
            count, length = length, count
        found.append((count, length, packed_step(length, size_of(problem.dtype)) if packs else step))
    return found[0], found[1]


def starts_on_16(matrix: Matrix, lines: tuple[int, int, int], size: int) -> bool:
    count, length, step = lines
    if 0 in (count, length):
        return True  # nothing is moved
    if matrix.alignment < TMA_ALIGNMENT or any(
        stride * size % TMA_ALIGNMENT for stride in matrix.batch_strides
    ):
        # matrices of one element may be neighbours in a line themselves: `alignment` does not look there
        return False
    return count == 1 or (step > 0 and step * size % TMA_ALIGNMENT == 0)


@fact
def start_anywhere(problem: Problem) -> tuple[bool, bool]:
    """Whether the copy engine refuses A, and B, as they lie."""
    (a, b), (turn_a, turn_b) = lines_of(problem), transposed(problem)
    size = size_of(problem.dtype)
    return turn_a or not starts_on_16(problem.a, a, size), turn_b or not starts_on_16(problem.b, b, size)


@fact
def packed(problem: Problem) -> tuple[bool, bool]:
    """Whether A, and B, are copied to lines that start on 16 bytes first."""
    a, b = start_anywhere(problem)
    return a and not problem.skewed, b


def packed_step(length: int, size: int) -> int:
    """Elements from line to line of a packed operand. They start on lines of the L2, short ones on its
    sectors: what straddles them comes at half the speed and less."""
    chunk = (L2_LINE if length * size >= L2_LINE else SECTOR) // size
    return -(-length // chunk) * chunk


@fact
def packed_bytes(problem: Problem) -> tuple[int, int]:
    """Of all matrices of a batch, where it does not share one."""
    found = []
    for matrix, (count, _, step), packs in zip(
        (problem.a, problem.b), packed_lines(problem), packed(problem), strict=True
    ):
        matrices = prod(extent for extent, stride in batch_steps(problem, matrix) if stride)
        found.append(count * step * size_of(problem.dtype) * matrices if packs else 0)
    return found[0], found[1]


@fact
def scratch(problem: Problem) -> tuple[int, int]:
    """Bytes of flags and of packed operands in the workspace."""
    total = sum(packed_bytes(problem))
    return (FLAG_BYTES, -(-total // FLAG_BYTES) * FLAG_BYTES) if total else (0, 0)


# ---- tensor maps ----


MOST_FEW_ROWS = 112  # each 16 of them compile a kernel of their own


@fact
def few_rows(problem: Problem) -> int | None:
    """So many rows, in 16s, hold all of A that there is: less than a tile may have."""
    rows = -(-problem.m // 16) * 16
    return rows if rows != 64 and 0 < rows <= MOST_FEW_ROWS and not mn_major(problem)[0] else None


def rows_of_stage(problem: Problem, config: Knobs) -> Any:
    """Rows of a tile of A that have room in a stage. What wgmma reads behind them must lie in the same stage,
    in B.
    """
    rows = few_rows(problem)
    if not rows:
        return config.bm
    least = -(-(config.bm - config.bn) // 16) * 16
    return np.where(config.cluster == 1, np.minimum(config.bm, np.maximum(rows, least)), config.bm)


def loaded_lines(problem: Problem, config: Knobs) -> tuple[Any, Any]:
    """Rows of A and columns of B in a tile that are loaded: where one tile has all of them, just those
    (gemm/wgmma/few_lines.cuh).
    """
    a, b, alone = rows_of_stage(problem, config), config.bn, config.cluster == 1
    few_a, few_b = np.minimum(a, max(1, problem.m)), np.minimum(b, max(1, problem.n))
    return np.where(alone, few_a, a), np.where(alone, few_b, b)


def read_once(problem: Problem, config: Config) -> tuple[bool, bool]:
    """Whether no two tiles read the same part of A, or of B: all lines of the other one are in one tile."""
    alone = config.cluster == 1 and prod(problem.batch) == 1
    return alone and problem.n <= config.bn, alone and problem.m <= config.bm


def boxes(problem: Problem, config: Config) -> tuple[tuple[int, int], tuple[int, int]]:
    """The boxes of A and B. What two blocks of a cluster share, each of them loads half of."""
    step, a_parts, b_parts = config.bk, config.cluster_n, config.cluster_m
    (transposed_a, transposed_b), (a_lines, b_lines) = (
        mn_major(problem),
        map(int, loaded_lines(problem, config)),
    )
    slab = ROW_BYTES // size_of(problem.dtype)
    a = (slab, step // a_parts) if transposed_a else (step, a_lines // a_parts)
    b = (slab, step // b_parts) if transposed_b else (step, b_lines // b_parts)
    return a, b


def patch(problem: Problem, config: Knobs, peers: int = 1) -> tuple[Any, Any]:
    """What a warp lays down of D at once, touching elements first: 16 rows of up to 128 bytes; or, where
    columns touch, 16 of as many columns, or 64 that are four warps'. They divide the tile. Half of that where
    C comes in as many bytes."""
    size, most = size_of(problem.out_dtype), ROW_BYTES // (1 if problem.c is None else 2)
    if transposed_d(problem):
        lines = widest((64, 32), most // size, config.bn, 16)
        return np.where(by_group(problem, config, peers), 4 * PATCH_ROWS, PATCH_ROWS), lines
    least = np.where(config.bn % 16 == 0, PATCH_BYTES // size, 16)  # one that overlaps brings eight columns
    return widest((128 // size, 64 // size), most // size, config.bn, least), PATCH_ROWS


def widest(widths: tuple[int, int], most: int, columns: Any, otherwise: Any) -> Any:
    """The first of these numbers that is not too large and divides the columns."""
    first, second = ((width <= most) & (columns % width == 0) for width in widths)
    return np.where(first, widths[0], np.where(second, widths[1], otherwise))


def by_group(problem: Problem, config: Knobs, peers: int = 1) -> Any:
    """Whether the four warps of a warpgroup lay columns of D together, in lines of 128 bytes
    (cuda/wgmma_pipeline.cuh). Peers in a cluster have some warps' patches each, and C comes warp by warp."""
    alone = peers == 1 and not by_registers(problem) and problem.c is None
    whole = transposed_d(problem) and size_of(problem.out_dtype) == 2 and alone
    return (config.ping_pong == 0) & whole


@fact
def transposed_d(problem: Problem) -> bool:
    """Whether columns of D touch: where A and B are exchanged, or D has no more than one."""
    if not problem.d.lies("row"):
        return True
    wide = size_of(problem.out_dtype) > 1 and problem.d.lies("col") and problem.d.cols < problem.d.rows
    return wide and made_of_16(problem.d, line(problem.d, False), size_of(problem.out_dtype))


def operand_map(
    problem: Problem,
    matrix: Matrix,
    address: int,
    lines: tuple[int, int, int],
    box: tuple[int, int],
    ranks: int,
    packs: bool = False,
    once: bool = False,
) -> TensorMap:
    """Of an operand as it lies, or of its copy: there matrices follow each other."""
    count, length, step = lines
    size, dtype = size_of(problem.dtype), ROUNDED.get(problem.math, problem.dtype)
    steps = [step * size if count > 1 and length > 0 else TMA_ALIGNMENT]
    extents = [max(1, length), max(1, count)]
    behind = count * step
    for extent, stride in batch_steps(problem, matrix)[: ranks - 2]:
        extents.append(extent if stride else 1)
        steps.append((behind if packs and stride else stride) * size or TMA_ALIGNMENT)
        behind *= extents[-1]
    together = L2_LINE if once else 2 * L2_LINE  # a stream whose lines come in pairs is a twentieth slower
    return TensorMap(address, dtype, tuple(extents), tuple(steps), (*box, *(1,) * (ranks - 2)), 128, together)


def batch_steps(problem: Problem, matrix: Matrix) -> list[tuple[int, int]]:
    """(extent, stride) of the inner and the outer batch dimension."""
    found = list(zip(problem.batch[::-1], matrix.batch_strides[::-1], strict=True))
    return [*found, (1, 0), (1, 0)][:2]


def family_maps(problem: Problem, config: Config, at: Mapping[str, int], peers: int) -> dict[str, TensorMap]:
    """For gemm/wgmma.cu: batches of matrices; packed operands lie in the workspace."""
    lines, packs, starts = packed_lines(problem), packed(problem), [at["A"], at["B"]]
    free = at["workspace"]
    for index, nbytes in enumerate(packed_bytes(problem)):
        if packs[index]:
            starts[index] = free
            free += nbytes
    a_box, b_box = boxes(problem, config)
    a_once, b_once = read_once(problem, config)
    b_map = operand_map(problem, problem.b, starts[1], lines[1], b_box, 4, packs[1], b_once)
    if problem.skewed:
        a_map, d_map = skewed_maps(problem, config, at["A"])
        return {"a_map": a_map, "b_map": b_map, "d_map": d_map}
    a_map = operand_map(problem, problem.a, starts[0], lines[0], a_box, 4, packs[0], a_once)
    if problem.k == 0:
        a_map, b_map = (nothing_at(at["D"], a_or_b) for a_or_b in (a_map, b_map))
    d_map = output_map(problem, config, at["D"], 4, peers) if copies_out(problem) else a_map  # not looked at
    return {"a_map": a_map, "b_map": b_map, "d_map": d_map}


def skewed_maps(problem: Problem, config: Config, address: int) -> tuple[TensorMap, TensorMap]:
    """A's rows in groups of eight, from the 16 bytes on in which A begins. A line of a map reaches from the
    first of eight rows to the end of the last, and where a box begins selects the row. The first map is for
    rows that the last, incomplete group has, the second for the others.
    """
    (count, length, step), size = lines_of(problem)[0], size_of(problem.dtype)
    eights, rest = divmod(count, 8)
    skew = address % TMA_ALIGNMENT // size

    def of_rows(last: int, lines: int) -> TensorMap:
        extents, steps = (
            (skew + last * step + length, lines, 1, 1),
            (8 * step * size, TMA_ALIGNMENT, TMA_ALIGNMENT),
        )
        box = (SKEWED_BYTES // size, config.bm // 8, 1, 1)
        return TensorMap(address - address % TMA_ALIGNMENT, problem.dtype, extents, steps, box, 0)

    fewer = of_rows(7, eights)
    return (of_rows(rest - 1, eights + 1) if rest else fewer), fewer


def nothing_at(address: int, operand: TensorMap) -> TensorMap:
    """An operand without elements, of which boxes outside are loaded, for their zeros. The engine looks at
    its memory for them all the same, and frameworks give it no address: so it lies where something is that
    may be looked at."""
    ranks = len(operand.shape)
    place = address // TMA_ALIGNMENT * TMA_ALIGNMENT
    return replace(operand, address=place, shape=(1,) * ranks, strides=(TMA_ALIGNMENT,) * (ranks - 1))


def rung_maps(problem: Problem, config: Config, at: Mapping[str, int], _: int) -> dict[str, TensorMap]:
    """For the rungs: single matrices. Blocks of a cluster load whole slabs of a turned B."""
    a_lines, b_lines = lines_of(problem)
    b_box = (config.bk, config.bn // config.cluster_m) if along_k(problem.b, False) else (64, config.bk)
    a_map = operand_map(problem, problem.a, at["A"], a_lines, (config.bk, config.bm), 2)
    return {
        "a_map": a_map,
        "b_map": operand_map(problem, problem.b, at["B"], b_lines, b_box, 2),
        # Rungs read C from registers. Where D leaves by hand nobody looks at its map.
        "d_map": output_map(replace(problem, c=None), config, at["D"], 2)
        if rows_copied_out(problem)
        else a_map,
    }


def output_map(problem: Problem, config: Config, address: int, ranks: int, peers: int = 1) -> TensorMap:
    size, (width, height) = size_of(problem.out_dtype), map(int, patch(problem, config, peers))
    count, length, step = line(problem.d, not transposed_d(problem))
    steps = [step * size if count > 1 else TMA_ALIGNMENT]
    extents = [max(1, length), max(1, count)]
    for extent, stride in batch_steps(problem, problem.d)[: ranks - 2]:
        extents.append(extent)
        steps.append(stride * size or TMA_ALIGNMENT)
    box = (width, height, *(1,) * (ranks - 2))
    return TensorMap(address, problem.out_dtype, tuple(extents), tuple(steps), box, width * size)


@fact
def copies_out(problem: Problem) -> bool:
    """Whether the copy engine may write D."""
    return made_of_16(problem.d, line(problem.d, not transposed_d(problem)), size_of(problem.out_dtype))


@fact
def rows_copied_out(problem: Problem) -> bool:
    """Likewise, to a kernel that knows rows of D alone."""
    return copies_out(problem) and not transposed_d(problem)


@fact
def c_by_elements(problem: Problem) -> dict[str, object]:
    """Where C cannot come as D leaves, in pieces of 16 bytes. One line of it may stand for all."""
    if problem.c is None:
        return {}
    along, across = ("col", "row") if transposed_d(problem) else ("row", "col")
    count, length, step = line(problem.c, along == "row")
    if not problem.c.lies(along):
        return {"C_BY_ELEMENTS": 2 if problem.c.lies(across) else 1}
    pieces = starts_on_16(problem.c, (count if step else 1, length, step), size_of(problem.out_dtype))
    return {} if pieces else {"C_BY_ELEMENTS": 1}


def made_of_16(matrix: Matrix, lines: tuple[int, int, int], size: int) -> bool:
    """Where a line ends inside of 16 bytes, an H200 writes all sixteen: what lies behind the line would
    become zeros.
    """
    return starts_on_16(matrix, lines, size) and lines[1] * size % TMA_ALIGNMENT == 0


# ---- shared memory ----


def warpgroups(config: Knobs) -> Any:
    """That multiply. Three share a tile of 192 rows, with fewer registers and half the patches. In ping-pong
    there are two.
    """
    return config.consumers // 128


def stages_bytes(config: Knobs, transposed_b: bool, a_rows: Any, a_bytes: int = ROW_BYTES) -> Any:
    b = -(-config.bn // 64) * SLAB_BYTES if transposed_b else config.bn * 128
    return config.stages * (-(-(a_rows * a_bytes + b) // 1024) * 1024 + 16) + 1024


def plain_shared(config: Knobs, problem: Problem) -> Any:
    """Stages and their barriers, and room to start on 1024 bytes."""
    return stages_bytes(config, False, config.bm)


def wgmma_shared(config: Knobs, problem: Problem) -> Any:
    """The same, and 4 KB of patches of D a warp, which take turns, or 2 KB of twelve warps; C has half of
    them. By hand one patch, in longer rows, and those of C."""
    warps = config.consumers // 32
    patched = warps * np.where(warpgroups(config) == 3, 1, 2) * (PATCH_ROWS * ROW_BYTES)
    if not copies_out(problem):
        (width, _), of_c = patch(problem, config), 0 if problem.c is None else patched // 2
        patched = of_c + warps * PATCH_ROWS * (width * size_of(problem.out_dtype) + BESIDE_ROW)
    a_bytes = SKEWED_BYTES if problem.skewed else ROW_BYTES
    stages = stages_bytes(config, mn_major(problem)[1], rows_of_stage(problem, config), a_bytes)
    return stages + patched + factor_bytes(config, problem.scaling) + TURN_BYTES


def patched_shared(config: Knobs, problem: Problem) -> Any:
    """For the rungs, which have room for all rows of a tile and read C into registers: stages, and two
    patches of D a warp; by hand one, in longer rows.
    """
    patch_bytes = (
        2 * PATCH_ROWS * ROW_BYTES if rows_copied_out(problem) else PATCH_ROWS * (ROW_BYTES + BESIDE_ROW)
    )
    return plain_shared(config, problem) + config.consumers // 32 * patch_bytes


def beside_another(config: Knobs, problem: Problem) -> Any:
    """Whether a block leaves room for one of the next launch, where operands are packed. Blocks that meet
    need their places all at once. Else these are free only when the last block of the launch ahead has ended.
    A long k wants more stages."""
    if not any(packed(problem)) or any(transposed(problem)) or problem.skewed:
        return False
    alone = (warpgroups(config) == 1) & (config.cluster == 1) & (config.bn <= MOST_BESIDE)
    tiles = -(-problem.m // config.bm) * -(-problem.n // config.bn) * prod(problem.batch)
    short = (problem.k * config.bn <= LONGEST_BESIDE) & (tiles > LEAST_BESIDE)
    return alone & short & (wgmma_shared(config, problem) <= HALF_SHARED)


def factor_bytes(config: Knobs, scaling: Scaling) -> Any:
    """Factors that change along k are brought with each stage: one a row of A; one a column of B, or two for
    all of them.
    """
    of_a = config.bm if scaling.a.along_k else 0
    of_b = {STRIPS: config.bn, SQUARES: 2}.get(scaling.b.kind, 0)
    along_k = scaling.a.along_k or scaling.b.along_k
    return config.stages * 4 * (of_a + of_b + 2) if along_k else 8
