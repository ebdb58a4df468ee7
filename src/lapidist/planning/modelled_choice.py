"""The candidate that the model of time takes for the fastest."""

from __future__ import annotations

from dataclasses import replace

from lapidist.device import Device
from lapidist.planning.cost_table import Candidate
from lapidist.planning.covering_sets import best_of_class
from lapidist.planning.planner import choose, weigh_one
from lapidist.problems.problem import Problem
from lapidist.schedule.sharing_choice import Sharing


def modelled_choice(problem: Problem, device: Device) -> Candidate:
    """The best candidate that sums k as the best binary of the problem's class does."""
    best = of_triangle(problem, device) if problem.triangle else None
    return best or choose(problem, device, like=best_of_class(problem, device))


def of_triangle(problem: Problem, device: Device) -> Candidate | None:
    """The choice for half as many rows, which have as many tiles, if its tiles are whole: wgmma leaves out
    those of the other triangle then. None: all tiles are computed.
    """
    c, rows = problem.c, -(-problem.m // 2)
    a, d = replace(problem.a, rows=rows), replace(problem.d, rows=rows)
    half = replace(problem, m=rows, a=a, d=d, c=c and replace(c, rows=rows), triangle="")
    of_half = choose(half, device, like=best_of_class(half, device))
    if of_half.kernel.name != "wgmma" or of_half.shares_tiles:
        return None
    whole_tiles = Sharing(schedule="data_parallel")
    best = weigh_one(problem, device, of_half.kernel, of_half.config, whole_tiles)
    return best if best.refusal is None else None
