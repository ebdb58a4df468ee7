"""Functions that cannot be an epilogue, refused in words that name the line and the way out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.errors import ArgumentError

ANNOTATED = {
    "lapidist.Rows": "AttributeError: module 'lapidist' has no attribute 'Rows'",
    "Row": "NameError: name 'Row' is not defined",
    "lapidist.Row[1]": "TypeError: type 'Row' is not subscriptable",
    "a b": "SyntaxError: invalid syntax",
}


@pytest.mark.parametrize("annotation", ANNOTATED)
def test_annotations_that_mean_nothing(annotation: str) -> None:
    def f(acc: Any, bias: Any) -> Any:
        return acc + bias

    f.__annotations__["bias"] = annotation
    with pytest.raises(
        ArgumentError, match=r"f: annotations must be known; .*test_refused_functions.py:\d"
    ) as caught:
        lapidist.epilogue(f)
    assert ANNOTATED[annotation] in str(caught.value)
    assert str(caught.value).endswith("write lapidist.Scalar, Row, Column, Tile or Pair")


def test_a_sum_that_is_annotated_as_an_operand() -> None:
    def f(acc: lapidist.Tile) -> Any:
        return acc

    with pytest.raises(ArgumentError, match=r"acc is annotated as a Tile, .* Leave the annotation out"):
        lapidist.epilogue(f)


def by_table(x: Any, table: Any = [0.5]) -> Any:  # noqa: B006
    return x * table[0]


by_half = partial(lapidist.maximum, 0.5)
CAPTURING = {
    "by_table's default of table, a list": lambda acc: by_table(acc),
    "by_half, a partial": lambda acc: by_half(acc),
}


@pytest.mark.parametrize("captured", CAPTURING)
def test_captures_that_may_change(captured: str) -> None:
    with pytest.raises(ArgumentError, match=rf"got {captured}, at .*test_refused_functions.py:\d") as caught:
        lapidist.epilogue(CAPTURING[captured])
    assert str(caught.value).endswith("with def" if "partial" in captured else "Pass it as an operand")


RETURNED = {
    "row_max": lambda acc: acc - lapidist.row_max(acc),
    "row_sum": lambda acc: (acc, lapidist.row_sum(acc) / 2),
    "amax": lambda acc: (acc, lapidist.exp(lapidist.amax(acc))),
    "all_sum": lambda acc: (acc, lapidist.all_sum(acc) > 0),
    "column_sum": lambda acc: (acc, lapidist.row_sum(lapidist.column_sum(acc))),
    "column_max": lambda acc: acc if lapidist.column_max(acc) else -acc,
    "Output": lambda acc: 2 * lapidist.Output(acc, "int8"),
    "Quantised": lambda acc: lapidist.relu(lapidist.Quantised(acc, "int8")),
}


@pytest.mark.parametrize("made_by", RETURNED)
def test_nothing_follows_what_is_returned(made_by: str) -> None:
    words = rf"lapidist\.{made_by}: must be returned as it is; .*test_refused_functions.py:\d"
    with pytest.raises(ArgumentError, match=words):
        lapidist.epilogue(RETURNED[made_by])


def test_a_pair_is_neither_true_nor_false() -> None:
    def f(acc: lapidist.Pair) -> Any:
        return acc.first if acc else acc.second

    with pytest.raises(ArgumentError, match=r"one column at a time; .*test_refused_functions.py:\d"):
        lapidist.epilogue(f)


class Exits:
    def __index__(self) -> int:
        raise SystemExit(4)


TOUCHED: dict[str, Callable[[Any], Any]] = {  # by the attribute that is named
    "step": lambda acc: setattr(acc, "step", 99),
    "step ": lambda acc: setattr(acc, "step", -1),
    "step  ": lambda acc: setattr(acc, "step", Exits()),
    "step   ": lambda acc: delattr(acc, "step"),
    "tape": lambda acc: setattr(acc, "tape", None),
    "name": lambda acc: setattr(acc.tape, "name", "other"),
    "__class__": lambda acc: setattr(acc, "__class__", lapidist.Row),
    "dtype": lambda acc: setattr(lapidist.Output(acc), "dtype", "junk"),
    "value": lambda acc: delattr(lapidist.Output(acc), "value"),
    "then": lambda acc: setattr(lapidist.row_sum(acc), "then", "junk"),
}


@pytest.mark.parametrize("case", TOUCHED)
def test_traced_values_stay_as_they_are(case: str) -> None:
    touch = TOUCHED[case]

    def f(acc: Any) -> Any:
        touch(acc)
        return acc

    words = rf"^{case.strip()}: is an attribute of a traced value, .*test_refused_functions.py:\d"
    with pytest.raises(ArgumentError, match=words):
        lapidist.epilogue(f)


class WithoutLength(list[Any]):
    def __len__(self) -> int:
        raise IndexError("no length")


def test_errors_of_what_is_returned_are_in_words() -> None:
    def broken(acc: Any) -> Any:
        object.__setattr__(acc, "step", 99)
        return acc

    for function, words in ((broken, "IndexError: list index"), (lambda acc: WithoutLength(), "no length")):
        with pytest.raises(ArgumentError, match=rf"{words}.*test_refused_functions.py:\d"):
            lapidist.epilogue(function)


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt])
def test_what_ends_a_program_passes(raised: type[BaseException]) -> None:
    def f(acc: Any) -> Any:
        raise raised

    with pytest.raises(raised):
        lapidist.epilogue(f)


def test_operands_without_a_name() -> None:
    with pytest.raises(ArgumentError, match="gelu: must be called without operands; got 1 without a name"):
        lapidist.epilogues.gelu(3)
    with pytest.raises(ArgumentError, match="bias: operands must be named, as bias=; got 1 without a name"):
        lapidist.epilogues.bias([1.0])


@pytest.mark.parametrize(
    "function",
    [
        lambda acc: ~acc,
        lambda acc: acc & 3,
        lambda acc: 1 | acc,
        lambda acc: (acc > 0) & 1,
        lambda acc: (acc > 0) | (acc + 1),
    ],
)
def test_operations_on_bits_are_refused(function: Any) -> None:
    with pytest.raises(ArgumentError, match=r"[~&|] of a number, which .* Compare first: \(acc != 0\)"):
        lapidist.epilogue(function)


def test_operands_may_be_conditions() -> None:
    @lapidist.epilogue
    def chosen(acc: Any, mask: lapidist.Row) -> Any:
        return lapidist.where(~mask & (acc > 0) & True, acc, 0.0)

    row = np.array([True, False, False])
    result = lapidist.matmul(np.array([[1.0, 2.0, -3.0]]), np.eye(3), epilogue=chosen(mask=row))
    np.testing.assert_array_equal(result, [[0, 2, 0]])
