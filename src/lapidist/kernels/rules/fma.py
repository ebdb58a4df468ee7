"""Rules of the kernels on CUDA cores: the ladder's, its detours', simt's and sgemm's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lapidist.device import STATIC_SHARED
from lapidist.kernels.rules.problem_facts import Facts
from lapidist.kernels.rules.rule import Rule
from lapidist.schedule.numbers import larger, smaller

SIMT_PAD = 4  # unused elements behind each line of a tile in gemm/simt.cu
BOX = 256  # most elements along a side of TMA's box
CONSUMERS = 256  # threads that multiply, in blocks fed by TMA
SWIZZLE_ROW = 128  # bytes
Buffers = Callable[[Any, Facts], Any]  # elements


def declared(elements: Buffers, buffers: str) -> Rule:
    """Static shared memory: the assembler refuses a kernel that declares more."""
    return Rule(
        lambda c, f: elements(c, f) * f.size <= STATIC_SHARED,
        lambda c, f: (
            f"{buffers} take {elements(c, f) * f.size} bytes of static shared memory, of which a kernel has"
            f" {STATIC_SHARED}"
        ),
    )


# ---- one thread, one element: 01 to 05, and the checks of borders ----

ONE_EACH = Rule(
    lambda c, f: c.consumers == c.bm * c.bn,
    lambda c, f: (
        f"a thread has one element of a tile: its block has bm x bn = {c.bm * c.bn} threads; with {c} it has"
        f" {c.consumers}"
    ),
)
WARP_ROWS = Rule(
    lambda c, f: c.bm % 32 == 0, lambda c, f: f"a warp is 32 rows of the tile: bm is a multiple; it is {c.bm}"
)
WARP_COLUMNS = Rule(
    lambda c, f: c.bn % 32 == 0,
    lambda c, f: f"a warp is 32 columns of one row of the tile: bn is a multiple; it is {c.bn}",
)
SQUARE = Rule(
    lambda c, f: (c.bm == c.bk) & (c.bn == c.bk),
    lambda c, f: (
        f"a thread loads as much of A's tile as of B's: bm, bn and bk are equal; they are {c.bm}, {c.bn},"
        f" {c.bk}"
    ),
)
DOWN_A_COLUMN = ONE_EACH, WARP_ROWS
ALONG_A_ROW = ONE_EACH, WARP_COLUMNS
SHARED_TILE = ONE_EACH, SQUARE

# ---- several of a column, or of a row: 06 and 07 ----

THREAD_COLUMN = (
    SQUARE,
    Rule(
        lambda c, f: c.consumers * c.tm == c.bm * c.bn,
        lambda c, f: (
            "a thread has tm elements of a column, and tm divides bm: its block has bm x bn / tm threads, tn"
            f" is 1; with {c} it has {c.consumers}"
        ),
    ),
    declared(lambda c, f: c.bk * (c.bm + c.bn) + c.bn, "tiles of A and B"),
)
BY_FOURS = (
    Rule(
        lambda c, f: (c.bm * c.bk == 4 * c.consumers) & (c.bk * c.bn == 4 * c.consumers),
        lambda c, f: (
            f"a thread loads four neighbours of each tile: bm x bk and bk x bn are four times the threads;"
            f" with {c} they are {c.bm * c.bk}, {c.bk * c.bn} and {c.consumers}"
        ),
    ),
    Rule(
        lambda c, f: (c.bk % 4 == 0) & (c.bn % 4 == 0),
        lambda c, f: (
            f"lines of tiles are loaded by fours: bk and bn are multiples of 4; they are {c.bk} and {c.bn}"
        ),
    ),
)
AS_IT_LIES = declared(lambda c, f: c.bm * (c.bk + 4) + c.bk * c.bn, "tiles of A and B")
VECTOR_LOADS = (
    Rule(
        lambda c, f: (c.tm == 1) & (c.tn == 4),
        lambda c, f: (
            f"a thread's results are four neighbours of a row: tm, tn are 1, 4; they are {c.tm}, {c.tn}"
        ),
    ),
    *BY_FOURS,
    AS_IT_LIES,
)

# ---- tiles of Fours: 08 to 15 ----

FOURS = Rule(
    lambda c, f: (c.tm > 0) & (c.tm % 4 == 0) & (c.tn > 0) & (c.tn % 4 == 0),
    lambda c, f: (
        f"a thread's tile is loaded by fours: tm and tn are multiples of 4; they are {c.tm} and {c.tn}"
    ),
)
THREADS_FILL = Rule(
    lambda c, f: (c.bm % c.tm == 0) & (c.bn % c.tn == 0),
    lambda c, f: f"threads' tiles of {c.tm}x{c.tn} fill the block's; it is {c.bm}x{c.bn}",
)
WARPS = Rule(
    lambda c, f: (c.wm > 0) & (c.wn > 0), lambda c, f: f"a warp has a tile, wm x wn; it is {c.wm}x{c.wn}"
)
WARPS_FILL = Rule(
    lambda c, f: (c.bm % c.wm == 0) & (c.bn % c.wn == 0),
    lambda c, f: f"warps' tiles of {c.wm}x{c.wn} fill the block's; it is {c.bm}x{c.bn}",
)
PAIRED_LANES = Rule(
    lambda c, f: (c.wm * c.wn == 32 * c.tm * c.tn) & (c.wm % (2 * c.tm) == 0) & (c.wn % (2 * c.tn) == 0),
    lambda c, f: (
        f"a warp has 32 lanes, an even number both ways: wm x wn is 32 tm x tn; of {c.wm}x{c.wn} and"
        f" {c.tm}x{c.tn} it is not"
    ),
)
THREAD_TILE = FOURS, THREADS_FILL, *BY_FOURS, AS_IT_LIES
TRANSPOSED = (
    FOURS,
    THREADS_FILL,
    *BY_FOURS,
    declared(lambda c, f: c.bk * (c.bm + 4 + c.bn), "tiles of A and B"),
)
BOTH_TRANSPOSED = (
    FOURS,
    THREADS_FILL,
    *BY_FOURS,
    declared(lambda c, f: c.bk * (c.bm + c.bn + 8), "tiles of A and B"),
)


def unrolled(by: int) -> tuple[Rule, ...]:
    return (
        *THREAD_TILE,
        Rule(
            lambda c, f: c.bk % by == 0,
            lambda c, f: f"the loop over k goes {by} steps at a time: bk is a multiple; it is {c.bk}",
        ),
    )


LANES = FOURS, WARPS, WARPS_FILL, PAIRED_LANES


def warp_tiles(buffers: int) -> tuple[Rule, ...]:
    return (*LANES, *BY_FOURS, declared(lambda c, f: buffers * c.bk * (c.bm + 4 + c.bn), "tiles of A and B"))


STAGES_AHEAD = Rule(
    lambda c, f: c.stages >= 3,
    lambda c, f: (
        "one tile is read, one is freed, one at least is under way: stages are 3 or more; they are"
        f" {c.stages}"
    ),
)
ROWS_OF_B = Rule(
    lambda c, f: (4 * c.consumers % c.bn == 0) & (c.bk * c.bn % (4 * c.consumers) == 0),
    lambda c, f: (
        "all threads copy whole rows of B, a Four each: bn divides four times the threads, and that bk x"
        f" bn; with {c} these are {c.bn}, {4 * c.consumers}, {c.bk * c.bn}"
    ),
)
ASYNC_PIPELINE = (
    *LANES,
    STAGES_AHEAD,
    Rule(
        lambda c, f: (c.bk > 0) & (c.bk % 2 == 0),
        lambda c, f: f"two fragments take turns within a tile: bk is a multiple of 2; it is {c.bk}",
    ),
    Rule(
        lambda c, f: (c.consumers % c.bk == 0) & (c.bm * c.bk % c.consumers == 0),
        lambda c, f: (
            "all threads copy whole rows of A, an element each: bk divides the threads, and they bm x bk; "
            f"with {c} these are {c.bk}, {c.consumers}, {c.bm * c.bk}"
        ),
    ),
    ROWS_OF_B,
    declared(lambda c, f: c.stages * c.bk * (c.bm + 4 + c.bn), "the stages of A and B"),
)
WIDE_COPIES = (
    *LANES,
    STAGES_AHEAD,
    Rule(
        lambda c, f: (c.bk > 0) & (c.bk % 4 == 0),
        lambda c, f: f"a thread reads a Four of k at once: bk is a multiple of 4; it is {c.bk}",
    ),
    Rule(
        lambda c, f: (4 * c.consumers % c.bk == 0) & (c.bm * c.bk % (4 * c.consumers) == 0),
        lambda c, f: (
            "all threads copy whole rows of A, a Four each: bk divides four times the threads, and that bm x"
            f" bk; with {c} these are {c.bk}, {4 * c.consumers}, {c.bm * c.bk}"
        ),
    ),
    ROWS_OF_B,
    declared(lambda c, f: c.stages * (c.bm * (c.bk + 4) + c.bk * c.bn), "the stages of A and B"),
)

# ---- fed by TMA: 16 to 20, and sgemm ----

FED = (
    Rule(
        lambda c, f: c.bk * f.size == SWIZZLE_ROW,
        lambda c, f: (
            f"a step along k is a row of the swizzle, 128 bytes: bk is {SWIZZLE_ROW // f.size}; it is {c.bk}"
        ),
    ),
    WARPS,
    Rule(
        lambda c, f: (c.wm == 4 * c.tm) & (c.wn == 8 * c.tn),
        lambda c, f: (
            f"a warp is 4 by 8 lanes: wm, wn are 4 tm, 8 tn = {4 * c.tm}, {8 * c.tn}; they are {c.wm}, {c.wn}"
        ),
    ),
    WARPS_FILL,
    Rule(
        lambda c, f: (c.bm <= BOX) & (c.bn <= BOX),
        lambda c, f: (
            f"TMA's box has {BOX} elements a side at most: bm and bn are no more; they are {c.bm} and {c.bn}"
        ),
    ),
    Rule(
        lambda c, f: c.consumers == CONSUMERS,
        lambda c, f: (
            f"registers are shared out to {CONSUMERS} threads that multiply; with {c} these are {c.consumers}"
        ),
    ),
)
TMA_RUNGS = (
    *FED,
    Rule(
        lambda c, f: (c.tm > 0) & (c.tm % 8 == 0) & (c.tn > 0) & (c.tn % (2 if f.size == 8 else 4) == 0),
        lambda c, f: (
            f"a thread loads whole vectors: tm is a multiple of 8, tn of {2 if f.size == 8 else 4}; they are"
            f" {c.tm} and {c.tn}"
        ),
    ),
    Rule(
        lambda c, f: c.stages >= 3,
        lambda c, f: (
            "one tile is read, the next one waited for, one at least under way: 3 stages or more; they are"
            f" {c.stages}"
        ),
    ),
)
SGEMM = (
    Rule(
        lambda c, f: (c.tm == 16) & (c.tn == 8),
        lambda c, f: (
            f"half of a thread's rows are in registers at once: tm, tn are 16, 8; they are {c.tm}, {c.tn}"
        ),
    ),
    *FED,
    Rule(
        lambda c, f: c.stages >= 2,
        lambda c, f: (
            f"one tile is read while the next one is waited for: 2 stages or more; they are {c.stages}"
        ),
    ),
)

# ---- simt ----

MOVED = 2  # tiles of A, and of B, in shared memory if they pass through registers
COPY_BYTES = 4  # cp.async copies no less
ALONG_K = 8  # elements that a warp copies of each line that runs along k


def whole_vectors(letter: str, outer: str) -> Rule:
    """For tiles of A or B that pass through registers: threads move equally many vectors, and vectors fill
    lines.
    """

    def width(f: Facts) -> int:
        return f.macro(f"{letter}_VECTOR")

    def line(c: Any, f: Facts) -> Any:
        return c.bk if f.macro(f"{letter}_CONTIGUOUS") == 1 else getattr(c, outer)

    return Rule(
        lambda c, f: (
            (getattr(c, outer) * c.bk % (width(f) * c.consumers) == 0) & (line(c, f) % width(f) == 0)
        ),
        lambda c, f: (
            f"every thread moves as many vectors of {letter}: {outer} x bk is a multiple of {width(f)} times"
            f" the threads, its lines of {width(f)}; with {c} these are {getattr(c, outer) * c.bk},"
            f" {width(f) * c.consumers} and {line(c, f)}"
        ),
    )


def copied(letter: str, outer: str) -> Rule:
    """For tiles of A or B that are copied without registers: threads make equally many copies. Copies are of
    one element where lines run along k, because the copy also transposes.
    """

    def fits(c: Any, f: Facts) -> Any:
        rows, along_k = getattr(c, outer), f.macro(f"{letter}_CONTIGUOUS") == 1
        wide = 1 if along_k else f.macro(f"{letter}_VECTOR")
        across = ALONG_K if along_k else larger(1, smaller(c.consumers, rows // wide))
        down = larger(1, c.consumers // across)
        return (
            (c.consumers % across == 0)
            & (rows % (down if along_k else across * wide) == 0)
            & (c.bk % (across if along_k else down) == 0)
        )

    return Rule(
        lambda c, f: (c.stages <= MOVED) | fits(c, f),
        lambda c, f: (
            f"every thread makes as many copies of {letter}: they cover whole lines of {outer} x bk; with"
            f" {c} they do not. Leave out its stages, or take more of bk"
        ),
    )


SIMT = (
    FOURS,
    Rule(
        lambda c, f: (c.wm == 4 * c.tm) & (c.wn == 8 * c.tn),
        lambda c, f: (
            f"a warp is 4 x 8 lanes, each with tm x tn results: wm, wn are {4 * c.tm}, {8 * c.tn}; they are"
            f" {c.wm}, {c.wn}"
        ),
    ),
    WARPS_FILL,
    Rule(
        lambda c, f: c.bk >= 1,
        lambda c, f: f"a step along k has an element at least: bk is 1 or more; it is {c.bk}",
    ),
    declared(lambda c, f: larger(MOVED, c.stages) * c.bk * (c.bm + c.bn + 2 * SIMT_PAD), "tiles of A and B"),
    declared(lambda c, f: (c.slices - 1) * c.bm * c.bn, "sums of slices"),
    Rule(
        lambda c, f: (c.slices == 1) | (c.bk % (2 * c.slices) == 0) & (c.tm % c.slices == 0),
        lambda c, f: (
            "slices have an even number of k, and divide a thread's rows: bk is a multiple of"
            f" {2 * c.slices}, tm of {c.slices}; they are {c.bk} and {c.tm}"
        ),
    ),
    Rule(
        lambda c, f: (c.stages == 0) | (c.stages > MOVED) & (f.size == COPY_BYTES),
        lambda c, f: (
            f"stages are 0, or more than {MOVED} of elements of {COPY_BYTES} bytes, which are copied past the"
            f" registers; they are {c.stages}, of {f.size} bytes"
        ),
    ),
    whole_vectors("A", "bm"),
    whole_vectors("B", "bn"),
    copied("A", "bm"),
    copied("B", "bn"),
)
