"""The pages of measurements: answers and charts agree with the Records that they are made from."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import pytest
from matplotlib.textpath import TextPath

from lapidist_lab.bench.protocol.contenders import LIBRARY
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish import bar_charts, charts, pages, squares
from lapidist_lab.bench.publish.call_costs import of_decode
from lapidist_lab.bench.publish.ladder_tables import ladder_section
from lapidist_lab.bench.publish.mean_and_worst import mean_and_worst
from lapidist_lab.bench.publish.section import Data
from lapidist_lab.bench.publish.squares import summary
from lapidist_lab.bench.publish.tables import table


def row(kernel: str, size: int, tflops: float, ratio: float | None, mode: str = "sustained") -> Record:
    kind = {"cublas": "peer", LIBRARY: "production"}.get(kernel, "rung")
    seconds = 2.0 * size**3 / tflops / 1e12
    numbers = (size, size, size, seconds, tflops, ratio, 0.8, 0.1, True)
    return Record(kernel, kind, "NVIDIA H200", "bfloat16", "rrr", *numbers, mode)


@pytest.fixture
def records() -> list[Record]:
    """cuBLAS differs from run to run: at 4096^3 its newest row is slower than beside the planner's choice."""
    return [
        row(LIBRARY, 2048, 630.0, 0.99),
        row(LIBRARY, 4096, 660.0, 1.1),
        row(LIBRARY, 8192, 735.0, 1.05),
        row(LIBRARY, 8192, 832.0, 1.04, "burst"),
        row("wgmma_tma", 4096, 450.0, 0.75),
        row("wgmma_clusters", 4096, 570.0, 0.95),
        row("cublas", 4096, 580.0, 1.0),
    ]


def test_a_type_is_answered_in_a_sentence(records: list[Record]) -> None:
    said = squares.of_type(records)
    assert "**735.0 TFLOP/s**, 105.0 % of cuBLAS. In bursts it reaches **832.0 TFLOP/s**, 104.0 %" in said
    assert "80.0 % of the chip's limit" in said
    least = "at least 99.0 % of cuBLAS sustained (at 2048^3) and 104.0 % of cuBLAS in bursts (at 8192^3)."
    assert said.endswith(least)
    sustained = squares.of_type([each for each in records if each.mode == "sustained"])
    assert sustained.endswith("In bursts none of them was measured.")
    assert squares.of_type([replace(each, ratio=None) for each in records]).startswith("cuBLAS has no such")


def test_what_is_said_in_short_does_not_hide_the_worst(records: list[Record]) -> None:
    """Of any size of the list, smaller ones too."""
    lost = [*records, row(LIBRARY, 1024, 300.0, 0.9), row(LIBRARY, 1023, 100.0, 0.5)]
    least = "at least 90.0 % of cuBLAS sustained (at 1024^3)"
    assert least in squares.of_type(lost)
    assert least in squares.in_short(lost, "bfloat16")
    assert "worst has 90.0 % of cuBLAS (bf16, 1024^3, sustained)" in summary(lost)


def test_shares_are_of_cublas_in_the_same_run(records: list[Record]) -> None:
    """In the table beside the number that they are a share of, in the chart as the bar itself."""
    table = ladder_section("ladder", [each for each in records if each.m == 4096])
    heads, *lines = [
        [cell.strip() for cell in line.split("|")] for line in table.splitlines() if line.startswith("|")
    ]
    ours = next(dict(zip(heads, cells, strict=True)) for cells in lines if cells[1] == LIBRARY)
    assert (ours["TFLOP/s"], ours["cuBLAS then"], ours["% of cuBLAS"]) == ("660.0", "600.0", "110.0")
    chart = squares.ladder_chart(squares.climbed(records))
    assert "660.0 TFLOP/s, 110.0 %" in chart.drawn
    assert "580.0" not in chart.drawn


def test_a_chart_is_two_files_that_a_page_shows(tmp_path: Path) -> None:
    chart = bar_charts.bars(
        "name", [bar_charts.Bar("a < b", 2.0, "two", "rung")], [("cuBLAS", 1.0)], "what & why"
    )
    files = chart.files(tmp_path)
    assert [path.name for path in files] == ["name-light.svg", "name-dark.svg"]
    papers = set()
    for text in files.values():
        drawing = ElementTree.fromstring(text)
        assert drawing.attrib["width"] == str(charts.WIDTH)
        papers.add(re.search(r"fill: (#\w+)", text)[1])  # type: ignore[index]
    assert len(papers) == 2
    shown = chart.shown("folder/")
    assert shown.count("folder/name-") == 2
    assert 'alt="what &amp; why"' in shown


def test_a_table_has_words_to_the_left_and_numbers_to_the_right(records: list[Record]) -> None:
    """Heads that several tables have are named in one string."""
    columns = ("kernel | time | chosen", ("a | b", lambda record: f"{record.m} | {record.n}"))
    text = table(columns, records[:1]).markdown()
    assert text.splitlines()[1:] == ["|---|---:|---|---:|", "| lapidist | 27.27 us |  | 2048 \\| 2048 |"]


def test_a_readers_own_settings_change_no_chart() -> None:
    """Files are compared to the byte."""

    def drawn() -> list[str]:
        points = [(128.0, 1.0), (256.0, 2.0)]
        bars = bar_charts.bars("", [bar_charts.Bar("a", 2.0, "two")], [("cuBLAS", 1.0)], "words")
        return [bars.drawn, charts.lines("", [("a", points)], "words").drawn]

    usual = drawn()
    with matplotlib.rc_context(
        {"font.size": 30, "axes.labelsize": 30, "xtick.labelsize": 30, "ytick.major.width": 9}
    ):
        assert drawn() == usual


def test_names_and_words_stay_inside_of_a_chart() -> None:
    """By DejaVu's letters, which are as wide as viewers' are at most, and something to spare."""

    def width(words: str, size: int) -> float:
        return 1.04 * float(TextPath((0, 0), words, size=size).get_extents().width)

    bars = [bar_charts.Bar("a very long name of a kernel, " * 1, 5.0, "1234.5 TFLOP/s, 123.4 %", "rung")]
    drawing = ElementTree.fromstring(bar_charts.bars("name", bars, [], "words").drawn)
    texts = [each for each in drawing.iter("text") if each.text]
    shown = (bars[0].name, "1234.5, 123.4 %", "TFLOP/s")  # the unit stands above the column
    name, words, unit = (next(each for each in texts if each.text == text) for text in shown)
    assert float(name.attrib["x"]) >= width(bars[0].name, charts.NAMES)
    assert float(words.attrib["x"]) + width(shown[1], charts.SMALL) <= charts.WIDTH
    assert float(unit.attrib["y"]) < float(words.attrib["y"]) - charts.SMALL


def test_a_unit_that_not_all_rows_have_stays_in_each() -> None:
    bars = [bar_charts.Bar("a", 5.0, "5.0 TFLOP/s, 9 %"), bar_charts.Bar("b", 4.0, "4.0")]
    assert ">5.0 TFLOP/s, 9 %<" in bar_charts.bars("name", bars, [], "words").drawn


def test_layers_are_told_with_a_peer_and_without() -> None:
    few, many = (replace(row(LIBRARY, 8192, 600.0, ratio), m=rows) for rows, ratio in ((16, 1.2), (256, 0.9)))
    read = "Weights are read at "
    assert of_decode([few, many]).startswith(read)
    assert "1.20 times cuBLAS in the geometric mean of 1, 1.20 at least" in of_decode([few])
    assert "With 256 rows and more it is 0.90 times cuBLAS" in of_decode([few, many])
    assert "With" not in of_decode([few, replace(many, ratio=None)])
    alone = of_decode([replace(each, ratio=None) for each in (few, many)])
    assert alone.startswith(read)
    assert "cuBLAS" not in alone


def test_no_line_of_a_mark_runs_through_words() -> None:
    rows = [bar_charts.Bar(str(value), value, f"{value} %", "rung") for value in (40.0, 95.0, 120.0)]
    drawing = ElementTree.fromstring(bar_charts.bars("name", rows, [("cuBLAS", 100.0)], "words").drawn)
    dashed = (each for each in drawing.iter("path") if "dasharray" in each.get("style", ""))
    mark, _ = dashed  # the second is in the key
    words = [each for each in drawing.iter("text") if (each.text or "").endswith("%")]
    assert len(words) == len(rows)
    assert all(float(each.attrib["x"]) > float(mark.attrib["d"].split()[1]) for each in words)


def test_libraries_have_one_colour_on_every_chart() -> None:
    """A bar, and the fill and edge of its patch in the key, have it; so have lines, and others do not."""
    rows = [bar_charts.Bar("cutlass", 9.0, "9", "peer"), bar_charts.Bar("cublas_exact", 8.0, "8", "peer")]
    drawn = bar_charts.bars("name", [*rows, bar_charts.Bar("lapidist: mma", 7.0, "7")], [], "words").drawn
    assert [drawn.count(charts.LIGHT[colour]) for colour in ("cutlass", "peer", "production")] == [3, 3, 3]
    assert [charts.line_colour(name, 0) for name in ("cuBLAS, burst", "CUTLASS", "lapidist, burst")] == [
        charts.LIGHT[colour] for colour in ("peer", "cutlass", "production")
    ]
    assert not {charts.LIGHT[colour] for colour in charts.WHOSE.values()} & set(charts.SERIES)


def test_the_chosen_kernel_has_one_number(records: list[Record]) -> None:
    """The library's choice, timed again under the name of its kernel, has no second bar."""
    ours = replace(records[0], kernel="lapidist", kind="production", config="wgmma: 128x256x64", ratio=1.0)
    again = replace(ours, kernel="wgmma", config="128x256x64", tflops=1.0)
    other = replace(again, kernel="mma", config="128x128x32")
    drawn = squares.ladder_chart([ours, again, other]).drawn
    assert ">lapidist: wgmma<" in drawn
    assert ">mma<" in drawn
    assert ">wgmma<" not in drawn


def test_what_is_written_as_one_is_no_loss() -> None:
    drawn = mean_and_worst("name", {"even": [1.1, 0.999], "lost": [1.1, 0.9]}, "words", "torch").drawn
    red = charts.LIGHT["chosen"]
    assert [red in line for line in drawn.splitlines() if ", worst " in line] == [False, True]


def test_pages_of_what_was_not_measured_are_not_written(records: list[Record]) -> None:
    written = {path.name for path in pages.documents(Path(), Data(records))}
    assert {"index.md", "bf16.md", "sizes-bf16-light.svg"} <= written
    assert not {"fp32.md", "ragged.md", "decode.md", "layouts.md"} & written


def test_bars_that_lose_to_their_peer_are_red() -> None:
    """Where bars are in % of it; what is written as 100 % is no loss."""
    cases = (("wins", 104.0), ("even", 99.6), ("loses", 89.0))
    rows = [bar_charts.Bar(name, value, f"{name} by {value}") for name, value in cases]
    told, silent = (
        bar_charts.bars("name", rows, [("cuBLAS", 100.0)], "words", losses=losses).drawn
        for losses in (True, False)
    )
    assert ">a loss<" in told
    assert charts.LIGHT["chosen"] not in silent
    red = [line for line in told.splitlines() if "<text" in line and charts.LIGHT["chosen"] in line]
    assert [re.findall(r">([^<]+)</text>", line) for line in red] == [["loses by 89.0"]]


@pytest.mark.parametrize("page", ["few-bits", "complex", "symmetric", "models", "grouped"])
def test_a_page_of_many_cases_begins_with_a_picture(page: str) -> None:
    """Tables of every case are folded below it."""
    text = (Path(__file__).parents[3] / "docs" / "performance" / f"{page}.md").read_text(encoding="utf-8")
    assert 0 < text.find("<picture>") < text.find("\n|---")
