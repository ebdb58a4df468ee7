"""How the copies of cp.async land: those of a warp together where that is the same, else one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lapidist.machine.instructions.copies import Transfer
from lapidist.machine.lanes import Lanes, indices
from lapidist.machine.memory import Region
from lapidist.machine.sanitize.ordered import PLAIN
from lapidist.machine.sanitize.sanitizer import Sanitizer

Array = np.ndarray
NO_LANE = np.array([-1])
U1 = np.dtype("u1")


@dataclass(slots=True)
class PendingCopy:
    """One cp.async of some lanes: what is to be read where, and in which of its thread's groups grains lane's
    part is.
    """

    g: Lanes
    index: Array  # lanes within the cohort
    group: Array
    target: Array
    source: Array
    size: int
    source_sizes: Array
    site: int


class Landing:
    """`global_bytes` finds the range of global memory that a copy reads, or raises its fault."""

    def __init__(
        self, sanitizer: Sanitizer, global_bytes: Callable[[Transfer, int, int], tuple[Region, Array]]
    ) -> None:
        self.s, self.m, self.global_bytes = sanitizer, sanitizer.m, global_bytes

    def land(self, copies: Sequence[PendingCopy]) -> None:
        """Land copies of one warp, in this order."""
        disjoint = len(copies) > 1 and self.are_disjoint(copies)
        for size in {copy.size: None for copy in copies} if disjoint else ():
            of_size = [copy for copy in copies if copy.size == size]
            if self.land_together(of_size):
                copies = [copy for copy in copies if copy.size != size]
        for copy in copies:
            self.land_copy(copy)

    def are_disjoint(self, copies: Sequence[PendingCopy]) -> bool:
        """Whether no two of them write to one grain."""
        starts = np.concatenate([copy.target for copy in copies])
        ends = np.concatenate([copy.target + max(copy.size, self.s.grain) for copy in copies])
        order = np.argsort(starts)
        return bool((starts[order[1:]] >= ends[order[:-1]]).all())

    # -- together --

    def land_together(self, copies: Sequence[PendingCopy]) -> bool:
        """Land copies of one size at once, which costs NumPy as much as one of them, if they are whole or
        empty, and no check of their targets finds anything. If not, nothing has happened."""
        size, index = copies[0].size, np.concatenate([copy.index for copy in copies])
        target, source, sizes = (
            np.concatenate([getattr(copy, name) for copy in copies])
            for name in ("target", "source", "source_sizes")
        )
        sites = np.concatenate([np.full(len(copy.index), copy.site, np.int32) for copy in copies])
        rows, g = self.rows_by_region(source, sizes, size), Lanes(copies[0].g.cohort, index)
        if rows is None or not self.s.races.note_stores(g, self.s.shared.grains(target, size), sites):
            return False
        data = np.zeros((len(target), size), U1)
        for region, some in rows:
            view, origin = region.view(U1)
            data[some] = view[(source[some] - origin)[:, None] + np.arange(size)]
            self.note_reads(Lanes(g.cohort, index[some]), source[some], size, sites[some], region)
        self.m.shared_bytes[target[:, None] + np.arange(size)] = data
        self.s.end_landing(target, size)
        return True

    def rows_by_region(self, source: Array, sizes: Array, size: int) -> list[tuple[Region, Array]] | None:
        """What is copied, by the range that it comes from; None if some is outside all, or copied in part."""
        if not ((sizes == size) | (sizes == 0)).all():
            return None
        remaining, parts = np.flatnonzero(sizes), list[tuple[Region, Array]]()
        while len(remaining):
            region = self.m.globals.find(int(source[remaining[0]]))
            if region is None:
                return None
            inside = (source[remaining] >= region.start) & (source[remaining] <= region.end - size)
            if not inside[0]:
                return None
            parts.append((region, remaining[inside]))
            remaining = remaining[~inside]
        return parts

    def note_reads(self, g: Lanes, source: Array, size: int, sites: Array, region: Region) -> None:
        """Note the global side, as if copy by copy."""
        ends, grains = (int(source.min()), int(source.max())), max(size // self.s.grain, 1)
        if self.s.is_logged(g, source, 0, ends, size, np.repeat(sites, grains), NO_LANE):
            return
        for site in dict.fromkeys(sites.tolist()):
            mine = np.flatnonzero(sites == site)
            lanes = Lanes(g.cohort, indices(g)[mine])
            self.s.touch_global(lanes, source[mine], size, site, "load", PLAIN, region, generic=False)

    # -- one by one --

    def land_copy(self, copy: PendingCopy) -> None:
        sizes, target = copy.source_sizes, copy.target
        self.m.shared_bytes[target[:, None] + np.arange(copy.size)] = 0
        for nbytes in np.unique(sizes[sizes > 0]).tolist():
            self.land_rows(copy, np.flatnonzero(sizes == nbytes), nbytes)
        self.s.end_landing(target, copy.size)
        self.s.touch_shared(Lanes(copy.g.cohort, copy.index), target, copy.size, copy.site, "store")

    def land_rows(self, copy: PendingCopy, rows: Array, nbytes: int) -> None:
        """Copy the bytes of lanes that copy as many each."""
        sources, low = copy.source[rows], int(copy.source[rows].min())
        lane = Transfer(copy.g, int(rows[0]), copy.site, (int(copy.target[rows[0]]),), nbytes, True, low)
        region, _ = self.global_bytes(lane, int(sources[0]), nbytes)
        if len(rows) > 1 and not region.start <= low <= int(sources.max()) <= region.end - nbytes:
            for row in rows:
                self.land_rows(copy, np.array([row]), nbytes)
            return
        view, origin = region.view(U1)
        octets = np.arange(nbytes)
        self.m.shared_bytes[copy.target[rows][:, None] + octets] = view[(sources - origin)[:, None] + octets]
        g = Lanes(copy.g.cohort, copy.index[rows])
        if not self.s.is_logged(g, sources, 0, (low, int(sources.max())), nbytes, copy.site, NO_LANE):
            self.s.touch_global(g, sources, nbytes, copy.site, "load", PLAIN, region, generic=False)


def keep(copy: PendingCopy, lanes: Array) -> PendingCopy:
    return PendingCopy(
        copy.g,
        copy.index[lanes],
        copy.group[lanes],
        copy.target[lanes],
        copy.source[lanes],
        copy.size,
        copy.source_sizes[lanes],
        copy.site,
    )
