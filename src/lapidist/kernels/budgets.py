"""What a thread has of registers, by family, and a block of Hopper of shared memory: each number once, with
its reason.

The sources have copies of their own, so that they compile by themselves. tests/kernels/test_budgets.py holds
these against the numbers here."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lapidist.device import H100

REGISTERS_OF_SM = H100.registers_per_sm
SHARED_OF_BLOCK = H100.shared_per_block  # bytes, with opt-in
SHARED_OF_TWO = H100.shared_per_sm // 2 - 1024  # that share an SM, each of which takes 1 KB besides
SWIZZLE_PERIOD = 1024  # bytes: TMA's swizzle counts its rows from a multiple of it, so stages begin there
STAGE_BARRIERS = 16  # bytes: a stage's full and empty

# ---- kernels with a producer: registers move between whole warpgroups (setmaxnreg), in eights ----


class Shares(NamedTuple):
    """Of a thread that multiplies, and of one of the warpgroup that loads. Together no more than an SM has,
    or half of it where two blocks share one."""

    multiplies: int
    loads: int


SGEMM = Shares(240, 24)
# Of wgmma, by the warpgroups that multiply. One alone could have more than an instruction can name.
WGMMA = {1: Shares(224, 56), 2: Shares(240, 24), 3: Shares(160, 32)}
BRINGING_FACTORS = Shares(224, 56)  # two warpgroups, where those that load bring factors along k, too
# Two warpgroups, and warps that pack beside them: in tiles of 128 rows none moves. Beside tiles of 256 rows a
# warp packs half as many pieces at a time.
PACKING_BESIDE = {128: Shares(168, 168), 256: Shares(208, 88)}
TWO_BLOCKS = Shares(200, 56)  # one warpgroup, where the next launch's block finds room beside it

# ---- sums of a thread on wgmma; the compiler wants the others, or it spills ----

# Two warpgroups side by side, where TMA stores D and nothing else passes through registers.
PLAIN_SUMS = 208
# Else. In ping-pong, too: with 208, kernels that add C spill 52 to 64 bytes in tf32 and 8-bit types, those
# whose threads store D 76 to 112 in all. With three warpgroups a thread has 160 registers.
SUMS, SUMS_OF_THREE = 192, 96
# Promoted sums, a part's products beside them, and a factor of each of its columns: of 224 registers or 160.
PROMOTED_SUMS, PROMOTED_SUMS_OF_THREE = 200, 136
# For 64 rows of A that pass through them: elements of a step and of the one before, and on their way.
PASSING = 48
# For 64 rows of A: all that are neither sums nor elements of D that wait.
BESIDE_SUMS = 32


def wgmma_registers(rows: Any) -> Any:
    """Of a thread that multiplies tiles of so many rows: of 64, one warpgroup does."""
    return np.where(rows > 64, WGMMA[2].multiplies, WGMMA[1].multiplies)


# ---- simt: the most that the assembler may take ----

MOST_REGISTERS = 255  # that an instruction can name


def simt_registers(of_thread: int, by_fours: bool, threads: int) -> int:
    """Of a thread with so many sums, in single precision. Said to the assembler, it keeps loads apart from
    their uses in place of saving registers. Loads one by one take them for addresses, loads of four and
    copies to shared memory do not.
    """
    small = of_thread <= 16
    if by_fours:
        return 128 if small else 168
    if small:
        return 168 if threads > 64 else 208
    return MOST_REGISTERS


# ---- mma.sync, in double ----

FEW_DOUBLES = 32 * 16  # sums of a warp: one of a row of tiles of 64 x 32 has so many


def mma_registers(of_warp: int) -> int:
    """Of a thread whose warp has so many sums of double. With half of what there is they do not spill, and
    twice as many warps find room."""
    return 128 if 0 < of_warp <= FEW_DOUBLES else MOST_REGISTERS
