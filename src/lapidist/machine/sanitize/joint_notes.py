"""What warps that compute a block together loaded: checked and noted in each one's turn."""

from __future__ import annotations

from lapidist.machine.lanes import Cohort
from lapidist.machine.sanitize.held_reads import LANES, WARP, Reads
from lapidist.machine.sanitize.joint_run import JointRun
from lapidist.machine.sanitize.lazy import LazyCopies
from lapidist.machine.sanitize.ordered import PLAIN
from lapidist.machine.sanitize.sanitizer import Sanitizer
from lapidist.machine.sanitize.shadow import LANDING, WRITTEN
from lapidist.machine.sanitize.suspects import ALL_LANES, Reading


class JointNotes:
    def __init__(self, sanitizer: Sanitizer, lazy: LazyCopies) -> None:
        self.m, self.sanitizer, self.lazy = sanitizer.m, sanitizer, lazy

    def note(self, cohort: Cohort, run: JointRun, row: int) -> bool:
        """Note what a warp read, if its part holds: what it loaded is still there, and no check of a load
        finds anything."""
        warp, clocks, races = cohort.first_warp, self.sanitizer.clocks, self.sanitizer.races
        shared, written = self.sanitizer.shared, run.writes.part(row) if run.writes else None
        if run.strays != self.sanitizer.ranges.strays:
            return False
        for reads in run.reads:
            shadow = reads.shadow
            if shadow is not self.sanitizer.shared:
                if shadow.ever_written:
                    return False
                continue
            at = reads.at[row]
            changed = run.changes[row] != self.changes(cohort)
            if changed and (shared.marked[at] > run.marks).any():
                return False
            if (changed or not run.all_written) and not (shadow.state[at] == WRITTEN).all():
                return False
            near = races.near(warp)
            if shadow.racing_write(at, warp, near, clocks, PLAIN, races.scopes) >= 0:
                return False
            if shadow.racing_lane(at, warp, reads.lanes, clocks) >= 0:
                return False
        if written is not None and len(written[0]):
            at, lanes, _ = written
            if (shared.state[at] == LANDING).any() or not races.may_store(warp, at, lanes):
                return False
        if run.stores is not None and not run.stores.may_happen(self.sanitizer, warp, row):
            return False
        now = clocks.now(warp)
        if run.loads:
            clocks.touch(warp, LANES)
        for reads in run.reads:
            if reads.shadow is self.sanitizer.shared:
                self.note_shared(cohort, reads, row, now)
            else:
                reads.shadow.log_read(reads.at[row], warp, now, reads.sites, reads.lanes)
        if run.writes is not None and written is not None:
            if len(written[0]):
                self.m.wrote()
                shared.mark(written[0], WRITTEN)
                races.stored(warp, *written)
            run.writes.happen(cohort, row, self.lazy, shared)
        if run.stores is not None:
            run.stores.happen(self.sanitizer, warp, row)
        return True

    def note_shared(self, cohort: Cohort, reads: Reads, row: int, now: int) -> None:
        warp, shadow = cohort.first_warp, self.sanitizer.shared
        column, at = self.sanitizer.races.column(warp), reads.at[row]
        for some, ahead in reads.parts:
            if ahead >= 0:
                before = shadow.read[grains := at[some].reshape(WARP, -1), column]
                load = Reading(LANES, grains, column, now, before, {}, ALL_LANES, ahead)
                self.sanitizer.suspects.add(cohort.all, load)
            shadow.note_readings(at[some], column, warp, now, reads.words[some])

    def changes(self, cohort: Cohort) -> int:
        """How often shared memory of the warp's cluster was written to."""
        place = int(cohort.slot[0]) // self.sanitizer.geometry.cluster_size
        return self.sanitizer.shared.changes[place]
