"""The planner: what is refused says why, what is left is weighed, the best is taken; printing it explains the
choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from lapidist.config import Config
from lapidist.device import CHIPS, Device
from lapidist.dtypes import MATHS, element_of
from lapidist.errors import ArgumentError, RefusalError
from lapidist.frameworks.arrays import HOST, Operand
from lapidist.kernels.blocks.time import traffic_bytes
from lapidist.kernels.registry import BY_NAME, KERNELS, kernel_named
from lapidist.kernels.row import Kernel
from lapidist.kernels.wgmma.family import tile
from lapidist.planning.planner import candidates, choose, exactly
from lapidist.planning.plans import make_plan
from lapidist.planning.weighed import LAUNCH_SECONDS, LESSON, as_computed
from lapidist.problems.problem import Problem, dense_problem
from lapidist.schedule.sharing import Sharing
from typed import TYPED, TYPED_IDS

H200, A100, V100 = CHIPS["h200"], CHIPS["a100"], CHIPS["v100"]


def fake(shape: Sequence[int], strides: Sequence[int] | None = None, dtype: str = "float32") -> Operand:
    steps = strides or [*(shape[-1] * shape[-2] for _ in shape[:-2]), shape[-1], 1]
    return Operand("x", 0, tuple(shape), tuple(steps), dtype, HOST, "numpy", None)


def square(n: int, dtype: str = "float32") -> Problem:
    return Problem.of(fake((n, n), None, dtype), fake((n, n), None, dtype), None, fake((n, n), None, dtype))


def refusal(kernel: str, problem: Problem, device: Device = H200, config: Config | None = None) -> str:
    row = kernel_named(kernel)
    return row.refuse(problem, config or row.config_for(problem.math), device) or ""


# ---- refusals ----


@pytest.mark.parametrize(("kernel", "math"), TYPED, ids=TYPED_IDS)
def test_every_kernel_takes_a_plain_large_product(kernel: Kernel, math: str) -> None:
    from lapidist.static import sample_problem

    for config, efficiency in kernel.configs_for(math):
        assert 0 < efficiency <= 1
        plain = sample_problem(kernel, math)
        # 64 rows of A in 8 bits cannot be turned
        columns = dense_problem(plain.m, plain.n, plain.k, math, "rc")
        taken = any(
            kernel.refuse(as_computed(each, config), config, H200) is None for each in (plain, columns)
        )
        assert taken != config.skewed  # rows that start anywhere alone


def typed(dtype: str, b: str | None = None, out: str | None = None, n: int = 64, **more: str) -> Problem:
    results = fake((n, n), None, out or dtype)
    return Problem.of(fake((n, n), None, dtype), fake((n, n), None, b or dtype), None, results, **more)


def test_types_are_refused_by_name() -> None:
    assert (
        refusal("simt", typed("bfloat16")) == "it multiplies float16, float32, float64; the type is bfloat16"
    )
    assert (
        refusal("sgemm", typed("float32", out="float16"))
        == "it writes its operands' type, float32; D is float16"
    )
    assert refusal("simt", typed("float32", out="float16")) == ""
    assert (
        refusal("simt", typed("float16", accumulator="float16"))
        == "it sums float16 in float32, not in float16"
    )
    assert refusal("mma", typed("float32")).endswith("float8_e5m2, tf32; the type is float32")
    assert refusal("wmma_shared", typed("float8_e5m2", out="float32")).endswith(
        "uint8; the type is float8_e5m2"
    )
    mixed = typed("int8", "uint8", "int32")
    assert refusal("wmma_shared", mixed) == "it multiplies operands of one type; these are int8 and uint8"
    assert refusal("mma", mixed) == refusal("mma_multistage", mixed) == ""
    assert (
        refusal("mma", typed("float32", precision="tf32"))
        == refusal("mma", typed("float16", accumulator="float16"))
        == ""
    )


def test_types_that_a_chip_lacks_are_refused() -> None:
    fp8 = typed("float8_e4m3fn", out="float32")
    assert refusal("mma", fp8, A100) == "it needs compute capability 8.9; A100 has 8.0"
    assert refusal("mma", fp8, CHIPS["rtx4090"]) == ""
    assert refusal("mma", typed("bfloat16"), V100) == "it needs compute capability 8.0; V100 has 7.0"


def test_the_devices_shared_memory_decides_between_the_wmma_kernels() -> None:
    """Two sizes of wmma_shared: beyond 64 KB, and within; a chip that has neither is left with
    wmma_simple.
    """
    names, problem = ("wmma_simple", "wmma_shared"), typed("float16", n=4096)
    kernels = tuple(kernel_named(name) for name in names)

    def left_on(shared_kib: int) -> list[tuple[str, int]]:
        chip = replace(H200, shared_per_block=shared_kib * 1024)
        return [
            (row.kernel.name, row.config.bk)
            for row in candidates(problem, chip, kernels)
            if row.refusal is None
        ]

    assert left_on(227) == [("wmma_simple", 0), ("wmma_shared", 64), ("wmma_shared", 128)]
    assert left_on(64) == [("wmma_simple", 0), ("wmma_shared", 64)]
    assert left_on(32) == [("wmma_simple", 0)]
    deep = kernels[1].configs_for("float16")[1][0]
    assert (
        refusal("wmma_shared", problem, replace(H200, shared_per_block=65536), deep)
        == "its buffers take 69632 bytes of shared memory; H200 gives a block 65536"
    )


@pytest.mark.parametrize("math", MATHS)
@pytest.mark.parametrize("layouts", ["rr", "rc", "cr", "cc", "ss"])
@pytest.mark.parametrize("n", [1, 7, 129])
def test_every_type_has_a_kernel_in_every_layout(math: str, layouts: str, n: int) -> None:
    element = element_of(math)
    strides = {"r": (n, 1), "c": (1, n), "s": (2 * n * n, 2 * n)}
    a, b = (fake((n, n), strides[letter], element.name) for letter in layouts)
    for output in element.outputs:
        for accumulator in element.accumulators:
            precision = "tf32" if math == "tf32" else "ieee"
            problem = Problem.of(
                a, b, None, fake((n, n), None, output), accumulator=accumulator, precision=precision
            )
            assert choose(problem, H200).refusal is None


def test_layouts_are_refused_by_name() -> None:
    n = 64
    row, col, every = fake((n, n)), fake((n, n), (1, n)), fake((n, n), (2 * n, 2))
    assert refusal("coalesced", Problem.of(col, row, None, row)) == "A must be row-major; it is column-major"
    assert refusal("coalesced", Problem.of(row, col, None, row)) == "B must be row-major; it is column-major"
    assert refusal("coalesced", Problem.of(every, row, None, row)).startswith(
        "A must be row-major; it is strided ("
    )
    assert (
        refusal("b_transposed", Problem.of(row, row, None, row)) == "B must be column-major; it is row-major"
    )
    assert refusal("b_transposed", Problem.of(row, col, None, row)) == ""
    assert refusal("simt", Problem.of(col, every, None, row)) == ""
    assert "D must be contiguous along" in refusal("simt", Problem.of(row, row, None, every))


def test_batches_are_refused_where_there_is_one_product() -> None:
    problem = Problem.of(fake((3, 8, 8)), fake((3, 8, 8)), None, fake((3, 8, 8)))
    assert refusal("large_tile", problem) == "it multiplies one pair of matrices; this is a batch of (3,)"
    assert refusal("simt", problem) == ""


def test_a_separate_c_is_refused_where_c_is_updated_in_place() -> None:
    a, c = fake((8, 8)), Operand("c", 4096, (8, 8), (8, 1), "float32", HOST, "numpy", None)
    assert (
        refusal("large_tile", Problem.of(a, a, c, fake((8, 8))))
        == "it updates C in place; here C and D are different arrays"
    )
    assert refusal("large_tile", Problem.of(a, a, a, a)) == ""


def test_batches_that_need_three_steps_are_refused() -> None:
    shape, strides = (2, 2, 2, 8, 8), (1024, 300, 130, 8, 1)
    problem = Problem.of(fake(shape, strides), fake(shape, strides), None, fake(shape, strides))
    assert (
        refusal("simt", problem) == "it steps through two batch dimensions; these strides leave 3: (2, 2, 2)"
    )


def test_batches_beyond_the_grid_are_refused() -> None:
    shape, strides = (70000, 8, 8), (100, 8, 1)
    words = refusal(
        "simt", Problem.of(fake(shape, strides), fake(shape, strides), None, fake(shape, strides))
    )
    assert words == "a grid has at most 65535 blocks along y and z; the batch is (70000,)"


def test_chips_that_lack_the_instructions_are_refused() -> None:
    assert refusal("async_pipeline", square(64), V100) == "it needs compute capability 8.0; V100 has 7.0"
    assert refusal("tma_streamk", square(64), A100) == "it needs compute capability 9.0; A100 has 8.0"
    assert refusal("coalesced", square(64), V100) == "it needs compute capability 7.5; V100 has 7.0"
    assert refusal("tma_streamk", square(64), H200) == ""


def test_rows_that_the_copy_engine_cannot_step_through_are_refused() -> None:
    def with_rows(stride: int, rows: int = 64, cols: int = 16) -> str:
        return refusal(
            "tma_streamk",
            Problem.of(fake((rows, cols), (stride, 1)), fake((cols, 64)), None, fake((rows, 64))),
        )

    assert with_rows(16) == ""
    assert (
        with_rows(18) == "TMA needs A's pointer and row stride in multiples of 16 bytes; they are multiples"
        " of 8"
    )
    assert (
        with_rows(1) == "TMA needs A's pointer and row stride in multiples of 16 bytes; they are multiples"
        " of 4"
    )
    assert (
        with_rows(1, cols=1)
        == "TMA needs A's pointer and row stride in multiples of 16 bytes; they are multiples"
        " of 4"
    )
    assert with_rows(0) == "TMA steps forward from row to row; A's row stride is 0"
    assert with_rows(-16) == "TMA steps forward from row to row; A's row stride is -16"


def test_pointers_that_the_copy_engine_cannot_take_are_refused() -> None:
    a = Operand("a", 4, (16, 16), (16, 1), "float32", HOST, "numpy", None)
    assert "multiples of 16 bytes; they are multiples of 4" in refusal(
        "tma_streamk", Problem.of(a, fake((16, 16)), None, fake((16, 16)))
    )


def test_extents_beyond_32_bits_are_refused() -> None:
    long = 2**31
    problem = Problem.of(fake((long, 8)), fake((8, 8)), None, fake((long, 8)))
    assert refusal("simt", problem) == f"an extent is counted in 32 bits; the largest is {long}"


def test_grids_beyond_the_limit_are_refused() -> None:
    wide = 2**31 - 1
    problem = Problem.of(fake((wide, 8)), fake((8, wide)), None, fake((wide, wide)))
    assert "a grid has at most 2147483647 blocks; 32x32, thread 1x1 would need " in refusal(
        "coalesced", problem
    )


def test_configs_beyond_the_chip_are_refused() -> None:
    words = refusal(
        "tma_streamk", square(512), H200, Config(256, 128, 32, 64, 64, 16, 8, stages=8, producers=128)
    )
    assert "bytes of shared memory; H200 gives a block 232448" in words
    assert "a block has at most 1024 threads; 64x64, thread 1x1 would need 4096" in refusal(
        "coalesced", square(64), H200, Config(64, 64)
    )


def test_more_clusters_than_find_room_are_not_launched() -> None:
    """They would run when the others are done; where operands are packed, the others would wait for them for
    ever.
    """
    kernel = kernel_named("wgmma")
    for n, cluster in ((4096, (2, 2)), (4095, (4, 1))):
        plan = make_plan(
            square(n, "bfloat16"),
            H200,
            kernel,
            tile("bfloat16", 64, 64, 4, cluster),
            Sharing("data_parallel"),
        )
        assert plan.grid == (120, 1, 1)
    assert [H200.clusters_resident(blocks) for blocks in (1, 2, 4, 7)] == [132, 66, 30, 0]


# ---- choosing ----


def test_the_best_candidate_is_the_quickest_that_is_allowed() -> None:
    best, weighed = choose(square(4096), H200), candidates(square(4096), H200)
    allowed = [candidate for candidate in weighed if candidate.refusal is None]
    assert best in allowed
    produced = [candidate for candidate in allowed if candidate.kernel.kind == "production"]
    assert all(best.seconds <= candidate.seconds for candidate in produced)
    assert all(best.seconds <= candidate.seconds * LESSON for candidate in allowed)
    assert {candidate.kernel.name for candidate in weighed} == set(BY_NAME)


@pytest.mark.parametrize("n", [1, 7, 64, 1000, 4096])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("layouts", [(1, 1), (1, 0), (0, 1), (0, 0)])
def test_any_shape_and_layout_has_a_kernel_on_any_chip(n: int, dtype: str, layouts: tuple[int, int]) -> None:
    a, b = (fake((n, n), (n, 1) if layout else (1, n), dtype) for layout in layouts)
    for device in CHIPS.values():
        if device.capability >= (7, 5):
            assert choose(Problem.of(a, b, None, fake((n, n), None, dtype)), device).refusal is None


def test_naming_a_kernel_leaves_only_that_one() -> None:
    plan = make_plan(square(512), H200, kernel_named("shared_tile"))
    assert plan.kernel.name == "shared_tile"
    assert {candidate.kernel.name for candidate in plan.considered} == {"shared_tile"}


def test_no_kernel_left_lists_every_reason_once() -> None:
    with pytest.raises(RefusalError, match=r"no kernel takes .* on V100") as caught:
        choose(square(64), V100)
    names, reasons = zip(*(line.split(": ", 1) for line in str(caught.value).splitlines()[1:]), strict=True)
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


# ---- chips ----


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("a100", "sm_80"),
        ("rtx3090", "sm_86"),
        ("rtx4090", "sm_89"),
        ("h100", "sm_90a"),
        ("h200", "sm_90a"),
        ("rtx5090", "sm_120a"),
    ],
)
def test_architectures(name: str, architecture: str) -> None:
    assert CHIPS[name].architecture == architecture


def test_peaks() -> None:
    """132 SMs, 128 lanes, 2 flops, 1.98 GHz."""
    assert H200.peak_tflops("float32") == pytest.approx(66.9, abs=0.05)
    assert H200.peak_tflops("float64") == pytest.approx(33.5, abs=0.05)
    assert H200.limit_tflops("float32") == pytest.approx(66, abs=0.5)
    assert A100.limit_tflops("float32") == pytest.approx(19.5, abs=0.05)


def test_limits_are_those_of_the_best_unit() -> None:
    assert (
        H200.limit_tflops("float16")
        == H200.unit_limit("wgmma", "float16")
        > H200.unit_limit("mma", "float16")
    )
    assert (
        H200.limit_tflops("float64") == H200.unit_limit("mma", "float64") > H200.unit_limit("fma", "float64")
    )
    assert H200.unit_limit("mma", "uint8") == H200.unit_limit("mma", "int8")  # one rate for both
    assert (H200.unit_limit("fma", "bfloat16"), H200.unit_limit("wgmma", "float64")) == (0.0, 0.0)
    assert A100.limit_tflops("float16") == pytest.approx(312, abs=1)
    assert A100.limit_tflops("float8_e4m3fn") == 0.0
    assert V100.units == ("fma",)
    assert CHIPS["rtx4090"].limit_tflops("tf32") == pytest.approx(82.6, abs=0.1)
    assert CHIPS["rtx3090"].limit_tflops("float16") == pytest.approx(71.2, abs=0.1)
    assert CHIPS["rtx5090"].limit_tflops("float16") == pytest.approx(209.5, abs=0.1)
    assert CHIPS["rtx5090"].limit_tflops("float32") == pytest.approx(104.8, abs=0.1)


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks"),
    [
        (256, 128, 0, 2),
        (256, 64, 0, 4),
        (1024, 32, 0, 2),
        (32, 16, 0, 32),
        (128, 255, 0, 2),
        (128, 32, 100 * 1024, 2),
        (128, 32, 114 * 1024, 1),  # each block takes a KiB more
        (64, 33, 0, 25),
    ],
)
def test_occupancy(threads: int, registers: int, shared: int, blocks: int) -> None:
    """33 registers take 40 a thread (units of 256 a warp): 65536 / (1280 * 2) = 25 blocks of two warps."""
    assert H200.blocks_resident(threads, registers, shared) == blocks


@pytest.mark.parametrize(
    ("product", "chip"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA GeForce RTX 5090", "rtx5090"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA B200", None),
    ],
)
def test_products_are_recognised(product: str, chip: str | None) -> None:
    from lapidist.device import known_as

    assert known_as(product) == (CHIPS[chip] if chip else None)


# ---- the model of Hopper's kernels ----


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
