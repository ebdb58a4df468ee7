"""NumPy's own tests of einsum and of linear algebra, over complex numbers, with our products in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy._core.tests.test_einsum as of_einsum
import numpy.linalg._linalg as linear_algebra
import numpy.linalg.tests.test_linalg as of_linear_algebra
import pytest

import lapidist
from lapidist.errors import LapidistError

COMPLEX = np.complex64, np.complex128
Calls = list[str]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Complex products become ours; a subclass, and what is no product of two, stays NumPy's. What was ours
    is listed.
    """
    ours: Calls = []

    def instead(name: str, numpys: Callable[..., Any], product: Callable[..., Any]) -> Callable[..., Any]:
        def called(*operands: Any, **options: Any) -> Any:
            arrays = [operand for operand in operands if type(operand) is np.ndarray]
            if len(arrays) == 2 and all(array.dtype in COMPLEX for array in arrays):
                try:
                    result = product(*operands, **options)
                except LapidistError:
                    return numpys(*operands, **options)
                ours.append(name)
                return result
            return numpys(*operands, **options)

        return called

    def einsum(*operands: Any, out: Any = None, **options: Any) -> Any:
        return lapidist.einsum(*operands, out=out)  # in its own type, and order

    matmul, dot = (instead(name, getattr(np, name), lapidist.matmul) for name in ("matmul", "dot"))
    for module in (linear_algebra, of_linear_algebra):
        monkeypatch.setattr(module, "matmul", matmul)
        monkeypatch.setattr(module, "dot", dot)
    monkeypatch.setattr(of_einsum, "np", Instead(instead("einsum", np.einsum, einsum)))
    return ours


class Instead:
    """NumPy with another einsum."""

    def __init__(self, einsum: Callable[..., Any]) -> None:
        self.einsum = einsum

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


@pytest.mark.parametrize("name", ["test_einsum_sums_cfloat64", "test_einsum_sums_cfloat128"])
def test_sums_of_einsum(calls: Calls, name: str) -> None:
    getattr(of_einsum.TestEinsum(), name)()
    assert calls.count("einsum") > 100


def linear_cases() -> Iterator[Any]:
    """Stacks of matrices by every method are many more products of the same kind: a survey."""
    suite = of_linear_algebra
    for kind in (suite.TestPinv, suite.TestPinvHermitian, suite.TestSVD, suite.TestEighCases):
        for name in dir(kind):
            if name.startswith("test_") and name.endswith("_cases"):
                many = "generalized" in name and kind in (suite.TestPinv, suite.TestSVD)
                marks = [pytest.mark.survey] if many else []
                yield pytest.param(kind, name, id=f"{kind.__name__}-{name}", marks=marks)


@pytest.mark.often(2)
@pytest.mark.parametrize(("kind", "name"), list(linear_cases()))
def test_decompositions(calls: Calls, kind: type, name: str) -> None:
    getattr(kind(), name)()
    assert "matmul" in calls or "empty" in name


@pytest.mark.parametrize("letter", "FD")
def test_powers(calls: Calls, letter: str) -> None:
    kind = of_linear_algebra.TestMatrixPower
    for name in dir(kind):
        if name.startswith("test_") and "exceptions" not in name:
            getattr(kind(), name)(np.dtype(letter))
    assert calls.count("matmul") > 100


def test_chains(calls: Calls) -> None:
    """NumPy's multi_dot, which its tests give real numbers alone."""
    rng = np.random.default_rng(0)
    shapes = (6, 2), (2, 6), (6, 3), (3, 4)
    a, b, c, d = (rng.integers(-3, 4, shape) * (1 - 2j) for shape in shapes)
    for chain, right in (([a, b], a @ b), ([a, b, c], a @ b @ c), ([a, b, c, d], a @ b @ c @ d)):
        out = np.zeros_like(right)
        assert linear_algebra.multi_dot(chain, out=out) is out
        assert np.array_equal(out, right)
    assert calls == ["dot"] * 6
