"""Kinds and extents by kernel and config: every config that a kernel has, not the planner's choice alone, in
products whose sides lie below, at and beyond those of its tile.

Operands are views of padded, offset, strided, flipped and broadcast memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from lapidist.config import Config
from lapidist.dtypes import FP8, MIXED, TF32, TYPES, element_of, outputs_of
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.registry import KERNELS, kernel_named
from lapidist_lab.fuzz.doses import Dose
from lapidist_lab.fuzz.drawn_kinds import (
    Generator,
    Kind,
    draw_batch,
    draw_factors,
    draw_layout,
    draw_output,
    draw_routes,
    draw_scalars,
    draw_sharing,
    fits,
    one_of,
    pick,
)
from lapidist_lab.fuzz.memory_layouts import PLAIN, Layout

PRODUCTION_SHARE = 8  # draws of a production kernel for one of a rung
DEPTH = 32  # the step of k of a config that has none of its own


class Tile(NamedTuple):
    """A kernel's config for one kind of arithmetic."""

    kernel: Kernel
    math: str
    config: Config

    @property
    def sides(self) -> tuple[int, int, int]:
        return self.config.bm, self.config.bn, self.config.bk or DEPTH


def draw_tile(rng: Generator) -> Tile:
    kernel = kernel_named(
        pick(rng, {row.name: PRODUCTION_SHARE if row.kind == "production" else 1 for row in KERNELS})
    )
    math = one_of(rng, kernel.types.maths)
    config, _ = one_of(rng, kernel.configs_for(math))
    return Tile(kernel, math, config)


def draw_tiled_kind(rng: Generator, tile: Tile, framework: str) -> Kind:
    kind = draw_types(rng, tile, framework)
    if kind.a in FP8 and rng.random() < 0.25:
        kind = draw_factors(rng, kind)
    if rng.random() < 0.3:
        kind = replace(draw_batch(rng, kind), vectors="")
    kind = replace(
        draw_scalars(rng, kind, copied=False),
        trans_a=bool(rng.random() < 0.3),
        trans_b=bool(rng.random() < 0.3),
    )
    if tile.kernel.kind == "production" and not kind.scaled and rng.random() < 0.15:
        kind = draw_routes(rng, kind)
    kind = draw_output(rng, kind)
    if kind.sums != "int32" and rng.random() < 0.3:
        kind = replace(kind, addend=one_of(rng, ("row", "column", "tile")))
    layouts = {name: draw_view(rng, kind, name) for name in ("a", "b", "c", "out", "addend")}
    choices = {"kernel": tile.kernel.name, "config": tile.config}
    if tile.kernel.family.scheduled and rng.random() < 0.3:
        choices |= draw_sharing(rng)
    return replace(kind, layouts=layouts, choices=choices)


def draw_types(rng: Generator, tile: Tile, framework: str) -> Kind:
    """A kind of the tile's arithmetic. Only production kernels write other types than their own."""
    a = b = element_of(tile.math).name
    if rng.random() < 0.1:
        b = next((other for pair in MIXED if a in pair for other in pair if other != a), a)
    outputs = [name for name in outputs_of(a, b) if fits(framework, name)]
    out = one_of(rng, outputs[:1] * 2 + outputs) if tile.kernel.types.outputs else a
    accumulator = one_of(rng, [None, None, *TYPES[a].accumulators])
    promote = True if tile.kernel.types.promoted and a in FP8 and rng.random() < 0.25 else None
    precision = TF32 if tile.math == TF32 else "ieee"
    return Kind(framework, one_of(rng, ("gemm", "plan")), a, b, out, accumulator, precision, promote)


def draw_view(rng: Generator, kind: Kind, name: str) -> Layout:
    """A layout; half are plain, for kernels that need plain operands."""
    if rng.random() < 0.5:
        return PLAIN._replace(pitch=one_of(rng, ("tight", "aligned")))
    layout = draw_layout(rng, kind, name)._replace(padding=int(rng.integers(0, 4)))
    repeats = name in ("a", "b", "c") and kind.function != "pointers" and rng.random() < 0.1
    return layout._replace(broadcast=one_of(rng, ("rows", "cols", "both")) if repeats else "")


def extents_around(rng: Generator, dose: Dose, tile: Tile) -> tuple[int, int, int]:
    """m, n and k: mostly below the tile's sides, else about a multiple."""
    extents = [extent_around(rng, side) for side in tile.sides]
    while np.prod(extents) > dose.products:
        longest = int(np.argmax(extents))
        extents[longest] = max(1, extents[longest] // 2)
    return extents[0], extents[1], extents[2]


def extent_around(rng: Generator, side: int) -> int:
    roll = rng.random()
    if roll < 0.45:
        return int(rng.integers(1, side + 1))
    if roll < 0.6:
        return int(rng.integers(1, 9))
    multiple = side * int(rng.integers(1, 4))
    return multiple if roll < 0.7 else max(1, multiple + int(rng.integers(-9, 10)))
