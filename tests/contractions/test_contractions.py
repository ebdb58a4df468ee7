"""einsum and tensordot against NumPy's, in whole numbers that float64 holds exactly; views instead of copies;
refusals.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lapidist
from contraction_cases import Case, cases, lying, numbers
from lapidist.contractions import einsum
from lapidist.errors import ArgumentError, DeviceError, DTypeError, LapidistError, ShapeError, StrideError

Array = np.ndarray[Any, Any]
many = settings(deadline=None, max_examples=250)


def same(result: Any, expected: Any) -> None:
    np.testing.assert_array_equal(result, expected)
    assert (np.shape(result), type(result)) == (np.shape(expected), type(expected))


@many
@given(cases(), st.data())
def test_einsum_is_numpys(case: Case, data: st.DataObject) -> None:
    expected = np.einsum(case.spec, case.a, case.b)
    same(lapidist.einsum(case.spec, case.a, case.b), expected)
    out = lying(data.draw, np.full(case.shape, np.nan))
    assert lapidist.einsum(case.spec, case.a, case.b, out=out) is out
    same(out, np.asarray(expected))


@many
@given(cases())
def test_without_an_output_letters_of_one_operand_are_kept_in_order(case: Case) -> None:
    spec = case.spec.partition("->")[0]
    same(lapidist.einsum(spec, case.a, case.b), np.einsum(spec, case.a, case.b))


@many
@given(st.data())
def test_dots_are_broadcast(data: st.DataObject) -> None:
    """Before, behind and between letters, in either operand, of any number of dimensions."""
    wide = tuple(data.draw(st.lists(st.integers(0, 3), max_size=3)))
    leads = []
    for _ in "ab":
        kept = wide[data.draw(st.integers(0, len(wide))) :]
        leads.append(tuple(1 if data.draw(st.booleans()) else size for size in kept))
    a = lying(data.draw, numbers((2, *leads[0], 4), 1))
    b = lying(data.draw, numbers((*leads[1], 4, 3), 2))
    for spec in ("i...k,...kj", "i...k,...kj->...ij", "i...k, ...kj -> ji...", "i...k,...kj->j...i"):
        same(lapidist.einsum(spec, a, b), np.einsum(spec, a, b))


@many
@given(st.data())
def test_tensordot_is_numpys(data: st.DataObject) -> None:
    summed = data.draw(st.lists(st.integers(0, 4), max_size=3))
    of_a, of_b = (data.draw(st.lists(st.integers(0, 3), max_size=2)) for _ in "ab")
    first = data.draw(st.permutations(range(len(of_a) + len(summed))))
    second = data.draw(st.permutations(range(len(of_b) + len(summed))))
    a = lying(data.draw, numbers(tuple((of_a + summed)[at] for at in first), 1))
    b = lying(data.draw, numbers(tuple((of_b + summed)[at] for at in second), 2))
    axes_a = [first.index(len(of_a) + at) for at in range(len(summed))]
    axes_b = [
        second.index(len(of_b) + at) - data.draw(st.sampled_from([0, b.ndim])) for at in range(len(summed))
    ]
    expected = np.tensordot(a, b, (axes_a, axes_b))
    same(lapidist.tensordot(a, b, (axes_a, axes_b)), expected)
    out = lying(data.draw, np.full(expected.shape, np.nan))
    assert lapidist.tensordot(a, b, (axes_a, axes_b), out=out) is out
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    "axes", [0, 1, 2, (1, 0), ([0, 2], [1, 0]), np.int64(1), ((-1,), (0,)), np.array([[2], [0]])], ids=repr
)
def test_axes_in_each_of_numpys_forms(axes: Any) -> None:
    a, b = numbers((3, 3, 3), 1), numbers((3, 3, 3), 2)
    np.testing.assert_array_equal(lapidist.tensordot(a, b, axes), np.tensordot(a, b, axes))


# ---- types, places and what passes through ----


@pytest.mark.often(2)
@pytest.mark.parametrize(
    "spec", ["bhqd,bhkd->bhqk", "bqhd,bkhd->bqhk", "abij,cdij->cabd", "i,j->ji", "ij,ij->"]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
def test_kernels_in_the_machine_take_the_same_views(spec: str, dtype: Any) -> None:
    sizes = dict(zip("abcdhijkq", (2, 3, 2, 4, 3, 5, 4, 6, 5), strict=True))
    a, b = (
        numbers(tuple(sizes[letter] for letter in term), 3).astype(dtype)
        for term in spec.split("->")[0].split(",")
    )
    expected = np.einsum(spec, a.astype(np.float64), b.astype(np.float64))
    result = lapidist.einsum(spec, a, b, device="machine")
    np.testing.assert_array_equal(result, expected)
    assert result.dtype == (np.int32 if dtype is np.int8 else dtype)
    out = np.full(expected.shape[::-1], 77, result.dtype).T
    assert lapidist.einsum(spec, a, b, out=out, device="machine") is out
    np.testing.assert_array_equal(out, expected)


def test_what_matmul_may_be_asked_is_passed_on() -> None:
    a, b = numbers((3, 4), 1).astype(np.float16), numbers((4, 5), 2).astype(np.float16)
    assert lapidist.einsum("ij,jk", a, b, out_dtype="float32").dtype == np.float32
    assert lapidist.tensordot(a, b, 1, out_dtype="float32", acc_dtype="float32").dtype == np.float32
    with pytest.raises(ArgumentError, match=r"precision: .*tf32"):
        lapidist.einsum("ij,jk", a, b, precision="tf32")
    with pytest.raises(ArgumentError, match="device: "):
        lapidist.einsum("ij,jk", a, b, device=1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtypes", ["ll", "DD", "fd", "bl", "??"], ids=str)
def test_host_arrays_have_every_type_that_numpy_multiplies(dtypes: str) -> None:
    a, b = numbers((2, 3, 4), 1).astype(dtypes[0]), numbers((4, 3, 5), 2).astype(dtypes[1])
    result, expected = lapidist.einsum("ijk,kjl->li", a, b), np.einsum("ijk,kjl->li", a, b)
    np.testing.assert_array_equal(result, expected)
    assert result.dtype == expected.dtype


def test_lists_subclasses_and_other_bytes_are_arrays() -> None:
    a, b = [[1.0, 2.0], [3.0, 4.0]], np.array([[1.0, 2.0], [0.5, 1.0]]).view(np.matrix)
    same(lapidist.einsum("ij,jk->ki", a, b), np.einsum("ij,jk->ki", a, b))
    swapped = np.asarray(a).astype(">f8")
    same(lapidist.tensordot(swapped, swapped, 2), np.tensordot(np.asarray(a), np.asarray(a), 2))
    out = np.zeros((2, 2), ">f8").T
    assert lapidist.einsum("ij,jk->ki", a, a, out=out) is out
    np.testing.assert_array_equal(out, (np.asarray(a) @ np.asarray(a)).T)


def test_an_output_may_lie_over_an_operand() -> None:
    a, b = numbers((3, 3, 2), 1), numbers((3, 3), 2)
    expected = np.einsum("ijk,jl->lik", a, b)
    out = np.moveaxis(a, 1, 0)
    lapidist.einsum("ijk,jl->lik", a, b, out=out)
    np.testing.assert_array_equal(out, expected)


# ---- copies ----


@pytest.fixture
def multiplied(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What matmul was given."""
    seen: list[Any] = []

    def matmul(a: Any, b: Any, out: Any = None, **how: Any) -> Any:
        seen[:] = [a, b, out]
        return lapidist.matmul(a, b, out, **how)

    monkeypatch.setattr(einsum, "matmul", matmul)
    return seen


VIEWED = [
    ("ij,jk->ki", "ij", "jk", "ki"),
    ("bqhd,bkhd->bhqk", "bqhd", "bkhd", "bhqk"),
    ("abij,ijcd->abcd", "abij", "ijcd", "abcd"),
    ("abij,ijcd->cdab", "abij", "ijcd", "cdab"),
    ("abij,cdji->abcd", "abij", "cdij", "abcd"),
    ("baij,cdji->abcd", "abji", "cdji", "abcd"),
    ("ijx,xk->kij", "xij", "xk", "ijk"),
]


@pytest.mark.parametrize(("spec", "a_lies", "b_lies", "out_lies"), VIEWED, ids=[row[0] for row in VIEWED])
def test_nothing_is_copied_where_strides_allow(
    multiplied: list[Any], spec: str, a_lies: str, b_lies: str, out_lies: str
) -> None:
    sizes = dict(zip("abcdhijkqx", (2, 3, 2, 4, 3, 5, 4, 6, 5, 3), strict=True))
    terms = spec.replace("->", ",").split(",")
    arrays = []
    for term, lies in zip(terms, (a_lies, b_lies, out_lies), strict=True):
        values = numbers(tuple(sizes[letter] for letter in lies), 1)
        arrays.append(values.transpose([lies.index(letter) for letter in term]))
    a, b, out = arrays
    expected = np.einsum(spec, a, b)
    lapidist.einsum(spec, a, b, out=out)
    np.testing.assert_array_equal(out, expected)
    for given_array, seen in zip((a, b, out), multiplied, strict=True):
        assert np.shares_memory(given_array, seen)


@pytest.mark.parametrize(
    ("spec", "copied"), [("iaj,jk->aik", "a"), ("ij,kjl->ikl", "b"), ("iaj,jbk->bika", "ab")]
)
def test_an_operand_whose_groups_do_not_merge_is_copied(
    multiplied: list[Any], spec: str, copied: str
) -> None:
    sizes = dict(zip("abijkl", (3, 2, 4, 5, 6, 2), strict=True))
    terms = spec.split("->")[0].split(",")
    wide = [numbers(tuple(2 * sizes[letter] for letter in term), 1) for term in terms]
    steps = [2 if name in copied else 1 for name in "ab"]
    a, b = (
        x[
            tuple(
                slice(None, 2 * sizes[letter], step) if step == 2 else slice(sizes[letter]) for letter in term
            )
        ]
        for x, term, step in zip(wide, terms, steps, strict=True)
    )
    same(lapidist.einsum(spec, a, b), np.einsum(spec, a, b))
    assert np.shares_memory(a, multiplied[0]) == ("a" not in copied)
    assert np.shares_memory(b, multiplied[1]) == ("b" not in copied)


def test_the_fewest_elements_are_copied(multiplied: list[Any]) -> None:
    """Sums go in the order of the operand that need not be copied; rows and columns of a new result in that
    of its operand.
    """
    broken, turned = numbers((4, 6, 2, 5), 1)[:, :3], numbers((5, 2, 7), 2).swapaxes(0, 1)
    same(lapidist.einsum("iapq,pqk->iak", broken, turned), np.einsum("iapq,pqk->iak", broken, turned))
    assert [np.shares_memory(broken, multiplied[0]), np.shares_memory(turned, multiplied[1])] == [False, True]
    same(lapidist.einsum("pqk,iapq->iak", turned, broken), np.einsum("pqk,iapq->iak", turned, broken))
    assert [np.shares_memory(turned, multiplied[0]), np.shares_memory(broken, multiplied[1])] == [True, False]
    a, b = numbers((3, 4, 6), 1).swapaxes(0, 1), numbers((6, 5, 2), 2).swapaxes(1, 2)
    same(lapidist.einsum("mnj,jkl->mnkl", a, b), np.einsum("mnj,jkl->mnkl", a, b))
    assert np.shares_memory(a, multiplied[0])
    assert np.shares_memory(b, multiplied[1])


def test_copies_need_the_frameworks_stream() -> None:
    a, b = numbers((4, 6, 6), 1)[:, :3], numbers((6, 2), 2)
    with pytest.raises(ArgumentError, match=r"stream: must be left out where a or b is copied.*current"):
        lapidist.einsum("ijk,kl->ijl", a, b, stream=5)
    with pytest.raises(ArgumentError, match=r"stream: must be left out where out is copied"):
        lapidist.einsum("ijk,kl->ijl", a.copy(), b, out=np.zeros((4, 6, 2))[:, :3], stream=5)


# ---- refusals ----

SQUARE, CUBE = np.ones((3, 3)), np.ones((3, 3, 3))
WRONG_SPECS = [
    ("ii,ij", ArgumentError, r"spec: .*'i' twice in 'ii'.*diagonal.*a\.diagonal\(\)"),
    ("ij,jj->ij", ArgumentError, r"spec: .*'j' twice in 'jj'.*b\.diagonal\(\)"),
    ("ij,jk->i", ArgumentError, r"spec: .*'k' is in b alone.*b\.sum\(1\)"),
    ("ij,kj->k", ArgumentError, r"spec: .*'i' is in a alone.*a\.sum\(0\)"),
    ("ij", ArgumentError, r"spec: must name two operands.*got 1"),
    ("ij->ji", ArgumentError, r"spec: must name two operands.*got 1"),
    ("", ArgumentError, r"spec: must name two operands"),
    ("ij,jk,kl", ArgumentError, r"spec: must name two operands.*got 3.*two by two"),
    ("i1,1k", ArgumentError, r"spec: must be of letters.*got '1'"),
    ("iä,äk", ArgumentError, r"spec: must be of letters.*got 'ä'"),
    ("ij,jk-ik", ArgumentError, r"spec: must be of letters.*got '-'"),
    ("i.j,jk", ArgumentError, r"spec: must be of letters.*got '\.'"),
    ("ij,jk->ik->ki", ArgumentError, r"spec: must have one output"),
    ("ij,jk->i,k", ArgumentError, r"spec: must have one output"),
    ("ij,jk->ikz", ArgumentError, r"spec: .*output.*'z'"),
    ("ij,jk->iik", ArgumentError, r"spec: .*'i' twice"),
    ("...i...,ij", ArgumentError, r"spec: .*'\.\.\.' at most once"),
    ("...j,jk->k", ArgumentError, r"spec: must have '\.\.\.' in the output too"),
    ("ijk,kl", ShapeError, r"a: must have the dimensions.*'ijk'; it has 2"),
    ("ij,k", ShapeError, r"b: must have the dimensions.*'k'; it has 2"),
    (("ij", "jk"), ArgumentError, r"spec: must be a string.*got tuple"),
]


@pytest.mark.parametrize(("spec", "error", "words"), WRONG_SPECS, ids=[repr(row[0]) for row in WRONG_SPECS])
def test_what_is_no_product_of_two_is_refused(spec: Any, error: type[Exception], words: str) -> None:
    out = np.full((3, 3), 5.0)
    with pytest.raises(error, match=words):
        lapidist.einsum(spec, SQUARE, SQUARE, out=out)
    assert (out == 5).all()


def test_operands_are_two() -> None:
    with pytest.raises(ArgumentError, match=r"spec: must name two operands.*got 3"):
        lapidist.einsum("ij,jk", SQUARE, SQUARE, SQUARE)
    with pytest.raises(ArgumentError, match=r"spec: must name two operands.*got 1"):
        lapidist.einsum("ij->ji", SQUARE)
    with pytest.raises(DTypeError, match=r"b: must be an array; got NoneType"):
        lapidist.einsum("ij,jk", SQUARE)


@pytest.mark.parametrize(
    ("spec", "a", "b", "words"),
    [
        ("ij,jk", (3, 4), (5, 3), r"b: 'j' must have one size.*4 there.*5 there"),
        ("ij,jk", (3, 1), (5, 3), r"b: 'j' must have one size"),
        ("bij,bjk->bik", (2, 3, 4), (1, 4, 3), r"b: 'b' must have one size"),
        (
            "...ij,...jk",
            (2, 3, 4),
            (3, 4, 3),
            r"b: the dimension 1 from the last of '\.\.\.' must have sizes that broadcast",
        ),
    ],
)
def test_sizes_that_do_not_match_are_refused(spec: str, a: Any, b: Any, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        lapidist.einsum(spec, np.ones(a), np.ones(b))


def test_more_dimensions_than_arrays_have_are_refused() -> None:
    deep = np.ones((1,) * 63)
    with pytest.raises(ShapeError, match=r"a, b: must have at most 64 dimensions.*got 65"):
        lapidist.einsum("...,...->...", deep, deep)
    with pytest.raises(ShapeError, match=r"a, b: must have at most 64 dimensions.*got 126"):
        lapidist.tensordot(deep, deep, 0)


@pytest.mark.parametrize(
    ("axes", "error", "words"),
    [
        (3, ArgumentError, r"axes: must be from 0"),
        (-1, ArgumentError, r"axes: must be from 0"),
        (1.5, ArgumentError, r"axes: must be a number or two lists"),
        (([0], [1], [2]), ArgumentError, r"axes: must be a number or two lists"),
        (([0, 1], [1]), ArgumentError, r"axes: must name as many"),
        (([0, 0], [0, 1]), ArgumentError, r"axes: must name each dimension of a once"),
        (([0], [2]), ArgumentError, r"axes: must be dimensions of b, which has 2; got 2"),
        (([0.5], [1]), ArgumentError, r"axes: must be dimensions of a"),
        (([0], [1]), ShapeError, r"axes: .*one size; a is \(3, 4\), 3 along 0"),
    ],
)
def test_axes_that_do_not_meet_are_refused(axes: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        lapidist.tensordot(np.ones((3, 4)), np.ones((3, 4)), axes)


def read_only() -> Array:
    array = np.zeros((3, 3))
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("out", "error", "words"),
    [
        (np.zeros((3, 4)), ShapeError, r"out: must have shape \(3, 3\)"),
        (np.zeros(9), ShapeError, r"out: must have shape \(3, 3\)"),
        (np.zeros((3, 4), ">f8"), ShapeError, r"out: must have shape \(3, 3\)"),
        (read_only(), ArgumentError, r"out: must be writable"),
        (np.zeros((3, 3), np.int8), DTypeError, r"out: element type"),
        (np.broadcast_to(np.zeros(3), (3, 3)), (ArgumentError, StrideError), r"out: "),
        ([[0.0] * 3] * 3, DTypeError, r"out: must be an array; got list"),
    ],
    ids=["narrow", "flat", "swapped", "read-only", "type", "repeated", "list"],
)
def test_outputs_that_cannot_be_written_are_refused(out: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        lapidist.einsum("ij,jk->ki", SQUARE, SQUARE, out=out)


class Stranger:
    """What makes no views."""

    def __init__(self) -> None:
        self.array = np.ones((3, 3))
        self.shape = (3, 3)

    def __dlpack__(self, **how: Any) -> Any:
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_arrays_of_no_framework_are_refused() -> None:
    with pytest.raises(
        DTypeError, match=r"b: must be an array of NumPy, torch, CuPy or JAX.*got Stranger.*from_dlpack"
    ):
        lapidist.einsum("ij,jk", SQUARE, Stranger())
    with pytest.raises(LapidistError, match=r"a: .*masked"):
        lapidist.einsum("ij,jk", np.ma.masked_array(SQUARE), SQUARE)


def test_a_gpu_that_is_not_there_is_told_of() -> None:
    with pytest.raises((DeviceError, ArgumentError)):
        lapidist.tensordot(CUBE, CUBE, device="gpu7")


def test_keywords_of_others_are_named() -> None:
    a = np.ones((2, 2))
    for keyword, words in (
        ("invariant", "with lapidist.invariant"),
        ("optimize", "two operands have one order"),
    ):
        for call in (
            lambda **more: lapidist.einsum("ij,jk", a, a, **more),
            lambda **more: lapidist.tensordot(a, a, **more),
        ):
            with pytest.raises(TypeError, match=f"unexpected keyword argument '{keyword}'.*{words}"):
                call(**{keyword: True})
