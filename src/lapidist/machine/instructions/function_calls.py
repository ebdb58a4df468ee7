"""Calls of what CUDA brings to a kernel: the report of a failed assert, and printf. Functions of the module
are read in place of their calls (ptx/inlined_functions.py).

Arguments lie in parameters that the body declares before a call: memory of each thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lapidist.machine.codegen import Builder, Mods, opcode, runtime
from lapidist.machine.faults import AssertionFailed, OutOfBounds, PtxError, Trap
from lapidist.machine.instructions.printf import Piece, pieces_of, show
from lapidist.machine.lanes import Lanes
from lapidist.machine.memory import generic_at
from lapidist.machine.ptx.call_reader import LOST
from lapidist.machine.ptx.syntax_tree import Addr, Instruction, Operand, Reg, Sym, Tuple
from lapidist.visible import visible

if TYPE_CHECKING:
    from lapidist.machine.state import Machine

Array = np.ndarray
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "__assertfail": ("u8", "u8", "u4", "u8"),
    "vprintf": ("u8", "u8"),
    "malloc": ("u8",),
    "free": ("u8",),
    LOST: ("u8",),
}
CUDA_FUNCTIONS = [name for name in ARGUMENTS if name != LOST]
LONGEST_TEXT = 1 << 20  # what CUDA keeps for the output of a kernel


@opcode("call")
def emit_call(b: Builder, i: Instruction, mods: Mods) -> None:
    mods.flag("uni")
    returned, (function, passed) = i.operands[:-2], i.operands[-2:]
    if not isinstance(function, Sym) or function.name not in ARGUMENTS or not isinstance(passed, Tuple):
        raise PtxError(
            f"{i.site}: only {', '.join(CUDA_FUNCTIONS)} can be called, and functions with a body in the"
            " module. Link it first, or let the compiler inline them"
        )
    with b.guarded() as lanes:
        codes = ARGUMENTS[function.name]
        values = [
            passed_value(b, operand, code)
            for operand, code in zip(passed.items[: len(codes)], codes, strict=True)
        ]
        text = f"{function.name.strip('_')}(m, {lanes}, {b.index}, {', '.join(values)})"
        targets = returned[0].items if returned and isinstance(returned[0], Tuple) else ()
        if targets and isinstance(targets[0], Sym):
            text = f"{b.address(Addr(targets[0]), 'local')}.store(0, {b.index}, {text})"
        if targets and isinstance(targets[0], Reg):
            b.assign(targets[0], text, "u8" if function.name == "malloc" else "u4")
        else:
            b.line(text)


def passed_value(b: Builder, operand: Operand, code: str) -> str:
    if isinstance(operand, Sym):
        return f"{b.address(Addr(operand), 'local')}.load(0, {code}, {b.index})"
    return b.read(operand, code)


def text_at(m: Machine, g: Lanes, position: int, address: int, site: int) -> str:
    """The bytes up to a zero, at a lane's generic address."""
    octets = bytearray()
    place = generic_at(m, g.one(position), np.array([address], np.uint64), site)
    while len(octets) < LONGEST_TEXT:
        byte = int(place.load(len(octets), np.dtype("u1"), site)[0])
        if not byte:
            break
        octets.append(byte)
    return octets.decode(errors="replace")


@runtime
def assertfail(
    m: Machine, g: Lanes, site: int, message: Array, file: Array, line: Array, function: Array
) -> None:
    """Raise the failed assert of the first lane, though others may have failed as well."""
    words, file_name, whose = (
        text_at(m, g, 0, int(address[0]), site) for address in (message, file, function)
    )
    rule = visible(f"{file_name}:{int(line[0])}: {whose}: assertion `{words}` failed")
    raise m.fault(AssertionFailed, rule, site, g)


@runtime
def vprintf(m: Machine, g: Lanes, site: int, formats: Array, arguments: Array) -> Array:
    """Print the lanes' texts one after another. Returns the number of arguments, as this function does on
    the chip."""
    parsed: dict[int, list[Piece]] = {}
    written, counts = [], np.zeros(g.n, np.uint32)
    slots = zip(np.broadcast_to(formats, g.n).tolist(), np.broadcast_to(arguments, g.n).tolist(), strict=True)
    for position, (address, buffer) in enumerate(slots):
        pieces = parsed[address] = parsed.get(address) or pieces_of(text_at(m, g, position, address, site))
        text, counts[position] = filled(m, g, position, buffer, pieces, site)
        written.append(text)
    print(visible("".join(written)), end="")
    return counts


@runtime
def malloc(m: Machine, g: Lanes, site: int, sizes: Array) -> Array:
    """A piece of the heap for each lane; a null pointer where it is full."""
    return np.array([m.heap.give(size) for size in np.broadcast_to(sizes, g.n).tolist()], np.uint64)


@runtime
def free(m: Machine, g: Lanes, site: int, addresses: Array) -> None:
    for lane, address in enumerate(np.broadcast_to(addresses, g.n).tolist()):
        if not m.heap.take_back(address):
            rule = "free of an address where no piece of malloc's begins; one may be freed once"
            raise m.fault(OutOfBounds, rule, site, g, lane, address)


@runtime
def lostcall(m: Machine, g: Lanes, site: int, addresses: Array) -> None:
    rule = "a call through a pointer to no function of the module with such results and parameters"
    raise m.fault(Trap, rule, site, g, 0, int(addresses[0]))


def filled(
    m: Machine, g: Lanes, position: int, buffer: int, pieces: list[Piece], site: int
) -> tuple[str, int]:
    """One lane's text: its arguments lie in a buffer, each at a multiple of its size."""
    place = (
        generic_at(m, g.one(position), np.array([buffer], np.uint64), site)
        if any(p.codes for p in pieces)
        else None
    )
    end, count, text = 0, 0, ""
    for piece in pieces:
        values: list[int | float | str] = []
        for code in piece.codes:
            kind = np.dtype(code.replace("s", "u8"))
            start = -(-end // kind.itemsize) * kind.itemsize
            assert place is not None
            value = place.load(start, kind, site)[0].item()
            values.append(text_at(m, g, position, value, site) if code == "s" else value)
            end, count = start + kind.itemsize, count + 1
        text += show(piece, values)
    return text, count
