"""mbarriers: objects in shared memory that count arrivals and bytes; a phase completes when both are in.

The machine keeps their state beside the memory, by address. A wait that fails parks its lanes until some
phase completes somewhere; it gives up (as try_wait may) only when nobody else can run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lapidist.machine.codegen import Builder, Mods, opcode
from lapidist.machine.faults import BarrierMisuse, Misaligned, PtxError
from lapidist.machine.instructions.access import address_space, offset_of
from lapidist.machine.lanes import Lanes
from lapidist.machine.memory import Address
from lapidist.machine.ptx.signatures import require_signature
from lapidist.machine.ptx.syntax_tree import Addr, Instruction, Operand

if TYPE_CHECKING:
    from lapidist.machine.state import Machine

Array = np.ndarray
MOST_ARRIVALS = (1 << 20) - 1


@dataclass(slots=True)
class MBarrier:
    """`phase` counts completed phases; `pending` arrivals and `bytes` are what the current one still waits
    for.
    """

    address: int
    expected: int
    pending: int
    bytes: int = 0
    phase: int = 0


class MBarriers:
    """All mbarriers of the resident blocks, by position in the machine's shared memory."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.table: dict[int, MBarrier] = {}
        # Per wait instruction, the barrier that it last waited for in vain: for deadlock reports.
        self.last_wait: dict[int, int] = {}

    def clear(self, slots: Array) -> None:
        """Blocks start: what their slots held before is gone."""
        gone = set(slots.tolist())
        self.table = {
            at: barrier for at, barrier in self.table.items() if at // self.m.shared_stride not in gone
        }

    def positions(self, address: Address, offset: int, site: int) -> Array:
        """Where the barriers lie, one position a lane; checked like an 8-byte access."""
        if not isinstance(address, Address) or address.space != "shared":
            raise self.m.fault(BarrierMisuse, "an mbarrier must lie in shared memory", site)
        address.find(offset, 8, site)
        if (address.low | offset) & 7:
            rule = "an mbarrier needs an address that is a multiple of 8"
            raise self.m.fault(Misaligned, rule, site, address.g, 0, address.lo + offset)
        return np.broadcast_to(address.base, (address.g.n,)) + offset

    def find(self, position: int, g: Lanes, site: int, lane: int = 0) -> MBarrier:
        barrier = self.table.get(position)
        if barrier is None:
            rule = "no mbarrier was initialised at this address"
            raise self.m.fault(BarrierMisuse, rule, site, g, lane, position % self.m.shared_stride)
        return barrier

    def init(self, address: Address, offset: int, count: Array, site: int) -> None:
        positions = self.positions(address, offset, site)
        for position, number in zip(
            positions.tolist(), np.broadcast_to(count, positions.shape).tolist(), strict=True
        ):
            if not 1 <= number <= MOST_ARRIVALS:
                rule = f"an mbarrier counts 1 to {MOST_ARRIVALS} arrivals, got {number}"
                raise self.m.fault(BarrierMisuse, rule, site, address.g)
            if position in self.table:
                self.report_again(self.table[position], address.g, site)
            self.table[position] = MBarrier(position, number, number)
        self.m.observer.mbarrier_initialised(address.g, positions, site)

    def report_again(self, barrier: MBarrier, g: Lanes, site: int) -> None:
        """Report an init of what is an mbarrier already. Where a phase is under way its arrivals are lost;
        else it breaks PTX's rule alone."""
        busy = barrier.pending != barrier.expected or barrier.bytes != 0
        state = "in the middle of a phase" if busy else "without mbarrier.inval before"
        rule = f"an mbarrier is initialised again, {state}"
        name = "barrier" if busy else "mbarrier-init-again"
        at = barrier.address % self.m.shared_stride
        self.m.report(self.m.fault(BarrierMisuse, rule, site, g, 0, at, name))

    def invalidate(self, address: Address, offset: int, site: int) -> None:
        for position in np.unique(self.positions(address, offset, site)).tolist():
            self.find(position, address.g, site)
            del self.table[position]

    def arrive(
        self,
        address: Address,
        offset: int,
        count: Array,
        expect: Array | None,
        drop: bool,
        site: int,
        released: bool = True,
    ) -> Array:
        """Lanes arrive; with `expect` the phase waits for so many bytes more. Returns the phase each arrived
        in.
        """
        positions = self.positions(address, offset, site)
        counts = np.broadcast_to(count, positions.shape).astype(np.int64)
        nbytes = np.broadcast_to(np.zeros(1) if expect is None else expect, positions.shape).astype(np.int64)
        states = np.empty(len(positions), np.uint64)
        for position in np.unique(positions).tolist():
            mine = positions == position
            barrier = self.find(position, address.g, site)
            states[mine] = barrier.phase
            barrier.bytes += int(nbytes[mine].sum())
            if released:
                self.m.observer.mbarrier_arrived(address.g, mine, barrier, site)
            arrivals = int(counts[mine].sum())
            barrier.expected -= arrivals if drop else 0
            self.take(barrier, arrivals, 0, address.g, site)
        return states

    def expect(self, address: Address, offset: int, nbytes: Array, site: int) -> None:
        positions = self.positions(address, offset, site)
        for position, more in zip(
            positions.tolist(), np.broadcast_to(nbytes, positions.shape).tolist(), strict=True
        ):
            self.find(position, address.g, site).bytes += more

    def complete(self, address: Address, offset: int, nbytes: Array, site: int) -> None:
        """Lanes report bytes themselves, as TMA does otherwise."""
        positions = self.positions(address, offset, site)
        counts = np.broadcast_to(nbytes, positions.shape).tolist()
        for lane, (position, count) in enumerate(zip(positions.tolist(), counts, strict=True)):
            self.complete_bytes(position, count, address.g, site, lane)

    def take(self, barrier: MBarrier, arrivals: int, nbytes: int, g: Lanes, site: int) -> None:
        """Arrivals or bytes come in; maybe the phase completes."""
        if arrivals > barrier.pending:
            rule = (
                f"{arrivals} arrivals at an mbarrier whose phase waits for {barrier.pending} of"
                f" {barrier.expected}"
            )
            raise self.m.fault(BarrierMisuse, rule, site, g, 0, barrier.address % self.m.shared_stride)
        barrier.pending -= arrivals
        barrier.bytes -= nbytes
        if barrier.pending == 0 and barrier.bytes == 0:
            barrier.phase += 1
            barrier.pending = barrier.expected
            self.m.events += 1
            self.m.observer.mbarrier_completed(barrier)

    def complete_bytes(self, position: int, nbytes: int, g: Lanes, site: int, lane: int = 0) -> None:
        """TMA reports bytes of what a lane ordered."""
        self.take(self.find(position, g, site, lane), 0, nbytes, g, site)

    def ready(self, address: Address, offset: int, phases: Array, parity: bool, site: int) -> Array:
        """Whether the phase is complete that a lane waits for, named by parity or by the state that arrive
        returned."""
        positions = self.positions(address, offset, site)
        phases = np.broadcast_to(phases, positions.shape)
        done = np.empty(len(positions), bool)
        for position in np.unique(positions).tolist():
            mine = positions == position
            barrier = self.find(position, address.g, site)
            phase = barrier.phase & 1 if parity else barrier.phase
            done[mine] = phases[mine] != phase
            if not done[mine].all():
                self.last_wait[site] = position
            if done[mine].any():
                self.m.observer.mbarrier_passed(address.g, mine & done, barrier, site)
        return done[:1] if done.all() else done


@opcode("mbarrier")
def emit_mbarrier(b: Builder, i: Instruction, mods: Mods) -> None:
    action = mods.choose(
        "init",
        "inval",
        "arrive",
        "arrive_drop",
        "expect_tx",
        "complete_tx",
        "test_wait",
        "try_wait",
        "pending_count",
    )
    forms: dict[str, Callable[..., None]] = {
        "init": emit_init,
        "inval": emit_inval,
        "arrive": emit_arrive,
        "arrive_drop": emit_arrive,
        "expect_tx": emit_expect,
        "complete_tx": emit_complete,
    }
    if action in ("test_wait", "try_wait"):
        emit_wait(b, i, mods, action)
        return
    if action not in forms:
        raise PtxError(f"{i.site}: mbarrier.{action} is not supported")
    expect = mods.flag("expect_tx") if action.startswith("arrive") else False
    if mods.flag("noComplete"):
        require_signature(i, "das")
    if expect:
        require_signature(i, "as", "das")
    relaxed = common_mods(mods)
    with b.guarded():
        forms[action](b, i, action.endswith("drop"), expect, relaxed)


def common_mods(mods: Mods) -> bool:
    """Scope, space and type; returns whether the arrival is relaxed."""
    relaxed = mods.flag("relaxed")
    mods.flag("release", "acquire", "cta", "cluster", "shared", "shared::cta", "shared::cluster", "b64")
    return relaxed


def barrier_address(b: Builder, operand: Operand) -> tuple[str, int]:
    """An address without a space is generic."""
    spaces = {"shared::cluster": "cluster", "shared::cta": "shared", "shared": "shared"}
    space = next((spaces[mod] for mod in b.i.mods if mod in spaces), "generic")
    return b.address(operand, address_space(b, operand, space)), offset_of(operand)


def emit_init(b: Builder, i: Instruction, *_: bool) -> None:
    address, offset = barrier_address(b, i.operands[0])
    b.line(f"m.mbarriers.init({address}, {offset}, {b.read(i.operands[1], 'u4')}, {b.index})")


def emit_inval(b: Builder, i: Instruction, *_: bool) -> None:
    address, offset = barrier_address(b, i.operands[0])
    b.line(f"m.mbarriers.invalidate({address}, {offset}, {b.index})")


def emit_expect(b: Builder, i: Instruction, *_: bool) -> None:
    address, offset = barrier_address(b, i.operands[0])
    b.line(f"m.mbarriers.expect({address}, {offset}, {b.read(i.operands[1], 'u4')}, {b.index})")


def emit_complete(b: Builder, i: Instruction, *_: bool) -> None:
    address, offset = barrier_address(b, i.operands[0])
    b.line(f"m.mbarriers.complete({address}, {offset}, {b.read(i.operands[1], 'u4')}, {b.index})")


def emit_arrive(b: Builder, i: Instruction, drop: bool, expect: bool, relaxed: bool) -> None:
    """The state operand may be missing (remote barriers) or a sink."""
    operands = i.operands if isinstance(i.operands[0], Addr) else i.operands[1:]
    address, offset = barrier_address(b, operands[0])
    one = b.program.constant(np.array([1], np.uint32))
    value = b.read(operands[1], "u4") if len(operands) > 1 else one
    count, nbytes = (one, value) if expect else (value, "None")
    text = f"m.mbarriers.arrive({address}, {offset}, {count}, {nbytes}, {drop}, {b.index}, {not relaxed})"
    if isinstance(i.operands[0], Addr):
        b.line(text)
    else:
        b.line(f"state = {text}")
        b.assign(i.operands[0], "state", "u8")


def emit_wait(b: Builder, i: Instruction, mods: Mods, action: str) -> None:
    parity = mods.flag("parity")
    common_mods(mods)
    address, offset = barrier_address(b, i.operands[1])
    phase = b.read(i.operands[2], "u4" if parity else "u8")
    ready = b.new()
    with b.guarded():
        b.line(f"{ready} = m.mbarriers.ready({address}, {offset}, {phase}, {parity}, {b.index})")
        b.assign(i.operands[0], ready, "b1")
    if action == "try_wait":
        b.result = f"m.patience({ready})"
