"""`lapidist warm --shapes`: what a program's calls asked for, compiled elsewhere."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

import lapidist
from command_line import run
from lapidist.build.cache import read
from lapidist.build.compiler import key_of
from lapidist.commands.warm import TEMPORARY
from lapidist.device import chip
from lapidist.errors import CompileError
from lapidist.planning import emulated_passes, second_passes, warm
from lapidist.planning.binaries import order_of
from lapidist.planning.emulated_passes import PIECES
from lapidist.planning.logged_shapes import LoggedParts, LoggedPass, LoggedShape, line_of
from lapidist.planning.plans import Plan, make_plan
from lapidist.planning.second_passes import Pass, Target, steps_of
from lapidist.planning.warm import Build, Built, builds_of
from lapidist.problems.problem import dense_problem

H100, A100 = chip("h100"), chip("a100")
PLANS = [
    make_plan(dense_problem(64, 48, 32, "float32"), H100),
    make_plan(dense_problem(16, 4096, 4096, "float8_e4m3fn", "rc"), H100),
]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(tmp_path / "cache"))
    return written(tmp_path / "shapes.jsonl", PLANS)


def written(path: Path, plans: list[Plan]) -> Path:
    path.write_text("".join(line_of(LoggedShape.of(plan)) + "\n" for plan in plans))
    return path


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Build]:
    """What would be compiled; wgmma's kernels fail."""
    asked: list[Build] = []

    def build_all(builds: list[Build], *_: object) -> list[Built]:
        asked.extend(builds)
        return [Built(build, 0.1, "no room" if build.kernel == "wgmma" else None) for build in builds]

    monkeypatch.setattr(warm, "build_all", build_all)
    return asked


def test_logged_shapes_are_compiled(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    order = order_of(*PLANS[0].build)
    assert read(key_of(*order), order.entry, order.architecture) is None
    assert run(["warm", "--shapes", str(written(log, PLANS[:1]))], monkeypatch) == 0
    assert "float32: 1 plan for H100 use 1 configuration:" in capsys.readouterr().out
    assert read(key_of(*order), order.entry, order.architecture) is not None


def test_kernels_that_fail_are_named(
    log: Path, builds: list[Build], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["warm", "--shapes", str(log), "--json"], monkeypatch) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["failed"] == {"wgmma": "no room"}
    assert (told["dtype"], told["plans"], told["compiled"]) == ("float32,float8_e4m3fn", 2, 1)
    assert builds == builds_of(PLANS)


@pytest.mark.parametrize(("chip_named", "architecture"), [((), "sm_90a"), (("--chip", "a100"), "sm_80")])
def test_kernels_of_second_passes_are_compiled(
    log: Path,
    builds: list[Build],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    chip_named: tuple[str, ...],
    architecture: str,
) -> None:
    written(log, PLANS[:1])
    both = [Pass("row_sum", "float32", (1, 64, size), Target("float32", 1, 1)) for size in (48, 80)]
    with log.open("a") as file:
        file.writelines(line_of(LoggedPass(H100, second_pass)) + "\n" for second_pass in both)
    asked, refused = [], []

    def compile_kernel(source: str, entry: str, values: object, architecture: str, **_: object) -> object:
        asked.append((source, architecture))
        if refused:
            raise CompileError("compile: no room")

    monkeypatch.setattr(second_passes, "compile_kernel", compile_kernel)
    steps_of.cache_clear()
    assert run(["warm", "--shapes", str(log), *chip_named], monkeypatch) == 0
    assert set(asked) == {("second/reduce_rows.cu", architecture)}
    assert "2 of 2 second passes have their kernels" in capsys.readouterr().out
    refused.append("all")
    steps_of.cache_clear()
    assert run(["warm", "--shapes", str(log), "--json", *chip_named], monkeypatch) == 1
    first, _ = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["second_passes"], first["failed"]) == (2, ["compile: no room"] * 2)
    steps_of.cache_clear()


def test_kernels_of_emulated_products_are_compiled(
    log: Path, builds: list[Build], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written(log, PLANS[:1])
    with log.open("a") as file:
        file.write(line_of(LoggedParts(H100, PIECES.macro)) + "\n")
    asked: list[tuple[str, Any]] = []
    monkeypatch.setattr(
        emulated_passes, "compile_kernel", lambda _, entry, values, *__, **___: asked.append((entry, values))
    )
    assert run(["warm", "--shapes", str(log)], monkeypatch) == 0
    assert [entry for entry, _ in asked] == [*emulated_passes.PASSES]
    assert {values["FLOATS"] for _, values in asked} == {PIECES.macro}
    assert "1 of 1 passes of emulated products have their kernels" in capsys.readouterr().out


def test_another_chip_takes_what_it_can(
    log: Path, builds: list[Build], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An A100 has no unit for 8-bit floats."""
    assert run(["warm", "--shapes", str(log), "--chip", "a100"], monkeypatch) == 0
    assert builds == builds_of([make_plan(PLANS[0].problem, A100)])
    assert "left out: no kernel takes 16 x 4096 x 4096 float8_e4m3fn" in capsys.readouterr().err


def test_a_log_without_products_is_refused(
    log: Path, builds: list[Build], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["warm", "--shapes", str(written(log, []))], monkeypatch) == 2
    assert "--shapes: must hold a product that some kernel takes" in capsys.readouterr().err
    assert builds == []


def test_a_wheel_of_binaries_is_a_folder_that_the_cache_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Installed as pip does it, its module prints the folder."""
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(tmp_path / "cache"))  # put back after the command
    product = ["warm", "--mnk", "64,48,32", "--dtype", "fp32", "--chip", "h100"]
    assert run([*product, "--wheel", str(tmp_path)], monkeypatch) == 0
    assert not TEMPORARY
    wheel = tmp_path / f"lapidist_binaries_h100-{lapidist.__version__}-py3-none-any.whl"
    assert capsys.readouterr().err.splitlines()[-1] == str(wheel)
    with ZipFile(wheel) as archive:
        (listed,) = (name for name in archive.namelist() if name.endswith("/RECORD"))
        rows = [row.split(",") for row in archive.read(listed).decode().splitlines()]
        assert {row[0] for row in rows} == {*archive.namelist()}
        for name, hashed, size in rows[:-1]:
            found = hashlib.sha256(archive.read(name)).digest()
            assert hashed == f"sha256={urlsafe_b64encode(found).decode().rstrip('=')}"
            assert int(size) == len(archive.read(name))
        archive.extractall(tmp_path / "site")
    module = [sys.executable, "-m", "lapidist_binaries_h100"]
    printed = subprocess.run(module, cwd=tmp_path / "site", capture_output=True, text=True, check=True)
    folders = [printed.stdout.strip(), str(tmp_path / "empty")]
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", os.pathsep.join(folders))
    assert run(product, monkeypatch) == 0
    assert "0 were compiled, 1 were there" in capsys.readouterr().out


def test_a_wheel_needs_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["warm", "--wheel", str(tmp_path / "none")], monkeypatch) == 2
    assert "--wheel: must be a folder that exists" in capsys.readouterr().err
