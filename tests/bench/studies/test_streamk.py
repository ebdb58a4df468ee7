"""The bench of Stream-K without a GPU: what is compared, what is drawn, and the page that Records become."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lapidist.device import chip
from lapidist.errors import ArgumentError
from lapidist.kernels.blocks.splits import busiest, resident
from lapidist.kernels.kernel_table import config_alone
from lapidist.kernels.registry import kernel_named
from lapidist.schedule import TileGrid, split_k, stream_k
from lapidist.schedule.costs import Load, load_of
from lapidist.schedule.schedule_options import Grids, ScheduleOptions
from lapidist.schedule.sharing_choice import Sharing
from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.protocol.record import Conditions, Record, Run, read_run, write_run
from lapidist_lab.bench.publish.sharing_tables import sharing_blocks, sharing_charts, statistics_of
from lapidist_lab.bench.studies.sharing_ways import Way, corpus_ways, family, sharing_configs, table_ways
from lapidist_lab.bench.studies.streamk import (
    MODE_CORPUS,
    blank,
    corpus,
    likely,
    probe_of,
    timed,
    with_best_tile,
)
from lapidist_lab.sass.analysis import resources
from published import points_in

H200 = chip("h200")


def test_a_corpus_is_its_seed() -> None:
    cases = corpus(60, 5, "float32")
    assert cases == corpus(60, 5, "float32")
    assert cases[20:50] == corpus(30, 5, "float32", skipped=20)
    assert all(128 <= extent <= 8192 for case in cases for extent in (case.m, case.n, case.k))
    below = sum(case.m < 1024 for case in cases)
    assert 15 <= below <= 45  # log-uniform: the middle is at 1024


@pytest.mark.parametrize("math", ["float32", "float16", "bfloat16"])
def test_every_way_can_be_planned(math: str) -> None:
    case = Case(1024, 1152, 4096, math)
    plans = {way.name: way.plan(case, H200) for way in (*table_ways(case, H200), *corpus_ways(math, H200))}
    assert plans.pop("cublas") is None
    kinds = {
        name: plan.schedule.kind if plan.schedule else "data-parallel" for name, plan in plans.items() if plan
    }
    assert kinds["data_parallel"] == kinds["stream_k as data_parallel"] == "data-parallel"
    assert kinds["stream_k"] == "Stream-K"
    assert kinds["split_k  4"] == "split-K"
    as_split, split = plans["stream_k as split_k  4"], plans["split_k  4"]
    assert as_split is not None
    assert split is not None
    assert as_split.schedule is not None
    assert split.schedule is not None
    assert as_split.schedule.sk_blocks == split.schedule.sk_blocks


@pytest.mark.parametrize("math", ["float32", "float16"])
def test_costs_of_every_config_that_shares_tiles_can_be_probed(math: str) -> None:
    kernel = family(math, H200)
    for config in sharing_configs(kernel, math):
        schedule = split_k(TileGrid(1, 33, 8), 2)
        way, case = probe_of(schedule, kernel, config, math)
        plan = way.plan(case, H200)
        assert plan is not None
        assert plan.config == config
        assert plan.schedule is not None
        assert (plan.schedule.grid.tiles, plan.schedule.grid.iterations) == (33, 8)


def test_tiles_that_cannot_be_the_best_are_not_timed() -> None:
    ways = corpus_ways("float32", H200)
    tiles = [way.name for way in ways if way.name.startswith("tile ")]
    small, large = (
        [way.name for way in likely(ways, Case(*shape), H200) if way.name in tiles]
        for shape in ((128, 128, 512), (8192, 8192, 8192))
    )
    assert large == tiles[: len(large)]  # the largest
    assert tiles[-1] not in large
    assert small[0] == tiles[0]  # Stream-K's, which is not the best here
    assert any(name.startswith("tile 32x32x32") for name in small)


def rows_of(case: Case, seconds: dict[str, float]) -> list[Record]:
    ready = {name: replace(blank(Way(name), case, H200, MODE_CORPUS), ok=True) for name in seconds}
    return [timed(row, case, seconds[name], seconds["cublas"], H200) for name, row in ready.items()]


def test_the_best_tile_of_each_shape_is_kept() -> None:
    rows = rows_of(Case(300, 400, 500), {"cublas": 3.0, "stream_k": 2.0, "tile 64": 5.0, "tile 32": 4.0})
    found = {row.kernel: row.seconds for row in with_best_tile(rows)}
    assert found == {"cublas": 3.0, "stream_k": 2.0, "data_parallel": 5.0, "best_tile": 4.0}


def test_the_page_says_what_the_records_say(tmp_path: Path) -> None:
    """A corpus that was measured in three parts, one of them twice: the later one counts."""
    draw, measured, runs = random.Random(1), {}, []
    names = ("cublas", "stream_k", "family", "lapidist", "data_parallel", "best_tile")
    for hour, skipped in enumerate((0, 5, 0)):
        drawn = corpus(3 if skipped else 5, 3, "float32", skipped)
        own = {
            each: rows_of(each, {name: each.flops / 4e13 * draw.uniform(0.8, 1.25) for name in names})
            for each in drawn
        }
        measured |= own
        path, date = tmp_path / f"h200-2026010{hour + 1}T000000-streamk.jsonl", f"2026-01-0{hour + 1}"
        part = Conditions(date, "lapidist streamk", "H200", mode=MODE_CORPUS, protocol="short")
        write_run(path, part, [row for rows in own.values() for row in rows])
        runs.append(read_run(path))
    rows, run = [row for own in measured.values() for row in own], runs[0]
    (block,) = sharing_blocks(runs).values()
    assert "A corpus of 8 shapes, fp32" in block
    gains = [
        by["data_parallel"] / by["stream_k"]
        for by in ({row.kernel: row.seconds for row in rows[at : at + 6]} for at in range(0, 48, 6))  # type: ignore[operator]
    ]
    assert f"| {' | '.join(statistics_of(gains))} |" in block
    (chart,) = sharing_charts(runs)
    assert points_in(chart.drawn) == 8 * 3 + 3
    assert sharing_blocks([Run("other.jsonl", replace(run.conditions, mode="sustained"), ())]) == {}


def test_unknown_parts_are_named(tmp_path: Path) -> None:
    """Before a GPU is looked for, or a folder made."""
    from lapidist_lab.bench.studies.streamk import run
    from lapidist_lab.commands.streamk import streamk

    with pytest.raises(ArgumentError, match="WHAT: must be table, corpus or costs; got 'all'"):
        run("all", Case(64, 64, 64), 1, 1, 0, lambda *_: None)
    with pytest.raises(ArgumentError, match="WHAT: must be table, corpus or costs; got 'all'"):
        streamk("all", record=tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


# ---- what the planner thinks of sharing ----


def test_the_busiest_multiprocessor() -> None:
    assert load_of(2, 3, (14, 8)) == Load(iterations=7 * 8, longest=3 * 8, rounds=3)
    assert load_of(2, 3, (7000, 8), (2, 5)) == Load(3500 * 8 + 5, 1167 * 8, 1167)
    schedule = stream_k(TileGrid(3, 3, 8), sms=4, sk_tiles=5, sk_blocks=4)
    ways = ScheduleOptions.of_schedules(Grids.one(schedule.grid), [[schedule]])
    assert busiest(ways, 4, 1) == Load(8 + 10, 8 + 10, 2)
    assert busiest(ways, 4, 2) == Load(8 + 10, 10, 1)


def test_few_tiles_are_split_and_many_are_not() -> None:
    small = next(way for way in corpus_ways("float32", H200) if way.name == "family").plan(
        Case(256, 256, 4096), H200
    )
    large = next(way for way in corpus_ways("float32", H200) if way.name == "family").plan(
        Case(8192, 8192, 512), H200
    )
    assert small is not None
    assert large is not None
    assert small.schedule is not None
    assert small.schedule.shares_tiles
    assert not large.scheduled
    alone = config_alone(large.kernel, large.config, large.problem.math)
    assert len(large.kernel.family.options(large.problem, alone, H200, np.array([True])).possible) == 1


@pytest.mark.often(2)
@pytest.mark.parametrize("shape", [(512, 768, 640), (517, 771, 643)], ids=["by fours", "one by one"])
@pytest.mark.parametrize("place", [0, 2, 3])
def test_as_many_blocks_fit_as_the_planner_counts_on(place: int, shape: tuple[int, int, int]) -> None:
    """With fewer, some of the blocks that share tiles would start when the others are done: a corpus lost a
    quarter so.
    """
    simt = kernel_named("simt")
    config = simt.configs_for("float32")[place][0]
    plan = Way("probe", simt, config, Sharing(split_k=2, reduction="turnstile")).plan(Case(*shape), H200)
    assert plan is not None
    registers, shared, _ = resources(plan.binary)
    assert H200.blocks_resident(config.threads, registers, shared) >= resident(
        simt, config, plan.problem, H200
    )


def test_old_chips_have_no_clusters() -> None:
    from lapidist.errors import RefusalError
    from lapidist.planning.plans import make_plan
    from lapidist_lab.bench.protocol.contenders import problem_of

    problem, simt = problem_of(Case(128, 128, 1024), False), kernel_named("simt")
    with pytest.raises(RefusalError, match=r"'cluster' needs compute capability 9\.0"):
        make_plan(problem, chip("a100"), simt, None, Sharing(split_k=4, reduction="cluster"))
    plan = make_plan(problem, chip("a100"), simt)
    assert plan.schedule is not None
    assert plan.schedule.cluster == 1
