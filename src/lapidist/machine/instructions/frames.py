"""Functions that call themselves: a frame keeps a body's registers and variables around the call, for each
thread (ptx/call_reader.py writes these instructions; no PTX has them)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lapidist.machine.codegen import Builder, Mods, opcode, runtime, storage
from lapidist.machine.faults import OutOfBounds
from lapidist.machine.lanes import Lanes
from lapidist.machine.ptx.syntax_tree import Imm, Instruction, Operand, Reg, Sym, Tuple, Vec

if TYPE_CHECKING:
    from lapidist.machine.state import Machine

Array = np.ndarray
Range = tuple[int, int]  # offset in local memory, and bytes
DEEPEST = 4096  # calls of a thread: more are a stack that overflows


@dataclass(slots=True)
class KeptFrame:
    tag: int  # of the body
    way: int  # where that goes on
    registers: list[np.generic]
    octets: list[Array]


def immediates(*operands: Operand) -> str:
    return ", ".join(str(operand.value) for operand in operands if isinstance(operand, Imm))


def ranges(b: Builder, operand: Operand) -> list[Range]:
    items = operand.items if isinstance(operand, Tuple) else ()
    names = [item.name for item in items if isinstance(item, Sym)]
    return [(b.program.layout[name], b.program.kernel.variables[name].size) for name in names]


@opcode("$push")
def emit_push(b: Builder, i: Instruction, mods: Mods) -> None:
    registers, variables, moved, tag, way = i.operands
    names = registers.items if isinstance(registers, Vec) else ()
    values = ", ".join(b.read(name, storage_of(b, name)) for name in names)
    kept, moves = ranges(b, variables), ranges(b, moved)
    b.line(f"push_frame(m, {b.lanes}, {b.index}, {immediates(tag, way)}, {kept}, {moves}, [{values}])")


@opcode("$pop")
def emit_pop(b: Builder, i: Instruction, mods: Mods) -> None:
    registers, variables, moved, _, _ = i.operands
    names = registers.items if isinstance(registers, Vec) else ()
    codes = [storage_of(b, name) for name in names]
    kept, moves = ranges(b, variables), ranges(b, moved)
    values = b.new()
    b.line(f"{values} = pop_frame(m, {b.lanes}, {kept}, {moves}, {codes})")
    for number, (name, code) in enumerate(zip(names, codes, strict=True)):
        b.assign(name, f"{values}[{number}]", code)


@opcode("$way")
def emit_way(b: Builder, i: Instruction, mods: Mods) -> None:
    b.assign(i.operands[0], f"way_back(m, {b.lanes}, {immediates(i.operands[1])})", "u4")


def storage_of(b: Builder, operand: Operand) -> str:
    assert isinstance(operand, Reg)
    return storage(b.program.kernel.registers[operand.name])


def stacks(m: Machine, g: Lanes) -> list[list[KeptFrame]]:
    """The frames of each lane's thread."""
    keys = zip(g.block.tolist(), g.thread.tolist(), strict=True)
    return [m.frames.setdefault(key, []) for key in keys]


def rows(m: Machine, g: Lanes) -> list[int]:
    """Where each lane's local memory starts."""
    return ((g.slot * g.cohort.geometry.threads + g.thread) * m.local_stride).tolist()


def copied(m: Machine, start: int, moves: list[Range]) -> list[tuple[int, Array]]:
    """Targets and bytes of moves: pairs of a target and its source."""
    contents = []
    for (target, size), (source, _) in zip(moves[::2], moves[1::2], strict=True):
        contents.append((start + target, m.local_bytes[start + source : start + source + size].copy()))
        m.observer.local_moved(start + target, start + source, size)
    return contents


@runtime
def push_frame(
    m: Machine,
    g: Lanes,
    site: int,
    tag: int,
    way: int,
    kept: list[Range],
    moves: list[Range],
    values: list[Array],
) -> None:
    """Keep a frame, then give the body its new arguments: pairs of (parameter, argument)."""
    for lane, (stack, start) in enumerate(zip(stacks(m, g), rows(m, g), strict=True)):
        if len(stack) >= DEEPEST:
            rule = f"calls {DEEPEST} deep: the stack of a thread has ended"
            raise m.fault(OutOfBounds, rule, site, g, lane)
        octets = [m.local_bytes[start + at : start + at + size].copy() for at, size in kept]
        registers = [value[lane if len(value) > 1 else 0] for value in values]
        stack.append(KeptFrame(tag, way, registers, octets))
        for target, content in copied(m, start, moves):
            m.local_bytes[target : target + len(content)] = content


@runtime
def pop_frame(m: Machine, g: Lanes, kept: list[Range], moves: list[Range], codes: list[str]) -> list[Array]:
    """Bring a frame back, and hand the results to the caller: pairs of (result, the caller's variable)."""
    returned: list[list[np.generic]] = []
    back = [pair for target, source in zip(moves[1::2], moves[::2], strict=True) for pair in (target, source)]
    for stack, start in zip(stacks(m, g), rows(m, g), strict=True):
        frame, results = stack.pop(), copied(m, start, back)
        for (at, size), content in zip(kept, frame.octets, strict=True):
            m.local_bytes[start + at : start + at + size] = content
        for target, content in results:
            m.local_bytes[target : target + len(content)] = content
        returned.append(frame.registers)
    return [np.array(column, code) for column, code in zip(zip(*returned, strict=True), codes, strict=True)]


@runtime
def way_back(m: Machine, g: Lanes, tag: int) -> Array:
    """Where the body of this tag goes on: 0 behind the call that it was read for."""
    tops = [stack[-1] if stack else None for stack in stacks(m, g)]
    return np.array([top.way if top is not None and top.tag == tag else 0 for top in tops], np.uint32)
