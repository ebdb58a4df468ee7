"""Registry rows of the ladder's rungs and detours with wmma and mma.sync."""

from __future__ import annotations

from collections.abc import Callable

from lapidist.dtypes import TF32
from lapidist.kernels.family import Family
from lapidist.kernels.kernel import Kernel, Tuned, Types
from lapidist.kernels.mma.configs import (
    beta_first_configs,
    mma_multistage_configs,
    mma_swizzled_configs,
    no_skew_configs,
    wmma_shared_configs,
    wmma_simple_configs,
)
from lapidist.kernels.mma.family import MMA_TYPES, Multistage, Swizzled, Wmma, WmmaShared
from lapidist.kernels.rules import tensor as rules

WMMA_TYPES = Types(("float16", "bfloat16", TF32, "float64", "int8", "uint8"), outputs=True, half_sums=True)
FLOAT_WMMA_TYPES = Types(("float16", "bfloat16", TF32, "float64"), outputs=True, half_sums=True)
SHARED = WmmaShared()


def row(
    kind: str,
    source: str,
    idea: str,
    family: Family,
    types: Types,
    configs: Callable[[str], Tuned],
    name: str = "",
    **more: object,
) -> Kernel:
    """`name` is needed where a file holds more kernels than the one that it is named after."""
    tuned = {math: configs(math) for math in types.maths}
    config, efficiency = tuned["float16"][0]
    return Kernel(
        name or source.rpartition("/")[2].removesuffix(".cu").lstrip("0123456789_"),
        kind,
        source,
        idea,
        family,
        config,
        efficiency,
        (8, 0),
        tuned=tuned,
        types=types,
        unit="mma",
        **more,  # type: ignore[arg-type]
    )


WMMA_RUNGS = (
    row(
        "rung",
        "ladder/21_wmma_simple.cu",
        "a warp multiplies 16 x 16 x 16 at once, straight from global memory",
        Wmma(),
        WMMA_TYPES,
        wmma_simple_configs,
        rules=rules.WMMA_SIMPLE,
        wmma=True,
    ),
    row(
        "rung",
        "ladder/22_wmma_shared.cu",
        "eight warps share chunks of k in shared memory, rows skewed; persistent",
        SHARED,
        WMMA_TYPES,
        wmma_shared_configs,
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
        Swizzled(),
        MMA_TYPES,
        mma_swizzled_configs,
        rules=rules.SWIZZLED,
    ),
    row(
        "rung",
        "ladder/24_mma_multistage.cu",
        "cp.async stages ahead; the next fragments meanwhile",
        Multistage(),
        MMA_TYPES,
        mma_multistage_configs,
        rules=rules.STAGED,
    ),
)
TENSOR_DETOURS = (
    row(
        "detour",
        "ladder/22_wmma_shared.cu",
        "22 without the skew",
        WmmaShared(skew=0),
        WMMA_TYPES,
        no_skew_configs,
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
        SHARED,
        FLOAT_WMMA_TYPES,
        beta_first_configs,
        persistent=2,
        rules=rules.WMMA_SHARED,
        wmma=True,
    ),
)
