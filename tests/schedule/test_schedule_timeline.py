"""What `lapidist schedule` shows: the drawing agrees with the simulation, in text, as data and as SVG."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lapidist.commands import cli
from lapidist.commands.schedule import schedule
from lapidist.commands.timeline import (
    as_data,
    bars,
    cells,
    compare,
    draw,
    name,
    of_kernel,
    parse_costs,
    round_step,
)
from lapidist.device import chip
from lapidist.errors import ArgumentError
from lapidist.kernels.config_table import Columns
from lapidist.kernels.wgmma.family import WGMMA_FAMILY
from lapidist.kernels.wgmma.sharing import handing_on
from lapidist.planning.cost_table import LAUNCH_SECONDS
from lapidist.planning.planner import exactly
from lapidist.schedule import CostModel, TileGrid, data_parallel, split_k, stream_k
from lapidist.schedule.schedule_options import Grids, ScheduleOptions
from lapidist.schedule.sharing_choice import Sharing
from lapidist.schedule.simulate import simulate
from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.protocol.contenders import problem_of

SVG = "{http://www.w3.org/2000/svg}"
SMALL = stream_k(TileGrid(3, 3, 32), sms=4)


def test_cells_show_what_takes_most_of_the_time() -> None:
    line = simulate(data_parallel(TileGrid(1, 3, 8)), 2, costs=CostModel(2, 0, 1, 0))
    rows = bars(line, 20, 0)
    assert rows[0].split() == ["0", "20", "iterations"]
    assert rows[1] == "     SM 0 |>>aaaaaaaa>>cccccccc|"
    assert rows[2] == "     SM 1 |>>bbbbbbbb          |"
    assert cells([], 1.0, 5) == "     "


def test_rows_in_the_middle_are_left_out() -> None:
    rows = bars(simulate(data_parallel(TileGrid(4, 8, 8)), 32), 20, 6)
    assert [row.split("|")[0].strip() for row in rows[1:5]] == ["SM 0", "SM 1", "SM 2", "SM 3"]
    assert "26 more rows" in rows[5]
    assert [row.split("|")[0].strip() for row in rows[6:]] == ["SM 30", "SM 31"]


def test_text_and_predictions(capsys: pytest.CaptureFixture[str]) -> None:
    schedule("1024,1152,4096", streamed=True)
    printed = capsys.readouterr().out
    assert "72 tiles shared by 132 blocks" in printed
    assert "uncalibrated" in printed
    lines = [
        line for line in printed.splitlines() if line.startswith(("Stream-K ", "data-parallel ", "split-K "))
    ]
    assert [line[:14].strip() for line in lines][:3] == ["Stream-K", "data-parallel", "split-K 2"]
    speeds = [float(speed) for line in lines for speed in re.findall(r" ([\d.]+)x ", line)]
    assert len(speeds) == len(lines)
    assert speeds[1] == 1
    assert speeds[0] > 1.4


def test_what_was_chosen_is_listed_once(capsys: pytest.CaptureFixture[str]) -> None:
    for options in ({}, {"splits": 3}, {"splits": 5}, {"streamed": True, "avail_sms": 1}):
        schedule("256,384,512", sms=4, as_json=True, **options)  # type: ignore[arg-type]
        names = [row["schedule"] for row in json.loads(capsys.readouterr().out)["predictions"]]
        assert max(Counter(names).values()) == 1
        assert names[0] == {None: "data-parallel", 3: "split-K 3", 5: "split-K 5"}[options.get("splits")]


def test_data_holds_every_iteration() -> None:
    found = compare(SMALL, 4, 1, CostModel())
    data: dict[str, Any] = json.loads(json.dumps(as_data(found)))
    assert (
        sum(span["k_end"] - span["k_begin"] for span in data["spans"] if span["kind"] == "compute") == 9 * 32
    )
    assert data["predictions"][0]["time"] == max(span["end"] for span in data["spans"])
    assert data["schedule"]["sk_tiles"] == SMALL.sk_tiles
    assert data["workspace"]["slots"] == SMALL.slots


def test_svg_draws_every_span_in_its_place(tmp_path: Path) -> None:
    found = compare(SMALL, 4, 1, CostModel())
    assert [name(line) for line in found.drawn] == ["Stream-K", "data-parallel", "split-K 2"]
    root = ElementTree.fromstring(draw(found, "a < b"))
    boxes = [box for box in root.iter(f"{SVG}rect") if box.find(f"{SVG}title") is not None]
    assert len(boxes) == sum(len(line.spans) for line in found.drawn)
    height, width = float(root.get("height", 0)), float(root.get("width", 0))
    for box in boxes:
        x, y, w, h = (float(box.get(name, "nan")) for name in ("x", "y", "width", "height"))
        assert 0 < x <= x + w <= width
        assert 0 < y <= y + h <= height


def test_svg_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "timeline.svg"
    schedule("300,300,300", streamed=True, sms=8, svg=path, costs="2,3,0.5,1")
    assert "given on the command line" in capsys.readouterr().out
    assert "300 x 300 x 300 in tiles of 128x128x32" in path.read_text()


def test_nothing_is_drawn_for_an_empty_product() -> None:
    found = compare(data_parallel(TileGrid(0, 3, 4)), 4, 1, CostModel())
    assert bars(found.chosen, 20, 0) == ["nothing to launch"]
    ElementTree.fromstring(draw(found, "empty"))


@pytest.mark.parametrize(
    ("least", "step"), [(0.9, 1), (1, 1), (1.1, 2), (3, 5), (6, 10), (0.012, 0.02), (0, 0)]
)
def test_ticks_are_round(least: float, step: float) -> None:
    assert round_step(least) == pytest.approx(step)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"streamed": True, "splits": 2}, "--split-k: must be left out where --stream-k is given; got 2"),
        ({"tile": "128x128"}, "--tile: must be BMxBNxBK, three positive numbers; got '128x128'"),
        ({"tile": "128x0x8"}, "--tile: must be BMxBNxBK"),
        ({"costs": "1,2"}, "--costs: must be START,FIXUP,ITERATION,PEER in microseconds; got '1,2'"),
        ({"splits": 33}, "split_k: must not be larger than the iterations along k, 16; got 33"),
        ({"streamed": True, "avail_sms": 0}, "avail_sms: must be at least 1; got 0"),
        ({"svg": Path("/nowhere/at/all.svg")}, "--svg"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        schedule("256,384,512", **options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--stream-k"], 0),
        (["--split-k", "2"], 0),
        (["--stream-k", "--split-k", "2"], 2),
        (["--rows", "-1"], 2),
    ],
)
def test_the_command(
    arguments: list[str], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "sys.argv", ["lapidist", "schedule", "--mnk", "256,384,512", "--sms", "4", *arguments]
    )
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert int(exit_.value.code or 0) == code
    printed = capsys.readouterr()
    assert ("efficiency" in printed.out) == (code == 0)
    assert len(printed.err.splitlines()) == (code > 0)


def test_a_kernel_brings_its_tile_and_its_costs(capsys: pytest.CaptureFixture[str]) -> None:
    schedule("1500,700,4096", kernel="mma", dtype="fp16", streamed=True)
    printed = capsys.readouterr().out
    assert "12 x 6 tiles, 128 iterations each" in printed
    assert "SM 0.1" in printed  # two blocks on each
    assert "alongside" in printed
    assert "us (measured on an H200)" in " ".join(printed.split())
    with pytest.raises(ArgumentError, match="--kernel: must be one that takes schedules; got warp_tile"):
        schedule("1500,700,4096", kernel="warp_tile")


def test_a_cluster_is_drawn_as_one_block_on_all_of_its_multiprocessors(
    capsys: pytest.CaptureFixture[str],
) -> None:
    schedule("4096,4096,4096", kernel="wgmma", dtype="bf16", rows=6)
    printed = capsys.readouterr().out
    assert "16 x 16 tiles" in printed
    assert "… 60 more rows" in printed  # 66 pairs of the 132
    with pytest.raises(ArgumentError, match="sms: must be at least 1; got 0"):
        schedule("4096,4096,4096", kernel="wgmma", dtype="bf16", sms=0)


def test_wgmma_brings_the_costs_that_its_planner_weighs() -> None:
    """What is handed on by turnstile costs the same in the drawing and in the model: for two peers, and for
    each further one.
    """
    case = Case(1024, 1152, 4096, "bfloat16")
    words, grid, cluster, per_sm, costs = of_kernel("wgmma", case)
    config = WGMMA_FAMILY.config_for("bfloat16")
    assert (words, cluster, per_sm) == (f"wgmma's {config}", 2, 1)
    for splits in (2, 5):
        ways = ScheduleOptions.of_schedules(Grids.one(grid), [[split_k(grid, splits)]])
        shared = float(handing_on(ways, Columns.of([config]), chip("h200")).item())
        assert costs.block(0, splits) - costs.block(0, 1) == pytest.approx(shared)
    whole = Sharing("data_parallel")
    alone = (
        exactly(problem_of(case, False), chip("h200"), WGMMA_FAMILY, config, whole).seconds - LAUNCH_SECONDS
    )
    assert costs.block(grid.iterations, 1) == pytest.approx(alone, rel=0.1)


def test_costs_are_microseconds() -> None:
    assert parse_costs("2,3,0.5,1") == CostModel(
        2e-6, 3e-6, 0.5e-6, 1e-6, "seconds", "given on the command line"
    )
