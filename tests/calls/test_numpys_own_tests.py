"""NumPy's own tests of matmul, out of the installed wheel, with ours in its place: on the host, and in the
machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy._core.tests.test_multiarray as suite
import pytest

import lapidist
from lapidist.dtypes import OPERANDS
from numpy_differences import DIFFERENCES, LISTED_FOR

COMMON = suite.MatmulCommon
APART = ("bB", "qQ")  # 8-bit integers and long long have results of other types than NumPy's
TYPES = ("".join(letter for letter in COMMON.types if letter not in "".join(APART)), *APART)
Case = tuple[type, str, str, tuple[Any, ...]]


def parameters_of(test: Callable[..., None]) -> list[tuple[Any, ...]]:
    """What pytest would call it with: all of NumPy's tests here have one parameter, or none."""
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    assert len(marks) <= 1
    return [(value,) for mark in marks for value in mark.args[1]] or [()]


def cases() -> Iterator[Case]:
    for kind in (COMMON, suite.TestMatmul, suite.TestMatmulOperator):
        for name, test in vars(kind).items():
            if name.startswith("test_"):
                letters = TYPES if kind is COMMON else ("",)
                yield from ((kind, name, types, given) for types in letters for given in parameters_of(test))


CASES = list(cases())


def on_host(a: Any, b: Any, out: Any = None) -> Any:
    return lapidist.matmul(a, b, out)


def in_machine(a: Any, b: Any, out: Any = None) -> Any:
    """In the machine, where kernels take the types."""
    names = {getattr(getattr(array, "dtype", None), "name", None) for array in (a, b)}
    return lapidist.matmul(
        a, b, out, device="machine" if len(names) == 1 and names <= set(OPERANDS) else None
    )


class Instead:
    """NumPy with another matmul."""

    def __init__(self, matmul: Callable[..., Any]) -> None:
        self.matmul = matmul

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def test_the_list_is_for_this_numpy() -> None:
    assert np.__version__ in LISTED_FOR, "install the dev extra, or see which of NumPy's tests are new"
    assert {(f"{kind.__name__}.{name}", types) for kind, name, types, _ in CASES} >= set(DIFFERENCES)


def places() -> Iterator[Any]:
    """All on the host. In the machine the many of one kind are a survey, but every fifth; and so are results
    of other types than NumPy's.
    """
    for number, (_, name, types, given) in enumerate(CASES):
        rare = ("equivalent" in name and number % 5 > 0) or types in APART
        words = "-".join([name, types, *map(str, given)])
        yield pytest.param(number, on_host, id=f"{words}-host")
        marks = [pytest.mark.survey] if rare else []
        yield pytest.param(number, in_machine, id=f"{words}-machine", marks=marks)


@pytest.mark.parametrize(("number", "product"), list(places()))
def test_numpys_own(monkeypatch: pytest.MonkeyPatch, number: int, product: Callable[..., Any]) -> None:
    kind, name, types, given = CASES[number]
    monkeypatch.setattr(suite, "np", Instead(product))
    own = {"matmul": staticmethod(product), **({"types": types} if types else {})}
    test = getattr(type("Ours", (kind,), own)(), name)
    difference = DIFFERENCES.get((f"{kind.__name__}.{name}", types))
    if difference is None:
        test(*given)
    else:
        with pytest.raises(difference.error):
            test(*given)


def test_all_are_there() -> None:
    """Those of the classes themselves, and as many parameters as they have."""
    named = {(kind.__name__, name) for kind, name, *_ in CASES}
    assert ("MatmulCommon", "test_result_types") in named
    assert ("TestMatmul", "test_dot_equivalent") in named
    assert ("TestMatmulOperator", "test_matmul_raises") in named
    assert set("FD") <= set(TYPES[0])  # complex numbers
    assert sum(name == "test_dot_equivalent" for _, name, *_ in CASES) > 30
