"""Floating-point instructions of one lane, in every type.

fp32 fma is computed in float64: the product is exact there, and the sum is rounded twice. That differs from
the chip only when the float64 sum lands exactly between two floats after its own rounding. It did not once in
20 million random triples. Half precision is computed in float32 (fma in float64) and rounded once."""

from __future__ import annotations

import numpy as np

from lapidist.machine.codegen import Builder, Mods, code_of, opcode, runtime
from lapidist.machine.faults import PtxError
from lapidist.machine.instructions.rounding import WIDE
from lapidist.machine.ptx.syntax_tree import TYPE_BYTES, Imm, Instruction, Operand

Array = np.ndarray
FLOATS = ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2")


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
    """Fused float64: the errors of product and sum are computed exactly and added back, with one more
    rounding.
    """
    product = a * b
    total = product + c
    scaled_a, scaled_b = a * SPLITTER, b * SPLITTER
    a_high, b_high = scaled_a - (scaled_a - a), scaled_b - (scaled_b - b)
    a_low, b_low = a - a_high, b - b_high
    product_error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    back = total - product
    total_error = (product - (total - back)) + (c - back)
    fixed = total + (total_error + product_error)
    # errors of zero are positive, a zero may be negative
    return np.where(np.isfinite(fixed) & (fixed != 0), fixed, total)


# ---- floats: one emitter for all types ----


def operands_as_float(
    b: Builder, kind: str, operands: tuple[Operand, ...], wide: bool = False
) -> list[list[str]]:
    """Each operand as float expressions: one for a scalar type, (low, high) for a packed one."""
    return [lanes_of(b, kind, operand, wide) for operand in operands]


def lanes_of(b: Builder, kind: str, operand: Operand, wide: bool) -> list[str]:
    if kind in ("f32", "f64"):
        value = b.read(operand, code_of(kind))
        if wide and kind == "f32":
            return [b.once(("double", *b.version(operand)), f"{value}.astype(f8)", "d")]
        return [value]
    convert = "from_bf16" if kind.startswith("bf16") else "from_f16"
    if kind.endswith("x2"):
        word = b.read(operand, "u4")
        key = ("halves", convert, *b.version(operand))
        low = b.once((*key, 0), f"{convert}({word}.astype(u2))", "h")
        high = b.once((*key, 1), f"{convert}(({word} >> 16).astype(u2))", "h")
        return [low, high]
    return [
        b.once(("halves", convert, *b.version(operand)), f"{convert}({half_bits(b, operand, kind)})", "h")
    ]


def half_bits(b: Builder, operand: Operand, kind: str) -> str:
    """A half operand's bits; a float literal is rounded."""
    if isinstance(operand, Imm) and operand.kind != "int":
        source = b.read(operand, "f4" if operand.kind == "f32" else "f8")
        return f"to_{'bf16' if kind == 'bf16' else 'f16'}({source})"
    return b.read(operand, "u2")


def assign_float(b: Builder, operand: Operand, kind: str, parts: list[str]) -> None:
    if kind in ("f32", "f64"):
        b.assign(operand, parts[0], code_of(kind))
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
    rounding = rounding_of(i, mods, kind)
    flushed, clamped, nan = mods.flag("ftz"), mods.flag("sat"), mods.flag("NaN")
    mods.flag("approx", "full", "noftz", "xorsign")
    values = operands_as_float(b, kind, i.operands[1:])
    if flushed and kind == "f32":
        values = [[f"flush({part})" for part in parts] for parts in values]
    text = FLOAT_TEXT[i.opcode] if rounding == "rn" else directed_text(i.opcode, rounding, len(values))
    if nan:
        text = {"min": "np.minimum({0}, {1})", "max": "np.maximum({0}, {1})"}[i.opcode]
    results = [text.format(*parts) for parts in zip(*values, strict=True)]
    assign_float(b, i.operands[0], kind, finish_float(results, flushed and kind == "f32", clamped))


def rounding_of(i: Instruction, mods: Mods, kind: str) -> str:
    """rn, or one of the directed modes where the operation has them."""
    mode = mods.choose("rn", "rz", "rm", "rp", default="rn")
    if mode != "rn" and (kind not in ("f32", "f64") or (i.opcode not in WIDE and i.opcode != "mad")):
        raise PtxError(f"{i.site}: only rounding to nearest even is known for this opcode and type")
    return mode


def directed_text(operation: str, mode: str, count: int) -> str:
    slots = ", ".join(f"{{{number}}}" for number in range(count))
    return f"directed({operation!r}, {mode!r}, {slots})"


def finish_float(results: list[str], flushed: bool, clamped: bool) -> list[str]:
    results = [f"flush({text})" for text in results] if flushed else results
    return [f"saturate({text})" for text in results] if clamped else results


@opcode("fma", "mad.rn", "mad.rz", "mad.rm", "mad.rp", "mad.f32", "mad.f64")
def emit_fma(b: Builder, i: Instruction, mods: Mods) -> None:
    if i.opcode == "mad":
        mods = Mods(i, tuple(m for m in i.mods))
    kind = next((name for name in mods.remaining if name in TYPE_BYTES), "")
    rounding = rounding_of(i, mods, kind)
    flushed, clamped, relu = mods.flag("ftz"), mods.flag("sat"), mods.flag("relu")
    mods.type()
    if rounding != "rn":
        values = [lanes_of(b, kind, operand, wide=False)[0] for operand in i.operands[1:4]]
        values = [f"flush({value})" for value in values] if flushed else values
        text = directed_text("fma", rounding, 3).format(*values)
        assign_float(b, i.operands[0], kind, finish_float([text], flushed, clamped))
        return
    if kind == "f64":
        a, c, d = (b.read(operand, "f8") for operand in i.operands[1:])
        b.assign(i.operands[0], f"fused64({a}, {c}, {d})", "f8")
        return
    wide = operands_as_float(b, kind, i.operands[1:3], wide=True)
    third = lanes_of(b, kind, i.operands[3], wide=False)
    code = "f4" if kind == "f32" else "f8"
    if flushed and kind == "f32":
        wide, third = (
            [[f"flush({part})" for part in parts] for parts in wide],
            [f"flush({part})" for part in third],
        )
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
