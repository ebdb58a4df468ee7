"""gemm/sgemm.cu: fp32 on Hopper by TMA, with what that cannot bring packed first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lapidist
from in_turns import surveyed
from lapidist import machine
from lapidist.config import Config
from lapidist.device import CHIPS
from lapidist.frameworks.arrays import Operand, operand_of
from lapidist.kernels.registry import kernel_named
from lapidist.kernels.sgemm.operands import packed, packed_bytes
from lapidist.planning.plans import make_plan
from lapidist.problems.problem import Problem
from lapidist.schedule.sharing_choice import Sharing

H200 = CHIPS["h200"]
CONFIGS = [config for config, _ in kernel_named("sgemm").configs_for("float32")]


def matrix(
    rng: np.random.Generator, rows: int, cols: int, layout: str, pad: int = 0, skew: int = 0
) -> np.ndarray:
    """Small integers, with NaN all around; lines are `pad` elements further apart than long, the first one
    starts `skew` late.
    """
    lines, length = (rows, cols) if layout == "row" else (cols, rows)
    step = length + pad
    room = np.full(lines * step + skew + 4, np.nan, np.float32)
    start = -room.ctypes.data // 4 % 4 + skew
    lying = room[start : start + lines * step].reshape(lines, step)[:, :length]
    lying[:] = rng.integers(-4, 5, lying.shape)
    return lying if layout == "row" else lying.T


def fake(shape: tuple[int, int], strides: tuple[int, int], pointer: int = 0) -> Operand:
    return Operand("x", pointer, shape, strides, "float32", 0, "torch", None)


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("m", "n", "k", "layouts", "pad", "skew"),
    [
        (260, 132, 72, ("row", "row"), 0, 0),
        (260, 132, 72, ("col", "row"), 0, 0),
        (261, 131, 67, ("col", "col"), 3, 3),
        (257, 129, 33, ("col", "row"), 2, 2),
        (40, 30, 0, ("row", "row"), 3, 0),
        *surveyed(
            [
                (70, 140, 100, ("row", "col"), 0, 0),
                (259, 130, 65, ("row", "row"), 1, 1),
                (3, 5, 2, ("row", "row"), 0, 0),
            ]
        ),
    ],
)
def test_layouts_and_alignments(
    rng: np.random.Generator, m: int, n: int, k: int, layouts: tuple[str, str], pad: int, skew: int
) -> None:
    a, b = matrix(rng, m, k, layouts[0], pad, skew), matrix(rng, k, n, layouts[1], pad, skew)
    c = matrix(rng, m, n, "row")
    assert np.array_equal(lapidist.gemm(a, b, device="machine", kernel="sgemm"), a @ b)
    assert np.array_equal(
        lapidist.gemm(a, b, c, alpha=2.0, beta=0.5, device="machine", kernel="sgemm"), 2 * (a @ b) + c / 2
    )


@pytest.mark.parametrize(
    ("n", "sharing"),
    [(131, {}), *surveyed([(129, {"split_k": 2, "reduction": "separate"}), (259, {"split_k": 2})])],
)
def test_rows_of_d_that_start_anywhere(rng: np.random.Generator, n: int, sharing: dict[str, Any]) -> None:
    """Each leaves through a warp's patch of shared memory, row after row: sanitized, with elements between
    that must stay NaN.
    """
    a, b, d = (
        matrix(rng, 70, 40, "row"),
        matrix(rng, 40, n, "row", pad=-n % 4),
        matrix(rng, 70, n, "row", 2, 1),
    )
    gemm = lapidist.plan(a, b, out=d, kernel="sgemm", device="machine", **sharing)
    launch = gemm.plan.launch(operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out"), 1.0, 0.0)
    machine.run(launch, sanitize=True, seed=n, residency=launch.grid[0], counting=False)
    assert np.array_equal(d, a @ b)
    assert d.base is not None
    assert np.isfinite(d.base).sum() == d.size


def test_blocks_share_tiles_of_packed_operands(rng: np.random.Generator) -> None:
    """Packed operands, flags of both kinds and partial sums lie in one workspace."""
    a, b = matrix(rng, 256, 401, "row"), matrix(rng, 401, 128, "col")
    config = CONFIGS[0]
    plan = lapidist.plan(a, b, device="machine", kernel="sgemm", config=config).plan
    assert plan.schedule.sk_blocks > 1
    assert plan.cooperative
    assert (
        plan.workspace_bytes
        == plan.partials_offset
        + plan.kernel.family.scratch(plan.problem)[1]
        + plan.schedule.slots * 256 * 128 * 4
    )
    assert np.array_equal(lapidist.gemm(a, b, device="machine", kernel="sgemm", config=config), a @ b)


def sanitized(config: Config, a: np.ndarray, b: np.ndarray, **sharing: Any) -> np.ndarray:
    """A B in the machine, which watches races and bounds, into rows that start anywhere if B's do."""
    d = matrix(np.random.default_rng(0), a.shape[-2], b.shape[-1], "row", b.shape[-1] % 4 and 1)
    gemm = lapidist.plan(a, b, out=d, kernel="sgemm", config=config, device="machine", **sharing)
    launch = gemm.plan.launch(operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out"), 1.0, 0.0)
    machine.run(launch, sanitize=True, seed=len(d), residency=launch.grid[0], counting=False)
    return d


SLICED = CONFIGS[2:]


@pytest.mark.often(1)
@pytest.mark.parametrize(
    ("config", "layout", "odd", "sharing"),
    [
        (SLICED[0], "col", 0, {}),
        (SLICED[1], "col", 1, {"split_k": 2}),
        *surveyed(
            [
                (SLICED[2], "row", 0, {"split_k": 3, "reduction": "separate"}),
                (SLICED[0], "row", 1, {"split_k": 2, "reduction": "separate"}),
                (SLICED[3], "col", 1, {"split_k": 2, "reduction": "separate"}),
                (SLICED[3], "row", 1, {"split_k": 2}),
            ]
        ),
    ],
)
def test_slices_of_k_meet(
    rng: np.random.Generator, config: Config, layout: str, odd: int, sharing: dict[str, Any]
) -> None:
    """Whatever becomes of their sums: stored, in quads or by rows, or shared with other blocks."""
    m, n, k = config.bm + 4 + odd, 68 + odd, 100 + odd
    a, b = matrix(rng, m, k, layout), matrix(rng, k, n, "row")
    assert np.array_equal(sanitized(config, a, b, **sharing), a @ b)


@pytest.mark.often(1)
@pytest.mark.parametrize("k", [20, 260], ids=["within the stages", "beyond them"])
def test_slices_meet_again_for_each_tile(rng: np.random.Generator, k: int) -> None:
    """In room that the tile before has left. Where k needs no stage twice, only the meeting itself
    holds a fast warp back from it."""
    a, b = matrix(rng, 72, k, "row"), matrix(rng, k, 132, "row")
    assert np.array_equal(sanitized(SLICED[-1], a, b, schedule="data_parallel", avail_sms=2), a @ b)


def flops(config: Config, k: int) -> int:
    """Of a whole tile, in the machine."""
    a, b = np.ones((config.bm, k), np.float32), np.ones((k, config.bn), np.float32)
    gemm = lapidist.plan(a, b, kernel="sgemm", config=config, device="machine", schedule="data_parallel")
    d = np.zeros((config.bm, config.bn), np.float32)
    launch = gemm.plan.launch(operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out"), 1.0, 0.0)
    counts = machine.run(launch).counts
    assert (d == k).all()
    assert counts is not None
    return counts.flops


@pytest.mark.often(2)
@pytest.mark.parametrize("config", [CONFIGS[0], *CONFIGS[2:4], CONFIGS[5]], ids=str)
def test_zeros_that_fill_up_a_stage_are_not_multiplied(config: Config) -> None:
    """Neither by the slice that k ends in nor by those behind: four steps of k more are their products more,
    whether a stage is begun for them or not."""
    more = 2 * config.bm * config.bn * 4
    begun, further = flops(config, 36) - flops(config, 32), flops(config, 52) - flops(config, 48)
    assert (begun, further) == (more, more)


def test_what_is_packed() -> None:
    out = fake((512, 512), (512, 1))
    cases = {
        ((512, 1), (512, 1), 0): (False, False),
        ((1, 512), (512, 1), 0): (False, False),
        ((512, 1), (1, 512), 0): (False, True),
        ((513, 1), (512, 1), 0): (True, False),
        ((512, 1), (513, 1), 0): (False, True),
        ((512, 1), (512, 1), 4): (True, True),
    }
    for (a, b, pointer), expected in cases.items():
        problem = Problem.of(fake((512, 512), a, pointer), fake((512, 512), b, pointer), None, out)
        assert packed(problem) == expected
        assert [amount > 0 for amount in packed_bytes(problem)] == list(expected)


def test_large_products_come_here_and_small_ones_do_not() -> None:
    def chosen(m: int, n: int, k: int) -> str:
        problem = Problem.of(fake((m, k), (1, m)), fake((k, n), (n, 1)), None, fake((m, n), (n, 1)))
        return make_plan(problem, H200).kernel.name

    assert chosen(4096, 4096, 4096) == "sgemm"
    assert chosen(4097, 4099, 4101) == "sgemm"
    assert chosen(128, 128, 1024) == "simt"


@pytest.mark.parametrize(
    ("tiles_m", "tiles_n", "k", "kind", "reduction"),
    [
        (12, 11, 4096, "data-parallel", "none"),  # a wave
        (19, 7, 4096, "Stream-K", "turnstile"),  # one tile more
        (6, 7, 2048, "Stream-K", "turnstile"),  # three peers a tile
        (3, 4, 4096, "Stream-K", "separate"),  # eleven
        (3, 4, 32, "data-parallel", "none"),  # a single step
    ],
)
def test_what_waves_leave_over_is_shared(
    tiles_m: int, tiles_n: int, k: int, kind: str, reduction: str
) -> None:
    """Where that takes less time by the model, which is never more than a block a tile takes."""
    m, n = tiles_m * 256, tiles_n * 128
    problem = Problem.of(fake((m, k), (k, 1)), fake((k, n), (n, 1)), None, fake((m, n), (n, 1)))
    kernel = kernel_named("sgemm")
    plan, whole = (
        make_plan(problem, H200, kernel, kernel.config, way) for way in (Sharing(), Sharing("data_parallel"))
    )
    assert plan.schedule is not None
    assert (plan.schedule.kind, plan.schedule.reduction) == (kind, reduction)
    assert plan.predicted_seconds <= whole.predicted_seconds
    assert plan.cooperative == (reduction == "separate")  # its blocks wait for each other


@pytest.mark.parametrize(
    ("name", "reduction"), [("sgemm", "cluster"), ("sgemm", "atomic"), ("tma_streamk", "separate")]
)
def test_ways_to_share_that_a_kernel_lacks(name: str, reduction: str) -> None:
    a = np.ones((64, 64), np.float32)
    with pytest.raises(
        lapidist.RefusalError, match=f"reduction: this kernel's blocks share tiles by .*; got '{reduction}'"
    ):
        lapidist.gemm(
            a, a, kernel=name, split_k=2, reduction=reduction, deterministic=False, device="machine"
        )


def test_stream_k_on_one_multiprocessor_is_data_parallel() -> None:
    a = np.ones((600, 64), np.float32)
    plan = lapidist.plan(a, a.T, kernel="sgemm", schedule="stream_k", avail_sms=1, device="machine").plan
    assert plan.schedule.kind == "data-parallel"
    assert plan.schedule.launched == H200.sms


@pytest.mark.gpu
@pytest.mark.parametrize("layouts", [("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")])
@pytest.mark.parametrize(("m", "n", "k"), [(2304, 3000, 1000), (1031, 2053, 517), (5000, 64, 4100)])
def test_on_the_gpu(torch: Any, layouts: tuple[str, str], m: int, n: int, k: int) -> None:
    def random(rows: int, cols: int, layout: str):  # type: ignore[no-untyped-def]
        return (
            torch.randn(rows, cols, device="cuda")
            if layout == "row"
            else torch.randn(cols, rows, device="cuda").T
        )

    a, b = random(m, k, layouts[0]), random(k, n, layouts[1])
    plan = lapidist.plan(a, b, kernel="sgemm")
    for _ in range(3):  # the flags are zero again after each launch
        found = plan.execute(a, b)
        exact = a.double() @ b.double()
        bound = (k + 8) * 2.0**-24 * (a.double().abs() @ b.double().abs())
        assert bool(((found.double() - exact).abs() <= bound).all())


def test_refusals() -> None:
    strided = Problem.of(fake((64, 64), (128, 2)), fake((64, 64), (64, 1)), None, fake((64, 64), (64, 1)))
    assert "A must be contiguous along" in str(
        kernel_named("sgemm").refuse(strided, kernel_named("sgemm").config, H200)
    )
    plain = Problem.of(*(fake((64, 64), (64, 1)) for _ in range(2)), None, fake((64, 64), (64, 1)))
    sliced = replace(kernel_named("large_tile").config, slices=2)
    assert "its threads have all of k" in str(kernel_named("large_tile").refuse(plain, sliced, H200))


@pytest.mark.parametrize("batch", [(), (2,)])
def test_what_is_not_read_starts_anywhere(rng: np.random.Generator, batch: tuple[int, ...]) -> None:
    """TMA takes addresses and strides of 16 bytes alone, also of operands that alpha = 0 leaves out."""
    a = np.full((*batch, 71 * 33 + 1), np.nan, np.float32)[..., 1:].reshape(*batch, 71, 33)
    b, c = np.full((*batch, 33, 30), np.nan, np.float32), rng.standard_normal((*batch, 71, 30), np.float32)
    found = lapidist.gemm(a, b, c, alpha=0.0, beta=2.0, kernel="sgemm", device="machine")
    np.testing.assert_array_equal(found, 2 * c)
