"""Rules of all kernels: for a block's threads, for the grid, and for knobs that a kernel does not have."""

from __future__ import annotations

from typing import Any

from lapidist.kernels.rules.problem_facts import Facts
from lapidist.kernels.rules.rule import Rule, parts
from lapidist.launch import INT_LIMIT

BLOCK_LIMIT = 1024


def tiles(c: Any, f: Facts) -> Any:
    return parts(f.problem.m, c.bm) * parts(f.problem.n, c.bn)


EVERY = (
    Rule(
        lambda c, f: c.consumers >= 1,
        lambda c, f: f"the tile of a warp or a thread lies within the block's; with {c} no thread multiplies",
        of_knobs=True,
    ),
    Rule(
        lambda c, f: c.threads <= BLOCK_LIMIT,
        lambda c, f: f"a block has at most {BLOCK_LIMIT} threads; {c} would need {c.threads}",
        of_knobs=True,
    ),
    Rule(
        lambda c, f: tiles(c, f) <= INT_LIMIT,
        lambda c, f: f"a grid has at most {INT_LIMIT} blocks; {c} would need {tiles(c, f)}",
    ),
)
ALONE = (
    Rule(
        lambda c, f: c.cluster == 1,
        lambda c, f: f"its blocks share no loads, so it has no clusters to choose; the config is {c}",
        of_knobs=True,
    ),
)
ORDERED = (
    Rule(
        lambda c, f: (c.exchanged | c.ping_pong | c.along_m | c.skewed | (c.raster > 0)) == 0,
        lambda c, f: (
            "it has neither ping-pong nor bands to choose nor A and B exchanged nor rows shifted; the config"
            f" is {c}"
        ),
        of_knobs=True,
    ),
)
WHOLE_STAGES = (
    Rule(
        lambda c, f: c.slices == 1,
        lambda c, f: f"its threads have all of k: slices are 1; they are {c.slices}",
    ),
)


def loaders(producers: int) -> Rule:
    """A kernel has a fixed number of threads that only load."""
    return Rule(
        lambda c, f: c.producers == producers,
        lambda c, f: (
            f"threads that only load are a part of its code: producers are {producers}; they are"
            f" {c.producers}"
        ),
        of_knobs=True,
    )
