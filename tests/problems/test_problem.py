"""Problem: what it says about memory must be what the arrays are, whatever their strides, however it was
folded.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapidist.calls import argument_rules
from lapidist.device import chip
from lapidist.frameworks.arrays import HOST, Operand, contiguous_strides, operand_of
from lapidist.planning.planner import choose
from lapidist.problems.matrix import Matrix
from lapidist.problems.parts import parts_of
from lapidist.problems.problem import Problem, dense_problem

# ---- arrays with any strides, inside a buffer of their own ----


def strided(
    draw: Any, shape: tuple[int, ...], fresh: bool = False
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(buffer, view of `shape` in it): dimensions in any order, with gaps, some stepped backwards, some
    repeated.
    """
    order = draw(st.permutations(range(len(shape))))
    strides, step = [0] * len(shape), 1
    for dim in order:
        if fresh or not draw(st.booleans()):
            strides[dim] = step
            step *= shape[dim] * draw(st.sampled_from([1, 1, 1, 2])) + draw(st.sampled_from([0, 0, 1, 3]))
    offset = 0
    for dim, extent in enumerate(shape):
        if not fresh and extent and draw(st.integers(0, 7)) == 0:
            offset += strides[dim] * (extent - 1)
            strides[dim] = -strides[dim]
    buffer = np.zeros(max(step, 1) + offset + 1, np.float32)
    bytes_of = tuple(stride * 4 for stride in strides)
    return buffer, np.lib.stride_tricks.as_strided(buffer[offset:], shape, bytes_of)


def read(
    buffer: np.ndarray[Any, Any], pointer: int, matrix: Matrix, batch: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    """The matrices of a batch, by index arithmetic alone: what a kernel does with pointer and strides."""
    start = (pointer - buffer.ctypes.data) // 4
    result = np.zeros((*batch, matrix.rows, matrix.cols), np.float32)
    for index in np.ndindex(*batch):
        base = start + sum(i * stride for i, stride in zip(index, matrix.batch_strides, strict=True))
        for row, col in itertools.product(range(matrix.rows), range(matrix.cols)):
            result[(*index, row, col)] = buffer[base + row * matrix.row_stride + col * matrix.col_stride]
    return result


def addresses(pointer: int, matrix: Matrix, batch: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    """Where each element of the output lies, to the index it has."""
    found = {}
    for index in np.ndindex(*batch, matrix.rows, matrix.cols):
        strides = (*matrix.batch_strides, matrix.row_stride, matrix.col_stride)
        found[pointer + 4 * sum(i * stride for i, stride in zip(index, strides, strict=True))] = index
    return found


extents = st.integers(1, 4)
batches = st.lists(st.integers(1, 3), max_size=3)


@st.composite
def products(draw: Any) -> tuple[Any, ...]:
    m, n, k = draw(extents), draw(extents), draw(st.integers(0, 4))
    batch = tuple(draw(batches))

    def some_of() -> tuple[int, ...]:
        """A batch shape that broadcasts to `batch`."""
        kept = tuple(extent if draw(st.booleans()) else 1 for extent in batch)
        return kept[draw(st.integers(0, len(batch))) :]

    shapes = (
        (*some_of(), m, k),
        (*some_of(), k, n),
        (*some_of(), *draw(st.sampled_from([(m, n), (1, n), (m, 1), (1, 1)]))),
    )
    inputs = [strided(draw, shape) for shape in shapes]
    full = np.broadcast_shapes(shapes[0][:-2], shapes[1][:-2])
    inputs[2] = inputs[2] if np.broadcast_shapes(full, shapes[2][:-2]) == full else strided(draw, (m, n))
    out = strided(draw, (*full, m, n), fresh=True)
    in_place = draw(st.booleans())
    return (*inputs[:2], out if in_place else draw(st.sampled_from([inputs[2], None])), out)


@settings(max_examples=400, deadline=None)
@given(products())
def test_a_kernel_that_follows_the_problem_computes_the_product(arrays: Any) -> None:
    """The problem's extents and strides, walked literally, give numpy's answer and touch nothing else."""
    (a_buffer, a), (b_buffer, b), c_pair, (out_buffer, out) = arrays
    numbers = np.random.default_rng(out_buffer.size)
    for buffer in (a_buffer, b_buffer, out_buffer, *(() if c_pair is None else (c_pair[0],))):
        buffer[...] = numbers.integers(-8, 9, buffer.shape)
    c = None if c_pair is None else c_pair[1]
    expected = out_buffer.copy()
    view = np.lib.stride_tricks.as_strided(
        expected[element_offset(out_buffer, out) :], out.shape, out.strides
    )
    view[...] = np.matmul(a, b) + (0 if c is None else 3 * c)

    operands = [operand_of(array, name) for array, name in ((a, "a"), (b, "b"), (out, "out"))]
    c_operand = None if c is None else argument_rules.broadcast_c(operand_of(c, "c"), out.shape)
    problem = Problem.of(operands[0], operands[1], c_operand, operands[2])
    left, right = (b, a) if problem.transposed else (a, b)
    buffers = (b_buffer, a_buffer) if problem.transposed else (a_buffer, b_buffer)
    result = np.matmul(
        read(buffers[0], left.ctypes.data, problem.a, problem.batch),
        read(buffers[1], right.ctypes.data, problem.b, problem.batch),
    )
    if problem.c is not None:
        assert c_pair is not None
        assert c is not None
        result += 3 * read(c_pair[0], c.ctypes.data, problem.c, problem.batch)
    got = out_buffer.copy()
    for address, index in addresses(out.ctypes.data, problem.d, problem.batch).items():
        got[(address - out_buffer.ctypes.data) // 4] = result[index]
    np.testing.assert_array_equal(got, expected)
    assert problem.in_place == (c is out)
    assert (problem.a.rows, problem.a.cols) == (problem.m, problem.k)
    assert (problem.b.rows, problem.b.cols) == (problem.k, problem.n)
    assert (problem.d.rows, problem.d.cols) == (problem.m, problem.n)
    assert hash(problem) == hash(Problem.of(operands[0], operands[1], c_operand, operands[2]))


def element_offset(buffer: np.ndarray[Any, Any], view: np.ndarray[Any, Any]) -> int:
    return (view.ctypes.data - buffer.ctypes.data) // buffer.itemsize


@settings(max_examples=300, deadline=None)
@given(products(), st.integers(0, 7))
def test_every_row_starts_on_the_alignment(arrays: Any, shift: int) -> None:
    """Rows of a row-major matrix and columns of a column-major one start where the alignment says."""
    (_, a), (_, b), _, (_, out) = arrays
    operands = [
        Operand(
            name, 4096 + 4 * shift, x.shape, tuple(s // 4 for s in x.strides), "float32", HOST, "numpy", x
        )
        for name, x in (("a", a), ("b", b), ("out", out))
    ]
    problem = Problem.of(operands[0], operands[1], None, operands[2])
    for matrix in (problem.a, problem.b, problem.d):
        assert matrix.alignment in (4, 8, 16)
        lines, step, length = (matrix.rows, matrix.row_stride, matrix.cols)
        if matrix.layout == "col":
            lines, step, length = (matrix.cols, matrix.col_stride, matrix.rows)
        for index in np.ndindex(*problem.batch):
            start = (
                4096
                + 4 * shift
                + 4 * sum(i * stride for i, stride in zip(index, matrix.batch_strides, strict=True))
            )
            assert start % matrix.alignment == 0, (matrix, index)
        if matrix.layout == "strided" or length < 2:  # nothing that could be moved together
            continue
        for index in np.ndindex(*problem.batch, lines):
            steps = (*matrix.batch_strides, step)
            start = 4096 + 4 * shift + 4 * sum(i * stride for i, stride in zip(index, steps, strict=True))
            assert start % matrix.alignment == 0, (matrix, index)


# ---- single cases, worked out by hand ----


def fake(shape: Sequence[int], strides: Sequence[int], dtype: str = "float32", pointer: int = 0) -> Operand:
    return Operand("x", pointer, tuple(shape), tuple(strides), dtype, HOST, "numpy", None)


def problem_of(a: Operand, b: Operand, d: Operand, c: Operand | None = None) -> Problem:
    return Problem.of(a, b, c, d)


@pytest.mark.parametrize(
    ("strides", "layout"),
    [((9, 1), "row"), ((1, 9), "col"), ((18, 2), "strided"), ((0, 1), "row"), ((-9, 1), "row")],
)
def test_layout(strides: tuple[int, int], layout: str) -> None:
    matrix = Matrix.of(fake((5, 7), strides), ())
    assert matrix.layout == layout


@pytest.mark.parametrize(("strides", "flipped"), [((9, 1), "col"), ((1, 9), "row"), ((18, 2), "strided")])
def test_a_transposed_matrix_has_the_other_layout(strides: tuple[int, int], flipped: str) -> None:
    assert Matrix.of(fake((5, 7), strides), ()).transposed().layout == flipped


@pytest.mark.parametrize(
    ("dtype", "pointer", "leading", "alignment"),
    [
        ("float32", 0, 8, 16),
        ("float32", 4, 8, 4),
        ("float32", 8, 8, 8),
        ("float32", 0, 6, 8),
        ("float32", 0, 7, 4),
        ("float32", 48, 8, 16),
        ("float16", 0, 8, 16),
        ("float16", 0, 9, 2),
        ("float16", 2, 8, 2),
        ("float16", 0, 12, 8),
        ("float64", 0, 8, 16),
        ("float64", 0, 7, 8),
        ("float64", 8, 8, 8),
    ],
)
def test_alignment(dtype: str, pointer: int, leading: int, alignment: int) -> None:
    """float32 rows of 7 start every 28 bytes: on 4. float16 rows of 12 every 24: on 8."""
    assert Matrix.of(fake((5, 5), (leading, 1), dtype, pointer), ()).alignment == alignment


def test_alignment_counts_steps_between_matrices_of_a_batch() -> None:
    assert Matrix.of(fake((3, 4, 4), (17, 4, 1)), (3,)).alignment == 4
    assert Matrix.of(fake((1, 4, 4), (17, 4, 1)), (3,)).alignment == 16  # never stepped
    # what touches are matrices, which nobody loads together
    assert Matrix.of(fake((4, 64, 1), (1, 4, 4)), (4,)).alignment == 4
    assert Matrix.of(fake((4, 1, 1), (1, 1, 1)), (4,)).alignment == 4


def test_windows_that_overlap_are_not_aligned() -> None:
    """numpy's sliding windows step by one element from row to row."""
    assert Matrix.of(fake((4, 8), (1, 1)), ()).alignment == 4


def test_a_column_major_output_is_computed_transposed() -> None:
    problem = problem_of(fake((3, 5), (5, 1)), fake((5, 7), (7, 1)), fake((3, 7), (1, 3)))
    assert problem.transposed
    assert (problem.m, problem.n, problem.k) == (7, 3, 5)
    assert (problem.a.rows, problem.a.cols, problem.a.layout) == (7, 5, "col")
    assert problem.d.layout == "row"


def test_even_batches_collapse_to_one() -> None:
    a, b, d = (
        fake((2, 3, 4, 4), (48, 16, 4, 1)),
        fake((2, 3, 4, 4), (48, 16, 4, 1)),
        fake((2, 3, 4, 4), (48, 16, 4, 1)),
    )
    problem = problem_of(a, b, d)
    assert problem.batch == (6,)
    assert problem.a.batch_strides == (16,)


def test_uneven_batches_stay_apart() -> None:
    a, b, d = (
        fake((2, 3, 4, 4), (100, 16, 4, 1)),
        fake((2, 3, 4, 4), (48, 16, 4, 1)),
        fake((2, 3, 4, 4), (48, 16, 4, 1)),
    )
    assert problem_of(a, b, d).batch == (2, 3)


def test_a_batch_of_one_is_no_batch() -> None:
    a, b, d = fake((1, 1, 4, 4), (99, 77, 4, 1)), fake((4, 4), (4, 1)), fake((1, 1, 4, 4), (16, 16, 4, 1))
    assert problem_of(a, b, d).batch == ()


def test_a_batch_that_shares_b_is_one_tall_product() -> None:
    problem = problem_of(fake((6, 4, 5), (20, 5, 1)), fake((5, 7), (7, 1)), fake((6, 4, 7), (28, 7, 1)))
    assert problem.batch == ()
    assert (problem.m, problem.n, problem.k) == (24, 7, 5)
    assert problem.a.rows == problem.d.rows == 24


@pytest.mark.parametrize("of_one_row", [5, 30, 1 << 20])
def test_single_rows_are_one_tall_product_whatever_their_stride(of_one_row: int) -> None:
    """torch's compiler gives a dimension of one any stride. Decoding must not read B for each row."""
    a, b, d = (fake((6, 1, 5), (8, of_one_row, 1)), fake((5, 7), (7, 1)), fake((6, 1, 7), (7, of_one_row, 1)))
    c = argument_rules.broadcast_c(fake((7,), (1,)), (6, 1, 7))
    problem = problem_of(a, b, d, c)
    assert (problem.batch, problem.m) == ((), 6)
    assert problem.c is not None
    assert [each.row_stride for each in (problem.a, problem.d, problem.c)] == [8, 7, 0]


def test_a_batch_with_gaps_is_not_stacked() -> None:
    problem = problem_of(fake((6, 4, 5), (21, 5, 1)), fake((5, 7), (7, 1)), fake((6, 4, 7), (28, 7, 1)))
    assert problem.batch == (6,)
    assert problem.m == 4


def test_a_batch_that_repeats_c_is_not_stacked() -> None:
    c = argument_rules.broadcast_c(fake((4, 7), (7, 1)), (6, 4, 7))
    problem = problem_of(fake((6, 4, 5), (20, 5, 1)), fake((5, 7), (7, 1)), fake((6, 4, 7), (28, 7, 1)), c)
    assert problem.batch == (6,)
    assert problem.c is not None
    assert problem.c.batch_strides == (0,)


def test_strides_beyond_32_bits_survive() -> None:
    """A view of a 100 GB matrix: 70000 rows that lie 2^20 elements apart."""
    a = fake((70000, 16), (1 << 20, 1))
    problem = problem_of(a, fake((16, 70000), (1, 1 << 20)), fake((70000, 70000), (1 << 20, 1)))
    assert problem.a.row_stride * (problem.m - 1) > 2**36
    assert problem.d.row_stride * 69999 * 4 == a.span[1] - a.span[0] - 16 * 4
    assert problem.flops == 2.0 * 70000 * 70000 * 16


def test_flops_count_the_whole_batch() -> None:
    problem = problem_of(
        fake((2, 3, 4, 5), (99, 20, 5, 1)),
        fake((2, 3, 5, 7), (105, 35, 7, 1)),
        fake((2, 3, 4, 7), (84, 28, 7, 1)),
    )
    assert problem.flops == 2.0 * 6 * 4 * 5 * 7


def test_types_are_those_of_the_operands_and_trade_places_with_them() -> None:
    a, b = fake((3, 5), (5, 1), "int8"), fake((5, 7), (7, 1), "uint8")
    problem = problem_of(a, b, fake((3, 7), (7, 1), "int32"))
    assert (problem.dtype, problem.b_dtype, problem.out_dtype, problem.accumulator) == (
        "int8",
        "uint8",
        "int32",
        "int32",
    )
    assert problem.element_bytes == (1, 1, 4, 4)
    turned = problem_of(a, b, fake((3, 7), (1, 3), "int32"))
    assert turned.transposed
    assert (turned.dtype, turned.b_dtype) == ("uint8", "int8")


def test_a_math_is_a_type_or_tf32() -> None:
    a, b, d = fake((3, 5), (5, 1)), fake((5, 7), (7, 1)), fake((3, 7), (7, 1))
    assert Problem.of(a, b, None, d).math == "float32"
    assert Problem.of(a, b, None, d, precision="tf32").math == "tf32"
    assert Problem.of(a, b, None, d, precision="tf32") != Problem.of(a, b, None, d)


def test_it_prints_its_types() -> None:
    def words(dtype: str, out: str, **more: str) -> str:
        return str(
            Problem.of(
                fake((3, 5), (5, 1), dtype),
                fake((5, 7), (7, 1), dtype),
                None,
                fake((3, 7), (7, 1), out),
                **more,
            )
        )

    assert "3 x 7 x 5 int8 -> int32, layouts" in words("int8", "int32")
    assert "float32 as tf32, layouts" in words("float32", "float32", precision="tf32")
    assert "float16 (sums in float16), layouts" in words("float16", "float16", accumulator="float16")


def test_it_prints_what_is_asked() -> None:
    problem = problem_of(fake((3, 5), (5, 1)), fake((5, 7), (7, 1)), fake((3, 7), (7, 1)))
    assert "3 x 7 x 5" in str(problem)
    assert "float32" in str(problem)


# ---- pieces that one grid can take ----


def test_batches_beyond_two_dimensions_and_beyond_a_grid_come_in_parts() -> None:
    a = np.empty((2, 1, 3, 4, 5), np.float32)
    b = np.empty((4, 1, 5, 6), np.float32)
    out = np.empty((2, 4, 3, 4, 6), np.float32)
    problem = Problem.of(*(operand_of(x, n) for x, n in ((a, "a"), (b, "b"))), None, operand_of(out, "out"))
    assert problem.batch == (2, 4, 3)
    parts = parts_of(problem)
    assert [part.batch for part, _ in parts] == [(4, 3)] * 2
    assert [skipped for _, skipped in parts] == [(0, 0, 0, 0), (60, 0, 288, 288)]


@pytest.mark.parametrize(
    ("extent", "wanted"),
    [
        (140000, [((4, 35000), 0)]),  # 3 rows leave a rest
        (65537, [((2, 32768), 0), ((1,), 131072)]),  # a prime number
    ],
)
def test_a_long_batch_is_laid_in_rows(extent: int, wanted: list[tuple[tuple[int, ...], int]]) -> None:
    a, b = np.empty((extent, 1, 2), np.float32), np.empty((extent, 2, 1), np.float32)
    out = np.empty((extent, 1, 1), np.float32)
    parts = parts_of(Problem.of(operand_of(a, "a"), operand_of(b, "b"), None, operand_of(out, "out")))
    assert [(part.batch, skipped[0]) for part, skipped in parts] == wanted
    in_row = wanted[0][0][1]
    assert parts[0][0].a.batch_strides == (2 * in_row, 2)


@pytest.mark.parametrize(
    ("batch", "wanted"),
    [
        ((2**31 + 5,), [((32769, 65534), 0), ((1,), 2**31 - 2), ((6,), 2**31 - 1)]),
        ((50000, 60000), [((35791, 60000), 0), ((14209, 60000), 35791 * 60000)]),
    ],
)
def test_a_launch_counts_products_with_32_bits(
    batch: tuple[int, ...], wanted: list[tuple[tuple[int, ...], int]]
) -> None:
    """None of its parts is too large for the planner."""
    inner = contiguous_strides(batch)
    parts = parts_of(dense_problem(1, 1, 1, "float32").with_batch(batch, [inner] * 3))
    assert [(part.batch, skipped[3]) for part, skipped in parts] == wanted
    assert choose(parts[0][0], chip("h200")).kernel.name == "small"


def test_one_of_two_long_dimensions_is_cut() -> None:
    a, b = np.empty((2, 70000, 1, 2), np.float32), np.empty((70000, 2, 1), np.float32)
    out = np.empty((2, 70000, 1, 1), np.float32)
    parts = parts_of(Problem.of(operand_of(a, "a"), operand_of(b, "b"), None, operand_of(out, "out")))
    assert [(part.batch, skipped[0]) for part, skipped in parts] == [((2, 65535), 0), ((2, 4465), 131070)]


def test_a_single_row_or_column_lies_either_way() -> None:
    column = Matrix(5, 1, 7, 3, (), 4)
    assert column.lies("row")
    assert not column.lies("col")
    assert Matrix(1, 5, 7, 3, (), 4).lies("col")
    assert Matrix(0, 5, 7, 3, (), 4).lies("row")
