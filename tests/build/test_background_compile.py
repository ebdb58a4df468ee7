"""Compilers behind the calls: what they make, that nobody is asked twice, and what may go wrong."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lapidist.build import background_compile
from lapidist.build.cache import read
from lapidist.build.compile_policy import BACKGROUND, NEVER, VARIABLE, WAIT, kept_way, way_of
from lapidist.build.compiler import Order, key_of
from lapidist.build.folder import VARIABLE as FOLDER
from lapidist.build.folder import warn_once
from lapidist.build.workers import Answer
from lapidist.launch import Binary

SECONDS = 120  # that a compiler may take where many tests run at once


def order(bm: int = 32) -> Order:
    defines = {"T": "float", "ALIGNED": 1, "BM": bm, "BN": 32}
    return Order("ladder/02_coalesced.cu", "coalesced", defines, "sm_90a", ())


class Waited:
    """For what a thread brings."""

    def __init__(self) -> None:
        self.binary: Binary | None = None
        self._event = threading.Event()

    def __call__(self, binary: Binary) -> None:
        self.binary = binary
        self._event.set()

    def __enter__(self) -> Waited:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._event.wait(SECONDS)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[background_compile.Behind]:
    """Compilers of this test alone, an empty cache, and lines that were not told yet."""
    monkeypatch.setenv(FOLDER, str(tmp_path / "cache"))
    warn_once.cache_clear()
    found = background_compile.Behind()
    monkeypatch.setattr(background_compile, "_behind", found)
    yield found
    found.stop()


def ended(own: background_compile.Behind, asked: Order) -> None:
    """Until it has come, or failed."""
    while own.is_under_way(asked):
        os.sched_yield()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_what_is_asked_for_comes_and_is_kept(own: background_compile.Behind) -> None:
    with Waited() as first:
        assert background_compile.ask(order(), first)
    assert first.binary is not None
    assert first.binary.cubin
    assert read(key_of(*order()), "coalesced", "sm_90a") == first.binary
    with Waited() as second:
        assert background_compile.ask(order(16), second)
    assert second.binary != first.binary


def test_nobody_is_asked_twice(own: background_compile.Behind, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Order] = []
    gate = threading.Event()

    def answer(worker: object, wanted: Order) -> Answer:
        asked.append(wanted)
        gate.wait(SECONDS)
        return Answer(0.0, "not this time")

    monkeypatch.setattr(background_compile, "compile_in", answer)
    assert all(background_compile.ask(order(), Waited()) for _ in range(5))
    assert background_compile.is_under_way(order())
    gate.set()
    ended(own, order())
    assert not background_compile.ask(order(), Waited())
    assert asked == [order()]


def test_a_compiler_is_of_low_priority(own: background_compile.Behind) -> None:
    with Waited() as waited:
        background_compile.ask(order(), waited)
    (worker,) = own._workers
    assert os.getpriority(os.PRIO_PROCESS, worker.popen.pid) == 19


def test_an_idle_compiler_serves_before_another_starts(
    own: background_compile.Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_compile, "most_compilers", lambda: 4)
    for bm in (8, 16):
        with Waited() as waited:
            background_compile.ask(order(bm), waited)
        ended(own, order(bm))
    assert len(own._threads) == 1


def test_orders_that_come_together_are_shared_by_compilers(
    own: background_compile.Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_compile, "most_compilers", lambda: 2)
    monkeypatch.setattr(background_compile, "compile_in", lambda worker, wanted: Answer(0.0, "not this time"))
    held = threading.Event()
    monkeypatch.setattr(own, "_ahead", lambda: held.wait(SECONDS) and None)
    for bm in (8, 16, 24):
        background_compile.ask(order(bm), Waited())
    assert len(own._threads) == 2
    held.set()


def test_a_compiler_that_was_made_ready_takes_the_first_order(own: background_compile.Behind) -> None:
    background_compile.be_ready()
    background_compile.be_ready()
    with Waited() as waited:
        background_compile.ask(order(), waited)
    assert waited.binary is not None
    assert len(own._threads) == len(own._workers) == 1


# ---- what may go wrong: one line says why, and nothing is raised ----


def test_a_kernel_that_is_refused(own: background_compile.Behind, caplog: pytest.LogCaptureFixture) -> None:
    wrong = order()._replace(defines={"T": "nonsense"})
    assert background_compile.ask(wrong, Waited())
    ended(own, wrong)
    (line,) = warnings(caplog)
    assert "NVRTC" in line
    assert background_compile.GO_ON in line


def leave(connection: object) -> None:
    raise SystemExit(7)


def test_compilers_that_die(
    own: background_compile.Behind, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_compile, "make_calls", leave)
    for bm in (8, 16, 24, 32, 40):
        background_compile.ask(order(bm), Waited())
        ended(own, order(bm))
    assert len(own._under_way) == 5
    assert not background_compile.ask(order(48), Waited())
    (line,) = warnings(caplog)
    assert "process ended (7)" in line


def test_a_compiler_that_was_killed_has_a_successor(own: background_compile.Behind) -> None:
    with Waited() as first:
        background_compile.ask(order(), first)
    (worker,) = own._workers
    worker.popen.kill()
    worker.popen.wait()
    with Waited() as second:
        assert background_compile.ask(order(16), second)
    assert second.binary is not None


def test_a_disk_that_is_full(
    own: background_compile.Behind, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_compile, "compile_in", lambda worker, wanted: Answer(0.1, None))
    assert background_compile.ask(order(), Waited())
    ended(own, order())
    (line,) = warnings(caplog)
    assert "could not be kept in" in line


def test_nothing_is_started_where_memory_is_short(
    own: background_compile.Behind, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_compile, "free_bytes", lambda: 300 << 20)
    background_compile.be_ready()
    assert not background_compile.ask(order(), Waited())
    assert not own._workers
    (line,) = warnings(caplog)
    assert "300 MiB of memory are free" in line


def test_nothing_is_started_where_nothing_is_kept(
    own: background_compile.Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAPIDIST_CACHE_BYTES", "0")
    assert not background_compile.ask(order(), Waited())
    assert not own._workers


def test_the_free_memory_is_some_of_this_computers() -> None:
    free = background_compile.free_bytes()
    assert free is None or 0 < free < 1 << 50


FORKED = """
import os, threading
from lapidist.build import background_compile
from lapidist.build.compiler import Order

def made(bm):
    come = threading.Event()
    defines = {"T": "float", "ALIGNED": 1, "BM": bm, "BN": 32}
    order = Order("ladder/02_coalesced.cu", "coalesced", defines, "sm_90a", ())
    assert background_compile.ask(order, lambda binary: come.set())
    assert come.wait(120)

made(32)
parents = background_compile._behind
(worker,) = parents._workers
child = os.fork()
made(16 if child == 0 else 24)  # by a compiler of its own; by the one that was there
if child == 0:
    assert background_compile._behind is not parents and worker not in background_compile._behind._workers
    raise SystemExit
assert os.waitpid(child, 0)[1] == 0
made(8)
assert background_compile._behind._workers == {worker} and worker.popen.poll() is None
"""


def test_a_child_leaves_its_parents_compilers_alone(tmp_path: Path) -> None:
    in_a_process(FORKED, tmp_path)


SCRIPT = """
from lapidist.build import background_compile
from lapidist.build.compiler import Order
from lapidist.kernels.registry import kernel_named
from lapidist_lab.sass.analysis import sample_problem
mma = kernel_named("mma")
values = mma.macros(sample_problem(mma, "float16"), mma.config)
background_compile.ask(Order("gemm/mma.cu", "mma", values, "sm_90a", ()), print)
while not background_compile._behind._workers:
    pass
print(next(iter(background_compile._behind._workers)).popen.pid)
"""


def in_a_process(script: str, folder: Path) -> str:
    found = {**os.environ, FOLDER: str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script]
    ran = subprocess.run(command, env=found, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def test_compilers_end_with_the_interpreter(tmp_path: Path) -> None:
    worker = int(in_a_process(SCRIPT, tmp_path))
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


# ---- what is asked for ----


def test_the_way_is_the_callers_or_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert way_of(None) == BACKGROUND
    assert kept_way(None) == WAIT
    monkeypatch.setenv(VARIABLE, " Never ")
    assert way_of(None) == kept_way(None) == NEVER
    assert way_of(WAIT) == WAIT


def test_a_misspelt_way_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    warn_once.cache_clear()
    monkeypatch.setenv(VARIABLE, "backgruond")
    assert [way_of(None), way_of(None)] == [BACKGROUND, BACKGROUND]
    (line,) = warnings(caplog)
    assert "'backgruond'" in line
    assert "background, wait, never" in line
