"""The tile with which each pair of blocks begins: pairs in one GPC (a group of up to 18 SMs) take one row of
tiles.

They ask for the same A at about the same time, and on the way from a GPC to the L2 several requests become
one. On an H200 a tenth fewer reads reach the L2, and a fifth less passes between its halves. This saves 2.6 %
of the time at 8192^3, where power is the limit.

The driver places the pairs of a launch round robin over the GPCs, in an order that only depends on which SMs
the chip lacks. One launch finds it out for the life of the process. It is a guess about speed: any order of
tiles is right.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache, lru_cache

from lapidist.backends.gpu.driver import captures_ignored, check, current_device, load_driver
from lapidist.backends.gpu.launcher import GpuKernel
from lapidist.build.compiler import compile_kernel
from lapidist.errors import LapidistError
from lapidist.knobs.shared_knobs import BAND
from lapidist.launch import AS_IT_IS, MOST_PAIRS, Binary, Launch, ParameterBlock
from lapidist.planning.plans import Plan

WORTH_SECONDS = 20e-6  # launches must take so long before the chip is probed
# Cluster sizes of the probes. A cluster lies in one GPC, and clusters of the two sizes overlap, so SMs of a
# GPC are found to belong together.
GPC_CLUSTERS = (8, 6)
SHARED_BYTES = 200 * 1024  # of a block, so that an SM holds one
PARAMETERS = ParameterBlock([("D", "pointer")])  # each block writes the number of its SM there


@lru_cache(maxsize=256)
def further(groups: tuple[int, ...], clusters: int, band: int) -> tuple[int, ...]:
    """For each pair of a launch, how far its first tile is behind the pair's own number. `groups`: the GPC of
    every pair that the chip holds. Tiles go down bands of `band` rows, then to the next column.
    """
    if not band < clusters <= min(len(groups), MOST_PAIRS):
        return ()
    launched_groups = groups[:clusters]
    by_group = sorted(
        range(clusters),
        key=lambda pair: (-launched_groups.count(launched_groups[pair]), launched_groups[pair]),
    )
    by_row = sorted(range(clusters), key=lambda tile: (tile % band, tile // band))
    return tuple(tile - pair for pair, tile in sorted(zip(by_group, by_row, strict=True)))


def groups_of(clusters: Sequence[Sequence[int]], pairs: Sequence[int]) -> tuple[int, ...]:
    """The GPC of each pair, by its SMs: SMs of one cluster belong together. SMs on which no large cluster
    fits come last, as a GPC of their own. Empty if the chip was busy and several blocks ran on one SM.
    """
    if len(set(pairs)) < len(pairs):
        return ()
    least = {sm: sm for together in clusters for sm in together}
    for _ in GPC_CLUSTERS:
        for together in clusters:
            least |= dict.fromkeys(together, min(least[sm] for sm in together))
    for sm in sorted(least):
        least[sm] = least[least[sm]]
    return tuple(least.get(sm, max(pairs) + 1) for sm in pairs[::2])


# ---- on a GPU ----


def order_of(plan: Plan, ordinal: int) -> tuple[int, ...]:
    """The kernel's parameter "order". All zeros if blocks are no pairs, read a schedule, or are soon done."""
    distances: tuple[int, ...] = ()
    if plan.config.cluster == 2 and not plan.scheduled and plan.predicted_seconds >= WORTH_SECONDS:
        groups = probed(ordinal, plan.device.sms, plan.device.architecture)
        grid = plan.kernel.tile_grid(plan.problem, plan.config)
        lines = grid.tiles_n if plan.config.along_m else grid.tiles_m
        distances = further(groups, plan.grid[0] // 2, min(lines, plan.config.raster or BAND))
    return (*distances, *[0] * (MOST_PAIRS - len(distances)))


@cache
def probed(ordinal: int, sms: int, architecture: str) -> tuple[int, ...]:
    """The GPC of each pair of a launch that fills the chip. Empty if the driver refuses clusters of these
    sizes.
    """
    try:
        binary = compile_kernel("placement.cu", "placement", {}, architecture)
        clusters = []
        for size in GPC_CLUSTERS:
            lies = launched(ordinal, launch_of(binary, size, sms // size * size))
            clusters += [lies[start : start + size] for start in range(0, len(lies), size)]
        return groups_of(clusters, launched(ordinal, launch_of(binary, 2, sms // 2 * 2)))
    except LapidistError:
        return ()


def launch_of(binary: Binary, cluster: int, blocks: int) -> Launch:
    content, patches = bytes(PARAMETERS.nbytes), PARAMETERS.patches()
    grid, block = (blocks, 1, 1), (32, 1, 1)
    return Launch(
        binary, grid, block, content, SHARED_BYTES, (cluster, 1, 1), parameters=PARAMETERS, patches=patches
    )


def launched(ordinal: int, launch: Launch) -> list[int]:
    """The SM of each block. It runs on a stream of its own, also while this thread captures a graph."""
    driver, blocks = load_driver(), launch.grid[0]
    sms = (ctypes.c_uint * blocks)()
    with current_device(ordinal), captures_ignored(driver):
        memory = check(driver.cuMemAlloc(4 * blocks), "cuMemAlloc")
        stream = check(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING), "cuStreamCreate")
        GpuKernel(launch, ordinal).start((0, 0, 0, int(memory)), AS_IT_IS, int(stream))
        check(
            driver.cuMemcpyDtoHAsync(ctypes.addressof(sms), memory, 4 * blocks, stream), "cuMemcpyDtoHAsync"
        )
        check(driver.cuStreamSynchronize(stream), "cuStreamSynchronize")
        check(driver.cuStreamDestroy(stream), "cuStreamDestroy")
        check(driver.cuMemFree(memory), "cuMemFree")
    return list(sms)
