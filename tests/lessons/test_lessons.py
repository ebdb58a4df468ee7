"""Lessons of real rungs: who asks for what, where values come from, who waits for whom."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from in_turns import surveyed, surveyed_but
from lapidist.build.compiler import CUDA_SOURCES
from lapidist.commands.cli import app
from lapidist.kernels.registry import RUNGS
from lapidist_lab.bench.protocol.record import Conditions, Record, Run
from lapidist_lab.lessons.measured import measured
from lapidist_lab.lessons.moments import followed_warps
from lapidist_lab.lessons.page import filled, index_of, page_of
from lapidist_lab.lessons.watch import Copy, Multiplication, Request
from rung_lessons import lesson, observed

NAMES = [rung.name for rung in RUNGS]


def moments(name: str, warp: int = 0) -> list[Any]:
    return [moment.event for moment in observed(name).clock.warps[warp].moments]


def requests(name: str, space: str, what: str) -> list[Request]:
    found = [each for each in moments(name) if isinstance(each, Request)]
    return [each for each in found if (each.space, each.action) == (space, what)]


def worst(name: str, kind: str, count: str) -> int:
    """The largest number of sectors or turns that a request of the first warp takes."""
    return max(each[count] for each in lesson(name)["warps"][0]["moments"] if each["kind"] == kind)


# ---- every rung ----


@pytest.mark.survey
@pytest.mark.parametrize("name", NAMES)
def test_every_rung_has_a_lesson(name: str) -> None:
    found = lesson(name)
    assert found["header"]["Lesson"]
    assert found["warps"]
    for warp in found["warps"]:
        assert warp["moments"]
        assert all(moment["t"] >= 0 for moment in warp["moments"])
    assert all(len(row["segments"]) > 1 for row in found["timeline"]["rows"])
    assert found["counts"]


@pytest.mark.often(2)
@pytest.mark.parametrize("name", surveyed_but(NAMES, *range(0, len(NAMES), 5)))
def test_moments_stand_in_the_kernels_own_lines(name: str) -> None:
    seen = observed(name)
    followed = [seen.clock.warps[number] for number, _ in followed_warps(seen)]
    sites = {moment.site for warp in followed for moment in warp.moments}
    last = len((CUDA_SOURCES / seen.kernel.source).read_text().splitlines())
    assert sum(1 <= seen.lines.get(site, 0) <= last for site in sites) > 0.7 * len(sites)


@pytest.mark.survey
@pytest.mark.parametrize("name", NAMES)
def test_segments_of_a_warp_follow_each_other(name: str) -> None:
    for warp in observed(name).clock.warps.values():
        ends = [(segment.begin, segment.end) for segment in warp.segments]
        assert all(end <= begin for (_, end), (begin, _) in pairwise(ends))


@pytest.mark.survey
@pytest.mark.parametrize("name", NAMES)
def test_what_is_loaded_from_global_memory_is_an_element(name: str) -> None:
    for request in requests(name, "global", "load"):
        assert (request.elements[request.present] >= 0).all()


# ---- single lessons ----


def test_neighbours_share_sectors_from_the_second_rung_on() -> None:
    assert worst("uncoalesced", "global", "sectors") == 32
    assert worst("coalesced", "global", "sectors") == 4


def test_padding_ends_the_conflict() -> None:
    assert worst("shared_tile", "shared", "turns") == 32
    padded = lesson("padded_tile")["warps"][0]["moments"]
    assert all(each["turns"] == each["least"] for each in padded if each["kind"] == "shared")


def test_shared_memory_knows_where_its_values_come_from() -> None:
    """Lane n of warp 0 of the shared tile reads B[k, n], and all lanes read row 0 of A."""
    seen = observed("shared_tile")
    loads = requests("shared_tile", "shared", "load")
    k, n = seen.shape[2], seen.shape[1]
    of_b = [each for each in loads if each.elements[0, 0] >= seen.elements.starts[1]]
    columns = (of_b[0].elements[:, 0] - seen.elements.starts[1]) % n
    assert columns.tolist() == list(range(32))
    of_a = [each for each in loads if each.elements[0, 0] < seen.elements.starts[1]]
    assert {int(each.elements[0, 0]) // k for each in of_a} == {0}


@pytest.mark.often(1)
@pytest.mark.parametrize(
    "name", ["vector_loads", "async_pipeline", "mma_multistage", *surveyed(["tma_streamk"])]
)
def test_fragments_come_from_a_and_b(name: str) -> None:
    loads = requests(name, "shared", "load")
    known = [(each.elements[each.present] >= 0).all() for each in loads]
    assert loads
    assert sum(known) >= 0.8 * len(known)  # the rest are results on their way out


def test_the_copy_engine_brings_boxes_and_wgmma_reads_them() -> None:
    name = "wgmma_specialised"
    orders = [each for each in moments(name, 8) if isinstance(each, Copy)]
    assert all((each.elements >= 0).all() for each in orders if each.loads)
    products = [each for each in moments(name) if isinstance(each, Multiplication)]
    seen = observed(name)
    rows, columns = seen.product.a.shape[1], seen.product.b.shape[1]
    first = products[0]
    assert np.unique(first.a // rows).tolist() == list(range(16))
    assert np.unique(first.a % rows).tolist() == list(range(16))
    in_b = first.b - seen.elements.starts[1]
    assert (np.unique(in_b // columns).tolist(), len(np.unique(in_b % columns))) == (list(range(16)), 256)


def test_nobody_reads_a_stage_before_its_bytes_are_there() -> None:
    """A consumer's first product comes after the latency of global memory."""
    clock = observed("wgmma_specialised").clock
    first = next(each for each in clock.warps[0].moments if isinstance(each.event, Multiplication))
    order = next(each for each in clock.warps[8].moments if isinstance(each.event, Copy))
    assert first.time >= order.time + 500


def test_warps_leave_a_barrier_together() -> None:
    """Warp 0 orders the copies meanwhile, and all others wait until it has come."""
    warps = observed("wgmma_tma").clock.warps
    segments = [segment for warp in warps.values() for segment in warp.segments]
    waits = {segment.end for segment in segments if "barrier" in segment.parts}
    met = [moment for moment in warps[1].moments if moment.event == "barrier"]
    assert 0 < len(waits) <= len(met)


def test_a_prefetch_hides_the_trip_to_memory() -> None:
    """Rung 07 loads the next tile before it multiplies this one; rung 06 waits for its tile."""

    def waited(name: str) -> float:
        warp = observed(name).clock.warps[0]
        return sum(segment.parts.get("data from global memory", 0.0) for segment in warp.segments)

    assert waited("vector_loads") < waited("thread_column")


def test_counts_stand_beside_those_of_the_rung_before() -> None:
    found = lesson("padded_tile")
    assert found["before"] == "shared_tile"
    turns = next(row for row in found["counts"] if row["name"] == "turns a shared load")
    assert turns["now"] < turns["before"] / 5


# ---- measured ----


def record(kernel: str, tflops: float, ratio: float | None = None, kind: str = "rung") -> Record:
    return Record(
        kernel,
        kind,
        "a GPU",
        "float32",
        "rrr",
        4096,
        4096,
        4096,
        1.0,
        tflops,
        ratio,
        None,
        None,
        True,
        "sustained",
    )


def test_bars_are_of_one_run() -> None:
    conditions = Conditions("2026-01-01T00:00:00+00:00", "climb", "a GPU")
    early = Run(
        "early.jsonl", conditions, (record("coalesced", 5.0, 0.1), record("cublas", 50.0, None, "peer"))
    )
    late = Run(
        "late.jsonl", conditions, (record("coalesced", 6.0, 0.2), record("cublas", 30.0, None, "peer"))
    )
    found = measured([early, late], "coalesced", "float32")
    assert found is not None
    assert found["file"] == "results/late.jsonl"
    assert [(row["label"], row["tflops"]) for row in found["rows"]] == [
        ("02 coalesced", 6.0),
        ("cuBLAS", 30.0),
    ]
    assert measured([early], "uncoalesced", "float32") is None


# ---- the page ----


def test_the_page_needs_nothing_from_outside() -> None:
    text = page_of(lesson("shared_tile") | {"measured": None}, RUNGS)
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", text)
    assert not re.findall(r"@import|url\(", text)
    assert "<script src" not in text
    assert 'href="index.html"' in text


def test_the_data_cannot_end_the_script_that_holds_it() -> None:
    text = page_of(lesson("shared_tile") | {"measured": None, "idea": "</script><b>"})
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert data is not None
    assert json.loads(data[1])["idea"] == "</script><b>"


def test_every_id_that_the_script_asks_for_is_in_the_page() -> None:
    text = page_of(lesson("shared_tile") | {"measured": None})
    asked = set(re.findall(r'byId\("([\w-]+)"\)', text))
    made = set(re.findall(r'\bid="([\w-]+)"', text)) | set(re.findall(r'\bid: "([\w-]+)"', text))
    assert asked
    assert asked <= made


def test_templates_are_filled_once() -> None:
    assert filled("<@a@|@b@>", {"a": "@b@", "b": "1"}) == "<@b@|1>"


def test_the_index_names_every_rung() -> None:
    rungs = RUNGS[:2]
    text = index_of([lesson(rung.name) for rung in rungs], rungs)
    assert 'href="01_uncoalesced.html"' in text
    assert 'href="02_coalesced.html"' in text


# ---- the command ----


def test_the_command_writes_one_page(tmp_path: Path) -> None:
    file = tmp_path / "lesson.html"
    found = CliRunner().invoke(app, ["lesson", "02", "--html", str(file), "--root", str(tmp_path)])
    assert found.exit_code == 0
    assert "02 coalesced" in file.read_text()


@pytest.mark.parametrize("arguments", [[], ["02"], ["02", "--all", "--html", "x"]])
def test_the_command_says_what_it_needs(arguments: list[str]) -> None:
    found = CliRunner().invoke(app, ["lesson", *arguments])
    assert found.exit_code != 0
    assert "must" in str(found.exception)
