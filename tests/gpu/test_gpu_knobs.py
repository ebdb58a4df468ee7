"""On a GPU: every knob of wgmma in every type and layout, and tiles of every size, over many tiles of many
steps, exactly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import lapidist
from lapidist.backends.gpu.driver import query_device
from lapidist.config import Config
from lapidist.dtypes import FP8
from lapidist.kernels.wgmma.configs import CLUSTERS, HALF_PATCHED, TILE_ROWS, tile
from lapidist.kernels.wgmma.family import MATHS, WGMMA_FAMILY
from lapidist.planning.cost_table import as_computed
from lapidist.planning.plans import make_plan
from lapidist.planning.warm import build_all, builds_of
from lapidist.problems.problem import dense_problem
from lapidist.verify.sum_bound import judge
from on_gpu import laid_out, whole
from typed import precision_of

pytestmark = pytest.mark.gpu


def knobs(math: str) -> list[Config]:
    """Each exchanged, too; of those that do not fit a layout the others are enough."""
    tiles = [
        tile(math, 64, 64, 4),
        tile(math, 128, 80, 4, (2, 1)),
        tile(math, 128, 64, 3, (1, 2)),
        tile(math, 256, 96, 3),
    ]
    tiles += [tile(math, 64, 64, 4, (2, 2)), tile(math, 128, 96, 3, (4, 1)), tile(math, 256, 200, 3, (2, 1))]
    by_turns = [tile(math, 64, 96, 4, ping_pong=True), tile(math, 128, 64, 3, ping_pong=True)]
    return [replace(each, exchanged=exchanged) for each in (*tiles, *by_turns) for exchanged in (False, True)]


@pytest.mark.parametrize("layouts", ["rr", "rc", "cr", "cc"])
@pytest.mark.parametrize("math", MATHS)
def test_every_knob_over_many_tiles(torch: Any, math: str, layouts: str) -> None:
    """More tiles than the chip has multiprocessors, ragged at both ends, more steps than two rounds of the
    stages.
    """
    m, n, k = 1504, 1296, 1040 if math != "bfloat16" else 144
    names = {"r": "row", "c": "col"}
    a, b = whole(torch, math, m, k), whole(torch, math, k, n)
    a, b = (
        laid_out(a, names[layouts[0]]),
        laid_out(b.clamp(0, 1) if math == "bfloat16" else b, names[layouts[1]]),
    )
    problem, ran = dense_problem(m, n, k, math, layouts), 0
    for config in knobs(math):
        if WGMMA_FAMILY.refuse(as_computed(problem, config), config, query_device(0)) is not None:
            continue
        ran += 1
        d = lapidist.gemm(a, b, kernel="wgmma", config=config, precision=precision_of(math))
        assert judge(d, a, b, exact=True, precision=precision_of(math)).ok, config
    assert ran >= 8


@pytest.mark.parametrize("layouts", ["rr", "rc"])
def test_tiles_of_every_size(torch: Any, layouts: str) -> None:
    """Each with two kinds of clusters, so that a block's part of B has 4 to 256 columns; compiled together,
    ahead.
    """
    math, (m, n, k) = "bfloat16", (1352, 712, 144)
    a, b = (
        whole(torch, math, m, k),
        laid_out(whole(torch, math, k, n).clamp(0, 1), {"r": "row", "c": "col"}[layouts[1]]),
    )
    problem, device = dense_problem(m, n, k, math, layouts), query_device(0)
    sizes = [(rows, columns) for rows in TILE_ROWS for columns in range(16, 257, 16)]
    wanted = [
        tile(math, *size, 2, (*CLUSTERS, *CLUSTERS)[turn % 5 + more])
        for turn, size in enumerate(sizes)
        for more in (0, 3)
    ]
    configs = [config for config in wanted if WGMMA_FAMILY.refuse(problem, config, device) is None]
    assert len(configs) >= 2 * (len(sizes) - 8)  # of 192 and 256 rows few are wider than 192
    assert not any(
        built.error
        for built in build_all(builds_of(make_plan(problem, device, WGMMA_FAMILY, c) for c in configs))
    )
    for config in configs:
        d = lapidist.gemm(a, b, kernel="wgmma", config=config)
        assert judge(d, a, b, exact=True).ok, config


@pytest.mark.parametrize("layouts", ["rr", "rc"])
@pytest.mark.parametrize(
    ("math", "output"),
    [
        ("bfloat16", "float32"),
        ("tf32", "float32"),
        (FP8[0], "float32"),
        (FP8[0], "bfloat16"),
        (FP8[1], "float16"),
    ],
)
def test_the_last_patch_begins_inside_of_the_one_before(
    torch: Any, math: str, output: str, layouts: str
) -> None:
    """Tiles of 200 columns, by every kind of cluster, A and B exchanged and not; compiled together, ahead."""
    m, n, k = 1352, 1000, 400
    names = {"r": "row", "c": "col"}
    a, b = (
        laid_out(whole(torch, math, m, k), names[layouts[0]]),
        laid_out(whole(torch, math, k, n), names[layouts[1]]),
    )
    more = {"out_dtype": output, "precision": precision_of(math)}
    problem, device = lapidist.plan(a, b, **more).problem, query_device(0)
    wanted = [
        tile(math, rows, HALF_PATCHED, 3, each, exchanged=ex)
        for rows in TILE_ROWS
        for each in CLUSTERS
        for ex in (False, True)
    ]
    configs = [
        each for each in wanted if WGMMA_FAMILY.refuse(as_computed(problem, each), each, device) is None
    ]
    assert {(each.cluster_m, each.cluster_n) for each in configs} == {*CLUSTERS} - {(1, 1)}
    assert not any(
        built.error
        for built in build_all(builds_of(make_plan(problem, device, WGMMA_FAMILY, c) for c in configs))
    )
    for config in configs:
        d = lapidist.gemm(a, b, kernel="wgmma", config=config, **more)
        assert judge(d, a, b, exact=output == "float32", precision=precision_of(math), unit="wgmma").ok, (
            config
        )


@pytest.mark.parametrize("schedule", ["auto", "stream_k"])
@pytest.mark.parametrize("cluster", [(1, 1), (2, 1), (1, 2)])
def test_bands_along_m_and_n(torch: Any, cluster: tuple[int, int], schedule: str) -> None:
    """Over more tiles than the chip has multiprocessors, in a batch, the last band a narrower one."""
    a, b = whole(torch, "float16", 2, 1352, 264), whole(torch, "float16", 2, 264, 1304)
    for along_m in (False, True):
        config = tile("float16", 64, 96, 4, cluster, raster=3, along_m=along_m)
        d = lapidist.gemm(a, b, kernel="wgmma", config=config, schedule=schedule, out_dtype="float32")
        assert judge(d, a, b, exact=True).ok, config
