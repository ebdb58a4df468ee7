"""Tensor maps that the kernel changed: TMA reads them through a proxy of its own. Whoever wrote the map
releases it to that proxy, and whoever copies through it acquires it."""

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
        # What a warp knew when it acquired the map at an address.
        self.acquired: dict[tuple[int, int], Array] = {}

    def release(self, g: Lanes) -> None:
        warp = warp_number(g)
        self.released[warp] = self.clocks.now(warp)
        self.clocks.tick(warp)

    def acquire(self, g: Lanes, addresses: Array) -> None:
        warp = warp_number(g)
        for address in np.unique(addresses).tolist():
            self.acquired[warp, address] = self.clocks.row(warp).vector.copy()
        self.clocks.tick(warp)

    def check(self, g: Lanes, lane: int, address: int, site: int, region: Region, shadow: Shadow) -> None:
        """Raise a fault if the map's last write is not released, or not acquired by this warp."""
        at = np.unique((address - (region.start & -16) + np.arange(MAP_BYTES)) // shadow.grain)
        writers, written = shadow.writer[at], shadow.written[at]
        known = self.acquired.get((warp_number(g), address), np.zeros(self.clocks.agents))
        for marked, fence in (
            (written > self.released[writers], "release"),
            (written > known[writers], "acquire"),
        ):
            stale = marked & (writers >= 0)
            if stale.any():
                place = self.m.site(int(shadow.write_site[at[int(np.argmax(stale))]])).place
                rule = (
                    f"a copy through a tensor map that the kernel wrote ({place}) without"
                    f" fence.proxy.tensormap::generic.{fence} between"
                )
                self.m.report(
                    self.m.fault(MissingProxyFence, rule, site, g, lane, address, "tensor-map-fence")
                )
