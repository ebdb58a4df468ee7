"""cvt: between integers, floats, halves, tf32 and fp8."""

from __future__ import annotations

import numpy as np

from lapidist.machine.codegen import Builder, Mods, code_of, opcode, runtime
from lapidist.machine.faults import PtxError
from lapidist.machine.instructions.floats import FLOATS, lanes_of
from lapidist.machine.instructions.formats import from_bf16, from_f16, to_bf16, to_f16
from lapidist.machine.ptx.signatures import require_signature
from lapidist.machine.ptx.syntax_tree import TYPE_BYTES, Instruction

Array = np.ndarray
ROUNDINGS = ("rn", "rz", "rm", "rp", "rna")
TO_WHOLE = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}  # NumPy's function of each mode


@runtime
def to_integer(value: Array, rounding: str, code: str) -> Array:
    """Float to integer, clamped to the range; NaN is 0, or the smallest integer where 64 bits are
    involved.
    """
    rounded = getattr(np, TO_WHOLE[rounding])(value).astype("f8")
    limits = np.iinfo(code)
    small, large = rounded < float(limits.min), rounded >= float(limits.max) + (limits.bits < 64)
    inside = np.where(small | large | np.isnan(rounded), 0.0, rounded).astype(code)
    result = np.where(small, limits.min, np.where(large, limits.max, inside)).astype(code)
    # Where 64 bits are involved, NaN becomes the top bit alone.
    nan = 0 if limits.bits < 64 and value.dtype != np.float64 else 1 << (limits.bits - 1)
    return np.where(np.isnan(rounded), np.array([nan], f"u{limits.bits // 8}").view(code), result)


@runtime
def to_tf32(value: Array, rounding: str) -> Array:
    """float32 to 19 significant bits: away from zero on ties (rna), to even (rn) or truncated (rz)."""
    bits = value.view("u4")
    half = {"rna": np.uint32(0x1000), "rz": np.uint32(0)}.get(rounding)
    if half is None:
        half = np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    rounded = (bits + half) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(value), rounded, bits)


@runtime
def half_towards(mode: str, value: Array, kind: str) -> Array:
    """float32 or float64 to half bits, rounded down (rm), up (rp) or towards zero (rz)."""
    near = to_f16(value) if kind == "f16" else to_bf16(value)
    back = (from_f16(near) if kind == "f16" else from_bf16(near)).astype("f8")
    larger = {"rm": value < 0, "rp": value > 0, "rz": np.zeros(1, bool)}[mode]  # away from zero
    size, exact = np.abs(back), np.abs(value)
    one = np.uint16(1)
    near = np.where(larger & (size < exact), near + one, near)
    return np.where(~larger & (size > exact), near - one, near)


LARGEST = {"f16": 65504.0, "bf16": float.fromhex("0x1.fep127"), "tf32": float.fromhex("0x1.ffcp127")}


@runtime
def finite(value: Array, kind: str) -> Array:
    """The value, or the largest number of a type where it is beyond that; NaN stays."""
    return np.clip(value, -LARGEST[kind], LARGEST[kind])


@opcode("cvt")
def emit_cvt(b: Builder, i: Instruction, mods: Mods) -> None:
    kinds = [name for name in mods.remaining if name in TYPE_BYTES or name in EIGHT_BITS]
    if len(kinds) != 2:
        raise PtxError(f"{i.site}: cvt needs two types that the machine knows")
    for kind in kinds:
        mods.remaining.remove(kind)
    to, source = kinds
    pairs = source == "f32" and (to in EIGHT_BITS or to in ("f16x2", "bf16x2"))
    require_signature(i, "dss" if pairs else "ds")
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
    relu, limited = mods.flag("relu"), mods.flag("satfinite")
    values = [b.read(operand, "f4") for operand in i.operands[1:3]]
    values = [f"np.maximum({value}, 0)" for value in values] if relu else values
    high, low = (half_text(value, to.removesuffix("x2"), rounding, limited) for value in values)
    b.assign(i.operands[0], f"({low}.astype(u4) | ({high}.astype(u4) << 16))", "u4")


def half_text(value: str, kind: str, rounding: str, limited: bool = False) -> str:
    value = f"finite({value}, {kind!r})" if limited else value
    return f"to_{kind}({value})" if rounding == "rn" else f"half_towards({rounding!r}, {value}, {kind!r})"


def emit_cvt_float(b: Builder, i: Instruction, mods: Mods, to: str, source: str) -> None:
    """To a float type, from anything."""
    integral = mods.choose(*TO_WHOLE, default="")
    rounding = mods.choose(*ROUNDINGS, default="rn")
    flushed, clamped, relu = mods.flag("ftz"), mods.flag("sat"), mods.flag("relu")
    limited = to in ("f16", "bf16", "tf32") and mods.flag("satfinite")
    value = (
        lanes_of(b, source, i.operands[1], False)[0]
        if source in FLOATS
        else b.read(i.operands[1], code_of(source))
    )
    directed = rounding in ("rz", "rm", "rp") and (source == "f64" or source not in FLOATS)
    if to == "tf32" and rounding in ("rm", "rp"):
        raise PtxError(f"{i.site}: to tf32, only rounding to nearest and towards zero are known")
    if integral:
        value = f"np.{TO_WHOLE[integral]}({value})"
    if relu:
        value = f"np.maximum({value}, 0)"
    if flushed and "f32" in (source, to):
        value = f"flush({value})"
    if to in ("f32", "f64"):
        code = code_of(to)
        if directed and source != to:
            value = f"converted_towards({rounding!r}, {value}, {code})"
        elif source != to:
            value = f"{value}.astype({code})"
        b.assign(i.operands[0], f"saturate({value})" if clamped else value, code)
    elif to == "tf32":
        value = f"finite({value}, {to!r})" if limited else value
        b.assign(i.operands[0], f"to_tf32({value}, {rounding!r})", "u4")
    else:
        value = value if source in FLOATS else f"{value}.astype(f8)"
        value = f"saturate({value})" if clamped else value
        b.assign(i.operands[0], half_text(value, to, rounding, limited), "u2")


def emit_cvt_integer(b: Builder, i: Instruction, mods: Mods, to: str, source: str) -> None:
    clamped, code = mods.flag("sat"), code_of(to)
    if source in FLOATS:
        mods.flag("ftz")
        rounding = mods.choose(*TO_WHOLE)
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
