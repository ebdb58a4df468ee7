"""How the copies of cp.async land: those of a warp together where that is the same, else one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lapidist.machine.instructions.copies import Transfer
from lapidist.machine.lanes import Cohort, Lanes, indices
from lapidist.machine.memory import Region
from lapidist.machine.sanitize.ordered import PLAIN
from lapidist.machine.sanitize.sanitizer import Sanitizer
from lapidist.machine.sanitize.shadow import WRITTEN

Array = np.ndarray
NO_LANE = np.array([-1])
U1 = np.dtype("u1")


@dataclass(slots=True)
class PendingCopy:
    """cp.async of some lanes, or several of one size: what is to be read where, and in which of its thread's
    groups each lane's part is.
    """

    g: Lanes
    index: Array  # lanes within the cohort
    group: Array
    target: Array
    source: Array
    size: int
    source_sizes: Array
    sites: Array


class Landing:
    """`global_bytes` finds the range of global memory that a copy reads, or raises its fault."""

    def __init__(
        self, sanitizer: Sanitizer, global_bytes: Callable[[Transfer, int, int], tuple[Region, Array]]
    ) -> None:
        self.s, self.m, self.global_bytes = sanitizer, sanitizer.m, global_bytes

    def land(self, copies: Sequence[PendingCopy]) -> None:
        """Land copies of one warp, in this order."""
        if copies and self.are_disjoint(copies) and self.land_together(copies):
            return
        for copy in copies:
            for site in dict.fromkeys(copy.sites.tolist()):
                mine = copy.sites == site
                self.land_copy(copy if mine.all() else keep(copy, mine), site)

    def are_disjoint(self, copies: Sequence[PendingCopy]) -> bool:
        """Whether no two of them write to one grain."""
        starts = np.concatenate([copy.target for copy in copies])
        ends = np.concatenate([copy.target + max(copy.size, self.s.grain) for copy in copies])
        order = np.argsort(starts)
        return bool((starts[order[1:]] >= ends[order[:-1]]).all())

    # -- together --

    def land_together(self, copies: Sequence[PendingCopy]) -> bool:
        """Land copies at once, which costs NumPy as much as one of them, if they are whole or empty, and no
        check of their targets finds anything. If not, nothing has happened."""
        cohort, parts = copies[0].g.cohort, [joined(copies, size) for size in {copy.size for copy in copies}]
        rows = [self.rows_by_region(part.source, part.source_sizes, part.size) for part in parts]
        if None in rows:
            return False
        each = [max(part.size // self.s.grain, 1) for part in parts]
        grains = [self.s.shared.grains(part.target, part.size) for part in parts]
        lanes = [np.repeat(cohort.lane[part.index], n) for part, n in zip(parts, each, strict=True)]
        sites = [np.repeat(part.sites, n) for part, n in zip(parts, each, strict=True)]
        at = np.concatenate(grains)
        if not self.s.races.note_stores(cohort.first_warp, at, np.concatenate(lanes), np.concatenate(sites)):
            return False
        for part, regions in zip(parts, rows, strict=True):
            assert regions is not None
            self.copy_bytes(cohort, part, regions)
        self.s.shared.mark(at, WRITTEN)
        return True

    def copy_bytes(self, cohort: Cohort, part: PendingCopy, rows: list[tuple[Region, Array]]) -> None:
        """Do the copies of one size, whose rows come from these ranges; others are zeros."""
        octets, size = np.arange(part.size), part.size
        data = np.zeros((len(part.target), size), U1)
        for region, some in rows:
            view, origin = region.view(U1)
            data[some] = view[(part.source[some] - origin)[:, None] + octets]
            lanes = Lanes(cohort, part.index[some])
            self.note_reads(lanes, part.source[some], size, part.sites[some], region)
        self.m.shared_bytes[part.target[:, None] + octets] = data

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

    def land_copy(self, copy: PendingCopy, site: int) -> None:
        sizes, target = copy.source_sizes, copy.target
        self.m.shared_bytes[target[:, None] + np.arange(copy.size)] = 0
        for nbytes in np.unique(sizes[sizes > 0]).tolist():
            self.land_rows(copy, site, np.flatnonzero(sizes == nbytes), nbytes)
        self.s.end_landing(target, copy.size)
        self.s.touch_shared(Lanes(copy.g.cohort, copy.index), target, copy.size, site, "store")

    def land_rows(self, copy: PendingCopy, site: int, rows: Array, nbytes: int) -> None:
        """Copy the bytes of lanes that copy as many each."""
        sources, low = copy.source[rows], int(copy.source[rows].min())
        lane = Transfer(copy.g, int(rows[0]), site, (int(copy.target[rows[0]]),), nbytes, True, low)
        region, _ = self.global_bytes(lane, int(sources[0]), nbytes)
        if len(rows) > 1 and not region.start <= low <= int(sources.max()) <= region.end - nbytes:
            for row in rows:
                self.land_rows(copy, site, np.array([row]), nbytes)
            return
        view, origin = region.view(U1)
        octets = np.arange(nbytes)
        self.m.shared_bytes[copy.target[rows][:, None] + octets] = view[(sources - origin)[:, None] + octets]
        g = Lanes(copy.g.cohort, copy.index[rows])
        if not self.s.is_logged(g, sources, 0, (low, int(sources.max())), nbytes, site, NO_LANE):
            self.s.touch_global(g, sources, nbytes, site, "load", PLAIN, region, generic=False)


def keep(copy: PendingCopy, lanes: Array) -> PendingCopy:
    return PendingCopy(
        copy.g,
        copy.index[lanes],
        copy.group[lanes],
        copy.target[lanes],
        copy.source[lanes],
        copy.size,
        copy.source_sizes[lanes],
        copy.sites[lanes],
    )


def joined(copies: Sequence[PendingCopy], size: int) -> PendingCopy:
    """Those copies of a warp that have this size, as one."""
    same = [copy for copy in copies if copy.size == size]
    if len(same) == 1:
        return same[0]
    parts = zip(*((c.index, c.group, c.target, c.source, c.source_sizes, c.sites) for c in same), strict=True)
    index, group, target, source, source_sizes, sites = (np.concatenate(part) for part in parts)
    return PendingCopy(same[0].g, index, group, target, source, size, source_sizes, sites)
