"""The wgmma kernels in the machine: every type and layout, ragged, packed, batched, in clusters, fuzzed; and
what they refuse.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lapidist
from in_turns import in_turns, sampled, surveyed
from lapidist import machine
from lapidist.config import Config
from lapidist.device import chip
from lapidist.dtypes import FP8, TYPES, element_of, numpy_dtype
from lapidist.frameworks.arrays import operand_of
from lapidist.kernels.registry import RUNGS as ALL_RUNGS
from lapidist.kernels.registry import kernel_named
from lapidist.kernels.wgmma.config_list import deepest
from lapidist.kernels.wgmma.configs import tile
from lapidist.kernels.wgmma.family import WGMMA_FAMILY
from lapidist.kernels.wgmma.operands import packed_bytes, rows_copied_out
from lapidist.kernels.wgmma.rungs import CopiedLines
from lapidist.kernels.wgmma.tiles import loaded_lines, rows_of_stage
from lapidist.verify.sum_bound import judge
from typed import aligned, fresh, poisoned, rows_on_16_bytes
from wgmma_products import check, lying, multiply, operands, whole

MATHS = ("float16", "bfloat16", "tf32", "int8", "uint8", "float8_e4m3fn", "float8_e5m2")
RUNGS = tuple(kernel.name for kernel in ALL_RUNGS if isinstance(kernel.family, CopiedLines))
PATCHED = ("wgmma_patches", "wgmma_clusters", "wgmma_streamk")
H200, A100 = chip("h200"), chip("a100")


@pytest.mark.often(2)
@pytest.mark.parametrize(("kernel", "math"), in_turns(RUNGS, MATHS))
def test_rungs_in_every_type(kernel: str, math: str) -> None:
    a, b, more = operands(math, 140, 272, 208)
    check(multiply(a, lying(b, "col"), kernel=kernel, **more), a, b)


@pytest.mark.often(2)
@pytest.mark.parametrize("kernel", [*RUNGS[::3], *surveyed(each for each in RUNGS if each not in RUNGS[::3])])
def test_rungs_read_b_by_rows_where_wgmma_can(kernel: str) -> None:
    a, b, _ = operands("bfloat16", 140, 272, 200)
    check(multiply(a, b, kernel=kernel), a, b)
    a, b, _ = operands("int8", 16, 16, 16)
    with pytest.raises(lapidist.RefusalError, match="neighbours along k: B must be column-major"):
        multiply(a, b, kernel=kernel)


TYPES_AND_GAPS = ("bfloat16", 0), ("bfloat16", 1), ("float16", 3), ("int8", 5), ("tf32", 1)


@pytest.mark.often(2)
@pytest.mark.parametrize(("typed", "layouts"), in_turns(TYPES_AND_GAPS, ["rr", "rc", "cr", "cc"]))
def test_the_family_in_every_layout(typed: tuple[str, int], layouts: str) -> None:
    """With a gap no line starts on 16 bytes: all blocks pack the operands, and D leaves by plain stores."""
    names, (math, gap) = {"r": "row", "c": "col"}, typed
    a, b, more = operands(math, 136, 80, 152) if gap == 0 else operands(math, 131, 77, 135)
    d = multiply(lying(a, names[layouts[0]], gap), lying(b, names[layouts[1]], gap), kernel="wgmma", **more)
    check(d, a, b)


def test_c_may_lie_otherwise_and_is_not_read_without_beta() -> None:
    a, b, _ = operands("bfloat16", 70, 40, 72)
    c = whole((70, 40), 3, "bfloat16")
    check(multiply(a, b, lying(c, "col"), kernel="wgmma", beta=-3.0), a, b, c, -3.0)
    poisoned = np.full((70, 40), np.nan).astype(ml_dtypes.bfloat16)
    check(multiply(a, b, kernel="wgmma", out=poisoned), a, b)


WRITTEN = [(math, out) for math in MATHS for out in element_of(math).outputs]


@pytest.mark.often(2)
@pytest.mark.parametrize(("math", "out"), [*WRITTEN[::2], *surveyed(WRITTEN[1::2])])
def test_results_of_every_type_with_c(math: str, out: str) -> None:
    """Of 8 bits, integers stop at the ends of their range; floats round."""
    a, b, more = operands(math, 70, 96, 64)
    c = whole((70, 96), 3, out)
    d = multiply(a, b, c, kernel="wgmma", beta=-3.0, out_dtype=out, **more)
    assert d.dtype == numpy_dtype(out)
    exact = 2.0 * (a.astype("f8") @ b.astype("f8")) - 3.0 * c.astype("f8")
    low, high = TYPES[out].bounds or (-np.inf, np.inf)
    np.testing.assert_allclose(
        d.astype("f8"), exact.clip(low, high), rtol=TYPES[out].roundoff, atol=2 * TYPES[out].spacing
    )


@pytest.mark.parametrize(
    ("left", "right"), [("uint8", "int8"), FP8[::-1], *surveyed([("int8", "uint8"), FP8])]
)
def test_two_types_at_once(left: str, right: str) -> None:
    a, b = whole((70, 64), 1, left), whole((64, 40), 2, right)
    out = np.zeros((70, 40), "int32" if left.endswith("int8") else "float32", order="F")  # as D' = B' A'
    check(multiply(a, b, kernel="wgmma"), a, b)
    check(multiply(a, b, kernel="wgmma", out=out), a, b)


@pytest.mark.parametrize("batch", [(3,), (2, 3)])
def test_batches(batch: tuple[int, ...]) -> None:
    a, b = whole((*batch, 40, 72), 1, "float16"), whole((72, 24), 2, "float16")
    many = np.stack([whole((72, 24), seed, "float16") for seed in range(int(np.prod(batch)))]).reshape(
        *batch, 72, 24
    )
    check(multiply(a, many, kernel="wgmma"), a, many)
    check(multiply(a, b, kernel="wgmma"), a, b)


PACKED = [("bfloat16", "rr"), ("bfloat16", "cc"), ("int8", "rr"), ("tf32", "cr")]
SHARED = [((3,), (3,)), ((), (3,)), ((2, 3), (3,)), ((2, 3), (2, 1)), ((2, 3), (2, 3))]


@pytest.mark.often(2)
@pytest.mark.parametrize(("typed", "batches"), in_turns(PACKED, SHARED))
def test_batches_that_are_packed(typed: tuple[str, str], batches: tuple[tuple[int, ...], ...]) -> None:
    """Every matrix of its own is packed, one that the batch shares once."""
    (math, layouts), (a_batch, b_batch) = typed, batches
    names = {"r": "row", "c": "col"}
    dtype = "float32" if math == "tf32" else math
    a, b = whole((*a_batch, 35, 70), 1, dtype), whole((*b_batch, 70, 41), 2, dtype)
    more = {"precision": "tf32"} if math == "tf32" else {}
    d = multiply(lying(a, names[layouts[0]], 3), lying(b, names[layouts[1]], 3), kernel="wgmma", **more)
    check(d, a, b)
    packs = [int(np.prod(batch)) for batch in (a_batch, b_batch)]
    problem = lapidist.plan(
        lying(a, "row", 3), lying(b, "row", 3), kernel="wgmma", device="machine", **more
    ).problem
    # of B, packed with k touching but in bf16
    rows, step = {"bfloat16": (70, 96), "int8": (41, 96), "tf32": (41, 384)}[math]
    assert packed_bytes(problem)[1] == packs[1] * rows * step


@pytest.mark.often(2)
@pytest.mark.parametrize(
    "shapes", [((9, 1, 8), (9, 8, 1)), ((9, 1, 1), (9, 1, 1)), ((9, 8, 1), (9, 1, 16))], ids=str
)
def test_matrices_of_one_element_may_be_neighbours(shapes: tuple[tuple[int, ...], ...]) -> None:
    """TMA refuses steps that are no multiples of 16 bytes, also from matrix to matrix."""
    a, b = (np.arange(np.prod(shape), dtype=np.float16).reshape(shape) % 7 for shape in shapes)
    plan = lapidist.plan(a, b, kernel="wgmma", device="machine").plan
    assert plan is not None
    maps = plan.tensor_maps(dict.fromkeys(("A", "B", "D", "workspace"), 0))
    assert all(stride % 16 == 0 for each in maps.values() for stride in each.strides)
    assert np.array_equal(lapidist.gemm(a, b, kernel="wgmma", device="machine"), a @ b)


@pytest.mark.parametrize("layouts", ["rr", "rc", "cr", "cc"])
def test_operands_without_elements_need_no_address(layouts: str) -> None:
    """Boxes of theirs are loaded all the same, for the zeros outside, and the chip looks at what the map
    points to.
    """
    names = {"r": "row", "c": "col"}
    a, b = whole((16, 0), 1, "bfloat16"), whole((0, 24), 2, "bfloat16")
    plan = lapidist.plan(
        lying(a, names[layouts[0]]), lying(b, names[layouts[1]]), kernel="wgmma", device="machine"
    ).plan
    assert plan is not None
    at = {"A": 0, "B": 0, "D": 4098, "workspace": 0}
    maps = plan.tensor_maps(at)
    assert all(maps[name].address == 4096 and set(maps[name].shape) == {1} for name in ("a_map", "b_map"))


GAPS = {0: "none", 3: "gaps", None: "over each other"}


def lengths_and_gaps() -> list[Any]:
    """Every length with every gap, in one of two types; the other one is of the census."""
    found = []
    for turn, (k, (gap, words)) in enumerate(product([1, 7, 9, 33, 257, 301], GAPS.items())):
        for place, dtype in enumerate(["bfloat16", "int8"]):
            marks = [pytest.mark.census] if (turn + place) % 2 else []
            found.append(pytest.param(k, gap, dtype, marks=marks, id=f"{k}-{words}-{dtype}"))
    return found


@pytest.mark.often(2)
@pytest.mark.parametrize(("k", "gap", "dtype"), lengths_and_gaps())
def test_lines_of_any_length_are_packed(k: int, gap: int | None, dtype: str) -> None:
    """Of less than a piece to more than a warp takes at once; next to each other, apart, as windows of one
    another.
    """
    memory = whole((1501 * (k + 5),), 1, dtype)
    step = (5 if gap is None else k + gap) * memory.itemsize
    a = np.lib.stride_tricks.as_strided(memory[1:], (1500, k), (step, memory.itemsize))
    b = whole((k, 9), 2, dtype)
    check(multiply(a, b, kernel="wgmma"), a, b)


@pytest.mark.parametrize("extents", [(1, 1, 1), (5, 3, 0), (0, 4, 4), (65, 257, 63)])
def test_odd_extents(extents: tuple[int, int, int]) -> None:
    m, n, k = extents
    a, b = whole((m, k), 1, "bfloat16"), whole((k, n), 2, "bfloat16")
    check(multiply(a, b, kernel="wgmma"), a, b)


FEW_ROWS = [  # m, a tile's rows and columns, the rows that have room in a stage
    (1, 64, 64, 16),
    (17, 64, 64, 32),
    (48, 64, 96, 48),
    (3, 64, 32, 32),
    (80, 128, 64, 80),
    (7, 128, 48, 80),
    (80, 64, 64, 64),
]
OFTEN_FEW = list(zip(FEW_ROWS[:5], ("row", "col", "row", "col", "row"), strict=True))


@pytest.mark.often(2)
@pytest.mark.parametrize(("few", "b_layout"), in_turns(FEW_ROWS, ["row", "col"], often=OFTEN_FEW))
def test_few_rows_are_loaded_alone(few: tuple[int, int, int, int], b_layout: str) -> None:
    """wgmma reads whole tiles all the same: the others are zeros, or lie in B of the same stage, and go
    nowhere.
    """
    m, bm, bn, room = few
    config = tile("bfloat16", bm, bn, 3)
    a, b = whole((m, 328), 1, "bfloat16"), lying(whole((328, 200), 2, "bfloat16"), b_layout)
    gemm = lapidist.plan(a, b, kernel="wgmma", config=config, device="machine")
    assert gemm.plan is not None
    assert rows_of_stage(gemm.plan.problem, config) == room
    assert loaded_lines(gemm.plan.problem, config) == (min(m, room), bn)
    d = np.full((m, 200), np.nan, ml_dtypes.bfloat16)
    operands = operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out")
    machine.run(gemm.plan.launch(*operands, 1.0, 0.0), sanitize=True, seed=m, counting=False)
    check(d, a, b, alpha=1.0)


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("shape", "config", "loaded"),
    [
        (
            (130, 24),
            tile("bfloat16", 128, 32, 3),
            (128, 24),
        ),  # all columns of B in one tile, whose rest is zero
        (
            (75, 152),
            replace(tile("bfloat16", 64, 80, 3), exchanged=True),
            (64, 75),
        ),  # of activations, where these are B
        ((3, 40), replace(tile("bfloat16", 128, 128, 3), wm=32, ping_pong=True), (3, 40)),
    ],
    ids=str,
)
def test_one_tile_of_columns_is_loaded_alone(
    shape: tuple[int, int], config: Config, loaded: tuple[int, int]
) -> None:
    m, n = shape
    a, b = whole((m, 328), 1, "bfloat16"), lying(whole((328, n), 2, "bfloat16"), "col")
    gemm = lapidist.plan(a, b, kernel="wgmma", config=config, device="machine")
    assert gemm.plan is not None
    assert loaded_lines(gemm.plan.problem, config) == loaded
    d = np.full((m, n), np.nan, ml_dtypes.bfloat16)
    machine.run(
        gemm.plan.launch(operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out"), 1.0, 0.0),
        sanitize=True,
        seed=m,
    )
    check(d, a, b, alpha=1.0)


# ---- schedules ----

FUZZED: list[tuple[str, Config, int]] = [
    ("wgmma_tma", tile("bfloat16", 128, 64, 2, producers=0), 0),
    ("wgmma_specialised", tile("bfloat16", 128, 64, 2), 0),
    ("mma_tma", replace(kernel_named("mma_tma").config_for("bfloat16"), bn=64, stages=2), 0),
    ("wgmma_rounds", tile("bfloat16", 128, 64, 2), 0),
    ("wgmma_patches", tile("bfloat16", 128, 64, 2), 0),
    ("wgmma_clusters", tile("bfloat16", 128, 128, 2, (2, 1)), 0),
    ("wgmma", tile("bfloat16", 64, 32, 2), 0),
    ("wgmma", tile("bfloat16", 64, 32, 2), 1),  # packs
    ("wgmma", tile("bfloat16", 128, 48, 2, (2, 1)), 0),
    ("wgmma", tile("bfloat16", 64, 64, 2, (1, 2)), 0),
    ("wgmma", tile("bfloat16", 256, 32, 2, (1, 2)), 0),
]


@pytest.mark.parametrize(("kernel", "config", "gap", "seed"), sampled(FUZZED, range(2), share=2))
def test_no_race_in_any_order(kernel: str, config: Config, gap: int, seed: int) -> None:
    """Sanitized, copies and products as late as their waits allow. Blocks that pack wait for all others."""
    m, n, k = 2 * config.bm + 8, config.bn + 8 - gap, 200 - gap
    a, b = (
        lying(whole((m, k), 1, "bfloat16"), "row", 2 * gap),
        lying(whole((k, n), 2, "bfloat16"), "row", 2 * gap),
    )
    gemm = lapidist.plan(a, b, kernel=kernel, config=config, device="machine")
    assert gemm.plan is not None
    d = np.zeros((m, n), ml_dtypes.bfloat16)
    launch = gemm.plan.launch(operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out"), 1.0, 0.0)
    machine.run(launch, sanitize=True, seed=seed, counting=False)
    check(d, a, b, alpha=1.0)


def test_descriptors_leave_the_rank_of_their_block_out() -> None:
    """It would lie where they say how far slabs of a turned tile are apart: the second block's columns from
    64 on are others.
    """
    a, b = whole((128, 64), 1, "bfloat16"), whole((64, 128), 2, "bfloat16")
    plan = lapidist.plan(
        a, b, kernel="wgmma", config=tile("bfloat16", 64, 128, 2, (2, 1)), device="machine"
    ).plan
    assert plan is not None
    wrong = []
    for mask in ("16383", "-1"):
        d = np.zeros((128, 128), ml_dtypes.bfloat16)
        launch = plan.launch(operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out"), 1.0, 0.0)
        ptx, masks = re.subn(r"(and\.b32 [^;]*), 16383;", rf"\1, {mask};", launch.binary.ptx)
        assert masks
        machine.run(replace(launch, binary=replace(launch.binary, ptx=ptx)), counting=False)
        wrong.append(d != (a.astype("f8") @ b.astype("f8")).astype(d.dtype))
    assert not wrong[0].any()
    assert wrong[1][64:, 64:].any()
    assert not wrong[1][:64].any()


@pytest.mark.parametrize(
    ("kernel", "math"), in_turns(["wgmma", "wgmma_patches"], ["float8_e4m3fn", "tf32", "int8"])
)
def test_results_of_4_bytes_come_to_patches_without_conflicts(kernel: str, math: str) -> None:
    """Two elements a lane are two turns of shared memory, and in TMA's swizzle they were four."""
    a, b, more = operands(math, 128, 64, 256)
    b = lying(b, "col")
    gemm = lapidist.plan(a, b, kernel=kernel, config=tile(math, 128, 64, 2), device="machine", **more)
    assert gemm.plan is not None
    d = np.zeros((128, 64), gemm.plan.problem.out_dtype)
    launch = gemm.plan.launch(operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out"), 1.0, 0.0)
    counts = machine.run(launch, exact_counts=True).counts
    assert counts is not None
    assert counts.shared_store.per_request == 2


@pytest.mark.often(2)
@pytest.mark.parametrize(("name", "math"), in_turns(PATCHED, ["float8_e4m3fn", "bfloat16"]))
def test_rungs_write_rows_of_a_single_column(name: str, math: str) -> None:
    """A column of D whose elements touch is one that the family lets leave as such; rungs know rows alone."""
    a, b = (
        rows_on_16_bytes(fresh(np.random.default_rng(seed), shape, math))
        for seed, shape in ((1, (48, 32)), (2, (1, 32)))
    )
    out = aligned(poisoned((48, 1), "float32"))
    lapidist.gemm(a, b.T, out=out, kernel=name, device="machine")
    assert judge(out, a, b.T, unit="wgmma").ok


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("name", "types"), in_turns(PATCHED, [("bfloat16", "bfloat16"), ("int8", "int8"), ("tf32", "float32")])
)
def test_rungs_store_rows_that_start_anywhere(name: str, types: tuple[str, str]) -> None:
    """TMA takes none of these. Two tiles of columns: one of all its patches, one whose row ends inside of a
    piece. Sanitized, and what lies between the rows stays.
    """
    (math, out_dtype), (m, n, k, pitch) = types, (140, 256 + 69, 72, 333)
    a, b, more = operands(math, m, n, k)
    a, b = rows_on_16_bytes(a), rows_on_16_bytes(b.T).T
    memory = np.full((m, pitch), 3, numpy_dtype(out_dtype))
    d = memory[:, 5 : 5 + n]
    plan = lapidist.plan(a, b, d, alpha=2.0, beta=-1.0, out=d, kernel=name, device="machine", **more).plan
    assert plan is not None
    assert not rows_copied_out(plan.problem)
    matrices = (operand_of(a, "a"), operand_of(b, "b"), operand_of(d, "c"), operand_of(d, "out"))
    machine.run(plan.launch(*matrices, 2.0, -1.0), sanitize=True, seed=1, counting=False)
    exact = 2.0 * (a.astype("f8") @ b.astype("f8")) - 3.0
    if math == "int8":
        exact = exact.clip(-128, 127)
    np.testing.assert_array_equal(d, exact.astype(d.dtype))
    assert (np.delete(memory, np.s_[5 : 5 + n], axis=1) == 3).all()


# ---- what they refuse, and what they derive ----


def test_other_chips_and_too_much_shared_memory_are_refused() -> None:
    from lapidist_lab.sass import sample_problem

    problem = sample_problem(WGMMA_FAMILY, "bfloat16")
    assert "compute capability 9.0 alone" in (WGMMA_FAMILY.refuse(problem, WGMMA_FAMILY.config, A100) or "")
    deep = tile("bfloat16", 128, 256, 6)
    assert "bytes of shared memory" in (WGMMA_FAMILY.refuse(problem, deep, H200) or "")
    assert "multiples of 16 bytes" in str(
        kernel_named("wgmma_tma").family.refuse(sample_problem(WGMMA_FAMILY, "bfloat16", False))
    )


def test_every_config_fits_with_the_largest_patches() -> None:
    """128 x 256: a stage is 16 + 32 KB and 32 bytes of barriers are rounded in; eight warps have two patches
    of 2 KB.
    """
    assert deepest(128, 256) == 4
    assert deepest(256, 192) == 3
    assert deepest(64, 32) == 12


def test_packed_operands_take_lines_of_whole_chunks() -> None:
    a, b = whole((131, 135), 1, "bfloat16"), whole((135, 77), 2, "bfloat16")
    problem = lapidist.plan(a, b, kernel="wgmma", device="machine").problem
    assert packed_bytes(problem) == (131 * 384, 135 * 256)  # from 128 bytes on; shorter ones are of sectors
