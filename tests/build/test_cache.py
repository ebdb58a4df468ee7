"""The cache under attack: whatever lies in its folder, and whatever the disk refuses, a call gets its own
kernel.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cached_kernel import OTHER, SOURCE, build, code, key, names
from lapidist.backends.gpu import planned
from lapidist.build import cache, compiler, temporary
from lapidist.build import folder as cache_folder
from lapidist.build.compiler import Order
from lapidist.build.folder import cache_directory
from lapidist.build.workers import compile_all
from lapidist.device import chip
from lapidist.errors import LaunchError
from lapidist.launch import Binary, Launch
from lapidist.planning import binaries
from lapidist.planning.plans import make_plan
from lapidist.problems.problem import dense_problem

pytestmark = pytest.mark.usefixtures("told")


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
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", os.pathsep.join(["/of/an/image", "~/kernels"]))
    assert cache_folder.chosen_directory() == Path.home() / "kernels"
    monkeypatch.delenv("LAPIDIST_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_directory() == Path("/xdg/lapidist")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder.chosen_directory() == Path.home() / ".cache" / "lapidist"


def test_the_working_directory_brings_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAPIDIST_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert cache_folder.chosen_directory() == Path.home() / ".cache" / "lapidist"
    monkeypatch.setenv("HOME", ".")
    assert cache_folder.chosen_directory() is None


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
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    homeless(monkeypatch)
    monkeypatch.setattr(temporary, "make_locked", full)
    assert code(build()) == code(build())
    assert len([line for line in told() if "in memory only" in line]) == 1


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
