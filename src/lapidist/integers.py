"""What counts as a whole number in an argument: Python's integers, and NumPy's."""

from __future__ import annotations

import operator
from typing import Any


def integer(value: Any) -> int | None:
    """The value as Python's integer; None for all else. A flag is no number, though Python counts with it."""
    if type(value) is int:
        return value
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def integer_from(least: int, value: Any) -> int | None:
    """The value as Python's integer, if it is one and not below `least`."""
    number = integer(value)
    return None if number is None or number < least else number
