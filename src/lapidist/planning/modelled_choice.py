"""The candidate that the model of time takes for the fastest."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

from lapidist.device import Device
from lapidist.kernels.production import kernel_named
from lapidist.kernels.wgmma.tiles import tiles_of_triangle
from lapidist.planning.cost_table import Candidate, as_computed
from lapidist.planning.covering_sets import best_of_class
from lapidist.planning.planner import candidates, choose, weigh_one
from lapidist.problems.problem import Problem
from lapidist.schedule.sharing_choice import Sharing

WHOLE_TILES = Sharing(schedule="data_parallel")
WEIGHED = 24  # configs of a triangle that are weighed by their own number of tiles


def modelled_choice(problem: Problem, device: Device) -> Candidate:
    """The best candidate that sums k as the best binary of the problem's class does. Of a triangle, the best
    one that leaves out the other triangle's tiles, if that is faster than all tiles.
    """
    every = choose(problem, device, like=best_of_class(problem, device))
    half = of_triangle(problem, device) if problem.triangle else None
    return every if half is None or half.seconds >= every.seconds else half


def of_triangle(problem: Problem, device: Device) -> Candidate | None:
    """The best config of wgmma for one triangle's tiles, as fast as a product of half as many rows. Squares
    on the diagonal are whole, so each config has another number of tiles. None: none takes the problem.
    """
    wgmma = kernel_named("wgmma")
    half = with_rows(problem, -(-problem.m // 2))
    accepted = [c for c in candidates(half, device, (wgmma,), WHOLE_TILES) if c.refusal is None]
    best: Candidate | None = None
    for candidate in sorted(accepted, key=attrgetter("seconds"))[:WEIGHED]:
        config = candidate.config
        tiles = tiles_of_triangle(as_computed(problem, config), config)
        if tiles is None:
            continue
        columns = -(-problem.n // (config.bn * config.cluster_n))
        rows = -(-tiles // columns) * config.bm * config.cluster_m
        seconds = weigh_one(with_rows(problem, rows), device, wgmma, config, WHOLE_TILES).seconds
        if best is None or seconds < best.seconds:
            whole = weigh_one(problem, device, wgmma, config, WHOLE_TILES)
            best = replace(whole, seconds=seconds) if whole.refusal is None else best
    return best


def with_rows(problem: Problem, rows: int) -> Problem:
    """A product of so many of the rows, which is no triangle."""
    c = problem.c and replace(problem.c, rows=rows)
    a, d = replace(problem.a, rows=rows), replace(problem.d, rows=rows)
    return replace(problem, m=rows, a=a, d=d, c=c, triangle="")
