"""gemm/simt.cu's tiles with slices of k: half of a step's warps, or a quarter, have a part of it each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from in_turns import surveyed
from lapidist import machine
from lapidist.config import Config
from lapidist.device import chip
from lapidist.errors import RefusalError
from lapidist.frameworks.arrays import operand_of
from lapidist.kernels.registry import kernel_named
from lapidist.kernels.simt import COPIED


def matrix(rng: np.random.Generator, rows: int, cols: int, layout: str) -> np.ndarray:
    """Small whole numbers. Lines start anywhere."""
    lines, length = (rows, cols) if layout == "row" else (cols, rows)
    lying = rng.integers(-4, 5, (lines, length | 1)).astype(np.float32)[:, :length]
    return lying if layout == "row" else lying.T


SLICED = {(config.bm, config.bn): config for config, _ in COPIED if config.slices > 1}
FOUR = Config(32, 32, 32, 16, 32, 4, 4, stages=3, slices=4)
SPLIT, CLUSTER, SEPARATE = (
    {"split_k": 2, "reduction": reduction} for reduction in ("turnstile", "cluster", "separate")
)


def sanitized(config: Config, a: np.ndarray, b: np.ndarray, **sharing: Any) -> np.ndarray:
    """A B in the machine, which watches races and bounds, into rows that start anywhere."""
    d = np.full((a.shape[0], b.shape[1] + 1), np.nan, np.float32)[:, :-1]
    gemm = lapidist.plan(a, b, out=d, kernel="simt", config=config, device="machine", **sharing)
    launch = gemm.plan.launch(operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out"), 1.0, 0.0)
    machine.run(launch, sanitize=True, seed=len(d), residency=launch.grid[0], counting=False)
    return d


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("config", "layouts", "sharing"),
    [
        (SLICED[32, 32], ("row", "row"), {}),
        (SLICED[64, 64], ("col", "row"), SPLIT),
        (SLICED[32, 64], ("row", "col"), CLUSTER),
        (FOUR, ("row", "row"), SEPARATE),
        *surveyed(
            [
                (SLICED[32, 128], ("row", "row"), {"schedule": "stream_k"}),
                (SLICED[64, 32], ("col", "col"), CLUSTER),
                (FOUR, ("col", "row"), {"schedule": "stream_k"}),
            ]
        ),
    ],
)
def test_slices_of_k_meet(
    rng: np.random.Generator, config: Config, layouts: tuple[str, str], sharing: dict[str, Any]
) -> None:
    """Whole numbers, so that every order of sums is exact. k ends inside of the last step."""
    m, n, k = config.bm + 5, config.bn + 3, 4 * config.bk + 5
    a, b = matrix(rng, m, k, layouts[0]), matrix(rng, k, n, layouts[1])
    assert np.array_equal(sanitized(config, a, b, **sharing), a @ b)


@pytest.mark.often(2)
@pytest.mark.parametrize("k", [1, 7, 33])
def test_a_slice_may_have_no_k(rng: np.random.Generator, k: int) -> None:
    a, b = matrix(rng, 20, k, "row"), matrix(rng, k, 40, "row")
    assert np.array_equal(sanitized(FOUR, a, b), a @ b)


def test_slices_meet_again_for_each_tile(rng: np.random.Generator) -> None:
    """The next tile's copies go where the slices have met."""
    a, b = matrix(rng, 100, 70, "row"), matrix(rng, 70, 100, "row")
    found = sanitized(SLICED[32, 32], a, b, schedule="stream_k", avail_sms=2)
    assert np.array_equal(found, a @ b)


def test_c_and_functions_follow_the_slices(rng: np.random.Generator) -> None:
    """Each thread finishes its share of the rows alone."""
    from lapidist.epilogues import relu

    a, b, c = (matrix(rng, *extents, "row") for extents in ((37, 50), (50, 66), (37, 66)))
    found = lapidist.gemm(
        a, b, c, alpha=2.0, beta=-1.0, kernel="simt", config=SLICED[32, 64], epilogue=relu(), device="machine"
    )
    assert np.array_equal(found, np.maximum(2 * (a @ b) - c, 0))


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        (Config(32, 32, 32, 16, 32, 4, 4, stages=3, slices=3), "bk is a multiple of 6"),
        (Config(64, 128, 16, 32, 64, 8, 8, stages=3, slices=4), "sums of slices take 98304 bytes"),
    ],
)
def test_slices_that_do_not_fit_are_refused(rng: np.random.Generator, config: Config, rule: str) -> None:
    a, b = matrix(rng, 64, 64, "row"), matrix(rng, 64, 64, "row")
    with pytest.raises(RefusalError, match=rule):
        lapidist.plan(a, b, kernel="simt", config=config, device="machine")


def test_an_sm_holds_as_many_warps(rng: np.random.Generator) -> None:
    """The assembler is told so many registers that the planner's blocks fit."""
    from lapidist.kernels.blocks.splits import resident

    a, b = matrix(rng, 333, 555, "row"), matrix(rng, 555, 333, "row")
    problem = lapidist.plan(a, b, device="machine").plan.problem
    for config in SLICED.values():
        assert resident(kernel_named("simt"), config, problem, chip("h200")) * config.threads >= 256
