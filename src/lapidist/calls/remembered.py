"""Fast paths and prepared multiplications of earlier calls, remembered for later ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

FastPath = Callable[..., Any]  # a fast path; it returns None if the full path must check the call
REMEMBERED_LIMIT = 4096  # entries of each dictionary; a program that exceeds it starts over
PREPARED: dict[Any, Any] = {}  # Prepared, by problem, device, choices and framework
# by the key of repeat/shape.py:
MATRIX_PATHS: dict[Any, FastPath] = {}  # fast paths of matrices alone
ROWS: dict[Any, Any] = {}  # NewRows, for products with new rows
ARRAY_PATHS: dict[Any, Any] = {}  # fast paths of calls with arrays apart from a, b, c and out
LISTS: dict[Any, FastPath] = {}  # fast paths of lists of matrices


def remember(entries: dict[Any, Any], key: Any, value: Any) -> None:
    if len(entries) >= REMEMBERED_LIMIT:
        entries.clear()
    entries[key] = value


@cache
def with_arrays() -> Any:
    """Imported by the first call that needs it, so that other processes start sooner."""
    from lapidist.calls.repeat import with_arrays

    return with_arrays
