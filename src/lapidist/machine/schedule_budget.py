"""How many blocks of code a schedule may execute: of many warps a multiple of what they ran in step.

A schedule runs each warp alone, so it executes as many blocks as all warps together. A plain run counts them
first. Then a loop without end is found there, and what does end is not stopped."""

from __future__ import annotations

import math

from lapidist.launch import Launch
from lapidist.machine.run import Report

COUNTED_FROM = 128  # warps of a launch: the blocks of fewer are within any budget that fits their loops
OVER_COUNT = 4  # schedules execute more than the count: lanes part, and warps poll


def is_counted(launch: Launch) -> bool:
    """Whether a launch runs plainly before its schedules."""
    return warps_of(launch) > COUNTED_FROM


def schedule_budget(budget: int, plain: Report | None) -> int:
    """The budget of a schedule, behind the plain run of its launch, if that came to its end."""
    return budget if plain is None else max(budget, OVER_COUNT * plain.warp_steps)


def warps_of(launch: Launch) -> int:
    x, y, z = launch.block
    return math.prod(launch.grid) * -(-x * y * z // 32)
