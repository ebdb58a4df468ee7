"""Rules of the kernels with wmma and mma.sync."""

from __future__ import annotations

from typing import Any

from lapidist.device import STATIC_SHARED
from lapidist.dtypes import size_of
from lapidist.kernels.rules.fma import WARPS, WARPS_FILL
from lapidist.kernels.rules.problem_facts import Facts
from lapidist.kernels.rules.rule import Rule, power_of_two
from lapidist.problems.scaling import K_BLOCK

PROMOTED_SUMS = 64 * 32  # most sums of a warp if they are promoted: registers hold them twice
FRAGMENTS_M, FRAGMENTS_N = 2, 4  # fragments of a warp of rung 22

# ---- wmma ----


def fragments_fill(by_m: int, by_n: int) -> Rule:
    """A warp has by_m x by_n fragments, which fill the tile."""
    return Rule(
        lambda c, f: (c.bm % (by_m * f.fragment[0]) == 0) & (c.bn % (by_n * f.fragment[1]) == 0),
        lambda c, f: (
            f"warps' fragments of {by_m * f.fragment[0]}x{by_n * f.fragment[1]} fill a tile; it is"
            f" {c.bm}x{c.bn}"
        ),
    )


def a_warp_each(by_m: int, by_n: int) -> Rule:
    def threads(c: Any, f: Facts) -> Any:
        return c.bm // (by_m * f.fragment[0]) * (c.bn // (by_n * f.fragment[1])) * 32

    return Rule(
        lambda c, f: c.consumers == threads(c, f),
        lambda c, f: (
            f"a warp has fragments of {by_m * f.fragment[0]}x{by_n * f.fragment[1]}, which are wm and wn; of"
            f" {c} the block has {c.consumers} threads in place of {threads(c, f)}"
        ),
    )


def patches_of_simple(c: Any, f: Facts) -> Any:
    """Bytes of the warps' patches of A, B and sums."""
    m, n, k = f.fragment
    return c.consumers // 32 * ((m * k + k * n) * f.size + m * n * size_of(f.problem.accumulator))


WMMA_SIMPLE = (
    fragments_fill(1, 1),
    a_warp_each(1, 1),
    Rule(
        lambda c, f: patches_of_simple(c, f) <= STATIC_SHARED,
        lambda c, f: (
            f"patches of A, B and sums of {c.consumers // 32} warps take {patches_of_simple(c, f)} bytes of"
            f" static shared memory, of which a kernel has {STATIC_SHARED}"
        ),
    ),
)


def whole_rows(letter: str) -> Rule:
    """Threads move a tile in chunks of 16 bytes: the threads cover whole rows, and all rows in
    whole turns.
    """

    def shape(c: Any, f: Facts) -> tuple[Any, Any]:
        """Rows, and chunks in a row."""
        outer, along_k = (c.bm, f.tiles_along_k[0]) if letter == "A" else (c.bn, f.tiles_along_k[1])
        return (outer, c.bk * f.size // 16) if along_k else (c.bk, outer * f.size // 16)

    def holds(c: Any, f: Facts) -> Any:
        rows, chunks = shape(c, f)
        return (c.consumers % chunks == 0) & (rows * chunks % c.consumers == 0)

    def words(c: Any, f: Facts) -> str:
        rows, chunks = shape(c, f)
        return (
            f"all threads move whole rows of {letter}'s tile, a chunk of 16 bytes each: chunks of a row"
            f" divide the threads, and they all chunks; with {c} these are {chunks}, {c.consumers},"
            f" {rows * chunks}"
        )

    return Rule(holds, words)


WMMA_SHARED = (
    fragments_fill(FRAGMENTS_M, FRAGMENTS_N),
    Rule(
        lambda c, f: (c.bk > 0) & (c.bk % f.fragment[2] == 0),
        lambda c, f: f"fragments are {f.fragment[2]} deep: bk is a multiple; it is {c.bk}",
    ),
    a_warp_each(FRAGMENTS_M, FRAGMENTS_N),
    whole_rows("A"),
    whole_rows("B"),
)

# ---- mma.sync ----


def least_columns(f: Facts) -> int:
    """Least columns of a warp's tile. Eights of B are loaded in pairs, unless one element at a time."""
    return 8 if f.size == 8 or (f.size == 4 and not f.tiles_along_k[1]) else 16


def chunks_in_a_row(letter: str) -> Rule:
    """The swizzle of a tile is an XOR, so rows have a power of two of bytes."""

    def nbytes(c: Any, f: Facts) -> Any:
        outer, along_k = (c.bm, f.tiles_along_k[0]) if letter == "A" else (c.bn, f.tiles_along_k[1])
        return (c.bk if along_k else outer) * f.size

    return Rule(
        lambda c, f: (nbytes(c, f) >= 16) & power_of_two(nbytes(c, f)),
        lambda c, f: (
            f"rows of {letter}'s tile have 16, 32, 64, … bytes: the swizzle is an XOR; of {c} they have"
            f" {nbytes(c, f)}"
        ),
    )


WARPS_OF_EIGHTS = (
    WARPS,
    Rule(
        lambda c, f: (c.wm >= 16) & power_of_two(c.wm) & (c.wn >= least_columns(f)) & power_of_two(c.wn),
        lambda c, f: (
            f"a warp's operands come in pairs of 8 lines: wm is 16, 32, 64, …, wn {least_columns(f)},"
            f" {2 * least_columns(f)}, …; they are {c.wm} and {c.wn}"
        ),
    ),
    WARPS_FILL,
    Rule(
        lambda c, f: c.consumers == c.bm // c.wm * (c.bn // c.wn) * 32,
        lambda c, f: f"a warp's tile is its own as a whole: tm, tn are 0, 0; they are {c.tm}, {c.tn}",
    ),
)
CHUNKS = (
    chunks_in_a_row("A"),
    chunks_in_a_row("B"),
    whole_rows("A"),
    whole_rows("B"),
    Rule(
        lambda c, f: c.wn % (2 * f.stored_at_once) == 0,
        lambda c, f: (
            f"lanes store whole vectors of D, all alike: wn is a multiple of {2 * f.stored_at_once}, twice a"
            f" vector; it is {c.wn}"
        ),
    ),
)
SWIZZLED = (
    *WARPS_OF_EIGHTS,
    Rule(
        lambda c, f: (c.bk > 0) & (c.bk % f.depth == 0),
        lambda c, f: f"a step of products is {f.depth} deep: bk is a multiple; it is {c.bk}",
    ),
    *CHUNKS,
)
# The assembler of NVRTC 13.0 leaves out a wait: with these warps and 32 steps of k, a loop's first product
# adds to a sum 35 cycles after the last one began, where 64 are needed. An H200 was wrong in 60 of 60 runs.
# The lab finds it in machine code (sass/sums_in_flight.py).
DOUBLES, LEAST_WARP, MOST_STEPS = 8, 16 * 8, 16  # bytes, elements, elements along k
STAGED = (
    *WARPS_OF_EIGHTS,
    Rule(
        lambda c, f: (c.bk > 0) & (c.bk % (2 * f.depth) == 0),
        lambda c, f: (
            f"two fragments take turns within a tile: bk is a multiple of {2 * f.depth}; it is {c.bk}"
        ),
    ),
    Rule(
        lambda c, f: c.stages >= 3,
        lambda c, f: (
            "one tile is read, one is freed, one at least is under way: stages are 3 or more; they are"
            f" {c.stages}"
        ),
    ),
    Rule(
        lambda c, f: (f.size != DOUBLES) | (c.wm * c.wn > LEAST_WARP) | (c.bk <= MOST_STEPS),
        lambda c, f: (
            f"doubles in warps of {LEAST_WARP} elements come out wrong with bk over {MOST_STEPS}; it is"
            f" {c.bk}"
        ),
    ),
    *CHUNKS,
)


def alike_in_words(letter: str) -> Rule:
    """Elements of 1 and 2 bytes whose lines start anywhere pass through registers, shifted within words.
    Chunks of a thread must start at one offset in a word.
    """

    def step(c: Any, f: Facts) -> Any:
        """Rows of the tile between two chunks of a thread, for elements of one byte."""
        outer, along_k = (c.bm, f.tiles_along_k[0]) if letter == "A" else (c.bn, f.tiles_along_k[1])
        return c.consumers * 16 // (c.bk if along_k else outer)

    def shifted(f: Facts) -> bool:
        gathered = f.problem.modes.gather_a if letter == "A" else f.problem.modes.gather_b
        return (
            f.macro(f"{letter}_VECTOR") * f.size < 4 and f.macro(f"{letter}_CONTIGUOUS") != 0 and not gathered
        )

    return Rule(
        lambda c, f: not shifted(f) or step(c, f) % 4 == 0,
        lambda c, f: (
            f"{letter} starts anywhere and is shifted within words of 4 bytes: 16 threads over the elements"
            f" of a row of its tile are a multiple of 4; of {c} they are {step(c, f)}"
        ),
    )


PROMOTED = (
    Rule(
        lambda c, f: not f.problem.scaling.promoted or K_BLOCK % c.bk == 0,
        lambda c, f: (
            f"promoted sums leave the tensor core every {K_BLOCK} of k, whole steps; one of this tile has"
            f" {c.bk}"
        ),
    ),
    Rule(
        lambda c, f: not f.problem.scaling.promoted or c.wm * c.wn <= PROMOTED_SUMS,
        lambda c, f: (
            f"promoted sums are held twice: a warp has room for {PROMOTED_SUMS}; this tile gives it"
            f" {c.wm * c.wn}"
        ),
    ),
)
MMA = (*STAGED, alike_in_words("A"), alike_in_words("B"), *PROMOTED)
