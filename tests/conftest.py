"""One cache of binaries for the whole run, in a folder of its own: nothing stale is read and nothing is left
behind.
"""

from __future__ import annotations

import gc
import importlib
import os
import tempfile
import zlib
from functools import partial
from typing import Any

import numpy as np
import pytest

import lapidist
from cases_often import leave_to_surveys
from survey_parts import part_from

CACHE = "LAPIDIST_CACHE_DIR"  # set one yourself and a second run compiles nothing
# Workers are given that of the process that started them.
_folder = None if CACHE in os.environ else tempfile.TemporaryDirectory(prefix="lapidist-tests-")
if _folder is not None:
    os.environ[CACHE] = _folder.name
# For workers, of which there is one a core: NumPy's threads would wait for each other's cores, and spin.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Lines are broken where the terminal ends. Tests read them alike in a terminal of any width and in a pipe.
os.environ["COLUMNS"] = "120"
# JAX shares the GPU with torch here, and with other workers.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def pytest_configure(config: pytest.Config) -> None:
    """What NumPy's own tests are marked with, which test_numpys_own_tests.py runs."""
    for name in ("leaks_references", "slow", "thread_unsafe", "valgrind_error"):
        config.addinivalue_line("markers", f"{name}: a mark of NumPy's")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", default="1/1", metavar="I/N", help="of surveys, only the I-th of N parts")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out surveys of other parts, before `-m` looks at marks."""
    leave_to_surveys(items)
    part = part_from(config.getoption("--part"))
    kept, others = [], []
    for item in items:
        stays = item.get_closest_marker("survey") is None or part.has(item.nodeid)
        (kept if stays else others).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=others)


def pytest_collection_finish() -> None:
    """What is collected stays to the end. A sixth of the time went into walks through it and through parsed
    kernels, in which there is nothing to free.
    """
    gc.freeze()
    gc.set_threshold(50_000, 5, 2)


def pytest_unconfigure() -> None:
    if _folder is not None:
        _folder.cleanup()


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Fresh numbers for each test, the same ones in each run."""
    return np.random.default_rng(list(request.node.nodeid.encode()))


@pytest.fixture
def torch(request: pytest.FixtureRequest) -> Any:
    """torch, whose random numbers are fresh for each test, too. Tests on a GPU that find none have not run:
    they fail.
    """
    torch = importlib.import_module("torch")
    torch.manual_seed(zlib.crc32(request.node.nodeid.encode()))
    return torch


@pytest.fixture
def jax() -> Any:
    return importlib.import_module("jax")


@pytest.fixture
def ours() -> Any:
    return importlib.import_module("lapidist.jax")


@pytest.fixture(
    params=[("host", None), ("machine", "simt"), ("machine", "mma")], ids=lambda where: where[1] or where[0]
)
def place(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The host, and real kernels in the machine."""
    return dict(zip(("device", "kernel"), request.param, strict=True))


@pytest.fixture
def gemm(place: dict[str, Any]) -> Any:
    return partial(lapidist.gemm, **place)
