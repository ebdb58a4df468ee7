"""The planner: what is allowed is weighed, the best is taken; printing it explains the
choice."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from lapidist.config import Config
from lapidist.device import CHIPS, Device
from lapidist.errors import ArgumentError, RefusalError
from lapidist.kernels.blocks.time import traffic_bytes
from lapidist.kernels.registry import BY_NAME, KERNELS, kernel_named
from lapidist.kernels.wgmma.family import tile
from lapidist.planning.cost_table import LESSON
from lapidist.planning.planner import TIE, candidates, choose, exactly
from lapidist.planning.plans import make_plan
from lapidist.problems.problem import Problem, dense_problem
from lapidist.schedule.sharing_choice import Sharing
from offenders import each_holds
from planned import H200, V100, fake, square

# ---- choosing ----


def test_the_best_candidate_is_the_quickest_that_is_allowed() -> None:
    best, weighed = choose(square(4096), H200), candidates(square(4096), H200)
    allowed = [candidate for candidate in weighed if candidate.refusal is None]
    assert best in allowed
    produced = [candidate for candidate in allowed if candidate.kernel.kind == "production"]
    assert all(best.seconds <= TIE * candidate.seconds for candidate in produced)
    assert all(best.seconds <= candidate.seconds * LESSON for candidate in allowed)
    assert {candidate.kernel.name for candidate in weighed} == set(BY_NAME)


def has_a_kernel_on(device: Device, n: int, dtype: str, *layouts: int) -> None:
    a, b = (fake((n, n), (n, 1) if layout else (1, n), dtype) for layout in layouts)
    assert choose(Problem.of(a, b, None, fake((n, n), None, dtype)), device).refusal is None


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_any_shape_and_layout_has_a_kernel_on_any_chip(dtype: str) -> None:
    devices = [device for device in CHIPS.values() if device.capability >= (7, 5)]
    sizes = 1, 7, 64, 1000, 4096
    each_holds(has_a_kernel_on, product(devices, sizes, (dtype,), (0, 1), (0, 1)))


def test_blocks_that_meet_are_all_on_the_chip_at_once() -> None:
    """Those that pack operands for each other, and those that wait for the sums of persistent ones."""
    for extent, packs in ((1023, True), (1024, False)):
        plan = make_plan(dense_problem(extent, extent, extent, "bfloat16"), H200)
        assert plan.kernel.packs(plan.problem) == plan.cooperative == packs
    split, sgemm = Sharing(split_k=2, reduction="separate"), kernel_named("sgemm")
    for sharing, waits in ((split, True), (replace(split, reduction="turnstile"), False)):
        plan = make_plan(square(1000), H200, sgemm, sgemm.config, sharing)
        assert plan.schedule is not None
        assert plan.schedule.shares_tiles
        assert plan.cooperative == waits


def test_persistent_blocks_read_a_schedule_of_whole_tiles_too() -> None:
    sgemm = kernel_named("sgemm")
    plan = make_plan(dense_problem(12 * 256, 11 * 128, 4096, "float32"), H200, sgemm, sgemm.config, Sharing())
    assert plan.schedule is not None
    assert (plan.schedule.kind, plan.schedule.launched) == ("data-parallel", 132)
    assert plan.scheduled
    assert plan.grid == (132, 1, 1)


def test_a_plan_without_a_schedule_needs_no_workspace() -> None:
    plan = make_plan(square(512), H200, kernel_named("coalesced"))
    assert plan.schedule is None
    assert plan.workspace_bytes == 0


def test_flags_and_what_follows_them_are_the_workspace() -> None:
    plan = make_plan(dense_problem(300, 300, 20000, "float32"), H200, sharing=Sharing("stream_k"))
    flags, room = plan.scratch_bytes
    assert flags == plan.partials_offset > 0
    assert flags + room == plan.workspace_bytes > flags


def test_no_kernels_have_no_candidates() -> None:
    assert not candidates(square(512), H200, ())


@pytest.mark.parametrize("peers", [2, 3])
def test_blocks_that_help_to_pack_come_in_whole_clusters(peers: int) -> None:
    """As many as the chip holds at once, and more than have a tile."""
    shared = Sharing(split_k=peers, reduction="cluster")
    plan = make_plan(dense_problem(301, 301, 1001, "bfloat16"), H200, kernel_named("wgmma"), None, shared)
    assert plan.schedule is not None
    assert plan.kernel.packs(plan.problem)
    resident = H200.clusters_resident(peers)
    assert plan.schedule.launch_blocks < plan.grid[0] == peers * resident <= H200.sms


def test_naming_a_kernel_leaves_only_that_one() -> None:
    plan = make_plan(square(512), H200, kernel_named("shared_tile"))
    assert plan.kernel.name == "shared_tile"
    assert {candidate.kernel.name for candidate in plan.considered} == {"shared_tile"}


def test_no_kernel_left_lists_every_reason_once() -> None:
    with pytest.raises(RefusalError, match=r"no kernel takes .* on V100") as caught:
        choose(square(64), V100)
    lines = str(caught.value).splitlines()
    assert "No kernel is for so old a GPU: multiply by NumPy or torch there" in lines[-1]
    names, reasons = zip(*(line.split(": ", 1) for line in lines[1:-1]), strict=True)
    assert {name for each in names for name in each.strip().split(", ")} == {
        kernel.name for kernel in KERNELS
    }
    assert len(set(reasons)) == len(reasons)
    first = kernel_named(names[0].strip().split(", ")[0])
    assert first.kind == "production"  # what would be chosen says first why not


def test_peers_of_a_cluster_need_room_for_their_sums_where_the_operands_were() -> None:
    """A tile of 128 x 256 floats, and three stages of (128 + 256) x 32 halves."""
    mma, problem = kernel_named("mma"), dense_problem(300, 300, 300, "float16")
    config = replace(mma.config_for("float16"), bm=128, bn=256, bk=32, wm=64, wn=64, stages=3)
    with pytest.raises(
        RefusalError, match=r"'cluster' needs 131072 bytes .* there are 73728\. Take 'separate'"
    ):
        make_plan(problem, H200, mma, config, Sharing(split_k=2, reduction="cluster"))
    assert make_plan(problem, H200, mma, None, Sharing(split_k=2, reduction="cluster")).cluster == 2


def test_every_config_of_a_kernel_is_weighed() -> None:
    simt = kernel_named("simt")
    rows = candidates(square(512), H200, (simt,))
    assert [row.config for row in rows] == [config for config, _ in simt.configs_for("float32")]


def test_small_products_get_small_tiles() -> None:
    simt = kernel_named("simt")
    small, large = choose(square(128), H200, simt), choose(square(4096), H200, simt)
    assert small.config.bm * small.config.bn < large.config.bm * large.config.bn


# ---- the model ----


def test_batches_of_doubles_move_more_than_single_products() -> None:
    """4096 products of 32^3 took 36 microseconds by mma on an H100, and 40 by simt."""
    chosen = choose(dense_problem(32, 32, 32, "float64", batch=4096), CHIPS["h100"])
    assert (chosen.kernel.name, chosen.config.bm, chosen.config.bn) == ("mma", 32, 32)


def test_prediction_grows_with_the_work_and_never_beats_the_chip() -> None:
    kernel = kernel_named("warp_tile")
    times = [exactly(square(n), H200, kernel, kernel.config).seconds for n in (0, 1, 512, 1024, 4096, 8192)]
    assert times == sorted(times)
    assert square(8192).flops / times[-1] <= H200.limit_tflops("float32") * 1e12


def test_traffic_counts_each_operand_once() -> None:
    a, b, d = fake((3, 40, 20)), fake((3, 20, 30)), fake((3, 40, 30))
    assert traffic_bytes(Problem.of(a, b, None, d)) == 3 * 4 * (40 * 20 + 20 * 30 + 40 * 30)
    assert traffic_bytes(Problem.of(a, b, d, d)) == 3 * 4 * (40 * 20 + 20 * 30 + 2 * 40 * 30)


# ---- plans ----


def test_a_plan_prints_its_reasons() -> None:
    plan = make_plan(square(1000), H200)
    text = str(plan)
    assert "1000 x 1000 x 1000 float32" in text
    assert "on H200" in text
    assert f"kernel    {plan.kernel.name}: {plan.kernel.idea}" in text
    assert f"config    {plan.config}" in text
    for kernel in KERNELS:
        assert f"    {kernel.name} (" in text
    assert "refused: " in text


def test_a_plan_derives_the_launch() -> None:
    plan = make_plan(square(1000), H200, kernel_named("warp_tile"))
    assert plan.grid == (8 * 8, 1, 1)
    assert plan.block == (256, 1, 1)
    assert plan.shared_bytes == 0
    assert not plan.is_empty
    assert make_plan(square(0), H200).is_empty


def test_a_batch_walks_along_y_and_z() -> None:
    shape, strides = (5, 3, 64, 64), (100000, 4096, 64, 1)
    problem = Problem.of(fake(shape, strides), fake(shape, strides), None, fake(shape, strides))
    plan = make_plan(problem, H200, kernel_named("simt"), Config(64, 64, 16, 32, 32, 8, 4))
    assert plan.grid == (1, 3, 5)


def test_a_persistent_kernel_takes_one_block_an_sm_and_shares_what_fills_no_wave() -> None:
    plan = make_plan(square(4096), H200, kernel_named("tma_streamk"))
    assert plan.grid == (132, 1, 1)
    assert plan.schedule is not None
    assert plan.schedule.dp_tiles % 132 == 0
    assert plan.schedule.sk_blocks == 132
    whole = make_plan(square(4096), H200, kernel_named("tma_streamk"), sharing=Sharing("data_parallel"))
    assert whole.schedule is not None
    assert whole.schedule.sk_blocks == 0
    assert whole.grid == (132, 1, 1)
    gain = 4 * 132 / 512  # four rounds for 512 tiles
    assert whole.predicted_seconds / plan.predicted_seconds == pytest.approx(gain, rel=0.01)


def test_rounds_of_many_tiles_are_even_where_power_is_the_limit() -> None:
    """256 and 1024 pairs of tiles are 3.9 and 15.5 rounds of 66: 64 need no more either. Of 3 rounds, all
    take what they can.
    """
    kernel, config = kernel_named("wgmma"), tile("bfloat16", 128, 256, 4, (2, 1))
    sharing = Sharing("data_parallel")
    grids = {
        n: make_plan(square(n, "bfloat16"), H200, kernel, config, sharing).grid for n in (3072, 4096, 8192)
    }
    assert grids == {3072: (132, 1, 1), 4096: (128, 1, 1), 8192: (128, 1, 1)}


def test_a_config_of_the_callers_passes_the_same_rules() -> None:
    chosen = Config(64, 64, 16, 32, 32, 8, 4)
    assert make_plan(square(512), H200, kernel_named("simt"), chosen).config == chosen
    with pytest.raises(RefusalError, match=r"(?s)config: coalesced does not take .*at most 1024 threads"):
        make_plan(square(512), H200, kernel_named("coalesced"), Config(64, 64))
    with pytest.raises(ArgumentError, match="config: belongs to one kernel"):
        make_plan(square(512), H200, None, chosen)


def test_what_the_source_forbids_is_told_before_it_is_compiled() -> None:
    with pytest.raises(
        RefusalError, match=r"a warp is 4 x 8 lanes, each with tm x tn results: .*; they are 32, 32"
    ):
        make_plan(square(512), H200, kernel_named("simt"), Config(64, 64, 16, 32, 32, 4, 4))
