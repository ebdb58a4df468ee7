"""Bad input: each message names argument, rule, value and way out; nothing is written, nothing is
launched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lapidist
from lapidist.calls import argument_rules
from lapidist.errors import ArgumentError, DTypeError, LapidistError, RefusalError, ShapeError, StrideError
from lapidist.frameworks.arrays import HOST, Operand
from typed import ones, operand_on_gpu

F32 = np.float32


BASE = ones(40, 40)
READ_ONLY = ones(4, 5)
SWAPPED = np.ones((4, 5), ">f4")
READ_ONLY.flags.writeable = SWAPPED.flags.writeable = False

# what is called, the error, and the words that say argument, rule, value, way out
REFUSED: dict[str, tuple[Callable[[], Any], type[LapidistError], str]] = {
    "inner extents": (
        lambda: lapidist.matmul(ones(4, 6), ones(7, 5)),
        ShapeError,
        (
            r"b: must have as many rows as a has columns; a is \(4, 6\) \(k = 6\), b is \(7, 5\) \(k = 7\)\."
            r" Transpose .*\.T"
        ),
    ),
    "inner extents after transposing": (
        lambda: lapidist.gemm(ones(4, 6), ones(6, 5), trans_b=True),
        ShapeError,
        (
            r"b: must have as many rows as a has columns; a is \(4, 6\) \(k = 6\), b is \(6, 5\), transposed"
            r" \(k = 5\)\. Transpose .*trans_b"
        ),
    ),
    "batches": (
        lambda: lapidist.matmul(ones(2, 4, 6), ones(3, 6, 5)),
        ShapeError,
        (
            r"b: batch dimensions must broadcast with those of a; a has \(2,\), b has \(3,\)\. Make each pair"
            r" equal"
        ),
    ),
    "vector to gemm": (
        lambda: lapidist.gemm(ones(6), ones(6, 5)),
        ShapeError,
        r"a: must have at least 2 dimensions; got shape \(6,\)\. .*call matmul",
    ),
    "vector b to gemm": (
        lambda: lapidist.gemm(ones(5, 6), ones(6)),
        ShapeError,
        r"b: must have at least 2 dimensions; got shape \(6,\)",
    ),
    "scalar array": (
        lambda: lapidist.matmul(np.array(1.0, F32), ones(6, 5)),
        ShapeError,
        r"a: must have at least 1 dimension; got an array without any\. Multiply by a scalar with \*",
    ),
    "c that does not broadcast": (
        lambda: lapidist.gemm(ones(4, 6), ones(6, 5), ones(3, 5), beta=1),
        ShapeError,
        r"c: must broadcast to the output's shape \(4, 5\); got \(3, 5\)\. Reshape it or slice it",
    ),
    "c with too many dimensions": (
        lambda: lapidist.gemm(ones(4, 6), ones(6, 5), ones(1, 4, 5), beta=1),
        ShapeError,
        r"c: must broadcast to the output's shape \(4, 5\); got \(1, 4, 5\)",
    ),
    "shape of out": (
        lambda: lapidist.matmul(ones(4, 6), ones(6, 5), out=ones(5, 4)),
        ShapeError,
        r"out: must have shape \(4, 5\); got \(5, 4\)\. Pass one of that shape, or None",
    ),
    "element type": (
        lambda: lapidist.matmul(ones(4, 6, dtype="int32"), ones(6, 5, dtype="int32"), device="machine"),
        DTypeError,
        (
            r"a: element type must be one of float16, .*float8_e5m2; got int32\. Convert it first; NumPy .*,"
            r" without device="
        ),
    ),
    "element type that NumPy does not multiply": (
        lambda: lapidist.matmul(ones(4, 6), np.ones((6, 5), "m8[s]")),
        DTypeError,
        r"b: element type must be one of float16, .*float8_e5m2; got timedelta64\[s\]\. Convert it first$",
    ),
    "complex": (
        lambda: lapidist.matmul(
            ones(4, 6, dtype="complex64"), ones(6, 5, dtype="float16"), device="machine", promote=True
        ),
        DTypeError,
        r"promote: is for floats of 8 and 16 bits summed in float32; a is complex64",
    ),
    "two element types": (
        lambda: lapidist.matmul(ones(4, 6), ones(6, 5, dtype="float64"), device="machine"),
        DTypeError,
        (
            r"b: element type must be that of a, float32; got float64\. .*Convert a to float64, which keeps"
            r" every number"
        ),
    ),
    "element type of c": (
        lambda: lapidist.gemm(ones(4, 6), ones(6, 5), ones(4, 5, dtype="float16"), beta=1),
        DTypeError,
        r"c: element type must be that of the output, float32; got float16\. Convert it .*out_dtype",
    ),
    "element type of out": (
        lambda: lapidist.matmul(ones(4, 6), ones(6, 5), out=ones(4, 5, dtype="int64")),
        DTypeError,
        (
            r"out: element type must be float32 or bfloat16 or float16 for operands of float32; got int64\."
            r" Pass an array of"
        ),
    ),
    "two types of one size": (
        lambda: lapidist.matmul(
            ones(4, 6, dtype="float16"), ones(6, 5).astype(ml_dtypes.bfloat16), device="machine"
        ),
        DTypeError,
        (r"b: element type must be that of a, float16; got bfloat16\. Convert both to float32, which keeps"),
    ),
    "integers with floats": (
        lambda: lapidist.matmul(ones(4, 6, dtype="int8"), ones(6, 5, dtype="float16"), device="machine"),
        DTypeError,
        (
            r"b: element type must be that of a, int8; got float16\. .*Convert a to float16, which keeps"
            r" every number"
        ),
    ),
    "a result that no kernel writes": (
        lambda: lapidist.matmul(
            ones(4, 6, dtype="float64"), ones(6, 5, dtype="float64"), out_dtype="float32"
        ),
        DTypeError,
        r"out_dtype: must be float64 for operands of float64; got float32\. Ask for float64 and convert it",
    ),
    "a result of one of two types": (
        lambda: lapidist.matmul(ones(4, 6, dtype="int8"), ones(6, 5, dtype="uint8"), out_dtype="int8"),
        DTypeError,
        r"out_dtype: must be int32 for operands of int8 and uint8; got int8\. Ask for int32 and convert it",
    ),
    "out of another type than asked for": (
        lambda: lapidist.matmul(
            ones(4, 6, dtype="float16"), ones(6, 5, dtype="float16"), out=ones(4, 5), out_dtype="fp16"
        ),
        DTypeError,
        r"out: element type must be float16 for operands of float16; got float32\. Pass an array of float16",
    ),
    "c of another type than the result": (
        lambda: lapidist.gemm(
            ones(4, 6, dtype="float16"),
            ones(6, 5, dtype="float16"),
            ones(4, 5, dtype="float16"),
            beta=1,
            out_dtype="float32",
        ),
        DTypeError,
        (
            r"c: element type must be that of the output, float32; got float16\. Convert it .*or ask for its"
            r" type with out_dtype"
        ),
    ),
    "sums in a type that is not offered": (
        lambda: lapidist.matmul(ones(4, 6), ones(6, 5), acc_dtype="float64"),
        DTypeError,
        r"acc_dtype: must be float32 for float32; got float64\. Leave it out for float32",
    ),
    "tf32 of other types": (
        lambda: lapidist.matmul(ones(4, 6, dtype="float16"), ones(6, 5, dtype="float16"), precision="tf32"),
        ArgumentError,
        (
            r'precision: "tf32" is a way to multiply float32; a is float16\. Leave it out, or convert a and'
            r" b to float32"
        ),
    ),
    "a precision that is none": (
        lambda: lapidist.matmul(ones(4, 6), ones(6, 5), precision="high"),
        ArgumentError,
        r"precision: must be .* \"3m\" or a lapidist.Accuracy; got 'high'\. Leave it out",
    ),
    "a fraction of integers": (
        lambda: lapidist.gemm(ones(4, 6, dtype="int8"), ones(6, 5, dtype="int8"), alpha=0.5),
        ArgumentError,
        (
            r"alpha: must be a whole number of 32 bits for integers, whose sums are int32; got 0\.5\."
            r" Multiply with 1 and scale"
        ),
    ),
    "beta beyond int32": (
        lambda: lapidist.gemm(
            ones(4, 6, dtype="int8"), ones(6, 5, dtype="int8"), ones(4, 5, dtype="int32"), beta=2**31
        ),
        ArgumentError,
        r"beta: must be a whole number of 32 bits",
    ),
    "alpha that is no number, for integers": (
        lambda: lapidist.gemm(ones(4, 6, dtype="int8"), ones(6, 5, dtype="int8"), alpha=float("nan")),
        ArgumentError,
        r"alpha: must be a whole number of 32 bits for integers.*got nan",
    ),
    "alpha beyond the floats of sums": (
        lambda: lapidist.gemm(ones(4, 6), ones(6, 5), alpha=-1e40),
        ArgumentError,
        r"alpha: must fit float32, at most 3\.403e\+38 in size; got -1e\+40\. Scale the inputs instead",
    ),
    "a workspace that runs backwards": (
        lambda: lapidist.gemm(ones(4, 6), ones(6, 5), device="machine", workspace=np.zeros(512, "i4")[::-1]),
        StrideError,
        r"workspace: must be contiguous; got strides \(-1,\)\. Pass a fresh array of zeros",
    ),
    "no array": (
        lambda: lapidist.matmul([[1.0]], ones(1, 1), device="machine"),
        DTypeError,
        r"a: must be an array; got list\. Wrap it with numpy\.asarray",
    ),
    "a list of numbers for a batch": (
        lambda: lapidist.gemm([[1.0, 2.0]], [[3.0], [4.0]]),
        ArgumentError,
        (
            r"a: gemm takes a list for a batch of matrices, each an array; got a list of lists\."
            r" .*numpy\.asarray"
        ),
    ),
    "lists that are no array": (
        lambda: lapidist.matmul([[1.0, 2.0], [3.0]], ones(2, 2)),
        ArgumentError,
        r"a: must be one array; NumPy makes none of this list .*inhomogeneous",
    ),
    "too many dimensions": (
        lambda: argument_rules.require_matrix(
            Operand("b", 4096, (1,) * 65, (1,) * 65, "float32", HOST, "torch", None), True
        ),
        ShapeError,
        r"b: must have at most 64 dimensions; got 65\. Reshape its batch",
    ),
    "out of swapped bytes that is read-only": (
        lambda: lapidist.matmul(ones(4, 6), ones(6, 5), out=SWAPPED),
        ArgumentError,
        r"out: must be writable; this array is read-only\. Pass a copy",
    ),
    "an index below zero": (
        lambda: lapidist.gemm(ones(4, 6), ones(6, 5), gather_a=np.array([0, -1])),
        ArgumentError,
        r"gather_a: indices must lie between 0 and 3; got -1\. Correct them",
    ),
    "an index beyond the end": (
        lambda: lapidist.gemm(ones(4, 6), ones(6, 5), scatter_d=np.arange(4) + 1, out=ones(4, 5)),
        ArgumentError,
        r"scatter_d: indices must lie between 0 and 3; got 4\. Correct them",
    ),
    "out overlaps a": (
        lambda: lapidist.gemm(BASE[:4, :6], BASE[6:12, :5], out=BASE[3:7, :5]),
        StrideError,
        r"out: must not overlap a: its elements are still read .*Bytes .*Pass a separate array",
    ),
    "out overlaps b": (
        lambda: lapidist.gemm(ones(5, 5), BASE[:5, :5], out=BASE[4:9, :5]),
        StrideError,
        r"out: must not overlap b: .*Pass a separate array",
    ),
    "out overlaps c in part": (
        lambda: lapidist.gemm(ones(5, 5), ones(5, 5), BASE[:5, :5], beta=1, out=BASE[1:6, :5]),
        StrideError,
        r"out: must not overlap c: .*Pass a separate array",
    ),
    "out is c transposed": (
        lambda: lapidist.gemm(ones(5, 5), ones(5, 5), BASE[:5, :5].T, beta=1, out=BASE[:5, :5]),
        StrideError,
        r"out: must not overlap c: .*Pass a separate array",
    ),
    "strides of out": (
        lambda: argument_rules.require_output(
            Operand("out", 0, (4, 5), (80, 2), "float32", 0, "torch", None), operand_on_gpu("a"), (4, 5)
        ),
        StrideError,
        (
            r"out: rows or columns must be contiguous .*got strides \(80, 2\)\. Write into a contiguous array"
            r" and copy from it"
        ),
    ),
    "alpha is a class": (
        lambda: lapidist.gemm(ones(4, 6), ones(6, 5), alpha=np.ndarray),
        ArgumentError,
        r"alpha: must be a real number; got type\. Call float\(\) on it",
    ),
    "triangle is an array": (
        lambda: lapidist.gram(ones(4, 6), triangle=np.zeros(2)),  # type: ignore[arg-type]
        ArgumentError,
        r'triangle: must be "lower" or "upper"; got ndarray of shape \(2,\)',
    ),
    "axes of numbers in arrays": (
        lambda: lapidist.tensordot(ones(4, 4), ones(4, 4), axes=(np.array(1.0), np.array(0))),
        ArgumentError,
        r"axes: must be dimensions of a, which has 2; got array\(1\.\)\. Count from 0",
    ),
    "out repeats memory": (
        lambda: lapidist.matmul(
            ones(4, 6), ones(6, 5), out=np.lib.stride_tricks.as_strided(np.ones(5, F32), (4, 5), (0, 4))
        ),
        StrideError,
        r"out: each element must have its own memory; strides \(0, 1\) repeat some\. Pass a fresh array",
    ),
    "out overlaps itself": (
        lambda: lapidist.matmul(
            ones(4, 6), ones(6, 5), out=np.lib.stride_tricks.as_strided(np.ones(50, F32), (4, 5), (16, 4))
        ),
        StrideError,
        r"out: each element must have its own memory; strides \(4, 1\) repeat some",
    ),
    "read-only out": (
        lambda: lapidist.matmul(ones(4, 6), ones(6, 5), out=READ_ONLY),
        ArgumentError,
        r"out: must be writable; this array is read-only\. Pass a copy",
    ),
    "beta without c": (
        lambda: lapidist.gemm(ones(4, 6), ones(6, 5), beta=0.5),
        ArgumentError,
        r"beta: must be 0 when there is no c; got 0\.5\. Pass c, or c=out",
    ),
    "alpha that is an array": (
        lambda: lapidist.gemm(ones(4, 6), ones(6, 5), alpha=ones(3)),
        ShapeError,
        r"alpha: must be a number or an array of one element; got shape \(3,\)\. Take one element",
    ),
    "complex beta": (
        lambda: lapidist.gemm(ones(4, 6), ones(6, 5), ones(4, 5), beta=1j),  # type: ignore[arg-type]
        ArgumentError,
        r"beta: must be a real number; got complex",
    ),
    "device without a meaning": (
        lambda: lapidist.matmul(ones(4, 6), ones(6, 5), device="tpu"),
        ArgumentError,
        r'device: must be "gpu", a GPU\'s number, "machine" or "host"; got \'tpu\'. Leave it out',
    ),
    "negative device": (
        lambda: lapidist.matmul(ones(4, 6), ones(6, 5), device=-2),
        ArgumentError,
        r"device: must be .*got -2",
    ),
    "unknown kernel": (
        lambda: lapidist.gemm(ones(4, 6), ones(6, 5), kernel="fastest", device="machine"),
        ArgumentError,
        r"kernel: must be a kernel's name, or a rung's number from 1 to 31; got 'fastest'\. .*simt.*small",
    ),
    "config without a kernel": (
        lambda: lapidist.gemm(ones(4, 6), ones(6, 5), config=lapidist.Config(64, 64), device="machine"),
        ArgumentError,
        r"config: belongs to one kernel; got 64x64.*Name it with kernel=",
    ),
    "kernel that does not take it": (
        lambda: lapidist.gemm(ones(2, 4, 6), ones(2, 6, 5), kernel="coalesced", device="machine"),
        RefusalError,
        (
            r"kernel: coalesced does not take 4 x 5 x 6 x 2 batches float32.*it multiplies one pair of"
            r" .*batch of \(2,\).*leave it"
        ),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_names_argument_rule_value_and_way_out(case: str) -> None:
    call, error, words = REFUSED[case]
    before = BASE.copy()
    with pytest.raises(error, match=f"(?s){words}") as caught:
        call()
    assert isinstance(caught.value, LapidistError)
    np.testing.assert_array_equal(BASE, before)
    assert (READ_ONLY == 1).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"a": ones(4, 7)},
        {"b": ones(6, 5, dtype="float64"), "device": "machine"},
        {"beta": 1.0},
        {"c": ones(3, 3), "beta": 1.0},
        {"alpha": "two"},
        {"device": "abacus"},
        {"device": "machine", "kernel": "none"},
        {"device": "machine", "config": lapidist.Config(8, 8)},
    ],
    ids=lambda wrong: ",".join(wrong),
)
def test_nothing_is_written_when_refused(wrong: dict[str, Any]) -> None:
    out = np.full((4, 5), np.nan, F32)
    with pytest.raises(LapidistError):
        lapidist.gemm(**{"a": ones(4, 6), "b": ones(6, 5), "out": out, **wrong})
    assert np.isnan(out).all()


@pytest.mark.parametrize("strides", [(0, 1), (3, 1), (80, 2), (80, 1), (2, 80)])
def test_strides_that_are_never_stepped_by_are_any(strides: tuple[int, int]) -> None:
    """Of one row, or one column."""
    for shape in ((1, 5), (5, 1)):
        if strides[0] or shape[0] == 1:
            given = Operand("out", 0, shape, strides, "float32", 0, "torch", None)
            argument_rules.require_output(given, operand_on_gpu("a"), shape)
    out = np.zeros(5, F32)
    assert lapidist.gemm(ones(1, 6), ones(6, 5), out=out[None]).base is out
    assert (out == 6).all()


def test_what_was_prepared_for_some_choices_does_not_serve_others() -> None:
    """The same arrays, and another place, kernel or way to share."""
    a = ones(8, 8)
    lapidist.gemm(a, a)
    with pytest.raises(RefusalError, match="B must be column-major"):
        lapidist.gemm(a, a, device="machine", kernel="b_transposed")
    with pytest.raises(ArgumentError, match="kernel: host arrays are multiplied by NumPy"):
        lapidist.gemm(a, a, kernel="simt")


def test_a_plan_refuses_another_geometry_of_the_machine() -> None:
    plan = lapidist.plan(ones(4, 6), ones(6, 5), device="machine", kernel="coalesced")
    for a, b in (
        (ones(8, 6), ones(6, 5)),
        (ones(4, 6), ones(5, 6).T),
        (ones(4, 6, dtype="float64"), ones(6, 5, dtype="float64")),
    ):
        with pytest.raises(
            ArgumentError,
            match=r"a, b, c, out: must have the geometry that was planned, 4 x 5 x 6 .*Make a new plan",
        ):
            plan.execute(a, b)


def test_a_plan_of_a_kernel_refuses_types_that_only_numpy_multiplies() -> None:
    """It converted them in silence."""
    plan = lapidist.plan(ones(4, 6, dtype="float64"), ones(6, 5, dtype="float64"), device="machine")
    with pytest.raises(DTypeError, match="b: element type must be that of a, float64; got float32"):
        plan.execute(ones(4, 6, dtype="float64"), ones(6, 5))


def test_lists_and_outputs_that_numpy_would_take_are_refused_in_words() -> None:
    a, b = np.ones((3, 4), "float32"), np.ones((4, 5), "float32")
    with pytest.raises(ArgumentError, match="b: must be a list of arrays"):
        lapidist.gemm([a, a], None)
    for more in ({}, {"alpha": 2.0}):
        with pytest.raises(ShapeError, match="out: must have shape"):
            lapidist.gemm(a, b, out=np.empty((1, 3, 5), "float32"), **more)


@pytest.mark.parametrize("name", ["a", "b", "c", "out"])
def test_kernels_refuse_elements_between_multiples_of_their_size(name: str) -> None:
    arrays = {each: ones(4, 4) for each in ("a", "b", "c", "out")}
    arrays[name] = np.zeros(80, np.uint8)[2:66].view(F32).reshape(4, 4)
    with pytest.raises(StrideError, match=rf"^{name}: must start on a multiple of its element's 4 bytes; it"):
        lapidist.gemm(**arrays, beta=1.0, device="machine")
    assert (arrays["out"] == ones(4, 4)).all() or name == "out"
