"""The asynchronous proxy: TMA and wgmma see what generic stores wrote only behind a proxy fence.

One fence.proxy.async anywhere between the write and the read is enough: before the writer's release or
after the reader's acquire."""

from __future__ import annotations

import numpy as np

from lapidist.machine.faults import MissingProxyFence
from lapidist.machine.lanes import Lanes
from lapidist.machine.memory import Region
from lapidist.machine.sanitize.clocks import GLOBAL, SHARED, Clocks
from lapidist.machine.sanitize.ordered import warp_number
from lapidist.machine.sanitize.shadow import Shadow
from lapidist.machine.state import Machine

Array = np.ndarray
OVERWRITE = "overwrite-fence"


class Proxies:
    """Looks at the last writes of shared memory, and of the ranges of global memory by their start."""

    def __init__(self, m: Machine, clocks: Clocks, shared: Shadow, globals_: dict[int, Shadow]) -> None:
        self.m, self.clocks, self.shared, self.globals = m, clocks, shared, globals_

    def check_shared(
        self, g: Lanes, lane: int, positions: Array, size: int, site: int, name: str = ""
    ) -> None:
        """Check shared memory that the asynchronous proxy is about to read, or to write: generic writes there
        need a proxy fence behind them."""
        at = self.shared.grains(positions, size)
        index = self.unfenced(self.shared, g, at, SHARED)
        if index >= 0:
            place = int(at[index])
            address = place * self.shared.grain % self.m.shared_stride
            self.m.report(self.proxy_fault(self.shared, g, lane, place, address, site, name))

    def check_global(self, g: Lanes, lane: int, positions: Array, site: int, region: Region | None) -> None:
        """Check global memory in the same way, where the kernel itself wrote it."""
        shadow = None if region is None else self.globals.get(region.start)
        if shadow is None or not shadow.ever_written:
            return
        assert region is not None
        at = (positions - (region.start & -16)) // shadow.grain
        index = self.unfenced(shadow, g, at, GLOBAL)
        if index >= 0:
            fault = self.proxy_fault(shadow, g, lane, int(at[index]), int(positions[index]), site)
            self.m.report(fault)

    def unfenced(self, shadow: Shadow, g: Lanes, at: Array, memory: int) -> int:
        """Index into `at` of a generic write with no proxy fence between it and this warp, or -1."""
        writer = shadow.writer[at]
        missing = shadow.generic[at] & (
            shadow.written[at] > self.clocks.row(warp_number(g)).proxied[memory][writer]
        )
        return int(np.argmax(missing)) if missing.any() else -1

    def proxy_fault(
        self, shadow: Shadow, g: Lanes, lane: int, grain: int, address: int, site: int, name: str = ""
    ) -> MissingProxyFence:
        where = self.m.site(int(shadow.write_site[grain])).place
        does = "overwrites" if name == OVERWRITE else "reads"
        rule = (
            f"the asynchronous proxy {does} what generic stores wrote ({where}) without fence.proxy.async"
            " between"
        )
        return self.m.fault(MissingProxyFence, rule, site, g, lane, address, name)
