"""Ways to share a product's tiles that the planner weighs, and what sharing costs: for few tiles, and for
ragged last waves.

Costs were measured on an H200 with the SIMT family, tiles of 4 to 32 KB (`lapidist streamk costs` measures
them again)."""

from __future__ import annotations

from collections.abc import Iterator

from lapidist.config import Config
from lapidist.device import STATIC_SHARED, Device
from lapidist.errors import ArgumentError
from lapidist.kernels.row import Kernel
from lapidist.kernels.signatures import least_alignment
from lapidist.problems.problem import Problem
from lapidist.schedule import CostModel, Schedule, TileGrid, split_k, stream_k
from lapidist.schedule.costs import Load, load_of
from lapidist.schedule.units import CLUSTER_MOST

# Tiles are shared where that is predicted to take less than this part of the time of a block a tile: kernels
# that ask a schedule run up to 6 % slower, those of elements that pass through registers up to 20 %, and the
# model errs.
WORTH, WORTH_HELD = 0.93, 0.8
FULL = 0.9  # a launch whose waves are so full is not shared
SPARE_SMS = 8  # clusters lie within a group of 16 or 18 SMs, which they do not fill evenly
CLUSTER_THREADS = (
    280  # of an SM: with more, clusters wait for room, and twice as many took twice as long as by turnstile
)
SEPARATE_BLOCKS = 2  # for an SM: more of them write more partial sums than they save iterations
L2_BYTES_PER_SECOND = 2e12
SPLITS = (2, 3, 4, 5, 6, 7, 8, 12, 16)
WALK_SECONDS = 0.5e-6  # a block asks the schedule what to do
# Bringing a tile's sums together: seconds, seconds for each byte of the tile, and both for each peer beyond
# two.
HANDED = {
    "cluster": (3.0e-6, 0.13e-9, 0.0, 0.0),
    "turnstile": (1.5e-6, 0.075e-9, 0.5e-6, 0.0135e-9),
    "separate": (4.5e-6, 0.13e-9, 0.05e-6, 0.0),
}


def worth(problem: Problem) -> float:
    return WORTH_HELD if least_alignment(problem) < 4 else WORTH


def resident(kernel: Kernel, config: Config, problem: Problem, device: Device) -> int:
    """Blocks that an SM holds, at least: loads one by one take registers for their addresses. gemm/simt.cu
    has the same rule.
    """
    registers = 255
    if kernel.unit == "fma" and problem.accumulator != "float64":
        vectors, small = kernel.signature.defines(problem), config.tm * config.tn <= 16
        if vectors.get("A_VECTOR") == vectors.get("B_VECTOR") == 4:
            registers = 128 if small else 168
        elif small:
            registers = 168 if config.threads > 64 else 208
    return max(1, device.blocks_resident(config.threads, registers, kernel.shared_bytes(config, problem)))


def options(
    problem: Problem, device: Device, kernel: Kernel, config: Config, costs: CostModel
) -> Iterator[Schedule]:
    """Schedules that may beat a block a tile."""
    grid, rows = kernel.tile_grid(problem, config), kernel.sum_rows(config)
    slots = device.sms * resident(kernel, config, problem, device)
    if not grid.tiles or not grid.iterations or grid.tiles / (-(-grid.tiles // slots) * slots) > FULL:
        return
    for splits in SPLITS if grid.tiles < slots else ():
        reduction = reduction_of(splits, grid, kernel, config, problem, device)
        if reduction is None:
            continue
        try:
            yield split_k(grid, splits, reduction=reduction, fragments=rows, raster=kernel.raster)
        except ArgumentError:
            return  # more splits than iterations
    per_sm = slots // device.sms
    yield stream_k(grid, sms=device.sms, occupancy=per_sm, fragments=rows, raster=kernel.raster, costs=costs)


def reduction_of(
    splits: int, grid: TileGrid, kernel: Kernel, config: Config, problem: Problem, device: Device
) -> str | None:
    """The fastest: in a cluster where its blocks find room at once and their sums fit where the operands
    were. None: too many blocks for any."""
    fits = splits <= CLUSTER_MOST and refuse_cluster(kernel, config, problem, device) is None
    blocks = grid.tiles * splits
    if fits and blocks * config.threads <= CLUSTER_THREADS * device.sms:
        return "cluster"
    if splits > 4:
        return "separate" if blocks <= SEPARATE_BLOCKS * device.sms else None
    return "turnstile"


def refuse_cluster(kernel: Kernel, config: Config, problem: Problem, device: Device) -> str | None:
    """Why the peers of a tile cannot be a cluster, or None."""
    if device.capability < (9, 0):
        return (
            f"reduction: 'cluster' needs compute capability 9.0; {device.name} has an older one. Take"
            " 'separate'"
        )
    room, needed = kernel.shared_bytes(config, problem) or STATIC_SHARED, kernel.tile_bytes(problem, config)
    if needed > room:
        return (
            f"reduction: 'cluster' needs {needed} bytes of shared memory for a tile of sums; there are"
            f" {room}. Take 'separate'"
        )
    return None


def cost_of(reduction: str, tile_bytes: int) -> tuple[float, float]:
    """Seconds for the first two peers of a tile, and for each further one."""
    first, by_byte, further, further_by_byte = HANDED.get(reduction, HANDED["turnstile"])
    return first + by_byte * tile_bytes, further + further_by_byte * tile_bytes


def costs_of(tile_bytes: int, iteration: float, alongside: float) -> CostModel:
    """Of Stream-K blocks, in seconds."""
    two, further = cost_of("turnstile", tile_bytes)
    return CostModel(
        WALK_SECONDS, two - further, iteration, further, "seconds", "measured on an H200", alongside
    )


def busiest(schedule: Schedule, sms: int, per_sm: int) -> Load:
    """What the busiest SM computes."""
    longest = schedule.normal_iterations + (schedule.big_blocks > 0)
    reached = sms - SPARE_SMS if schedule.cluster > 1 else sms
    return load_of(
        reached, per_sm, (schedule.sk_blocks, longest), (schedule.dp_tiles, schedule.grid.iterations)
    )


def handing_on(schedule: Schedule, tile_bytes: int) -> float:
    """Seconds until the peers of a tile have brought their sums together."""
    first, further = cost_of(schedule.reduction, tile_bytes)
    peers = -(-schedule.sk_blocks // schedule.sk_tiles) + (schedule.regions != schedule.sk_tiles)
    moved = (
        2.0 * schedule.sk_blocks * tile_bytes / L2_BYTES_PER_SECOND
        if schedule.reduction == "separate"
        else 0.0
    )
    return WALK_SECONDS + first + further * max(0, peers - 2) + moved
