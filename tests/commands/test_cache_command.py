"""`lapidist cache`: what it shows, and that it removes what is ours and nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from lapidist.backends.gpu.doctor import Part, find_cache, look_for
from lapidist.build import cache
from lapidist.commands.cli import app
from lapidist.errors import ArgumentError

KEYS = [digit * 64 for digit in "0123"]
ENTRY = cache.FORMAT + b"whatever"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(folder))
    monkeypatch.delenv("LAPIDIST_CACHE_BYTES", raising=False)
    for key in KEYS[:2]:
        (folder / f"{key}.bin").write_bytes(ENTRY)
    (folder / "tuned.json").write_text(
        json.dumps({"format": 1, "chips": {"NVIDIA H200": {"one": {}, "two": {}}}})
    )
    return folder


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    app(["cache", *arguments], standalone_mode=False)
    return capsys.readouterr().out


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer(capsys, "--json", *arguments))
    return found


def test_it_shows_what_is_kept(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.utime(folder / f"{KEYS[1]}.bin", (1_700_000_000, 1_700_000_000))
    text = answer(capsys)
    assert f"folder      {folder}\n" in text
    assert "kernels     2, 0.0 MB of at most 1073.7 MB, used since 2023-11-1" in text
    assert "tuned.json  2 products on NVIDIA H200\n" in text
    found = as_json(capsys)
    assert (found["kernels"], found["bytes"], found["limit"]) == (2, 2 * len(ENTRY), 1 << 30)
    assert found["tuned"] == {"NVIDIA H200": 2}
    assert found["objection"] is None


def test_a_folder_that_is_not_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(folder / "none"))
    found = as_json(capsys, "--clear")
    assert (found["kernels"], found["removed"], found["tuned"]) == (0, 0, {})
    assert not (folder / "none").exists()


def test_a_folder_that_is_not_used_says_why(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.chmod(0o775)
    assert "Run chmod go-w" in as_json(capsys)["objection"]
    assert f"warning     {folder} is not used: others may write there" in answer(capsys)


def test_a_broken_database_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "tuned.json").write_text("{")
    assert "tuned.json  it cannot be read (JSONDecodeError" in answer(capsys)


def test_what_it_shows_does_not_steer_the_terminal(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    escape = "\x1b]0;owned\x07"
    renamed = folder.rename(folder.with_name(escape))
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(renamed))
    (renamed / "tuned.json").write_text(json.dumps({"format": 1, "chips": {f"{escape}\nkernels": {}}}))
    text = answer(capsys)
    assert text.replace("\n", "").isprintable()
    assert f"tuned.json  0 products on {f'{escape}{chr(10)}kernels'!r}\n" in text
    assert look_for(Part("cache", find_cache, "none")).usable
    assert str(look_for(Part("cache", find_cache, "none"))).isprintable()


def test_clearing_touches_nothing_else(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(ENTRY)
    (folder / f"{KEYS[2]}.bin").symlink_to(elsewhere)
    (folder / f"{KEYS[3]}.bin").write_bytes(b"somebody's own file, under such a name")
    (folder / f"{'e' * 64}.bin").mkdir()
    os.mkfifo(folder / f"{'f' * 64}.bin")
    (folder / "thesis.bin").write_bytes(ENTRY)
    (folder / f"{'a' * 64}.bin").write_bytes(b"lapidist-binary-2\n of an earlier format")
    (folder / f"{'b' * 64}.bin").touch()
    (folder / f"{KEYS[0]}.abcd_123.part").write_bytes(b"half")
    left = {
        f"{KEYS[2]}.bin",
        f"{KEYS[3]}.bin",
        f"{'e' * 64}.bin",
        f"{'f' * 64}.bin",
        "thesis.bin",
        "tuned.json",
    }
    found = as_json(capsys, "--clear")
    assert found["removed"] == 4
    assert {path.name for path in folder.iterdir()} == left
    assert elsewhere.read_bytes() == ENTRY


def test_tuned_goes_when_asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "removed     2 kernels" in answer(capsys, "--clear", "--tuned")
    assert list(folder.iterdir()) == []


def test_tuned_is_about_clearing(folder: Path) -> None:
    with pytest.raises(ArgumentError, match=r"^--tuned: is about what --clear removes"):
        app(["cache", "--tuned"], standalone_mode=False)


def test_a_misspelt_limit_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAPIDIST_CACHE_BYTES", "plenty")
    with pytest.raises(
        ArgumentError, match=r"^LAPIDIST_CACHE_BYTES: must be a number of bytes.*got 'plenty'"
    ):
        app(["cache", "--clear"], standalone_mode=False)
    assert len(list(folder.iterdir())) == 3


def test_who_has_no_home_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lapidist.build import folder as cache_folder

    monkeypatch.setattr(cache_folder, "chosen_directory", lambda: None)
    with pytest.raises(ArgumentError, match="LAPIDIST_CACHE_DIR: must name a folder"):
        app(["cache"], standalone_mode=False)
