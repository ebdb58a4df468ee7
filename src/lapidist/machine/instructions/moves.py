"""Moves, packing, choices and comparisons."""

from __future__ import annotations

import numpy as np

from lapidist.machine.codegen import Builder, Mods, code_of, opcode, runtime
from lapidist.machine.faults import PtxError
from lapidist.machine.instructions.floats import FLOATS, assign_float, operands_as_float
from lapidist.machine.ptx.signatures import require_signature
from lapidist.machine.ptx.syntax_tree import TYPE_BYTES, Instruction, Operand, Pair, Vec

Array = np.ndarray


@runtime
def pack_parts(code: np.dtype, *parts: Array) -> Array:
    """Parts side by side in a wider value, the first lowest."""
    size = max(part.shape[0] for part in parts)
    out = np.empty((size, len(parts)), parts[0].dtype)
    for number, part in enumerate(parts):
        out[:, number] = part
    return out.reshape(-1).view(code)


@runtime
def unpack_parts(value: Array, code: np.dtype) -> Array:
    return np.ascontiguousarray(value.view(code).reshape(value.shape[0], -1).T)


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


COMPARISONS = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "lo": "<",
    "ls": "<=",
    "hi": ">",
    "hs": ">=",
}
UNORDERED = {"equ": "==", "neu": "!=", "ltu": "<", "leu": "<=", "gtu": ">", "geu": ">="}


def comparison(b: Builder, mods: Mods, operands: tuple[Operand, ...]) -> list[str]:
    """The comparison as boolean expressions, one a packed part."""
    name = mods.choose(*COMPARISONS, *UNORDERED, "num", "nan")
    flushed = mods.flag("ftz")
    kind = mods.type()
    if kind in FLOATS:
        pairs = list(zip(*operands_as_float(b, kind, operands[:2]), strict=True))
        if flushed:
            pairs = [(f"flush({x})", f"flush({y})") for x, y in pairs]
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
    require_signature(i, "esss" if combine else "ess")
    results = [
        b.once(("compare", b.index, n), text, "c")
        for n, text in enumerate(comparison(b, mods, i.operands[1:]))
    ]
    outcomes = [results[0], results[1] if len(results) > 1 else f"~{results[0]}"]
    if combine:
        other = b.once(("combine", b.index), b.read(i.operands[3], "b1"), "c")
        sign = {"and": "&", "or": "|", "xor": "^"}[combine]
        outcomes = [f"({text} {sign} {other})" for text in outcomes]
    targets = (
        (i.operands[0].first, i.operands[0].second) if isinstance(i.operands[0], Pair) else (i.operands[0],)
    )
    for target, text in zip(targets, outcomes, strict=False):
        b.assign(target, text, "b1")


@opcode("set")
def emit_set(b: Builder, i: Instruction, mods: Mods) -> None:
    kinds = [name for name in mods.remaining if name in TYPE_BYTES]
    mods.remaining.remove(kinds[0])
    results = comparison(b, mods, i.operands[1:])
    if kinds[0] in FLOATS:
        assign_float(b, i.operands[0], kinds[0], [f"{text}.astype(f4)" for text in results])
    elif len(results) == 1:
        b.assign(i.operands[0], f"np.where({results[0]}, 0xFFFFFFFF, 0).astype(u4)", "u4")
    else:
        raise PtxError(f"{i.site}: a packed set into an integer is not known")
