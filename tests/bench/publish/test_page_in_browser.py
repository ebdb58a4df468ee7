"""The report page in a browser: it filters, sorts, folds, tells values, and fits a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from browser import Browser
from lapidist_lab.bench.protocol.record import read_runs
from lapidist_lab.bench.publish.report import write_html

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[3]
SHOWN = "[...document.querySelectorAll('details.case:not([hidden]) tbody tr:not([hidden])')]"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    started = Browser()
    yield started
    started.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of all committed Records."""
    file = tmp_path_factory.mktemp("report") / "report.html"
    write_html(file, read_runs(ROOT / "results"))
    return file


def test_rows_are_found_by_kernel_and_size(browser: Browser, page: Path) -> None:
    browser.open(page)
    everything = browser.ask(f"{SHOWN}.length")
    browser.ask("filter.value = 'double_buffer 4096^3'; filter.dispatchEvent(new Event('input'))")
    found = browser.ask(f"{SHOWN}.map((row) => row.cells[0].textContent)")
    assert 0 < len(found) < everything
    assert all("double_buffer" in name for name in found)
    assert browser.complaints == []
    assert browser.fetched == []


def test_a_table_is_sorted_by_its_numbers(browser: Browser, page: Path) -> None:
    browser.open(page)
    column = "[...document.querySelector('details.case tbody').rows].map((row) => valueOf(row, {}))"
    for place in (1, 2):  # time, in units that differ, and TFLOP/s
        for descending in (False, True):
            browser.ask(f"document.querySelectorAll('details.case th button')[{place}].click()")
            values = browser.ask(column.format(place))
            numbers = [value for value in values if not isinstance(value, str)]
            assert len(numbers) > 5
            assert numbers == sorted(numbers, reverse=descending)


def test_a_bar_tells_its_value(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.ask(
        "document.querySelector('svg [data-words]').dispatchEvent(new MouseEvent('click', { bubbles: true }))"
    )
    assert browser.ask("told.textContent").startswith("01 uncoalesced, 0.50, 1.0 %")


@pytest.mark.parametrize("width", [1280, 420])
def test_it_is_no_wider_than_the_screen(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, width)
    browser.ask("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    assert browser.ask("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0


def test_words_of_a_chart_do_not_lie_on_each_other(browser: Browser, page: Path) -> None:
    """Names of bars, and of series at the margin: boxes of two words of one chart hardly meet."""
    browser.open(page)
    browser.ask("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    met = browser.ask("""[...document.querySelectorAll('svg')].flatMap((svg) => {
      const boxOf = (each) => [each.textContent, each.getBoundingClientRect()];
      const boxes = [...svg.querySelectorAll('text')].map(boxOf);
      return boxes.flatMap(([a, one], n) => boxes.slice(n + 1).filter(([b, other]) => {
        const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
        const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
        return wide > 3 && high > 6;
      }).map(([b]) => `${a} / ${b}`));
    })""")
    assert met == []
    cut = browser.ask("""[...document.querySelectorAll('svg text')].filter((each) => {
      const [word, chart] = [each, each.ownerSVGElement].map((one) => one.getBoundingClientRect());
      return word.left < chart.left || word.right > chart.right || word.top < chart.top - 1;
    }).map((each) => each.textContent)""")
    assert cut == []
