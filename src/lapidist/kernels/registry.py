"""The registry: one row for each kernel. Rungs and detours are ordinary kernels, which the planner may choose
and the bench measures.
"""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches

from lapidist.config import Config
from lapidist.errors import ArgumentError, shown
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.ladder import LADDER, LADDER_B_COLUMNS, TMA, TMA_SCHEDULED
from lapidist.kernels.mma.family import MMA_FAMILY
from lapidist.kernels.mma.rungs import MMA_RUNGS, TENSOR_DETOURS, WMMA_RUNGS
from lapidist.kernels.rules import fma as rules
from lapidist.kernels.sgemm.family import SGEMM, SOURCE_ORDER
from lapidist.kernels.simt import SIMT
from lapidist.kernels.small import SMALL
from lapidist.kernels.wgmma.family import WGMMA_FAMILY
from lapidist.kernels.wgmma.rungs import MMA_TMA_RUNG, WGMMA_RUNGS


def rung(number: int, name: str, idea: str, config: Config, efficiency: float, **more: object) -> Kernel:
    defaults = {"kind": "rung", "source": f"ladder/{number:02d}_{name}.cu", "family": LADDER}
    row = {**defaults, "remainder_first": True, **more}
    return Kernel(name=name, idea=idea, config=config, efficiency=efficiency, **row)  # type: ignore[arg-type]


def detour(name: str, idea: str, config: Config, efficiency: float, **more: object) -> Kernel:
    defaults = {"kind": "detour", "source": f"detours/{name}.cu", "family": LADDER}
    row = {**defaults, "remainder_first": True, **more}
    return Kernel(name=name, idea=idea, config=config, efficiency=efficiency, **row)  # type: ignore[arg-type]


SQUARE = Config(32, 32)
SHARED = Config(32, 32, 32)
COLUMN = Config(32, 32, 32, tm=4)
LARGE = Config(128, 128, 8, tm=8, tn=8)
WARPED = Config(128, 128, 8, wm=32, wn=64, tm=8, tn=8)

# tiles by type, for rungs fed by TMA: an iteration is 128 bytes of k
Tiles = dict[str, Config]
EIGHT: Tiles = {
    "float32": Config(128, 128, 32, 32, 64, 8, 8, stages=3),
    "float64": Config(128, 128, 16, 32, 64, 8, 8, stages=4),
    "float16": Config(128, 128, 64, 32, 64, 8, 8, stages=3),
}
SIXTEEN: Tiles = {
    "float32": Config(256, 128, 32, 64, 64, 16, 8, stages=4),
    "float64": EIGHT["float64"],
    "float16": Config(256, 128, 64, 64, 64, 16, 8, stages=4),
}
WITH_PRODUCER: Tiles = {math: replace(config, producers=128) for math, config in SIXTEEN.items()}


def fed_rung(number: int, name: str, idea: str, tiles: Tiles, efficiency: float, **more: object) -> Kernel:
    defaults = {
        "by_dtype": tiles,
        "family": TMA,
        "capability": (9, 0),
        "rules": rules.TMA_RUNGS,
        "remainder_first": False,
    }
    return rung(number, name, idea, tiles["float32"], efficiency, **{**defaults, **more})


RUNGS = (
    rung(
        1,
        "uncoalesced",
        "one thread, one element; threads walk down a column",
        SQUARE,
        0.0076,
        rules=rules.DOWN_A_COLUMN,
    ),
    rung(
        2,
        "coalesced",
        "threads walk along a row: one request, few sectors",
        SQUARE,
        0.082,
        rules=rules.ALONG_A_ROW,
    ),
    rung(
        3,
        "hoisted_indices",
        "indices become pointers that are bumped",
        SQUARE,
        0.084,
        rules=rules.ALONG_A_ROW,
    ),
    rung(
        4,
        "shared_tile",
        "32 x 32 tiles in shared memory, read with bank conflicts",
        SHARED,
        0.024,
        rules=rules.SHARED_TILE,
    ),
    rung(5, "padded_tile", "one unused element a row: no conflicts", SHARED, 0.128, rules=rules.SHARED_TILE),
    rung(
        6,
        "thread_column",
        "four results a thread: B is read once for four",
        COLUMN,
        0.265,
        rules=rules.THREAD_COLUMN,
    ),
    rung(
        7,
        "vector_loads",
        "four elements a move, next tile prefetched",
        Config(32, 32, 32, tm=1, tn=4),
        0.197,
        rules=rules.VECTOR_LOADS,
    ),
    rung(
        8,
        "thread_tile",
        "4 x 4 results a thread",
        Config(64, 64, 16, tm=4, tn=4),
        0.487,
        rules=rules.THREAD_TILE,
    ),
    rung(9, "large_tile", "8 x 8 results a thread, A as it lies", LARGE, 0.55, rules=rules.THREAD_TILE),
    rung(
        10,
        "transposed_a",
        "A transposed, four 4 x 4 groups: wide loads, no conflicts",
        LARGE,
        0.738,
        rules=rules.TRANSPOSED,
    ),
    rung(
        11,
        "warp_tile",
        "lanes in a zig-zag of 4 x 8: loads pair up",
        WARPED,
        0.739,
        rules=rules.warp_tiles(1),
    ),
    rung(12, "double_buffer", "two buffers, one barrier a step", WARPED, 0.683, rules=rules.warp_tiles(2)),
    rung(
        13,
        "fragment_prefetch",
        "fragments of the next k while this one is computed",
        WARPED,
        0.746,
        rules=rules.warp_tiles(2),
    ),
    rung(
        14,
        "async_pipeline",
        "cp.async, four stages in flight",
        replace(WARPED, stages=4),
        0.73,
        by_dtype={"float64": replace(WARPED, bm=64, stages=3)},
        capability=(8, 0),
        rules=rules.ASYNC_PIPELINE,
    ),
    rung(
        15,
        "wide_copies",
        "A as it lies, 16 bytes a copy; four k a read",
        replace(WARPED, stages=4),
        0.74,
        by_dtype={"float64": replace(WARPED, bm=64, stages=3)},
        capability=(8, 0),
        rules=rules.WIDE_COPIES,
    ),
    fed_rung(16, "tma_tiles", "one thread orders whole tiles by TMA", EIGHT, 0.77),
    fed_rung(17, "tall_tile", "16 x 8 results a thread, one block an SM", SIXTEEN, 0.78),
    fed_rung(
        18,
        "bank_order",
        "fmas in an order that spares the register banks",
        SIXTEEN,
        0.81,
        options=SOURCE_ORDER,
    ),
    fed_rung(
        19,
        "producer_warp",
        "a producer warp loads, the others never meet",
        WITH_PRODUCER,
        0.82,
        options=SOURCE_ORDER,
    ),
    fed_rung(
        20,
        "tma_streamk",
        "persistent blocks share out all steps along k (Stream-K)",
        WITH_PRODUCER,
        0.845,
        family=TMA_SCHEDULED,
        persistent=1,
        options=SOURCE_ORDER,
        reductions=("turnstile",),
        defines={"SCHEDULED": 1},  # blocks ask for whole tiles too
    ),
    *WMMA_RUNGS,
    *MMA_RUNGS,
    MMA_TMA_RUNG,
    *WGMMA_RUNGS,
)

UNROLL = "detours/inner_unroll.cu"

DETOURS = (
    detour(
        "bounds_plain",
        "04 with the border checked at every load",
        SHARED,
        0.05,
        rules=rules.SHARED_TILE,
        remainder_first=False,
    ),
    detour(
        "bounds_padded",
        "05 with the border checked at every load",
        SHARED,
        0.12,
        rules=rules.SHARED_TILE,
        remainder_first=False,
    ),
    detour(
        "bounds_cached",
        "04 with checks, loading through the read-only path",
        SHARED,
        0.05,
        rules=rules.SHARED_TILE,
        remainder_first=False,
    ),
    detour(
        "unroll_4",
        "08 with k unrolled by 4",
        Config(64, 64, 16, tm=4, tn=4),
        0.45,
        source=UNROLL,
        defines={"UNROLL": 4},
        rules=rules.unrolled(4),
    ),
    detour(
        "unroll_8",
        "08 with k unrolled by 8",
        Config(64, 64, 16, tm=4, tn=4),
        0.45,
        source=UNROLL,
        defines={"UNROLL": 8},
        rules=rules.unrolled(8),
    ),
    detour(
        "b_transposed",
        "10 with B given as N x K",
        LARGE,
        0.65,
        family=LADDER_B_COLUMNS,
        rules=rules.BOTH_TRANSPOSED,
    ),
    detour("pointer_swap", "12 with the buffers swapped by pointer", WARPED, 0.65, rules=rules.warp_tiles(2)),
    detour("single_buffer", "13 with one buffer", WARPED, 0.65, rules=rules.warp_tiles(1)),
    *TENSOR_DETOURS,
)

PRODUCTION = (SIMT, SGEMM, MMA_FAMILY, WGMMA_FAMILY, SMALL)

KERNELS = (*RUNGS, *DETOURS, *PRODUCTION)
BY_NAME = {kernel.name: kernel for kernel in KERNELS}


def kernel_named(name: str | int | Kernel) -> Kernel:
    """A kernel by name, or a rung by its number; a Kernel is itself.

    Examples
    --------
    >>> import lapidist
    >>> lapidist.kernel_named(1).idea == lapidist.kernel_named("uncoalesced").idea
    True
    """
    if isinstance(name, Kernel):
        return name
    named = str(name)
    if named.isdecimal() and 1 <= int(named) <= len(RUNGS):
        return RUNGS[int(named) - 1]
    kernel = BY_NAME.get(named)
    if kernel is None:
        close = get_close_matches(named, BY_NAME, 1)
        production = ", ".join(row.name for row in KERNELS if row.kind == "production")
        way_out = f"Write {close[0]}" if close else f"Name one of {production}"
        raise ArgumentError(
            f"kernel: must be a kernel's name, or a rung's number from 1 to {len(RUNGS)}; got {shown(name)}."
            f" {way_out}, or another that `lapidist kernels` lists"
        )
    return kernel
