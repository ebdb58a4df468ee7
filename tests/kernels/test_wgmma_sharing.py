"""gemm/wgmma.cu with blocks that share tiles: in the machine in every type, packed, in clusters, fuzzed; and
on a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lapidist
from lapidist import machine
from lapidist.config import Config
from lapidist.device import chip
from lapidist.dtypes import numpy_dtype
from lapidist.errors import RefusalError
from lapidist.frameworks.arrays import operand_of
from lapidist.kernels.kernel_table import config_alone
from lapidist.kernels.registry import kernel_named
from lapidist.kernels.wgmma.family import WGMMA_FAMILY, tile
from lapidist.kernels.wgmma.sharing import schedules
from lapidist.planning.cost_table import CostTable
from lapidist.planning.plans import Plan, make_plan
from lapidist.planning.workspace import Scratch
from lapidist.problems.problem import Problem, dense_problem
from lapidist.schedule import TileGrid, data_parallel, stream_k
from lapidist.schedule.sharing_choice import PLANNED, Sharing
from lapidist.verify.sum_bound import judge
from on_gpu import check_on_streams_and_in_graphs

pytestmark = pytest.mark.survey

Array = np.ndarray[Any, Any]
Way = Callable[[TileGrid], Sharing]
SMALL = {math: tile(math, 64, 32, 2) for math in ("bfloat16", "float16", "tf32", "int8", "float8_e4m3fn")}
PAIRS = tile("bfloat16", 128, 48, 2, (2, 1)), tile("bfloat16", 64, 64, 2, (1, 2))
MATHS = tuple(SMALL)


def streamed(blocks: int, tiles: int | None = None) -> Way:
    """The last tiles shared by so many persistent blocks."""
    return lambda grid: Sharing(
        stream_k(
            grid, sms=blocks, sk_tiles=min(grid.tiles, tiles or grid.tiles), sk_blocks=blocks, persistent=True
        )
    )


WAYS: dict[str, Way] = {
    "split": lambda grid: Sharing(split_k=3, reduction="turnstile"),
    "split, peers in clusters": lambda grid: Sharing(split_k=3, reduction="cluster"),
    "stream": streamed(5),
    "stream, fewer blocks than tiles": streamed(4, 7),
    "whole tiles": lambda grid: Sharing(data_parallel(grid, persistent_blocks=2)),
}


def padded(rows: int, cols: int, seed: int, dtype: str, gap: int) -> Array:
    """Small integers, lines `gap` elements further apart than long."""
    return (
        np.random.default_rng(seed).integers(-4, 5, (rows, cols + gap)).astype(numpy_dtype(dtype))[:, :cols]
    )


def planned(a: Array, b: Array, c: Array | None, d: Array, config: Config, way: Way, math: str = "") -> Plan:
    operands = (
        operand_of(a, "a"),
        operand_of(b, "b"),
        None if c is None else operand_of(c, "c"),
        operand_of(d, "out"),
    )
    problem = Problem.of(*operands, precision="tf32" if math == "tf32" else "ieee")
    return make_plan(
        problem, chip("h200"), WGMMA_FAMILY, config, way(WGMMA_FAMILY.tile_grid(problem, config))
    )


def test_rows_that_are_shifted_are_shared_by_turnstile_only_where_that_is_asked_for() -> None:
    """Those kernels take longest to compile, and hardly one is the fastest."""
    skewed = next(
        config for config, _ in WGMMA_FAMILY.configs_for("bfloat16") if config.skewed and config.cluster == 1
    )
    grid, device = TileGrid(40, 5, 64), chip("h200")

    def reductions(config: Config, sharing: Sharing) -> set[str]:
        weighed = schedules(grid, config, device, sharing, True, True)
        return {schedule.reduction for schedule in weighed if schedule is not None and schedule.shares_tiles}

    assert "turnstile" in reductions(replace(skewed, skewed=False), PLANNED)
    assert "turnstile" not in reductions(skewed, PLANNED)
    assert "turnstile" in reductions(skewed, Sharing("stream_k"))


def run_twice(plan: Plan, a: Array, b: Array, c: Array | None, d: Array, **more: Any) -> None:
    """Back to back on one workspace: flags must have reset themselves. alpha and beta are applied once, by
    who finishes.
    """
    scratch = Scratch(plan)
    operands = (
        operand_of(a, "a"),
        operand_of(b, "b"),
        None if c is None else operand_of(c, "c"),
        operand_of(d, "out"),
    )
    exact = 2.0 * (a.astype("f8") @ b.astype("f8")) - (0.0 if c is None else 3.0 * c.astype("f8"))
    for _ in range(2):
        d.fill(99)
        launch = plan.launch(*operands, 2.0, 0.0 if c is None else -3.0, workspace=scratch)
        machine.run(launch, residency=launch.grid[0], **more)
        scratch.require_zero_flags()
        np.testing.assert_allclose(d.astype("f8"), exact, rtol=2**-7 if d.itemsize == 2 else 2**-22)


@pytest.mark.parametrize("math", MATHS)
@pytest.mark.parametrize("way", WAYS)
def test_shared_tiles_come_out_right(way: str, math: str) -> None:
    """Ragged everywhere; seven steps of k, the last one short."""
    config, dtype = SMALL[math], "float32" if math == "tf32" else math
    m, n, k = 136, 80, 6 * config.bk + 16
    a, b = padded(m, k, 1, dtype, 0), padded(k, n, 2, dtype, 0)
    d, c = np.zeros((m, n), "float32" if math[:3] != "int" else "int32"), None
    if math in ("bfloat16", "float16"):
        d, c = d.astype(a.dtype), padded(m, n, 3, dtype, 0)
    run_twice(planned(a, b, c, d, config, WAYS[way], math), a, b, c, d)


@pytest.mark.parametrize(
    ("m", "n", "k", "config", "way"),
    [
        (30, 20, 60, SMALL["bfloat16"], streamed(1)),  # k of one step
        (60, 30, 500, SMALL["bfloat16"], streamed(8)),  # one tile, a step a block
        (130, 30, 200, SMALL["bfloat16"], streamed(2, 2)),  # one tile more than a wave
        (300, 72, 328, PAIRS[0], streamed(3)),
        (100, 200, 328, PAIRS[1], streamed(3)),
    ],
)
def test_awkward_shapes(m: int, n: int, k: int, config: Config, way: Way) -> None:
    a, b = padded(m, k, 1, "bfloat16", -k % 8), padded(k, n, 2, "bfloat16", -n % 8)
    d = np.zeros((m, n), ml_dtypes.bfloat16)
    run_twice(planned(a, b, None, d, config, way), a, b, None, d)


@pytest.mark.parametrize(("bn", "splits"), [(96, 5), (96, 2), (128, 8), (80, 7)])
def test_peers_share_patches_unevenly(bn: int, splits: int) -> None:
    """More peers than a warp has patches, and fewer; the last peers have none."""
    config = tile("bfloat16", 128, bn, 3)
    a, b, c = (
        padded(150, 600, 1, "bfloat16", 0),
        padded(600, bn + 8, 2, "bfloat16", 0),
        padded(150, bn + 8, 3, "bfloat16", 0),
    )
    d = np.zeros(c.shape, ml_dtypes.bfloat16)
    run_twice(
        planned(a, b, c, d, config, lambda grid: Sharing(split_k=splits, reduction="cluster")), a, b, c, d
    )


def test_blocks_without_a_tile_help_clusters_to_pack() -> None:
    a, b = padded(130, 1001, 1, "bfloat16", 0), padded(1001, 30, 2, "bfloat16", 1)
    d = np.zeros((130, 30), ml_dtypes.bfloat16)
    plan = planned(a, b, None, d, SMALL["bfloat16"], lambda grid: Sharing(split_k=2, reduction="cluster"))
    assert plan.schedule is not None
    assert plan.grid[0] > plan.schedule.blocks == 6
    assert plan.grid[0] % 2 == 0
    run_twice(plan, a, b, None, d, sanitize=True, seed=1, counting=False)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("config", "gap", "way"),
    [
        (SMALL["bfloat16"], 0, WAYS["split"]),
        (SMALL["bfloat16"], 0, WAYS["split, peers in clusters"]),
        (SMALL["bfloat16"], 1, WAYS["split, peers in clusters"]),
        (SMALL["bfloat16"], 1, streamed(4)),
        (PAIRS[0], 0, streamed(3)),
    ],
)
def test_no_race_and_no_wait_without_end(config: Config, gap: int, way: Way, seed: int) -> None:
    """Sanitized, in any order, copies and products as late as their waits allow; with a gap, operands are
    packed first.
    """
    m, n, k = 2 * config.bm - 8, config.bn + 8 - gap, 328 - gap
    a, b = padded(m, k, 1, "bfloat16", 2 * gap), padded(k, n, 2, "bfloat16", 2 * gap)
    d = np.zeros((m, n), ml_dtypes.bfloat16)
    plan = planned(a, b, None, d, config, way)
    assert plan.kernel.packs(plan.problem) == bool(gap)
    run_twice(plan, a, b, None, d, sanitize=True, seed=seed, counting=False)


@pytest.mark.parametrize("seed", range(2))
def test_whoever_walks_waits_for_whoever_multiplies(seed: int) -> None:
    """Units of a step each, more than the queue has places, and a stage for every one."""
    a, b = padded(120, 64, 1, "bfloat16", 0), padded(64, 152, 2, "bfloat16", 0)
    d = np.zeros((120, 152), ml_dtypes.bfloat16)
    plan = planned(a, b, None, d, tile("bfloat16", 64, 32, 10), streamed(1))
    run_twice(plan, a, b, None, d, sanitize=True, seed=seed, counting=False)


@pytest.mark.parametrize(
    ("seed", "way"), list(enumerate((streamed(2), streamed(4), WAYS["whole tiles"]))), ids=["2", "4", "whole"]
)
def test_the_rung_in_any_order(seed: int, way: Way) -> None:
    """Clusters that share tiles: each of their blocks has slots and flags of its own."""
    config, kernel = tile("bfloat16", 128, 128, 2, (2, 1)), kernel_named("wgmma_streamk")
    a, b = padded(600, 328, 1, "bfloat16", 0), padded(328, 72, 2, "bfloat16", 0)
    d = np.zeros((600, 72), ml_dtypes.bfloat16)
    problem = Problem.of(operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out"))
    plan = make_plan(problem, chip("h200"), kernel, config, way(kernel.tile_grid(problem, config)))
    run_twice(plan, a, b, None, d, sanitize=True, seed=seed, counting=False)


def test_batches_share_tiles() -> None:
    a = np.random.default_rng(1).integers(-4, 5, (2, 3, 40, 264)).astype(np.float16)
    b = np.random.default_rng(2).integers(-4, 5, (3, 264, 24)).astype(np.float16)
    for asked in ({"split_k": 2}, {"split_k": 2, "reduction": "turnstile"}):
        d = lapidist.gemm(a, b, kernel="wgmma", config=SMALL["float16"], device="machine", **asked)
        assert np.array_equal(d, a @ b)


# ---- what a plan says, and what is refused ----


def plan_of(m: int, n: int, k: int, **asked: Any) -> Plan:
    a, b = np.zeros((m, k), ml_dtypes.bfloat16), np.zeros((k, n), ml_dtypes.bfloat16)
    found = lapidist.plan(a, b, device="machine", **{"kernel": "wgmma", **asked}).plan
    assert found is not None
    return found


def test_a_cluster_counts_as_one_block() -> None:
    config = PAIRS[0]
    plan = plan_of(
        1024,
        96,
        640,
        config=config,
        schedule=stream_k(TileGrid(4, 2, 10), sms=5, sk_blocks=5, persistent=True),
    )
    assert plan.grid == (10, 1, 1)
    assert "5 blocks launched, " in str(plan)
    assert "to it a cluster of 2x1 is one block" in str(plan)
    assert plan.schedule is not None
    assert plan.workspace_bytes == 2 * (256 + plan.schedule.slots * 128 * 48 * 4)


def test_few_tiles_and_a_long_k_are_shared_and_full_waves_are_not() -> None:
    few, many = plan_of(256, 256, 8192), plan_of(8192, 8192, 8192)
    assert few.schedule is not None
    assert few.schedule.shares_tiles
    assert many.schedule is None


@pytest.mark.parametrize(
    ("shape", "kernel", "words"),
    [
        ((2048, 2048, 2048), "wgmma", r"Stream-K is predicted to take [0-9.]+ us, whole tiles [0-9.]+ us$"),
        ((4224, 8192, 2048), "wgmma", "no tiles are left over full waves whose sharing would pay"),
        (
            (2048, 2048, 2048),
            "wgmma_streamk",
            r"Stream-K is predicted to take [0-9.]+ us, whole tiles [0-9.]+ us$",
        ),
        ((256, 256, 8192), "wgmma", ""),
    ],
)
def test_a_plan_says_why_tiles_are_whole_though_stream_k_was_asked_for(
    shape: tuple[int, int, int], kernel: str, words: str
) -> None:
    plan = plan_of(*shape, kernel=kernel, schedule="stream_k")
    shares = plan.schedule is not None and plan.schedule.shares_tiles
    assert shares == (words == "")
    assert re.search(words, plan.unshared)
    assert (f"\n  unshared  {plan.unshared}\n" in str(plan)) == (words != "")


@pytest.mark.parametrize(("bm", "shares"), [(64, False), (128, False), (256, True)])
def test_half_an_eighth_of_sums_is_not_handed_on(bm: int, shares: bool) -> None:
    """Tiles of 200 columns give a thread 100 sums for each 64 rows: the last four were lost."""
    config = tile("tf32", bm, 200, 3, (2, 1))
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((2 * bm, 400), (400, 400)))
    named: dict[str, Any] = {"kernel": "wgmma", "config": config, "precision": "tf32", "device": "machine"}
    if shares:
        d = lapidist.gemm(a, b, split_k=2, reduction="turnstile", **named)
        np.testing.assert_array_equal(d, a @ b)
    else:
        with pytest.raises(RefusalError, match="hands on its sums eight at a time; this tile gives it 100"):
            lapidist.gemm(a, b, split_k=2, reduction="turnstile", **named)
    for m, n, k in ((1352, 1000, 400), (640, 600, 8000)):
        problem = dense_problem(m, n, k, "tf32")
        rows = config_alone(kernel_named("wgmma"), config, "tf32")
        table = CostTable(problem, rows, chip("h200"), PLANNED)
        assert bool(np.any(table.allowed & table.options.shares_tiles)) == shares


def test_packed_operands_and_partial_sums_lie_in_one_workspace() -> None:
    """More blocks than SMs would wait for each other: a split of many tiles is walked by persistent ones."""
    plan = plan_of(2047, 2047, 1023, config=tile("bfloat16", 128, 128, 4), split_k=2, reduction="turnstile")
    assert plan.cooperative
    assert plan.schedule is not None
    assert plan.grid == (132, 1, 1)
    flags, room = plan.kernel.family.scratch(plan.problem)
    assert plan.workspace_bytes == flags + room + plan.schedule.workspace_bytes(128 * 128 * 4)


def test_stages_with_few_rows_of_a_have_less_room_for_sums() -> None:
    """They lie where the operands were: the source refuses what does not fit."""
    asked = {"config": tile("bfloat16", 192, 192, 4), "split_k": 4, "reduction": "cluster"}
    assert plan_of(192, 192, 4096, **asked).cluster == 4
    with pytest.raises(lapidist.LapidistError, match="too few stages"):
        plan_of(48, 192, 4096, **asked)
    free = make_plan(dense_problem(48, 272, 4096, "float16"), chip("h200"))
    clusters = [each for each in free.considered if each.schedule and each.schedule.cluster > 1]
    assert clusters
    assert not [each for each in clusters if (each.config.bm, each.config.bn) == (192, 192)]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"split_k": 2, "reduction": "separate"},
            "share tiles by 'turnstile' or in a 'cluster'; got 'separate'",
        ),
        (
            {"split_k": 2, "reduction": "cluster", "config": PAIRS[0]},
            "has clusters of its own or too few stages",
        ),
        (
            {"split_k": 2, "reduction": "cluster", "config": SMALL["bfloat16"], "n": 4001},
            "are packed first, all on the chip at once",
        ),
        ({"split_k": 99}, "split_k: must not be larger than the iterations along k"),
        (
            {"schedule": data_parallel(TileGrid(9, 9, 9))},
            "schedule: must be made for the tiles of the kernel",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_shared(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(lapidist.LapidistError, match=message):
        plan_of(128, asked.pop("n", 128), 256, **asked)


# ---- on a GPU ----

GPU_WAYS: list[dict[str, Any]] = [
    {"split_k": 3, "reduction": "turnstile"},
    {"split_k": 4, "reduction": "cluster"},
    {"schedule": "stream_k"},
    {"schedule": "stream_k", "avail_sms": 7, "reduction": "turnstile"},
]
GPU_SHAPES = [
    (1, 8, 704),
    (130, 104, 1032),
    (257, 511, 777),
    (64, 2000, 904),
    (40, 40, 5000),
    (1100, 1300, 264),
]


@pytest.mark.gpu
@pytest.mark.parametrize("way", GPU_WAYS, ids=str)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_on_the_gpu(torch: Any, dtype: str, way: dict[str, Any]) -> None:
    for m, n, k in GPU_SHAPES:
        a, b, c = (
            torch.randn(*shape, device="cuda").to(getattr(torch, dtype)) for shape in ((m, k), (k, n), (m, n))
        )
        try:
            plan = lapidist.plan(a, b, c, alpha=-0.5, beta=2.0, kernel="wgmma", **way)
        except lapidist.RefusalError as error:
            if "where operands are packed first" not in str(error):
                raise
            continue
        for _ in range(3):
            out = torch.full_like(c, float("nan"))
            plan.execute(a, b, c, out)
            assert judge(out, a, b, c, -0.5, 2.0).ok, (m, n, k)


@pytest.mark.gpu
@pytest.mark.parametrize("way", GPU_WAYS, ids=str)
def test_again_and_again_on_streams_and_in_graphs(torch: Any, way: dict[str, Any]) -> None:
    """The same bits from a thousand launches, from two streams at once, and from a graph."""
    inputs = [
        tuple(torch.randn(*shape, device="cuda").half() for shape in ((256, 2048), (2048, 384)))
        for _ in range(2)
    ]
    plan = lapidist.plan(*inputs[0], kernel="wgmma", **way)
    outs = [torch.empty(256, 384, device="cuda").half() for _ in inputs]
    check_on_streams_and_in_graphs(torch, plan, inputs, outs, times=500)
