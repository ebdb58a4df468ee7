"""Cases by their number: drawn, filled, run and judged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lapidist.fuzz.arenas import Arena, arena_of
from lapidist.fuzz.calls import Call, arguments, draw_call, perform
from lapidist.fuzz.doses import DOSES, GROUP
from lapidist.fuzz.judging import WRONG, judge_error, judge_result
from lapidist.fuzz.kinds import Generator, draw_kind, one_of
from lapidist.fuzz.mistakes import mistaken
from lapidist.fuzz.values import fill

KIND, CALL = -1, -2  # of the seeds of what cases share: numbers that no case has
MISTAKEN = 0.12  # of the cases
FIRST_KINDS = 6  # and one more for each few calls: a short run compiles little


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


def generator(seed: int, *more: int) -> Generator:
    return np.random.default_rng([seed, *(number % 2**32 for number in more)])


def call_of(run: Run, group: int) -> Call:
    """What the cases of a group have in common."""
    rng, dose = generator(run.seed, CALL, group), DOSES[run.place]
    known = min(dose.kinds, FIRST_KINDS + group // 3)
    of_kind = generator(run.seed, KIND, int(rng.integers(known)) if known else group)
    return draw_call(rng, draw_kind(of_kind, run.place, one_of(of_kind, run.frameworks)), dose, run.place)


def outcomes(run: Run, group: int, last: int) -> Iterator[Outcome]:
    """Of the cases of a group, up to number `last`. Half of the calls find their arrays where the last ones were."""
    call, plans, arena = call_of(run, group), dict[str, Any](), None
    stays = call.kind.function == "plan" or generator(run.seed, group).random() < 0.5
    for number in range(group * GROUP, min((group + 1) * GROUP, last + 1)):
        rng = generator(run.seed, number)
        changed = mistaken(rng, call, run.place) if rng.random() < MISTAKEN else None
        if changed is not None:
            yield outcome(rng, run, number, changed, arena_of(call.kind.framework, run.place, changed.all_views), {})
            continue
        arena = arena if arena is not None and stays else arena_of(call.kind.framework, run.place, call.all_views)
        yield outcome(rng, run, number, call, arena, plans)


def outcome(rng: Generator, run: Run, number: int, call: Call, arena: Arena, plans: dict[str, Any]) -> Outcome:
    whole = fill(rng, call, arena)
    arena.load()
    given = arguments(call, arena)
    try:
        with np.errstate(all="ignore"):
            result = perform(call, given, plans)
    except Exception as error:
        verdict, words = judge_error(call, error, bool(np.array_equal(arena.fetch(), arena.image)))
    else:
        verdict, words = judge_result(call, arena, given, result, arena.fetch(), whole)
    return Outcome(number, verdict, f"{words}. {call}" if verdict == WRONG else "")
