"""Which part of a schedule takes how much of its CPU time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import process_time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lapidist.machine.lanes import Cohort, Lanes
    from lapidist.machine.sanitize.joint_runs import JointRuns

CHECKS = "checks and notes"  # of what was computed together, and barriers
TOGETHER = "computed together"
ALONE = "quiet, alone"  # quiet blocks of code that a warp runs by itself
LOUD = "not quiet"
PARTED = "parted lanes"
CHOICE = "next warp"  # its choice
REMAINDER = "the rest"
PARTS = (CHECKS, TOGETHER, ALONE, LOUD, PARTED, CHOICE, REMAINDER)


class Stopwatch:
    """CPU seconds by part, read where the scheduler chooses a warp, lets it take a step, and computes ahead
    for others."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self.part = REMAINDER  # of the step that is under way

    def around(self, function: Callable[..., Any], name: Callable[[], str]) -> Callable[..., Any]:
        """The function, whose seconds count for a part, without those that parts inside of it counted."""

        def timed(*arguments: Any) -> Any:
            start, before = process_time(), sum(self.seconds.values())
            answer = function(*arguments)
            inside = sum(self.seconds.values()) - before
            self.seconds[name()] += process_time() - start - inside
            return answer

        return timed

    def named(self, turn: Callable[..., Any]) -> Callable[..., Any]:
        """The question whether a block was computed with others, of which the answer names the part."""

        def classified(joint: JointRuns, cohort: Cohort, number: int, lanes: Lanes) -> Any:
            answer = turn(joint, cohort, number, lanes)
            by_itself = LOUD if number not in joint.quiet else ALONE
            self.part = CHECKS if answer else PARTED if lanes.index is not None else by_itself
            return answer

        return classified

    def shares(self, seconds: float) -> dict[str, float]:
        """Shares of a schedule of so many seconds, in the order of PARTS."""
        self.seconds[REMAINDER] += seconds - sum(self.seconds.values())
        return {part: self.seconds[part] / seconds for part in PARTS}


@contextmanager
def watched() -> Iterator[Stopwatch]:
    """A stopwatch over all schedules that run meanwhile."""
    from lapidist.machine.sanitize.joint_runs import JointRuns
    from lapidist.machine.sanitize.random_orders import FuzzedScheduler

    watch = Stopwatch()
    watches: list[tuple[type, str, Callable[[Callable[..., Any]], Callable[..., Any]]]] = [
        (FuzzedScheduler, "choose", lambda function: watch.around(function, lambda: CHOICE)),
        (FuzzedScheduler, "step", lambda function: watch.around(function, lambda: watch.part)),
        (JointRuns, "compute", lambda function: watch.around(function, lambda: TOGETHER)),
        (JointRuns, "turn", watch.named),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in watches]
    try:
        for owner, name, wrap in watches:
            setattr(owner, name, wrap(getattr(owner, name)))
        yield watch
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)
