"""The site: every page has a place in it, nothing comes from the network, and tools are pinned."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import lapidist
from pages import ROOT

SITE = ROOT / "site"
CONFIG = (SITE / "mkdocs.yml").read_text()


def places() -> set[str]:
    return set(re.findall(r"(\S+\.md)$", CONFIG.partition("\nnav:\n")[2], re.M))


def test_every_page_has_a_place() -> None:
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert pages - places() == set()


def test_every_place_has_a_page() -> None:
    """Those of the root and of the reference are made when the site is built."""
    made = set(re.findall(r'"(\w+\.md)"', (SITE / "pages.py").read_text()))
    missing = {
        place
        for place in places()
        if not (ROOT / "docs" / place).exists() and place not in made and not place.startswith("reference/")
    }
    assert missing == set()


def test_the_list_for_language_models_has_every_page() -> None:
    """But one page of performance stands for all, and one of the reference."""
    text = (ROOT / "docs" / "llms.txt").read_text()
    lines = re.findall(r"^- \[[^]]+\]\(([^)]+)\.html\): (.+)$", text, re.M)
    listed = [f"{page}.md" for page, _ in lines]
    one_for_all = {"performance/index.md", "reference/library.md"}
    wanted = {
        place
        for place in places()
        if place in one_for_all or not place.startswith(("performance/", "reference/"))
    } - {"contributing.md", "changelog.md", "security.md"}
    assert set(listed) == wanted
    assert len(set(listed)) == len(listed)
    assert text.startswith("# Lapidist\n\n> ")


def test_the_reference_begins_with_matmul_and_names_no_inner_module() -> None:
    """Read as text: mkdocs is not among the tests' packages."""
    text = (SITE / "pages.py").read_text()
    scope: dict[str, Any] = {}
    for name in ("entry", "main_first", "functions_first", "as_imported", "renamed"):
        exec(re.search(rf"^def {name}\(.*?(?=\n\n\n)", text, re.M | re.S)[0], scope)  # type: ignore[index]
    scope["PACKAGES"] = ("torch", "distributed")
    scope["MAIN"] = ast.literal_eval(re.search(r"^MAIN = (\(.*\))", text, re.M)[1])  # type: ignore[index]
    public = [name for name in lapidist.__all__ if not name.isupper()]
    names = scope["main_first"](public)
    assert names[0] == "matmul"
    assert sorted(names) == sorted(public)
    heading = scope["entry"]("lapidist.distributed.parallel_products.matmul_all_reduce")
    assert "heading: lapidist.distributed.matmul_all_reduce\n" in heading
    names = {"lapidist.torch.layers.Linear": scope["as_imported"]("lapidist.torch.layers.Linear")}
    assert scope["renamed"]("lapidist.torch.layers.Linear.forward", names) == "lapidist.torch.Linear.forward"
    assert scope["renamed"]("lapidist.torch.layers.LinearOther", names) == "lapidist.torch.layers.LinearOther"
    assert scope["as_imported"]("lapidist.matmul") == ""


@pytest.mark.parametrize("path", sorted((SITE / "theme").iterdir()), ids=lambda path: path.name)
def test_nothing_is_fetched(path: Path) -> None:
    assert "//" not in re.sub(r"^ *//.*$", "", path.read_text(), flags=re.M)


def test_fonts_are_the_readers_own() -> None:
    assert re.search(r"^  font: false$", CONFIG, re.M)


def test_versions_are_named() -> None:
    line = re.search(r"^docs = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.M)
    assert line is not None
    assert all("=" in each for each in re.findall(r'"([^"]+)"', line[1]))
