"""Registers of a thread by family, and shared memory of a block on Hopper: each number once, with its reason.

What a source needs of them is a constant of its config.cuh (Family.macros, Family.config_macros).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lapidist.device import H100

REGISTERS_OF_SM = H100.registers_per_sm
SHARED_OF_BLOCK = H100.shared_per_block  # bytes, with opt-in
# bytes, if two blocks share an SM; the chip takes 1 KB of each
SHARED_OF_TWO = H100.shared_per_sm // 2 - 1024
SWIZZLE_PERIOD = 1024  # bytes: TMA's swizzle repeats after them, so stages begin on multiples
STAGE_BARRIERS = 16  # bytes: a stage's barriers "full" and "empty"

# ---- kernels with a producer: setmaxnreg moves registers between whole warpgroups, in eights ----


class Shares(NamedTuple):
    """Registers of a thread that multiplies, and of one in the warpgroup that loads. Together at most those
    of an SM, or half of them if two blocks share it.
    """

    multiplies: int
    loads: int


SGEMM = Shares(240, 24)
# By the number of warpgroups that multiply. One alone could have more than the 255 that an instruction can
# name.
WGMMA = {1: Shares(224, 56), 2: Shares(240, 24), 3: Shares(160, 32)}
COPYING = Shares(224, 56)  # two warpgroups, and the producer copies factors along k
# Two warpgroups, and the producer finds the tiles of groups: with 24 registers it spilled 90 to 670 bytes,
# which it moved for each tile. Threads with more sums need more.
FINDING, MOST_SUMS_BESIDE_FINDING = Shares(224, 56), 128
GATHERING = {1: Shares(224, 72), 2: Shares(216, 72)}  # all its warps also hold indices of rows of A
# Two warpgroups, while the producer's warps pack. For tiles of 128 rows no registers move. For 256 rows a
# warp packs half as many pieces at a time.
PACKING_BESIDE = {128: Shares(168, 168), 256: Shares(208, 88)}
TWO_BLOCKS = Shares(200, 56)  # one warpgroup, in kernels that leave room for a block of the next launch

# ---- sums of a thread on wgmma; the compiler needs the other registers, or it spills ----

# Two warpgroups that share a tile, if TMA stores D and no operand passes through registers.
PLAIN_SUMS = 208
# In all other cases, ping-pong among them. With 208 sums, kernels that add C spill 52 to 64 bytes in tf32 and
# 8-bit types. Those whose threads store D spill 76 to 112. With three warpgroups a thread has 160 registers.
SUMS, SUMS_OF_THREE = 192, 96
# Promoted sums, a part's products, and a factor of each of its columns: of 224 registers, or of 160.
PROMOTED_SUMS, PROMOTED_SUMS_OF_THREE = 200, 136
# Sums of a part of k of groups, and those of the parts before it; the same beside a C, or indices of rows.
# With 192 they spilled 28 bytes, beside C 16 with 176, beside indices 28 with 160. Three warpgroups spilled
# 12 to 312.
SUMS_OF_PARTS, SUMS_OF_PARTS_BESIDE = 176, 144
# For each 64 rows of A that pass through registers: elements of two steps, and of the loads under way.
PASSING = 48
# For each 64 rows of A: registers that are neither sums nor held elements of D.
BESIDE_SUMS = 32
BESIDE_SCATTERED = 64  # the same, if rows of D are scattered: addresses, and pieces of their patches


def wgmma_registers(rows: Any) -> Any:
    """Registers of a thread that multiplies tiles of so many rows. Tiles of 64 rows have one warpgroup."""
    return np.where(rows > 64, WGMMA[2].multiplies, WGMMA[1].multiplies)


# ---- simt: the most registers that the assembler may use ----

MOST_REGISTERS = 255  # an instruction cannot name more


def simt_registers(of_thread: int, by_fours: bool, threads: int) -> int:
    """For a thread with so many sums in single precision. With this limit, the assembler keeps loads apart
    from their uses in place of saving registers. Single loads need more, for addresses, than loads of four or
    copies to shared memory.
    """
    small = of_thread <= 16
    if by_fours:
        return 128 if small or threads > 128 else 168
    if small:
        return 168 if threads > 64 else 208
    return MOST_REGISTERS


# ---- mma.sync, in double ----

FEW_DOUBLES = 32 * 16  # sums of a warp in the family's small tiles


def mma_registers(of_warp: int) -> int:
    """For a thread whose warp has so many sums of double. Half of the registers do not spill, and twice as
    many warps fit.
    """
    return 128 if 0 < of_warp <= FEW_DOUBLES else MOST_REGISTERS
