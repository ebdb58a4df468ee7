"""Integer arithmetic and bit fields of one lane."""

from __future__ import annotations

import numpy as np

from lapidist.machine.codegen import Builder, Mods, code_of, opcode, runtime
from lapidist.machine.faults import PtxError
from lapidist.machine.instructions.floats import FLOATS, float_operation
from lapidist.machine.instructions.packed import PAIRS, emit_pairs
from lapidist.machine.ptx.syntax_tree import TYPE_BYTES, Imm, Instruction, Operand, Pair

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
    """Integer division towards zero; by zero gives all ones, as the chip does."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    signs = np.sign(a) * np.sign(safe)
    found = a // safe if a.dtype.kind == "u" else signs * (np.abs(a) // np.abs(safe))
    return np.where(
        b == 0, a.dtype.type(0) - a.dtype.type(1) if a.dtype.kind == "i" else ~a.dtype.type(0), found
    ).astype(a.dtype)


@runtime
def remainder(a: Array, b: Array) -> Array:
    """The sign of a; by zero gives all ones, as the chip does."""
    left = a - quotient(a, b) * b
    return left if b.all() else np.where(b == 0, ~np.zeros(1, b.dtype), left)


def integer_type(i: Instruction, mods: Mods) -> str:
    kind = mods.type()
    if kind[0] not in "bsu" or kind in FLOATS or kind in PAIRS:
        raise PtxError(f"{i.site}: needs a type of integers or bits, not .{kind}")
    return kind


@opcode("add", "sub", "mul", "div", "min", "max", "neg", "abs")
def emit_arithmetic(b: Builder, i: Instruction, mods: Mods) -> None:
    kind = next((name for name in mods.rest if name in TYPE_BYTES), "")
    if kind in FLOATS:
        float_operation(b, i, mods, mods.type())
    elif kind in PAIRS or "relu" in mods.rest:
        emit_pairs(b, i, mods, PAIRS.get(kind, "i4"))
    elif i.opcode == "mul":
        emit_multiply(b, i, mods)
    else:
        emit_integer(b, i, mods)


@opcode("and", "or", "xor", "not", "cnot", "rem")
def emit_integer(b: Builder, i: Instruction, mods: Mods) -> None:
    clamped = mods.flag("sat")
    kind = "pred" if "pred" in mods.rest else integer_type(i, mods)
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
    """Upper half of the product."""
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


@opcode("shl", "shr")
def emit_shift(b: Builder, i: Instruction, mods: Mods) -> None:
    """Amounts beyond the width give zeros (or signs), which NumPy does too."""
    code = code_of(integer_type(i, mods))
    if i.opcode == "shl":
        code = "u" + code[1:]
    amount = i.operands[2]
    if isinstance(amount, Imm):
        by = b.program.constant(np.array([min(amount.value % (1 << 32), 64)], code))
    else:
        by = f"{b.read(amount, 'u4')}.astype({code})" if code != "u4" else b.read(amount, "u4")
        by = f"np.minimum({b.read(amount, 'u4')}, 64).astype({code})" if code[1:] in ("1", "2") else by
    operator = "<<" if i.opcode == "shl" else ">>"
    b.assign(i.operands[0], f"{b.read(i.operands[1], code)} {operator} {by}", code)


@opcode("shf")
def emit_funnel(b: Builder, i: Instruction, mods: Mods) -> None:
    direction, mode = mods.choose("l", "r"), mods.choose("wrap", "clamp")
    mods.type()
    low, high, amount = (b.read(operand, "u4") for operand in i.operands[1:])
    by = f"({amount} & 31)" if mode == "wrap" else f"np.minimum({amount}, 32)"
    both = f"(({high}.astype(u8) << 32) | {low})"
    text = f"(({both} << {by}) >> 32)" if direction == "l" else f"({both} >> {by})"
    b.assign(i.operands[0], f"{text}.astype(u4)", "u4")


@runtime
def bit_field(value: Array, start: Array, length: Array) -> Array:
    """bfe: the field, extended by its top bit if signed."""
    bits = 8 * value.dtype.itemsize
    unsigned = np.dtype(f"u{value.dtype.itemsize}")
    start, length = (start & np.uint32(255)).astype("i8"), (length & np.uint32(255)).astype("i8")
    found = shifted(value.view(unsigned), start, bits, right=True)
    mask = shifted(np.array([~unsigned.type(0)]), bits - np.minimum(length, bits), bits, right=True)
    found = found & mask
    if value.dtype.kind == "u":
        return found
    top = np.minimum(start + length - 1, bits - 1)
    negative = (shifted(value.view(unsigned), np.maximum(top, 0), bits, right=True) & unsigned.type(1)) == 1
    # Bits past the value's own top are copies of its sign.
    return (
        np.where(negative & (length > 0), found | ~keep_below(mask, start, bits), found)
        .astype(unsigned)
        .view(value.dtype)
    )


def keep_below(mask: Array, start: Array, bits: int) -> Array:
    """The bits of the field that really come from the value."""
    full = np.array([~mask.dtype.type(0)])
    return mask & shifted(full, start, bits, right=True)


def shifted(value: Array, by: Array, bits: int, right: bool) -> Array:
    by = np.clip(by, 0, bits).astype(value.dtype)
    return value >> by if right else value << by


@runtime
def bit_insert(field: Array, into: Array, start: Array, length: Array) -> Array:
    bits, unsigned = 8 * field.dtype.itemsize, field.dtype
    start, length = (start & np.uint32(255)).astype("i8"), (length & np.uint32(255)).astype("i8")
    ones = shifted(np.array([~unsigned.type(0)]), bits - np.minimum(length, bits), bits, right=True)
    mask = shifted(ones, start, bits, right=False)
    return (into & ~mask) | (shifted(field, start, bits, right=False) & mask)


@opcode("bfe", "bfi")
def emit_bit_field(b: Builder, i: Instruction, mods: Mods) -> None:
    code = code_of(integer_type(i, mods))
    values = [b.read(operand, code) for operand in i.operands[1:-2]]
    where = [b.read(operand, "u4") for operand in i.operands[-2:]]
    function = "bit_field" if i.opcode == "bfe" else "bit_insert"
    b.assign(i.operands[0], f"{function}({', '.join(values + where)})", code)


@runtime
def reverse_bits(value: Array) -> Array:
    octets = value.view("u1").reshape(value.shape[0], -1)
    reversed_bits = np.packbits(
        np.unpackbits(octets, axis=1, bitorder="little")[:, ::-1], axis=1, bitorder="little"
    )
    return np.ascontiguousarray(reversed_bits).view(value.dtype).reshape(-1)


@runtime
def leading_zeros(value: Array) -> Array:
    """Zero bits above the highest one."""
    bits = np.full(value.shape, 8 * value.dtype.itemsize, "u4")
    rest = value.copy()
    while rest.any():
        bits -= (rest != 0).astype("u4")
        rest = rest >> rest.dtype.type(1)
    return bits


@opcode("brev", "clz", "popc")
def emit_bit_count(b: Builder, i: Instruction, mods: Mods) -> None:
    code = "u" + code_of(integer_type(i, mods))[1:]
    function = {"brev": "reverse_bits", "clz": "leading_zeros", "popc": "np.bitwise_count"}[i.opcode]
    text = f"{function}({b.read(i.operands[1], code)})"
    b.assign(
        i.operands[0],
        text if i.opcode == "brev" else f"{text}.astype(u4)",
        code if i.opcode == "brev" else "u4",
    )


@runtime
def bit_mask(start: Array, length: Array, clamped: bool) -> Array:
    """Ones from a position on; none, or none behind it, where one of the two has more than five bits."""
    first, last = start & np.uint32(31), (start & np.uint32(31)) + (length & np.uint32(31))
    over = (clamped & (length > 31)) | (last > 31)
    ones = np.uint64(0xFFFFFFFF)
    below = np.where(over, np.uint64(0), ones << np.minimum(last, 63).astype("u8"))
    above = np.where(clamped & (start > 31), np.uint64(0), ones << first.astype("u8"))
    return (above & ~below & ones).astype("u4")


@runtime
def extended(value: Array, length: Array, clamped: bool) -> Array:
    """The lower bits, with their sign where the value has one; of 32 bits all, or none."""
    kept = (length & np.uint32(31)).astype("u8")
    kept = np.where(clamped & (length > 31), np.uint64(32), kept)
    away = np.uint64(64) - np.maximum(kept, 1)
    wide = (value.view("u4").astype("u8") << away).view(f"{value.dtype.kind}8") >> away.view(
        f"{value.dtype.kind}8"
    )
    return np.where(kept == 0, 0, wide).astype(value.dtype)


@opcode("bmsk", "szext")
def emit_bits_kept(b: Builder, i: Instruction, mods: Mods) -> None:
    clamped = mods.choose("clamp", "wrap") == "clamp"
    code = code_of(integer_type(i, mods))
    first, second = b.read(i.operands[1], code), b.read(i.operands[2], "u4")
    function = "bit_mask" if i.opcode == "bmsk" else "extended"
    b.assign(i.operands[0], f"{function}({first}, {second}, {clamped})", code)


@opcode("bfind")
def emit_bfind(b: Builder, i: Instruction, mods: Mods) -> None:
    amount = mods.flag("shiftamt")
    code = code_of(integer_type(i, mods))
    value = b.read(i.operands[1], code)
    if code[0] == "i":
        value = f"np.where({value} < 0, ~{value}, {value}).view(u{code[1:]})"
    top = 8 * int(code[1:]) - 1
    zeros = f"leading_zeros({value})"
    text = f"np.where({zeros} > {top}, 0xFFFFFFFF, {zeros if amount else f'{top} - {zeros}'}).astype(u4)"
    b.assign(i.operands[0], text, "u4")


@opcode("lop3")
def emit_lop3(b: Builder, i: Instruction, mods: Mods) -> None:
    mods.type()
    joined = mods.choose("and", "or", default="")
    table, target = i.operands[4], i.operands[0]
    if not isinstance(table, Imm) or isinstance(target, Pair) != bool(joined):
        raise PtxError(f"{i.site}: lop3 needs an immediate table; d|p and .and or .or belong together")
    a, c, d = (b.read(operand, "u4") for operand in i.operands[1:4])
    terms = []
    for row in range(8):
        if table.value >> row & 1:
            factors = [value if row >> bit & 1 else f"~{value}" for value, bit in ((a, 2), (c, 1), (d, 0))]
            terms.append("(" + " & ".join(factors) + ")")
    text = " | ".join(terms) or "np.zeros(1, u4)"
    if not isinstance(target, Pair):
        b.assign(target, text, "u4")
        return
    found, sign = b.new(), {"and": "&", "or": "|"}[joined]
    b.line(f"{found} = {text}")
    other = b.once(("joined", b.index), b.read(i.operands[5], "b1"), "c")
    b.assign(target.first, found, "u4")
    b.assign(target.second, f"({found} != 0) {sign} {other}", "b1")


@runtime
def permute(a: Array, b: Array, selector: Array) -> Array:
    """prmt: four bytes chosen among eight; bit 3 of a choice copies the sign over the byte."""
    both = a.astype("u8") | (b.astype("u8") << np.uint64(32))
    result = np.zeros(1, "u4")
    for place in range(4):
        choice = (selector >> np.uint32(4 * place)) & np.uint32(15)
        octet = ((both >> ((choice & np.uint32(7)).astype("u8") * np.uint64(8))) & np.uint64(255)).astype(
            "u4"
        )
        octet = np.where(
            choice & np.uint32(8), np.where(octet & np.uint32(128), np.uint32(255), np.uint32(0)), octet
        )
        result = result | (octet << np.uint32(8 * place))
    return result.astype("u4")


# Which bytes each mode takes for a selector of 0, 1, 2 and 3: a digit for each, the highest first.
PERMUTED = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}


@opcode("prmt")
def emit_prmt(b: Builder, i: Instruction, mods: Mods) -> None:
    mods.type()
    mode = mods.choose(*PERMUTED, default="")
    a, c, selector = (b.read(operand, "u4") for operand in i.operands[1:])
    if mode:
        selector = f"{b.program.constant(np.array(PERMUTED[mode], 'u4'))}[{selector} & 3]"
    b.assign(i.operands[0], f"permute({a}, {c}, {selector})", "u4")


@runtime
def nth_set(mask: Array, base: Array, offset: Array) -> Array:
    """fns: the place of the set bit that is so many set bits away from a place, all ones without one."""
    bits = (mask[:, None] >> np.arange(32, dtype="u4") & 1).astype(bool)
    place, count = np.arange(32), offset.astype("i8")[:, None]
    ahead = np.where(count >= 0, place >= base[:, None], place <= base[:, None])
    here = bits & np.where(count == 0, place == base[:, None], ahead)
    rank = np.where(count < 0, np.cumsum(here[:, ::-1], 1)[:, ::-1], np.cumsum(here, 1))
    found = here & (rank == np.maximum(np.abs(count), 1))
    return np.where(found.any(1), found.argmax(1), 0xFFFFFFFF).astype("u4")


@opcode("fns")
def emit_nth_set(b: Builder, i: Instruction, mods: Mods) -> None:
    mods.type()
    mask, base, offset = (
        b.read(operand, code) for operand, code in zip(i.operands[1:], ("u4", "u4", "i4"), strict=True)
    )
    b.assign(i.operands[0], f"nth_set({mask}, {base}, {offset})", "u4")


@runtime
def dot4(a: Array, b: Array, c: Array, a_code: str, b_code: str) -> Array:
    total = c.astype("i8")
    for place in range(4):
        shift = np.uint32(8 * place)
        total = total + (a >> shift).astype("u1").view(a_code).astype("i8") * (b >> shift).astype("u1").view(
            b_code
        ).astype("i8")
    return total.astype("u4")


@runtime
def dot2(a: Array, b: Array, c: Array, a_code: str, b_code: str, high: bool) -> Array:
    """Halves of a by the lower or the upper two bytes of b."""
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
