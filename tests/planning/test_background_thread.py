"""What is decided behind the calls: in turn, by a thread of the process that asked, without harm to it."""

from __future__ import annotations

import logging
import os
import threading

import pytest

from lapidist.build.folder import warn_once
from lapidist.planning import background_thread

SECONDS = 60


def test_what_is_asked_for_is_done_in_turn() -> None:
    done: list[int] = []
    come = threading.Event()
    for number in range(3):
        background_thread.ask(lambda number=number: done.append(number))  # type: ignore[misc]
    background_thread.ask(come.set)
    assert come.wait(SECONDS)
    assert done == [0, 1, 2]


def test_what_goes_wrong_is_told_once_and_the_next_is_done(caplog: pytest.LogCaptureFixture) -> None:
    warn_once.cache_clear()
    come = threading.Event()
    background_thread.ask(lambda: 1 // 0)  # type: ignore[arg-type,return-value]
    background_thread.ask(lambda: 1 // 0)  # type: ignore[arg-type,return-value]
    background_thread.ask(come.set)
    assert come.wait(SECONDS)
    (line,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert "ZeroDivisionError" in line


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_a_thread_of_its_own() -> None:
    come = threading.Event()
    background_thread.ask(come.set)
    assert come.wait(SECONDS)
    child = os.fork()
    if child == 0:
        inside = threading.Event()
        background_thread.ask(inside.set)
        os._exit(0 if inside.wait(SECONDS) else 1)
    assert os.waitpid(child, 0)[1] == 0
