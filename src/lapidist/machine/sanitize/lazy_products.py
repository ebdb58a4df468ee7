"""wgmma done at the first wait of its warpgroup: results are NaN until a warp's own, sources are
marked as being read.

Registers pass by reference through moves, so filling the result arrays in place reaches every copy of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from lapidist.machine.faults import MissingProxyFence, Race, Uninitialised
from lapidist.machine.instructions.tensorcore import require_full_warps
from lapidist.machine.instructions.warpgroup_mma import (
    PIECE,
    PendingProduct,
    Products,
    a_positions,
    b_positions,
    compute,
)
from lapidist.machine.lanes import TRUE, Lanes
from lapidist.machine.sanitize.ordered import warp_number
from lapidist.machine.sanitize.sanitizer import Sanitizer

Array = np.ndarray


@dataclass(slots=True)
class Issued:
    """A wgmma of one warp that was not waited for. `values` are what it gives, once the warpgroup's wgmma is
    complete; `results` are the registers of D, to which they go at the warp's own wait."""

    number: int  # among the warp's wgmmas
    group: int
    p: PendingProduct
    results: list[Array]
    positions: Array
    values: list[Array] | None = None


@dataclass
class ProductQueue:
    """The wgmmas of one warp. `results` are result arrays, whose reuse as D needs no fence; `unready` those
    that nobody waited for, with their wgmma."""

    fenced: bool = False
    group: int = 0
    issued: int = 0
    pending: list[Issued] = field(default_factory=list)
    results: dict[int, Array] = field(default_factory=dict)
    unready: dict[int, Issued] = field(default_factory=dict)


class LazyProducts(Products):
    def __init__(self, sanitizer: Sanitizer) -> None:
        super().__init__(sanitizer.m)
        self.s = sanitizer
        self.queues: dict[int, ProductQueue] = {}

    def queue(self, g: Lanes) -> ProductQueue:
        return self.queues.setdefault(warp_number(g), ProductQueue())

    def issue(self, p: PendingProduct) -> list[Array]:
        require_full_warps(self.m, p.g, p.site)
        queue = self.queue(p.g)
        self.check_fence(p, queue)
        positions = self.tiles(p)
        written = self.s.products_read(p.g, positions, PIECE, p.site)
        if self.s.definedness.on or not written:
            self.s.definedness.multiplied(p, self.s.own.shared, written)
        self.s.proxies.check_shared(p.g, 0, positions, PIECE, p.site)
        self.s.begin_reading(positions, PIECE)
        floats = p.mma.kinds[0] == "f32"
        unknown = np.full(p.g.n, np.nan, "f4") if floats else np.full(p.g.n, 0x7FFF7FFF, "u4")
        results = [unknown.copy() for _ in range(p.mma.registers)]
        queue.results.update((id(array), array) for array in results)
        issued = Issued(queue.issued, queue.group, p, results, positions)
        queue.pending.append(issued)
        queue.unready.update((id(array), issued) for array in results)
        queue.issued += 1
        self.m.events += 1  # other warps of the group may wait for this one
        return results

    def check_fence(self, p: PendingProduct, queue: ProductQueue) -> None:
        """Require a wgmma.fence behind other writes to the registers of a wgmma. Sums that start anew need
        it too, for something was in their registers before."""
        fresh = [array for array in (*p.c, *p.a_registers) if id(array) not in queue.results]
        if (fresh or not p.c) and not queue.fenced:
            uses = "reads" if fresh else "writes"
            rule = (
                f"wgmma {uses} registers that other instructions used, without wgmma.fence since the last"
                " wait"
            )
            self.m.report(self.m.fault(MissingProxyFence, rule, p.site, p.g, name="wgmma-fence"))

    def tiles(self, p: PendingProduct) -> Array:
        """Positions of all pieces of B and A that a product reads."""
        second = b_positions(self.m, p, 0).reshape(-1)
        if p.a_registers:
            return second
        return np.concatenate([second, a_positions(self.m, p, 0, int(p.g.thread[0]) // 32 % 4).reshape(-1)])

    def fence(self, g: Lanes) -> None:
        self.queue(g).fenced = True

    def commit(self, g: Lanes) -> None:
        self.queue(g).group += 1

    def overwritten(self, g: Lanes, name: str, site: int) -> None:
        for p in [issued.p for issued in self.queue(g).pending]:
            if name in p.a_names:
                rule = (
                    f"{name} is written while the wgmma of {self.m.site(p.site)} may still read A from it,"
                    " without wgmma.wait_group between them"
                )
                self.m.report(self.m.fault(Race, rule, site, g))

    def used(self, g: Lanes, site: int, values: dict[str, Array]) -> None:
        queue, i = self.queue(g), self.m.program.kernel.instructions[site]
        for name, value in values.items() if queue.unready else ():
            issued = queue.unready.get(id(value if value.base is None else value.base))
            if issued is None or (i.predicate and not (values[i.predicate.name] ^ i.negated).any()):
                continue
            rule = (
                f"{name} is read while the wgmma of {self.m.site(issued.p.site)} may still write to it,"
                " without wgmma.wait_group between them"
            )
            self.m.report(self.m.fault(Uninitialised, rule, site, g))
            for array in issued.results:  # each wgmma is named once
                queue.unready.pop(id(array), None)

    def wait(self, g: Lanes, pending: int, site: int) -> Array:
        """A wgmma is one operation of four warps: it is complete when all of them have issued it, and then
        for all."""
        warp, queue = warp_number(g), self.queue(g)
        done = [issued for issued in queue.pending if issued.group < queue.group - pending]
        if done and not self.issued_by_all(warp, done[-1]):
            return np.array([False])
        for partner in self.s.warpgroups.group_of(warp):
            if partner in self.queues and not self.s.warpgroups.is_beyond(partner, g):
                self.complete(partner, done[-1].number if done else -1)
                self.s.clocks.products_done(partner, warp)
        for issued in done:
            for target, value in zip(issued.results, issued.values or [], strict=True):
                target[:] = value
                queue.unready.pop(id(target), None)
        queue.pending = queue.pending[len(done) :]
        queue.fenced = False
        return TRUE

    def issued_by_all(self, warp: int, last: Issued) -> bool:
        """Whether the other warps of the group have issued a wgmma as well. One that never will is
        reported."""
        for partner in self.s.warpgroups.group_of(warp):
            other = self.queues.get(partner)
            if other is not None and other.issued > last.number:
                continue
            if not (self.m.impatient or self.s.warpgroups.is_gone(partner, last.p.g)):
                return False
            self.s.warpgroups.report_partner(warp, partner, last.p.site)
        return True

    def complete(self, warp: int, last: int) -> None:
        """Multiply what a warp issued, up to a number. A wgmma adds to what the one before it gives, though
        the registers of D do not show it yet."""
        sums: dict[int, Array] = {}
        for issued in self.queues[warp].pending:
            if issued.number <= last and issued.values is None:
                self.s.end_reading(issued.positions, PIECE)
                self.s.products_read(issued.p.g, issued.positions, PIECE, issued.p.site)
                # a register of bits holds a view of the result
                c = [sums.get(id(x if x.base is None else x.base), x).view(x.dtype) for x in issued.p.c]
                issued.values = compute(self.m, replace(issued.p, c=c))
            for target, value in zip(issued.results, issued.values or [], strict=False):
                sums[id(target)] = value
