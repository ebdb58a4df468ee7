"""The registry: one row a kernel, with its source, its knobs and the rules it refuses by.

A rung or a detour is an ordinary kernel: the planner may choose it, the tests reach it, the bench measures it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from lapidist.config import Config
from lapidist.device import Device
from lapidist.errors import ArgumentError
from lapidist.problem import ELEMENT_BYTES, Problem
from lapidist.schedule import TileGrid
from lapidist.signatures import LADDER, LADDER_B_ROWS, SIMT, TMA, Signature

GRID_LIMIT = 2**31 - 1
BLOCK_LIMIT = 1024
INT_LIMIT = 2**31 - 1


def no_dynamic_shared(config: Config, dtype: str) -> int:
    return 0


def tma_shared(config: Config, dtype: str) -> int:
    """Stages of A and B tiles, a full and an empty barrier for each, and room to start on 1024 bytes (the swizzle's period)."""
    stage = (config.bm + config.bn) * config.bk * ELEMENT_BYTES[dtype]
    return config.stages * (stage + 16) + 1024


@dataclass(frozen=True, eq=False)
class Kernel:
    """`efficiency` is the share of the chip's limit that a full SM reaches, as measured; the planner's model uses it."""

    name: str
    kind: str  # rung, detour or production
    source: str
    idea: str
    signature: Signature
    config: Config
    efficiency: float
    capability: tuple[int, int] = (7, 5)
    by_dtype: Mapping[str, Config] = field(default_factory=dict)
    others: tuple[tuple[Config, float], ...] = ()  # more configs that the planner weighs, with their efficiency
    defines: Mapping[str, object] = field(default_factory=dict)
    persistent: bool = False
    dynamic_shared: Callable[[Config, str], int] = no_dynamic_shared

    @property
    def entry(self) -> str:
        """The name of the kernel function: its file's, without the number."""
        return self.source.rpartition("/")[2].removesuffix(".cu").lstrip("0123456789_")

    def config_for(self, dtype: str) -> Config:
        return self.by_dtype.get(dtype, self.config)

    def configs_for(self, dtype: str) -> tuple[tuple[Config, float], ...]:
        """Every (config, efficiency) that the planner may weigh. Static shared memory (48 KB) holds them for 4-byte elements."""
        others = self.others if ELEMENT_BYTES[dtype] <= 4 else ()
        return ((self.config_for(dtype), self.efficiency), *others)

    def shared_bytes(self, config: Config, dtype: str) -> int:
        return self.dynamic_shared(config, dtype)

    def tiles(self, problem: Problem, config: Config) -> int:
        return -(-problem.m // config.bm) * -(-problem.n // config.bn)

    def grid(self, problem: Problem, config: Config, device: Device) -> tuple[int, int, int]:
        """Tiles along x, batch along y and z. A persistent kernel takes one block for each SM, and those walk the tiles."""
        tiles = self.tiles(problem, config)
        inner, outer = (*problem.batch[::-1], 1, 1)[:2]
        return (min(tiles, device.sms) if self.persistent else tiles), inner, outer

    def tile_grid(self, problem: Problem, config: Config) -> TileGrid:
        """The tiles as schedules count them."""
        batches = math.prod(problem.batch)
        return TileGrid.of(problem.m, problem.n, problem.k, config.bm, config.bn, max(config.bk, 1), batches)

    def sum_rows(self, config: Config) -> int:
        """Rows of a thread's sums: what a reduction in fragments shares out."""
        return config.tm

    def tile_bytes(self, problem: Problem, config: Config) -> int:
        """One tile of accumulators."""
        return config.bm * config.bn * np.dtype(problem.accumulator).itemsize

    def refuse(self, problem: Problem, config: Config, device: Device) -> str | None:
        """Why this kernel cannot do it, or None."""
        if problem.dtype not in ELEMENT_BYTES:
            return f"it multiplies {', '.join(ELEMENT_BYTES)}; the type is {problem.dtype}"
        if device.capability < self.capability:
            return "it needs compute capability {}.{}; {} has {}.{}".format(*self.capability, device.name, *device.capability)
        if max(problem.m, problem.n, problem.k) > INT_LIMIT:
            return f"an extent is counted in 32 bits; the largest is {max(problem.m, problem.n, problem.k)}"
        if config.threads > BLOCK_LIMIT:
            return f"a block has at most {BLOCK_LIMIT} threads; {config} would need {config.threads}"
        if self.tiles(problem, config) > GRID_LIMIT:
            return f"a grid has at most {GRID_LIMIT} blocks; {config} would need {self.tiles(problem, config)}"
        needed = self.shared_bytes(config, problem.dtype)
        if needed > device.shared_per_block:
            return f"its buffers take {needed} bytes of shared memory; {device.name} gives a block {device.shared_per_block}"
        return self.signature.refuse(problem)

    def macros(self, problem: Problem, config: Config, scheduled: bool = False) -> dict[str, object]:
        """Everything the source is compiled with; `scheduled`: blocks ask the schedule what to do."""
        own = {"SCHEDULED": int(scheduled)} if self.signature.scheduled else {}
        return {**config.defines(), **self.defines, **self.signature.defines(problem), **own}


def rung(number: int, name: str, idea: str, config: Config, efficiency: float, **more: object) -> Kernel:
    row = {"kind": "rung", "source": f"ladder/{number:02d}_{name}.cu", "signature": LADDER, **more}
    return Kernel(name=name, idea=idea, config=config, efficiency=efficiency, **row)  # type: ignore[arg-type]


def detour(name: str, idea: str, config: Config, efficiency: float, **more: object) -> Kernel:
    row = {"kind": "detour", "source": f"detours/{name}.cu", "signature": LADDER, **more}
    return Kernel(name=name, idea=idea, config=config, efficiency=efficiency, **row)  # type: ignore[arg-type]


SQUARE = Config(32, 32)
SHARED = Config(32, 32, 32)
COLUMN = Config(32, 32, 32, tm=4)
LARGE = Config(128, 128, 8, tm=8, tn=8)
WARPED = Config(128, 128, 8, wm=32, wn=64, tm=8, tn=8)

RUNGS = (
    rung(1, "uncoalesced", "one thread, one element; threads walk down a column", SQUARE, 0.0076),
    rung(2, "coalesced", "threads walk along a row: one request, few sectors", SQUARE, 0.082),
    rung(3, "hoisted_indices", "indices become pointers that are bumped", SQUARE, 0.084),
    rung(4, "shared_tile", "32 x 32 tiles in shared memory, read with bank conflicts", SHARED, 0.024),
    rung(5, "padded_tile", "one unused element a row: no conflicts", SHARED, 0.128),
    rung(6, "thread_column", "four results a thread: B is read once for four", COLUMN, 0.265),
    rung(7, "vector_loads", "four elements a move, next tile prefetched", Config(32, 32, 32, tm=1, tn=4), 0.197),
    rung(8, "thread_tile", "4 x 4 results a thread", Config(64, 64, 16, tm=4, tn=4), 0.487),
    rung(9, "large_tile", "8 x 8 results a thread, A as it lies", LARGE, 0.55),
    rung(10, "transposed_a", "A transposed, four 4 x 4 groups: wide loads, no conflicts", LARGE, 0.738),
    rung(11, "warp_tile", "lanes in a zig-zag of 4 x 8: loads pair up", WARPED, 0.739),
    rung(12, "double_buffer", "two buffers, one barrier a step", WARPED, 0.683),
    rung(13, "fragment_prefetch", "fragments of the next k while this one is computed", WARPED, 0.746),
    rung(
        14,
        "async_pipeline",
        "cp.async, four stages in flight",
        replace(WARPED, stages=4),
        0.73,
        by_dtype={"float64": replace(WARPED, bm=64, stages=3)},
        capability=(8, 0),
    ),
    rung(
        15,
        "tma_producer",
        "a producer warp loads by TMA, 16 x 8 a thread, persistent",
        Config(256, 128, 32, 64, 64, 16, 8, stages=4, producers=128),
        0.845,
        by_dtype={
            "float64": Config(128, 128, 16, 32, 64, 8, 8, stages=4, producers=128),
            "float16": Config(256, 128, 64, 64, 64, 16, 8, stages=4, producers=128),
        },
        signature=TMA,
        capability=(9, 0),
        persistent=True,
        dynamic_shared=tma_shared,
    ),
)

UNROLL = "detours/inner_unroll.cu"

DETOURS = (
    detour("bounds_plain", "04 with the border checked at every load", SHARED, 0.05),
    detour("bounds_padded", "05 with the border checked at every load", SHARED, 0.12),
    detour("bounds_cached", "04 with checks, loading through the read-only path", SHARED, 0.05),
    detour("unroll_4", "08 with k unrolled by 4", Config(64, 64, 16, tm=4, tn=4), 0.45, source=UNROLL, defines={"UNROLL": 4}),
    detour("unroll_8", "08 with k unrolled by 8", Config(64, 64, 16, tm=4, tn=4), 0.45, source=UNROLL, defines={"UNROLL": 8}),
    detour("b_transposed", "10 with B given as N x K", LARGE, 0.65, signature=LADDER_B_ROWS),
    detour("pointer_swap", "12 with the buffers swapped by pointer", WARPED, 0.65),
    detour("single_buffer", "13 with one buffer", WARPED, 0.65),
)

PRODUCTION = (
    Kernel(
        "simt",
        "production",
        "gemm/simt.cu",
        "every layout, stride, batch and size",
        SIMT,
        Config(64, 128, 16, 32, 64, 8, 8),
        0.675,
        others=((Config(64, 64, 32, 32, 32, 8, 4), 0.62), (Config(32, 32, 32, 16, 32, 4, 4), 0.47)),
        by_dtype={"float64": Config(64, 64, 8, 32, 64, 8, 8)},
    ),
)

KERNELS = (*RUNGS, *DETOURS, *PRODUCTION)
BY_NAME = {kernel.name: kernel for kernel in KERNELS}


def kernel_named(name: str | int | Kernel) -> Kernel:
    """A kernel by name, or a rung by its number; a Kernel is itself."""
    if isinstance(name, Kernel):
        return name
    name = str(name)
    if name.isdigit() and 1 <= int(name) <= len(RUNGS):
        return RUNGS[int(name) - 1]
    found = BY_NAME.get(name)
    if found is None:
        raise ArgumentError(f"kernel: must be one of {', '.join(BY_NAME)} or a rung's number; got {name!r}")
    return found
