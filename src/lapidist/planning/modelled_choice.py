"""The candidate that the model of time takes for the fastest."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import prod
from operator import attrgetter

from lapidist.config import Config
from lapidist.device import Device
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.production import every_kernel, kernel_named
from lapidist.kernels.wgmma.config_list import for_triangles
from lapidist.kernels.wgmma.tiles import tiles_of_triangle
from lapidist.planning.cost_table import Candidate, as_computed
from lapidist.planning.covering_sets import best_of_class
from lapidist.planning.mirror_pass import seconds_to_mirror
from lapidist.planning.planner import candidates, choose, weigh_one
from lapidist.problems.problem import BOTH, COPIED, Problem
from lapidist.schedule.sharing_choice import Sharing

WHOLE_TILES = Sharing(schedule="data_parallel")
LEAST_USES = 120  # 128 x 256 in clusters of two have 128, 192 x 192 alone have 96
LEAST_USES_ON_CUDA_CORES, FEW_TILES = 20, 2  # 32 x 32 have 16; tiles of an SM that the L2 feeds nevertheless
WEIGHED = 24  # configs of a triangle that are weighed by their own number of tiles


def modelled_choice(problem: Problem, device: Device) -> Candidate:
    """The best candidate that sums k as the best binary of the problem's class does. Of a triangle, the best
    one that leaves out the other triangle's tiles, if that is faster than all tiles.
    """
    if problem.triangle:
        return of_triangle(problem, device)
    return choose(problem, device, like=best_of_class(problem, device))


def of_triangle(problem: Problem, device: Device) -> Candidate:
    """The best candidate, with the mirror pass behind those that do not store both halves. Kernels that
    read a schedule count the tiles that they leave out.
    """
    like = best_of_class(problem, device)  # which cuts k for a product of all tiles
    walks = like is not None and like.kernel.family.walks_triangles
    every = by_larger_tiles(problem, device) if walks else choose(problem, device, like=like)
    every = replace(
        every,
        seconds=every.seconds
        + mirroring_seconds(as_computed(problem, every.config), every.kernel, every.config),
    )
    half = by_wgmma(problem, device)
    return every if half is None or half.seconds >= every.seconds else half


def by_larger_tiles(problem: Problem, device: Device) -> Candidate:
    """The best candidate, without tiles that load much where an SM has several of them: on an H200 1024^3 in
    float32 took 46 us with 32 x 32, for which the model promised 33, and 36 with 64 x 64.
    """
    accepted = [
        candidate
        for candidate in candidates(problem, device, walking_kernels())
        if candidate.refusal is None and not loads_much(problem, device, candidate)
    ]
    best = min(accepted, key=attrgetter("seconds"), default=None)
    return choose(problem, device) if best is None else best


@cache
def walking_kernels() -> tuple[Kernel, ...]:
    return tuple(kernel for kernel in every_kernel() if kernel.family.walks_triangles)


def loads_much(problem: Problem, device: Device, candidate: Candidate) -> bool:
    tiles = candidate.kernel.tile_grid(problem, candidate.config).tiles
    few_uses = uses_of_a_load(candidate.config) < LEAST_USES_ON_CUDA_CORES
    return candidate.kernel.unit == "fma" and few_uses and tiles > FEW_TILES * device.sms


def mirroring_seconds(problem: Problem, kernel: Kernel, config: Config) -> float:
    """Seconds of the pass that makes the other half of D, if the kernel does not store it."""
    if problem.triangle not in (BOTH, COPIED) or "BOTH_HALVES" in kernel.macros(problem, config):
        return 0.0
    return seconds_to_mirror(problem.m * problem.n * prod(problem.batch), problem.out_dtype)


def by_wgmma(problem: Problem, device: Device) -> Candidate | None:
    """The best config of wgmma for one triangle's tiles, as fast as a product of half as many rows. Squares
    on the diagonal are whole, so each config has another number of tiles. None: none takes the problem.
    """
    wgmma = kernel_named("wgmma")
    half = with_rows(problem, -(-problem.m // 2))
    best: Candidate | None = None
    for config, factor in for_triangles(problem.math) or listed_for_triangles(half, device):
        computed = as_computed(problem, config)
        tiles = tiles_of_triangle(computed, config)
        if not tiles or weigh_one(half, device, wgmma, config, WHOLE_TILES).refusal is not None:
            continue
        columns = -(-problem.n // (config.bn * config.cluster_n)) * prod(problem.batch)
        rows = -(-tiles // columns) * config.bm * config.cluster_m  # of each matrix
        seconds = weigh_one(with_rows(problem, rows), device, wgmma, config, WHOLE_TILES).seconds * factor
        seconds += mirroring_seconds(computed, wgmma, config)
        if best is None or seconds < best.seconds:
            whole = weigh_one(problem, device, wgmma, config, WHOLE_TILES)
            best = replace(whole, seconds=seconds) if whole.refusal is None else best
    return best


def listed_for_triangles(half: Problem, device: Device) -> list[tuple[Config, float]]:
    """Of types without configs of their own. Tiles that load much are left out, as the L2 limits some that
    the model takes for the fastest: on an H200 4096^3 in bfloat16 took 150 us with 192 x 192, and 135 with
    128 x 256 in pairs.
    """
    every = candidates(half, device, (kernel_named("wgmma"),), WHOLE_TILES)
    accepted = [candidate for candidate in every if candidate.refusal is None]
    fastest = sorted(accepted, key=attrgetter("seconds"))[:WEIGHED]
    configs = [candidate.config for candidate in fastest]
    return [(config, 1.0) for config in configs if uses_of_a_load(config) >= LEAST_USES]


def uses_of_a_load(config: Config) -> float:
    """Elements of a tile for each element of A and B that a block loads for a step of k, but for what other
    blocks of its cluster load for it.
    """
    return config.bm * config.bn / (config.bm / config.cluster_n + config.bn / config.cluster_m)


def with_rows(problem: Problem, rows: int) -> Problem:
    """A product of so many of the rows, which is no triangle."""
    c = problem.c and replace(problem.c, rows=rows)
    a, d = replace(problem.a, rows=rows), replace(problem.d, rows=rows)
    return replace(problem, m=rows, a=a, d=d, c=c, triangle="")
