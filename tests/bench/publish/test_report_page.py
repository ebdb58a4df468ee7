"""The report as one HTML page, and its charts."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

from ladder_records import CONDITIONS, ladder, row, types_rows
from lapidist.bench.publish import svg
from lapidist.bench.publish.html import page


def test_a_page_of_several_types_has_plots_for_each() -> None:
    text = page(CONDITIONS, types_rows())
    for title in (
        "The ladder at 4096^3, fp16",
        "Speed against size, m = n = k, fp64",
        "The ladder at 4096^3, e5m2",
    ):
        assert f"<h4>{title}</h4>" in text


def test_names_beside_points_move_to_the_margin_where_they_would_meet() -> None:
    """Two columns of points before the ridge (16 flops a byte), the names of one beside those of the
    other.
    """

    def places(*points: tuple[str, float, float]) -> dict[str, float]:
        drawn = svg.roofline(points, {"unit": 64.0}, 4.0, "Roofline")
        return {
            name: float(re.search(rf'<text x="([\d.]+)"[^>]*>{name}<', drawn)[1]) for name, _, _ in points
        }  # type: ignore[index]

    margin = svg.WIDTH - 170
    met = places(("first", 8.0, 20.0), ("second", 10.0, 21.0))
    assert min(met.values()) > margin
    apart = places(("first", 8.0, 2.0), ("second", 10.0, 21.0))
    assert max(apart.values()) < margin


def test_a_roofline_has_a_roof_for_each_unit() -> None:
    limits = {"fma": {"float16": 66.0}, "mma": {"float16": 615.0}, "wgmma": {"float16": 819.0}}
    text = page(replace(CONDITIONS, chip={"dram_gbps": 4670.0, "unit_tflops": limits}), types_rows())
    for words in (
        "limit of CUDA cores, 66 TFLOP/s",
        "limit of mma.sync, 615 TFLOP/s",
        "limit of wgmma, 819 TFLOP/s",
    ):
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
    anchors = re.findall(r'href="#([\w-]+)"', text)
    assert len(anchors) >= 3
    assert all(f'<details id="{anchor}"' in text for anchor in anchors)


def test_times_are_sorted_by_seconds() -> None:
    text = page(CONDITIONS, [replace(row("coalesced", 5.0), seconds=0.25)])
    assert '<td data-value="0.25">250 ms</td>' in text


def test_labels_of_limits_stay_apart_and_inside() -> None:
    points = [("a", [(128.0, 1.0), (256.0, 2.0)])]
    drawn = svg.lines(points, {"one": 100.0, "other": 101.0}, "n", "y", "t", 640)
    heights = sorted(float(y) for y in re.findall(r'y="([\d.]+)"[^>]*>limit of', drawn))
    assert heights[1] - heights[0] >= svg.LABEL_GAP
    bars = svg.bars([svg.Bar("k", 1.0, "1", "rung")], [("a mark with a long name", 1.0)], "t", 300, 10)
    middle = float(re.search(r'<text x="([\d.]+)"[^>]*>a mark', bars)[1])  # type: ignore[index]
    assert middle + svg.LETTER * 11.5 <= 300.1


def test_a_page_of_nothing_timed_shows_counts() -> None:
    counted = [
        replace(row("coalesced", None), ffma_share=0.25, error="not run", mode="static", device="none")
    ]
    text = page(replace(CONDITIONS, device="none", mode="static"), counted)
    assert "Nothing was timed" in text
    assert "25.0 %" in text


def test_labels_keep_their_distance_and_their_order() -> None:
    placed = svg.spread([10.0, 11.0, 12.0, 100.0], 5.0, 0.0, 100.0)
    assert placed == sorted(placed)
    assert min(b - a for a, b in pairwise(placed)) >= 5.0
    assert max(svg.spread([98.0, 99.0, 100.0], 5.0, 0.0, 100.0)) <= 100.0


def test_ticks_are_round_and_cover_the_values() -> None:
    assert svg.ticks_to(66.0) == [0, 10, 20, 30, 40, 50, 60, 70]
    assert svg.round_numbers(0.33, 69.0) == [0.2, 0.5, 1, 2, 5, 10, 20, 50, 100]
