"""The kernels on tensor cores that every chip since Ampere runs: their configs by type, and what shared
memory these take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from lapidist.config import Config, Knobs
from lapidist.dtypes import FP8, MATHS, TF32, element_of, size_of
from lapidist.kernels.row import Kernel, Tuned, Types
from lapidist.kernels.rules import tensor as rules
from lapidist.kernels.rules.facts import fragment
from lapidist.kernels.rules.tensor import FRAGMENTS_N
from lapidist.kernels.signatures import MMA, TENSOR, Signature
from lapidist.problems.problem import Problem
from lapidist.schedule import Raster

WMMA_TYPES = Types(("float16", "bfloat16", TF32, "float64", "int8", "uint8"), outputs=True, half_sums=True)
FLOAT_WMMA_TYPES = Types(("float16", "bfloat16", TF32, "float64"), outputs=True, half_sums=True)
MMA_TYPES = Types(
    tuple(math for math in MATHS if math != "float32"), mixed=True, outputs=True, half_sums=True
)
FAMILY_TYPES = replace(MMA_TYPES, promoted=True, factors=True)

# ---- dynamic shared memory ----

PATCH_ROWS = 16  # of D, that a warp of mma.sync stores at once


def wmma_shared(config: Knobs, problem: Problem, skew: int = 16) -> Any:
    """A chunk of A and one of B, rows `skew` bytes longer; in the end a patch of each warp's sums, a row of
    fragments.
    """
    size, total, (height, width, _) = (
        size_of(problem.dtype),
        size_of(problem.accumulator),
        fragment(problem.math),
    )
    tiles = config.bm * (config.bk * size + skew) + config.bk * (config.bn * size + skew)
    patch = height * (FRAGMENTS_N * width * total + 16)
    return np.maximum(tiles, config.threads // 32 * patch)


def wmma_without_skew(config: Knobs, problem: Problem) -> Any:
    return wmma_shared(config, problem, skew=0)


def mma_shared(config: Knobs, problem: Problem) -> Any:
    """Stages of A and B tiles; in the end the warps' patches of D, their rows 32 bytes longer: as many as
    fit, at least one.
    """
    return np.maximum(config.stages * tiles_bytes(config, problem), patches_bytes(config, problem))


def mma_swizzled_shared(config: Knobs, problem: Problem) -> Any:
    """The same with one tile of each."""
    return np.maximum(tiles_bytes(config, problem), patches_bytes(config, problem))


def tiles_bytes(config: Knobs, problem: Problem) -> Any:
    return (config.bm + config.bn) * config.bk * size_of(problem.dtype)


def patches_bytes(config: Knobs, problem: Problem) -> Any:
    scalar = 8 if problem.accumulator == "float64" else 4
    return config.threads // 32 * PATCH_ROWS * (config.wn * scalar + 32)


# ---- configs by math: Tuned starts with the default ----


def staged(math: str, bm: int, bn: int, k_bytes: int, warp: tuple[int, int], stages: int = 0) -> Config:
    """A tensor-core config: k in bytes, so that every type fills the same shared memory."""
    return Config(bm, bn, k_bytes // element_of(math).nbytes, *warp, tm=0, tn=0, stages=stages)


# What each reaches of mma.sync's limit at 4096^3 on an H200, by column: half and bfloat16, tf32, double,
# 8-bit integers, 8-bit floats.
COLUMN_OF = {
    "float16": 0,
    "bfloat16": 0,
    TF32: 1,
    "float64": 2,
    "int8": 3,
    "uint8": 3,
    **dict.fromkeys(FP8, 4),
}
SHARES = {
    "wmma_simple": (0.044, 0.060, 0.122, 0.029),
    "wmma_shared": (0.420, 0.262, 0.351, 0.089),
    "wmma_shared, deep": (0.310, 0.226, 0.340, 0.070),
    "wmma_no_skew": (0.108, 0.145, 0.239, 0.056),
    "wmma_beta_first": (0.345, 0.278, 0.337),
    "mma_swizzled": (0.5, 0.42, 0.6, 0.35, 0.4),
    "mma_multistage": (0.710, 0.623, 0.951, 0.637, 0.795),
    "mma": (0.69, 0.61, 0.939, 0.63, 0.78),
    "mma, by words": (0.66, 0.57, 0.75, 0.6, 0.75),
    "mma, middle": (0.646, 0.562, 0.87, 0.576, 0.771),
    "mma, small": (0.44, 0.4, 0.82, 0.33, 0.55),
    "mma, promoted": (0.0, 0.0, 0.0, 0.0, 0.6),  # the largest that holds its sums twice
}


# What is left of that where lines do not start on 16 bytes: elements of 1 and 2 bytes pass through registers.
# At 4095^3; mma's are fitted to products of many sizes. Of the wmma kernels one was measured, in half.
UNALIGNED = {
    "wmma": (0.20, 0.20, 0.20, 0.20),
    "mma_swizzled": (0.3, 0.4, 0.8, 0.15, 0.3),
    "mma_multistage": (0.35, 0.475, 0.836, 0.226, 0.37),
    "mma": (0.5, 0.557, 0.88, 0.24, 0.3),
    "mma, by words": (0.44, 0.53, 0.88, 0.24, 0.3),
    "mma, middle": (0.36, 0.58, 0.88, 0.2, 0.22),
    "mma, small": (0.38, 0.55, 0.88, 0.2, 0.24),
    "mma, promoted": (0.0, 0.0, 0.0, 0.0, 0.24),
}


def share(name: str, math: str) -> float:
    return SHARES[name][COLUMN_OF[math]]


def left_unaligned(name: str) -> Callable[[str, Config], float]:
    return lambda math, config: UNALIGNED[name][COLUMN_OF[math]]


def mma_unaligned(math: str, config: Config) -> float:
    """By tile; one of the caller's own is taken for the default one."""
    names = {tile: name for name, tile in mma_tiles(math).items()}
    return UNALIGNED[names.get(config, "mma")][COLUMN_OF[math]]


def mma_across_k(math: str, config: Config) -> float:
    """Single elements of 32 steps of k at once spill: other tiles take up to a quarter less, but a twentieth
    more at 4096^3.
    """
    return 0.9 if math == TF32 and config == mma_tiles(math)["mma"] else 1.0


def wmma_simple_configs(math: str) -> Tuned:
    """Sixteen warps, a fragment each."""
    config = staged(math, 32, 32, 0, (8, 8)) if math == "float64" else staged(math, 64, 64, 0, (16, 16))
    return ((config, share("wmma_simple", math)),)


def wmma_shared_configs(math: str) -> Tuned:
    """Within 64 KB of shared memory; and, where a block may have more, with chunks of twice the depth."""
    depth = 64 if element_of(math).nbytes == 1 else 128
    tile, warp = ((64, 64), (16, 32)) if math == "float64" else ((128, 128), (32, 64))
    shallow, deep = (staged(math, *tile, k_bytes, warp) for k_bytes in (depth, 2 * depth))
    return ((shallow, share("wmma_shared", math)), (deep, share("wmma_shared, deep", math)))


def no_skew_configs(math: str) -> Tuned:
    return ((wmma_shared_configs(math)[0][0], share("wmma_no_skew", math)),)


def beta_first_configs(math: str) -> Tuned:
    return ((wmma_shared_configs(math)[0][0], share("wmma_beta_first", math)),)


def mma_swizzled_configs(math: str) -> Tuned:
    tile, warp = ((64, 64), (16, 32)) if math == "float64" else ((128, 128), (32, 64))
    return ((staged(math, *tile, 128, warp), share("mma_swizzled", math)),)


def mma_multistage_configs(math: str) -> Tuned:
    shape = (
        staged(math, 128, 128, 128, (64, 32), 4)
        if math == "float64"
        else staged(math, 128, 256, 128, (64, 64), 3)
    )
    return ((shape, share("mma_multistage", math)),)


def mma_tiles(math: str) -> dict[str, Config]:
    """The default fits every chip. Where lines start between two words (HELD in mma.cu), less of k at once is
    better.
    """
    if math == "float64":
        tiles = (
            ("mma", (128, 128), (64, 32)),
            ("mma, middle", (64, 128), (32, 32)),
            ("mma, small", (64, 64), (32, 32)),
        )
        return {name: staged(math, *tile, 128, warp, 4) for name, tile, warp in tiles}
    return {
        "mma, middle": staged(math, 128, 128, 64, (64, 64), 4),
        "mma": staged(math, 128, 256, 128, (64, 64), 3),
        "mma, by words": staged(math, 128, 256, 64, (64, 64), 3),
        "mma, small": staged(math, 64, 64, 128, (32, 32), 4),
        **({"mma, promoted": staged(math, 128, 128, 128, (64, 32), 3)} if math in FP8 else {}),
    }


def mma_configs(math: str) -> Tuned:
    return tuple((config, share(name, math)) for name, config in mma_tiles(math).items())


# ---- the rows ----


def row(
    kind: str,
    source: str,
    idea: str,
    signature: Signature,
    types: Types,
    configs: Callable[[str], Tuned],
    shared: Callable[[Knobs, Problem], Any] | None = None,
    name: str = "",
    **more: object,
) -> Kernel:
    """`name` is needed where a file holds more kernels than the one it is named after."""
    tuned = {math: configs(math) for math in types.maths}
    config, efficiency = tuned["float16"][0]
    fields = {"unaligned": left_unaligned("wmma"), **({"dynamic_shared": shared} if shared else {}), **more}
    return Kernel(
        name or source.rpartition("/")[2].removesuffix(".cu").lstrip("0123456789_"),
        kind,
        source,
        idea,
        signature,
        config,
        efficiency,
        (8, 0),
        tuned=tuned,
        types=types,
        unit="mma",
        **fields,  # type: ignore[arg-type]
    )


WMMA_RUNGS = (
    row(
        "rung",
        "ladder/21_wmma_simple.cu",
        "a warp multiplies 16 x 16 x 16 at once, straight from global memory",
        TENSOR,
        WMMA_TYPES,
        wmma_simple_configs,
        rules=rules.WMMA_SIMPLE,
        wmma=True,
    ),
    row(
        "rung",
        "ladder/22_wmma_shared.cu",
        "eight warps share chunks of k in shared memory, rows skewed; persistent",
        TENSOR,
        WMMA_TYPES,
        wmma_shared_configs,
        wmma_shared,
        persistent=2,
        rules=rules.WMMA_SHARED,
        wmma=True,
    ),
)
MMA_RUNGS = (
    row(
        "rung",
        "ladder/23_mma_swizzled.cu",
        "mma.sync: fragments by ldmatrix from swizzled tiles",
        TENSOR,
        MMA_TYPES,
        mma_swizzled_configs,
        mma_swizzled_shared,
        unaligned=left_unaligned("mma_swizzled"),
        rules=rules.SWIZZLED,
    ),
    row(
        "rung",
        "ladder/24_mma_multistage.cu",
        "cp.async stages ahead; the next fragments meanwhile",
        TENSOR,
        MMA_TYPES,
        mma_multistage_configs,
        mma_shared,
        unaligned=left_unaligned("mma_multistage"),
        rules=rules.STAGED,
    ),
)
TENSOR_DETOURS = (
    row(
        "detour",
        "ladder/22_wmma_shared.cu",
        "22 without the skew",
        TENSOR,
        WMMA_TYPES,
        no_skew_configs,
        wmma_without_skew,
        "wmma_no_skew",
        persistent=2,
        defines={"SKEW": 0},
        rules=rules.WMMA_SHARED,
        wmma=True,
    ),
    row(
        "detour",
        "detours/wmma_beta_first.cu",
        "22 with C scaled by beta / alpha up front",
        TENSOR,
        FLOAT_WMMA_TYPES,
        beta_first_configs,
        wmma_shared,
        persistent=2,
        rules=rules.WMMA_SHARED,
        wmma=True,
    ),
)
MMA_FAMILY = row(
    "production",
    "gemm/mma.cu",
    "tensor cores: every type, layout, stride, batch and size",
    MMA,
    FAMILY_TYPES,
    mma_configs,
    mma_shared,
    defines={"THREAD_ANEW": 1},  # registers are scarce
    unaligned=mma_unaligned,
    across_k=mma_across_k,
    raster=Raster("n", 8),
    rules=rules.MMA,
)
