"""SumOrder: the order in which a plan sums k, as a value that prints and compares. Plans of one SumOrder give
equal bits.

It follows from the problem, the chip and the config, never from what the cache holds. Read from the kernels:

  k ascends       in all kernels, exchanged or not, in clusters or not, for every tile. Products do not depend
                  on which operand is A. Batches, gathered rows and packed operands change nothing
  steps           what one instruction adds: its products and the old accumulator, in one sum
  zeros           the last tile of k is padded. An instruction of zeros alone makes +0 of a sum that
                  underflowed to -0
  promotion       sums of 8-bit floats leave the tensor core at the end of each tile of k
  slices          small tiles on CUDA cores cut each iteration of k into slices with sums of their own,
                  which are added in the slices' order
  cuts            blocks that share a tile cut its k. Their sums are added along k: by turnstile, and in
                  wgmma's clusters, to the first one, else to zero. Of groups the last part comes first, then
                  the others along k
  alpha, beta     gemm/simt.cu, gemm/small.cu and gemm/sgemm.cu round alpha sum and fuse beta C, gemm/mma.cu
                  and gemm/wgmma.cu round beta C and fuse alpha sum. In the ladder, and of an epilogue, the
                  compiler chooses
  integers        are exact modulo 2^32, in any order
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lapidist.config import Config, Knobs
from lapidist.device import Device
from lapidist.dtypes import accumulators_of, short_name, size_of
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.rules.problem_facts import fragment
from lapidist.problems.problem import Problem
from lapidist.problems.ragged import DEPTH
from lapidist.schedule import Raster, Schedule, TileGrid
from lapidist.schedule.grid import ceil_div

INSTRUCTION_BYTES = 32  # of k that one mma.sync or wgmma adds; for double it is 8 elements
ADDED = {
    "turnstile": "added in turn",
    "separate": "added by blocks of their own",
    "cluster": "added in a cluster",
    "atomic": "added in any order",
    "device": "added by the last one's block",
}


@dataclass(frozen=True, slots=True)
class Cuts:
    """The elements at which k is cut, in all tiles alike, and how the parts are added."""

    reduction: str
    cuts: tuple[int, ...]

    def __str__(self) -> str:
        return f"k cut at {', '.join(map(str, self.cuts))}, {ADDED[self.reduction]}"


@dataclass(frozen=True, slots=True)
class SharedTiles:
    """Tiles that are cut at different places, or not at all. These numbers tell the tile of each element, and
    where that is cut. D is as the caller has it.
    """

    reduction: str
    rows: int
    cols: int
    step: int
    grid: TileGrid
    raster: Raster
    first: int  # the shared tiles begin with this one
    shared: int
    stretches: int
    regions: int

    def __str__(self) -> str:
        regions = f" in {self.regions} regions" if self.regions != 1 else ""
        return (
            f"tiles of {self.rows} x {self.cols} {self.raster}, {self.grid} of {self.step}: {self.shared}"
            f" from number {self.first} on cut into {self.stretches} stretches{regions},"
            f" {ADDED[self.reduction]}"
        )


@dataclass(frozen=True, slots=True)
class CutsOfGroups:
    """The last tiles of groups, which the device cuts when it knows how many there are; all of them, where
    groups cut k. Equal lengths of groups are cut alike by plans with these numbers.
    """

    parts: int
    step: int
    rows: int
    cols: int
    clusters: int
    of_all: bool
    reduction = "device"

    def __str__(self) -> str:
        return (
            f"{'all' if self.of_all else 'the last'} tiles of {self.rows} x {self.cols} cut into up to"
            f" {self.parts} stretches for {self.clusters} clusters, {ADDED[self.reduction]}"
        )


UNSLICED = 1, 0, False


@dataclass(frozen=True, eq=False)
class SumOrder:
    """The order in which a plan sums k.

    `unit` is the instruction. `epilogue` names the kernel and config, if their epilogue may round differently
    from all others.

    Examples
    --------
    >>> import numpy as np
    >>> import lapidist
    >>> a = np.ones((64, 64), np.float32)
    >>> first, second = (lapidist.plan(a, a, device="machine", kernel=name) for name in (7, 8))
    >>> first.sum_order == second.sum_order
    True
    """

    unit: str
    types: str
    chip: str = ""  # architecture of tensor cores: generations truncate sums at different bits
    accumulator: str = ""  # if it is not the usual one
    step: int = 1  # elements of k that one instruction adds
    zeros: bool = False  # whole instructions of zeros follow the last element of k
    # slices with sums of their own, elements of k that they divide, whether the short iteration is the first
    slices: tuple[int, int, bool] = UNSLICED
    promoted: int = 0  # elements of k after which sums leave the tensor core; 0: only at the end
    cuts: Cuts | SharedTiles | CutsOfGroups | None = None  # None: whole tiles
    epilogue: str = ""

    @property
    def fixed(self) -> bool:
        """Whether it is the same in each run."""
        return self.cuts is None or self.cuts.reduction != "atomic"

    def __eq__(self, other: object) -> bool:
        """Whether both are fixed and equal: an order that is not fixed does not even equal itself."""
        return isinstance(other, SumOrder) and self.fixed and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __str__(self) -> str:
        if self.unit == "exact":
            return f"{self.types}, exact in any order"
        parts = [
            f"{self.unit} {self.types}" + (f" of {self.chip}" if self.chip else ""),
            f"steps of {self.step}" if self.step > 1 else "one after another",
            *([f"sums in {self.accumulator}"] if self.accumulator else []),
            *(["{} slices of each {}".format(*self.slices[:2])] if self.slices[0] > 1 else []),
            *([f"promoted every {self.promoted}"] if self.promoted else []),
            *(["zeros in the end"] if self.zeros else []),
            str(self.cuts) if self.cuts else "whole tiles",
            *([f"the epilogue as in {self.epilogue}"] if self.epilogue else []),
        ]
        return ", ".join(parts)


def sum_order(
    problem: Problem, device: Device, kernel: Kernel, config: Config, schedule: Schedule | None
) -> SumOrder:
    """`problem`: as the kernel computes it, with A and B exchanged if the config says so."""
    types = types_in_callers_order(problem)
    if problem.accumulator == "int32":
        return SumOrder("exact", types)
    common_properties = accumulators_of(problem.dtype)[0]
    return SumOrder(
        unit_of(kernel),
        types,
        device.architecture if kernel.unit == "mma" else "",
        problem.accumulator if problem.accumulator != common_properties else "",
        step_of(problem, kernel),
        bool(ends_in_zeros(problem, kernel, config)),
        slices_of(kernel, config),
        config.bk if problem.scaling.promoted else 0,
        cuts_of_groups(problem, kernel, config, device)
        if problem.modes.ragged is not None
        else cuts_of(problem, config, schedule),
        f"{kernel.name} {config}" if compiler_rounds_epilogue(problem, kernel) else "",
    )


def slices_of(kernel: Kernel, config: Config) -> tuple[int, int, bool]:
    if config.slices == 1:
        return UNSLICED
    return config.slices, config.bk, bool(kernel.family.short_tile_first(config))


def unit_of(kernel: Kernel) -> str:
    return "wmma" if kernel.wmma else kernel.unit


def ends_in_zeros(problem: Problem, kernel: Kernel, config: Knobs) -> Any:
    """Whether the last tile of k is padded with whole instructions of zeros. `config` may be
    columns of many.
    """
    if kernel.remainder_first:
        return False
    step = step_of(problem, kernel)
    tile = config.bk + step * (config.bk == 0)
    return ceil_div(problem.k, tile) * tile > ceil_div(problem.k, step) * step


def compiler_rounds_epilogue(problem: Problem, kernel: Kernel) -> bool:
    """Whether the compiler chose what is rounded and what is fused: in epilogues, and in the ladder with C. A
    function that only adds a bias leaves no choice. Nor does one whose steps are rounded one by one.
    """
    chosen = problem.fused is not None and not adds_bias_alone(problem)
    ladder_with_c = problem.c is not None and kernel.kind != "production"
    return (chosen and not rounds_each_step(problem, kernel)) or ladder_with_c


def rounds_each_step(problem: Problem, kernel: Kernel) -> bool:
    """Whether the kernel is compiled without fused multiply-adds of the compiler's choice. On CUDA cores sums
    themselves are such, and beta C is one.
    """
    tensor_cores = kernel.kind == "production" and kernel.unit != "fma"
    function = problem.fused is not None and not adds_bias_alone(problem)
    return problem.invariant and function and problem.c is None and tensor_cores


def adds_bias_alone(problem: Problem) -> bool:
    plain = problem.one_alpha and problem.c is None and not problem.scaling.scaled
    return plain and problem.fused is not None and problem.fused.is_bias


def types_in_callers_order(problem: Problem) -> str:
    a, b = (problem.b_dtype, problem.dtype) if problem.transposed else (problem.dtype, problem.b_dtype)
    return short_name(problem.math) if a == b else f"{short_name(a)} x {short_name(b)}"


def step_of(problem: Problem, kernel: Kernel) -> int:
    if kernel.unit == "fma":
        return 1
    if kernel.wmma:
        return fragment(problem.math)[2]
    return 8 if problem.dtype == "float64" else INSTRUCTION_BYTES // size_of(problem.dtype)


def cuts_of_groups(
    problem: Problem, kernel: Kernel, config: Config, device: Device
) -> Cuts | CutsOfGroups | None:
    fixed = problem.modes.fixed_cuts
    if fixed is not None:
        return Cuts(fixed.reduction, fixed.boundaries(problem.k))
    parts = kernel.family.parts_of_tiles(problem, config)
    if parts == 1:
        return None
    rows, cols = config.bm * config.cluster_m, config.bn * config.cluster_n
    clusters = kernel.grid(problem, config, device)[0] // config.cluster
    tile = (cols, rows) if problem.transposed else (rows, cols)
    return CutsOfGroups(parts, config.bk, *tile, clusters, problem.modes.cuts(DEPTH))


def cuts_of(problem: Problem, config: Config, schedule: Schedule | None) -> Cuts | SharedTiles | None:
    if schedule is None or not schedule.shares_tiles:
        return None
    step = max(config.bk, 1)
    if schedule.regions == schedule.sk_tiles == schedule.grid.tiles:
        begins = (schedule.stretch(number)[0] for number in range(1, schedule.blocks_per_region))
        return Cuts(schedule.reduction, tuple(begin * step for begin in begins))
    grid, raster = schedule.grid, schedule.raster
    rows, cols = config.bm * config.cluster_m, config.bn * config.cluster_n
    if problem.transposed:
        rows, cols = cols, rows
        grid = replace(grid, tiles_m=grid.tiles_n, tiles_n=grid.tiles_m)
        raster = replace(raster, along="m" if raster.along == "n" else "n")
    numbers = schedule.first_shared_tile, schedule.sk_tiles, schedule.sk_blocks, schedule.regions
    return SharedTiles(schedule.reduction, rows, cols, step, grid, raster, *numbers)
