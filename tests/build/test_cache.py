"""The cache under attack: whatever lies in its folder, and whatever the disk refuses, a call gets its own
kernel.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lapidist.backends.gpu import planned
from lapidist.build import cache, compiler
from lapidist.build import folder as cache_folder
from lapidist.build.compiler import cache_key, compile_options, compile_source
from lapidist.build.folder import cache_directory
from lapidist.build.workers import Order, compile_all
from lapidist.device import chip
from lapidist.errors import ArgumentError, LaunchError
from lapidist.launch import Binary, Launch
from lapidist.planning import binaries
from lapidist.planning.plans import make_plan
from lapidist.problems.problem import dense_problem

SOURCE = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }'
OTHER = SOURCE.replace("2.0f", "3.0f")
OPTIONS = compile_options({}, "sm_90a")
DAY = 86400


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(folder))
    return folder


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """What was told since; nothing is as told before, and temporary folders are new."""
    cache_folder.warn_once.cache_clear()
    cache_folder.temporary_directory.cache_clear()
    caplog.set_level(logging.WARNING)
    yield lambda: [record.message for record in caplog.records]
    cache_folder.warn_once.cache_clear()
    cache_folder.temporary_directory.cache_clear()


def build(text: str = SOURCE) -> Binary:
    return compile_source(text, "twice", OPTIONS, "sm_90a", "twice.cu")


def code(binary: Binary) -> tuple[str, bytes]:
    return binary.ptx, binary.cubin


def key(text: str = SOURCE) -> str:
    return cache_key(text, "twice", OPTIONS)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# ---- what lies in an entry's place ----


def test_another_kernels_entry_under_this_name(folder: Path) -> None:
    """Whole, with a good digest: but it is the other's."""
    mine, others = build(), build(OTHER)
    shutil.copy(folder / f"{key(OTHER)}.bin", folder / f"{key()}.bin")
    assert code(build()) == code(mine) != code(others)


def plant_fifo(path: Path) -> None:
    os.mkfifo(path)


def plant_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def plant_link(path: Path) -> None:
    """Even to a good entry: who may write a link says what is read tomorrow."""
    path.with_suffix(".elsewhere").write_bytes(cache.encode(path.stem, replace(build(), log="planted")))
    path.unlink()
    path.symlink_to(path.with_suffix(".elsewhere"))


def plant_folder(path: Path) -> None:
    (path / "full").mkdir(parents=True)


def plant_enormous(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def plant_writable_by_all(path: Path) -> None:
    path.write_bytes(cache.encode(path.stem, replace(build(), log="planted")))
    path.chmod(0o666)


def plant_anothers(path: Path) -> None:
    path.write_bytes(cache.encode(path.stem, replace(build(), log="planted")))
    os.chown(path, 4321, 4321)


PLANTS = (plant_fifo, plant_device, plant_link, plant_folder, plant_enormous, plant_writable_by_all)
PLANTS += (plant_anothers,) if os.geteuid() == 0 else ()


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__[6:])
def test_what_is_no_entry_is_compiled_anew(plant: Callable[[Path], None], folder: Path) -> None:
    wanted = build()
    path = folder / f"{key()}.bin"
    path.unlink()
    plant(path)
    found = build()
    assert code(found) == code(wanted)
    assert found.log != "planted"
    if plant is not plant_folder:
        assert stat.S_ISREG(path.lstat().st_mode)
        assert build() == found


def sealed(body: bytes) -> bytes:
    """Under the digest that it should have."""
    return cache.FORMAT + cache.digest_of(key(), body) + body


def packed(header: object, cubin: bytes) -> bytes:
    return sealed(zlib.compress(json.dumps(header).encode() + b"\n" + cubin))


def nonsense(good: Binary) -> dict[str, bytes]:
    header = {"ptx": good.ptx, "log": good.log}
    return {
        "not packed": sealed(b"nonsense"),
        "a part": sealed(zlib.compress(b"x" * 1000)[:-5]),
        "more behind": sealed(zlib.compress(b"{}\n") + b"more"),
        "no lines": sealed(zlib.compress(b"{}")),
        "no JSON": sealed(zlib.compress(b"{\n")),
        "deep JSON": sealed(zlib.compress(b"[" * 100_000 + b"\n")),
        "no text": sealed(zlib.compress(b"\xff\xfe\n")),
        "a list": packed([], good.cubin),
        "no PTX": packed({"log": ""}, good.cubin),
        "PTX of no text": packed(header | {"ptx": 5}, good.cubin),
        "log of no text": packed(header | {"log": []}, good.cubin),
        "another entry": packed(header | {"ptx": good.ptx.replace("twice", "thrice")}, good.cubin),
        "another chip": packed(header | {"ptx": good.ptx.replace("sm_90a", "sm_80")}, good.cubin),
        "no ELF": packed(header, b"MZ" + good.cubin[2:]),
        "half an ELF": packed(header, good.cubin[: len(good.cubin) // 2]),
        "a little ELF": packed(header, good.cubin[:10]),
        "another machine": packed(header, good.cubin[:18] + b"\x3e\x00" + good.cubin[20:]),
        "another's code": packed(header, good.cubin.replace(b".text.twice", b".text.other")),
        "a bomb": sealed(zlib.compress(bytes(cache.MOST_BYTES + 1))),
    }


@pytest.mark.parametrize("what", nonsense(Binary("", "", "", b"\0" * 64, "")))
def test_nonsense_under_a_good_digest(what: str, folder: Path) -> None:
    good = build()
    path = folder / f"{key()}.bin"
    path.write_bytes(nonsense(good)[what])
    assert code(build()) == code(good)
    assert path.read_bytes().startswith(cache.FORMAT)
    assert cache.read(key(), "twice", "sm_90a") is not None


def test_what_only_the_driver_refuses(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A whole ELF may still be no kernel: it is compiled once more, and the cache has the new one."""
    plan = make_plan(dense_problem(64, 64, 64, "float32"), chip("h200"), None)
    bad = plan.binary
    (path,) = folder.glob("*.bin")
    path.write_bytes(cache.encode(path.stem, replace(bad, cubin=bad.cubin + b"nonsense")))
    binaries.forget()

    def load(launch: Launch, ordinal: int, own: object) -> Binary:
        if launch.binary.cubin.endswith(b"nonsense"):
            raise LaunchError("cuLibraryLoadData: the driver answered CUDA_ERROR_INVALID_IMAGE")
        return launch.binary

    monkeypatch.setattr(planned, "GpuKernel", load)
    assert code(planned.kernel_of(plan, 0)) == code(bad)
    assert code(plan.binary) == code(bad)
    binaries.forget()


# ---- whose folder it is ----


def open_to_all(folder: Path) -> str:
    folder.chmod(0o777)
    return "chmod go-w"


def open_to_a_group(folder: Path) -> str:
    folder.chmod(0o775)
    return "chmod go-w"


def open_above(folder: Path) -> str:
    folder.parent.chmod(0o777)
    return f"chmod o-w {folder.parent}"


def of_another(folder: Path) -> str:
    os.chown(folder, 4321, 4321)
    return f"chown -R {os.geteuid()}"


def a_file(folder: Path) -> str:
    shutil.rmtree(folder)
    folder.write_text("in the way")
    return "Move it elsewhere"


def as_tmp_is(folder: Path) -> str:
    folder.chmod(0o1777)
    return f"Make {folder}/lapidist and name that"


OPENED = (
    open_to_all,
    open_to_a_group,
    open_above,
    as_tmp_is,
    a_file,
    *((of_another,) if os.geteuid() == 0 else ()),
)


@pytest.mark.parametrize("opened", OPENED, ids=lambda opened: opened.__name__)
def test_a_folder_that_is_not_ours_alone(
    opened: Callable[[Path], str], folder: Path, told: Callable[[], list[str]]
) -> None:
    good = build()
    (path,) = folder.iterdir()
    path.write_bytes(cache.encode(path.stem, replace(good, log="planted")))
    remedy = opened(folder)
    assert [build().log != "planted" for _ in range(3)] == [True] * 3
    (line,) = told()
    assert remedy in line
    assert "LAPIDIST_CACHE_DIR" in line
    serving = cache_directory()
    assert stat.S_IMODE(serving.stat().st_mode) == 0o700
    assert path.name in names(serving)
    shutil.rmtree(serving)


def test_a_sticky_parent_and_roots_folder_are_fine(folder: Path, told: Callable[[], list[str]]) -> None:
    folder.parent.chmod(0o1777)
    build()
    assert cache_directory() == folder
    assert told() == []


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_our_own_folder_is_ours_alone(umask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a" / "b" / "cache"
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(folder))
    before = os.umask(umask)
    try:
        build()
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / f"{key()}.bin").stat().st_mode) == 0o600
    assert cache_directory() == folder


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", "/some/where")
    assert cache_directory() == Path("/some/where")
    monkeypatch.delenv("LAPIDIST_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_directory() == Path("/xdg/lapidist")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder.chosen_directory() == Path.home() / ".cache" / "lapidist"


def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("LAPIDIST_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nobody)


def test_who_has_no_home_gets_a_temporary_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    homeless(monkeypatch)
    first = build()
    serving = cache_directory()
    assert build() == first
    assert names(serving) == {f"{key()}.bin"}
    shutil.rmtree(serving)


def test_no_room_even_for_a_temporary_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, told: Callable[[], list[str]]
) -> None:
    def full(**_: object) -> str:
        raise OSError(28, "No space left on device")

    homeless(monkeypatch)
    monkeypatch.setattr(cache_folder.tempfile, "mkdtemp", full)
    assert code(build()) == code(build())
    assert len([line for line in told() if "in memory only" in line]) == 1


TEMPORARY = """
import os, sys
from pathlib import Path
from lapidist.build.folder import cache_directory
if child := os.fork():
    folder = cache_directory()
    os.waitpid(child, 0)
    assert folder.is_dir()
    print(folder)
else:
    print(cache_directory(), flush=True)  # forked: one of its own
"""


def test_a_temporary_folder_goes_with_its_process(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    folder.chmod(0o777)
    answer = subprocess.run(
        [sys.executable, "-c", TEMPORARY], capture_output=True, text=True, check=True, timeout=60
    )
    first, second = answer.stdout.split()
    assert first != second
    assert not Path(first).exists()
    assert not Path(second).exists()


def test_compilers_in_other_processes_use_the_same_temporary_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    folder.chmod(0o777)
    orders = [
        Order("ladder/02_coalesced.cu", "coalesced", {"BM": 32, "BN": 32}, name, ())
        for name in ("sm_80", "sm_90a")
    ]
    assert [answer.error for answer in compile_all(orders, 2)] == [None, None]
    assert names(cache_directory()) == {f"{compiler.key_of(*order)}.bin" for order in orders}
    assert names(folder) == set()
    shutil.rmtree(cache_directory())


def test_a_disk_that_is_read_only_is_told_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, told: Callable[[], list[str]]
) -> None:
    def refuse(*_: object, **__: object) -> tuple[int, str]:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(cache.tempfile, "mkstemp", refuse)
    for text in (SOURCE, OTHER):
        assert build(text).cubin
    (line,) = told()
    assert "Read-only file system" in line
    assert "LAPIDIST_CACHE_DIR" in line


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
    return compile_source(text, "twice", compile_options({}, "sm_90a"), "sm_90a", "twice.cu").cubin
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
