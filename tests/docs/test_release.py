"""A release: the tag, the versions and the changelog agree, and the workflows run what is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import lapidist
import release
from pages import ROOT

WORKFLOWS = ROOT / ".github" / "workflows"


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    """A checkout that is ready for v1.2.3."""
    for path, text in (
        ("src/lapidist/__init__.py", '__version__ = "1.2.3"\n'),
        ("CITATION.cff", "version: 1.2.3\n"),
        (
            "CHANGELOG.md",
            "# Changelog\n\n## 1.2.3 (2030-01-02)\n\n- New.\n\n## 1.2.2 (2029-01-01)\n\n- Old.\n",
        ),
        ("docs/faq.md", "## Known issues\n\n- **A**: [b](c.md#d).\n\n## More\n"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_what_agrees_is_released_with_notes(ready: Path) -> None:
    assert release.problems("v1.2.3", ready) == []
    assert release.notes(ready) == "- New.\n\n**Known issues**\n\n- **A**: b.\n"


@pytest.mark.parametrize(
    ("path", "old", "new", "words"),
    [
        ("src/lapidist/__init__.py", "1.2.3", "1.2.4", "the tag v1.2.3 is not v1.2.4"),
        ("CITATION.cff", "1.2.3", "1.2.2", "CITATION.cff has another version"),
        ("CHANGELOG.md", "1.2.3 (2030-01-02)", "Unreleased", "the changelog begins with 'Unreleased'"),
        ("CHANGELOG.md", " (2030-01-02)", "", "not with 1.2.3 and a date"),
    ],
)
def test_what_does_not_agree_is_told(ready: Path, path: str, old: str, new: str, words: str) -> None:
    file = ready / path
    file.write_text(file.read_text().replace(old, new))
    assert any(words in problem for problem in release.problems("v1.2.3", ready))


def test_this_version_has_notes_with_known_issues() -> None:
    assert release.version_of_package() == lapidist.__version__
    assert "**Known issues**" in release.notes()


def test_workflows_run_targets_and_files_that_are_there() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    for workflow in WORKFLOWS.glob("*.yml"):
        text = workflow.read_text()
        assert set(re.findall(r"run: make (\w+)", text)) <= targets
        for path in re.findall(r"run: (?:python|bash) ([\w./]+)", text):
            assert (ROOT / path).is_file(), path


def test_wheels_are_tested_on_every_python_that_the_package_names() -> None:
    """And on every system, and arm."""
    text = (WORKFLOWS / "ci.yml").read_text()
    project = (ROOT / "pyproject.toml").read_text()
    named = re.findall(r"Python :: (3\.\d+)", project)
    tried = re.search(r"python: \[(.*)\]", text)
    assert tried is not None
    assert re.findall(r"3\.\d+", tried[1]) == named
    for system in ("windows-latest", "macos-latest", "ubuntu-24.04-arm"):
        assert f"os: {system}" in text
    assert "id-token: write" in (WORKFLOWS / "release.yml").read_text()


def test_the_script_for_installed_wheels_works_here() -> None:
    """Against the editable install: what it runs exists. CI runs it against wheels."""
    code = "import installed; exec(installed.PRODUCT)"
    command = [sys.executable, "-W", "error", "-c", code]
    where = {"cwd": ROOT / "tests" / "support", "capture_output": True, "text": True}
    found = subprocess.run(command, check=False, **where)
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith(lapidist.__version__)
