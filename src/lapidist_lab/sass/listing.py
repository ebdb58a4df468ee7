"""PTX and SASS as one kind of list: what each instruction does, how many bytes it moves, where control goes
from it.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from lapidist.backends.gpu.doctor import disassembler
from lapidist.launch import Binary
from lapidist.machine.ptx.parse import parse_kernel
from lapidist.machine.ptx.syntax_tree import TYPE_BYTES, Instruction, Sym
from lapidist_lab.sass.encoding import INSTRUCTION_BYTES, stalls_of

DISASSEMBLER_SECONDS = 60

# The classes of instructions, and what they are called in a report.
KINDS = {
    "fma": "fused multiply-add",
    "mma": "tensor-core multiply",
    "float": "other floating point",
    "convert": "conversion",
    "lds": "shared load",
    "ldsm": "shared load of matrices (ldmatrix)",
    "sts": "shared store",
    "ldg": "global load",
    "stg": "global store",
    "ldgsts": "asynchronous copy",
    "tma": "bulk copy (TMA)",
    "barrier": "barrier or wait",
    "integer": "integer and address",
    "move": "move",
    "branch": "branch",
    "local": "spill (local memory)",
    "other": "other",
}


class Read(NamedTuple):
    """A register that an instruction reads as its `operand`, from 0. One that is `reused` stays in the cache
    of operands for the next instruction."""

    operand: int
    register: int
    reused: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One instruction. `nbytes` is what one thread moves; `target` is where it may jump; `falls`: the next
    line may follow.

    `products` are the multiply-adds of one warp in a tensor-core instruction; a warpgroup's is a quarter each
    of its warps. Of SASS only: what arithmetic `reads`, the registers that are `loaded` from shared memory,
    and for how many cycles the assembler makes the warp `stall`."""

    opcode: str
    kind: str
    nbytes: int = 0
    target: int | None = None
    falls: bool = True
    reads: tuple[Read, ...] = ()
    loaded: tuple[int, ...] = ()
    stall: int = 1

    @property
    def products(self) -> int:
        return products_of(self.opcode) if self.kind == "mma" else 0


# How the machine code spells shapes; newer ones have an x between the extents, PTX spells m16n8k16.
SASS_SHAPES = {
    "884": (8, 8, 4),
    "8816": (8, 8, 16),
    "1684": (16, 8, 4),
    "1688": (16, 8, 8),
    "16816": (16, 8, 16),
    "16832": (16, 8, 32),
}
EXTENTS = re.compile(r"\.(?:m(\d+)n(\d+)k(\d+)|(\d+)x(\d+)x(\d+))")


def products_of(opcode: str) -> int:
    """m n k of a tensor-core instruction, or a quarter where 64 rows belong to four warps; 0 where the opcode
    does not say.
    """
    spelt = EXTENTS.search(opcode)
    extents = (
        [int(one) for one in spelt.groups() if one] if spelt else SASS_SHAPES.get(opcode.split(".")[1], (0,))
    )
    return math.prod(extents) // (4 if extents[0] == 64 else 1)


# ---- SASS ----

SASS_KINDS = {
    "fma": "FFMA DFMA FFMA2",
    "float": "FADD FMUL DADD DMUL FMNMX FSEL FSETP DSETP FSET MUFU HFMA2 HADD2 HMUL2",
    "mma": "HMMA IMMA DMMA HGMMA IGMMA QGMMA BGMMA",
    "convert": "F2F F2FP F2I I2F I2FP F2IP I2I",
    "lds": "LDS",
    "ldsm": "LDSM",
    "sts": "STS STSM",
    "ldg": "LDG LD",
    "stg": "STG ST RED ATOM ATOMG",
    "ldgsts": "LDGSTS",
    "tma": "UTMALDG UTMASTG UBLKCP UTMAPF UTMACCTL UTMACMDFLUSH UTMAREDG",
    "barrier": (
        "BAR SYNCS DEPBAR LDGDEPBAR WARPSYNC WARPGROUP MEMBAR FENCE ERRBAR UCGABAR_ARV UCGABAR_WAIT ARRIVES"
        " NANOSLEEP"
    ),
    "move": (
        "MOV UMOV CS2R S2R S2UR R2UR R2P P2R SEL USEL PRMT UPRMT SHFL LDC ULDC LDCU VOTE VOTEU PLOP3 UPLOP3"
        " ELECT USETMAXREG"
    ),
    "branch": "BRA BRX JMP JMX CALL RET EXIT BSSY BSYNC BREAK BMOV YIELD KILL BPT",
    "local": "LDL STL",
    "other": "NOP",
}
SASS_KIND_OF = {name: kind for kind, names in SASS_KINDS.items() for name in names.split()}
ARITHMETIC = ("fma", "float", "integer")  # what takes its operands at once, and the same time always
REGISTER = re.compile(r"[-~|]*R(\d+)(\.reuse)?\|?")
JUMPS = ("BRA", "JMP")
LEAVES = ("EXIT", "RET", "KILL", "BPT", "BRX", "JMX")


@lru_cache(maxsize=64)
def sass_lines(binary: Binary) -> tuple[Line, ...]:
    """The cubin's instructions; empty where nvdisasm is not found or cannot read them."""
    rows = sass_rows(binary)
    stalls = stalls_of(binary) if rows else ()
    return tuple(sass_line(row, stall) for row, stall in zip(rows, stalls or (1,) * len(rows), strict=False))


def sass_rows(binary: Binary) -> list[dict[str, Any]]:
    """The instructions as nvdisasm writes them: opcode, operands, and a predicate where there is one."""
    tool = disassembler()
    if tool is None:
        return []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kernel.cubin")
        with open(path, "wb") as file:
            file.write(binary.cubin)
        done = subprocess.run(
            [tool, "--emit-json", path], capture_output=True, text=True, timeout=DISASSEMBLER_SECONDS
        )
    if done.returncode != 0:
        return []
    _, functions = json.loads(done.stdout)
    kernel = next(function for function in functions if function["function-name"] == binary.entry)
    rows: list[dict[str, Any]] = kernel["sass-instructions"]
    return rows


def sass_line(row: dict[str, Any], stall: int = 1) -> Line:
    opcode, operands = row["opcode"], row.get("operands", "").split(",")
    name = opcode.partition(".")[0]
    target = (
        int(operands[-1], 16) // INSTRUCTION_BYTES
        if name in JUMPS and operands[-1].startswith("0x")
        else None
    )
    # "BRA P1,0x10" and "BRA.DIV UR4,0x10" may fall through
    conditional = "predicate" in row or len(operands) > 1
    falls = conditional or name not in (*JUMPS, *LEAVES)
    kind = sass_kind(opcode, operands)
    width = sass_width(opcode)
    reads = tuple(sass_reads(operands)) if kind in ARITHMETIC else ()
    first = REGISTER.fullmatch(operands[0]) if kind == "lds" else None
    loaded = tuple(range(int(first[1]), int(first[1]) + -(-width // 4))) if first else ()
    return Line(opcode, kind, width, target, falls, reads, loaded, stall)


def sass_reads(operands: Sequence[str]) -> Iterator[Read]:
    """The registers among the three operands behind the result."""
    for place, operand in enumerate(operands[1:4]):
        match = REGISTER.fullmatch(operand.strip())
        if match:
            yield Read(place, int(match[1]), match[2] is not None)


def sass_kind(opcode: str, operands: Sequence[str]) -> str:
    name, _, mods = opcode.partition(".")
    if opcode.startswith("IMAD.MOV"):
        return "move"
    if name in ("HADD2", "HFMA2") and operands[1:2] == ["-RZ"]:
        # half to float is "-0 + half"; "-0 * 0 + constant" loads the constant
        return "convert" if mods == "F32" else "move"
    if name == "CCTL":
        return "barrier"
    if name in SASS_KIND_OF:
        return SASS_KIND_OF[name]
    return "integer"


def sass_width(opcode: str) -> int:
    """Bytes that one thread moves, from the width among the modifiers; 4 without one."""
    name, *mods = opcode.split(".")
    if name == "LDSM":
        return 4 * int(mods[-1]) if mods[-1].isdigit() else 4
    if SASS_KIND_OF.get(name) not in ("lds", "sts", "ldg", "stg", "ldgsts", "local"):
        return 0
    widths = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
    return next((widths[mod] for mod in mods if mod in widths), 4)


# ---- PTX ----

PTX_KINDS = {
    "fma": "fma",
    "float": "min max sqrt rsqrt rcp div sin cos ex2 lg2",
    "convert": "cvt",
    "barrier": "bar barrier mbarrier fence membar nanosleep griddepcontrol",
    "move": "mov selp shfl prmt cvta mapa vote elect setmaxnreg isspacep",
    "branch": "bra brx ret exit trap call",
}
PTX_KIND_OF = {name: kind for kind, names in PTX_KINDS.items() for name in names.split()}
FLOAT_TYPES = {"f16", "f32", "f64", "bf16", "f16x2", "bf16x2"}
LOADS = {"shared": "lds", "local": "local", "param": "move", "const": "move"}
STORES = {"shared": "sts", "local": "local"}


@lru_cache(maxsize=64)
def ptx_lines(binary: Binary) -> tuple[Line, ...]:
    kernel = parse_kernel(binary.ptx, binary.entry)
    return tuple(ptx_line(instruction, kernel.labels) for instruction in kernel.instructions)


def ptx_line(instruction: Instruction, labels: dict[str, int]) -> Line:
    opcode, guarded = instruction.opcode, instruction.predicate is not None
    label = instruction.operands[-1] if opcode == "bra" else None
    target = labels[label.name] if isinstance(label, Sym) else None
    falls = guarded or opcode not in ("bra", "brx", "ret", "exit", "trap")
    kind = ptx_kind(opcode, instruction.mods)
    memory = opcode in ("ld", "ldu", "st", "red", "atom") and kind != "move"
    moved = ptx_width(instruction.mods) if memory else 0
    if opcode == "ldmatrix":
        moved = next(4 * int(mod[1:]) for mod in instruction.mods if mod in ("x1", "x2", "x4"))
    if kind == "ldgsts":
        moved = next((getattr(operand, "value", 0) for operand in instruction.operands[2:3]), 0)
    return Line(".".join((opcode, *instruction.mods)), kind, moved, target, falls)


def ptx_kind(opcode: str, mods: Sequence[str]) -> str:
    spaces = {mod.partition("::")[0] for mod in mods}
    if opcode in ("mma", "wmma", "wgmma"):
        moves = {"load": LOADS, "store": STORES}.get(mods[0])
        if moves is None:
            return "mma" if mods[0] in ("mma", "mma_async") or opcode == "mma" else "barrier"
        return next(
            (kind for space, kind in moves.items() if space in spaces), "ldg" if mods[0] == "load" else "stg"
        )
    if opcode == "ldmatrix":
        return "ldsm"
    if opcode in ("ld", "ldu"):
        return next((kind for space, kind in LOADS.items() if space in spaces), "ldg")
    if opcode in ("st", "red", "atom", "stmatrix"):
        return next((kind for space, kind in STORES.items() if space in spaces), "stg")
    if opcode == "cp":
        if "commit_group" in mods or "wait_group" in mods or "wait_all" in mods or "mbarrier" in spaces:
            return "barrier"
        return "tma" if "bulk" in mods else "ldgsts"
    if opcode in ("add", "sub", "mul", "neg", "abs", "setp", "mad") and not FLOAT_TYPES.isdisjoint(mods):
        return "float"
    return PTX_KIND_OF.get(opcode, "integer")


def ptx_width(mods: Sequence[str]) -> int:
    element = next((TYPE_BYTES[mod] for mod in reversed(mods) if mod in TYPE_BYTES), 4)
    return element * next((int(mod[1:]) for mod in mods if mod in ("v2", "v4", "v8")), 1)
