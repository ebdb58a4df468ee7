"""Parts of formulas that take plain numbers as well as columns. For a single product NumPy's calls would take
longer than the sums do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray


def larger(a: Any, b: Any) -> Any:
    if a.__class__ is Array or b.__class__ is Array:
        return np.maximum(a, b)
    return a if a > b else b


def smaller(a: Any, b: Any) -> Any:
    if a.__class__ is Array or b.__class__ is Array:
        return np.minimum(a, b)
    return a if a < b else b


def where(condition: Any, then: Any, otherwise: Any) -> Any:
    """Both values are always computed."""
    if condition.__class__ is Array:
        return np.where(condition, then, otherwise)
    return then if condition else otherwise


def some(condition: Any) -> bool:
    return bool(np.count_nonzero(condition) if condition.__class__ is Array else condition)
