"""A cache of several folders: the first ones are only read, the last one is written."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from cached_kernel import build, key
from command_line import in_a_process
from lapidist.build import cache
from lapidist.build.folder import VARIABLE, cache_directory
from lapidist.build.ownership import SHARED_WRITE_BITS
from lapidist.build.portable_files import HAS_OWNERS


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """One that is only read, and one that is written; the variable names both."""
    image, mine = tmp_path / "image", tmp_path / "mine"
    for folder in (image, mine):
        folder.mkdir(mode=0o700)
    monkeypatch.setenv(VARIABLE, os.pathsep.join(map(str, (image, mine))))
    return image, mine


def test_what_is_compiled_goes_to_the_last_folder(folders: tuple[Path, Path]) -> None:
    image, mine = folders
    build()
    assert cache_directory() == mine
    assert (mine / f"{key()}.bin").exists()
    assert list(image.iterdir()) == []


def test_the_first_folders_are_read_and_never_changed(folders: tuple[Path, Path]) -> None:
    image, mine = folders
    binary = build()
    (mine / f"{key()}.bin").rename(image / f"{key()}.bin")
    image.chmod(0o500)
    assert cache.has_any()
    found = cache.read(key(), binary.entry, binary.architecture)
    assert found is not None
    assert found.cubin == binary.cubin
    assert cache.clear(cache_directory()) == []
    assert (image / f"{key()}.bin").exists()
    assert list(mine.iterdir()) == []


def test_a_damaged_entry_of_the_first_is_read_from_the_last(folders: tuple[Path, Path]) -> None:
    image, _ = folders
    binary = build()
    (image / f"{key()}.bin").write_bytes(b"half")
    assert cache.read(key(), binary.entry, binary.architecture) is not None


def test_a_first_folder_that_others_may_write_to_is_not_read(folders: tuple[Path, Path]) -> None:
    """What lies there is executed."""
    image, mine = folders
    binary = build()
    (mine / f"{key()}.bin").rename(image / f"{key()}.bin")
    image.chmod(image.stat().st_mode | stat.S_IWOTH)
    assert cache.read(key(), binary.entry, binary.architecture) is None
    assert not cache.has_any()


def test_warm_fills_one_folder(tmp_path: Path) -> None:
    into = tmp_path / "binaries"
    words = ("warm", "--mnk", "64,64,64", "--dtype", "fp32", "--chip", "h200", "--into")
    answer = in_a_process(*words, str(into))
    assert answer.returncode == 0, answer.stderr
    assert list(into.glob("*.bin"))
    if HAS_OWNERS:  # an image is filled as root, and read by other users
        readable = stat.S_IROTH
        assert into.stat().st_mode & (readable | stat.S_IXOTH | SHARED_WRITE_BITS) == readable | stat.S_IXOTH
        assert all(
            file.stat().st_mode & (readable | SHARED_WRITE_BITS) == readable for file in into.glob("*.bin")
        )
    refused = in_a_process(*words, f"a{os.pathsep}b")
    assert refused.returncode == 2
    assert refused.stderr.startswith("lapidist: --into: must not contain")
    (tmp_path / "file").write_text("")
    refused = in_a_process(*words, str(tmp_path / "file" / "binaries"))
    assert refused.returncode == 2
    assert refused.stderr.startswith("lapidist: --into: must be a folder that can be made;")


def test_entries_of_this_user_alone_stay_so(folders: tuple[Path, Path]) -> None:
    _, mine = folders
    build()
    assert not (mine / f"{key()}.bin").stat().st_mode & 0o077
