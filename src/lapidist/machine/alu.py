"""Arithmetic of one lane: integer, float, half, conversions, comparisons, bit fields.

fp32 fma is computed in float64: the product is exact there, the sum is rounded twice, which differs from the chip only
when the float64 sum lands exactly between two floats after its own rounding (not once in 20 million random triples).
"""

from __future__ import annotations

import numpy as np

from lapidist.machine.codegen import Builder, Mods, code_of, opcode, runtime
from lapidist.machine.faults import PtxError
from lapidist.machine.parse import TYPE_BYTES, Imm, Instruction, Operand, Pair, Vec

Array = np.ndarray
runtime(np.where)
FLOATS = ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2")
ROUNDINGS = ("rn", "rz", "rm", "rp", "rna")

# ---- half precision: values are computed as float32 and rounded once ----


@runtime
def from_bf16(bits: Array) -> Array:
    return (bits.astype("u4") << np.uint32(16)).view("f4")


@runtime
def to_bf16(value: Array) -> Array:
    """float32 or float64 to bf16 bits, to nearest even; NaN becomes the canonical one."""
    single = value.astype("f4") if value.dtype == np.float32 else to_odd(value)
    bits = single.view("u4")
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(single), np.uint32(0x7FFF), rounded).astype("u2")


def to_odd(value: Array) -> Array:
    """float64 to float32, inexact results to the neighbour with an odd last bit: a later rounding is then exact."""
    single = value.astype("f4")
    bits = single.view("u4")
    wide = single.astype("f8")
    inexact = (wide != value) & np.isfinite(wide) & ((bits & np.uint32(1)) == 0)
    outward = np.abs(wide) < np.abs(value)
    return np.where(inexact, np.where(outward, bits + np.uint32(1), bits - np.uint32(1)), bits).view("f4")


@runtime
def to_f16(value: Array) -> Array:
    """To f16 bits, to nearest even; NaN becomes the canonical one."""
    half = value.astype("f2").view("u2")
    return np.where(np.isnan(value), np.uint16(0x7FFF), half) if np.isnan(value).any() else half


@runtime
def from_f16(bits: Array) -> Array:
    return bits.view("f2").astype("f4")


@runtime
def flush(value: Array) -> Array:
    """.ftz: subnormal floats become zeros of their sign."""
    small = np.abs(value) < np.float32(1.1754943508222875e-38)
    return np.where(small, np.copysign(np.float32(0), value), value)


@runtime
def saturate(value: Array) -> Array:
    return np.where(np.isnan(value), value.dtype.type(0), np.clip(value, 0, 1)).astype(value.dtype)


@runtime
def fused(a: Array, b: Array, c: Array, code: np.dtype) -> Array:
    """a * b + c of float64 values that are exact products, rounded to `code`."""
    total = a * b
    if total.shape[0] >= c.shape[0]:
        total += c
    else:
        total = total + c
    return total.astype(code)


SPLITTER = 134217729.0  # 2**27 + 1: halves a float64 significand


@runtime
def fused64(a: Array, b: Array, c: Array) -> Array:
    """Fused float64: the errors of product and sum are computed exactly and added back, with one more rounding."""
    product = a * b
    total = product + c
    scaled_a, scaled_b = a * SPLITTER, b * SPLITTER
    a_high, b_high = scaled_a - (scaled_a - a), scaled_b - (scaled_b - b)
    a_low, b_low = a - a_high, b - b_high
    product_error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    back = total - product
    total_error = (product - (total - back)) + (c - back)
    fixed = total + (total_error + product_error)
    return np.where(np.isfinite(fixed), fixed, total)


# ---- floats: one emitter for all types ----


def operands_as_float(b: Builder, kind: str, operands: tuple[Operand, ...], wide: bool = False) -> list[list[str]]:
    """Each operand as float expressions: one for a scalar type, (low, high) for a packed one."""
    return [lanes_of(b, kind, operand, wide) for operand in operands]


def lanes_of(b: Builder, kind: str, operand: Operand, wide: bool) -> list[str]:
    if kind in ("f32", "f64"):
        code = "f4" if kind == "f32" else "f8"
        if wide and kind == "f32":
            return [b.once(("double", *b.version(operand)), f"{b.read(operand, code)}.astype(f8)", "d")]
        return [b.read(operand, code)]
    convert = "from_bf16" if kind.startswith("bf16") else "from_f16"
    if kind.endswith("x2"):
        whole = b.read(operand, "u4")
        key = ("halves", convert, *b.version(operand))
        low = b.once((*key, 0), f"{convert}({whole}.astype(u2))", "h")
        high = b.once((*key, 1), f"{convert}(({whole} >> 16).astype(u2))", "h")
        return [low, high]
    return [b.once(("halves", convert, *b.version(operand)), f"{convert}({half_bits(b, operand, kind)})", "h")]


def half_bits(b: Builder, operand: Operand, kind: str) -> str:
    """A half operand's bits; a float literal is rounded."""
    if isinstance(operand, Imm) and operand.kind != "int":
        return f"to_{'bf16' if kind == 'bf16' else 'f16'}({b.read(operand, 'f4' if operand.kind == 'f32' else 'f8')})"
    return b.read(operand, "u2")


def assign_float(b: Builder, operand: Operand, kind: str, parts: list[str]) -> None:
    if kind in ("f32", "f64"):
        b.assign(operand, parts[0], "f4" if kind == "f32" else "f8")
        return
    convert = "to_bf16" if kind.startswith("bf16") else "to_f16"
    if kind.endswith("x2"):
        low, high = (f"{convert}({part}).astype(u4)" for part in parts)
        b.assign(operand, f"({low} | ({high} << 16))", "u4")
    else:
        b.assign(operand, f"{convert}({parts[0]})", "u2")


@runtime
def least(a: Array, b: Array) -> Array:
    """min of floats: a number wins over NaN, -0 over +0."""
    return np.where((a == 0) & (b == 0) & np.signbit(a), a, np.fmin(a, b))


@runtime
def greatest(a: Array, b: Array) -> Array:
    return np.where((a == 0) & (b == 0) & ~np.signbit(a), a, np.fmax(a, b))


FLOAT_TEXT = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "min": "least({0}, {1})",
    "max": "greatest({0}, {1})",
    "neg": "-{0}",
    "abs": "np.abs({0})",
    "rcp": "1 / {0}",
    "sqrt": "np.sqrt({0})",
    "rsqrt": "1 / np.sqrt({0})",
    "ex2": "np.exp2({0})",
    "lg2": "np.log2({0})",
    "sin": "np.sin({0})",
    "cos": "np.cos({0})",
    "tanh": "np.tanh({0})",
    "copysign": "np.copysign({1}, {0})",
}


def float_operation(b: Builder, i: Instruction, mods: Mods, kind: str) -> None:
    """An operation that is the same for all float types, up to where it is rounded."""
    check_rounding(i, mods)
    flushed, clamped, nan = mods.flag("ftz"), mods.flag("sat"), mods.flag("NaN")
    mods.flag("approx", "full", "noftz", "xorsign")
    values = operands_as_float(b, kind, i.operands[1:])
    if flushed and kind == "f32":
        values = [[f"flush({part})" for part in parts] for parts in values]
    text = FLOAT_TEXT[i.opcode]
    if nan:
        text = {"min": "np.minimum({0}, {1})", "max": "np.maximum({0}, {1})"}[i.opcode]
    results = [text.format(*parts) for parts in zip(*values, strict=True)]
    assign_float(b, i.operands[0], kind, finish_float(results, flushed and kind == "f32", clamped))


def check_rounding(i: Instruction, mods: Mods) -> None:
    if mods.choose("rn", "rz", "rm", "rp", default="rn") != "rn":
        raise PtxError(f"{i.site}: only rounding to nearest even is known for this opcode")


def finish_float(results: list[str], flushed: bool, clamped: bool) -> list[str]:
    results = [f"flush({text})" for text in results] if flushed else results
    return [f"saturate({text})" for text in results] if clamped else results


@opcode("fma", "mad.rn", "mad.f32", "mad.f64")
def emit_fma(b: Builder, i: Instruction, mods: Mods) -> None:
    if i.opcode == "mad":
        mods = Mods(i, tuple(m for m in i.mods))
    check_rounding(i, mods)
    flushed, clamped, relu = mods.flag("ftz"), mods.flag("sat"), mods.flag("relu")
    kind = mods.type()
    if kind == "f64":
        a, c, d = (b.read(operand, "f8") for operand in i.operands[1:])
        b.assign(i.operands[0], f"fused64({a}, {c}, {d})", "f8")
        return
    wide = operands_as_float(b, kind, i.operands[1:3], wide=True)
    third = lanes_of(b, kind, i.operands[3], wide=False)
    code = "f4" if kind == "f32" else "f8"
    if kind != "f32":
        wide = [[f"{part}.astype(f8)" for part in parts] for parts in wide]
    results = [f"fused({x}, {y}, {z}, {code})" for x, y, z in zip(*wide, third, strict=True)]
    results = finish_float(results, flushed and kind == "f32", clamped)
    results = [f"greatest({text}, np.zeros(1, {code}))" for text in results] if relu else results
    assign_float(b, i.operands[0], kind, results)


@opcode("ex2", "lg2", "sin", "cos", "tanh", "rcp", "sqrt", "rsqrt", "copysign")
def emit_function(b: Builder, i: Instruction, mods: Mods) -> None:
    float_operation(b, i, mods, mods.type())


@opcode("testp")
def emit_testp(b: Builder, i: Instruction, mods: Mods) -> None:
    test = mods.choose("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    value = b.read(i.operands[1], code_of(mods.type()))
    tiny = f"np.finfo({value}.dtype).tiny"
    text = {
        "finite": f"np.isfinite({value})",
        "infinite": f"np.isinf({value})",
        "number": f"~np.isnan({value})",
        "notanumber": f"np.isnan({value})",
        "normal": f"np.isfinite({value}) & (np.abs({value}) >= {tiny})",
        "subnormal": f"(np.abs({value}) < {tiny}) & ({value} != 0)",
    }[test]
    b.assign(i.operands[0], text, "b1")


# ---- integers ----

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
    if a.dtype.kind == "u":
        found = a // safe
    else:
        found = np.sign(a) * np.sign(safe) * (np.abs(a) // np.abs(safe))
    return np.where(b == 0, a.dtype.type(0) - a.dtype.type(1) if a.dtype.kind == "i" else ~a.dtype.type(0), found).astype(a.dtype)


@runtime
def remainder(a: Array, b: Array) -> Array:
    return a - quotient(a, b) * b if b.all() else np.where(b == 0, a, a - quotient(a, b) * b)


@opcode("add", "sub", "mul", "div", "min", "max", "neg", "abs")
def emit_arithmetic(b: Builder, i: Instruction, mods: Mods) -> None:
    kind = next((name for name in mods.rest if name in TYPE_BYTES), "")
    if kind in FLOATS:
        float_operation(b, i, mods, mods.type())
    elif i.opcode == "mul":
        emit_multiply(b, i, mods)
    else:
        emit_integer(b, i, mods)


@opcode("and", "or", "xor", "not", "cnot", "rem")
def emit_integer(b: Builder, i: Instruction, mods: Mods) -> None:
    clamped = mods.flag("sat")
    kind = mods.type()
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
    text, code = product(b, part, mods.type(), i.operands[1], i.operands[2])
    b.assign(i.operands[0], text, code)


@opcode("mad")
def emit_mad(b: Builder, i: Instruction, mods: Mods) -> None:
    part = mods.choose("lo", "hi", "wide")
    text, code = product(b, part, mods.type(), i.operands[1], i.operands[2])
    b.assign(i.operands[0], f"{text} + {b.read(i.operands[3], code)}", code)


@opcode("mul24", "mad24")
def emit_24(b: Builder, i: Instruction, mods: Mods) -> None:
    raise PtxError(f"{i.site}: 24-bit multiplication is not supported; no compiler for sm_80 and up emits it")


@opcode("sad")
def emit_sad(b: Builder, i: Instruction, mods: Mods) -> None:
    code = code_of(mods.type())
    x, y, z = (b.read(operand, code) for operand in i.operands[1:])
    b.assign(i.operands[0], f"{z} + np.where({x} < {y}, {y} - {x}, {x} - {y})", code)


@opcode("shl", "shr")
def emit_shift(b: Builder, i: Instruction, mods: Mods) -> None:
    """Amounts beyond the width give zeros (or signs), which NumPy does too."""
    code = code_of(mods.type())
    if i.opcode == "shl":
        code = "u" + code[1:]
    amount = i.operands[2]
    if isinstance(amount, Imm):
        by = b.program.constant(np.array([min(amount.value, 64)], code))
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
    return np.where(negative & (length > 0), found | ~keep_below(mask, start, bits), found).astype(unsigned).view(value.dtype)


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
    code = code_of(mods.type())
    values = [b.read(operand, code) for operand in i.operands[1:-2]]
    where = [b.read(operand, "u4") for operand in i.operands[-2:]]
    function = "bit_field" if i.opcode == "bfe" else "bit_insert"
    b.assign(i.operands[0], f"{function}({', '.join(values + where)})", code)


@runtime
def reverse_bits(value: Array) -> Array:
    octets = value.view("u1").reshape(value.shape[0], -1)
    turned = np.packbits(np.unpackbits(octets, axis=1, bitorder="little")[:, ::-1], axis=1, bitorder="little")
    return np.ascontiguousarray(turned).view(value.dtype).reshape(-1)


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
    code = "u" + code_of(mods.type())[1:]
    function = {"brev": "reverse_bits", "clz": "leading_zeros", "popc": "np.bitwise_count"}[i.opcode]
    text = f"{function}({b.read(i.operands[1], code)})"
    b.assign(i.operands[0], text if i.opcode == "brev" else f"{text}.astype(u4)", code if i.opcode == "brev" else "u4")


@opcode("bfind")
def emit_bfind(b: Builder, i: Instruction, mods: Mods) -> None:
    amount = mods.flag("shiftamt")
    code = code_of(mods.type())
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
    table = i.operands[4]
    if not isinstance(table, Imm) or mods.rest:
        raise PtxError(f"{i.site}: lop3 needs an immediate table and no boolean operation")
    a, c, d = (b.read(operand, "u4") for operand in i.operands[1:4])
    terms = []
    for row in range(8):
        if table.value >> row & 1:
            factors = [value if row >> bit & 1 else f"~{value}" for value, bit in ((a, 2), (c, 1), (d, 0))]
            terms.append("(" + " & ".join(factors) + ")")
    b.assign(i.operands[0], " | ".join(terms) or "np.zeros(1, u4)", "u4")


@runtime
def permute(a: Array, b: Array, selector: Array) -> Array:
    """prmt: four bytes chosen among eight; bit 3 of a choice copies the sign over the byte."""
    both = a.astype("u8") | (b.astype("u8") << np.uint64(32))
    result = np.zeros(1, "u4")
    for place in range(4):
        choice = (selector >> np.uint32(4 * place)) & np.uint32(15)
        octet = ((both >> ((choice & np.uint32(7)).astype("u8") * np.uint64(8))) & np.uint64(255)).astype("u4")
        octet = np.where(choice & np.uint32(8), np.where(octet & np.uint32(128), np.uint32(255), np.uint32(0)), octet)
        result = result | (octet << np.uint32(8 * place))
    return result.astype("u4")


@opcode("prmt")
def emit_prmt(b: Builder, i: Instruction, mods: Mods) -> None:
    mods.type()
    a, c, selector = (b.read(operand, "u4") for operand in i.operands[1:])
    b.assign(i.operands[0], f"permute({a}, {c}, {selector})", "u4")


@runtime
def dot4(a: Array, b: Array, c: Array, a_code: str, b_code: str) -> Array:
    total = c.astype("i8")
    for place in range(4):
        shift = np.uint32(8 * place)
        total = total + (a >> shift).astype("u1").view(a_code).astype("i8") * (b >> shift).astype("u1").view(b_code).astype("i8")
    return total.astype("u4")


@opcode("dp4a")
def emit_dp4a(b: Builder, i: Instruction, mods: Mods) -> None:
    kinds = [mods.type(), mods.type()]
    a, c, d = (b.read(operand, "u4") for operand in i.operands[1:])
    codes = ", ".join(repr(kind[0].replace("s", "i") + "1") for kind in kinds)
    b.assign(i.operands[0], f"dot4({a}, {c}, {d}.view({'i4' if 's32' in kinds else 'u4'}), {codes})", "u4")


# ---- moves, choices, comparisons ----


@runtime
def pack_parts(code: np.dtype, *parts: Array) -> Array:
    """Parts side by side in a wider value, the first lowest."""
    size = max(part.shape[0] for part in parts)
    out = np.empty((size, len(parts)), parts[0].dtype)
    for number, part in enumerate(parts):
        out[:, number] = part
    return out.reshape(-1).view(code)


@runtime
def unpack_parts(whole: Array, code: np.dtype) -> Array:
    return np.ascontiguousarray(whole.view(code).reshape(whole.shape[0], -1).T)


@opcode("mov")
def emit_mov(b: Builder, i: Instruction, mods: Mods) -> None:
    code = code_of(mods.type())
    source, destination = i.operands[1], i.operands[0]
    if isinstance(source, Vec) and isinstance(destination, Vec):
        for one, other in zip(destination.items, source.items, strict=True):
            b.assign(one, b.read(other, code), code)
        return
    # Bits move as they are: a mov.b32 may join two kinds of register.
    b.assign(destination, b.read(source, code), code)


@opcode("selp")
def emit_selp(b: Builder, i: Instruction, mods: Mods) -> None:
    code = code_of(mods.type())
    x, y = b.read(i.operands[1], code), b.read(i.operands[2], code)
    b.assign(i.operands[0], f"np.where({b.read(i.operands[3], 'b1')}, {x}, {y})", code)


@opcode("slct")
def emit_slct(b: Builder, i: Instruction, mods: Mods) -> None:
    mods.flag("ftz")
    code, chooser = code_of(mods.type()), code_of(mods.type())
    x, y = b.read(i.operands[1], code), b.read(i.operands[2], code)
    b.assign(i.operands[0], f"np.where({b.read(i.operands[3], chooser)} >= 0, {x}, {y})", code)


COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
UNORDERED = {"equ": "==", "neu": "!=", "ltu": "<", "leu": "<=", "gtu": ">", "geu": ">="}


def comparison(b: Builder, i: Instruction, mods: Mods, operands: tuple[Operand, ...]) -> list[str]:
    """The comparison as boolean expressions, one a packed part."""
    name = mods.choose(*COMPARISONS, *UNORDERED, "num", "nan")
    flushed = mods.flag("ftz")
    kind = mods.type()
    if kind in FLOATS:
        pairs = zip(*operands_as_float(b, kind, operands[:2]), strict=True)
        if flushed:
            pairs = ((f"flush({x})", f"flush({y})") for x, y in pairs)
        return [float_comparison(name, x, y) for x, y in pairs]
    x, y = (b.read(operand, code_of(kind)) for operand in operands[:2])
    return [f"({x} {COMPARISONS[name]} {y})"]


def float_comparison(name: str, x: str, y: str) -> str:
    nan = f"(np.isnan({x}) | np.isnan({y}))"
    if name in ("num", "nan"):
        return nan if name == "nan" else f"~{nan}"
    if name == "ne":
        return f"(({x} != {y}) & ~{nan})"
    if name in UNORDERED:
        return f"(({x} {UNORDERED[name]} {y}) | {nan})"
    return f"({x} {COMPARISONS[name]} {y})"


@opcode("setp")
def emit_setp(b: Builder, i: Instruction, mods: Mods) -> None:
    combine = mods.choose("and", "or", "xor", default="")
    found = [b.once(("compare", b.index, n), text, "c") for n, text in enumerate(comparison(b, i, mods, i.operands[1:]))]
    outcomes = [found[0], found[1] if len(found) > 1 else f"~{found[0]}"]
    if combine:
        other = b.once(("combine", b.index), b.read(i.operands[3], "b1"), "c")
        sign = {"and": "&", "or": "|", "xor": "^"}[combine]
        outcomes = [f"({text} {sign} {other})" for text in outcomes]
    targets = (i.operands[0].first, i.operands[0].second) if isinstance(i.operands[0], Pair) else (i.operands[0],)
    for target, text in zip(targets, outcomes, strict=False):
        b.assign(target, text, "b1")


@opcode("set")
def emit_set(b: Builder, i: Instruction, mods: Mods) -> None:
    kinds = [name for name in mods.rest if name in TYPE_BYTES]
    mods.rest.remove(kinds[0])
    found = comparison(b, i, mods, i.operands[1:])
    if kinds[0] in FLOATS:
        assign_float(b, i.operands[0], kinds[0], [f"{text}.astype(f4)" for text in found])
    elif len(found) == 1:
        b.assign(i.operands[0], f"np.where({found[0]}, 0xFFFFFFFF, 0).astype(u4)", "u4")
    else:
        raise PtxError(f"{i.site}: a packed set into an integer is not known")


# ---- conversions ----


@runtime
def to_integer(value: Array, rounding: str, code: str) -> Array:
    """Float to integer, clamped to the range; NaN is 0, or the smallest integer where 64 bits are involved."""
    rounded = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[rounding](value).astype("f8")
    limits = np.iinfo(code)
    small, large = rounded < float(limits.min), rounded >= float(limits.max) + (limits.bits < 64)
    inside = np.where(small | large | np.isnan(rounded), 0.0, rounded).astype(code)
    result = np.where(small, limits.min, np.where(large, limits.max, inside)).astype(code)
    nan = 0 if limits.bits < 64 and value.dtype != np.float64 else 1 << 63
    return np.where(np.isnan(rounded), np.array([nan], "u8").view("i8" if limits.min else "u8").astype(code), result)


@runtime
def to_tf32(value: Array, rounding: str) -> Array:
    """float32 to 19 significant bits: away from zero on ties (rna), to even (rn) or truncated (rz)."""
    bits = value.view("u4")
    half = {"rna": np.uint32(0x1000), "rz": np.uint32(0)}.get(rounding)
    if half is None:
        half = np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    kept = (bits + half) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(value), kept, bits)


@runtime
def toward_zero(value: Array, kind: str) -> Array:
    """float32 or float64 to half bits, truncated."""
    near = to_f16(value) if kind == "f16" else to_bf16(value)
    back = (from_f16(near) if kind == "f16" else from_bf16(near)).astype("f8")
    return np.where((np.abs(back) > np.abs(value)) & ~np.isnan(value), near - np.uint16(1), near)


@opcode("cvt")
def emit_cvt(b: Builder, i: Instruction, mods: Mods) -> None:
    kinds = [name for name in mods.rest if name in TYPE_BYTES or name in EIGHT_BITS]
    if len(kinds) != 2:
        raise PtxError(f"{i.site}: cvt needs two types that the machine knows")
    for kind in kinds:
        mods.rest.remove(kind)
    to, source = kinds
    if to in EIGHT_BITS or source in EIGHT_BITS:
        emit_cvt_fp8(b, i, mods, to, source)
    elif to in ("f16x2", "bf16x2"):
        emit_cvt_packed(b, i, mods, to)
    elif to in FLOATS or to == "tf32":
        emit_cvt_float(b, i, mods, to, source)
    else:
        emit_cvt_integer(b, i, mods, to, source)


EIGHT_BITS = ("e4m3x2", "e5m2x2")


def emit_cvt_fp8(b: Builder, i: Instruction, mods: Mods, to: str, source: str) -> None:
    mods.flag("rn", "satfinite")
    relu = mods.flag("relu")
    if source in EIGHT_BITS:
        text = f"unpack_fp8({b.read(i.operands[1], 'u2')}, {source[:4]!r})"
        b.assign(i.operands[0], f"np.where(({text} & 0x80008000) == 0, {text}, 0)" if relu else text, "u4")
        return
    if source == "f32":
        high, low = (b.read(operand, "f4") for operand in i.operands[1:3])
    else:
        low, high = lanes_of(b, source, i.operands[1], False)
    b.assign(i.operands[0], f"pack_fp8({low}, {high}, {to[:4]!r}, {relu})", "u2")


def emit_cvt_packed(b: Builder, i: Instruction, mods: Mods, to: str) -> None:
    """Two floats into one register; the first source goes to the upper half."""
    rounding = mods.choose("rn", "rz")
    relu = mods.flag("relu")
    if mods.flag("satfinite"):
        raise PtxError(f"{i.site}: satfinite is not known for packed halves")
    values = [b.read(operand, "f4") for operand in i.operands[1:3]]
    values = [f"np.maximum({value}, 0)" for value in values] if relu else values
    high, low = (half_text(value, to.removesuffix("x2"), rounding) for value in values)
    b.assign(i.operands[0], f"({low}.astype(u4) | ({high}.astype(u4) << 16))", "u4")


def half_text(value: str, kind: str, rounding: str) -> str:
    return f"to_{kind}({value})" if rounding == "rn" else f"toward_zero({value}, {kind!r})"


def emit_cvt_float(b: Builder, i: Instruction, mods: Mods, to: str, source: str) -> None:
    """To a float type, from anything."""
    whole = mods.choose("rni", "rzi", "rmi", "rpi", default="")
    rounding = mods.choose(*ROUNDINGS, default="rn")
    flushed, clamped, relu = mods.flag("ftz"), mods.flag("sat"), mods.flag("relu")
    value = lanes_of(b, source, i.operands[1], False)[0] if source in FLOATS else b.read(i.operands[1], code_of(source))
    if source in ("f64", "f32") and rounding == "rz" and to in ("f32", "f64") and source != to:
        raise PtxError(f"{i.site}: cvt.rz between f64 and f32 is not known")
    if whole:
        value = f"{dict(rni='np.rint', rzi='np.trunc', rmi='np.floor', rpi='np.ceil')[whole]}({value})"
    if relu:
        value = f"np.maximum({value}, 0)"
    if flushed and "f32" in (source, to):
        value = f"flush({value})"
    if to in ("f32", "f64"):
        code = "f4" if to == "f32" else "f8"
        value = value if source == to else f"{value}.astype({code})"
        b.assign(i.operands[0], f"saturate({value})" if clamped else value, code)
    elif to == "tf32":
        b.assign(i.operands[0], f"to_tf32({value}, {rounding!r})", "u4")
    else:
        value = value if source in FLOATS else f"{value}.astype(f8)"
        b.assign(i.operands[0], half_text(f"saturate({value})" if clamped else value, to, rounding), "u2")


def emit_cvt_integer(b: Builder, i: Instruction, mods: Mods, to: str, source: str) -> None:
    clamped, code = mods.flag("sat"), code_of(to)
    if source in FLOATS:
        mods.flag("ftz")
        rounding = mods.choose("rni", "rzi", "rmi", "rpi")
        value = lanes_of(b, source, i.operands[1], False)[0]
        b.assign(i.operands[0], f"to_integer({value}, {rounding!r}, {code!r})", code)
        return
    value, have = b.read(i.operands[1], code_of(source)), code_of(source)
    if clamped:
        value = f"clamp_integer({value}, {code!r})"
    elif have[1:] != code[1:]:
        # Extension follows the source's sign, truncation has none.
        value = f"{value}.astype({have[0]}{code[1:]}).view({code})"
    elif have != code:
        value = f"{value}.view({code})"
    b.assign(i.operands[0], value, code)


@runtime
def clamp_integer(value: Array, code: str) -> Array:
    limits, mine = np.iinfo(code), np.iinfo(value.dtype)
    return np.clip(value, max(limits.min, mine.min), min(limits.max, mine.max)).astype(code)


# ---- fp8 ----


def fp8_values(kind: str) -> Array:
    """float32 value of each of the 256 codes."""
    codes = np.arange(256)
    exponent_bits, mantissa_bits, bias = (4, 3, 7) if kind == "e4m3" else (5, 2, 15)
    exponent = codes >> mantissa_bits & ((1 << exponent_bits) - 1)
    fraction = (codes & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    values = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent.astype(float) - bias))
    if kind == "e4m3":
        values[(codes & 0x7F) == 0x7F] = np.nan
    else:
        values[(codes & 0x7F) == 0x7C] = np.inf
        values[(codes & 0x7F) > 0x7C] = np.nan
    return np.where(codes & 0x80, -values, values).astype("f4")


FP8 = {kind: fp8_values(kind) for kind in ("e4m3", "e5m2")}
FP8_LARGEST = {"e4m3": 0x7E, "e5m2": 0x7B}


def to_fp8(value: Array, kind: str) -> Array:
    """To nearest even, beyond the largest finite number to that number; NaN stays NaN."""
    largest = FP8_LARGEST[kind]
    table = FP8[kind][: largest + 1].astype("f8")
    size = np.abs(value.astype("f8"))
    upper = np.clip(np.searchsorted(table, size), 1, largest)
    below, above = size - table[upper - 1], table[upper] - size
    down = (below < above) | ((below == above) & (upper % 2 == 1))
    code = np.where(size >= table[-1], largest, np.where(down, upper - 1, upper))
    return np.where(np.isnan(value), 0x7F, code | np.where(np.signbit(value), 0x80, 0)).astype("u1")


@runtime
def pack_fp8(low: Array, high: Array, kind: str, relu: bool) -> Array:
    parts = [np.maximum(part, 0) if relu else part for part in (low, high)]
    first, second = (to_fp8(part, kind).astype("u2") for part in parts)
    return (first | (second << np.uint16(8))).astype("u2")


@runtime
def unpack_fp8(bits: Array, kind: str) -> Array:
    low, high = (to_f16(FP8[kind][bits >> np.uint16(shift) & np.uint16(255)]).astype("u4") for shift in (0, 8))
    return low | (high << np.uint32(16))

