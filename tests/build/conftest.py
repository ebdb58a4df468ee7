"""A cache of a test's own, and what it said."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lapidist.build import folder as cache_folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """What was told since; nothing is as told before, and temporary folders are new."""
    cache_folder.warn_once.cache_clear()
    cache_folder.temporary_directory.cache_clear()
    caplog.set_level(logging.WARNING)
    yield lambda: [record.message for record in caplog.records]
    cache_folder.warn_once.cache_clear()
    cache_folder.temporary_directory.cache_clear()
