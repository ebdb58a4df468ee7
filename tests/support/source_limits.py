"""What the sources assert of a config that one can break: on which side of each the rules refuse it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from lapidist.config import Config
from lapidist.dtypes import FP8
from lapidist.kernels.registry import kernel_named
from lapidist.kernels.wgmma.configs import tile
from lapidist.problems.modes import Modes
from lapidist.problems.problem import Problem
from lapidist.problems.ragged import ROWS, Ragged
from lapidist.problems.scaling import SQUARES, STRIPS, Scale, Scaling
from lapidist.schedule.sharing_choice import PLANNED, Sharing
from lapidist_lab.sass.analysis import sample_problem

Knobs = Mapping[str, Any]
MOVED = Config(64, 128, 16, 32, 64, 8, 8)  # of simt: tiles come through registers


class Samples(NamedTuple):
    """Large square problems, with lines on 16 bytes and without."""

    aligned: Problem
    ragged: Problem


class Limit(NamedTuple):
    """`kernels`: "" where all whose sources say it. From a kernel's own config, or `start`, these knobs lead
    to either side. `said`: what the rule says."""

    words: str
    outside: Knobs | Callable[[Config], Knobs]
    said: str
    inside: Knobs | None = None
    kernels: str = ""
    math: str = ""
    start: Config | None = None
    problem: Callable[[Samples], Problem] = lambda samples: samples.aligned
    within: Callable[[Samples], Problem] | None = None  # where another problem is what makes it fit
    sharing: Sharing = PLANNED
    macros: Knobs = MappingProxyType({})


def promoted(b_kind: str = STRIPS) -> Callable[[Samples], Problem]:
    scaling = Scaling(Scale(STRIPS, 1, 1), Scale(b_kind, 1, 1), promoted=True)
    return lambda samples: replace(samples.aligned, scaling=scaling)


def with_c(problem: Problem) -> Problem:
    return replace(problem, c=problem.d)


def skewed(samples: Samples) -> Problem:
    return replace(samples.ragged, skewed=True)


def plain(samples: Samples) -> Problem:
    return samples.aligned


def routed(samples: Samples, **routing: int) -> Problem:
    """One group of all rows, which lie anywhere."""
    aligned = samples.aligned
    modes = Modes(ragged=Ragged(ROWS, 1, aligned.m), **routing)
    return replace(aligned, modes=modes)


def in_bytes(samples: Samples) -> Problem:
    return replace(samples.aligned, out_dtype=samples.aligned.dtype)


FILL, OWN_CONFIG = "fill the block's", "a rung is one config"
MANY_WARPS = Config(64, 64, 32, 16, 16, 0, 0, stages=3)  # with fewer chunks than threads

LIMITS = (
    # one thread, one element
    Limit("a warp is 32 rows of the tile of C: that is the lesson", {"bm": 16}, "a warp is 32 rows"),
    Limit("a warp is 32 columns of one row of C: that is the lesson", {"bn": 16}, "a warp is 32 columns"),
    Limit("a warp is 32 columns of one row of C, as in 02", {"bn": 16}, "a warp is 32 columns"),
    Limit(
        "one thread loads one element of each tile: the tiles are square and equal",
        {"bk": 16},
        "bm, bn and bk are equal",
    ),
    # several
    Limit(
        "a thread loads the same TM x 1 elements of each tile: the tiles are square and equal",
        {"bk": 16},
        "bm, bn and bk are equal",
    ),
    Limit("threads cover the rows of the tile in groups of TM", {"tm": 3}, "tm divides bm"),
    Limit("the results of a thread are one Four of a row", {"tn": 8}, "tm, tn are 1, 4"),
    Limit("a thread loads one Four of each tile", lambda c: {"bk": 2 * c.bk}, "four times the threads"),
    Limit("thread tiles are whole Fours and divide C's", {"tm": 2}, "tm and tn are multiples of 4"),
    Limit("thread tiles are whole Fours and divide a warp's", {"tm": 2}, "tm and tn are multiples of 4"),
    Limit("whole turns of the loop: no remainder loop behind it", {"bk": 18}, "steps at a time"),
    Limit("warp tiles divide the tile of C", lambda c: {"bm": c.bm + c.wm // 2}, f"{FILL}|{OWN_CONFIG}"),
    Limit("32 lanes, paired both ways", lambda c: {"wm": 2 * c.wm}, "a warp has 32 lanes"),
    Limit(
        "the two fragment buffers take turns: tile after tile starts with the first",
        lambda c: {"bk": c.bk + 1 if c.tm else 16},
        f"take turns|bk and bn are multiples of 4|{OWN_CONFIG}",
    ),
    Limit(
        "one tile is read, one is freed, one at least is under way",
        {"stages": 2},
        "stages are 3 or more",
        inside={"stages": 3},
    ),
    Limit(
        "all threads copy whole rows of A, an element each at a time",
        {"bk": 12},
        "copy whole rows of A, an element each",
    ),
    Limit(
        "all threads copy whole rows of A, a Four each at a time",
        {"bk": 4},
        "copy whole rows of A, a Four each",
    ),
    Limit("all threads copy whole rows of B, a Four each at a time", {"bk": 4}, "copy whole rows of B"),
    # fed by TMA
    Limit("TMA's swizzle works on rows of 128 bytes", lambda c: {"bk": 2 * c.bk}, "a row of the swizzle"),
    Limit(
        "one tile is read, the next one is looked into, one at least is under way",
        {"stages": 2},
        "3 stages or more",
        inside={"stages": 3},
    ),
    Limit(
        "one tile is read, the next one is waited for a tile ahead, one at least is under way",
        {"stages": 2},
        "3 stages or more",
        inside={"stages": 3},
    ),
    Limit(
        "rows have two swizzles in turns, columns are whole Fours",
        {"tn": 2, "wn": 16},
        "a thread loads whole vectors",
    ),
    Limit("a thread loads whole vectors", {"tn": 2, "wn": 16}, "a thread loads whole vectors"),
    Limit("4 by 8 lanes: 4 rows of A lie in different banks", lambda c: {"wm": 2 * c.wm}, "4 by 8 lanes"),
    Limit(
        "a warp is 4 by 8 lanes; 4 rows of A lie in different banks",
        lambda c: {"wm": 2 * c.wm},
        "4 by 8 lanes",
    ),
    Limit("a box has 256 elements a side at most", {"bm": 512}, "box has 256 elements"),
    Limit(
        "warp tiles divide the tile of C; a box has 256 elements a side at most",
        {"bm": 512},
        "box has 256 elements",
        inside={"bm": 256},
    ),
    Limit(
        "warp tiles divide the tile of C; a box has 256 rows at most",
        {"bm": 512},
        "box has 256 elements",
        inside={"bm": 256},
    ),
    Limit(
        "240 registers for 256 consumers and 24 for 128 producers are the SM's 65536",
        lambda c: {"bm": c.bm // 2},
        "registers are shared out to 256 threads",
    ),
    # sgemm
    Limit("a warp is 4 by 8 lanes", {"wm": 32}, "a warp is 4 by 8 lanes", kernels="sgemm"),
    Limit("half of a thread's rows are in registers at once", {"tm": 8, "wm": 32}, "half of a thread's rows"),
    Limit(
        "one tile is read while the next one is waited for", {"stages": 1}, "2 stages or more", {"stages": 2}
    ),
    Limit(
        "slices have whole chunks of a stage",
        {"bm": 64, "bn": 64, "slices": 16},
        "registers are shared out to 256 threads",
        inside={"bm": 64, "bn": 64, "slices": 8},
    ),
    # simt
    Limit(
        "a warp is 4 x 8 lanes, each with TM x TN results",
        lambda c: {"wm": 2 * c.wm},
        "a warp is 4 x 8 lanes",
    ),
    Limit("a thread tile is made of groups of four", {"tm": 2, "wm": 8}, "tm and tn are multiples of 4"),
    Limit("warp tiles fill the block tile", lambda c: {"bm": c.bm + 16}, FILL),
    Limit(
        "every thread moves the same number of vectors", {"bk": 4}, "every thread moves as many", start=MOVED
    ),
    Limit("vectors fill a row of the tile", {"bk": 6}, "every thread moves as many vectors", start=MOVED),
    Limit(
        "every thread makes as many copies",
        {"bk": 12},
        "every thread makes as many copies",
        inside={"bk": 8},
        math="float32",
        start=replace(MOVED, stages=3),
        problem=lambda samples: samples.ragged,
    ),
    Limit(
        "two fragments take turns within a slice",
        {"slices": 32},
        "slices have an even number of k",
        inside={"slices": 4},
        math="float32",
        start=Config(32, 32, 32, 16, 32, 4, 4, stages=3),
    ),
    # wmma
    Limit("a block is made of whole fragments", {"bm": 72}, "fragments of 16x16 fill a tile"),
    Limit("tiles are made of whole fragments", lambda c: {"bm": c.bm + 16}, "fill a tile"),
    Limit("all threads move whole rows, a chunk each at a time", {"bk": 48}, "all threads move whole rows"),
    Limit(
        "beta / alpha is no integer: the integers scale at the end",
        {},
        "it multiplies .*; the type is int8",
        problem=lambda _: sample_problem(kernel_named("wmma_shared"), "int8"),
        within=plain,
    ),
    # mma.sync
    Limit("warp tiles divide the tile of D", lambda c: {"bm": c.bm + c.wm // 2}, FILL),
    Limit(
        "all threads move whole rows, a piece each",
        {},
        "move whole rows of A",
        inside={"bk": 64},
        start=MANY_WARPS,
    ),
    Limit(
        "all threads move whole rows of A, a chunk each at a time",
        {},
        "whole rows of A",
        inside={"bk": 64},
        start=MANY_WARPS,
    ),
    Limit("all threads move whole rows of B", {}, "whole rows of B", inside={"bk": 64}, start=MANY_WARPS),
    Limit(
        "all chunks of a thread lie alike in their words",
        {"bk": 256},
        "starts anywhere and is shifted",
        inside={"bk": 128},
        math="int8",
        start=Config(32, 32, 128, 32, 32, 0, 0, stages=3),
        problem=lambda samples: samples.ragged,
    ),
    Limit(
        "a tile of k has one factor",
        {"bk": 256},
        "promoted sums leave the tensor core every 128",
        math=FP8[0],
        start=Config(128, 128, 128, 64, 32, 0, 0, stages=3),
        problem=promoted(),
    ),
    Limit(
        "rows of a tile are 16, 32, 64, ... bytes: the swizzle is an XOR",
        {"bk": 48},
        "the swizzle is an XOR",
        kernels="mma mma_swizzled mma_multistage",
    ),
    Limit(
        "a warp's Eights come in units; their number is 2, 4, 8, ...",
        {"bm": 96, "wm": 48},
        "come in pairs of 8 lines",
        kernels="mma mma_swizzled mma_multistage",
    ),
    Limit("a tile is made of whole steps", {"bk": 8}, "16 deep: bk is a multiple", kernels="mma_swizzled"),
    Limit(
        "a warp stores whole vectors, all lanes alike",
        {"wn": 16},
        "lanes store whole vectors of D",
        inside={"wn": 32},
        kernels="mma",
        math="int8",
        start=Config(64, 64, 64, 32, 32, 0, 0, stages=3),
        problem=in_bytes,
    ),
    # fed by TMA, on tensor cores
    Limit(
        "a stage has rows of 128 bytes, a warp a slab of B; ldmatrix transposes 2-byte elements only",
        {"wn": 32},
        OWN_CONFIG,
    ),
    Limit(
        "a warpgroup multiplies 64 rows; a slab of B has 64 columns", {"bn": 96, "wn": 96}, "columns in 64s"
    ),
    Limit(
        "232 registers for 256 consumers and 40 for 128 producers are the SM's 65536",
        {"bm": 64, "wm": 16},
        OWN_CONFIG,
    ),
    Limit(
        "each block of a cluster loads whole slabs of 64 columns of B",
        {"bn": 192, "wn": 192},
        "columns in 128s",
        inside={"bn": 128, "wn": 128},
    ),
    Limit(
        "a patch has 128 bytes of each row",
        {"bn": 192, "wn": 192},
        "bn is a multiple of 128",
        inside={"bn": 128, "wn": 128},
        kernels="wgmma_patches",  # clusters have whole slabs, which are as wide
        math="int8",
        problem=lambda samples: replace(samples.aligned, out_dtype="int8"),
    ),
    # wgmma
    Limit(
        "a step along k is one row of the swizzle",
        lambda c: {"bk": 2 * c.bk},
        "a row of the swizzle",
        kernels="wgmma",
    ),
    Limit("tiles are counted in 64 rows, 8 columns", {"bm": 96}, "bm is 64, 128, 192 or 256"),
    Limit(
        "two blocks share rows that are shifted",
        {"cluster_m": 2, "cluster_n": 4},
        "two blocks at most share them",
        inside={"cluster_n": 2},
        start=tile("bfloat16", 128, 192, 2, skewed=True),
        problem=skewed,
    ),
    Limit("larger clusters find no place on the chip", {"cluster_m": 16}, "clusters are", {"cluster_m": 8}),
    Limit(
        "columns of D leave by TMA alone",
        {"exchanged": True},
        "only TMA stores D",
        inside={"exchanged": True},
        problem=lambda samples: samples.ragged.exchanged(),
        within=lambda samples: samples.aligned.exchanged(),
    ),
    Limit(
        "who shares a tile meets at barriers of all consumers",
        {},
        "in ping-pong blocks take whole tiles",
        start=tile("float16", 128, 128, 4, ping_pong=True),
        sharing=Sharing(split_k=2),
        macros={"SCHEDULED": 1},
    ),
    Limit(
        "all of a thread's sums are handed on",
        {"bm": 128, "wm": 16},
        "a thread hands on its sums eight at a time",
        kernels="wgmma",
        start=tile("float16", 256, 200, 3, (2, 1)),
        sharing=Sharing(split_k=2, reduction="turnstile"),
        macros={"SCHEDULED": 1},
    ),
    Limit(
        "the sums lie where the operands were",
        {"stages": 2},
        "whose sums must fit in the stages",
        inside={"stages": 3},
        start=tile("float16", 128, 256, 4),
        sharing=Sharing(split_k=2, reduction="cluster"),
        macros={"SCHEDULED": 1, "PEERS_IN_CLUSTER": 2},
    ),
    Limit(
        "a warp has all of its rows from two boxes at most",
        {"bm": 192},
        "for tiles of 64 or 128 rows",
        start=tile("float16", 128, 128, 3, skewed=True),
        problem=skewed,
    ),
    Limit(
        "rows of D that are not neighbours leave by hand, and nothing is added",
        {},
        "a patch of D has every eighth row",
        start=tile("float16", 128, 128, 3, skewed=True),
        problem=lambda samples: with_c(skewed(samples)),
        within=skewed,
    ),
    Limit(
        "what leaves twice meets no C, and has one owner",
        {},
        "eight of 200 columns are stored twice",
        start=tile("float16", 256, 200, 3, (2, 1)),
        problem=lambda samples: with_c(samples.aligned),
        within=plain,
    ),
    Limit(
        "a lane holds eight indices, of its own block's rows",
        {"bm": 256, "wm": 32},
        "four warps of each block copy the gathered rows",
        start=tile("float16", 128, 128, 4),
        problem=lambda samples: routed(samples, gather_a=1),
    ),
    Limit(
        "rows of D are made of 16 bytes, each stored once",
        {},
        "two lanes would store a scattered row's",
        start=tile("float16", 128, 200, 3, (2, 1)),
        problem=lambda samples: routed(samples, scatter_rows=1),
        within=plain,
    ),
    Limit(
        "a step is what the cores add up",
        {"bk": 64},
        "a row of the swizzle",
        math=FP8[0],
        start=tile(FP8[0], 128, 128, 4),
        problem=promoted(),
    ),
    Limit(
        "a tile touches two blocks of 128 columns",
        {"bn": 208, "wn": 208},
        "at most two factors along its columns",
        inside={"bn": 144, "wn": 144},
        math=FP8[0],
        start=tile(FP8[0], 64, 144, 4),
        problem=promoted(SQUARES),
    ),
)
