"""Epilogues as a language: what is traced and printed, what it gives by NumPy, what is refused in which
words."""

from __future__ import annotations

import copy
import linecache
import math
import pickle
from fractions import Fraction
from functools import reduce
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.dtypes import FP8, numpy_dtype
from lapidist.epilogues.erf import erf
from lapidist.epilogues.numeric import evaluate
from lapidist.epilogues.tracing import Epilogue
from lapidist.errors import ArgumentError, DTypeError, RefusalError, ShapeError, StrideError
from lapidist.problems.epilogue_layout import READS

Array = np.ndarray[Any, Any]


def gelu_by_hand(x: Array) -> Array:
    return x * share_below(x)


def share_below(x: Array) -> Array:
    """Of normal numbers."""
    return 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


# ---- what is computed ----


@lapidist.epilogue
def scaled_gelu(acc: Any, bias: lapidist.Row, residual: lapidist.Tile, s: lapidist.Scalar = 2.0) -> Any:
    return lapidist.gelu(acc + bias) * s + residual


@lapidist.epilogue
def all_kinds(
    acc: Any, row: lapidist.Row, column: lapidist.Column, tile: lapidist.Tile, one: lapidist.Scalar
) -> Any:
    return acc + row + 10 * column + 100 * tile + one


BATCH, M, N = (2, 3), 4, 5


def operands(**changed: Any) -> dict[str, Any]:
    return {"row": np.zeros(N), "column": np.zeros(M), "tile": np.zeros((M, N)), "one": 0.0, **changed}


@pytest.mark.parametrize("more", [{}, {"s": 3.0}])
def test_a_product_with_an_epilogue(rng: np.random.Generator, more: dict[str, float]) -> None:
    a, b = rng.standard_normal((3, 5, 6)), rng.standard_normal((6, 7))
    bias, residual = rng.standard_normal(7), rng.standard_normal((5, 7))
    found = lapidist.matmul(a, b, epilogue=scaled_gelu(bias=bias, residual=residual, **more))
    expected = gelu_by_hand(a @ b + bias) * more.get("s", 2.0) + residual
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)


def test_it_comes_after_alpha_and_c(rng: np.random.Generator) -> None:
    a, b, c = rng.standard_normal((3, 4, 4))
    squared = lapidist.epilogue(lambda acc: acc * acc)
    found = lapidist.gemm(a, b, c, alpha=2.0, beta=-1.0, epilogue=squared)
    np.testing.assert_allclose(found, (2 * (a @ b) - c) ** 2)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_sums_of_nothing_pass_through_it(alpha: float) -> None:
    a, b = np.full((3, 0 if alpha else 2), np.nan), np.full((0 if alpha else 2, 2), np.nan)
    found = lapidist.gemm(a, b, alpha=alpha, epilogue=lapidist.epilogue(lambda acc: acc + 7))
    np.testing.assert_array_equal(found, np.full((3, 2), 7.0))


# an operand's shape, and the shape in which NumPy broadcasts it to D
ROWS = [((N,), (N,)), ((1, N), (N,)), ((3, N), (3, 1, N)), ((2, 1, N), (2, 1, 1, N)), ((2, 3, 1, N),) * 2]
COLUMNS = [((M,), (M, 1)), ((M, 1), (M, 1)), ((3, M), (3, M, 1)), ((2, 3, M, 1),) * 2]
TILES = [((M, N),) * 2, ((3, M, N),) * 2, ((2, 1, M, N),) * 2]
ONES: list[Any] = [((), ()), ((1,), ()), ((1, 1, 1), ())]
KINDS = {"row": (ROWS, 1), "column": (COLUMNS, 10), "tile": (TILES, 100), "one": (ONES, 1)}


@pytest.mark.parametrize(
    ("name", "shape", "seen"), [(name, *each) for name, (shapes, _) in KINDS.items() for each in shapes]
)
def test_operands_broadcast_over_batches(
    rng: np.random.Generator, name: str, shape: tuple[int, ...], seen: tuple[int, ...]
) -> None:
    a, b = rng.standard_normal((*BATCH, M, 3)), rng.standard_normal((3, N))
    value = rng.standard_normal(shape)
    given = all_kinds(**operands(**{name: value}))
    expected = a @ b + KINDS[name][1] * np.reshape(value, seen)
    np.testing.assert_allclose(lapidist.matmul(a, b, epilogue=given), expected)


def test_operands_of_vectors(rng: np.random.Generator) -> None:
    a, b = rng.standard_normal(3), rng.standard_normal((3, N))
    row, tile = rng.standard_normal((2, N))
    found = lapidist.matmul(a, b, epilogue=all_kinds(row=row, column=np.ones(1), tile=tile, one=1))
    np.testing.assert_allclose(found, a @ b + row + 10 + 100 * tile + 1)
    found = lapidist.matmul(b, row, epilogue=lapidist.epilogue(lambda acc: acc + 1))
    np.testing.assert_allclose(found, b @ row + 1)


@pytest.mark.parametrize("dtype", [name for name in READS if name not in FP8])
def test_operands_of_any_real_type_and_stride(rng: np.random.Generator, dtype: str) -> None:
    a, b = rng.standard_normal((M, 3)), rng.standard_normal((3, N))
    tile = rng.integers(0, 2, (2 * N, M)).astype(numpy_dtype(dtype))[::-2].T
    found = lapidist.matmul(a, b, epilogue=all_kinds(**operands(tile=tile)))
    np.testing.assert_allclose(found, a @ b + 100 * tile.astype(float))


def test_scattered_rows_take_operands_where_they_go(rng: np.random.Generator) -> None:
    a, b, out = rng.standard_normal((3, 2)), rng.standard_normal((2, N)), np.zeros((6, N))
    to, column, tile = np.array([4, 0, 5]), rng.standard_normal(6), rng.standard_normal((6, N))
    given = all_kinds(**operands(column=column, tile=tile))
    lapidist.gemm(a, b, out=out, scatter_d=to, epilogue=given)
    np.testing.assert_allclose(out[to], a @ b + 10 * column[to, None] + 100 * tile[to])


def test_a_permuted_output_takes_operands_of_the_product(rng: np.random.Generator) -> None:
    a, b, out = rng.standard_normal((M, 2)), rng.standard_normal((2, N + 1)), np.zeros((2, 2, 3, 2))
    tile = rng.standard_normal((M, N + 1))
    given = all_kinds(**operands(tile=tile, row=np.zeros(N + 1)))
    lapidist.gemm(a, b, out=out, permuted=True, epilogue=given)
    np.testing.assert_allclose(out.reshape(M, N + 1), a @ b + 100 * tile)


def test_a_plan_keeps_its_epilogue(rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((4, 2)), rng.standard_normal((2, 6))
    planned = lapidist.plan(a, b, epilogue=lapidist.epilogue(lambda acc: lapidist.relu(acc)))
    np.testing.assert_allclose(planned.execute(-a, b), np.maximum(-a @ b, 0))


# ---- the functions ----

FUNCTIONS = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf),
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "absolute": np.abs,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": gelu_by_hand,
    "gelu_slope": lambda x: share_below(x) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi),
}


def applied(function: Any, x: Array) -> Array:
    return evaluate(lapidist.epilogue(lambda acc: function(acc)).function, x, {})[0]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_what_they_are_called(name: str) -> None:
    x = np.linspace(-9, 9, 4001)
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = FUNCTIONS[name](x)
    np.testing.assert_allclose(applied(getattr(lapidist, name), x), expected, rtol=1e-12, atol=1e-13)


def test_gelu_by_tanh_is_near_the_other_one() -> None:
    x = np.linspace(-9, 9, 4001)
    off = applied(lambda acc: lapidist.gelu(acc, approximate="tanh"), x) - gelu_by_hand(x)
    assert 1e-5 < np.abs(off).max() < 1e-3


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelus_slope_is_its_derivative(approximate: Any) -> None:
    x, step = np.linspace(-9, 9, 4001), 1e-5

    def value(x: Any) -> Any:
        return lapidist.gelu(x, approximate=approximate)

    rise = applied(value, x + step) - applied(value, x - step)
    slope = applied(lambda x: lapidist.gelu_slope(x, approximate=approximate), x)
    np.testing.assert_allclose(slope, rise / (2 * step), atol=1e-9)


def test_gelus_slope_at_the_ends() -> None:
    ends = np.array([-np.inf, -1e30, -0.0, 0.0, 1e30, np.inf, np.nan])
    for dtype in (np.float32, np.float64):
        found = applied(lapidist.gelu_slope, ends.astype(dtype))
        np.testing.assert_array_equal(found, [0, 0, 0.5, 0.5, 1, 1, np.nan])


def test_erf_is_right_to_the_last_places() -> None:
    x = np.concatenate([np.linspace(-7, 7, 20001), [1e-300, -0.0, np.inf, -np.inf, np.nan, 5.96875]])
    expected = np.array([math.erf(each) for each in x])
    np.testing.assert_allclose(erf(x), expected, rtol=5e-16, atol=0)
    assert np.signbit(erf(np.array([-0.0])))[0]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_casts_round_as_an_array_would(rng: np.random.Generator, dtype: str) -> None:
    x = rng.standard_normal(1000)
    expected = x.astype(numpy_dtype(dtype)).astype(float)
    np.testing.assert_array_equal(applied(lambda acc: lapidist.cast(acc, dtype), x), expected)


def test_choices_and_conditions() -> None:
    x = np.array([-2.0, -0.5, 0.0, 0.5, 2.0, np.nan])
    equal = np.testing.assert_array_equal
    band = applied(lambda acc: lapidist.where((acc > -1) & (acc <= 0.5), acc, 9.0), x)
    equal(band, [9, -0.5, 0, 0.5, 9, 9])
    equal(applied(lambda acc: ~(acc < 0) | (acc == -2), x), [1, 0, 1, 1, 1, 1])
    equal(applied(lambda acc: lapidist.clamp(acc, -1, 1), x), [-1, -0.5, 0, 0.5, 1, np.nan])
    equal(applied(lambda acc: acc * (acc != 0.5), x), [-2, -0.5, 0, 0, 2, np.nan])


def test_numpys_functions_are_traced_too() -> None:
    x = np.linspace(0.5, 2, 9)
    found = applied(lambda acc: np.maximum(np.exp(acc), np.float64(3)) * np.greater(acc, 1) - np.sqrt(acc), x)
    np.testing.assert_allclose(found, np.maximum(np.exp(x), 3) * (x > 1) - np.sqrt(x))


# ---- tracing ----


def test_what_is_traced_prints_and_is_equal_where_it_computes_the_same() -> None:
    def first(acc: Any, bias: lapidist.Row) -> Any:
        x = acc + bias
        unused = lapidist.exp(x)
        return x * x + 0 * abs(x) if unused is not None else x

    function = lapidist.epilogue(first).function
    assert str(function) == "first: v2 = acc + bias; v2 * v2 + 0 * absolute(v2)"
    again = lapidist.epilogue(first).function
    assert again == function
    assert hash(again) == hash(function)


def times(factor: float) -> Epilogue:
    return lapidist.epilogue(lambda acc: acc * factor)


def test_captured_numbers_are_a_part_of_it() -> None:
    assert times(2.0).function == times(2.0).function
    assert times(2.0).function != times(3.0).function
    assert times(0.0).function != times(-0.0).function


def test_numbers_of_any_real_type_are_numbers() -> None:
    for dtype in READS:
        expected = "acc * 1" if dtype == "bool" else "acc * 2"
        assert str(times(numpy_dtype(dtype).type(2))) == expected
    assert str(lapidist.epilogue(lambda acc: acc * np.array(2.0))) == "acc * 2"


def test_what_does_not_change_may_be_captured() -> None:
    half, dtype, names = Fraction(1, 2), np.dtype("float16"), ((1, 2), frozenset((3,)), range(4))
    captured = lapidist.epilogue(lambda acc: lapidist.cast(acc * half, dtype) + names[0][1])
    assert str(captured) == "cast(acc * 0.5, 'float16') + 2"


@pytest.mark.parametrize("power", [3, 3.0, np.int64(3)])
def test_powers(power: Any) -> None:
    assert str(lapidist.epilogue(lambda acc: acc**power)) == "(acc * acc) * acc"


def test_a_long_function_prints() -> None:
    """Each step in turn: to look for its brackets in all text before it would take minutes."""
    long = lapidist.epilogue(lambda acc: reduce(lambda x, i: x * 2 + i, range(3000), acc))
    assert "(((acc * 2 + 0) * 2) + 1) * 2" in str(long)
    assert str(long).count("(") == 2 * 2999


def test_an_epilogue_is_pickled_by_name_and_its_function_by_steps() -> None:
    assert pickle.loads(pickle.dumps(scaled_gelu)) is scaled_gelu
    assert copy.deepcopy(scaled_gelu) is scaled_gelu
    given = scaled_gelu(bias=np.ones(2), residual=np.ones((2, 2)))
    assert hash(given.function)
    again = pickle.loads(pickle.dumps(given))
    assert "_hash" not in vars(again.function)  # another process has other hashes of strings
    assert again.function == given.function


def test_an_operand_may_have_any_name() -> None:
    names: dict[str, Any] = {"lapidist": lapidist}
    exec("def f(acc, self: lapidist.Row): return acc + self", names)
    found = lapidist.matmul(np.eye(2), np.eye(2), epilogue=lapidist.epilogue(names["f"])(self=np.ones(2)))
    np.testing.assert_array_equal(found, np.eye(2) + 1)


def test_one_inside_of_another() -> None:
    @lapidist.epilogue
    def plus(acc: Any, bias: lapidist.Row) -> Any:
        return acc + bias

    @lapidist.epilogue
    def both(acc: Any, bias: lapidist.Row) -> Any:
        return lapidist.relu(plus(acc, bias=bias))

    assert str(both.function) == "both: maximum(acc + bias, 0)"
    assert str(lapidist.epilogue(lambda acc: plus(acc=acc, bias=2.0))) == "acc + 2"


UNTRACEABLE = {
    "if acc > 0: acc = -acc": "lapidist.where",
    "acc = max(acc, 0)": "lapidist.where",
    "import math; acc = math.exp(acc)": "functions of lapidist",
    "acc = np.sin(acc)": "numpy.sin",
    "acc = np.where(acc > 0, acc, 0)": "numpy.where",
    "acc = np.clip(acc, 0, 1)": "numpy.clip",
    "acc = np.array([acc])": "an array of it",
    "acc = acc[0]": "one element",
    "acc = [each for each in acc]": "one element",
    "acc = acc @ acc": "TypeError",
    "acc = acc + table[1]": "table, a list",
    "acc = acc + values": "values, a ndarray",
    "acc = acc ** 2.5": "Powers",
    "acc = acc ** acc": "Powers",
    "acc = 2 ** acc": "Powers",
    "acc = acc + 'x'": "got str",
    "acc = acc * np.complex64(1j)": "got complex64",
    "acc = acc * np.array(1j)": "got ndarray",
    "acc = acc + np.str_('1')": "got str_",
    "acc = helper(acc)": "table, a list",
    "acc = (lambda x: x * table[0])(acc)": "table, a list",
    "acc = sum([acc * table[i] for i in range(2)])": "table, a list",
}


def written(tmp_path: Path, body: str) -> FunctionType:
    """A function of a file, as a caller's are: errors quote its lines."""
    path = tmp_path / "written.py"
    path.write_text(
        f"def f(acc):\n    {body}\n    return acc\n\n\ndef helper(acc):\n    return acc + table[0]\n"
    )
    linecache.clearcache()
    names: dict[str, Any] = {"__name__": "written", "np": np, "table": [1, 2], "values": np.ones(3)}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names["f"]


@pytest.mark.parametrize("body", UNTRACEABLE)
def test_what_cannot_be_traced_is_an_error_with_its_line(tmp_path: Path, body: str) -> None:
    function = written(tmp_path, body)
    with pytest.raises(ArgumentError, match=r"written.py:\d") as caught:
        lapidist.epilogue(function)
    assert UNTRACEABLE[body] in str(caught.value)
    assert str(caught.value).startswith("f: must")


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ("None", "got None"),
        ("()", "must return what is stored"),
        ("(acc, None)", "must return what is stored"),
        ("(acc, (acc, acc))", "2 in a tuple"),
        ("{'D': acc}", "1 in a dict"),
    ],
)
def test_values_are_returned(tmp_path: Path, result: str, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        lapidist.epilogue(written(tmp_path, f"return {result}"))


def test_functions_that_are_no_epilogues() -> None:
    def bare(acc: Any, bias) -> Any:  # type: ignore[no-untyped-def]
        return acc + bias

    def defaulted(acc: Any, bias: lapidist.Row = 1) -> Any:  # type: ignore[assignment]
        return acc + bias

    def sumless(bias: lapidist.Row) -> Any:
        return lapidist.relu(bias)

    def by_place(acc: Any, bias: lapidist.Row, /) -> Any:
        return acc + bias

    def any_number(acc: Any, *biases: lapidist.Row) -> Any:
        return acc

    with pytest.raises(ArgumentError, match="bias is not"):
        lapidist.epilogue(bare)
    for function in (by_place, any_number):
        with pytest.raises(ArgumentError, match=r"operands are passed by name; .*bias.* cannot be"):
            lapidist.epilogue(function)
    with pytest.raises(ArgumentError, match="Scalar alone may have a default"):
        lapidist.epilogue(defaulted)
    with pytest.raises(ArgumentError, match="the first parameter is the sum; bias is annotated as a Row"):
        lapidist.epilogue(sumless)
    with pytest.raises(ArgumentError, match="must take the sum"):
        lapidist.epilogue(lambda: 1)
    with pytest.raises(ArgumentError, match="must be a Python function; got int"):
        lapidist.epilogue(3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"belongs into a function.*got 1.0, at .*test_language.py:\d"):
        lapidist.exp(1.0)
    with pytest.raises(DTypeError, match="got int8"):
        lapidist.epilogue(lambda acc: lapidist.cast(acc, "int8"))


# ---- calls that do not fit ----

A, B = np.ones((M, 3), np.float32), np.ones((3, N), np.float32)
WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"row": np.zeros(M)}, ShapeError, "row: must have a value for each column of D"),
    ({"column": np.zeros(N)}, ShapeError, "column: must have a value for each row of D"),
    ({"tile": np.zeros((N, M))}, ShapeError, "tile: must have a value for each element of D"),
    ({"tile": np.zeros((2, M, N))}, ShapeError, "tile: must"),
    ({"one": np.zeros(2)}, ShapeError, "one: must be a number or an array of one element"),
    ({"one": "x"}, ArgumentError, "one: must be a real number"),
    ({"row": 1.0}, DTypeError, "row: must be an array"),
    ({"row": np.zeros(N, complex)}, DTypeError, "row: must be of float64"),
    ({"row": None}, ArgumentError, "must have a value for row"),
    ({"more": 1.0}, ArgumentError, "must have operands row, column, tile, one; got 'more'"),
]


OUTSIDE = {
    "relu": lapidist.relu,
    "clamp": lambda x: lapidist.clamp(x, 0.0, 1.0),
    "silu": lapidist.silu,
    "gelu": lambda x: lapidist.gelu(x, "tanh"),
    "gelu_slope": lambda x: lapidist.gelu_slope(x, "tanh"),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_compound_functions_are_refused_outside_by_their_own_names(name: str) -> None:
    with pytest.raises(
        ArgumentError, match=rf"^lapidist\.{name}: belongs into a function .* shape \(3,\), at"
    ):
        OUTSIDE[name](np.ones(3))


@pytest.mark.parametrize(("change", "error", "words"), WRONG)
def test_operands_that_do_not_fit(change: dict[str, Any], error: type[Exception], words: str) -> None:
    out = np.full((M, N), 7.0, np.float32)
    with pytest.raises(error, match=words):
        lapidist.matmul(A, B, out, epilogue=all_kinds(**operands(**change)))
    np.testing.assert_array_equal(out, 7.0)


def test_operands_are_named() -> None:
    with pytest.raises(ArgumentError, match="must be named, as row=, column=, tile=, one="):
        all_kinds(np.zeros(N))
    with pytest.raises(ArgumentError, match="must have a value for tile"):
        all_kinds(row=1, column=1, one=1)


def test_operands_lie_beside_the_output() -> None:
    out = np.zeros((M, N), np.float32)
    with pytest.raises(StrideError, match="out: must not overlap tile"):
        lapidist.matmul(A, B, out, epilogue=all_kinds(**operands(tile=out)))


def test_what_has_no_epilogue() -> None:
    plus = lapidist.epilogue(lambda acc: acc + 1)
    with pytest.raises(DTypeError, match="must follow sums of floats; a is int8"):
        lapidist.matmul(A.astype(np.int8), B.astype(np.int8), epilogue=plus)
    with pytest.raises(DTypeError, match="must be that of a, float32; got float64"):
        lapidist.matmul(A, B.astype(np.float64), epilogue=plus)
    with pytest.raises(ArgumentError, match=r"epilogue: must be a function of @lapidist\.epilogue"):
        lapidist.matmul(A, B, epilogue=lambda acc: acc)
    with pytest.raises(ArgumentError, match="must have a value for row"):
        lapidist.matmul(A, B, epilogue=all_kinds)
    with pytest.raises(
        RefusalError, match=r"it stores sums as they are; here they are <lambda>\(sum\) first"
    ):
        lapidist.gemm(A, B, epilogue=plus, kernel="shared_tile", device="machine")
