"""Problem and Device to Plan: candidates, refusals, cost, best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lapidist.config import Config
from lapidist.device import Device
from lapidist.dtypes import size_of
from lapidist.errors import ArgumentError, RefusalError
from lapidist.kernels.registry import KERNELS
from lapidist.kernels.row import Kernel
from lapidist.kernels.signatures import inputs_on_16_bytes, least_alignment, vector_width
from lapidist.planning.splits import busiest, costs_of, handing_on, options, refuse_cluster, resident, worth
from lapidist.problems.facts import fact
from lapidist.problems.problem import Problem
from lapidist.schedule import CostModel, Schedule
from lapidist.schedule.sharing import PLANNED, Sharing

# rungs and detours were not measured on every shape: they are taken where they promise more than the model
# may err
LESSON = 1.2
TIE = 1.0025  # between configs of a kernel the model knows no smaller differences
LAUNCH_SECONDS = 2.2e-6  # that a launch takes in a graph of many, with nothing to do, on an H200
DRAM_SHARE = 0.65  # of the bandwidth that reading alone has
# What a block does beside its products: seconds until its first ones, and for each element of D that it
# stores; and where D does not start on the width of a vector.
BESIDE = {"fma": (0.3e-6, 1.6e-10, 4.3e-10), "mma": (0.8e-6, 0.7e-10, 2.1e-10)}
# Latency hiding: an SM whose warps hold s independent sums a lane runs at s / (s + 54) of its best. Fitted to
# the SIMT family on an H200 with one to sixteen warps on an SM and thread tiles of 16, 32 and 64.
HALF_RATE_SUMS = 54
# The same of tensor cores: one warp for each scheduler reaches four fifths, two all of it; where elements of
# 1 or 2 bytes pass through registers they wait longer, and s warps run in proportion to s / (s + 12).
TENSOR_ALONE, TENSOR_BY_WARP = 0.6, 0.05
TENSOR_HELD, HALF_RATE_WARPS = 2.5, 12
# of the speed of unaligned lines, where they start on 4 or 8 bytes: then nothing passes through registers
BY_WORDS = 1.35
FULL_WARPS = 16  # more add nothing, or are not resident together; the measured efficiencies stand for so many


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel with a config and a schedule: the time the model gives it, or the reason it was refused."""

    kernel: Kernel
    config: Config
    schedule: Schedule | None
    seconds: float
    refusal: str | None
    unshared: str = ""  # why its tiles are whole, where Stream-K was asked for

    @property
    def shares_tiles(self) -> bool:
        return self.schedule is not None and self.schedule.shares_tiles

    def __str__(self) -> str:
        verdict = f"refused: {self.refusal}" if self.refusal else f"{self.seconds * 1e6:.1f} us predicted"
        shared = f", {self.schedule.kind}" if self.schedule and self.schedule.kind != "data-parallel" else ""
        return f"{self.kernel.name} ({self.config}{shared}): {verdict}"


def choose(
    problem: Problem, device: Device, kernel: Kernel | None = None, sharing: Sharing = PLANNED
) -> tuple[Candidate, tuple[Candidate, ...]]:
    """The best candidate, and all that were weighed. `kernel` narrows the choice to one registry row."""
    weighed = tuple(candidates(problem, device, (kernel,) if kernel else KERNELS, sharing))
    allowed = [candidate for candidate in weighed if candidate.refusal is None]
    if not allowed:
        who = f"kernel: {kernel.name} does not take" if kernel else "no kernel takes"
        way_out = "\n  Name another kernel, or leave it to the planner" if kernel else ""
        raise RefusalError(f"{who} {problem} on {device.name}:\n{reasons_of(weighed)}{way_out}")
    best = min(
        allowed,
        key=lambda candidate: candidate.seconds * (1.0 if candidate.kernel.kind == "production" else LESSON),
    )
    return next(each for each in allowed if as_good(each, best)), weighed


def as_good(candidate: Candidate, best: Candidate) -> bool:
    """As far as the model can tell, and of the same kernel, tiles shared or not. Large tiles come first in a
    kernel's list.
    """
    alike = candidate.kernel is best.kernel and (candidate.schedule is None) == (best.schedule is None)
    return candidate is best or (alike and candidate.seconds <= TIE * best.seconds)


def reasons_of(refused: Sequence[Candidate]) -> str:
    """Each reason once, with the kernels that gave it; those first that would be chosen."""
    by_reason: dict[str, dict[str, None]] = {}
    for candidate in sorted(refused, key=lambda each: each.kernel.kind != "production"):
        by_reason.setdefault(candidate.refusal or "", {})[candidate.kernel.name] = None
    return "\n".join(f"  {', '.join(names)}: {reason}" for reason, names in by_reason.items())


def candidates(
    problem: Problem, device: Device, kernels: tuple[Kernel, ...], sharing: Sharing = PLANNED
) -> list[Candidate]:
    return [
        weigh(problem, device, kernel, config, efficiency, sharing)
        for kernel in kernels
        for config, efficiency in kernel.configs_for(problem.math)
    ]


def as_computed(problem: Problem, config: Config) -> Problem:
    """As the kernel has it."""
    problem = exchanged(problem) if config.exchanged else problem
    return shifted(problem) if config.skewed else problem


@fact
def exchanged(problem: Problem) -> Problem:
    return problem.exchanged()


@fact
def shifted(problem: Problem) -> Problem:
    return replace(problem, skewed=True)


def weigh(
    problem: Problem, device: Device, kernel: Kernel, config: Config, efficiency: float, sharing: Sharing
) -> Candidate:
    problem = as_computed(problem, config)
    refusal = kernel.refuse(problem, config, device)
    if refusal is None and sharing.asked_for and not kernel.signature.scheduled:
        refusal = "each of its blocks computes whole tiles: it takes neither split_k nor a schedule"
    if refusal is not None:
        return Candidate(kernel, config, None, math.inf, refusal)
    efficiency *= left_of(problem, kernel, config)
    if kernel.schedules is not None:
        return weigh_schedules(problem, device, kernel, config, efficiency, sharing)
    schedule = None
    if kernel.signature.scheduled:
        try:
            tiles, rows = kernel.tile_grid(problem, config), kernel.sum_rows(config)
            costs = sharing_costs(problem, device, kernel, config, efficiency)
            per_sm = resident(kernel, config, problem, device)
            schedule = sharing.schedule_of(
                tiles, device.sms, per_sm, rows, costs, worth(problem), kernel.raster
            )
        except ArgumentError as error:  # right for other tiles, perhaps
            refusal = str(error)
    if schedule is not None and schedule.cluster > 1:
        refusal = refuse_cluster(kernel, config, problem, device)
    candidate = Candidate(
        kernel, config, schedule, predict(problem, device, kernel, config, efficiency, schedule), refusal
    )
    if schedule is None or refusal is not None or not sharing.open:
        return candidate
    shared = [
        Candidate(kernel, config, other, predict(problem, device, kernel, config, efficiency, other), None)
        for other in options(problem, device, kernel, config, costs)
    ]
    best = min(shared, key=lambda each: each.seconds, default=candidate)
    return best if best.seconds < worth(problem) * candidate.seconds else candidate


def left_of(problem: Problem, kernel: Kernel, config: Config) -> float:
    """The part of a kernel's efficiency that these lines leave it."""
    if inputs_on_16_bytes(problem):
        return kernel.turned(problem.math, config) if problem.layouts.startswith("cr") else 1.0
    left = kernel.unaligned(problem.math, config)
    words = kernel.signature.scheduled and least_alignment(problem) >= 4 > size_of(problem.dtype)
    return min(1.0, BY_WORDS * left) if words else left


def weigh_schedules(
    problem: Problem, device: Device, kernel: Kernel, config: Config, efficiency: float, sharing: Sharing
) -> Candidate:
    """The best of the kernel's own schedules."""
    assert kernel.schedules is not None
    try:
        found = list(
            kernel.schedules(
                kernel.tile_grid(problem, config), config, device, sharing, kernel.packs(problem)
            )
        )
    except ArgumentError as error:  # right for other tiles, perhaps
        return Candidate(kernel, config, None, math.inf, str(error))
    weighed = [
        Candidate(kernel, config, each, predict(problem, device, kernel, config, efficiency, each), None)
        for each in found
    ]
    best = min(weighed, key=lambda each: each.seconds / (kernel.worth if each.shares_tiles else 1.0))
    if sharing.schedule != "stream_k" or best.shares_tiles:
        return best
    return replace(best, unshared=why_whole(best, [each for each in weighed if each.shares_tiles]))


def why_whole(best: Candidate, shared: Sequence[Candidate]) -> str:
    if not shared:
        return "no tiles are left over full waves whose sharing would pay"
    seconds = min(each.seconds for each in shared)
    times = f"Stream-K is predicted to take {seconds * 1e6:.1f} us, whole tiles {best.seconds * 1e6:.1f} us"
    return (
        f"{times}: it must promise less than {best.kernel.worth:.0%} of that"
        if seconds < best.seconds
        else times
    )


def exactly(
    problem: Problem, device: Device, kernel: Kernel | None, config: Config, sharing: Sharing = PLANNED
) -> tuple[Candidate, tuple[Candidate, ...]]:
    """The caller's own choice, which must pass the same rules."""
    if kernel is None:
        raise ArgumentError(
            f"config: belongs to one kernel; got {config} and no kernel. Name it with kernel="
        )
    chosen = weigh(problem, device, kernel, config, kernel.efficiency_of(config, problem.math), sharing)
    if chosen.refusal is not None:
        raise RefusalError(
            f"config: {kernel.name} does not take {problem} on {device.name} with it:\n  {chosen}"
        )
    return chosen, (chosen,)


def predict(
    problem: Problem,
    device: Device,
    kernel: Kernel,
    config: Config,
    efficiency: float,
    schedule: Schedule | None = None,
) -> float:
    """Seconds: the larger of arithmetic (whole tiles on the busiest SM) and memory traffic, after the
    launch.
    """
    if kernel.model is not None:
        return LAUNCH_SECONDS + kernel.model(problem, config, device, schedule)
    arithmetic = computing(problem, device, kernel, config, efficiency, schedule) if problem.k else 0.0
    memory = traffic_bytes(problem) / (device.dram_gbps * 1e9 * DRAM_SHARE)
    return LAUNCH_SECONDS + max(arithmetic + beside(problem, device, kernel, config), memory)


def beside(problem: Problem, device: Device, kernel: Kernel, config: Config) -> float:
    """Seconds that the busiest SM spends on the ways in and out of its tiles."""
    first, aligned, by_element = BESIDE["fma" if kernel.unit == "fma" else "mma"]
    tiles = -(-kernel.tiles(problem, config) * math.prod(problem.batch) // device.sms)
    rounds = -(-tiles // resident(kernel, config, problem, device))
    stored = by_element if vector_width(problem.d, problem.out_dtype) == 1 else aligned
    return rounds * first + tiles * config.bm * config.bn * stored


def computing(
    problem: Problem,
    device: Device,
    kernel: Kernel,
    config: Config,
    efficiency: float,
    schedule: Schedule | None,
) -> float:
    """Seconds on the busiest SM; infinite where this chip's unit does not multiply in that math."""
    if not device.unit_limit(kernel.unit, problem.math):
        return math.inf
    if schedule is not None:
        costs = sharing_costs(problem, device, kernel, config, efficiency)
        handing = handing_on(schedule, kernel.tile_bytes(problem, config)) if schedule.sk_blocks else 0.0
        return (
            costs.computing(busiest(schedule, device.sms, resident(kernel, config, problem, device)))
            + handing
        )
    tiles = max(1, -(-kernel.tiles(problem, config) * math.prod(problem.batch) // device.sms))
    return (
        2.0
        * config.bm
        * config.bn
        * problem.k
        * tiles
        / sm_rate(problem, device, kernel, config, efficiency, tiles)
    )


def sm_rate(
    problem: Problem, device: Device, kernel: Kernel, config: Config, efficiency: float, blocks: int
) -> float:
    """Flops a second of an SM that computes so many blocks at once."""
    held = least_alignment(problem) < 4
    warps = min(FULL_WARPS, blocks * (config.threads - config.producers) / 32)
    hiding = latency_hidden(warps, config, held) / latency_hidden(FULL_WARPS, config, held)
    limit = device.unit_limit(kernel.unit, problem.math) * 1e12 * efficiency / device.sms
    return limit * (1.0 if kernel.persistent else hiding)


def sharing_costs(
    problem: Problem, device: Device, kernel: Kernel, config: Config, efficiency: float
) -> CostModel:
    """Of a block that is alone on an SM, and of as many as it holds."""
    most, step = resident(kernel, config, problem, device), 2.0 * config.bm * config.bn * config.bk
    rates = [sm_rate(problem, device, kernel, config, efficiency, blocks) for blocks in (1, most)]
    alone, full = (step * blocks / (rate or math.inf) for blocks, rate in zip((1, most), rates, strict=True))
    return costs_of(
        kernel.tile_bytes(problem, config), alone, (full - alone) / (most - 1) if most > 1 else alone
    )


def block_costs(problem: Problem, device: Device, kernel: Kernel, config: Config) -> tuple[int, CostModel]:
    """Blocks that an SM holds, and what sharing tiles costs them."""
    if kernel.block_costs is not None:
        return kernel.persistent, kernel.block_costs(problem, config, device)
    efficiency = kernel.efficiency_of(config, problem.math) * left_of(problem, kernel, config)
    return resident(kernel, config, problem, device), sharing_costs(
        problem, device, kernel, config, efficiency
    )


def latency_hidden(warps: float, config: Config, held: bool) -> float:
    """The share of an SM's best rate that its warps keep up, waiting for their own results in turn."""
    if config.by_warps:
        alone = (
            TENSOR_HELD * warps / (warps + HALF_RATE_WARPS) if held else TENSOR_ALONE + TENSOR_BY_WARP * warps
        )
        return min(1.0, alone)
    sums = warps * config.tm * config.tn
    return sums / (sums + HALF_RATE_SUMS)


def traffic_bytes(problem: Problem) -> float:
    """Each operand moved once: what no kernel can undercut."""
    batch = 1
    for extent in problem.batch:
        batch *= extent
    a, b, c, d = problem.element_bytes
    bytes_of_c = c if problem.c else 0
    return float(
        batch
        * (problem.m * problem.k * a + problem.k * problem.n * b + problem.m * problem.n * (bytes_of_c + d))
    )
