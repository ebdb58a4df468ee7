"""CUDA 12 in place of 13: its compiler and headers serve where its bindings are installed. The doctor and the
driver's refusal say when.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from lapidist.backends.gpu import doctor, driver
from lapidist.build import compiler, toolkit
from lapidist.errors import DeviceError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bindings_of_12(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """As if they and the wheels of 12's toolkit were installed."""
    monkeypatch.setattr(metadata, "version", lambda name: "12.9.10" if name == "cuda-bindings" else "1")
    monkeypatch.setattr(toolkit, "folders_of", lambda package: [str(tmp_path / package)])
    caches = toolkit.major, compiler.load_nvrtc, compiler.include_paths
    for function in caches:
        function.cache_clear()
    yield tmp_path
    for function in caches:
        function.cache_clear()


def test_without_them_13_serves_and_nothing_is_loaded_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "ctypes", SimpleNamespace(CDLL=lambda path: pytest.fail(f"loaded {path}")))
    if toolkit.major() == toolkit.NEWEST:
        toolkit.load_older_nvrtc()
        assert toolkit.older_headers() is None


def test_12s_library_and_headers_are_taken(bindings_of_12: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = bindings_of_12 / "nvidia.cuda_nvrtc" / toolkit.LIBRARY
    headers = bindings_of_12 / "nvidia.cuda_runtime" / "include"
    library.parent.mkdir(parents=True)
    library.touch()
    headers.mkdir(parents=True)
    loaded: list[str] = []
    monkeypatch.setattr(toolkit, "ctypes", SimpleNamespace(CDLL=loaded.append))
    toolkit.load_older_nvrtc()
    assert loaded == [str(library)]
    assert compiler.include_paths()[1] == headers


def test_missing_wheels_of_12_name_the_extra(bindings_of_12: Path) -> None:
    with pytest.raises(DeviceError, match=re.escape('pip install "lapidist[cuda12]"')):
        compiler.load_nvrtc()


def test_a_driver_of_12_is_enough_for_12(bindings_of_12: Path) -> None:
    driver.require_driver_version(12000)
    with pytest.raises(DeviceError, match=r"CUDA 12\.0 is needed.*release 525 or newer$"):
        driver.require_driver_version(11080)


def test_the_doctor_says_for_which_drivers(bindings_of_12: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "load_nvrtc", lambda: None)
    monkeypatch.setattr(doctor, "nvrtc_version", lambda: (12, 9))
    assert "for drivers of release 525 or newer; speeds were measured with 13.0" in doctor.find_nvrtc()


def test_the_extra_asks_for_what_is_loaded() -> None:
    extra = re.search(r"^cuda12 = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.M)
    assert extra is not None
    assert "nvidia-cuda-nvrtc-cu12==12.9.*" in extra[1]
    assert "nvidia-cuda-runtime-cu12==12.9.*" in extra[1]
    assert "cuda-bindings>=12.9,<13" in extra[1]
