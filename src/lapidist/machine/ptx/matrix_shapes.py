"""Sizes of the matrix instructions, read off their modifiers."""

from __future__ import annotations

import re

from lapidist.machine.ptx.syntax_tree import Instruction, Vec

WARPS_OF_WGMMA = 4


def matrix_shape(i: Instruction) -> tuple[int, int, int] | None:
    """(m, n, k) of a wmma, mma or wgmma instruction."""
    for mod in i.mods:
        if match := re.fullmatch(r"m(\d+)n(\d+)k(\d+)", mod):
            m, n, k = (int(extent) for extent in match.groups())
            return m, n, k
    return None


def is_sparse(i: Instruction) -> bool:
    """Whether A is stored by half, with metadata."""
    return not {"sp", "sp::ordered_metadata"}.isdisjoint(i.mods)


def tensor_flops(i: Instruction) -> int:
    """Operations of one warp (a wgmma is shared by four); those with a sparse A's zeros count."""
    shape = matrix_shape(i)
    multiplies = (
        i.opcode == "mma"
        or (i.opcode == "wmma" and "mma" in i.mods)
        or (i.opcode == "wgmma" and "mma_async" in i.mods)
    )
    if shape is None or not multiplies:
        return 0
    m, n, k = shape
    return 2 * m * n * k // (WARPS_OF_WGMMA if i.opcode == "wgmma" else 1)


def shared_operand_bytes(i: Instruction) -> int:
    """Bytes that one warp's part of a wgmma reads from shared memory: 32 bytes along k of each column of B
    (64 beside a sparse A), and of each row of A if that does not come from registers."""
    shape = matrix_shape(i)
    if shape is None or i.opcode != "wgmma" or "mma_async" not in i.mods:
        return 0
    m, n, _ = shape
    columns = 2 * n if is_sparse(i) else n
    return 32 * (columns if isinstance(i.operands[1], Vec) else m + columns) // WARPS_OF_WGMMA
