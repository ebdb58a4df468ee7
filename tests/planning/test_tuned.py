"""The database of measured choices, and what plans make of it; no GPU is needed to read it."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lapidist
from lapidist.build.folder import warn_once
from lapidist.config import Config
from lapidist.device import Device, chip
from lapidist.kernels.registry import kernel_named
from lapidist.planning.planner import candidates
from lapidist.planning.plans import make_plan
from lapidist.planning.tuned import (
    MOST_BYTES,
    Winner,
    database_path,
    keep,
    look_up,
    problem_key,
    require_writable,
)
from lapidist.problems.problem import Problem, dense_problem
from lapidist.schedule.sharing_choice import PLANNED, Sharing
from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.protocol.contenders import KernelContender, problem_of
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.protocol.timing import TUNE
from lapidist_lab.bench.studies.tuning import (
    TuningResult,
    fastest,
    regret_words,
    sharing_of,
    ways_of,
    winner_of,
    worth_measuring,
)

CARD = replace(chip("h200"), name="NVIDIA H200")  # as the driver calls it
SIMT = kernel_named("simt")
ESCAPE = "\x1b]0;owned\x07\n"  # which names the window anew
SMALL = Config(32, 32, 32, 16, 32, 4, 4)


@pytest.fixture(autouse=True)
def _own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("LAPIDIST_TUNED", raising=False)
    warn_once.cache_clear()


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What the log was told since the last time. Nothing warns: pytest would make errors of warnings."""

    def lines() -> list[str]:
        found = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        caplog.clear()
        return found

    return lines


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
    assert "tuned     5 us measured on 2026-11-21 (lapidist tune); the model's own choice took 9 us" in str(
        plan
    )
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
    """The machine plays a chip by its short name: its results must not depend on what this computer
    measured.
    """
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


def test_what_was_worked_out_of_a_problem_is_no_part_of_its_key() -> None:
    used, key = product(), problem_key(product())
    make_plan(used, chip("h200"))
    assert used.facts
    assert problem_key(used) == key


def test_a_longer_step_between_lines_and_another_alpha_are_the_same_problem() -> None:
    padded = replace(product(), a=replace(product().a, row_stride=512))
    assert problem_key(padded) == problem_key(product())
    assert problem_key(replace(product(), one_alpha=not product().one_alpha)) == problem_key(product())


def test_a_folder_whose_name_would_steer_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Callable[[], list[str]]
) -> None:
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(tmp_path / ESCAPE))
    (tmp_path / ESCAPE).mkdir()
    database_path().write_text("broken")
    plan = make_plan(product(), replace(CARD, name=f"NVIDIA H200{ESCAPE}"))
    assert told() == [plan.tuned]
    assert "\N{SYMBOL FOR ESCAPE}]0;owned" in plan.tuned
    assert str(plan).replace("\n", "").isprintable()


# ---- what is none of ours ----

BROKEN = {
    "empty": "",
    "no JSON": "no JSON",
    "a list": "[]",
    "an object": "{}",
    "chips are a number": '{"format": 1, "chips": 3}',
    "a chip is a number": '{"format": 1, "chips": {"NVIDIA H200": 3}}',
    "no text": "\udcff",
    "nested deep": "[" * 100_000,
    "chips nested deep": '{"format": 1, "chips": ' + '{"a": ' * 100_000,
    "a number of a million digits": '{"format": ' + "9" * 1_000_000 + "}",
    "a fraction of a million digits": '{"format": 1.' + "9" * 1_000_000 + "}",
    "too large": " " * (MOST_BYTES + 1),
}


def set_aside() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in database_path().parent.glob("tuned.json.broken-*")}


@pytest.mark.parametrize("content", BROKEN.values(), ids=list(BROKEN))
def test_a_broken_file_is_set_aside_and_told(content: str, told: Callable[[], list[str]]) -> None:
    raw = content.encode(errors="surrogateescape")
    database_path().write_bytes(raw)
    plan = make_plan(product(), CARD)
    assert told() == [plan.tuned]
    assert re.search(r"tuned\.json is ignored: .* It is .*tuned\.json\.broken-1 now", plan.tuned)
    assert plan.tuned in str(plan)
    assert set_aside() == {"tuned.json.broken-1": raw}
    assert make_plan(product(), CARD).tuned == ""  # no word of it any more
    remember(product(), a_winner())
    assert make_plan(product(), CARD).config == SMALL


def test_what_was_set_aside_is_never_overwritten(told: Callable[[], list[str]]) -> None:
    database_path().with_name("tuned.json.broken-1").write_text("first")
    database_path().with_name("tuned.json.broken-2").symlink_to("nowhere")
    database_path().write_text("third")
    remember(product(), a_winner())
    (line,) = told()
    assert re.search(r"was not added to: .*broken-3 now", line)
    assert database_path().with_name("tuned.json.broken-1").read_text() == "first"
    assert database_path().with_name("tuned.json.broken-3").read_text() == "third"
    assert look_up(product(), CARD) == (a_winner(), "")


def test_another_versions_file_stays_until_something_is_kept(told: Callable[[], list[str]]) -> None:
    content = '{"format": 99, "chips": {}}'
    database_path().write_text(content)
    for lines in (1, 0):  # the second time nothing is told
        plan = make_plan(product(), CARD)
        assert "tuned.json is ignored: its format is 99, not 1" in plan.tuned
        assert told() == [plan.tuned] * lines
    assert database_path().read_text() == content
    remember(product(), a_winner())
    (line,) = told()
    assert "was not added to" in line
    assert set_aside() == {"tuned.json.broken-1": content.encode()}


def test_a_pipe_is_not_waited_for(told: Callable[[], list[str]]) -> None:
    os.mkfifo(database_path())
    make_plan(product(), CARD)
    os.mkfifo(database_path())
    remember(product(), a_winner())
    assert ["it is no plain file" in line for line in told()] == [True, True]
    assert look_up(product(), CARD) == (a_winner(), "")


@pytest.mark.parametrize("kind", ["link", "link to nowhere", "pipe", "folder"])
def test_a_lock_is_a_plain_file(kind: str, tmp_path: Path) -> None:
    """Who can write into the folder must not have the caller's other files opened for writing."""
    lock, elsewhere = database_path().with_suffix(".lock"), tmp_path / "elsewhere"
    if kind == "pipe":
        os.mkfifo(lock)
    elif kind == "folder":
        lock.mkdir()
    else:
        lock.symlink_to(elsewhere)
    if kind == "link":
        elsewhere.write_text("mine")
    with pytest.raises(lapidist.ArgumentError, match=r"tuned\.lock: must be a plain file.*Remove it"):
        remember(product(), a_winner())
    with pytest.raises(lapidist.ArgumentError, match="Remove it"):
        require_writable()
    assert not database_path().exists()
    assert elsewhere.exists() == (kind == "link")
    assert kind != "link" or elsewhere.read_text() == "mine"
    database_path().write_text("broken")
    assert re.search(r"it could not be set aside: .*tuned\.lock", make_plan(product(), CARD).tuned)
    assert database_path().read_text() == "broken"


@pytest.mark.parametrize(
    "entry",
    [
        3,
        {"kernel": "simt"},
        {"config": {"bm": 0, "bn": 32}},
        {"config": {"colour": 3}},
        {"config": {"bm": "32", "bn": 32}},
        {"config": [32, 32]},
        {"sharing": {"schedule": "by dice"}},
        {"sharing": {"split_k": [2]}},
        {"kernel": 3},
        {"kernel": ["simt"]},
        {"seconds": "soon"},
        {"seconds": True},
        {"seconds": float("nan")},
        {"planned_seconds": None},
        {"date": 20261121},
        {"date": "20261121"},
        {"date": "yesterday"},
        {"date": f"{ESCAPE}2026-11-21"},
        {"kernel": ESCAPE},
        {"kernel": "\udcff"},
        {"config": {"bm": ESCAPE, "bn": 32}},
        {"config": {ESCAPE: 3}},
        {"config": {"bm": 2**63, "bn": 32}},
        {"sharing": {"schedule": ESCAPE}},
        {"sharing": {"split_k": ESCAPE}},
        {"sharing": {ESCAPE: 3}},
        {"seconds": ESCAPE},
        {"seconds": 10**399},
        {"more": 1},
        {ESCAPE: 1},
        {"\u2028": 1},
    ],
    ids=lambda entry: ascii(entry)[:50],
)
def test_a_record_of_nonsense_is_ignored_and_told(entry: Any, told: Callable[[], list[str]]) -> None:
    remember(product(), a_winner())
    remember(product(1001), a_winner())
    content = json.loads(database_path().read_text())
    records = content["chips"]["NVIDIA H200"]
    whole = not isinstance(entry, dict) or entry == {"kernel": "simt"}
    records[problem_key(product())] = entry if whole else {**records[problem_key(product())], **entry}
    database_path().write_text(json.dumps(content))
    os.utime(database_path(), ns=(1, 1))
    plan = make_plan(product(), CARD)
    ending = "Run lapidist tune for that product again, or remove the record"
    for part in ("NVIDIA H200", problem_key(product()), str(database_path()), ending):
        assert part in plan.tuned
    assert plan.tuned.isprintable()
    assert str(plan).replace("\n", "").isprintable()
    assert make_plan(product(), CARD).tuned == plan.tuned
    assert told() == [plan.tuned]
    assert plan.config != SMALL
    assert make_plan(product(1001), CARD).config == SMALL  # its neighbours are right


@pytest.mark.parametrize(
    "winner",
    [
        a_winner("no such kernel"),
        a_winner(config=Config(2048, 2048, 8)),
        a_winner("coalesced", Config(64, 64)),
        a_winner("coalesced", Config(32, 32, tm=8)),
        a_winner("sgemm", Config(129, 256, 32, 64, 64, 16, 8, stages=3, producers=128)),
        a_winner("coalesced", Config(32, 32), Sharing(split_k=2)),
    ],
    ids=str,
)
def test_a_choice_that_is_refused_today_falls_back_to_the_model(
    winner: Winner, told: Callable[[], list[str]]
) -> None:
    modelled = make_plan(product(), CARD)
    remember(product(), winner)
    plan = make_plan(product(), CARD)
    assert told() == [plan.tuned]
    assert (plan.kernel, plan.config) == (modelled.kernel, modelled.config)
    assert "what measured fastest is refused now" in plan.tuned


def test_readers_and_writers_at_once_agree(told: Callable[[], list[str]]) -> None:
    """A broken file among them: it is set aside once, and nothing that was kept is."""
    database_path().write_text("broken")
    problems = [product(100 + index) for index in range(6)]
    failures: list[BaseException] = []

    def work(problem: Problem) -> None:
        try:
            look_up(problem, CARD)
            remember(problem, a_winner())
            assert look_up(problem, CARD)[0] == a_winner()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(problem,)) for problem in problems]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert all("broken-1" in line for line in told())
    assert set_aside() == {"tuned.json.broken-1": b"broken"}
    assert all(look_up(problem, CARD)[0] == a_winner() for problem in problems)


def test_processes_at_once_lose_nothing() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from test_tuned import *\n"
        "for index in range(4): remember(product(100 * int(sys.argv[2]) + index), a_winner())"
    )
    here = str(Path(__file__).parent)
    running = [subprocess.Popen([sys.executable, "-c", program, here, str(number)]) for number in (1, 2, 3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert all(
        look_up(product(100 * number + index), CARD)[0] == a_winner()
        for number in (1, 2, 3)
        for index in range(4)
    )


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


def test_what_is_measured_reaches_as_far_as_asked() -> None:
    """Some configs of each kernel are measured, whatever the model says of it."""
    case = Case(512, 512, 4096, "float16")
    near, far = (worth_measuring(case, CARD, 1000, reach) for reach in (1.1, 4.0))
    names = [way.name for way in near]
    assert names == [way.name for way in far if way.name in names]
    assert len(near) < len(far)
    assert {"wgmma", "mma"} <= {way.kernel.name for way in near if way.kernel}


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
    return Record(
        "simt",
        "production",
        "GPU",
        case.math,
        "rrr",
        64,
        64,
        64,
        seconds,
        None,
        None,
        None,
        None,
        ok,
        TUNE.mode,
    )


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
    assert "4 us by simt; 8 us by simt, the planner's own choice" in str(
        TuningResult(Case(64, 64, 64), row(8e-6), row(4e-6))
    )
    found = [
        TuningResult(Case(64, 64, 64), row(8e-6), row(4e-6)),
        TuningResult(Case(64, 64, 64), row(8e-6), None),
    ]
    assert "took 41.4% longer than the fastest in the geometric mean, 100.0% at worst" in regret_words(found)
    assert "is the fastest" in str(TuningResult(Case(64, 64, 64), row(8e-6), None))
