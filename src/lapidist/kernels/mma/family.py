"""The family mma, for tensor cores of every chip since Ampere, and the ladder's families with wmma and
mma.sync.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lapidist.config import Config, Knobs
from lapidist.dtypes import MATHS, TF32, size_of
from lapidist.kernels.blocks.group_parts import OF_DOUBLES, WHOLE, Waves
from lapidist.kernels.budgets import MOST_REGISTERS, REGISTERS_OF_SM, mma_registers
from lapidist.kernels.kernel import Kernel, Listed, Types
from lapidist.kernels.ladder import Ladder
from lapidist.kernels.macros import ALONG_K, ALONG_N, epilogue, in_modes, tensor_macros, tensor_types
from lapidist.kernels.mma.configs import DOUBLES_LONGER, mma_configs, mma_tiles, share_unaligned
from lapidist.kernels.rules import tensor as rules
from lapidist.kernels.rules.problem_facts import fragment
from lapidist.kernels.rules.tensor import FRAGMENTS_N
from lapidist.kernels.simt import Simt
from lapidist.kernels.vector_width import line_alignment, vector_width
from lapidist.knobs.shared_knobs import BAND
from lapidist.problems.matrix import VECTOR_BYTES
from lapidist.problems.problem import Problem
from lapidist.schedule import Raster

PATCH_ROWS = 16  # rows of D that a warp stores at once


class Wmma(Ladder):
    """The ladder's kernels on tensor cores: 16 bytes at once, and more types."""

    measured = "wmma"  # row of configs.UNALIGNED

    def macros(self, problem: Problem) -> Mapping[str, object]:
        return tensor_macros(problem)

    def shares_of_speed(self, math: str, config: Config) -> tuple[float, float]:
        return share_unaligned(self.measured, math), 1.0


class WmmaShared(Wmma):
    """Chunks of A and B in shared memory, whose rows are padded by `skew` bytes."""

    def __init__(self, skew: int = 16) -> None:
        self.skew = skew

    def shared_bytes(self, problem: Problem, config: Knobs) -> Any:
        """A chunk of A and one of B; in the end, in the same place, a patch of sums for each warp."""
        size, total = size_of(problem.dtype), size_of(problem.accumulator)
        height, width, _ = fragment(problem.math)
        tiles = config.bm * (config.bk * size + self.skew) + config.bk * (config.bn * size + self.skew)
        patch = height * (FRAGMENTS_N * width * total + 16)
        return np.maximum(tiles, config.threads // 32 * patch)


class Swizzled(Wmma):
    """mma.sync with one tile of A and one of B in shared memory."""

    measured = "mma_swizzled"

    def shared_bytes(self, problem: Problem, config: Knobs) -> Any:
        return np.maximum(tiles_bytes(problem, config), patches_bytes(problem, config))


class Multistage(Wmma):
    """mma.sync with tiles in stages."""

    measured = "mma_multistage"

    def shared_bytes(self, problem: Problem, config: Knobs) -> Any:
        return staged_bytes(problem, config)


class Mma(Simt):
    """gemm/mma.cu: every layout, stride, batch and size."""

    unit = "mma"

    def macros(self, problem: Problem) -> Mapping[str, object]:
        """C is read in D's vectors if its layout allows that, else element by element. A function of pairs
        stores two columns at once.
        """
        inputs, outputs = VECTOR_BYTES // size_of(problem.dtype), VECTOR_BYTES // size_of(problem.out_dtype)
        d_vector, c = vector_width(problem.d, problem.out_dtype, outputs), problem.c or problem.d
        d_bytes = d_vector * size_of(problem.out_dtype)
        as_d = c.lies("row") and line_alignment(c, problem.out_dtype) >= d_bytes
        macros = {
            **tensor_types(problem),
            "A_CONTIGUOUS": ALONG_K[problem.a.layout],
            "B_CONTIGUOUS": ALONG_N[problem.b.layout],
            "A_VECTOR": vector_width(problem.a, problem.dtype, inputs),
            "B_VECTOR": vector_width(problem.b, problem.b_dtype, inputs),
            "C_VECTOR": d_vector if as_d else 1,
            "D_VECTOR": d_vector,
        }
        macros = in_modes(problem.modes, macros) | ({"C_VECTOR": 1, "D_VECTOR": 2} if problem.paired else {})
        return {**macros, **problem.scaling.defines(), **epilogue(problem)}

    def shared_bytes(self, problem: Problem, config: Knobs) -> Any:
        return staged_bytes(problem, config)

    def waves(self, problem: Problem) -> Waves:
        return OF_DOUBLES if problem.accumulator == "float64" else WHOLE

    def config_macros(self, problem: Problem, config: Config, scheduled: bool) -> Mapping[str, object]:
        return {"BLOCKS": assembled_blocks(problem, config), **self.part_macros(problem, config)}

    def shares_of_speed(self, math: str, config: Config) -> tuple[float, float]:
        """By tile; a caller's own config counts as the default one. Loads of single elements for 32 steps of
        k spill in tf32: other tiles are up to a quarter faster, but a twentieth slower at 4096^3.
        """
        tiles = mma_tiles(math)
        names = {tile: name for name, tile in tiles.items()}
        across_k = 0.9 if math == TF32 and config == tiles["mma"] else 1.0
        return share_unaligned(names.get(config, "mma"), math), across_k

    def longer_by_lines(self, math: str, config: Config) -> tuple[float, float, float, float]:
        if math != "float64":
            return super().longer_by_lines(math, config)
        names = {tile: name for name, tile in mma_tiles(math).items()}
        return DOUBLES_LONGER[names.get(config, "mma")]


def assembled_blocks(problem: Problem, config: Config) -> int:
    """Blocks that the assembler shall fit on an SM."""
    registers = mma_registers(config.wm * config.wn if problem.accumulator == "float64" else 0)
    if registers < MOST_REGISTERS:
        return REGISTERS_OF_SM // (registers * config.threads)
    return 2 if config.threads <= 128 else 1


def staged_bytes(problem: Problem, config: Knobs) -> Any:
    """Stages of A and B tiles; in the end, in the same place, the warps' patches of D, with rows padded by 32
    bytes.
    """
    return np.maximum(config.stages * tiles_bytes(problem, config), patches_bytes(problem, config))


def tiles_bytes(problem: Problem, config: Knobs) -> Any:
    return (config.bm + config.bn) * config.bk * size_of(problem.dtype)


def patches_bytes(problem: Problem, config: Knobs) -> Any:
    scalar = 8 if problem.accumulator == "float64" else 4
    return config.threads // 32 * PATCH_ROWS * (config.wn * scalar + 32)


MMA_TYPES = Types(
    tuple(math for math in MATHS if math != "float32"), mixed=True, outputs=True, half_sums=True
)
MMA_FAMILY = Kernel(
    "mma",
    "production",
    "gemm/mma.cu",
    "tensor cores: every type, layout, stride, batch and size",
    Mma(),
    *mma_configs("float16")[0],
    (8, 0),
    tuned=Listed(MMA_TYPES.maths, mma_configs),
    types=replace(MMA_TYPES, promoted=True, factors=True),
    unit="mma",
    defines={"THREAD_ANEW": 1},  # the thread's indices are computed again: registers are scarce
    raster=Raster("n", BAND),
    rules=rules.MMA,
)
