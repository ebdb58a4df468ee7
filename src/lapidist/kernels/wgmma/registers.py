"""What a config gives the threads of a wgmma kernel: their registers, and who packs beside the products."""

from __future__ import annotations

from lapidist.config import Config
from lapidist.kernels.budgets import (
    BESIDE_SCATTERED,
    BESIDE_SUMS,
    COPYING,
    FINDING,
    GATHERING,
    MOST_SUMS_BESIDE_FINDING,
    PACKING_BESIDE,
    TWO_BLOCKS,
    WGMMA,
    Shares,
)
from lapidist.kernels.wgmma.epilogue_time import AT_ONCE, IN_PIECES
from lapidist.kernels.wgmma.packing import FIRST_STEPS, PANELS_FROM, packs_alongside
from lapidist.kernels.wgmma.shared import leaves_room
from lapidist.kernels.wgmma.tiles import columns_of_part, loaders, sums_of_thread, warpgroups
from lapidist.problems.problem import Problem


def register_shares(problem: Problem, config: Config, beside: bool) -> Shares:
    """Registers of a thread that multiplies, and of one that loads. `beside`: idle warps pack meanwhile."""
    if beside:
        return PACKING_BESIDE[config.bm]
    groups, modes = warpgroups(config), problem.modes
    if modes.gather_a:
        return GATHERING[groups]
    if groups == 2 and (problem.scaling.a.along_k or problem.scaling.b.along_k):
        return COPYING
    if groups == 2 and modes.ragged is not None and sums_of_thread(config) <= MOST_SUMS_BESIDE_FINDING:
        return FINDING
    return TWO_BLOCKS if leaves_room(problem, config) else WGMMA.get(groups, WGMMA[2])


def config_macros(problem: Problem, config: Config, scheduled: bool) -> dict[str, object]:
    beside = not scheduled and bool(packs_alongside(problem, config))
    shares = register_shares(problem, config, beside)
    return {
        "GROUPS": warpgroups(config),
        "RESIDENT": 2 if leaves_room(problem, config) else 1,
        "PACKS_BESIDE": int(beside),
        "LOADERS": int(loaders(problem, config)),
        "REGISTERS": shares.multiplies,
        "REGISTERS_LEFT": shares.loads,
        "BESIDE_SUMS": BESIDE_SCATTERED if problem.modes.scatter_rows else BESIDE_SUMS,
        "LEAST_IN_PANELS": PANELS_FROM,
        "EIGHTHS": int(8 * FIRST_STEPS),
        "SUMS_AT_ONCE": AT_ONCE,
        "SUMS_IN_PIECES": IN_PIECES,
        "PART_COLS": int(columns_of_part(config, problem) if problem.scaling.promoted else config.bn),
    }
