"""wgmma done at its wait: results are NaN until then, sources are marked as being read.

Registers pass by reference through moves, so filling the result arrays in place reaches every copy of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lapidist.machine.faults import MissingProxyFence, Race
from lapidist.machine.instructions.tensorcore import require_full_warps
from lapidist.machine.instructions.warpgroup_mma import (
    PIECE,
    PendingProduct,
    Products,
    a_positions,
    b_positions,
    compute,
)
from lapidist.machine.lanes import Lanes
from lapidist.machine.sanitize.ordered import warp_number
from lapidist.machine.sanitize.sanitizer import Sanitizer

Array = np.ndarray


@dataclass
class ProductQueue:
    """The wgmmas of one warp. `results` are result arrays, whose reuse as D needs no fence."""

    fenced: bool = False
    group: int = 0
    pending: list[tuple[int, PendingProduct, list[Array], Array]] = field(default_factory=list)
    results: dict[int, Array] = field(default_factory=dict)


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
        self.s.unset.check_products(p)
        positions = self.tiles(p)
        self.s.products_read(p.g, positions, PIECE, p.site)
        self.s.proxies.check_shared(p.g, 0, positions, PIECE, p.site)
        self.s.begin_reading(positions, PIECE)
        extents = (p.mma.registers, p.g.n)
        results = list(
            np.full(extents, np.nan, "f4") if p.mma.kinds[0] == "f32" else np.full(extents, 0x7FFF7FFF, "u4")
        )
        queue.results.update((id(array), array) for array in results)
        queue.pending.append((queue.group, p, results, positions))
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
        for _, p, _, _ in self.queue(g).pending:
            if name in p.a_names:
                rule = (
                    f"{name} is written while the wgmma of {self.m.site(p.site)} may still read A from it,"
                    " without wgmma.wait_group between them"
                )
                self.m.report(self.m.fault(Race, rule, site, g))

    def wait(self, g: Lanes, pending: int) -> None:
        queue = self.queue(g)
        unfinished = []
        for entry in queue.pending:
            group, p, results, positions = entry
            if group >= queue.group - pending:
                unfinished.append(entry)
                continue
            self.s.end_reading(positions, PIECE)
            self.s.products_read(p.g, positions, PIECE, p.site)
            for target, value in zip(results, compute(self.m, p), strict=True):
                target[:] = value
        queue.pending = unfinished
        queue.fenced = False
        self.s.clocks.products_done(warp_number(g))
