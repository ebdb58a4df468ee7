"""st.async and red.async: a store or reduction into another block of the cluster that reports its bytes to an
mbarrier there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lapidist.machine.codegen import Builder, Mods, code_of, opcode, runtime
from lapidist.machine.faults import BarrierMisuse, PtxError
from lapidist.machine.instructions.access import ATOMIC, atomic_rounds, offset_of, vector_length
from lapidist.machine.memory import Address
from lapidist.machine.ptx.syntax_tree import Instruction, Operand, Vec

Array = np.ndarray
COMPLETES = "mbarrier::complete_tx::bytes"
REDUCTIONS = ("add", "inc", "dec", "min", "max", "and", "or", "xor")


@dataclass(slots=True)
class RemoteStore:
    """What the lanes of one instruction send: `values` are neighbouring elements at `positions`, one array of
    lanes each.
    """

    address: Address
    positions: Array
    barriers: Array
    values: tuple[Array, ...]
    operation: str  # "" for a store
    site: int

    @property
    def nbytes(self) -> int:
        """Bytes that one lane sends."""
        return self.values[0].dtype.itemsize * len(self.values)

    def land(self) -> None:
        m, size = self.address.m, self.values[0].dtype.itemsize
        view = m.shared_bytes.view(self.values[0].dtype)
        for number, value in enumerate(self.values):
            elements = self.positions // size + number
            if self.operation:
                atomic_rounds(view, elements, ATOMIC[self.operation], [value])
            else:
                view[elements] = value
        m.events += 1
        for barrier in self.barriers.tolist():
            m.mbarriers.complete_bytes(barrier, self.nbytes, self.address.g, self.site)


@opcode("st.async")
def emit_store_async(b: Builder, i: Instruction, mods: Mods) -> None:
    mods.flag("weak")
    emit_remote(b, i, mods, "", vector_length(mods))


@opcode("red.async")
def emit_reduce_async(b: Builder, i: Instruction, mods: Mods) -> None:
    mods.flag("relaxed"), mods.flag("cluster")
    emit_remote(b, i, mods, mods.choose(*REDUCTIONS), 1)


def emit_remote(b: Builder, i: Instruction, mods: Mods, operation: str, count: int) -> None:
    if not mods.flag(COMPLETES):
        raise PtxError(f"{i.site}: {i.opcode}.async without .{COMPLETES} is not supported")
    mods.flag("shared::cluster")
    code = code_of(mods.type())
    target, source, barrier = i.operands
    values: tuple[Operand, ...] = source.items if isinstance(source, Vec) else (source,)
    if len(values) != count:
        raise PtxError(f"{i.site}: {count} values go with these modifiers, got {len(values)}")
    with b.guarded():
        place = f"{b.address(target, 'cluster')}, {offset_of(target)}"
        reports = f"{b.address(barrier, 'cluster')}, {offset_of(barrier)}"
        words = ", ".join(b.read(value, code) for value in values)
        b.line(f"send(m, {place}, {reports}, {operation!r}, {b.index}, {words})")


@runtime
def send(  # type: ignore[no-untyped-def]
    m,
    address: Address,
    offset: int,
    barrier: Address,
    barrier_offset: int,
    operation: str,
    site: int,
    *values: Array,
) -> None:
    g, nbytes = address.g, values[0].dtype.itemsize * len(values)
    address.find(offset, nbytes, site)
    address.check_aligned(offset, nbytes, site)
    positions = np.broadcast_to(address.base + offset, (g.n,))
    barriers = m.mbarriers.positions(barrier, barrier_offset, site)
    slots = positions // m.shared_stride
    for wrong, rule in (
        (slots != barriers // m.shared_stride, "the mbarrier must lie in the block that the bytes go to"),
        (slots == g.slot, "the bytes must go to another block of the cluster than the sender's"),
    ):
        if wrong.any():
            lane = int(np.argmax(wrong))
            raise m.fault(BarrierMisuse, rule, site, g, lane, int(positions[lane]) % m.shared_stride)
    sent = tuple(np.broadcast_to(value, (g.n,)).copy() for value in values)
    m.observer.counted(address, offset, nbytes, site, "store")
    m.copies.send(RemoteStore(address, positions, barriers, sent, operation, site))
