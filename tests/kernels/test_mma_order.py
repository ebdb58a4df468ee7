"""The order of a step in gemm/mma.cu, sanitized: reads before copies, copies over several steps, tiles of few
doubles a thread. Lines that start on 16 bytes and anywhere, fewer tiles of k than stages, ends of all kinds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from in_turns import in_turns
from lapidist import machine
from lapidist.config import Config
from lapidist.device import chip
from lapidist.frameworks.arrays import operand_of
from lapidist.kernels.blocks.splits import resident
from lapidist.kernels.mma.configs import mma_tiles
from lapidist.kernels.mma.family import MMA_FAMILY
from lapidist.planning.plans import make_plan
from lapidist.problems.problem import dense_problem

HALF, DOUBLE = mma_tiles("float16"), mma_tiles("float64")
LAYOUTS = ("rr", "rc", "cr", "cc")


def laid(rows: int, cols: int, by: str, dtype: str, gap: int) -> np.ndarray[Any, Any]:
    """Small whole numbers; lines `gap` elements longer than they need, but for the last."""
    lines, length = (rows, cols) if by == "r" else (cols, rows)
    step = length + gap
    values = np.random.default_rng(lines + length).integers(-2, 3, lines * step - gap).astype(dtype)
    lain = np.lib.stride_tricks.as_strided(values, (lines, length), (step * values.itemsize, values.itemsize))
    return lain if by == "r" else lain.T


def sanitized(config: Config, m: int, n: int, k: int, layout: str, dtype: str, gap: int, **more: Any) -> None:
    a, b = laid(m, k, layout[0], dtype, gap), laid(k, n, layout[1], dtype, gap)
    d = np.full((m, n), np.nan, dtype)
    plan = lapidist.plan(a, b, out=d, kernel=MMA_FAMILY, config=config, device="machine", **more).plan
    assert plan is not None
    operands = operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out")
    launch = plan.launch(*operands, 1.0, 0.0)
    machine.run(launch, sanitize=True, seed=m + k, residency=launch.grid[0], counting=False)
    assert np.array_equal(d, (a.astype("f8") @ b.astype("f8")).astype(dtype))


@pytest.mark.often(2)
@pytest.mark.parametrize(("name", "layout"), in_turns(["mma", "mma, middle"], LAYOUTS))
def test_halves_in_every_layout(name: str, layout: str) -> None:
    """Whole tiles, whose copies are spread, then a short one; three tiles of k and one besides."""
    config = HALF[name]
    sanitized(config, config.bm, config.bn, 3 * config.bk + 8, layout, "float16", 0)


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("name", "gap", "k"), [("mma, by words", 1, 141), ("mma, small", 2, 69), ("mma", 0, 8)]
)
def test_halves_at_the_ends(name: str, gap: int, k: int) -> None:
    """Through registers, by 4 bytes, and with fewer tiles of k than stages."""
    sanitized(HALF[name], HALF[name].bm - 3, HALF[name].bn - 5, k, "rr", "float16", gap)


@pytest.mark.often(2)
@pytest.mark.parametrize(("name", "layout"), in_turns(["mma, least", "mma, flat"], LAYOUTS))
def test_few_doubles_in_every_layout(name: str, layout: str) -> None:
    config = DOUBLE[name]
    sanitized(config, 2 * config.bm - 2, 2 * config.bn - 4, 5 * config.bk + 6, layout, "float64", 0)


@pytest.mark.often(2)
@pytest.mark.parametrize(("name", "gap"), [("mma, least", 1), ("mma, flat", 1), ("mma", 0), ("mma", 1)])
def test_doubles_at_the_ends(name: str, gap: int) -> None:
    """On 16 bytes and on 8."""
    config = DOUBLE[name]
    sanitized(config, config.bm + 1, config.bn - 1, 2 * config.bk + 3, "rr", "float64", gap)


@pytest.mark.often(2)
@pytest.mark.parametrize(("name", "layout"), in_turns(["mma, small", "mma, middle"], LAYOUTS))
@pytest.mark.parametrize("gap", [0, 1])
def test_doubles_at_the_ends_in_the_loop_of_whole_tiles(name: str, layout: str, gap: int) -> None:
    """It leaves out what does not exist, in every stage; lines on 8 bytes, and vectors that exist by half."""
    config = DOUBLE[name]
    sanitized(config, config.bm - 3, config.bn - 5, 5 * config.bk + 1 - gap, layout, "float64", gap)


@pytest.mark.parametrize("name", ["mma, least", "mma, flat"])
def test_few_doubles_share_a_tile(name: str) -> None:
    config = DOUBLE[name]
    more = {"split_k": 2, "reduction": "cluster"}
    sanitized(config, config.bm, config.bn, 6 * config.bk, "rc", "float64", 0, **more)


@pytest.mark.parametrize(("extent", "name"), [(512, "mma, least"), (640, "mma, small"), (4096, "mma")])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_squares_of_doubles_are_given_the_tile_that_won(extent: int, name: str, layout: str) -> None:
    """On an H200, beside cuBLAS: 512^3 as fast, where tiles of 64 x 64 have 0.6."""
    plan = make_plan(dense_problem(extent, extent, extent, "float64", layout), chip("h100"))
    assert (plan.kernel.name, plan.config) == ("mma", DOUBLE[name])


def test_few_doubles_a_thread_leave_room_for_more_blocks() -> None:
    """gemm/mma/constants.cuh asks the compiler for so many."""
    problem, device = dense_problem(512, 512, 512, "float64"), chip("h100")
    blocks = {name: resident(MMA_FAMILY, config, problem, device) for name, config in DOUBLE.items()}
    assert blocks == {
        "mma": 1,
        "mma, middle": 1,
        "mma, small": 2,
        "mma, flat": 4,
        "mma, least": 3,
        "mma, long": 2,
        "mma, least, by lines": 4,
        "mma, narrow": 2,
    }
