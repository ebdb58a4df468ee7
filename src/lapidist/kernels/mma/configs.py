"""Configs of the kernels with wmma and mma.sync by type, and the measured shares of their unit's limit."""

from __future__ import annotations

from lapidist.config import Config
from lapidist.dtypes import FP8, TF32, element_of
from lapidist.kernels.kernel import Tuned


def staged(math: str, bm: int, bn: int, k_bytes: int, warp: tuple[int, int], stages: int = 0) -> Config:
    """A tensor-core config with bk given in bytes, so that all types fill the same shared memory."""
    return Config(bm, bn, k_bytes // element_of(math).nbytes, *warp, tm=0, tn=0, stages=stages)


# Shares of mma.sync's limit at 4096^3 on an H200. Columns: half and bfloat16, tf32, double, 8-bit integers,
# 8-bit floats.
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
    "mma": (0.69, 0.61, 0.985, 0.63, 0.78),
    "mma, by words": (0.66, 0.57, 0.75, 0.6, 0.75),
    "mma, middle": (0.646, 0.562, 0.98, 0.576, 0.771),
    "mma, small": (0.5, 0.4, 0.92, 0.33, 0.55),
    "mma, flat": (0.0, 0.0, 0.82),
    "mma, long": (0.0, 0.0, 0.78),
    "mma, least": (0.0, 0.0, 0.73),
    "mma, least, by lines": (0.0, 0.0, 0.72),
    "mma, narrow": (0.0, 0.0, 0.62),
    "mma, promoted": (0.0, 0.0, 0.0, 0.0, 0.6),  # the largest that holds its sums twice
}


# Factors on these shares where lines do not start on 16 bytes: elements of 1 and 2 bytes pass through
# registers. Measured at 4095^3; mma's are fitted to products of many sizes. Of the wmma kernels one was
# measured, in half. For mma in double, DOUBLES_LONGER has the loss.
UNALIGNED = {
    "wmma": (0.20, 0.20, 0.20, 0.20),
    "mma_swizzled": (0.3, 0.4, 0.8, 0.15, 0.3),
    "mma_multistage": (0.35, 0.475, 0.836, 0.226, 0.37),
    "mma": (0.5, 0.557, 1.0, 0.24, 0.3),
    "mma, by words": (0.44, 0.53, 0.88, 0.24, 0.3),
    "mma, middle": (0.36, 0.58, 1.0, 0.2, 0.22),
    "mma, small": (0.38, 0.55, 1.0, 0.2, 0.24),
    "mma, flat": (0.0, 0.0, 1.0),
    "mma, long": (0.0, 0.0, 1.0),
    "mma, least": (0.0, 0.0, 1.0),
    "mma, least, by lines": (0.0, 0.0, 1.0),
    "mma, narrow": (0.0, 0.0, 1.0),
    "mma, promoted": (0.0, 0.0, 0.0, 0.0, 0.24),
}
# How much longer an iteration of doubles takes for lines of A that start on multiples of 16 bytes, and of 8;
# then the same for B. Lines on multiples of 32 touch no more L2 sectors than they must. 60 products, H200.
DOUBLES_LONGER = {
    "mma": (0.02, 0.06, 0.04, 0.03),
    "mma, middle": (0.02, 0.07, 0.06, 0.05),
    "mma, small": (0.06, 0.07, 0.06, 0.03),
    "mma, flat": (0.25, 0.30, 0.12, 0.10),
    "mma, long": (0.25, 0.30, 0.12, 0.10),
    "mma, least": (0.45, 0.30, 0.15, 0.20),
    "mma, least, by lines": (0.45, 0.30, 0.15, 0.20),
    "mma, narrow": (0.25, 0.30, 0.20, 0.20),
}


def share(name: str, math: str) -> float:
    return SHARES[name][COLUMN_OF[math]]


def share_unaligned(name: str, math: str) -> float:
    return UNALIGNED[name][COLUMN_OF[math]]


def wmma_simple_configs(math: str) -> Tuned:
    """Sixteen warps with a fragment each."""
    config = staged(math, 32, 32, 0, (8, 8)) if math == "float64" else staged(math, 64, 64, 0, (16, 16))
    return ((config, share("wmma_simple", math)),)


def wmma_shared_configs(math: str) -> Tuned:
    """A config within 64 KB of shared memory, and one with chunks twice as deep for chips that allow more."""
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
    """The first config fits every chip. Where lines start between two words (HELD in gemm/mma/move.cuh), a
    smaller bk is better.
    """
    if math == "float64":
        tiles = (
            ("mma", (128, 128), 128, (64, 32)),
            ("mma, middle", (64, 128), 128, (32, 32)),
            ("mma, small", (64, 64), 128, (32, 32)),
            ("mma, flat", (64, 32), 128, (32, 16)),
            # 256 bytes of k halve the number of barriers: 512^3 takes a sixth less than with 128
            ("mma, least", (32, 32), 256, (16, 16)),
            # Sides of few tiles: less of the last one is empty, and more SMs have one.
            ("mma, long", (32, 64), 256, (16, 32)),
            ("mma, least, by lines", (32, 32), 128, (16, 16)),
            ("mma, narrow", (64, 16), 256, (16, 16)),
        )
        return {name: staged(math, *tile, k_bytes, warp, 4) for name, tile, k_bytes, warp in tiles}
    return {
        "mma, middle": staged(math, 128, 128, 64, (64, 64), 4),
        "mma": staged(math, 128, 256, 128, (64, 64), 3),
        "mma, by words": staged(math, 128, 256, 64, (64, 64), 3),
        "mma, small": staged(math, 64, 64, 128, (32, 32), 4),
        **({"mma, promoted": staged(math, 128, 128, 128, (64, 32), 3)} if math in FP8 else {}),
    }


def mma_configs(math: str) -> Tuned:
    return tuple((config, share(name, math)) for name, config in mma_tiles(math).items())
