"""Rules of the kernels with wgmma: what the instruction, the registers and TMA allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from lapidist.config import Config
from lapidist.kernels.budgets import (
    PASSING,
    PLAIN_SUMS,
    PROMOTED_SUMS,
    PROMOTED_SUMS_OF_THREE,
    SUMS,
    SUMS_OF_PARTS,
    SUMS_OF_PARTS_BESIDE,
    SUMS_OF_THREE,
)
from lapidist.kernels.rules.problem_facts import Facts
from lapidist.kernels.rules.rule import Rule, either, one_of, parts
from lapidist.kernels.tma_alignment import TMA_ALIGNMENT
from lapidist.kernels.wgmma.configs import (
    CLUSTERS,
    COLUMNS,
    HALF_PATCHED,
    MOST_COLUMNS,
    TILE_ROWS,
    rows_of_warp,
)
from lapidist.kernels.wgmma.maps import SKEWED_ROWS, SKEWED_STEP
from lapidist.kernels.wgmma.operands import EITHER_WAY, joins_columns, start_anywhere
from lapidist.kernels.wgmma.tiles import PATCH_BYTES, PATCH_ROWS, ROW_BYTES, columns_of_part, warpgroups
from lapidist.launch import INT_LIMIT
from lapidist.problems.scaling import K_BLOCK, SQUARES, STRIPS

INTEGERS = "int8", "uint8"
GATHERED_ROWS = 128  # a lane holds the indices of eight
RUNG_COLUMNS = 64  # columns of a slab of B, which a block of a rung loads whole

# ---- knobs alone ----


def rows_of_sums(c: Any) -> Any:
    """How many times 64 rows a warpgroup multiplies."""
    return c.wm // PATCH_ROWS


KNOBS = (
    Rule(
        lambda c, f: one_of(c.bm, TILE_ROWS),
        lambda c, f: f"a warpgroup multiplies 64 rows: bm is 64, 128, 192 or 256; it is {c.bm}",
        of_knobs=True,
    ),
    Rule(
        lambda c, f: ((c.bn % COLUMNS == 0) & (c.bn <= MOST_COLUMNS)) | (c.bn == HALF_PATCHED),
        lambda c, f: (
            "an instruction multiplies up to 256 columns: bn is a multiple of 16 up to 256, or 200; it is"
            f" {c.bn}"
        ),
        of_knobs=True,
    ),
    Rule(
        lambda c, f: c.bk * f.size == ROW_BYTES,
        lambda c, f: (
            f"a step along k is a row of the swizzle, 128 bytes: bk is {ROW_BYTES // f.size} of"
            f" {f.problem.dtype}; it is {c.bk}"
        ),
    ),
    Rule(
        lambda c, f: (c.wm == rows_of_warp(c.bm, c.ping_pong)) & (c.wn == c.bn) & (c.tm == 0) & (c.tn == 0),
        lambda c, f: (
            f"the instruction decides who holds the sums: for tiles of {c.bm}x{c.bn} wm, wn, tm, tn are "
            f"{rows_of_warp(c.bm, c.ping_pong)}, {c.bn}, 0, 0; they are {c.wm}, {c.wn}, {c.tm}, {c.tn}"
        ),
        of_knobs=True,
    ),
    Rule(
        lambda c, f: c.stages >= 2,
        lambda c, f: (
            "a stage is given back when the next one's products are on their way: it takes 2 at least; it is"
            f" {c.stages}"
        ),
        of_knobs=True,
    ),
    Rule(
        lambda c, f: (
            one_of(c.cluster_m * 16 + c.cluster_n, [16 * m + n for m, n in CLUSTERS]) & (c.cluster_n < 16)
        ),
        lambda c, f: (
            f"clusters are {', '.join(f'{m}x{n}' for m, n in CLUSTERS)} blocks: larger ones find no place; "
            f"got {c.cluster_m}x{c.cluster_n}"
        ),
        of_knobs=True,
    ),
)


def tiles_across(c: Any, f: Facts) -> Any:
    """Tiles of clusters along a band."""
    down, along = parts(f.problem.m, c.bm * c.cluster_m), parts(f.problem.n, c.bn * c.cluster_n)
    return either(c.along_m, down, along)


BANDS = Rule(
    lambda c, f: c.raster * tiles_across(c, f) <= INT_LIMIT,
    lambda c, f: (
        f"tiles of a band are counted in 32 bits: raster is {INT_LIMIT // tiles_across(c, f)} at most; it is"
        f" {c.raster}"
    ),
)

# ---- registers and the epilogue ----


def through(c: Any, f: Facts) -> Any:
    """Registers for elements of A that pass through them."""
    return PASSING * rows_of_sums(c) * (1 if f.by_registers else c.skewed)


def room(c: Any, f: Facts) -> Any:
    plain = (c.ping_pong == 0) & (through(c, f) == 0) & (f.copies_out and not f.problem.scaling.promoted)
    return either(warpgroups(c) == 3, SUMS_OF_THREE, either(plain, PLAIN_SUMS, SUMS))


def words_of_room(c: Config, f: Facts) -> str:
    bytes_of_a = through(c, f)
    more = f", and A takes {bytes_of_a} on its way through them" if bytes_of_a else ""
    return (
        f"a thread has {room(c, f)} registers for its sums; this tile gives it"
        f" {rows_of_sums(c) * c.bn // 2}{more}"
    )


def held(c: Any, f: Facts) -> Any:
    """Registers of promoted sums, of a part's products before they are promoted, and of a factor for each
    column.
    """
    strips = f.problem.scaling.b.kind == STRIPS
    part = columns_of_part(c, f.problem)
    return rows_of_sums(c) * c.bn // 2 + part // 2 + (part // 4 if strips else 0) + through(c, f)


def room_for_promoted(c: Any) -> Any:
    return either(warpgroups(c) == 3, PROMOTED_SUMS_OF_THREE, PROMOTED_SUMS)


def cuts_k(f: Facts) -> bool:
    """Whether a block adds up parts of k of a tile of groups."""
    return f.problem.modes.fixed_cuts is not None


def held_twice(c: Any, f: Facts) -> Any:
    """Registers of a part's sums and of those of the parts before."""
    sums = rows_of_sums(c) * c.bn // 2
    return sums + (held(c, f) if f.problem.scaling.promoted else sums)


def room_for_parts(f: Facts) -> int:
    if f.problem.scaling.promoted:
        return PROMOTED_SUMS
    beside = f.problem.c is not None or f.problem.modes.gather_a
    return SUMS_OF_PARTS_BESIDE if beside else SUMS_OF_PARTS


REGISTERS = (
    Rule(
        lambda c, f: not f.by_registers or c.bm % (ROW_BYTES // f.size) == 0,
        lambda c, f: (
            f"A is transposed on its way through registers: bm is a multiple of {ROW_BYTES // f.size};"
            f" it is {c.bm}"
        ),
    ),
    Rule(
        lambda c, f: (c.skewed == 0) | (f.problem.math in EITHER_WAY and f.a_along_k and not f.problem.batch),
        lambda c, f: (
            "rows of A are shifted where A is K-major, has a 16-bit type, and is one matrix, not a batch"
        ),
    ),
    Rule(
        lambda c, f: (
            (c.skewed == 0) | (start_anywhere(f.problem)[0] and f.problem.a.row_stride < SKEWED_STEP)
        ),
        lambda c, f: (
            f"rows of A start on {TMA_ALIGNMENT} bytes, and need no shift; or they are more than"
            f" {SKEWED_STEP} elements apart"
        ),
    ),
    Rule(
        lambda c, f: (c.skewed == 0) | (f.problem.c is None and not f.transposed_d and not f.copies_out),
        lambda c, f: (
            "where rows of A are shifted, a patch of D has every eighth row: threads store it, without C"
        ),
    ),
    Rule(
        lambda c, f: (
            (c.skewed == 0)
            | ((f.problem.m >= SKEWED_ROWS) & (c.bm <= SKEWED_ROWS) & (c.ping_pong == 0) & (c.cluster_n <= 2))
        ),
        lambda c, f: (
            f"rows of A are shifted for tiles of 64 or 128 rows, not in ping-pong, and A has {SKEWED_ROWS} or"
            " more; two blocks at most share them"
        ),
    ),
    Rule(lambda c, f: rows_of_sums(c) * c.bn // 2 + through(c, f) <= room(c, f), words_of_room),
)
# In tiles of 200 columns the last patch overlaps the one before it.
HALF_PATCH = (
    Rule(
        lambda c, f: (c.bn != HALF_PATCHED) | (f.problem.math not in INTEGERS),
        lambda c, f: f"wgmma multiplies 8-bit integers by columns in 16s; this tile has {c.bn}",
    ),
    Rule(
        lambda c, f: (c.bn != HALF_PATCHED) | (f.problem.c is None and not f.problem.scaling.scaled),
        lambda c, f: (
            f"eight of {c.bn} columns are stored twice: C, or a factor, would be applied to them twice"
        ),
    ),
    Rule(
        lambda c, f: (c.bn != HALF_PATCHED) | (f.problem.owners is None),
        lambda c, f: (
            f"lines of a box may have two owners, as tiles of {c.bn} columns begin between two boxes"
        ),
    ),
    Rule(
        lambda c, f: (c.bn != HALF_PATCHED) | (f.out_size > 1),
        lambda c, f: (
            f"TMA writes from multiples of {TMA_ALIGNMENT} bytes on; tiles of {c.bn} bytes begin elsewhere"
        ),
    ),
    Rule(
        lambda c, f: (c.bn != HALF_PATCHED) | ((c.ping_pong == 0) & (c.cluster > 1) & f.copies_out),
        lambda c, f: f"tiles of {c.bn} columns need a cluster, no ping-pong, and a D that TMA stores",
    ),
    Rule(
        lambda c, f: (c.bn != HALF_PATCHED) | (not joins_columns(f.problem)),
        lambda c, f: f"the epilogue joins columns in 16s before rows are reduced; this tile has {c.bn}",
    ),
)
WAY_OUT = (
    Rule(
        lambda c, f: f.transposed_d or (c.bn == HALF_PATCHED) | (c.bn * f.out_size % PATCH_BYTES == 0),
        lambda c, f: (
            f"D is stored in patches with rows of {PATCH_BYTES} bytes or more; this tile has {c.bn} columns"
        ),
    ),
    Rule(
        lambda c, f: (c.ping_pong == 0) | (not f.problem.scaling.promoted),
        lambda c, f: (
            "in ping-pong a warpgroup has a tile to itself, whose sums stay in the tensor core: these shall"
            " be promoted"
        ),
    ),
    Rule(
        lambda c, f: (c.exchanged == 0) | (not f.problem.paired),
        lambda c, f: (
            "the epilogue takes neighbouring columns in pairs; with A and B exchanged a thread has rows of D"
            " side by side"
        ),
    ),
    Rule(
        lambda c, f: (c.exchanged == 0) | (f.transposed_d and f.copies_out and f.out_size > 1),
        lambda c, f: (
            "with A and B exchanged only TMA stores D: elements of 2 bytes or more, rows that start on 16"
        ),
    ),
    Rule(
        lambda c, f: not f.problem.scaling.promoted or held(c, f) <= room_for_promoted(c),
        lambda c, f: (
            "promoted sums have the products of a part beside them, and a factor a column: a thread has room"
            f" for {room_for_promoted(c)}; this tile gives it {held(c, f)}"
        ),
    ),
    Rule(
        lambda c, f: f.problem.scaling.b.kind != SQUARES or c.bn <= K_BLOCK + (c.bn & -c.bn),
        lambda c, f: (
            f"a tile meets at most two factors along its columns, 128 columns each; one of {c.bn} may meet"
            " three"
        ),
    ),
)
GROUPED = (
    Rule(
        lambda c, f: (not cuts_k(f)) | (held_twice(c, f) <= room_for_parts(f)),
        lambda c, f: (
            "where k of groups is cut in all tiles alike, a thread has the sums of the parts before beside"
            f" those of a part: it has room for {room_for_parts(f)}; this tile gives it {held_twice(c, f)}"
        ),
    ),
    Rule(
        lambda c, f: (warpgroups(c) < 3) | (not cuts_k(f)),
        lambda c, f: "threads of three warpgroups have no room for sums of the parts before; got three",
    ),
    Rule(
        lambda c, f: (c.ping_pong == 0) | (not cuts_k(f)),
        lambda c, f: "in ping-pong warpgroups take turns tile by tile; here k of each is cut into parts",
    ),
)
GATHERED = (
    Rule(
        lambda c, f: (not f.problem.modes.gather_a) | ((c.bm <= GATHERED_ROWS) & (c.cluster_n == 1)),
        lambda c, f: (
            f"four warps of each block copy the gathered rows of its tile, {GATHERED_ROWS} at most, for no"
            f" other block; this tile has {c.bm}, and {c.cluster_n} blocks side by side"
        ),
    ),
    Rule(
        lambda c, f: (not f.problem.modes.scatter_rows) | (c.bn != HALF_PATCHED),
        lambda c, f: f"eight of {c.bn} columns are stored twice: two lanes would store a scattered row's",
    ),
)
FAMILY = (*KNOBS, BANDS, *REGISTERS, *HALF_PATCH, *WAY_OUT, *GROUPED, *GATHERED)

# ---- the rungs ----


def rung(configs: Mapping[str, Config], patched: bool = False) -> tuple[Rule, ...]:
    """A rung has one config for each type, of which the columns and the stages are free. `patched`: it stores
    by patches of 128 bytes of a row.
    """
    names = [each.name for each in fields(Config) if each.name not in ("bn", "wn", "stages")]
    fixed = {math: [(name, getattr(config, name)) for name in names] for math, config in configs.items()}

    def columns(c: Any) -> Any:
        return RUNG_COLUMNS * c.cluster

    def matches_config(c: Any, f: Facts) -> Any:
        math = f.problem.math
        config = configs[math]
        same: Any = c.wn == (c.bn if config.wn == config.bn else config.wn)
        for name, value in fixed[math]:
            same = same & (getattr(c, name) == value)
        return same

    return (
        Rule(
            lambda c, f: (c.bn % columns(c) == 0) & (c.bn <= MOST_COLUMNS) & (c.stages >= 2),
            lambda c, f: (
                f"a rung's tiles have columns in {columns(c)}s, up to 256, and 2 stages at least; the config"
                f" is {c}"
            ),
        ),
        Rule(
            matches_config,
            lambda c, f: (
                f"a rung is one config, of which bn, wn = bn and stages are free: {configs[f.problem.math]};"
                f" got {c}"
            ),
        ),
        Rule(
            lambda c, f: not patched or c.bn * f.out_size % ROW_BYTES == 0,
            lambda c, f: (
                f"a patch has {ROW_BYTES} bytes of each row: with {f.problem.out_dtype} out, bn is a multiple"
                f" of {ROW_BYTES // f.out_size}; it is {c.bn}"
            ),
        ),
    )
