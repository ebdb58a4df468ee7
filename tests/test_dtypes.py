"""Element types: the table agrees with NumPy's and ml_dtypes' own facts, names are found, what goes together
is said.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lapidist
from lapidist.dtypes import (
    COMPLEX_HALVES,
    MATHS,
    MIXED,
    OPERANDS,
    PART_OF,
    TF32,
    TYPES,
    element_of,
    math_named,
    name_of,
    numpy_dtype,
    outputs_of,
    short_name,
)
from lapidist.errors import ArgumentError, DTypeError

FLOATS = [name for name, row in TYPES.items() if row.roundoff]


@pytest.mark.parametrize("name", [name for name in TYPES if name != COMPLEX_HALVES])
def test_sizes_and_names_are_those_of_numpy(name: str) -> None:
    assert numpy_dtype(name).itemsize == TYPES[name].nbytes
    assert numpy_dtype(name).name == TYPES[name].name == name


@pytest.mark.parametrize("name", FLOATS)
def test_rounding_is_that_of_the_type(name: str) -> None:
    facts = ml_dtypes.finfo(numpy_dtype(name))
    assert TYPES[name].roundoff == float(facts.eps) / 2
    assert TYPES[name].spacing == float(facts.smallest_subnormal)
    if TYPES[name].bounds is not None:
        assert TYPES[name].bounds == (float(facts.min), float(facts.max))


@pytest.mark.parametrize("name", ["int8", "uint8"])
def test_bounds_are_those_of_the_integers(name: str) -> None:
    assert TYPES[name].bounds == (np.iinfo(name).min, np.iinfo(name).max)


def test_results_of_two_types_are_those_of_both() -> None:
    for a, b in itertools.product(OPERANDS, OPERANDS):
        if a == b or frozenset((a, b)) in MIXED:
            assert outputs_of(a, b)
            assert set(outputs_of(a, b)) == set(outputs_of(b, a))
    assert outputs_of("int8", "uint8") == ("int32",)


def test_the_documents_list_what_there_is() -> None:
    text = (Path(__file__).parent.parent / "docs" / "numerics.md").read_text()
    listed = {}
    for line in re.findall(r"^\|(.* \|.*)\|$", text.partition("C has D's type")[0], re.M)[1:]:
        types, _, results = (cell.strip() for cell in line.split("|"))
        for name in types.partition(" with ")[0].split(", "):
            listed[name] = tuple(results.replace("the operands' own", name).split(", "))
    assert listed == {name: TYPES[name].outputs for name in (*OPERANDS, *PART_OF)}


@pytest.mark.parametrize("math", MATHS)
def test_a_math_is_found_by_both_names(math: str) -> None:
    assert math_named(short_name(math)) == math_named(math) == math
    assert element_of(math).name == ("float32" if math == TF32 else math)


@pytest.mark.parametrize("text", ["int32", "half", "", "float8"])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match=r"--dtype: must be one of fp16, bf16, .*tf32.*; got "):
        math_named(text)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("bf16", "bfloat16"),
        ("bfloat16", "bfloat16"),
        (np.float16, "float16"),
        (np.dtype("int8"), "int8"),
        ("e5m2", "float8_e5m2"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (np.dtype(ml_dtypes.float8_e4m3fn), "float8_e4m3fn"),
        (np.int32, "int32"),
    ],
)
def test_types_come_as_strings_or_objects(dtype: object, name: str) -> None:
    assert name_of(dtype, "out_dtype") == name


class TorchLike:
    """torch's types print as torch.bfloat16."""

    def __str__(self) -> str:
        return "torch.bfloat16"


def test_types_of_torch_are_read_by_what_they_print() -> None:
    assert name_of(TorchLike(), "out_dtype") == "bfloat16"


def test_what_is_no_type_is_refused() -> None:
    with pytest.raises(DTypeError, match=r"out_dtype: must be one of float16, .*complex128; got 'floating'"):
        lapidist.matmul(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32), out_dtype="floating")


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("f4", "float32"),
        ("<f8", "float64"),
        ("half", "float16"),
        (float, "float64"),
        (np.float32, "float32"),
        (np.dtype("f2"), "float16"),
        (np.zeros(0, "i1").dtype, "int8"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (np.dtype(ml_dtypes.float8_e5m2), "float8_e5m2"),
        ("fp16", "float16"),
        ("complex64", "complex64"),
    ],
)
def test_a_type_may_be_spelled_as_numpy_has_it(spelling: Any, name: str) -> None:
    assert name_of(spelling, "out_dtype") == name


def test_a_type_of_swapped_bytes_is_refused() -> None:
    with pytest.raises(DTypeError, match=r"acc_dtype: must be in this computer's byte order; got '>f4'"):
        name_of(">f4", "acc_dtype")
