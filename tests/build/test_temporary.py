"""Temporary folders in place of a cache that cannot be used: none is left behind, and none goes too early."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lapidist.build import temporary

START = """
import os, sys
from lapidist.build.folder import cache_directory
def forked(work):
    child = os.fork()
    if not child:
        work()
        os._exit(0)
    return child
"""
ENDS = {
    "one process": "cache_directory()",
    "a child": "os.waitpid(forked(cache_directory), 0)",
    "a child that ends as programs do": "os.waitpid(forked(lambda: sys.exit(not cache_directory())), 0)",
    "two children": "for child in [forked(cache_directory), forked(cache_directory)]: os.waitpid(child, 0)",
    "a parent, and a child that shares it": """
folder = cache_directory()
os.waitpid(forked(lambda: (cache_directory() / "kernel").touch()), 0)
assert [path.name for path in folder.iterdir()] == ["kernel"]
""",
    "a child whose parent has ended": """
folder = cache_directory()
reading, writing = os.pipe()
def work():
    os.close(writing)
    os.read(reading, 1)  # nothing comes, but the parent's end
    assert folder.is_dir() and cache_directory() == folder
    sys.exit()
forked(work)
""",
}
# Its processes go past atexit, and those that still run are waited for when their parent ends.
BY_MULTIPROCESSING = """
{first}
from lapidist.build.folder import cache_directory
import multiprocessing
if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    {work}
    context.Process(target=cache_directory).start()
    with context.Pool(2) as pool:
        pool.apply(cache_directory)
        pool.close()
        pool.join()
"""
PROGRAMS = {f"of {whose}": START + program for whose, program in ENDS.items()} | {
    f"of {whose}, by {method}{', imported first' if first else ''}": BY_MULTIPROCESSING.format(
        first=first, method=method, work=work
    )
    for method in ("fork", "spawn", "forkserver")
    for whose, work in {"children": "", "children and parent": "cache_directory()"}.items()
    for first in ("", "import multiprocessing.util")
}


@pytest.fixture
def place() -> Iterator[Path]:
    """For temporary folders, beside a cache in which everyone may write. multiprocessing has sockets there,
    whose paths must be short.
    """
    with tempfile.TemporaryDirectory() as above:
        for name, mode in {"cache": 0o777, "place": 0o700}.items():
            Path(above, name).mkdir()
            Path(above, name).chmod(mode)
        yield Path(above, "place")


def run(place: Path, program: str) -> str:
    """All that its processes print: who runs it waits for the last of them."""
    (place.parent / "program.py").write_text(program)
    variables = {"LAPIDIST_CACHE_DIR": str(place.parent / "cache"), "TMPDIR": str(place)}
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", place.parent / "program.py"],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


@pytest.mark.parametrize("whose", PROGRAMS)
def test_a_folder_goes_with_the_last_process(whose: str, place: Path) -> None:
    printed = run(place, PROGRAMS[whose])
    assert printed.count("is not used: others may write there") == len(printed.splitlines()) > 0
    assert list(place.iterdir()) == []


KILLED = """
import os, signal
from lapidist.build.folder import cache_directory
(cache_directory() / "kernel").touch()
if not os.fork():
    os.kill(os.getpid(), signal.SIGKILL)
os.wait()
os._exit(0)
"""
NEXT = """
import os
from lapidist.build.folder import cache_directory
folder = cache_directory()
print(*(name for name in os.listdir(folder.parent) if name != folder.name))
"""


def test_what_a_killed_process_left_goes_with_the_next_folder(place: Path) -> None:
    run(place, KILLED)
    (left,) = place.iterdir()
    assert stat.S_IMODE(left.stat().st_mode) == 0o700
    assert temporary.SUCH_NAMES.fullmatch(left.name)
    others = place / "lapidist-tests-0123", place / "lapidist-0123456789abcdef"
    others[0].mkdir()
    others[1].symlink_to(others[0])
    handle = temporary.make_locked(place / "lapidist-fedcba9876543210")  # of a process that runs
    printed = run(place, NEXT).splitlines()[-1]
    os.close(handle)
    stays = {*(path.name for path in others), "lapidist-fedcba9876543210"}
    assert {*printed.split()} == {path.name for path in place.iterdir()} == stays


def test_another_users_folder_is_not_joined(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that is another user now may have made one under the name that it shares with its parent."""
    folder = place / temporary.NAME
    folder.mkdir()
    monkeypatch.setattr(temporary.os, "geteuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(PermissionError, match=f"{folder} belongs to another user"):
        temporary.make_locked(folder)
    temporary.remove_unless_locked(folder)
    assert folder.is_dir()


def test_a_folder_that_is_being_removed_is_made_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has just removed what this one has opened."""
    folder, opened = place / temporary.NAME, temporary.opened
    removed = []

    def opened_and_removed(path: Path) -> int:
        handle = opened(path)
        if not removed:
            removed.append(path)
            path.rmdir()
        return handle

    monkeypatch.setattr(temporary, "opened", opened_and_removed)
    os.close(temporary.make_locked(folder))
    assert removed == [folder]
    assert folder.is_dir()
