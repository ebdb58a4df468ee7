"""Host arrays as NumPy's users know them: every type, mixed types, lists, subclasses, scalars, any `out`."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lapidist

Array = np.ndarray[Any, Any]
ONLY_NUMPYS = "?hilqHILQgFDGO"  # NumPy's letters for what no kernel multiplies


class Named(np.ndarray[Any, Any]):
    """A subclass that NumPy asks."""


def numbers(shape: tuple[int, ...], dtype: Any = "float64") -> Array:
    return (np.arange(np.prod(shape)).reshape(shape) % 7).astype(dtype)


def same(result: Any, expected: Any) -> None:
    assert type(result) is type(expected)
    assert np.asarray(result).dtype == np.asarray(expected).dtype
    np.testing.assert_array_equal(result, expected)


# ---- types ----


@pytest.mark.parametrize("device", [None, "host", "cpu"])
@pytest.mark.parametrize("letter", ONLY_NUMPYS)
def test_types_that_only_numpy_multiplies(letter: str, device: str | None) -> None:
    a, b = numbers((2, 3, 4), letter), numbers((4, 5), letter)
    same(lapidist.matmul(a, b, device=device), np.matmul(a, b))
    same(lapidist.matmul(a[0, 0], b, device=device), np.matmul(a[0, 0], b))
    same(lapidist.matmul(a[..., ::2], b[::-2], device=device), np.matmul(a[..., ::2], b[::-2]))


@pytest.mark.parametrize("letter", ONLY_NUMPYS)
def test_gemm_in_types_that_only_numpy_multiplies(letter: str) -> None:
    a, b, c = numbers((4, 3), letter), numbers((4, 5), letter), numbers((3, 5), letter)
    alpha, beta = (1, 1) if letter == "?" else (3, 2)
    expected = (a.T @ b) | c if letter == "?" else alpha * (a.T @ b) + beta * c
    same(lapidist.gemm(a, b, c, alpha=alpha, beta=beta, trans_a=True), expected.astype(letter))
    plan = lapidist.plan(a.T, b)
    same(plan.execute(a.T, b), np.matmul(a.T, b))
    same(lapidist.gemm([a.T], [b])[0], np.matmul(a.T, b))


def test_products_of_int32_are_exact() -> None:
    """BLAS' float64 holds sums of 8 bits only."""
    a, b = np.full((1, 3), 2**31 - 1, np.int32), np.full((3, 1), 2**31 - 1, np.int32)
    same(lapidist.matmul(a, b), np.matmul(a, b))


def test_alpha_of_integers_is_a_whole_number_that_a_float_tells_apart() -> None:
    a = np.ones((1, 1), np.int64)
    assert lapidist.gemm(a, a, alpha=2**53)[0, 0] == 2**53
    for dtype, alpha, rule in (
        ("i8", 2**53 + 2, "-9.* to 9007199254740992"),
        ("u2", -1, "0 to 65535"),
        ("?", 2, "0 to 1"),
    ):
        with pytest.raises(
            lapidist.ArgumentError, match=f"alpha: must be a whole number from {rule} for integers"
        ):
            lapidist.gemm(a.astype(dtype), a.astype(dtype), alpha=alpha)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("f4", "f8"),
        ("f2", "f4"),
        ("i4", "f4"),
        ("i1", "i2"),
        ("u8", "i8"),
        ("i1", "f2"),
        ("?", "f4"),
        ("F", "f8"),
        ("O", "f4"),
    ],
)
def test_two_types_are_multiplied_in_the_one_that_numpy_finds(left: str, right: str) -> None:
    a, b = numbers((3, 4), left), numbers((4, 2), right)
    same(lapidist.matmul(a, b), np.matmul(a, b))
    same(lapidist.gemm(b, a, trans_a=True, trans_b=True), np.matmul(b.T, a.T))


def test_bfloat16_with_float32_is_float32() -> None:
    a, b = numbers((3, 4), ml_dtypes.bfloat16), numbers((4, 2), "f4")
    same(lapidist.matmul(a, b), np.matmul(a.astype("f4"), b))


@pytest.mark.parametrize(("other", "common"), [("f2", "f4"), ("i2", "f4"), ("i4", "f8")])
def test_bfloat16_with_a_type_that_does_not_hold_it_is_wider_than_both(other: str, common: str) -> None:
    """By any ml_dtypes: before 0.7 it had no type for the two."""
    a, b = numbers((3, 4), ml_dtypes.bfloat16), numbers((4, 2), other)
    same(lapidist.matmul(a, b), np.matmul(a.astype(common), b.astype(common)))


@pytest.mark.parametrize("device", [None, "machine"])
def test_bytes_in_another_order_and_parts_of_records(device: str | None) -> None:
    a, b = numbers((3, 4), "f4"), numbers((4, 2), "f4")
    records = np.zeros((3, 4), np.dtype([("x", "f4"), ("y", "i2")]))
    records["x"] = a
    expected = np.matmul(a, b)
    same(lapidist.matmul(a.astype(">f4"), b, device=device), expected)
    same(lapidist.matmul(records["x"], b, device=device), expected)
    same(lapidist.gemm(a, b, expected.astype(">f4"), beta=1, device=device), 2 * expected)


@pytest.mark.parametrize("dtype", ["g", "F", "D", "G", "i8"])
def test_swapped_bytes_of_what_only_numpy_multiplies(dtype: str) -> None:
    a, b = numbers((3, 4), dtype), numbers((4, 2), dtype)
    same(lapidist.matmul(a.astype(a.dtype.newbyteorder()), b), np.matmul(a, b))


def scattered(rng: np.random.Generator, array: Array) -> Array:
    """The same numbers in memory of another kind: every other one, backwards, by columns, swapped, between
    elements.
    """
    if array.dtype != object and rng.random() < 0.3:
        array = array.astype(array.dtype.newbyteorder())
    kind = rng.integers(5)
    if kind == 0 and array.ndim:
        apart = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)[..., ::2]
    elif kind == 1 and array.dtype != object:
        apart = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    else:
        return [array, array[..., ::-1] if array.ndim else array, np.array(array, order="F")][kind - 2]
    apart[...] = array
    return apart


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 2**32))
def test_any_two_arrays_are_multiplied_as_numpy_does(seed: int) -> None:
    """Small whole numbers, whose products are exact: whatever NumPy multiplies or refuses."""
    rng = np.random.default_rng(seed)
    (m, n, k), batch = rng.integers(0, 5, 3), tuple(rng.integers(1, 3, rng.integers(0, 3)))
    left = (*batch[rng.integers(0, len(batch) + 1) :], m, k) if rng.random() < 0.8 else (k,)
    right = (
        (*batch[rng.integers(0, len(batch) + 1) :], k + (rng.random() < 0.1), n)
        if rng.random() < 0.8
        else (k,)
    )
    a, b, o = (rng.choice(list("efd" + ONLY_NUMPYS.replace("q", "").replace("Q", ""))) for _ in range(3))
    first, second = (
        scattered(rng, rng.integers(0, 4, shape).astype(letter)) for shape, letter in ((left, a), (right, b))
    )
    try:
        expected = np.matmul(first, second)
    except ValueError:
        with pytest.raises(lapidist.ShapeError):
            lapidist.matmul(first, second)
        return
    same(lapidist.matmul(first, second), expected)
    out = scattered(rng, np.zeros(np.shape(expected), o))
    if np.can_cast(np.result_type(first, second), o, "same_kind"):
        assert lapidist.matmul(first, second, out) is out
        np.testing.assert_array_equal(out, np.asarray(expected).astype(o))
    else:
        with pytest.raises(lapidist.DTypeError, match="out: element type must be"):
            lapidist.matmul(first, second, out)


# ---- lists, scalars, subclasses ----


def test_lists_are_arrays() -> None:
    same(lapidist.matmul([[1.0, 2.0]], [[3.0], [4.0]]), np.array([[11.0]]))
    same(lapidist.matmul([1, 2], (3, 4)), np.int64(11))
    same(
        lapidist.matmul(numbers((2, 3), "f4"), numbers((3, 2), "f4").tolist()),
        np.matmul(numbers((2, 3)), numbers((3, 2))),
    )


@pytest.mark.parametrize(
    ("dtype", "device"),
    [*((dtype, None) for dtype in ("f2", "f4", "f8", "i1", "i8", "O")), ("f4", "machine"), ("i1", "machine")],
)
def test_vector_by_vector_is_a_scalar(dtype: str, device: str | None) -> None:
    a = numbers((5,), dtype)
    wide = np.int32 if dtype == "i1" else dtype
    same(lapidist.matmul(a, a, device=device), np.matmul(a, a, dtype=wide))
    out = np.zeros((), wide)
    assert lapidist.matmul(a, a, out, device=device) is out


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "F"])
def test_subclasses_come_out_as_numpy_has_them(dtype: str) -> None:
    a, b = numbers((3, 4), dtype), numbers((4, 2), dtype)
    for left, right in (
        (a.view(Named), b),
        (a, b.view(Named)),
        (a[0].view(Named), b),
        (a[0].view(Named), b[:, 0]),
    ):
        same(lapidist.matmul(left, right), np.matmul(left, right))


def test_subclasses_of_small_integers_are_multiplied_in_our_types() -> None:
    a, b = numbers((3, 4), "i1").view(Named), numbers((4, 2), "i1")
    same(lapidist.matmul(a, b), np.matmul(a, b, dtype="i4"))


def test_a_class_of_its_own_takes_over() -> None:
    class Taker:
        def __array_ufunc__(
            self, function: Callable[..., Any], method: str, *inputs: Any, **more: Any
        ) -> str:
            return f"{function.__name__} of {len(inputs)}"

    assert lapidist.matmul(np.ones((2, 2)), Taker()) == "matmul of 2"


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_class_that_forbids_numpys_functions_is_named(name: str) -> None:
    class Apart(np.ndarray):
        __array_ufunc__ = None

    given = {"a": np.ones((2, 2)), "b": np.ones((2, 2))}
    given[name] = given[name].view(Apart)
    with pytest.raises(lapidist.DTypeError, match=f"{name}: .* Apart forbids them .* numpy.asarray"):
        lapidist.matmul(given["a"], given["b"])


def test_what_wraps_results_wraps_them() -> None:
    class Wrapper:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
            return numbers((2, 2))

        def __array_wrap__(
            self, result: Array, context: Any = None, return_scalar: bool = False
        ) -> tuple[str, Array]:
            return "wrapped", result

    word, result = lapidist.matmul(Wrapper(), numbers((2, 3)))
    assert word == "wrapped"
    same(result, np.matmul(numbers((2, 2)), numbers((2, 3))))


# ---- out ----

OUTS: dict[str, Callable[[type], Array]] = {
    "innermost batch": lambda dtype: np.zeros((2, 3, 4), dtype)[..., 0],
    "columns backwards": lambda dtype: np.zeros((2, 3), dtype)[:, ::-1],
    "spread": lambda dtype: np.zeros((6, 9), dtype)[::3, ::3],
    "swapped bytes": lambda dtype: np.zeros((2, 3), np.dtype(dtype).newbyteorder()),
    "of records": lambda dtype: np.zeros((2, 3), np.dtype([("x", dtype), ("y", "i2")]))["x"],
    "by position": lambda dtype: np.zeros((2, 3), dtype),
}


@pytest.mark.parametrize("device", [None, "machine"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
@pytest.mark.parametrize("case", OUTS)
def test_out_may_be_anything_that_numpy_writes(case: str, dtype: type, device: str | None) -> None:
    a, b, out = numbers((2, 4), "f4"), numbers((4, 3), "f4"), OUTS[case](dtype)
    assert lapidist.matmul(a, b, out, device=device) is out
    np.testing.assert_array_equal(out, np.matmul(a, b))
    assert lapidist.gemm(a, b, out=out, alpha=2, device=device) is out
    np.testing.assert_array_equal(out, 2 * np.matmul(a, b))


@pytest.mark.parametrize("device", [None, "machine"])
def test_rows_may_be_scattered_over_any_strides(device: str | None) -> None:
    a, b, out = numbers((3, 4), "f4"), numbers((4, 2), "f4"), np.full((5, 2, 2), 7, "f4")[..., 0]
    lapidist.gemm(a, b, out, beta=1, scatter_d=np.array([4, 0, 2]), out=out, device=device)
    np.testing.assert_array_equal(out[[4, 0, 2]], a @ b + 7)
    np.testing.assert_array_equal(out[[1, 3]], 7)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.float32])
def test_no_real_output_takes_complex_results(dtype: Any) -> None:
    """ml_dtypes' casts would drop the imaginary parts without a word."""
    a, out = numbers((2, 2), "complex128"), np.zeros((2, 2), dtype)
    with pytest.raises(lapidist.DTypeError, match="out: element type must be complex128"):
        lapidist.matmul(a, a, out)


@pytest.mark.parametrize("device", [None, "machine"])
def test_a_result_beyond_all_memory_is_refused(device: str | None) -> None:
    column = np.broadcast_to(np.float32(1), (2**40, 1))
    with pytest.raises(lapidist.ShapeError, match=r"out: must have at most 2\^63 - 1 bytes; .*fewer rows"):
        lapidist.matmul(column, column.T, device=device)


def test_a_narrower_float_may_be_the_output() -> None:
    a, out = numbers((3, 3)), np.zeros((3, 3), "f4")
    assert lapidist.matmul(a, a, out=out) is out
    np.testing.assert_array_equal(out, a @ a)


@pytest.mark.parametrize("device", [None, "machine"])
def test_out_may_overlap_an_operand_of_matmul(device: str | None) -> None:
    a = numbers((4, 4), "f4")
    expected = a @ a
    assert lapidist.matmul(a, a, out=a, device=device) is a
    np.testing.assert_array_equal(a, expected)


def test_what_was_planned_for_an_output_is_not_used_beside_it() -> None:
    """The rows of out lie further apart than those of what is copied to it."""
    a, base = numbers((4, 4), "f4"), np.zeros((4, 9), "f4")
    for _ in range(2):
        for right in (a, base[:, 4:8]):
            base[:, :4], base[:, 4:8] = 0, a
            expected = a @ right
            out = base[:, :4] if right is a else base[:, 3:7]
            lapidist.matmul(a, right, out, device="machine")
            np.testing.assert_array_equal(out, expected)


def test_batches_may_have_more_dimensions_than_numpy_broadcasts() -> None:
    """numpy.broadcast_shapes stops at 32."""
    a, b = numbers((2, *(1,) * 60, 2, 3), "f4"), numbers((*(1,) * 40, 3, 2), "f4")
    expected = np.matmul(a, b)
    same(lapidist.matmul(a, b), expected)
    same(lapidist.matmul(a, b, np.zeros_like(expected)), expected)
    same(lapidist.gemm(a, b, alpha=0), np.zeros_like(expected))
    to, out, skip = np.array([2, 0]), np.zeros((*expected.shape[:-2], 3, 2), "f4"), np.ones((3, 2), "f4")
    given = lapidist.epilogues.residual(residual=skip)
    same(lapidist.gemm(a, b, out=out, scatter_d=to, epilogue=given)[..., to, :], expected + 1)


def test_what_numpy_does_at_once_is_checked_all_the_same() -> None:
    a = numbers((3, 3))
    same(lapidist.matmul(a, a), np.matmul(a, a))
    for wrong in ((a, numbers((4, 3))), (a, a, np.zeros((2, 3))), (a, np.array(1.0))):
        with pytest.raises(lapidist.ShapeError):
            lapidist.matmul(*wrong)
    with pytest.raises(lapidist.ArgumentError, match="stream: must be"):
        lapidist.matmul(a, a, stream="first")


# ---- alpha and beta ----


@pytest.mark.parametrize(
    "two", [2, 2.0, Fraction(2), np.int8(2), np.float16(2), np.array(2), np.array(2.0), np.longdouble(2)]
)
def test_alpha_is_any_real_number(two: Any) -> None:
    a, c = numbers((3, 3), "f4"), numbers((3, 3), "f4")
    expected = 2 * (a @ a) + 2 * c
    same(lapidist.gemm(a, a, c, alpha=two, beta=two), expected)
    same(lapidist.gemm(a, a, c, alpha=two, beta=two, device="machine"), expected)
    same(lapidist.gemm(a, a, alpha=ml_dtypes.bfloat16(2), beta=np.array(0)), 2 * (a @ a))


def test_an_array_for_alpha_is_read_when_a_plan_runs() -> None:
    a, alpha = numbers((3, 3), "f4"), np.array(2)
    plan = lapidist.plan(a, a, alpha=alpha)
    alpha[...] = 3
    np.testing.assert_array_equal(plan.execute(a, a), 3 * (a @ a))
    whole = numbers((3, 3), "i8")
    same(lapidist.gemm(whole, whole, alpha=np.array([2])), 2 * (whole @ whole))


@pytest.mark.parametrize("device", [None, "machine"])
def test_a_number_that_rounds_to_zero_reads_nothing(device: str | None) -> None:
    """1e-46 is zero in float32."""
    a, nothing = numbers((3, 3), "f4"), np.full((3, 3), np.nan, "f4")
    np.testing.assert_array_equal(lapidist.gemm(a, a, nothing, beta=1e-46, device=device), a @ a)
    np.testing.assert_array_equal(lapidist.gemm(nothing, nothing, a, alpha=1e-46, beta=1, device=device), a)
