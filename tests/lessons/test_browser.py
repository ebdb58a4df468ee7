"""Lessons in a browser: no errors, nothing fetched; the slider and keys move the picture; phone and dark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from browser import Browser
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.registry import RUNGS
from lapidist_lab.lessons.page import index_of
from rung_lessons import lesson, page_text

pytestmark = pytest.mark.browser
SOME = ("shared_tile", "async_pipeline", "wgmma_specialised")
PICTURE = (
    "['memory', 'where', 'timeline', 'verdict'].map((id) => document.getElementById(id).innerHTML).join()"
)
# The words of all moments of a warp; every 16th is drawn too.
EVERY_MOMENT = "toWarp(WARP); warpNow().moments.map((moment, n) => (n % 16 || go(n), momentWords(moment)))"
WHOSE = re.compile(r"(?:A|B)\[|C\[|of [AB], k from|sums of C|after the wait")
# Labels of the opening's bars that leave them; those with steps of k also where lines hand sums on.
LONG = """[...document.querySelectorAll('#opening-picture rect[data-tile] + text')].filter((text) => {
  const bar = text.previousElementSibling.getBBox(), label = text.getBBox();
  return label.x + label.width > bar.x + bar.width - (text.textContent.includes('k ') ? 8 : 0);
}).map((text) => text.textContent)"""
# Labels that a mark of a barrier crosses.
CROSSED = """[...document.querySelectorAll('#opening-picture svg')].flatMap((svg) =>
  [...svg.querySelectorAll('text.lane')].filter((text) => {
    const label = text.getBBox(), middle = label.y + label.height / 2;
    return [...svg.querySelectorAll('path.mark')].map((mark) => mark.getBBox()).some((mark) =>
      mark.x > label.x && mark.x < label.x + label.width && middle > mark.y && middle < mark.y + mark.height);
  }).map((text) => text.textContent))"""
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    started = Browser()
    yield started
    started.close()


@pytest.fixture(scope="module", params=SOME)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("lessons") / f"{request.param}.html"
    file.write_text(page_text(request.param))
    return file


def test_nothing_goes_wrong_and_nothing_is_fetched(browser: Browser, page: Path) -> None:
    browser.open(page)
    for warp in range(browser.ask("data.warps.length")):
        browser.ask(f"toWarp({warp}); for (let n = 0; n < warpNow().moments.length; n += 7) go(n); true")
    assert browser.complaints == []
    assert browser.fetched == []


@pytest.mark.parametrize("kernel", RUNGS, ids=lambda kernel: kernel.name)
def test_every_lesson_opens_on_its_idea(browser: Browser, tmp_path: Path, kernel: Kernel) -> None:
    """Beside a picture; all its moments can be drawn, and each says whose elements it moves."""
    file = tmp_path / "lesson.html"
    file.write_text(page_text(kernel.name))
    browser.open(file, 420)
    assert browser.ask(WIDER) == 0
    assert browser.ask(LONG) == browser.ask(CROSSED) == []
    warp, place = browser.ask("[state.warp, state.moment]")
    assert [warp, place] == lesson(kernel.name)["opening"]["place"]
    assert browser.ask("document.querySelectorAll('#opening-picture :is(rect, .bar)').length") >= 2
    assert browser.ask("document.querySelector('#question summary').textContent").endswith("?")
    assert len(browser.ask("[...document.querySelectorAll('#chapters button')].map(e => e.textContent)")) >= 2
    for warp in range(browser.ask("data.warps.length")):
        words = browser.ask(EVERY_MOMENT.replace("WARP", str(warp)))
        assert words
        assert not [text for text in words if not WHOSE.search(text)]
    assert browser.complaints == []


def test_a_chapter_is_a_step_of_k(browser: Browser, tmp_path: Path) -> None:
    """A block that stays goes on to another tile."""
    file = tmp_path / "lesson.html"
    file.write_text(page_text("wgmma_rounds"))
    browser.open(file)
    names = browser.ask("[...document.querySelectorAll('#chapters button')].map((each) => each.textContent)")
    steps = [f"k {k}" for k in range(0, 384, 64)]
    assert names == [*steps, "sums leave", *(f"C[0, 256] {step}" for step in steps)]
    browser.ask("document.querySelectorAll('#chapters button')[8].click()")
    assert browser.ask("document.getElementById('moment').textContent").endswith(
        "wgmma on A[0..15, 64..79] and B[64..79, 256..511]"
    )
    assert browser.ask("document.querySelector('#chapters [aria-current]').textContent") == names[8]


def test_the_index_shows_rungs_in_the_order_of_reading(browser: Browser, tmp_path: Path) -> None:
    rungs = RUNGS[:5]
    file = tmp_path / "index.html"
    file.write_text(index_of([lesson(rung.name) for rung in rungs], rungs))
    for width in (1280, 420):
        browser.open(file, width)
        assert browser.ask(WIDER) == 0
        assert browser.ask("document.querySelectorAll('.card svg rect').length") > 5 * 2
    assert "read first: 04" in browser.ask("document.getElementById('rung-5').textContent")
    assert browser.complaints == []


@pytest.mark.parametrize("rung", ["padded_tile", "mma_swizzled", "wgmma_clusters"])
def test_a_rung_against_conflicts_opens_on_none(browser: Browser, tmp_path: Path, rung: str) -> None:
    file = tmp_path / "lesson.html"
    file.write_text(page_text(rung))
    browser.open(file)
    assert browser.ask("document.getElementById('verdict').className") == "good"


def test_the_slider_moves_the_picture(browser: Browser, page: Path) -> None:
    browser.open(page)
    before = browser.ask(PICTURE)
    last = browser.ask("Number(document.getElementById('slider').max)")
    move = "slider.value = {}; slider.dispatchEvent(new Event('input'))"
    browser.ask(f"{{ const slider = document.getElementById('slider'); {move.format(last)} }}")
    assert browser.ask(PICTURE) != before
    assert browser.ask("document.getElementById('moment').textContent").startswith(f"{last + 1} of")


def test_the_keys_step_from_moment_to_moment(browser: Browser, page: Path) -> None:
    browser.open(page)
    at = browser.ask("state.moment")
    browser.press("ArrowRight")
    assert browser.ask("state.moment") == at + 1
    browser.press("ArrowLeft")
    browser.press("Home")
    assert browser.ask("state.moment") == 0
    browser.press("PageDown")
    assert browser.ask("momentNow().kind") == "wait"
    browser.press("ArrowDown")
    assert browser.ask("state.lane") == 1


@pytest.mark.parametrize("width", [1280, 420])
def test_the_page_is_no_wider_than_the_screen(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, width)
    assert browser.ask(WIDER) == 0


def test_a_lane_under_the_pointer_is_told(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "lesson.html"
    file.write_text(page_text("shared_tile"))
    browser.open(file)
    browser.ask(
        "document.querySelector('#memory [data-lane=\"5\"]')"
        ".dispatchEvent(new PointerEvent('pointerover', { bubbles: true }))"
    )
    words = browser.ask("document.getElementById('inspect').textContent")
    assert words.startswith("lane 5 (thread 5)")
    assert "bank 0..3, turn 6" in words
    assert words.endswith("B[0..3, 5]")


def test_dark_and_light_differ(browser: Browser, page: Path) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    browser.open(page)
    light = browser.ask(paper)
    browser.open(page, dark=True)
    assert browser.ask(paper) != light
