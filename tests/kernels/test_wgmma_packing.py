"""How gemm/wgmma.cu packs, in the machine: even shares, whatever there is to share, sanitized."""

from __future__ import annotations

import math
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import lapidist
from in_turns import in_turns, surveyed_but
from lapidist import machine
from lapidist.backends.machine_backend import MachineBackend
from lapidist.config import Config
from lapidist.device import chip
from lapidist.frameworks.arrays import operand_of
from lapidist.kernels.registry import kernel_named
from lapidist.kernels.wgmma.family import tile
from lapidist.planning.plans import make_plan
from lapidist.schedule.sharing_choice import Sharing
from wgmma_products import check, lying, operands, whole

SHARED_OUT = [(61, 31, 3003), (61, 32, 331), (64, 29, 35), (5, 3, 9)]


@pytest.mark.often(2)
@pytest.mark.parametrize(("extents", "b_layout"), in_turns(SHARED_OUT, ["row", "col"]))
def test_shares_of_every_size(extents: tuple[int, int, int], b_layout: str) -> None:
    """Several stretches a warp, or fewer than it could; both operands or one; matrices that have ends
    alone.
    """
    m, n, k = extents
    a, b = whole((m, k), 1, "bfloat16"), lying(whole((k, n), 2, "bfloat16"), b_layout)
    config = tile("bfloat16", 64, 32, 2)
    gemm = lapidist.plan(a, b, kernel="wgmma", config=config, device="machine")
    assert gemm.plan is not None
    d = np.zeros((m, n), ml_dtypes.bfloat16)
    machine.run(
        gemm.plan.launch(operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out"), 1.0, 0.0),
        sanitize=True,
        counting=False,
    )
    check(d, a, b, alpha=1.0)


def test_blocks_of_the_next_launch_find_place_beside_these(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the registers and of shared memory are theirs; and each multiprocessor has one block, with a
    tile or without.
    """
    monkeypatch.setattr(MachineBackend, "chip", replace(chip("h200"), sms=36))
    a, b = whole((131, 77), 1, "bfloat16"), whole((77, 331), 2, "bfloat16")
    gemm = lapidist.plan(a, b, kernel="wgmma", config=tile("bfloat16", 64, 32, 2), device="machine")
    assert gemm.plan is not None
    assert ("RESIDENT", 2) in gemm.plan.problem_macros
    assert gemm.plan.grid[0] == gemm.plan.device.sms > 33
    d = np.zeros((131, 331), ml_dtypes.bfloat16)
    launch = gemm.plan.launch(operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out"), 1.0, 0.0)
    machine.run(launch, sanitize=True, counting=False, seed=3)
    check(d, a, b, alpha=1.0)


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("math", "extents"),
    in_turns(["int8", "float8_e4m3fn", "tf32"], [(61, 131, 333), (64, 29, 35), (5, 3, 9)]),
)
def test_transposed(math: str, extents: tuple[int, int, int]) -> None:
    """Squares of as many lines as a piece has elements, or half as many; pieces in which the matrix begins or
    ends come apart.
    """
    m, n, k = extents
    a, b, more = operands(math, m, n, k)
    gemm = lapidist.plan(a, b, kernel="wgmma", config=tile(math, 64, 32, 2), device="machine", **more)
    assert gemm.plan is not None
    d = np.zeros((m, n), "int32" if math == "int8" else "float32")
    launch = gemm.plan.launch(operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out"), 1.0, 0.0)
    machine.run(launch, sanitize=True, counting=False)
    check(d, a, b, alpha=1.0)


# the first and the fifth stand for others in `make test`: parts of both operands, and the first steps of all
PARTS = [
    (("row", "row"), (261, 581, 77), tile("bfloat16", 128, 192, 2, raster=1)),
    (("row", "col"), (261, 581, 77), tile("bfloat16", 128, 192, 2, raster=1, along_m=True)),
    (("col", "row"), (389, 517, 75), tile("bfloat16", 128, 224, 2, (2, 1), raster=1)),
    (("row", "row"), (131, 387, 331), tile("bfloat16", 128, 192, 2)),
    (("col", "row"), (131, 203, 587), tile("bfloat16", 128, 208, 2, raster=1, along_m=True)),
    (("row", "row"), (256, 581, 331), tile("bfloat16", 128, 192, 2, raster=1)),
    (("row", "row"), (259, 313, 331), tile("bfloat16", 256, 160, 2, (1, 2))),
    (("col", "col"), (515, 333, 203), tile("bfloat16", 256, 128, 2, raster=1)),
]


@pytest.mark.often(1)
@pytest.mark.parametrize(("layouts", "extents", "config"), surveyed_but(PARTS, 0, 4))
def test_parts_are_packed_beside_products(
    layouts: tuple[str, str], extents: tuple[int, int, int], config: Config
) -> None:
    """Two blocks, two to nine tiles: their first ones lie in a part of both operands, or read the first steps
    of all."""
    m, n, k = extents
    a, b = lying(whole((m, k), 1, "bfloat16"), layouts[0]), lying(whole((k, n), 2, "bfloat16"), layouts[1])
    problem = lapidist.plan(a, b, kernel="wgmma", device="machine").problem
    alone = Sharing(schedule="data_parallel")
    plan = make_plan(problem, replace(chip("h200"), sms=2), kernel_named("wgmma"), config, alone)
    d = np.zeros((m, n), ml_dtypes.bfloat16)
    launch = plan.launch(operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out"), 1.0, 0.0)
    machine.run(launch, sanitize=True, counting=False, seed=m)
    check(d, a, b, alpha=1.0)


@pytest.mark.parametrize("batch", [(2,), (3, 2)], ids=str)
def test_stretches_end_where_their_matrix_does(batch: tuple[int, ...]) -> None:
    """B has matrices of its own: one for all would make A's one long matrix."""
    a, b = whole((*batch, 67, 203), 1, "bfloat16"), whole((*batch, 203, 45), 2, "bfloat16")
    plan = lapidist.plan(a, b, alpha=2.0, kernel="wgmma", device="machine")
    assert plan.plan is not None
    assert math.prod(plan.plan.problem.batch) == math.prod(batch)
    check(plan.execute(a, b), a, b)
