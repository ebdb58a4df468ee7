"""Problem and Device to Plan: candidates, refusals, cost, best."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lapidist.config import Config
from lapidist.device import Device
from lapidist.errors import ArgumentError, RefusalError
from lapidist.kernel import Kernel
from lapidist.kernels import KERNELS
from lapidist.problem import Problem
from lapidist.schedule import CostModel, Schedule
from lapidist.schedule.grid import most_peers
from lapidist.sharing import PLANNED, Sharing

LAUNCH_SECONDS = 3e-6  # from the call to the first instruction, as measured on an H200
# Latency hiding: an SM whose warps hold s independent sums a lane runs at s / (s + 54) of its best. Fitted to the SIMT family
# on an H200 with one to sixteen warps on an SM and thread tiles of 16, 32 and 64.
HALF_RATE_SUMS = 54
FULL_TENSOR_WARPS = 4  # one for each scheduler, with 64 x 64 sums in flight: a tensor core wants no more
FULL_WARPS = 16  # more add nothing, or are not resident together; the measured efficiencies stand for so many


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel with a config and a schedule: the time the model gives it, or the reason it was refused."""

    kernel: Kernel
    config: Config
    schedule: Schedule | None
    seconds: float
    refusal: str | None

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
        reasons = "\n".join(f"  {candidate}" for candidate in weighed)
        raise RefusalError(f"no kernel takes {problem} on {device.name}:\n{reasons}")
    return min(allowed, key=lambda candidate: candidate.seconds), weighed


def candidates(problem: Problem, device: Device, kernels: tuple[Kernel, ...], sharing: Sharing = PLANNED) -> list[Candidate]:
    return [
        weigh(problem, device, kernel, config, efficiency, sharing)
        for kernel in kernels
        for config, efficiency in kernel.configs_for(problem.math)
    ]


def weigh(problem: Problem, device: Device, kernel: Kernel, config: Config, efficiency: float, sharing: Sharing) -> Candidate:
    refusal = kernel.refuse(problem, config, device)
    if refusal is None and sharing.asked_for and not kernel.signature.scheduled:
        refusal = "each of its blocks computes whole tiles: it takes neither split_k nor a schedule"
    schedule = None
    if refusal is None and kernel.signature.scheduled:
        try:
            schedule = sharing.schedule_of(kernel.tile_grid(problem, config), device, kernel.sum_rows(config), kernel.sharing)
        except ArgumentError as error:  # right for other tiles, perhaps
            refusal = str(error)
    if schedule is not None and schedule.cluster > 1 and device.capability < (9, 0):
        refusal = f"reduction: 'cluster' needs compute capability 9.0; {device.name} has an older one. Take 'separate'"
    return Candidate(kernel, config, schedule, predict(problem, device, kernel, config, efficiency, schedule), refusal)


def exactly(
    problem: Problem, device: Device, kernel: Kernel | None, config: Config, sharing: Sharing = PLANNED
) -> tuple[Candidate, tuple[Candidate, ...]]:
    """The caller's own choice, which must pass the same rules."""
    if kernel is None:
        raise ArgumentError(f"config: belongs to one kernel; got {config} and no kernel. Name it with kernel=")
    chosen = weigh(problem, device, kernel, config, kernel.efficiency_of(config, problem.math), sharing)
    if chosen.refusal is not None:
        raise RefusalError(f"config: {kernel.name} does not take {problem} on {device.name} with it:\n  {chosen}")
    return chosen, (chosen,)


def predict(
    problem: Problem, device: Device, kernel: Kernel, config: Config, efficiency: float, schedule: Schedule | None = None
) -> float:
    """Seconds: the larger of arithmetic (whole tiles on the busiest SM) and memory traffic, after the launch."""
    if kernel.model is not None:
        return LAUNCH_SECONDS + kernel.model(problem, config, device)
    blocks = kernel.tiles(problem, config)
    for extent in problem.batch:
        blocks *= extent
    on_busiest_sm = float(-(-blocks // device.sms))
    if kernel.sharing is not None and schedule is not None and schedule.sk_blocks:
        on_busiest_sm = shared_evenly(schedule, kernel.sharing)
    flops = 2.0 * config.bm * config.bn * problem.k * on_busiest_sm
    warps = min(FULL_WARPS, on_busiest_sm * (config.threads - config.producers) / 32)
    hiding = latency_hidden(warps, config) / latency_hidden(FULL_WARPS, config)
    rate = device.unit_limit(kernel.unit, problem.math) * 1e12 * efficiency * (1.0 if kernel.persistent else hiding)
    if flops and not rate:
        return math.inf  # this chip's unit does not multiply in that math
    arithmetic = flops * device.sms / rate if flops else 0.0
    return LAUNCH_SECONDS + max(arithmetic, traffic_bytes(problem) / (device.dram_gbps * 1e9))


def shared_evenly(schedule: Schedule, costs: CostModel) -> float:
    """Tiles' worth of time on an SM, the handing on of partial sums included."""
    iterations = schedule.grid.iterations
    peers = most_peers(schedule.sk_tiles, schedule.sk_blocks, iterations)
    shared = costs.block(schedule.normal_iterations + (schedule.big_blocks > 0), peers)
    return -(-schedule.dp_tiles // schedule.wave) + shared / iterations


def latency_hidden(warps: float, config: Config) -> float:
    """The share of an SM's best rate that its warps keep up, waiting for their own results in turn."""
    if config.by_warps:
        return min(1.0, warps / FULL_TENSOR_WARPS)
    sums = warps * config.tm * config.tn
    return sums / (sums + HALF_RATE_SUMS)


def traffic_bytes(problem: Problem) -> float:
    """Each operand moved once: what no kernel can undercut."""
    batch = 1
    for extent in problem.batch:
        batch *= extent
    a, b, c, d = problem.element_bytes
    bytes_of_c = c if problem.c else 0
    return float(batch * (problem.m * problem.k * a + problem.k * problem.n * b + problem.m * problem.n * (bytes_of_c + d)))
