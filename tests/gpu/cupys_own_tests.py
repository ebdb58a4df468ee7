"""CuPy's own tests of products, on a GPU, with ours in place of its products of complex numbers.

    git clone --depth 1 --branch v14.2.0 https://github.com/cupy/cupy      # the version that is installed
    python tests/gpu/cupys_own_tests.py cupy/tests

CuPy's wheel has no tests, so its repository has to lie somewhere. Further options are pytest's. Products of
real numbers stay CuPy's, and so do those that are refused here. The last lines count both.
"""

from __future__ import annotations

import operator
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy
import pytest

import lapidist
from lapidist.errors import LapidistError

FILES = "linalg_tests/test_product.py", "linalg_tests/test_einsum.py", "math_tests/test_matmul.py"
LEAST = 300  # products of ours: of some 9,000 complex ones, most have types that do not meet on a GPU
Product = Callable[..., Any]


def dot(a: Any, b: Any, out: Any = None) -> Any:
    return lapidist.matmul(a, b, out) if b.ndim <= 2 else NotImplemented


def vdot(a: Any, b: Any) -> Any:
    """A product of two columns, of which the first one is transposed and conjugated."""
    return lapidist.gemm(a.reshape(-1, 1), b.reshape(-1, 1), trans_a="C").reshape(())


def inner(a: Any, b: Any) -> Any:
    """Over the last dimensions."""
    if 0 in (a.ndim, b.ndim):
        return NotImplemented
    rows = (x.reshape(-1, x.shape[-1]) for x in (a, b))
    return lapidist.gemm(*rows, trans_b=True).reshape((*a.shape[:-1], *b.shape[:-1]))


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    return lapidist.tensordot(a, b, axes)


def einsum(*operands: Any, out: Any = None) -> Any:
    return lapidist.einsum(*operands, out=out)


PRODUCTS: dict[str, Product] = {
    "matmul": lapidist.matmul,
    "dot": dot,
    "vdot": vdot,
    "inner": inner,
    "tensordot": tensordot,
    "einsum": einsum,
}


class Counts:
    """How often products were ours, by function; and how often they were refused, by the words."""

    def __init__(self) -> None:
        self.ours, self.refused = Counter[str](), Counter[str]()

    def instead(self, name: str, cupys: Product, product: Product) -> Product:
        def called(*operands: Any, **options: Any) -> Any:
            arrays = [operand for operand in operands if isinstance(operand, cupy.ndarray)]
            is_complex = any(array.dtype.kind == "c" for array in arrays)
            if len(arrays) == 2 and is_complex and options.keys() <= {"out", "axes"}:
                try:
                    result = product(*operands, **options)
                except (LapidistError, TypeError) as error:  # TypeError: matmul's axes, which we do not have
                    self.refused[f"{name}: {type(error).__name__}, {str(error).partition(':')[0]}"] += 1
                else:
                    if result is not NotImplemented:
                        self.ours[name] += 1
                        return result
            return cupys(*operands, **options)

        return called


class Operators:
    """What tests take from Python's module operator, with another matmul."""

    def __init__(self, matmul: Product) -> None:
        self.matmul = matmul

    def __getattr__(self, name: str) -> Any:
        return getattr(operator, name)


class InTests:
    """A plugin of pytest that gives CuPy's modules our operator @."""

    def __init__(self, matmul: Product) -> None:
        self.operators = Operators(matmul)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        modules: set[Any] = {item.module for item in session.items if isinstance(item, pytest.Function)}
        for module in modules:
            if hasattr(module, "operator"):
                module.operator = self.operators


def main() -> int:
    if len(sys.argv) < 2 or not Path(sys.argv[1], "cupy_tests").is_dir():
        raise SystemExit(f"usage: {sys.argv[0]} CUPY/tests [OPTIONS OF PYTEST]\n\n{__doc__}")
    root, counts = Path(sys.argv[1]).resolve(), Counts()
    for name, product in PRODUCTS.items():
        setattr(cupy, name, counts.instead(name, getattr(cupy, name), product))
    files = [str(root / "cupy_tests" / name) for name in FILES]
    own = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        f"--rootdir={root}",
    ]  # not our settings of pytest
    code = pytest.main([*own, *files, *sys.argv[2:]], plugins=[InTests(cupy.matmul)])
    print("\nours:", ", ".join(f"{name} {count}" for name, count in counts.ours.most_common()) or "none")
    for words, count in counts.refused.most_common():
        print(f"refused: {count} x {words}")
    if counts.ours.total() < LEAST:
        print(f"fewer than {LEAST} products were ours")
        return 1
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
