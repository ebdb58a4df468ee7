"""Pairs of 16-bit integers in a register, and minima and maxima that are zero where they would be negative:
what kernels of dynamic programming use."""

from __future__ import annotations

import numpy as np

from lapidist.machine.codegen import Builder, Mods, runtime
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
