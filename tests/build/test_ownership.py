"""Whose a cache is: also where links lead to it, and who may change the way."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cached_kernel import build, code, key, names
from lapidist.build.folder import cache_directory
from lapidist.build.ownership import MOST_LINKS, objection

OTHER, NOBODY = 12345, 65534
Give = Callable[[Path, int], None]


@pytest.fixture
def give(monkeypatch: pytest.MonkeyPatch) -> Give:
    """Make another user the owner of a folder or a link; who is not root has the system say so."""
    owners: dict[str, int] = {}
    stat, lstat = os.stat, os.lstat

    def owned(found: os.stat_result, path: str) -> os.stat_result:
        return os.stat_result([*found[:4], owners.get(path, found.st_uid), *found[5:]])

    def change(path: Path, owner: int) -> None:
        if os.geteuid() == 0 and path != Path("/"):
            os.lchown(path, owner, owner)
            return
        owners[str(path)] = owner
        monkeypatch.setattr(os, "lstat", lambda path: owned(lstat(path), str(path)))
        monkeypatch.setattr(os, "stat", lambda path, **how: owned(stat(path, **how), os.path.realpath(path)))

    return change


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user looks for it: nothing is there yet. Another user's folder is `other` beside it."""
    for name in ("own", "other"):
        (tmp_path / name).mkdir(mode=0o755)
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(tmp_path / "own" / "cache"))
    return tmp_path / "own" / "cache"


def test_a_link_to_a_folder_of_ones_own(cache: Path) -> None:
    cache.parent.joinpath("disk").mkdir(mode=0o700)
    cache.parent.joinpath("link").symlink_to("../own/disk")
    cache.symlink_to("link")
    assert objection(cache) is None
    assert code(build()) == code(build())
    assert cache_directory() == cache
    assert names(cache.parent / "disk") == {f"{key()}.bin"}


def test_a_link_to_another_users_folder(cache: Path, tmp_path: Path, give: Give) -> None:
    cache.symlink_to(tmp_path / "other")
    give(tmp_path / "other", OTHER)
    assert objection(cache) == (
        f"{cache} is not used: it belongs to user {OTHER}. Run chown -R {os.geteuid()} {cache}"
    )


def reached_through(step: Path) -> str:
    whose = f"it is reached through {step}, which belongs to user {OTHER}"
    return f" is not used: {whose}. Make one where all folders above are yours or root's"


def test_a_link_into_another_users_folder(cache: Path, tmp_path: Path, give: Give) -> None:
    """What lies there is ours, as long as the other user wants it to."""
    (tmp_path / "other" / "ours").mkdir(mode=0o700)
    cache.symlink_to("../other/ours")
    give(tmp_path / "other", OTHER)
    assert objection(cache) == f"{cache}{reached_through(tmp_path / 'other')}"


def test_a_folder_that_is_not_there_yet_in_another_users(cache: Path, tmp_path: Path, give: Give) -> None:
    cache.symlink_to(tmp_path / "other" / "later")
    give(tmp_path / "other", OTHER)
    assert objection(cache) == f"{cache}{reached_through(tmp_path / 'other')}"


def test_links_that_lead_back_through_another_users_folder(cache: Path, tmp_path: Path, give: Give) -> None:
    cache.parent.joinpath("disk").mkdir(mode=0o700)
    (tmp_path / "other" / "back").symlink_to("../own")
    cache.symlink_to("../other/back/disk")
    give(tmp_path / "other", OTHER)
    assert objection(cache) == f"{cache}{reached_through(tmp_path / 'other')}"


def test_another_users_link(cache: Path, tmp_path: Path, give: Give) -> None:
    """In /tmp, say: it may lead elsewhere tomorrow."""
    cache.mkdir(mode=0o700)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    link = tmp_path / "shared" / "link"
    link.symlink_to(cache)
    give(link, OTHER)
    assert objection(link) == f"{link}{reached_through(link)}"


def test_a_relative_folder(cache: Path, tmp_path: Path, give: Give, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other" / "cache").mkdir(mode=0o700)
    monkeypatch.chdir(tmp_path / "other")
    assert objection(Path("cache")) is None
    give(tmp_path / "other", OTHER)
    assert objection(Path("cache")) == f"cache{reached_through(tmp_path / 'other')}"


def test_folders_far_above(cache: Path, tmp_path: Path) -> None:
    (cache / "a" / "b").mkdir(mode=0o700, parents=True)
    tmp_path.chmod(0o777)
    for folder in (cache / "a" / "b", cache / "a" / "none", cache / "none" / "none"):
        words = f"everyone may put another in its place. Run chmod o-w {tmp_path}"
        assert objection(folder) == f"{folder} is not used: {words}"
    tmp_path.chmod(0o1777)
    assert objection(cache / "a" / "b") is None
    tmp_path.chmod(0o775)  # of a group of one's own, as some systems give out
    assert objection(cache / "a" / "b") is None


def test_the_owner_of_the_root_folder_is_trusted(cache: Path, tmp_path: Path, give: Give) -> None:
    """A container that maps users shows root as another, whose are all folders above the user's."""
    cache.mkdir(mode=0o700)
    give(tmp_path, NOBODY)
    assert objection(cache) is not None
    give(Path("/"), NOBODY)
    assert objection(cache) is None


def test_links_that_lead_nowhere(cache: Path) -> None:
    cache.symlink_to(cache)
    assert objection(cache) is None
    assert code(build()) == code(build())  # and is not kept
    for number in range(MOST_LINKS + 2):
        cache.parent.joinpath(str(number)).symlink_to(str(number + 1))
    assert objection(cache.parent / "0") is None
