"""Integer arithmetic of one lane."""

from __future__ import annotations

import numpy as np

from lapidist.machine.codegen import Builder, Mods, code_of, opcode, runtime
from lapidist.machine.faults import PtxError
from lapidist.machine.instructions.floats import FLOATS, float_operation
from lapidist.machine.instructions.packed import PAIRS, emit_pairs
from lapidist.machine.ptx.syntax_tree import TYPE_BYTES, Instruction, Operand

Array = np.ndarray

INTEGER_TEXT = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "xor": "{0} ^ {1}",
    "min": "np.minimum({0}, {1})",
    "max": "np.maximum({0}, {1})",
    "rem": "remainder({0}, {1})",
    "div": "quotient({0}, {1})",
    "neg": "-{0}",
    "abs": "np.abs({0})",
    "not": "~{0}",
    "cnot": "({0} == 0)",
}


@runtime
def quotient(a: Array, b: Array) -> Array:
    """Integer division towards zero; all ones where b is zero, as on the chip."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    signs = np.sign(a) * np.sign(safe)
    ratio = a // safe if a.dtype.kind == "u" else signs * (np.abs(a) // np.abs(safe))
    return np.where(
        b == 0, a.dtype.type(0) - a.dtype.type(1) if a.dtype.kind == "i" else ~a.dtype.type(0), ratio
    ).astype(a.dtype)


@runtime
def remainder(a: Array, b: Array) -> Array:
    """What integer division leaves, with the sign of a; all ones where b is zero, as on the chip."""
    difference = a - quotient(a, b) * b
    return difference if b.all() else np.where(b == 0, ~np.zeros(1, b.dtype), difference)


def integer_type(i: Instruction, mods: Mods) -> str:
    kind = mods.type()
    if kind[0] not in "bsu" or kind in FLOATS or kind in PAIRS:
        raise PtxError(f"{i.site}: needs a type of integers or bits, not .{kind}")
    return kind


@opcode("add", "sub", "mul", "div", "min", "max", "neg", "abs")
def emit_arithmetic(b: Builder, i: Instruction, mods: Mods) -> None:
    kind = next((name for name in mods.remaining if name in TYPE_BYTES), "")
    if kind in FLOATS:
        float_operation(b, i, mods, mods.type())
    elif kind in PAIRS or "relu" in mods.remaining:
        emit_pairs(b, i, mods, PAIRS.get(kind, "i4"))
    elif i.opcode == "mul":
        emit_multiply(b, i, mods)
    else:
        emit_integer(b, i, mods)


@opcode("and", "or", "xor", "not", "cnot", "rem")
def emit_integer(b: Builder, i: Instruction, mods: Mods) -> None:
    clamped = mods.flag("sat")
    kind = "pred" if "pred" in mods.remaining else integer_type(i, mods)
    mods.flag("pred")
    code = code_of(kind)
    # Wrap-around needs no sign; unsigned views spare a conversion.
    if i.opcode in ("add", "sub", "and", "or", "xor", "not") and not clamped and kind != "pred":
        code = "u" + code[1:]
    values = [b.read(operand, code) for operand in i.operands[1:]]
    text = INTEGER_TEXT[i.opcode].format(*values)
    if clamped:
        wide = [f"{value}.astype(i8)" for value in values]
        text = f"np.clip({INTEGER_TEXT[i.opcode].format(*wide)}, -0x80000000, 0x7FFFFFFF).astype(i4)"
    elif i.opcode == "cnot":
        text = f"{text}.astype({code})"
    b.assign(i.operands[0], text, code)


def widened(code: str) -> str:
    return code[0] + str(2 * int(code[1:]))


@runtime
def high_product(a: Array, b: Array) -> Array:
    """The upper half of the product."""
    size = a.dtype.itemsize
    if size < 8:
        wide = np.dtype(f"{a.dtype.kind}{2 * size}")
        return ((a.astype(wide) * b.astype(wide)) >> wide.type(8 * size)).astype(a.dtype)
    high = unsigned_high(a.view("u8"), b.view("u8"))
    if a.dtype.kind == "i":
        zero = np.uint64(0)
        high = high - np.where(a < 0, b.view("u8"), zero) - np.where(b < 0, a.view("u8"), zero)
    return high.view(a.dtype)


def unsigned_high(a: Array, b: Array) -> Array:
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    a0, a1, b0, b1 = a & mask, a >> half, b & mask, b >> half
    middle = a1 * b0 + ((a0 * b0) >> half)
    lower = (middle & mask) + a0 * b1
    return a1 * b1 + (middle >> half) + (lower >> half)


def product(b: Builder, part: str, kind: str, first: Operand, second: Operand) -> tuple[str, str]:
    """Expression and NumPy code of an integer product."""
    code = code_of(kind)
    if part == "lo":
        code = "u" + code[1:]
        return f"{b.read(first, code)} * {b.read(second, code)}", code
    x, y = b.read(first, code), b.read(second, code)
    if part == "hi":
        return f"high_product({x}, {y})", code
    wide = widened(code)
    return f"{x}.astype({wide}) * {y}.astype({wide})", wide


def emit_multiply(b: Builder, i: Instruction, mods: Mods) -> None:
    part = mods.choose("lo", "hi", "wide")
    text, code = product(b, part, integer_type(i, mods), i.operands[1], i.operands[2])
    b.assign(i.operands[0], text, code)


@opcode("mad")
def emit_mad(b: Builder, i: Instruction, mods: Mods) -> None:
    part, clamped = mods.choose("lo", "hi", "wide"), mods.flag("sat")
    text, code = product(b, part, integer_type(i, mods), i.operands[1], i.operands[2])
    b.assign(i.operands[0], total(i, text, b.read(i.operands[3], code), code, clamped), code)


def total(i: Instruction, first: str, second: str, code: str, clamped: bool) -> str:
    """A sum; with .sat the nearest value that the type has."""
    if clamped and code != "i4":
        raise PtxError(f"{i.site}: .sat is known for s32 alone")
    return f"clipped_sum({first}, {second})" if clamped else f"{first} + {second}"


@runtime
def clipped_sum(a: Array, b: Array) -> Array:
    return np.clip(a.astype("i8") + b, -0x80000000, 0x7FFFFFFF).astype("i4")


@runtime
def product24(a: Array, b: Array, kind: str, high: bool) -> Array:
    """32 of the 48 bits of a product of the lower 24 bits."""
    if kind == "i4":  # the 24th bit is the sign
        wide = (a << 8 >> 8).astype("i8") * (b << 8 >> 8).astype("i8")
    else:
        wide = (a & 0xFFFFFF).astype("u8") * (b & 0xFFFFFF).astype("u8")
    return (wide >> wide.dtype.type(16 * high)).astype(kind)


@opcode("mul24", "mad24")
def emit_24(b: Builder, i: Instruction, mods: Mods) -> None:
    part, clamped = mods.choose("lo", "hi"), mods.flag("sat")
    code = code_of(integer_type(i, mods))
    x, y, *added = (b.read(operand, code) for operand in i.operands[1:])
    text = f"product24({x}, {y}, {code!r}, {part == 'hi'})"
    b.assign(i.operands[0], total(i, text, added[0], code, clamped) if added else text, code)


@opcode("sad")
def emit_sad(b: Builder, i: Instruction, mods: Mods) -> None:
    code = code_of(integer_type(i, mods))
    x, y, z = (b.read(operand, code) for operand in i.operands[1:])
    b.assign(i.operands[0], f"{z} + np.where({x} < {y}, {y} - {x}, {x} - {y})", code)


@runtime
def dot4(a: Array, b: Array, c: Array, a_code: str, b_code: str) -> Array:
    """c plus the four bytes of a times those of b."""
    total = c.astype("i8")
    for place in range(4):
        shift = np.uint32(8 * place)
        total = total + (a >> shift).astype("u1").view(a_code).astype("i8") * (b >> shift).astype("u1").view(
            b_code
        ).astype("i8")
    return total.astype("u4")


@runtime
def dot2(a: Array, b: Array, c: Array, a_code: str, b_code: str, high: bool) -> Array:
    """c plus halves of a times the lower or the upper two bytes of b."""
    total = c.astype("i8")
    for place in range(2):
        half = (a >> np.uint32(16 * place)).astype("u2").view(a_code).astype("i8")
        octet = (b >> np.uint32(8 * place + 16 * high)).astype("u1").view(b_code).astype("i8")
        total = total + half * octet
    return total.astype("u4")


@opcode("dp2a")
def emit_dp2a(b: Builder, i: Instruction, mods: Mods) -> None:
    high = mods.choose("lo", "hi") == "hi"
    kinds = [mods.type(), mods.type()]
    a, c, d = (b.read(operand, "u4") for operand in i.operands[1:])
    signed = ["i" if kind == "s32" else "u" for kind in kinds]
    added = f"{d}.view({'i4' if 's32' in kinds else 'u4'})"
    b.assign(i.operands[0], f"dot2({a}, {c}, {added}, '{signed[0]}2', '{signed[1]}1', {high})", "u4")


@opcode("dp4a")
def emit_dp4a(b: Builder, i: Instruction, mods: Mods) -> None:
    kinds = [mods.type(), mods.type()]
    a, c, d = (b.read(operand, "u4") for operand in i.operands[1:])
    codes = ", ".join(repr(kind[0].replace("s", "i") + "1") for kind in kinds)
    b.assign(i.operands[0], f"dot4({a}, {c}, {d}.view({'i4' if 's32' in kinds else 'u4'}), {codes})", "u4")
