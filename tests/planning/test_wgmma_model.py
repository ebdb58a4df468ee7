"""The model of the kernels on wgmma: what costs more, and what was measured."""

from __future__ import annotations

import numpy as np
import pytest

import lapidist
from lapidist.config import Config
from lapidist.device import CHIPS
from lapidist.dtypes import numpy_dtype
from lapidist.epilogues.ready_made import READY
from lapidist.kernels.registry import kernel_named
from lapidist.kernels.wgmma.epilogue_time import store_cycles
from lapidist.planning.cost_table import LAUNCH_SECONDS
from lapidist.planning.planner import choose, exactly
from lapidist.planning.plans import make_plan
from lapidist.problems.problem import Problem, dense_problem
from lapidist.schedule.sharing_choice import Sharing
from planned import H200


def hopper_seconds(
    m: int, n: int, k: int, math: str = "bfloat16", layout: str = "rc", tile: tuple[int, int] = (128, 256)
) -> float:
    wgmma = kernel_named("wgmma")
    configs = [
        config
        for config, _ in wgmma.configs_for(math)
        if ((config.bm, config.bn), config.cluster, config.exchanged) == (tile, 1, False)
    ]
    problem, whole = dense_problem(m, n, k, math, layout), Sharing("data_parallel")
    return exactly(problem, H200, wgmma, configs[0], whole).seconds - LAUNCH_SECONDS


def test_lines_that_straddle_cost_more_than_those_that_do_not() -> None:
    """k = 4104 in bfloat16: lines start on 16 bytes, not on the L2's 128."""
    at_line, at_sector, between = (hopper_seconds(4096, 512, k, tile=(64, 64)) for k in (4096, 4112, 4104))
    assert at_sector > 1.1 * at_line
    assert between > 1.2 * at_sector


def test_lines_that_straddle_are_loaded_by_clusters_of_four() -> None:
    """Each block orders half of its tile; where all lines start on the L2's there is nothing to gain by
    that.
    """
    straddling, straight = (
        choose(dense_problem(m, n, k, "bfloat16"), H200)
        for m, n, k in ((1496, 1016, 2680), (1536, 1024, 2688))
    )
    assert straddling.config.cluster == 4
    assert straight.config.cluster == 1


def test_packing_is_told_apart_from_turning() -> None:
    aligned, packed = hopper_seconds(1024, 1024, 1024), hopper_seconds(1023, 1023, 1023)
    assert 3e-6 < packed - aligned < 15e-6
    by_rows, by_columns = (hopper_seconds(1024, 1024, 1024, "tf32", layout) for layout in ("rr", "rc"))
    assert 5e-6 < by_rows - by_columns < 25e-6  # wgmma reads tf32 along k only


def test_small_tiles_are_bound_by_their_steps() -> None:
    """A step of 64 x 32 takes as long as one of 64 x 64: barriers."""
    small, large = (hopper_seconds(64, 32, 8192, tile=(64, bn)) for bn in (32, 64))
    assert small == pytest.approx(large, rel=0.15)


def test_what_is_stored_by_hand_takes_longer() -> None:
    assert hopper_seconds(6144, 5120, 64, tile=(128, 192)) < 0.7 * hopper_seconds(
        6144, 5121, 64, tile=(128, 192)
    )


def test_rows_of_16_columns_that_threads_store_take_longer() -> None:
    """Tiles of 112 columns are stored in patches of 16, those of 128 in patches of 32."""

    def of_a_column(n: int, bn: int) -> float:
        config = Config(128, bn, 128, 16, bn, 0, 0, stages=6, producers=128)
        return float(store_cycles(dense_problem(6144, n, 128, "float8_e4m3fn", "rc"), config)) / bn

    assert of_a_column(3585, 112) > 1.3 * of_a_column(3585, 128)
    assert of_a_column(3584, 112) == pytest.approx(of_a_column(3584, 128))  # by TMA


@pytest.mark.parametrize(("m", "n", "k"), [(8192, 8192, 8192), (4096, 4096, 4096), (16, 8192, 8192)])
def test_predictions_are_near_what_was_measured(m: int, n: int, k: int) -> None:
    """1.39 ms, 176 us and 38 us for the best tile of bfloat16 on an H200."""
    measured = {8192: 1390e-6, 4096: 176e-6, 16: 38e-6}[m]
    assert make_plan(dense_problem(m, n, k, "bfloat16", "rc"), H200).predicted_seconds == pytest.approx(
        measured, rel=0.2
    )


@pytest.mark.parametrize(
    ("extents", "math", "tile", "cluster"),
    [
        ((520, 8192, 8192), "bfloat16", (192, 176), 1),  # 129 tiles of D turned
        ((256, 8192, 8192), "float8_e4m3fn", (128, 128), 2),
        ((256, 28672, 8192), "bfloat16", (128, 224), 2),  # 256 tiles
        ((256, 28672, 8192), "float8_e4m3fn", (128, 224), 2),
        ((8192, 8192, 8192), "float8_e4m3fn", (256, 200), 2),  # ten rounds of all multiprocessors
        ((8192, 8192, 8192), "int8", (128, 224), 2),  # which has no 200 columns
    ],
)
def test_tiles_of_layers(
    extents: tuple[int, int, int], math: str, tile: tuple[int, int], cluster: int
) -> None:
    config = choose(dense_problem(*extents, math, "rc"), H200).config
    assert ((config.bm, config.bn), config.cluster) == (tile, cluster)


def ended(name: str, m: int, n: int, k: int) -> Problem:
    """With a ready-made epilogue, operands as D."""
    kind = numpy_dtype("bfloat16")
    a, b, d = np.zeros((m, k), kind), np.zeros((n, k), kind).T, np.zeros((m, n), kind)
    if name == "plain":
        return dense_problem(m, n, k, "bfloat16", "rc")
    known = {"bias": np.zeros(n, kind), "residual": np.zeros((m, n), kind)}
    epilogue = READY[name]
    given = epilogue(**{each.name: known[each.name] for each in epilogue.function.parameters})
    half = np.zeros((m, n // 2), kind)
    out = (d, np.zeros((), np.float32)) if name == "amax" else half if name == "swiglu" else d
    plan = lapidist.plan(a, b, out=out, epilogue=given, device="machine").plan
    assert plan is not None
    return plan.callers_problem


# Times as long as the product alone: measured on an H200, in bfloat16.
ENDED = {"bias": 1.018, "bias_gelu": 1.069, "bias_gelu_residual": 1.11, "amax": 1.085}


@pytest.mark.parametrize("name", ENDED)
def test_an_epilogue_takes_about_as_long_as_it_was_measured(name: str) -> None:
    alone, longer = (make_plan(ended(each, 4096, 4096, 4096), H200) for each in ("plain", name))
    assert longer.config == alone.config
    more = longer.predicted_seconds / alone.predicted_seconds - 1
    assert 0.4 < more / (ENDED[name] - 1) < 1.5


def test_one_that_is_written_out_comes_in_turns_of_small_tiles() -> None:
    """bias + GELU by tanh took 12 % less time than in tiles of 128 x 256."""
    config = make_plan(ended("bias_gelu_tanh", 8192, 4096, 512), H200).config
    assert (config.bm, config.bn, config.cluster_m, config.ping_pong) == (128, 128, 2, True)


def test_one_in_a_loop_is_not_taken_in_the_largest_tiles() -> None:
    """8192^3 with a residual took 1.70 ms in tiles of 256 x 200, and 1.56 in those of 128 x 256."""
    plain, written, looped = (
        make_plan(ended(name, 8192, 8192, 8192), H200).config for name in ("plain", "bias_gelu", "residual")
    )
    assert plain.bm == written.bm == 256
    assert looped.bm == 128


# In bursts on an H100, over the product alone: in turns of 128 x 128, tiles of 128 x 256, and of 256 x 200.
@pytest.mark.parametrize("chip", ["h100", "h200"])
@pytest.mark.parametrize(
    ("name", "shape", "tile"),
    [
        ("bias", (4096, 4096, 4096), (128, 256)),  # 1.05, 1.01, 1.13
        ("bias_gelu", (4096, 4096, 4096), (128, 256)),  # 1.08, 1.05, 1.16
        ("bias", (2048, 8192, 8192), (128, 256)),  # 1.06, 1.01, 1.13
        ("bias_gelu", (8192, 4096, 1024), (256, 200)),  # 1.22, 1.18, 1.14
        ("bias_gelu", (8192, 4096, 2048), (256, 200)),  # 1.14, 1.09, 1.06
        ("swiglu", (8192, 4096, 1024), (128, 128)),  # 1.03, 1.05
        ("swiglu", (2048, 8192, 8192), (128, 256)),  # 1.06, 1.01
    ],
)
def test_an_epilogue_leaves_small_tiles_where_they_are_slower(
    name: str, shape: tuple[int, int, int], tile: tuple[int, int], chip: str
) -> None:
    config = make_plan(ended(name, *shape), CHIPS[chip]).config
    assert (config.bm, config.bn) == tile


@pytest.mark.parametrize("name", ["bias_gelu_residual", "amax"])
def test_an_epilogue_does_not_wait_for_itself_in_turns(name: str) -> None:
    """Where k is short, ping-pong took 1.2 to 1.5 times as long."""
    plan = make_plan(ended(name, 8192, 4096, 512), H200)
    assert (plan.kernel.name, plan.config.ping_pong) == ("wgmma", False)


@pytest.mark.parametrize(("chip", "tile"), [("h100", (64, 128)), ("h200", (128, 128))])
def test_a_batch_of_one_step_has_tiles_that_its_chip_stores_fast(chip: str, tile: tuple[int, int]) -> None:
    """96 x 1024 x 1024 x 64, of cuBLAS: 1.01 and 0.94 on an H100, 0.84 and 1.01 on an H200."""
    config = make_plan(dense_problem(1024, 1024, 64, "bfloat16", batch=96), CHIPS[chip]).config
    assert (config.bm, config.bn) == tile
