"""Pairs of 16-bit integers in a register, and minima and maxima that are zero where they would be negative:
what kernels of dynamic programming use. Differences of packed numbers: what kernels of images use."""

from __future__ import annotations

import numpy as np

from lapidist.machine.codegen import Builder, Mods, opcode, runtime
from lapidist.machine.faults import PtxError
from lapidist.machine.ptx.syntax_tree import Instruction

Array = np.ndarray
PAIRS = {"s16x2": "i2", "u16x2": "u2"}
FUNCTIONS = {"add": np.add, "min": np.minimum, "max": np.maximum}


@runtime
def pairwise(operation: str, a: Array, b: Array, code: str, relu: bool) -> Array:
    """An operation on integers of type `code`, one or two in an element."""
    a, b = (np.ascontiguousarray(operand) for operand in np.broadcast_arrays(a, b))
    result = FUNCTIONS[operation](a.view(code), b.view(code))
    return (np.maximum(result, result.dtype.type(0)) if relu else result).view(a.dtype)


def emit_pairs(b: Builder, i: Instruction, mods: Mods, code: str) -> None:
    mods.type()
    relu = mods.flag("relu")
    if i.opcode not in FUNCTIONS or (relu and (code[0] == "u" or i.opcode == "add")):
        raise PtxError(f"{i.site}: not known for this type")
    x, y = (b.read(operand, "u4") for operand in i.operands[1:])
    b.assign(i.operands[0], f"pairwise({i.opcode!r}, {x}, {y}, {code!r}, {relu})", "u4")


@runtime
def absolute_differences(a: Array, b: Array, c: Array, code: str, summed: bool) -> Array:
    """How far the packed numbers of type `code` lie apart: packed, or their sum and `c`."""
    a, b = (np.ascontiguousarray(operand) for operand in np.broadcast_arrays(a, b))
    parts = np.maximum(a.view(code), b.view(code)) - np.minimum(a.view(code), b.view(code))
    return parts.reshape(len(a), -1).sum(axis=1, dtype="u4") + c if summed else parts.view(a.dtype)


@opcode("vabsdiff2", "vabsdiff4")
def emit_absolute_differences(b: Builder, i: Instruction, mods: Mods) -> None:
    """The video instructions that CUDA's own headers use, by __vabsdiffu4 and __vsadu2, on any chip."""
    if {mods.type() for _ in range(3)} != {"u32"}:
        raise PtxError(f"{i.site}: is known for .u32 alone. Take the numbers apart, and use abs and sub")
    summed = mods.flag("add")
    x, y, z = (b.read(operand, "u4") for operand in i.operands[1:])
    code = "u2" if i.opcode == "vabsdiff2" else "u1"
    b.assign(i.operands[0], f"absolute_differences({x}, {y}, {z}, {code!r}, {summed})", "u4")
