"""The database of measured choices, and what plans make of it; no GPU is needed to read it."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from lapidist.bench.cases import Case
from lapidist.bench.contenders import KernelContender, problem_of
from lapidist.bench.measure import TUNE
from lapidist.bench.record import Record
from lapidist.bench.tuning import Found, fastest, regret_words, sharing_of, ways_of, winner_of, worth_measuring
from lapidist.config import Config
from lapidist.device import Device, chip
from lapidist.kernels import kernel_named
from lapidist.planner import candidates
from lapidist.plans import make_plan
from lapidist.problem import Problem, dense_problem
from lapidist.sharing import PLANNED, Sharing
from lapidist.tuned import Winner, database_path, keep, look_up, problem_key

CARD = replace(chip("h200"), name="NVIDIA H200")  # as the driver calls it
SIMT = kernel_named("simt")
SMALL = Config(32, 32, 32, 16, 32, 4, 4)


@pytest.fixture(autouse=True)
def _own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("LAPIDIST_TUNED", raising=False)


def product(m: int = 1000, n: int = 700, k: int = 300, layout: str = "rr") -> Problem:
    return dense_problem(m, n, k, "float32", layout)


def a_winner(kernel: str = "simt", config: Config = SMALL, sharing: Sharing = PLANNED) -> Winner:
    return Winner(kernel, config, sharing, 5e-6, 9e-6, "2026-11-21")


def remember(problem: Problem, winner: Winner, device: Device = CARD) -> None:
    keep(device, {problem_key(problem): winner})


def test_a_kept_choice_comes_back_whole() -> None:
    winner = a_winner(sharing=Sharing(split_k=3, reduction="turnstile"))
    remember(product(), winner)
    assert look_up(product(), CARD) == (winner, "")


def test_a_plan_takes_it_and_says_so() -> None:
    modelled = make_plan(product(), CARD)
    assert (modelled.kernel.name, modelled.config) != ("simt", SMALL)
    assert "tuned" not in str(modelled)
    remember(product(), a_winner(sharing=Sharing(split_k=3, reduction="turnstile")))
    plan = make_plan(product(), CARD)
    assert (plan.kernel.name, plan.config) == ("simt", SMALL)
    assert plan.schedule is not None
    assert plan.schedule.sk_blocks == 3 * plan.schedule.sk_tiles
    assert "tuned     5 us measured on 2026-11-21 (lapidist tune); the model's own choice took 9 us" in str(plan)
    assert len(plan.considered) > 10  # what the model weighed is still told


def test_what_the_caller_chooses_stays_his() -> None:
    remember(product(), a_winner())
    assert make_plan(product(), CARD, kernel_named("sgemm")).kernel.name == "sgemm"
    assert make_plan(product(), CARD, None, None, Sharing(split_k=2)).schedule is not None
    assert make_plan(product(), CARD, None, None, Sharing("stream_k")).tuned == ""


def test_the_switch_leaves_the_file_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    remember(product(), a_winner())
    monkeypatch.setenv("LAPIDIST_TUNED", "0")
    assert look_up(product(), CARD) == (None, "")


def test_other_chips_and_the_machine_do_not_see_it() -> None:
    """The machine plays a chip by its short name: its results must not depend on what this computer measured."""
    remember(product(), a_winner())
    assert look_up(product(), chip("h200")) == (None, "")


@pytest.mark.parametrize(
    "other",
    [
        product(1001),
        product(layout="rc"),
        dense_problem(1000, 700, 300, "float16"),
        dense_problem(1000, 700, 300, "tf32"),
        replace(product(), a=replace(product().a, alignment=4)),
        replace(product(), c=product().d),
        replace(product(), accumulator="float64"),
        replace(product(), batch=(2,)),
    ],
    ids=str,
)
def test_everything_that_decides_is_in_the_key(other: Problem) -> None:
    assert problem_key(other) != problem_key(product())


def test_a_longer_step_between_lines_and_another_alpha_are_the_same_problem() -> None:
    padded = replace(product(), a=replace(product().a, row_stride=512))
    assert problem_key(padded) == problem_key(product())
    assert problem_key(replace(product(), one_alpha=not product().one_alpha)) == problem_key(product())


@pytest.mark.parametrize(
    "content",
    ["", "no JSON", "[]", "{}", '{"format": 99, "chips": {}}', '{"format": 1, "chips": {"NVIDIA H200": 3}}', "\udcff"],
)
def test_a_broken_file_is_a_warning_in_the_reasons(content: str) -> None:
    database_path().write_bytes(content.encode(errors="surrogateescape"))
    plan = make_plan(product(), CARD)
    assert "tuned.json is ignored" in plan.tuned
    assert plan.tuned in str(plan)
    remember(product(), a_winner())  # and the next measurement replaces it
    assert make_plan(product(), CARD).config == SMALL


@pytest.mark.parametrize(
    "entry",
    [
        {"kernel": "simt"},
        {"config": {"bm": 0, "bn": 32}},
        {"config": {"colour": 3}},
        {"sharing": {"schedule": "by dice"}},
        {"more": 1},
    ],
)
def test_a_broken_entry_is_ignored(entry: dict[str, object]) -> None:
    remember(product(), a_winner())
    content = json.loads(database_path().read_text())
    kept = content["chips"]["NVIDIA H200"][problem_key(product())]
    content["chips"]["NVIDIA H200"][problem_key(product())] = entry if entry == {"kernel": "simt"} else {**kept, **entry}
    database_path().write_text(json.dumps(content))
    os.utime(database_path(), ns=(1, 1))
    plan = make_plan(product(), CARD)
    assert plan.config != SMALL
    assert "is ignored" in plan.tuned


@pytest.mark.parametrize(
    "winner", [a_winner("no such kernel"), a_winner(config=Config(2048, 2048, 8)), a_winner("coalesced", Config(64, 64))]
)
def test_a_choice_that_is_refused_today_falls_back_to_the_model(winner: Winner) -> None:
    modelled = make_plan(product(), CARD)
    remember(product(), winner)
    plan = make_plan(product(), CARD)
    assert (plan.kernel, plan.config) == (modelled.kernel, modelled.config)
    assert "is refused now" in plan.tuned


def test_writers_at_once_lose_nothing() -> None:
    problems = [product(100 + index) for index in range(12)]
    threads = [threading.Thread(target=remember, args=(problem, a_winner())) for problem in problems]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(look_up(problem, CARD)[0] == a_winner() for problem in problems)
    assert sorted(path.name for path in database_path().parent.iterdir()) == ["tuned.json", "tuned.lock"]


# ---- what is measured ----


def test_the_planners_own_choice_is_measured_first() -> None:
    case = Case(512, 512, 4096, "float16")
    ways = worth_measuring(case, CARD, 24)
    own = make_plan(problem_of(case, False), CARD)
    assert (ways[0].kernel, ways[0].config) == (own.kernel, own.config)
    assert {"wgmma", "mma"} <= {way.kernel.name for way in ways if way.kernel}
    assert len({way.name for way in ways}) == len(ways) <= 24
    for way in ways:
        assert way.planned(case, CARD).config == way.config


def test_a_schedule_is_asked_for_as_it_was_weighed() -> None:
    """What is kept must not change with the model's opinion of schedules."""
    problem = dense_problem(256, 256, 8192, "float32")
    weighed = [each for each in candidates(problem, CARD, (SIMT,)) if each.schedule is not None]
    kinds = set()
    for each in weighed:
        assert each.schedule is not None
        kinds.add(each.schedule.kind)
        again = make_plan(problem, CARD, SIMT, each.config, sharing_of(each.schedule))
        assert again.schedule == each.schedule
        assert next(way.sharing for way in ways_of(each, Case(256, 256, 8192))) == sharing_of(each.schedule)
    assert "split-K" in kinds


def row(seconds: float | None, ok: bool = True) -> Record:
    case = Case(64, 64, 64)
    return Record("simt", "production", "GPU", case.math, "rrr", 64, 64, 64, seconds, None, None, None, None, ok, TUNE.mode)


def test_a_gain_within_the_noise_is_none() -> None:
    own, little, much, wrong = row(100e-6), row(99e-6), row(50e-6), row(1e-6, ok=False)
    assert fastest([own, little]) is own
    assert fastest([own, little, much]) is much
    assert fastest([own, wrong]) is own
    assert fastest([row(None, ok=False), little]) is little
    assert fastest([wrong]) is None


def test_a_winner_says_what_it_beat() -> None:
    way = KernelContender(SIMT, "float32", SMALL)
    winner = winner_of(way, row(4e-6), row(8e-6), "2026-11-21T10:00:00+00:00")
    assert winner == Winner("simt", SMALL, PLANNED, 4e-6, 8e-6, "2026-11-21")
    assert "4 us by simt; 8 us by simt, the planner's own choice" in str(Found(Case(64, 64, 64), row(8e-6), row(4e-6)))
    found = [Found(Case(64, 64, 64), row(8e-6), row(4e-6)), Found(Case(64, 64, 64), row(8e-6), None)]
    assert "took 50.0% longer than the fastest on average, 100.0% at worst" in regret_words(found)
    assert "is the fastest" in str(Found(Case(64, 64, 64), row(8e-6), None))
