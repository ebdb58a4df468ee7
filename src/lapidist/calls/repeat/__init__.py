"""Repeated calls: what is compared with the call before, and what is launched if only numbers have changed.

`shape` is the key under which a fast path is found. `guard` tells whether arrays are the same again, and
torch records nothing. `addresses` has alignment and overlap, `scalars` whether alpha and beta fit, `upgrade`
whether a better kernel has come, `start` the launch. `write` makes one function of them all, and `fast_path`
puts them together.
The fast paths and the prepared multiplications of earlier calls are remembered here.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from lapidist.errors import not_in_graphs

FastPath = Callable[..., Any]  # a fast path; it returns None if the full path must check the call
REMEMBERED_LIMIT = 4096  # entries of each dictionary; a program that exceeds it starts over
PREPARED: dict[Any, Any] = {}  # Prepared, by problem, device, choices and framework
# by the key of shape.py:
MATRIX_PATHS: dict[Any, FastPath] = {}  # fast paths of matrices alone
ROWS: dict[Any, Any] = {}  # NewRows, for products with new rows
ARRAY_PATHS: dict[Any, Any] = {}  # fast paths of calls with arrays apart from a, b, c and out
LISTS: dict[Any, FastPath] = {}  # fast paths of lists of matrices
SYMMETRIC: dict[Any, str] = {}  # the triangle of products whose one launch leaves a symmetric D
EMULATED: dict[Any, bool] = {}  # emulated products that came once; the second call makes a fast path


def remember(entries: dict[Any, Any], key: Any, value: Any) -> None:
    if len(entries) >= REMEMBERED_LIMIT:
        entries.clear()
    entries[key] = not_in_graphs("matmul")(value) if isinstance(value, FunctionType) else value
