"""Kernels whose blocks share tiles, in the machine: results, flags, workspaces, races, and what is
refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lapidist
from in_turns import in_turns
from lapidist import machine
from lapidist.calls.bound import Bound
from lapidist.calls.operation import Operation, Routing
from lapidist.device import chip
from lapidist.errors import LapidistError
from lapidist.frameworks.arrays import operand_of
from lapidist.kernels.registry import kernel_named
from lapidist.planning.plans import Plan, make_plan
from lapidist.planning.workspace import Scratch
from lapidist.problems.problem import Problem
from lapidist.schedule import Schedule, TileGrid, data_parallel, stream_k
from lapidist.schedule.sharing_choice import Sharing
from lapidist.verify.sum_bound import judge

Array = np.ndarray[Any, Any]
SIMT = kernel_named("simt")
# the smallest square tile: most tiles for the least work
SMALL = next(config for config, _ in SIMT.others if config.bm == config.bn == 32)


def split(number: int, reduction: str = "turnstile") -> Callable[[TileGrid], Sharing]:
    return lambda grid: Sharing(split_k=number, reduction=reduction, deterministic=reduction != "atomic")


def stream(blocks: int, reduction: str = "turnstile", fragments: int = 1) -> Callable[[TileGrid], Sharing]:
    """So many blocks for the last wave of five and the one before it."""

    def of(grid: TileGrid) -> Sharing:
        tiles = min(grid.tiles, grid.tiles % 5 + 5)
        schedule = stream_k(
            grid, sms=5, sk_tiles=tiles, sk_blocks=blocks, reduction=reduction, fragments=fragments
        )
        return Sharing(schedule, deterministic=reduction != "atomic")

    return of


WAYS = {
    "split serial": split(3),
    "split parallel": split(2, "separate"),
    "split cluster": split(3, "cluster"),
    "split atomic": split(4, "atomic"),
    "stream": stream(5),
    "stream parallel": stream(6, "separate", fragments=2),
    "stream atomic": stream(9, "atomic"),
}
ORDERED = [way for way in WAYS if "atomic" not in way]


def planned(a: Array, b: Array, c: Array | None, d: Array, way: str | Callable[[TileGrid], Sharing]) -> Plan:
    problem = Problem.of(
        operand_of(a, "a"),
        operand_of(b, "b"),
        None if c is None else operand_of(c, "c"),
        operand_of(d, "out"),
    )
    config = SMALL if a.itemsize <= 4 else SIMT.config_for(problem.dtype)
    of = WAYS[way] if isinstance(way, str) else way
    return make_plan(problem, chip("h200"), SIMT, config, of(SIMT.tile_grid(problem, config)))


@pytest.mark.parametrize("device", ["host", "machine"])
def test_what_shares_nothing_asks_for_nothing(device: str) -> None:
    """NumPy takes it, and so does a kernel without a schedule."""
    a, kernel = np.ones((40, 40), np.float32), "coalesced" if device == "machine" else None
    for asked in ({"split_k": 1}, {"schedule": "data_parallel"}):
        assert not Sharing(**asked).asked_for
        assert (lapidist.gemm(a, a, kernel=kernel, device=device, **asked) == 40).all()
    for wanted in ({"split_k": 2}, {"schedule": "stream_k"}):
        assert Sharing(**wanted).asked_for
        with pytest.raises(LapidistError, match="split_k"):
            lapidist.gemm(a, a, kernel=kernel, device=device, **wanted)


@pytest.mark.often(2)
@pytest.mark.parametrize(("way", "dtype"), in_turns(WAYS, ["float16", "float32", "float64"]))
def test_shared_tiles_come_out_right(rng: np.random.Generator, way: str, dtype: str) -> None:
    """Ragged everywhere, k no multiple of the block; alpha and beta must be applied once, by the block that
    finishes.
    """
    a, b = rng.standard_normal((70, 290)).astype(dtype), rng.standard_normal((290, 99)).astype(dtype)
    c, out = rng.standard_normal((70, 99)).astype(dtype), np.full((70, 99), np.nan, dtype)
    plan = planned(a, b, c, out, way)
    assert plan.schedule is not None
    assert plan.schedule.shares_tiles
    operands = [operand_of(x, name) for x, name in ((a, "a"), (b, "b"), (c, "c"), (out, "out"))]
    scratch = Scratch(plan)
    for _ in range(2):  # back to back on one workspace
        out.fill(np.nan)
        machine.run(plan.launch(*operands, -0.5, 2.0, workspace=scratch), counting=False)
        scratch.require_zero_flags()
        assert judge(out, a, b, c, -0.5, 2.0).ok


@pytest.mark.often(1)
@pytest.mark.parametrize(("way", "seed"), in_turns(WAYS, [1, 2]))
def test_no_race_and_no_wait_without_end(rng: np.random.Generator, way: str, seed: int) -> None:
    a, b = (
        rng.integers(-4, 5, (40, 160)).astype(np.float32),
        rng.integers(-4, 5, (160, 70)).astype(np.float32),
    )
    out = np.full((40, 70), np.nan, np.float32)
    plan = planned(a, b, None, out, way)
    launch = plan.launch(operand_of(a, "a"), operand_of(b, "b"), None, operand_of(out, "out"), 1.0, 0.0)
    # fuzzed: blocks start in any order
    machine.run(launch, sanitize=True, seed=seed, residency=launch.grid[0], counting=False)
    assert judge(out, a, b, exact=True).ok


@pytest.mark.often(2)
@pytest.mark.parametrize("way", WAYS)
def test_one_resident_block_is_enough(rng: np.random.Generator, way: str) -> None:
    a, b = (
        rng.standard_normal((40, 160)).astype(np.float32),
        rng.standard_normal((160, 70)).astype(np.float32),
    )
    out = np.full((40, 70), np.nan, np.float32)
    plan = planned(a, b, None, out, way)
    machine.run(
        plan.launch(operand_of(a, "a"), operand_of(b, "b"), None, operand_of(out, "out"), 1.0, 0.0),
        residency=1,
    )
    assert judge(out, a, b).ok


@pytest.mark.often(2)
@pytest.mark.parametrize("way", ORDERED)
def test_ordered_reductions_give_the_same_bits(rng: np.random.Generator, way: str) -> None:
    a, b = (
        rng.standard_normal((40, 290)).astype(np.float32),
        rng.standard_normal((290, 70)).astype(np.float32),
    )
    found = set()
    for residency in (1, 3, 1000):
        out = np.full((40, 70), np.nan, np.float32)
        plan = planned(a, b, None, out, way)
        launch = plan.launch(operand_of(a, "a"), operand_of(b, "b"), None, operand_of(out, "out"), 1.0, 0.0)
        machine.run(launch, residency=residency, counting=False)
        found.add(out.tobytes())
    assert len(found) == 1


@pytest.mark.often(2)
@pytest.mark.parametrize("asked", [{"split_k": 2}, {"split_k": 3, "reduction": "separate"}], ids=str)
@pytest.mark.parametrize(
    "shapes", [((2, 3, 20, 90), (3, 90, 40)), ((3, 20, 90), (90, 40)), ((5, 20, 90), (5, 90, 40))], ids=str
)
def test_batches(
    rng: np.random.Generator, shapes: tuple[tuple[int, ...], ...], asked: dict[str, Any]
) -> None:
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    out = np.full((*a.shape[:-1], 40), np.nan, np.float32)
    lapidist.gemm(a, b, out=out, kernel="simt", config=SMALL, device="machine", **asked)
    assert judge(out, a, b).ok


AWKWARD = {
    "k of one": ((), (40, 50), 1),
    "fewer tiles than multiprocessors": ((), (70, 50), 200),
    "one tile more than a wave": ((), (7 * 32, 19 * 32), 40),
    "no multiple of the block": ((), (33, 65), 97),
    "batch of none": ((0,), (33, 65), 97),
    "batch of one": ((1,), (33, 65), 97),
    "batch of seven": ((7,), (33, 65), 97),
}


@pytest.mark.often(2)
@pytest.mark.parametrize(
    "asked", [{"schedule": "stream_k"}, {"schedule": "stream_k", "avail_sms": 3}, {}], ids=str
)
@pytest.mark.parametrize("kernel", ["simt", "mma"])
@pytest.mark.parametrize("shape", AWKWARD)
def test_awkward_shapes(rng: np.random.Generator, shape: str, kernel: str, asked: dict[str, Any]) -> None:
    """As the planner shares them for 132 multiprocessors, and for three."""
    batch, (m, n), k = AWKWARD[shape]
    a, b = (rng.integers(-4, 5, (*batch, *each)).astype(np.float16) for each in ((m, k), (k, n)))
    config = SMALL if kernel == "simt" else None
    out = np.full((*batch, m, n), np.nan, np.float16)
    lapidist.gemm(a, b, out=out, kernel=kernel, config=config, device="machine", **asked)
    assert judge(out, a, b, exact=True).ok


@pytest.mark.often(2)
@pytest.mark.parametrize("way", ["split serial", "stream", "stream parallel"])
def test_no_race_where_rows_are_picked(rng: np.random.Generator, way: str) -> None:
    """Repeated rows of A, columns of B out of order, rows of D scattered; blocks start in any order."""
    a, b = (
        rng.integers(-4, 5, (50, 160)).astype(np.float32),
        rng.integers(-4, 5, (160, 90)).astype(np.float32),
    )
    rows, cols, to = rng.integers(0, 50, 40), rng.permutation(90)[:70], rng.permutation(60)[:40]
    out = np.full((60, 70), np.nan, np.float32)
    bound = Bound(a, b, None, out, Operation(routing=Routing(rows, cols, to)))
    problem = bound.problem()
    plan = make_plan(problem, chip("h200"), SIMT, SMALL, WAYS[way](SIMT.tile_grid(problem, SMALL)))
    operands = bound.a, bound.b, None, operand_of(out, "out")
    launch = plan.launch(*operands, 1.0, 0.0, extra_pointers=bound.extra_pointers, extras=bound.extras)
    machine.run(launch, sanitize=True, seed=3, residency=launch.grid[0], counting=False)
    assert judge(out[to], a[rows], b[:, cols], exact=True).ok
    assert np.isnan(np.delete(out, to, axis=0)).all()


def test_a_schedule_of_the_callers_own(rng: np.random.Generator) -> None:
    """Persistent blocks, reductions in fragments, blocks that walk many tiles."""
    a, b = (
        rng.standard_normal((100, 200)).astype(np.float32),
        rng.standard_normal((200, 90)).astype(np.float32),
    )
    grid = TileGrid.of(100, 90, 200, 32, 32, 32)
    schedules = [
        stream_k(grid, sms=5, sk_tiles=7, sk_blocks=4, dp_first=True),
        stream_k(grid, sms=5, sk_tiles=7, sk_blocks=5, reduction="separate", fragments=2),
        stream_k(grid, sms=5, sk_tiles=2, sk_blocks=5, persistent=True),
        data_parallel(grid, persistent_blocks=5),
    ]
    for schedule in schedules:
        plan = lapidist.plan(a, b, kernel="simt", config=SMALL, schedule=schedule, device="machine")
        assert plan.plan is not None
        assert plan.plan.grid == (schedule.launch_blocks, 1, 1)
        assert judge(plan.execute(a, b, out=np.full((100, 90), np.nan, np.float32)), a, b).ok


# ---- what a plan says ----


def test_a_plan_tells_its_workspace() -> None:
    a, b = np.zeros((64, 128), np.float32), np.zeros((128, 64), np.float32)
    whole = lapidist.plan(a, b, kernel="simt", config=SMALL, device="machine")
    split = lapidist.plan(a, b, kernel="simt", config=SMALL, split_k=2, device="machine")
    assert whole.workspace_bytes == 0
    assert split.workspace_bytes == 256 + 4 * 32 * 32 * 4
    assert "split-K" in str(split)
    assert "4 tiles shared by 8 blocks" in str(split)


def test_split_of_one_is_the_plain_kernel() -> None:
    a, b = np.zeros((64, 128), np.float32), np.zeros((128, 64), np.float32)
    plans = [
        lapidist.plan(a, b, kernel="simt", device="machine", split_k=split).plan for split in (1, "auto")
    ]
    assert plans[0] is not None
    assert not plans[0].scheduled


# ---- bad input ----


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"split_k": 0}, r'split_k: must be "auto" or a whole number from 1 on; got 0'),
        ({"split_k": 2.0}, r"split_k: must be .* got 2.0"),
        ({"split_k": 2, "schedule": "stream_k"}, "split_k: is a schedule of its own"),
        (
            {"schedule": "best"},
            "schedule: must be one of auto, data_parallel, stream_k or a .*Schedule; got 'best'",
        ),
        (
            {"split_k": 2, "reduction": "tree"},
            "reduction: must be one of turnstile, .*, atomic, or None; got 'tree'",
        ),
        ({"split_k": 2, "reduction": "atomic"}, "reduction: 'atomic' adds in any order.*deterministic=False"),
        ({"schedule": "stream_k", "avail_sms": 0}, "avail_sms: must be a whole number from 1 on; got 0"),
        ({"deterministic": 1}, "deterministic: must be True or False; got 1"),
        (
            {"split_k": 9, "kernel": "simt"},
            "split_k: must not be larger than the iterations along k, .*; got 9",
        ),
        (
            {"split_k": 9, "reduction": "cluster", "kernel": "simt", "config": SMALL},
            "a cluster has at most 8 blocks; got 9",
        ),
        (
            {"schedule": "stream_k", "reduction": "cluster", "avail_sms": 3},
            "'cluster' is for a split-K of all tiles",
        ),
        ({"split_k": 2, "kernel": "warp_tile"}, "takes neither split_k nor a schedule"),
        (
            {"schedule": data_parallel(TileGrid(9, 9, 9)), "kernel": "simt"},
            "schedule: must be made for the tiles of the kernel",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_shared(asked: dict[str, Any], message: str) -> None:
    out = np.full((64, 64), np.nan, np.float32)
    k = 640 if asked.get("reduction") == "cluster" else 64
    a, b = np.ones((64, k), np.float32), np.ones((k, 64), np.float32)
    with pytest.raises(lapidist.LapidistError, match=message):
        lapidist.gemm(a, b, out=out, device="machine", **asked)
    assert np.isnan(out).all()


def test_host_arrays_have_no_blocks() -> None:
    with pytest.raises(lapidist.ArgumentError, match="split_k: the blocks of a kernel share work"):
        lapidist.gemm(np.ones((4, 4), np.float32), np.ones((4, 4), np.float32), split_k=2)


@pytest.mark.parametrize(
    ("workspace", "message"),
    [
        (np.zeros(4, np.uint8), r"workspace: must hold the plan's \d+ bytes; got 4"),
        (np.zeros(1 << 20, np.uint8)[::2], "workspace: must be contiguous"),
        (np.zeros((1 << 20) + 512, np.uint8), "workspace: must start on a multiple of 256 bytes"),
    ],
    ids=["small", "strided", "shifted"],
)
def test_workspaces_that_do_not_do(workspace: Array, message: str) -> None:
    if "multiple" in message:
        start = -workspace.ctypes.data % 256 + 16
        workspace = workspace[start : start + (1 << 19)]
    a, b = np.ones((64, 64), np.float32), np.ones((64, 64), np.float32)
    with pytest.raises(lapidist.LapidistError, match=message):
        lapidist.plan(a, b, split_k=2, kernel="simt", config=SMALL, workspace=workspace, device="machine")


def test_a_flag_left_up_is_reported() -> None:
    a, b = np.zeros((64, 128), np.float32), np.zeros((128, 64), np.float32)
    plan = planned(a, b, None, np.zeros((64, 64), np.float32), split(2))
    scratch = Scratch(plan)
    scratch.flags[1] = 3
    with pytest.raises(
        lapidist.LaunchError, match="workspace: flags must be zero after a launch; flag 1 is 3"
    ):
        scratch.require_zero_flags()


def test_equal_wishes_are_one_key() -> None:
    schedule = stream_k(TileGrid(3, 3, 8), sms=4)
    assert isinstance(schedule, Schedule)
    assert hash(Sharing(schedule)) == hash(Sharing(replace(schedule)))
    assert Sharing(schedule) == Sharing(replace(schedule))
