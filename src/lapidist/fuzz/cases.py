"""Cases by their number: drawn, filled, run and judged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from lapidist.fuzz.arenas import Arena, arena_of
from lapidist.fuzz.calls import MATRICES, Call, arguments, draw_call, perform
from lapidist.fuzz.doses import DOSES, GROUP
from lapidist.fuzz.judging import EITHER, REFUSED, WRONG, judge_error, judge_result
from lapidist.fuzz.kinds import Generator, draw_kind, one_of
from lapidist.fuzz.mistakes import mistaken
from lapidist.fuzz.values import fill

KIND, CALL = -1, -2  # of the seeds of what cases share: numbers that no case has
MISTAKEN = 0.12  # of the cases
BESIDE = 0.2  # on a stream of their own


@dataclass(frozen=True)
class Run:
    """What cases are drawn from; `frameworks`: those to draw from, each as often as it is named."""

    place: str
    seed: int
    frameworks: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    number: int
    verdict: str
    words: str = ""
    lost: bool = False  # the GPU answers this process no more


def generator(seed: int, *more: int) -> Generator:
    return np.random.default_rng([seed, *(number % 2**32 for number in more)])


def call_of(run: Run, group: int) -> Call:
    """What the cases of a group have in common."""
    rng, dose = generator(run.seed, CALL, group), DOSES[run.place]
    known = dose.kinds_at(group)
    of_kind = generator(run.seed, KIND, int(rng.integers(known)) if known else group)
    return draw_call(rng, draw_kind(of_kind, run.place, one_of(of_kind, run.frameworks)), dose, run.place)


def outcomes(run: Run, group: int, last: int) -> Iterator[Outcome]:
    """Of the cases of a group, up to number `last`. Half of the calls find their arrays where the last ones
    were.
    """
    call, plans, arena = call_of(run, group), dict[str, Any](), None
    stays = call.kind.function == "plan" or generator(run.seed, group).random() < 0.5
    for number in range(group * GROUP, min((group + 1) * GROUP, last + 1)):
        rng = generator(run.seed, number)
        changed = mistaken(rng, call, run.place) if rng.random() < MISTAKEN else None
        if changed is not None:
            # Never for the first plan: an output elsewhere may be right, and then it would be made for that.
            known = plans if plans and rng.random() < 0.5 and shows_in_a_run(call, changed) else {}
            found = outcome(
                rng, number, changed, arena_of(call.kind.framework, run.place, changed.all_views), known
            )
        else:
            arena = (
                arena
                if arena is not None and stays
                else arena_of(call.kind.framework, run.place, call.all_views)
            )
            found = outcome(rng, number, call, arena, plans)
        yield found
        if found.lost:
            return


def shows_in_a_run(call: Call, changed: Call) -> bool:
    """Whether a plan for the right call meets what is wrong: it is passed the matrices alone."""
    others = [
        {name: views for name, views in each.views.items() if name not in MATRICES}
        for each in (call, changed)
    ]
    same = repr(changed.options) == repr(call.options) and others[0] == others[1] and not changed.beyond
    return same and (changed.expected == REFUSED or (changed.expected == EITHER and not others[0]))


def outcome(rng: Generator, number: int, call: Call, arena: Arena, plans: dict[str, Any]) -> Outcome:
    """Results are fetched before anything is said: a launch that fails says so there."""
    whole = fill(rng, call, arena)
    with arena.beside() if rng.random() < BESIDE else nullcontext():
        arena.load()
        given = arguments(call, arena)
        try:
            with np.errstate(all="ignore"):
                result = perform(call, given, plans)
            after = arena.fetch()
        except Exception as error:
            untouched = unchanged(arena)
            verdict, words = judge_error(call, error, untouched is not False)
            return Outcome(number, verdict, described(verdict, words, call), untouched is None)
        verdict, words = judge_result(call, arena, given, result, after, whole)
        return Outcome(number, verdict, described(verdict, words, call))


def unchanged(arena: Arena) -> bool | None:
    """None where it cannot be fetched."""
    try:
        return bool(np.array_equal(arena.fetch(), arena.image))
    except Exception:
        return None


def described(verdict: str, words: str, call: Call) -> str:
    return f"{words}. {call}" if verdict == WRONG else ""
