"""Control flow, whose outcome goes to the scheduler, and instructions that are only hints."""

from __future__ import annotations

import re

import numpy as np

from lapidist.machine.codegen import Builder, Mods, opcode, runtime
from lapidist.machine.faults import PtxError, Trap
from lapidist.machine.lanes import Lanes
from lapidist.machine.ptx.signatures import require_signature
from lapidist.machine.ptx.syntax_tree import Imm, Instruction


@opcode("bra")
def emit_branch(b: Builder, i: Instruction, mods: Mods) -> None:
    mods.flag("uni")
    b.result = b.guard() if i.predicate is not None else "None"


@opcode("brx.idx")
def emit_table(b: Builder, i: Instruction, mods: Mods) -> None:
    mods.flag("uni")
    b.result = b.read(i.operands[0], "u4")


@opcode("ret", "exit")
def emit_exit(b: Builder, i: Instruction, mods: Mods) -> None:
    mods.flag("uni")
    b.result = b.guard() if i.predicate is not None else b.program.constant(np.array([True]))


@opcode("trap")
def emit_trap(b: Builder, i: Instruction, mods: Mods) -> None:
    with b.guarded() as lanes:
        b.line(f"spring_trap(m, {lanes}, {b.index})")


@runtime
def spring_trap(m, g: Lanes, site: int) -> None:  # type: ignore[no-untyped-def]
    raise m.fault(Trap, "the kernel executed trap", site, g)


@opcode("griddepcontrol")
def emit_launch_order(b: Builder, i: Instruction, mods: Mods) -> None:
    """The launch before has ended when a run begins. Only the sanitizer checks that a kernel waits for it."""
    event = {"wait": "launch_waited", "launch_dependents": "launch_triggered"}
    with b.guarded() as lanes:
        b.line(f"m.observer.{event[mods.choose(*event)]}({lanes})")


LEAST_REGISTERS, MOST_REGISTERS = 24, 256


@opcode("setmaxnreg")
def emit_budget(b: Builder, i: Instruction, mods: Mods) -> None:
    """Registers are not modelled. The pool checks who asks for how many."""
    more = mods.choose("inc", "dec") == "inc"
    mods.flag("sync", "aligned")
    mods.type()
    (count,) = i.operands
    number = count.value if isinstance(count, Imm) else 0
    if number % 8 or not LEAST_REGISTERS <= number <= MOST_REGISTERS:
        rule = f"setmaxnreg takes a multiple of 8 from {LEAST_REGISTERS} to {MOST_REGISTERS}, got {number}"
        raise PtxError(f"{i.site}: {rule}")
    with b.guarded() as lanes:
        b.line(f"m.register_pool.resized({lanes}, {more}, {number}, {b.index})")


@opcode("nanosleep", "brkpt", "pmevent")
def emit_nothing(b: Builder, i: Instruction, mods: Mods) -> None:
    """No effect on results: time and register budgets are not modelled."""
    mods.flag("u32", "mask")


POLICIES = re.compile(
    r"(fractional|range(\.global)?)\.L2::evict_(last|normal|first|unchanged)(\.L2::evict_(first|unchanged))?\.b64"
    r"|cvt\.L2\.b64"
)


@opcode("createpolicy")
def emit_policy(b: Builder, i: Instruction, mods: Mods) -> None:
    """A cache policy is a number that only hints read."""
    if not POLICIES.fullmatch(".".join(mods.remaining)):
        raise PtxError(f"{i.site}: a policy of this kind is not known")
    signatures = {"fractional": ["d", "ds"], "range": ["dass"], "cvt": ["ds"]}[mods.remaining[0]]
    require_signature(i, *signatures)
    mods.remaining.clear()
    b.assign(i.operands[0], b.program.constant(np.zeros(1, np.uint64)), "u8")
