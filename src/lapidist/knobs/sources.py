"""Which constants each source of lapidist/cuda is compiled by."""

from __future__ import annotations

from lapidist.knobs import families
from lapidist.knobs.knob import MACRO, SIZE, Knob, Knobs, Values, redefined
from lapidist.knobs.shared_knobs import (
    BYTES,
    COMMON,
    FACTORS,
    RASTER,
    REDUCTION,
    TENSOR,
    TILE,
    VECTORS,
    WGMMA,
    same_as,
)


def chunk(values: Values) -> int:
    return 16 // BYTES.get(values["T"], 16)


THREADS_LOAD: Knobs = (*COMMON, *TILE)
UNROLLED: Knobs = (*THREADS_LOAD, Knob("UNROLL", "steps of k that are written out", 4))
FRAGMENTS: Knobs = (*TENSOR, *VECTORS, *TILE)
PADDED: Knobs = (*FRAGMENTS, Knob("SKEW", "unused elements behind each row of a tile", chunk))
MULTISTAGE: Knobs = (*FRAGMENTS, RASTER)
MMA_TMA: Knobs = (*MULTISTAGE, Knob("B_N_MAJOR", "1: tiles of B have neighbours along n", 0))
WARPGROUPS: Knobs = (*FRAGMENTS, *WGMMA, families.STORE_OF_D[0], RASTER)
CLUSTERED: Knobs = (
    *WARPGROUPS,
    *families.CLUSTERS,
    Knob("CLUSTER", "blocks of a cluster", same_as("CLUSTER_M")),
    families.CLUSTERED,
)
STREAMK: Knobs = (
    *CLUSTERED[:-2],
    *redefined(REDUCTION, CLUSTER=same_as("CLUSTER_M"), SHARERS=256),
    families.CLUSTERED,
)
# Of sources elsewhere that use parts of lapidist/cuda.
SHARED: Knobs = (
    *TENSOR,
    *VECTORS,
    *(knob for knob in TILE if knob.name != "BK"),
    Knob("BK", "steps of k in a row of the swizzle", lambda values: 8 * chunk(values), SIZE),
    *FACTORS,
    *WGMMA,
    *redefined(REDUCTION, WALK_OF_REDUCTION=1),
    *families.PARTS_OF_GROUPS,
)

EMULATED: Knobs = (
    Knob("THREADS", "threads of a block"),
    Knob("FLOATS", "float32 is cut into 0: three int8; 1: three bfloat16; 2: two fp16", 0, MACRO),
)

REMAINDERS: Knobs = (
    Knob("THREADS", "threads of a block"),
    Knob("MODULI", "numbers whose remainders are taken"),
)

OWN: dict[str, Knobs] = {
    "detours/inner_unroll.cu": UNROLLED,
    "detours/wmma_beta_first.cu": PADDED,
    **{f"emulated/{name}.cu": EMULATED for name in ("slice_rows", "slice_columns", "take_columns", "join")},
    **{f"emulated/{name}.cu": REMAINDERS for name in ("remainders", "join_remainders")},
    "exchange/add_terms.cu": families.ADD_TERMS,
    "exchange/send_terms.cu": families.SEND_TERMS,
    "gemm/complex_mma.cu": families.COMPLEX_MMA,
    "gemm/complex_tile.cu": families.COMPLEX_TILE,
    "gemm/mma.cu": families.MMA,
    "gemm/sgemm.cu": families.SGEMM,
    "gemm/simt.cu": families.SIMT,
    "gemm/small.cu": families.SMALL,
    "gemm/wgmma.cu": families.FAMILY,
    "ladder/20_tma_streamk.cu": (*THREADS_LOAD, *redefined(REDUCTION, SHARERS=256)),
    "ladder/21_wmma_simple.cu": FRAGMENTS,
    "ladder/22_wmma_shared.cu": PADDED,
    "ladder/23_mma_swizzled.cu": FRAGMENTS,
    "ladder/24_mma_multistage.cu": MULTISTAGE,
    "ladder/25_mma_tma.cu": MMA_TMA,
    "ladder/26_wgmma_tma.cu": WARPGROUPS,
    "ladder/27_wgmma_specialised.cu": WARPGROUPS,
    "ladder/28_wgmma_rounds.cu": WARPGROUPS,
    "ladder/29_wgmma_patches.cu": WARPGROUPS,
    "ladder/30_wgmma_clusters.cu": CLUSTERED,
    "ladder/31_wgmma_streamk.cu": STREAMK,
    "packing/widen.cu": families.WIDEN,
    "placement.cu": COMMON,
    "quantised/converted.cu": families.CONVERTED,
    "quantised/decoded.cu": families.DECODED,
    "quantised/skinny.cu": families.SKINNY,
    "quantised/streamed.cu": families.STREAMED,
    "second/largest.cu": families.LARGEST,
    "second/mirror.cu": families.MIRROR,
    "second/quantise.cu": families.QUANTISE,
    "second/reduce.cu": families.REDUCE,
    "second/reduce_rows.cu": families.REDUCE_ROWS,
}
# Sources that bring 8-bit floats of their own: cuda_fp8.h brings the headers of both 16-bit types, which
# weights of few bits need.
OWN_8_BITS = frozenset(
    source for source, knobs in OWN.items() if WGMMA[0] in knobs and knobs is not families.STREAMED
)


def knobs_of(source: str) -> Knobs:
    """The other rungs and detours have threads that load A and B."""
    return OWN.get(source, THREADS_LOAD)
