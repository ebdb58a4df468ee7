"""The report as one HTML page, and its charts."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ladder_records import CONDITIONS, ladder, row, types_rows
from lapidist.errors import DeviceError
from lapidist_lab.bench.protocol.record import Run
from lapidist_lab.bench.publish import bar_charts, charts
from lapidist_lab.bench.publish.html import page
from lapidist_lab.bench.publish.output_files import Outputs
from lapidist_lab.bench.publish.panels import Panel, file_of, of_type
from lapidist_lab.bench.publish.report import write_html


def test_a_page_of_several_types_has_plots_for_each() -> None:
    text = page(CONDITIONS, types_rows())
    for title in (
        "The ladder at 4096^3, fp16",
        "Speed against size, m = n = k, fp64",
        "The ladder at 4096^3, e5m2",
    ):
        assert f"<h4>{title}</h4>" in text


def texts_of(chart: charts.Chart | Panel, words: str) -> list[tuple[float, float]]:
    """Where the texts that begin so stand, highest first."""
    found = [each for each in ElementTree.fromstring(chart.drawn).iter("text") if each.text]
    shown = [each.attrib for each in found if (each.text or "").startswith(words)]
    return sorted(((float(each["x"]), float(each["y"])) for each in shown), key=lambda place: place[1])


def test_names_of_points_stand_in_the_margin_below_each_other() -> None:
    """Thirty points, many of them on one spot."""
    points = [(f"name {place}", 8.0 + place % 3, 20.0 + place % 2) for place in range(30)]
    places = texts_of(charts.roofline("", points, {"unit": 64.0}, 4.0, "Roofline"), "name")
    assert len(places) == len(points)
    assert min(x for x, _ in places) > charts.WIDTH - charts.end_margin(["limit of unit, 64"])
    assert min(low - high for (_, high), (_, low) in pairwise(places)) > charts.LABEL_GAP - 0.1
    assert min(y for _, y in places) > charts.SMALL


def test_a_roofline_has_a_roof_for_each_unit() -> None:
    limits = {"fma": {"float16": 66.0}, "mma": {"float16": 615.0}, "wgmma": {"float16": 819.0}}
    text = page(replace(CONDITIONS, chip={"dram_gbps": 4670.0, "unit_tflops": limits}), types_rows())
    for words in ("limit of CUDA cores, 66", "limit of mma.sync, 615", "limit of wgmma, 819"):
        assert words in text


# ---- HTML and SVG ----


def test_the_page_needs_nothing_but_itself() -> None:
    swept = [
        row(name, 10.0, shape=(size, size, 1024))
        for size in (128, 512, 2048)
        for name in ("coalesced", "cublas")
    ]
    text = page(CONDITIONS, [*ladder(), *swept])
    assert text.count("<svg") == text.count("</svg>") == 3
    assert not re.search(r"""src\s*=|href="[^#]|url\(|@import|https?://""", text)
    assert "prefers-color-scheme: dark" in text
    assert "why | not" in text


def test_what_records_say_cannot_become_markup() -> None:
    text = page(CONDITIONS, [replace(row("<b>", 1.0), error="<script>alert(1)</script>", note="&")])
    assert text.count("<script") == 1
    assert "alert(1)</script" not in text
    assert "<b>" not in text


def test_a_share_stands_beside_numbers_of_its_own_run_only() -> None:
    """cuBLAS was slower when it was measured again: the old run's share is not held against that."""
    old = replace(row("coalesced", 667.0), ratio=1.007)
    new = [replace(row("hoisted_indices", 630.0), ratio=0.998), row("cublas", 631.4, "peer")]
    sources = {old.key: "early", **{each.key: "late" for each in new}}
    text = page(CONDITIONS, [old, *new], sources)
    late, early = re.findall(r'<details class="case" open>.*?</details>', text, re.S)
    assert "early" in early
    assert "667.0" in early
    assert "631.4" not in early
    assert "631.4" in late
    assert "Bars are % of cuBLAS in the same run" in text
    assert "cuBLAS in that run 662.4, early" in text


def test_columns_without_anything_are_left_out() -> None:
    text = page(CONDITIONS, [replace(row("coalesced", 5.0), registers=40, shared_bytes=None)])
    assert "<button>registers</button>" in text
    assert "shared B" not in text


def test_the_contents_lead_to_sections_that_are_there() -> None:
    text = page(CONDITIONS, ladder())
    anchors = re.findall(r'<a href="#([\w-]+)"', text)
    assert len(anchors) >= 3
    assert all(f'<details id="{anchor}"' in text for anchor in anchors)


def test_names_of_limits_hide_no_curve() -> None:
    """They stand in the margin, and curves come near the limits."""
    points = [("a", [(128.0, 1.0), (256.0, 99.0)])]
    drawn = charts.lines("", points, "words", {"one": 100.0, "other": 60.0})
    margin = charts.WIDTH - charts.end_margin(["limit of other, 60"])
    assert min(x for x, _ in texts_of(drawn, "limit of")) > margin


def test_a_square_in_another_layout_is_no_second_bar_of_its_kernel() -> None:
    ours = [replace(row("lapidist", 5.0), layout=layout) for layout in ("rrr", "rcr", "crr")]
    bars = of_type(CONDITIONS, [row("coalesced", 5.0), *ours], "float32", {})[0]
    assert len(texts_of(bars, "lapidist")) == 1


def test_times_are_sorted_by_seconds() -> None:
    text = page(CONDITIONS, [replace(row("coalesced", 5.0), seconds=0.25)])
    assert '<td data-value="0.25">250 ms</td>' in text


def test_labels_of_limits_stay_apart_and_inside() -> None:
    points = [("a", [(128.0, 1.0), (256.0, 2.0)])]
    (_, high), (_, low) = texts_of(
        charts.lines("", points, "words", {"one": 100.0, "other": 101.0}), "limit of"
    )
    assert low - high > charts.LABEL_GAP - 0.1
    assert high > charts.SMALL
    mark = "a mark with a long name"
    drawn = bar_charts.bars("", [bar_charts.Bar("k", 1.0, "1")], [(mark, 1.0)], "words", key={})
    ((middle, _),) = texts_of(drawn, mark)
    assert middle + 7.5 * len(mark) / 2 <= charts.WIDTH


def test_a_page_of_nothing_timed_shows_counts() -> None:
    counted = [
        replace(row("coalesced", None), ffma_share=0.25, error="not run", mode="static", device="none")
    ]
    text = page(replace(CONDITIONS, device="none", mode="static"), counted)
    assert "Nothing was timed" in text
    assert "25.0 %" in text


def test_labels_keep_their_distance_and_their_order() -> None:
    placed = charts.spread([10.0, 11.0, 12.0, 100.0], 5.0, 0.0, 100.0)
    assert placed == sorted(placed)
    assert min(b - a for a, b in pairwise(placed)) >= 5.0
    assert max(charts.spread([98.0, 99.0, 100.0], 5.0, 0.0, 100.0)) <= 100.0
    assert charts.spread([2.0, 1.0, 0.0], 5.0, 0.0, 100.0) == [10.0, 5.0, 0.0]


def test_every_colour_has_a_dark_one_of_its_own() -> None:
    """Colours are replaced one by one in what was drawn."""
    light, dark = zip(*charts.COLOURS.values(), strict=True)
    assert len(set(light)) == len(light)
    assert not set(light) & set(dark)


def test_a_file_of_all_charts_follows_its_reader() -> None:
    text = file_of(CONDITIONS, ladder())
    drawing = ElementTree.fromstring(text)
    assert "prefers-color-scheme: dark" in text
    inner = [each for each in drawing if each.tag.endswith("svg")]
    assert len(inner) == 2
    heights = [float(each.attrib["height"]) for each in inner]
    assert float(drawing.attrib["viewBox"].split()[3]) == sum(heights) + 2 * charts.HEAD
    used = {name for name, light in charts.LIGHT.items() if light in text.partition("</style>")[2]}
    assert used == set()


def test_without_matplotlib_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before anything is measured."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for plot, html in ((tmp_path / "a.svg", None), (None, tmp_path / "a.html")):
        outputs = Outputs(False, None, plot, html, None, "climb")
        with pytest.raises(DeviceError, match=r'matplotlib.*pip install "lapidist\[lab\]"'):
            outputs.require_writable()
    Outputs(False, tmp_path / "a.csv", None, None, None, "climb").require_writable()


def test_the_page_is_of_the_run_and_the_chip_whose_bars_it_shows(tmp_path: Path) -> None:
    """A newer run of another chip, with another type, changes neither the title nor the conditions."""
    main = Run("main.jsonl", CONDITIONS, tuple(ladder()))
    other = replace(
        CONDITIONS,
        date="2027-01-01T00:00:00+00:00",
        device="NVIDIA H100",
        chip={"dram_gbps": 3350.0, "limit_tflops": {"float32": 61.0, "bfloat16": 800.0}},
    )
    newer = [replace(record, device="NVIDIA H100", dtype="bfloat16") for record in ladder()]
    write_html(tmp_path / "page.html", [main, Run("newer.jsonl", other, tuple(newer))])
    text = (tmp_path / "page.html").read_text()
    assert "<h1>The ladder on NVIDIA H200</h1>" in text
    assert ", results/main.jsonl" in text
    assert "2027-01-01" not in text
    assert "3350" not in text
    assert "H100" not in text


def test_a_ladder_of_several_runs_names_that_of_most_bars() -> None:
    rows = ladder()
    sources = {record.key: "older" if place == 1 else "newer" for place, record in enumerate(rows)}
    shares = [record for record in rows if record.ratio is not None and record.kernel != "cublas"]
    count = sum(sources[record.key] == "newer" for record in shares)
    assert f"{count} of {len(shares)} are of newer" in page(CONDITIONS, rows, sources)


def test_a_point_under_the_roofs_has_the_colour_of_its_name() -> None:
    drawn = charts.roofline("", [("lapidist", 8.0, 40.0)], {"CUDA cores": 60.0}, 4.0, "Roofline").drawn
    assert drawn.count(charts.LIGHT["production"]) == 2
    assert charts.SERIES[0] not in drawn
