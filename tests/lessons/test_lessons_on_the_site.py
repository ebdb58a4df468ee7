"""The ladder's page on the site: a picture of each rung below its section, which opens its lesson."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

import pytest

from lapidist.kernels.registry import RUNGS
from lapidist_lab.lessons.page import file_name, index_of
from pages import ROOT
from rung_lessons import lesson


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lesson_cards", ROOT / "site" / "lesson_cards.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_rung_of_a_section_opens_its_lesson(hook: ModuleType) -> None:
    rungs = RUNGS[:3]
    index = index_of([lesson(rung.name) for rung in rungs], rungs)
    text = hook.with_cards("# Climb\n\n## 01 to 03: threads\n\nWords.\n", index)
    cards = re.search(r'## 01 to 03: threads\n\n<div class="rungs">(.*)</div>\n\nWords\.', text, re.S)
    assert cards is not None
    opened = re.findall(
        r'<a href="lessons/([^"]+)" title="[^"]+"><svg.*?</svg><span>([^<]+)</span>', cards[1], re.S
    )
    assert opened == [
        (file_name(number, rung), f"{number:02d} {rung.name}") for number, rung in enumerate(rungs, 1)
    ]


def test_sections_of_the_page_have_every_rung_once(hook: ModuleType) -> None:
    sections = hook.SECTION.findall((ROOT / "docs" / "ladder.md").read_text())
    found = [number for first, last in sections for number in range(int(first), int(last) + 1)]
    assert found == list(range(1, len(RUNGS) + 1))
