"""One cache of binaries for the whole run, in a folder of its own: nothing stale is read and nothing is left behind."""

from __future__ import annotations

import os
import tempfile

import numpy as np
import pytest

_folder = tempfile.TemporaryDirectory(prefix="lapidist-tests-")
os.environ.setdefault("LAPIDIST_CACHE_DIR", _folder.name)  # set one yourself and a second run compiles nothing


def pytest_unconfigure() -> None:
    _folder.cleanup()


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Fresh numbers for each test, the same ones in each run."""
    return np.random.default_rng(list(request.node.nodeid.encode()))
