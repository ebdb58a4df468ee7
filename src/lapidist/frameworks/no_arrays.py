"""What to pass in place of a value that is no array."""

from __future__ import annotations

from typing import Any


def array_instead(value: Any, name: str) -> str:
    """What to pass in place of a value that is no array."""
    if name == "out":
        results = ", or a tuple of them where an epilogue has several results" if type(value) is tuple else ""
        return f"Pass the array that takes the result{results}"
    if value is None:
        return "Pass one, or leave the argument out if it may be"
    if isinstance(value, (int, float, complex)) and name in ("a", "b"):
        return (
            "A factor is alpha= of gemm, or array * number; sizes alone are planned by `lapidist plan --mnk`"
        )
    return "Wrap it with numpy.asarray first"
