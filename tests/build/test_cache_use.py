"""The cache in use: threads and children at once, and what goes when it is full."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cached_kernel import DAY, OTHER, SOURCE, build, key, names
from lapidist.build import cache, compiler
from lapidist.errors import ArgumentError
from lapidist.launch import Binary

pytestmark = pytest.mark.usefixtures("told")


# ---- many at once ----


def test_threads_that_want_one_kernel_compile_it_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, together = [], threading.Barrier(8)
    run_nvrtc = compiler.run_nvrtc

    def counted(*arguments: str) -> Binary:
        compiled.append(arguments)
        return run_nvrtc(*arguments)  # type: ignore[arg-type]

    def work() -> None:
        together.wait()
        found.append(build())

    monkeypatch.setattr(compiler, "run_nvrtc", counted)
    found: list[Binary] = []
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiled) == 1
    assert len(set(found)) == 1


FORKED = """
import os, signal, sys, threading
from lapidist.build import compiler
from lapidist.build.compiler import compile_options, compile_source
def build(number):
    text = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= %d.0f; }' % number
    return compile_source(text, "twice", compile_options("sm_90a"), "sm_90a", "twice.cu").cubin
inside, run_nvrtc = threading.Event(), compiler.run_nvrtc
def watched(*arguments):
    inside.set()
    return run_nvrtc(*arguments)
compiler.run_nvrtc = watched
threads = [threading.Thread(target=build, args=(number,)) for number in range(4)]
for thread in threads: thread.start()
inside.wait()
child = os.fork()
if not child:
    signal.alarm(30)  # ends a child that hangs
    os._exit(0 if build(99) else 1)
for thread in threads: thread.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_forked_while_threads_compile_compiles_too(folder: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED], capture_output=True, text=True, timeout=120
    )
    assert answer.returncode == 0, answer.stderr


LOCKED = """
import os, sys
from lapidist.backends.gpu import workspaces
with workspaces._lock:
    child = os.fork()
    if not child:
        os._exit(0 if workspaces._lock.acquire(blocking=False) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_finds_no_lock_taken() -> None:
    """The thread that has it is not in the child."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", LOCKED], check=True, timeout=60)


# ---- what goes ----


def aged(path: Path, days: float) -> Path:
    then = time.time() - days * DAY
    os.utime(path, (then, then))
    return path


def test_use_is_written_down_once_a_day(folder: Path) -> None:
    build()
    path = folder / f"{key()}.bin"
    for days, kept in ((0.5, True), (3, False)):
        before = aged(path, days).stat().st_mtime
        build()
        assert (path.stat().st_mtime == before) is kept


def test_the_least_recently_used_go_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [SOURCE.replace("2.0f", f"{number}.0f") for number in range(4)]
    for days, text in zip((1, 5, 3), texts, strict=False):
        build(text)
        aged(folder / f"{key(text)}.bin", days)
    size = max(path.stat().st_size for path in folder.iterdir())
    monkeypatch.setenv("LAPIDIST_CACHE_BYTES", str(size * 3))
    build(texts[1])  # the oldest, but used now
    build(texts[3])
    assert names(folder) == {f"{key(text)}.bin" for text in (texts[0], texts[1], texts[3])}


def test_a_process_that_writes_much_stays_below_the_limit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts what is there when it has written its share of the room, and not for each entry."""
    binary, counted, evict = build(), [], cache.evict
    limit = 20 * max(path.stat().st_size for path in folder.iterdir())
    monkeypatch.setenv("LAPIDIST_CACHE_BYTES", str(limit))
    monkeypatch.setattr(cache, "evict", lambda *where: counted.append(where) or evict(*where))
    for number in range(40):
        cache.write(f"{number:064x}", binary)
        assert sum(path.stat().st_size for path in folder.iterdir()) <= limit
    assert len(names(folder)) >= 19
    assert len(counted) < 40


def test_a_limit_of_nothing_keeps_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAPIDIST_CACHE_BYTES", "0")
    assert build().cubin
    assert not folder.exists()


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("", 1 << 30), ("1000", 1000), ("2K", 2048), ("1.5m", 3 << 19), (" 3G ", 3 << 30), ("0", 0)],
)
def test_a_limit_with_a_suffix(text: str, nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAPIDIST_CACHE_BYTES", text)
    assert cache.limit_bytes() == nbytes


@pytest.mark.parametrize(
    "text", ["lots", "-1", "1T", "1 M", "nan", "1e9", "12MB", "٣", "K", "1_000", "9" * 400]
)
def test_a_misspelt_limit_is_told_and_the_call_goes_on(
    text: str, folder: Path, monkeypatch: pytest.MonkeyPatch, told: Callable[[], list[str]]
) -> None:
    monkeypatch.setenv("LAPIDIST_CACHE_BYTES", text)
    with pytest.raises(
        ArgumentError, match=r"^LAPIDIST_CACHE_BYTES: must be a number of bytes.*Write for example 512M"
    ):
        cache.limit_bytes()
    build(), build(OTHER)
    assert len(names(folder)) == 2
    (line,) = told()
    assert text in line


def test_old_leftovers_of_killed_writers_go(folder: Path) -> None:
    build()
    old, new, foreign = (
        folder / name for name in (f"{key()}.abc_1234.part", f"{key()}.abc_5678.part", "thesis.part")
    )
    for path in (old, new, foreign):
        path.touch()
    aged(old, 1)
    aged(foreign, 1)
    build(OTHER)
    assert names(folder) == {f"{key()}.bin", f"{key(OTHER)}.bin", new.name, foreign.name}
