"""Arithmetic with the carry flag: sums and differences of numbers that take several registers. The parser
makes the flag an operand: the second destination where it is left, the last source where it is taken."""

from __future__ import annotations

import numpy as np

from lapidist.machine.codegen import Builder, Mods, opcode, runtime
from lapidist.machine.instructions.alu import integer_type, product
from lapidist.machine.ptx.syntax_tree import Instruction, Operand, Pair

Array = np.ndarray


@runtime
def carried_sum(a: Array, b: Array, carry: Array) -> tuple[Array, Array]:
    """The sum of unsigned numbers and a carry, and whether it overflows."""
    total = a + b
    with_carry = total + carry
    return with_carry, (total < a) | (with_carry < total)


@runtime
def borrowed_difference(a: Array, b: Array, borrow: Array) -> tuple[Array, Array]:
    """The difference of unsigned numbers less a borrow, and whether it is below zero."""
    difference = a - b
    return difference - borrow, (a < b) | (difference < borrow)


def unsigned(b: Builder, operand: Operand, kind: str) -> tuple[str, str]:
    code = f"u{int(kind[1:]) // 8}"
    return b.read(operand, code), code


def carry_in(b: Builder, carry: tuple[Operand, ...], code: str) -> str:
    """The carry flag as a number; zero where the instruction takes none."""
    return f"{b.read(carry[0], 'b1')}.astype({code})" if carry else f"np.zeros(1, {code})"


def leave(b: Builder, i: Instruction, mods: Mods, text: str, code: str) -> None:
    """Write a result to the destination, and its carry to the flag where the instruction has one."""
    mods.flag("cc")
    both, target = b.new(), i.operands[0]
    b.line(f"{both} = {text}")
    if isinstance(target, Pair):
        b.assign(target.first, f"{both}[0]", code)
        b.assign(target.second, f"{both}[1]", "b1")
    else:
        b.assign(target, f"{both}[0]", code)


@opcode("add.cc", "addc", "sub.cc", "subc")
def emit_carry(b: Builder, i: Instruction, mods: Mods) -> None:
    kind = integer_type(i, mods)
    (x, code), (y, _) = (unsigned(b, operand, kind) for operand in i.operands[1:3])
    function = "carried_sum" if i.opcode.startswith("add") else "borrowed_difference"
    leave(b, i, mods, f"{function}({x}, {y}, {carry_in(b, i.operands[3:], code)})", code)


@opcode("mad.lo.cc", "mad.hi.cc", "madc.lo", "madc.hi")
def emit_mad_carry(b: Builder, i: Instruction, mods: Mods) -> None:
    part = "lo" if "lo" in i.mods else "hi"
    kind = integer_type(i, mods)
    text, signed = product(b, part, kind, i.operands[1], i.operands[2])
    added, code = unsigned(b, i.operands[3], kind)
    factor = text if signed == code else f"({text}).view({code})"
    leave(b, i, mods, f"carried_sum({factor}, {added}, {carry_in(b, i.operands[4:], code)})", code)
