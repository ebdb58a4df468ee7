"""Two distributions of one checkout: what users install works without the lab, and says where to get it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import typer

from command_line import run
from lapidist.commands import cli, lab
from pages import ROOT

PROJECTS = {"lapidist": ROOT / "pyproject.toml", "lapidist_lab": ROOT / "lab" / "pyproject.toml"}


def installed(folder: Path, *packages: str) -> dict[str, str]:
    """An environment with these packages first on the path, as their projects pack them."""
    for name in packages:
        packed = re.search(r"targets\.wheel\]\npackages = \[(.*)\]", PROJECTS[name].read_text())
        assert packed is not None
        assert packed[1] == f'"src/{name}"'
        shutil.copytree(ROOT / "src" / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    path = os.pathsep.join([str(folder), sysconfig.get_paths()["purelib"]])
    return {**os.environ, "PYTHONPATH": path}


def python(environment: dict[str, str], *words: str, alone: bool = True) -> subprocess.CompletedProcess[str]:
    """`alone`: without `site`, by which an editable install adds the checkout to the path."""
    folder = environment["PYTHONPATH"].split(os.pathsep)[0]
    call = [sys.executable, *["-S"] * alone, *words]
    return subprocess.run(call, env=environment, cwd=folder, capture_output=True, text=True)


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return installed(tmp_path_factory.mktemp("core"), "lapidist")


def test_without_the_lab_users_commands_work(core: dict[str, str]) -> None:
    planned = python(core, "-m", "lapidist", "plan", "--mnk", "300,520,200", "--chip", "h200")
    assert planned.returncode == 0, planned.stderr
    assert "because   the shortest prediction" in planned.stdout
    product = "import numpy as np, lapidist; print(lapidist.matmul(np.ones((2, 3)), np.ones((3, 4)))[1, 2])"
    assert python(core, "-c", product).stdout == "3.0\n"
    assert "ModuleNotFoundError" in python(core, "-c", "import lapidist_lab").stderr
    lines = python(core, "-m", "lapidist", "doctor", "--json").stdout.splitlines()
    parts = [json.loads(line) for line in lines]
    (part,) = [part for part in parts if part["part"] == "lapidist-lab"]
    assert (part["found"], part["remedy"]) == (False, lab.INSTALL)


def test_without_the_lab_its_commands_say_where_to_get_it(core: dict[str, str]) -> None:
    answer = python(core, "-m", "lapidist", "bench", "squares", "--dtype", "bf16")
    assert (answer.returncode, answer.stdout) == (3, "")
    purpose = "Measure lists of products, or the host's costs, beside cuBLAS"
    assert answer.stderr == (
        f"lapidist: bench ({purpose}) is a part of lapidist-lab, which is not installed. Get it:"
        ' pip install "lapidist[lab]"\n'
    )
    for words in (("plan", "--explain", "--chip", "h200"), ("warm", "--record", core["HOME"])):
        answer = python(core, "-m", "lapidist", *words)
        assert answer.returncode == 3
        assert re.search(
            r"^lapidist: .* is not installed\. Get it: pip install \"lapidist\[lab\]\"\n$", answer.stderr
        )
    page = python(core, "-m", "lapidist", "-h").stdout
    assert sorted(re.findall(r"^  (\S+) +\(lab\) ", page, re.M)) == sorted(lab.COMMANDS)
    assert lab.NOTE in " ".join(page.split())


def test_with_the_lab_all_commands_work(tmp_path: Path) -> None:
    environment = installed(tmp_path, "lapidist", "lapidist_lab")

    def lapidist(*words: str) -> subprocess.CompletedProcess[str]:
        return python(environment, "-m", "lapidist", *words, alone=False)

    where = python(environment, "-c", "import lapidist_lab; print(lapidist_lab.__file__)", alone=False)
    assert where.stdout.startswith(str(tmp_path))
    explained = lapidist("explain", "4", "--size", "128")
    assert "bound by shared memory" in explained.stdout, explained.stderr
    drawn = lapidist("fuzz", "--count", "3", "--device", "host")
    assert drawn.stdout.startswith("3 cases on host"), drawn.stderr
    assert "(lab)" not in lapidist("-h").stdout


def test_a_lab_that_does_not_fit_breaks_its_own_commands_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "lapidist_lab.commands.registration", None)
    app = typer.Typer(epilog="Examples:")
    lab.add_lab_commands(app)
    monkeypatch.setattr(cli, "app", app)
    assert run(["fuzz", "--count", "3"], monkeypatch) == 3
    assert "lapidist-lab, which cannot be imported (import of lapidist_lab" in capsys.readouterr().err


def test_what_is_listed_without_the_lab_is_what_the_lab_has() -> None:
    app = typer.Typer()
    lab.add_lab_commands(app)
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert {name: command.get_short_help_str(100) for name, command in commands.items()} == lab.COMMANDS


# ---- the projects ----


def test_the_lab_is_an_extra_and_of_one_version_with_lapidist() -> None:
    core, of_lab = (path.read_text() for path in PROJECTS.values())
    assert re.search(r'^lab = \["lapidist-lab"\]', core, re.M)
    assert 'path = "../src/lapidist/__init__.py"' in of_lab
    hook = (ROOT / "lab" / "hatch_build.py").read_text()
    assert "f\"lapidist=={metadata['version']}\"" in hook


def test_only_the_lab_needs_what_it_alone_uses() -> None:
    core, of_lab = (path.read_text() for path in PROJECTS.values())
    needed = core.partition("dependencies = [")[2].partition("\n]")[0]
    for name in ("nvdisasm", "nvidia-ml-py", "matplotlib"):
        assert name not in needed
        assert name in of_lab


def test_every_extra_that_is_advised_exists() -> None:
    text = PROJECTS["lapidist"].read_text().partition("[project.optional-dependencies]\n")[2]
    extras = re.findall(r"^(\w+) = \[", text.partition("\n[project.urls]")[0], re.M)
    files = [*(ROOT / "src").rglob("*.py"), *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    advised = {name for path in files for name in re.findall(r"\blapidist\[(\w+)\]", path.read_text())}
    assert "lab" in advised
    assert advised <= set(extras)
