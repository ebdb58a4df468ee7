"""What kernels refuse, and in which words."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from lapidist.config import Config
from lapidist.device import CHIPS
from lapidist.dtypes import MATHS, element_of
from lapidist.errors import RefusalError
from lapidist.frameworks.arrays import HOST, Operand
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.registry import kernel_named
from lapidist.kernels.wgmma.family import tile
from lapidist.planning.cost_table import as_computed
from lapidist.planning.planner import candidates, choose
from lapidist.planning.plans import make_plan
from lapidist.problems.problem import Problem, dense_problem
from lapidist.schedule.sharing_choice import Sharing
from offenders import each_holds
from planned import A100, H200, V100, fake, refusal, square
from typed import TYPED


def takes_a_plain_large_product(kernel: Kernel, math: str) -> None:
    from lapidist_lab.sass import sample_problem

    for config, efficiency in kernel.configs_for(math):
        assert 0 < efficiency <= 1
        plain = sample_problem(kernel, math)
        # 64 rows of A in 8 bits cannot be turned
        columns = dense_problem(plain.m, plain.n, plain.k, math, "rc")
        taken = any(
            kernel.refuse(as_computed(each, config), config, H200) is None for each in (plain, columns)
        )
        assert taken != config.skewed, config  # rows that start anywhere alone


def test_every_kernel_takes_a_plain_large_product() -> None:
    each_holds(takes_a_plain_large_product, TYPED)


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


def has_a_kernel(math: str, layouts: str, n: int) -> None:
    element = element_of(math)
    strides = {"r": (n, 1), "c": (1, n), "s": (2 * n * n, 2 * n)}
    a, b = (fake((n, n), strides[letter], element.name) for letter in layouts)
    for output in element.outputs:
        for accumulator in element.accumulators:
            precision = "tf32" if math == "tf32" else "ieee"
            problem = Problem.of(
                a, b, None, fake((n, n), None, output), accumulator=accumulator, precision=precision
            )
            assert choose(problem, H200).refusal is None, (output, accumulator)


@pytest.mark.parametrize("math", MATHS)
def test_every_type_has_a_kernel_in_every_layout(math: str) -> None:
    each_holds(has_a_kernel, product((math,), ("rr", "rc", "cr", "cc", "ss"), (1, 7, 129)))


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


def test_more_tiles_than_32_bits_count_are_refused() -> None:
    problem = dense_problem(2**31 - 1, 1, 1, "float32", batch=60000)
    with pytest.raises(RefusalError, match=r"(?s)no kernel takes 2147483647 x .*tiles with 32 bits"):
        choose(problem, H200)


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
