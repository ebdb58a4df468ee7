"""The page that runs a rung in the browser: nothing is fetched from elsewhere, a changed number is seen, a
missing barrier is found.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from browser import Browser
from pages import ROOT

pytestmark = [pytest.mark.browser, pytest.mark.runtime]
SITE, PARTS = ROOT / "site" / "in_browser", ROOT / "build" / "in_browser"
PAGE = '<meta charset="utf-8"><div id="rung-in-browser"></div><script src="page.js"></script>'
# until what the page says satisfies a test
UNTIL = """new Promise((resolve) => {
  const state = document.getElementById("rib-state");
  const look = () => { if ((TEST)(state.textContent)) { watch.disconnect(); resolve(state.textContent); } };
  const watch = new MutationObserver(look);
  watch.observe(state, { childList: true, subtree: true, characterData: true });
  look();
})"""

# the document of the lesson, once its script has drawn it
LESSON = """new Promise((resolve) => {
  const frame = document.getElementById("rib-lesson");
  const drawn = () => frame.contentDocument?.getElementById("title")?.textContent;
  if (drawn()) resolve(frame.contentDocument);
  else frame.addEventListener("load", () => resolve(frame.contentDocument), { once: true });
})"""


def until(browser: Browser, test: str) -> str:
    return browser.ask(UNTIL.replace("TEST", test))


def run(browser: Browser, change: str) -> tuple[str, str]:
    """The verdict after a change and a run, and the page's words of what is below."""
    browser.ask(f"{change}; document.getElementById('rib-run').click()")
    state = until(browser, "(words) => words.startsWith('Done')")
    return browser.ask("document.getElementById('rib-verdict').textContent"), state


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder = tmp_path_factory.mktemp("site")
    for name in ("runtime.js", "lapidist.js"):
        assert (PARTS / name).exists(), f"{name} is not there: make rung-in-browser"
        (folder / name).symlink_to(PARTS / name)
    (folder / "page.js").write_text((SITE / "page.js").read_text())
    (folder / "index.html").write_text(PAGE)
    started = Browser()
    started.open(folder / "index.html", 390)
    yield started
    started.close()


def test_a_rung_runs_in_the_page(browser: Browser) -> None:
    browser.ask("document.getElementById('rib-start').click()")
    assert until(browser, "(words) => /^Ready|not there|error/i.test(words)").startswith("Ready")
    verdict, state = run(browser, "true")
    assert verdict == "Every element of D is right, and nothing was found in a run."
    assert "below" in state
    assert browser.ask(f"{LESSON}.then((lesson) => lesson.getElementById('title').textContent)") == (
        "05 padded_tile: one unused element a row: no conflicts"
    )
    assert browser.ask(f"{LESSON}.then((lesson) => lesson.querySelectorAll('#memory rect').length)") > 32
    assert {Path(url).name for url in browser.fetched if url.startswith("file:")} <= {
        "page.js",
        "runtime.js",
        "lapidist.js",
    }
    assert not [url for url in browser.fetched if not url.startswith(("file:", "blob:"))]
    assert browser.complaints == []


def test_a_changed_size_is_run_and_one_of_another_binary_refused(browser: Browser) -> None:
    verdict, state = run(browser, "document.getElementById('rib-n').value = 128")
    assert "Every element of D is right" in verdict
    header = browser.ask(f"{LESSON}.then((lesson) => lesson.getElementById('header').textContent)")
    assert "64 x 128 x 96 in float32" in header
    verdict, state = run(browser, "document.getElementById('rib-n').value = 33")
    assert "Take multiples of 32, 32 and 32" in verdict
    assert state == "Done."


def test_a_barrier_that_is_taken_out_is_a_race(browser: Browser) -> None:
    text = json.dumps("bar.sync \t0;")
    verdict, _ = run(
        browser,
        "document.getElementById('rib-n').value = 64; document.getElementById('rib-races').checked = true;"
        f"const box = document.getElementById('rib-ptx'); box.value = box.value.replace({text}, '')",
    )
    assert "a race on shared memory" in verdict
    assert "05_padded_tile.cu:" in verdict
    assert browser.ask("document.getElementById('rib-verdict').className") == "wrong"
