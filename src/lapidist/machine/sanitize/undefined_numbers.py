"""Arithmetic on numbers in floating point: what is followed passes from any operand to all of the result.

Most instructions of kernels that multiply are of this kind. They are followed in fewer steps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lapidist.machine.ptx.syntax_tree import TYPE_BYTES, Imm, Instruction, Reg
from lapidist.machine.sanitize.undefined_bits import width_mask

ARITHMETIC = frozenset(["fma", "add", "sub", "mul"])
NUMBERS = frozenset(["f32", "f64"])


class Arithmetic(NamedTuple):
    """Which registers an instruction reads, and which one it writes. `whole` are all bits of that."""

    sources: tuple[str, ...]
    target: str
    whole: np.uint64


def arithmetic_of(i: Instruction) -> Arithmetic | None:
    """What an instruction calculates with, if it does so for all lanes, and for each on its own."""
    kinds = [mod for mod in i.mods if mod in TYPE_BYTES]
    if i.opcode not in ARITHMETIC or i.predicate is not None or len(kinds) != 1 or kinds[0] not in NUMBERS:
        return None
    target, *sources = i.operands
    if not isinstance(target, Reg) or not all(isinstance(item, Reg | Imm) for item in sources):
        return None
    names = tuple(dict.fromkeys(item.name for item in sources if isinstance(item, Reg)))
    return Arithmetic(names, target.name, width_mask(8 * TYPE_BYTES[kinds[0]]))
