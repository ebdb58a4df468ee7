"""Tensor maps that the kernel changed: TMA reads them through a proxy of its own. Whoever wrote the map
releases it to that proxy, and it is acquired before a copy goes through it.

One acquire anywhere on the way from the write to the copy is enough: a warp may acquire for others, which
then meet it at a barrier."""

from __future__ import annotations

import numpy as np

from lapidist.machine.faults import MissingProxyFence
from lapidist.machine.lanes import Lanes
from lapidist.machine.memory import Region
from lapidist.machine.sanitize.clocks import Clocks
from lapidist.machine.sanitize.ordered import warp_number
from lapidist.machine.sanitize.shadow import Shadow
from lapidist.machine.state import Machine
from lapidist.machine.tensor_map_bytes import MAP_BYTES

Array = np.ndarray


class MapFences:
    def __init__(self, m: Machine, clocks: Clocks) -> None:
        self.m, self.clocks = m, clocks
        self.released = np.zeros(clocks.warps, np.int64)  # the moment of a warp's last release
        # By the map's address: each warp that acquired it, when, and what it knew then.
        self.acquired: dict[int, dict[int, tuple[int, Array]]] = {}

    def release(self, g: Lanes) -> None:
        warp = warp_number(g)
        self.released[warp] = self.clocks.now(warp)
        self.clocks.tick(warp)

    def acquire(self, g: Lanes, addresses: Array) -> None:
        warp = warp_number(g)
        for address in np.unique(addresses).tolist():
            knew = self.clocks.now(warp), self.clocks.row(warp).vector.copy()
            self.acquired.setdefault(address, {})[warp] = knew
        self.clocks.tick(warp)

    def acquired_by(self, warp: int, address: int) -> Array:
        """What is acquired of a map for a warp: by itself, and by those that it comes after."""
        latest, vector = np.zeros(self.clocks.agents, np.int32), self.clocks.row(warp).vector
        for other, (moment, knew) in self.acquired.get(address, {}).items():
            if vector[other] > moment:
                np.maximum(latest, knew, out=latest)
        return latest

    def check(self, g: Lanes, lane: int, address: int, site: int, region: Region, shadow: Shadow) -> None:
        """Raise a fault if the map's last write is not released, or not acquired for this warp."""
        at = np.unique((address - (region.start & -16) + np.arange(MAP_BYTES)) // shadow.grain)
        writers, written = shadow.writer[at], shadow.written[at]
        latest = self.acquired_by(warp_number(g), address)
        for marked, fence in (
            (written > self.released[writers], "release"),
            (written > latest[writers], "acquire"),
        ):
            stale = marked & (written > 0)
            if stale.any():
                place = self.m.site(int(shadow.write_site[at[int(np.argmax(stale))]])).place
                rule = (
                    f"a copy through a tensor map that the kernel wrote ({place}) without"
                    f" fence.proxy.tensormap::generic.{fence} between"
                )
                self.m.report(
                    self.m.fault(MissingProxyFence, rule, site, g, lane, address, "tensor-map-fence")
                )
