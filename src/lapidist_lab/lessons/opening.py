"""How a lesson opens: on the moment that shows its rung's idea, beside the same moment of the rung before."""

from __future__ import annotations

from typing import Any

from lapidist_lab.lessons.clock import Moment
from lapidist_lab.lessons.elements import NAMES
from lapidist_lab.lessons.ideas import IDEAS, Idea
from lapidist_lab.lessons.moments import Observed, Patterns, followed_warps, moment_data, segments
from lapidist_lab.lessons.rung_pictures import registers, ring, shares
from lapidist_lab.lessons.serving import sectors_of, turns_of_words
from lapidist_lab.lessons.watch import Copy, Multiplication, Request


def opening(observed: Observed, before: Observed | None, patterns: Patterns) -> dict[str, Any] | None:
    """What the page shows first; None of a kernel that is no rung."""
    idea = IDEAS.get(observed.kernel.name)
    if idea is None:
        return None
    shown = {
        "picture": idea.picture,
        "words": idea.words,
        "question": idea.question,
        "answer": idea.answer,
        "row": idea.row,
        "needs": idea.needs,
        "place": dearest(observed, idea.moment),
        "before": None if before is None else moment_before(before, idea, patterns),
    }
    return shown | drawn(observed, before, idea)


def drawn(observed: Observed, before: Observed | None, idea: Idea) -> dict[str, Any]:
    """The data of the picture, where moments and counts do not have them already."""
    kernel, math = observed.kernel, observed.math
    if idea.picture in ("ring", "rounds"):
        stages = {"ring": ring(observed.clock, observed.elements, kernel.config_for(math).bk)}
        return stages | ({"shares": shares(False)} if idea.picture == "rounds" else {})
    if idea.picture == "shares":
        return {"shares": shares(True)}
    if idea.picture == "timeline":
        return {"rows": [one_row(rung) for rung in (before, observed) if rung is not None]}
    if idea.picture == "registers":
        banks = [registers(rung.kernel, math) for rung in (before, observed) if rung is not None]
        return {"registers": [rows for rows in banks if rows]}
    return {}


def one_row(observed: Observed) -> dict[str, Any]:
    """What the first warp that multiplies does, from the start to the end."""
    number = next(number for number, role in followed_warps(observed) if "multiplies" in role)
    warp = observed.clock.warps[number]
    shown = {"name": observed.kernel.name, "shape": observed.shape}
    return shown | {"end": round(warp.now), "segments": segments(warp)}


def moment_before(before: Observed, idea: Idea, patterns: Patterns) -> dict[str, Any] | None:
    place = dearest(before, idea.before or idea.moment)
    if place is None:
        return None
    number = followed_warps(before)[place[0]][0]
    shown = moment_data(before, before.clock.warps[number].moments[place[1]], patterns)
    return {name: value for name, value in shown.items() if name not in ("places", "site")}


def dearest(observed: Observed, pattern: str) -> list[int] | None:
    """[followed warp, moment]: of those that are pattern the one that takes most turns or sectors."""
    candidates = [
        (-cost_of(moment), place, index)
        for place, (number, _) in enumerate(followed_warps(observed))
        for index, moment in enumerate(observed.clock.warps[number].moments)
        if matches(observed, moment, pattern)
    ]
    return [*min(candidates)[1:]] if candidates else None


def matches(observed: Observed, moment: Moment, pattern: str) -> bool:
    """Whether a moment is of the kind, and of the action and the matrix as far as these are said."""
    event = moment.event
    if isinstance(event, Request):
        starts = observed.elements.starts
        numbers = event.elements[event.elements >= 0]
        matrix = NAMES[sum(int(numbers[0]) >= start for start in starts) - 1] if len(numbers) else ""
        return f"{event.space} {event.action} {matrix}".startswith(pattern)
    if isinstance(event, Copy):
        return pattern == "copy" and event.loads
    if isinstance(event, Multiplication):
        return pattern == "product"
    return pattern == f"wait {event}"


def cost_of(moment: Moment) -> int:
    """Turns, sectors, or the blocks that a copy goes to."""
    event = moment.event
    if isinstance(event, Copy):
        return event.blocks
    if not isinstance(event, Request):
        return 0
    if event.space == "global":
        return len(sectors_of(event.at, event.present, event.size))
    return int(turns_of_words(event.at, event.present, event.size, event.action == "load").max()) + 1
