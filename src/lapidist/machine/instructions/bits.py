"""Bits of integers: shifts, fields, counts, truth tables, and bytes chosen among eight."""

from __future__ import annotations

import numpy as np

from lapidist.machine.codegen import Builder, Mods, code_of, opcode, runtime
from lapidist.machine.faults import PtxError
from lapidist.machine.instructions.alu import integer_type
from lapidist.machine.ptx.signatures import require_signature
from lapidist.machine.ptx.syntax_tree import Imm, Instruction, Pair

Array = np.ndarray


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
    field = shifted(value.view(unsigned), start, bits, right=True)
    mask = shifted(np.array([~unsigned.type(0)]), bits - np.minimum(length, bits), bits, right=True)
    field = field & mask
    if value.dtype.kind == "u":
        return field
    top = np.minimum(start + length - 1, bits - 1)
    negative = (shifted(value.view(unsigned), np.maximum(top, 0), bits, right=True) & unsigned.type(1)) == 1
    # Bits past the value's own top are copies of its sign.
    return (
        np.where(negative & (length > 0), field | ~keep_below(mask, start, bits), field)
        .astype(unsigned)
        .view(value.dtype)
    )


def keep_below(mask: Array, start: Array, bits: int) -> Array:
    """The bits of the field that come from the value itself."""
    full = np.array([~mask.dtype.type(0)])
    return mask & shifted(full, start, bits, right=True)


def shifted(value: Array, by: Array, bits: int, right: bool) -> Array:
    by = np.clip(by, 0, bits).astype(value.dtype)
    return value >> by if right else value << by


@runtime
def bit_insert(field: Array, into: Array, start: Array, length: Array) -> Array:
    """bfi: `into` with the field put at `start`."""
    bits, unsigned = 8 * field.dtype.itemsize, field.dtype
    start, length = (start & np.uint32(255)).astype("i8"), (length & np.uint32(255)).astype("i8")
    low_bits = shifted(np.array([~unsigned.type(0)]), bits - np.minimum(length, bits), bits, right=True)
    mask = shifted(low_bits, start, bits, right=False)
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
    bits_below = value.copy()
    while bits_below.any():
        bits -= (bits_below != 0).astype("u4")
        bits_below = bits_below >> bits_below.dtype.type(1)
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
    """bmsk: `length` ones from bit `start` on. Clamped, numbers above 31 reach to the top or leave no
    ones; else only their lower five bits count."""
    first, last = start & np.uint32(31), (start & np.uint32(31)) + (length & np.uint32(31))
    over = (clamped & (length > 31)) | (last > 31)
    full = np.uint64(0xFFFFFFFF)
    below = np.where(over, np.uint64(0), full << np.minimum(last, 63).astype("u8"))
    above = np.where(clamped & (start > 31), np.uint64(0), full << first.astype("u8"))
    return (above & ~below & full).astype("u4")


@runtime
def extended(value: Array, length: Array, clamped: bool) -> Array:
    """szext: the lower `length` bits, with their sign where the type has one. Clamped, lengths above 31
    keep all bits; else only their lower five bits count."""
    bits = (length & np.uint32(31)).astype("u8")
    bits = np.where(clamped & (length > 31), np.uint64(32), bits)
    away = np.uint64(64) - np.maximum(bits, 1)
    wide = (value.view("u4").astype("u8") << away).view(f"{value.dtype.kind}8") >> away.view(
        f"{value.dtype.kind}8"
    )
    return np.where(bits == 0, 0, wide).astype(value.dtype)


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
    require_signature(i, "esssns" if joined else "esssn")
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
    word, sign = b.new(), {"and": "&", "or": "|"}[joined]
    b.line(f"{word} = {text}")
    other = b.once(("joined", b.index), b.read(i.operands[5], "b1"), "c")
    b.assign(target.first, word, "u4")
    b.assign(target.second, f"({word} != 0) {sign} {other}", "b1")


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
    """fns: the position of the set bit that is `offset` set bits away from `base`; all ones without one."""
    bits = (mask[:, None] >> np.arange(32, dtype="u4") & 1).astype(bool)
    place, count = np.arange(32), offset.astype("i8")[:, None]
    ahead = np.where(count >= 0, place >= base[:, None], place <= base[:, None])
    eligible = bits & np.where(count == 0, place == base[:, None], ahead)
    rank = np.where(count < 0, np.cumsum(eligible[:, ::-1], 1)[:, ::-1], np.cumsum(eligible, 1))
    chosen = eligible & (rank == np.maximum(np.abs(count), 1))
    return np.where(chosen.any(1), chosen.argmax(1), 0xFFFFFFFF).astype("u4")


@opcode("fns")
def emit_nth_set(b: Builder, i: Instruction, mods: Mods) -> None:
    mods.type()
    mask, base, offset = (
        b.read(operand, code) for operand, code in zip(i.operands[1:], ("u4", "u4", "i4"), strict=True)
    )
    b.assign(i.operands[0], f"nth_set({mask}, {base}, {offset})", "u4")
