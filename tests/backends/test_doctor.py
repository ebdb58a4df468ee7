"""The doctor: it tells what is there and how to get the rest, and never falls over what it finds."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from lapidist.backends.gpu import doctor, driver
from lapidist.build import compiler


@pytest.fixture(autouse=True)
def forgetful() -> None:
    """What earlier tests found must not answer for these."""
    for function in (compiler.load_nvrtc, compiler.nvrtc_version, compiler.include_paths, driver.load_driver):
        function.cache_clear()


def report(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, str]]:
    """(exit status, the text about each part)."""
    status = doctor.run()
    text = capsys.readouterr().out
    found = {}
    for part in doctor.PARTS:
        start = text.index(f" {part.name:<14} ")
        found[part.name] = text[
            text.rindex("\n", 0, start) + 1 if "\n" in text[:start] else 0 : text.index("\n", start)
        ]
        following = text[text.index("\n", start) + 1 :]
        if following.startswith(" " * 23):
            found[part.name] += following.partition("\n")[0]
    return status, found


def test_a_whole_base_is_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    status, found = report(capsys)
    assert status == 0
    for name in (
        "Python",
        "NumPy",
        "cuda-bindings",
        "cuda-core",
        "NVRTC",
        "CUDA headers",
        "disassembler",
        "cache folder",
    ):
        assert found[name].startswith("ok "), found[name]
    assert sys.version.split()[0] in found["Python"]
    assert "libnvrtc" in found["NVRTC"]
    assert "nvdisasm" in found["disassembler"]


def test_what_is_missing_comes_with_the_command_that_gets_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("torch", "cupy", "jax"):
        monkeypatch.setitem(sys.modules, module, None)
    status, found = report(capsys)
    assert status == 0
    assert 'get it: pip install "torch>=2.11"' in found["torch"]
    assert 'get it: pip install "cupy-cuda13x>=13.6"' in found["CuPy"]
    assert 'get it: pip install "jax[cuda13]>=0.10"' in found["JAX"]
    assert all(found[name].startswith("absent ") for name in ("torch", "CuPy", "JAX"))


def test_no_driver(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import driver as bindings

    def missing(*_: object) -> None:
        raise RuntimeError("Failure finding libcuda.so.1")

    monkeypatch.setattr(bindings, "cuInit", missing)
    status, found = report(capsys)
    driver.load_driver.cache_clear()
    assert status == 0
    assert "libcuda.so.1" in found["driver"]
    assert "nvidia-driver-580" in found["driver"]
    assert "no GPU seen" in found["GPU"]


def test_no_nvrtc(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import nvrtc

    def missing() -> None:
        raise RuntimeError("Failure finding libnvrtc.so.13")

    monkeypatch.setattr(nvrtc, "nvrtcVersion", missing)
    status, found = report(capsys)
    assert status == 1
    assert found["NVRTC"].startswith("MISSING")
    assert 'pip install "nvidia-cuda-nvrtc==13.0.*"' in found["NVRTC"]


def test_another_nvrtc_works_and_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "nvrtc_version", lambda: (13, 5))
    status, found = report(capsys)
    assert status == 0
    assert found["NVRTC"].startswith("ok ")
    assert "speeds were measured with 13.0" in found["NVRTC"]
    monkeypatch.setattr(doctor, "nvrtc_version", lambda: compiler.MEASURED_NVRTC)
    assert "measured" not in report(capsys)[1]["NVRTC"]


def test_the_package_asks_for_what_the_doctor_names() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    asked = re.findall(r'^    ("nvidia-cuda-(?:nvrtc|runtime)==[^";]*)', project, re.M)
    asked = [f'{requirement}"' for requirement in asked]
    assert f"pip install {' '.join(asked)}" == compiler.NVRTC_HINT


def test_no_headers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from cuda import pathfinder

    for answer in (None, str(tmp_path)):  # not found, and found without the header
        compiler.include_paths.cache_clear()
        monkeypatch.setattr(pathfinder, "find_nvidia_header_directory", lambda name, answer=answer: answer)
        status, found = report(capsys)
        assert status == 1
        assert found["CUDA headers"].startswith("MISSING")
        assert (
            'pip install "nvidia-cuda-nvrtc==13.0.*" "nvidia-cuda-runtime==13.0.*"' in found["CUDA headers"]
        )
    compiler.include_paths.cache_clear()


def test_no_disassembler(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "disassembler", lambda: None)
    status, found = report(capsys)
    assert status == 0
    assert 'pip install "lapidist[lab]"' in found["disassembler"]


def test_no_bindings_at_all(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    doctor.disassembler.cache_clear()
    for module in ("cuda", "cuda.bindings", "cuda.core", "cuda.pathfinder"):
        monkeypatch.setitem(sys.modules, module, None)
    status, found = report(capsys)
    doctor.disassembler.cache_clear()
    assert status == 1
    for name in ("cuda-bindings", "cuda-core", "NVRTC", "CUDA headers"):
        assert found[name].startswith("MISSING"), found[name]
    assert found["disassembler"].startswith("absent")


def test_a_cache_that_cannot_be_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(tmp_path / "file" / "cache"))
    status, found = report(capsys)
    assert status == 0
    assert "export LAPIDIST_CACHE_DIR=" in found["cache folder"]


def test_a_cache_that_others_may_write_to(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tmp_path.chmod(0o775)
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(tmp_path))
    status, found = report(capsys)
    assert status == 0
    assert found["cache folder"].startswith("absent ")
    assert f"chmod go-w {tmp_path}" in found["cache folder"]


def test_nobody_has_no_cache(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "chosen_directory", lambda: None)
    _, found = report(capsys)
    assert "no home folder" in found["cache folder"]
    assert "export LAPIDIST_CACHE_DIR=" in found["cache folder"]


def test_a_probe_may_raise_anything() -> None:
    def explode() -> str:
        raise ValueError

    finding = doctor.look_for(doctor.Part("thing", explode, "make it"))
    assert not finding.usable
    assert "ValueError" in str(finding)
    assert "get it: make it" in str(finding)


def test_it_imports_no_framework(capsys: pytest.CaptureFixture[str]) -> None:
    before = set(sys.modules)
    doctor.run()
    assert not {"torch", "cupy", "jax"} & (set(sys.modules) - before)
