"""Cases by their number: drawn, filled, run and judged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

import lapidist
from lapidist.backends.machine_backend import sanitized
from lapidist.errors import LapidistError
from lapidist_lab.fuzz.buffers import Arena, NumpyArena, arena_of
from lapidist_lab.fuzz.doses import DOSES, GROUP, TILE_DOSES, Dose
from lapidist_lab.fuzz.drawn_kinds import Generator, draw_kind, one_of
from lapidist_lab.fuzz.input_values import fill
from lapidist_lab.fuzz.judging import EITHER, REFUSED, WRONG, judge_error, judge_result
from lapidist_lab.fuzz.mistakes import mistaken
from lapidist_lab.fuzz.random_calls import MATRICES, Call, arguments, draw_call, draw_call_of, perform
from lapidist_lab.fuzz.tile_edges import draw_tile, draw_tiled_kind, extents_around

KIND, CALL = -1, -2  # of the seeds of what cases share: numbers that no case has
TRIES = 16  # kinds, and calls of a kind, that are drawn for a tile until its kernel takes one
MISTAKEN = 0.12  # of the cases
PRIVATE_STREAM = 0.2  # on a stream of their own


@dataclass(frozen=True)
class Run:
    """What cases are drawn from. `frameworks` may repeat a name; `tiles`: configs of all kernels are drawn;
    `sanitized`: the machine looks for races and missing waits."""

    place: str
    seed: int
    frameworks: tuple[str, ...]
    tiles: bool = False
    sanitized: bool = False

    @property
    def dose(self) -> Dose:
        return (TILE_DOSES if self.tiles else DOSES)[self.place]


@dataclass(frozen=True)
class Outcome:
    number: int
    verdict: str
    words: str = ""
    lost: bool = False  # the GPU answers this process no more


def generator(seed: int, *more: int) -> Generator:
    return np.random.default_rng([seed, *(number % 2**32 for number in more)])


def call_of(run: Run, group: int) -> Call:
    """The call that the cases of a group share."""
    rng, dose = generator(run.seed, CALL, group), run.dose
    kinds = dose.kinds_at(group)
    of_kind = generator(run.seed, KIND, int(rng.integers(kinds)) if kinds else group)
    framework = one_of(of_kind, run.frameworks)
    if run.tiles:
        return call_of_tile(rng, of_kind, framework, dose, run.place)
    return draw_call(rng, draw_kind(of_kind, run.place, framework), dose, run.place)


def call_of_tile(rng: Generator, of_kind: Generator, framework: str, dose: Dose, place: str) -> Call:
    """A call that the kernel takes, unless all tries are refused. The kind, which calls share, has its own
    extents."""
    tile = draw_tile(of_kind)
    for _ in range(TRIES):
        kind = draw_tiled_kind(of_kind, tile, framework)
        if has_plan(draw_call_of(of_kind, kind, extents_around(of_kind, dose, tile), dose, place)):
            break
    for _ in range(TRIES):
        call = draw_call_of(rng, kind, extents_around(rng, dose, tile), dose, place)
        if has_plan(call):
            break
    return call


def has_plan(call: Call) -> bool:
    """Whether a plan can be made, with NumPy arrays of the call's layouts."""
    arena = NumpyArena(call.all_views)
    fill(generator(0), call, arena)
    arena.load()
    passed = arguments(call, arena) | {"device": "machine"}
    a, b, c, out = (passed.pop(name, None) for name in MATRICES)
    try:
        lapidist.plan(a, b, c=c, out=out, **passed)
    except LapidistError:
        return False
    return True


def outcomes(run: Run, group: int, last: int) -> Iterator[Outcome]:
    """Outcomes of a group up to case `last`. Half of the calls reuse the memory of the case before."""
    call, plans, arena = call_of(run, group), dict[str, Any](), None
    stays = call.kind.function == "plan" or generator(run.seed, group).random() < 0.5
    for number in range(group * GROUP, min((group + 1) * GROUP, last + 1)):
        rng = generator(run.seed, number)
        mistakes = rng.random() < MISTAKEN and not call.kind.symmetric  # whose arguments are not gemm's
        changed = mistaken(rng, call, run.place) if mistakes else None
        if changed is not None:
            # Never for the first plan: an output elsewhere may be right, and then it would be made for that.
            reusable = plans if plans and rng.random() < 0.5 and shows_in_a_run(call, changed) else {}
            result = outcome(
                rng,
                run,
                number,
                changed,
                arena_of(call.kind.framework, run.place, changed.all_views),
                reusable,
            )
        else:
            arena = (
                arena
                if arena is not None and stays
                else arena_of(call.kind.framework, run.place, call.all_views)
            )
            result = outcome(rng, run, number, call, arena, plans)
        yield result
        if result.lost:
            return


def shows_in_a_run(call: Call, changed: Call) -> bool:
    """Whether a plan for the right call meets the mistake: it gets the matrices only."""
    arrays_of_plan = [
        {name: views for name, views in variant.views.items() if name not in MATRICES}
        for variant in (call, changed)
    ]
    same = (
        repr(changed.options) == repr(call.options)
        and arrays_of_plan[0] == arrays_of_plan[1]
        and not changed.beyond
    )
    return same and (changed.expected == REFUSED or (changed.expected == EITHER and not arrays_of_plan[0]))


def outcome(
    rng: Generator, run: Run, number: int, call: Call, arena: Arena, plans: dict[str, Any]
) -> Outcome:
    """Run and judge one case. Results are fetched inside: there a failed launch raises."""
    small_integers = fill(rng, call, arena)
    with arena.private_stream() if rng.random() < PRIVATE_STREAM else nullcontext():
        arena.load()
        passed = arguments(call, arena)
        try:
            with np.errstate(all="ignore"), watched(run, number):
                result = perform(call, passed, plans)
            after = arena.fetch()
        except Exception as error:
            untouched = unchanged(arena)
            verdict, words = judge_error(call, error, untouched is not False)
            return Outcome(number, verdict, described(verdict, words, call), untouched is None)
        verdict, words = judge_result(call, arena, passed, result, after, small_integers)
        return Outcome(number, verdict, described(verdict, words, call))


def watched(run: Run, number: int) -> AbstractContextManager[None]:
    """A context in which the machine is sanitized, if the run is, with a schedule of the case's own."""
    return sanitized(run.seed + number) if run.sanitized else nullcontext()


def unchanged(arena: Arena) -> bool | None:
    """Whether memory is as it was; None where it cannot be fetched."""
    try:
        return bool(np.array_equal(arena.fetch(), arena.image))
    except Exception:
        return None


def described(verdict: str, words: str, call: Call) -> str:
    return f"{words}. {call}" if verdict == WRONG else ""
