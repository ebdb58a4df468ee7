"""Factors of 8-bit floats in every form that is taken, for tests on any place."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
FORMS = ("number", "one", "line", "lines", "strips", "squares")
PAIRS = (
    ("number", "one"),
    ("one", "line"),
    ("lines", "number"),
    ("line", "lines"),
    ("strips", "squares"),
    ("strips", "strips"),
    ("squares", "strips"),
    ("strips", "line"),
)


def factors(
    rng: np.random.Generator, form: str, lines: int, k: int, of_b: bool = False, whole: bool = False
) -> Any:
    """Between 1/4 and 4: powers of two, or anything."""
    blocks = -(-k // 128)
    shapes = {"number": (), "one": (1,), "line": (lines,), "lines": (lines, 1), "strips": (lines, blocks)}
    shape = shapes.get(form, (-(-lines // 128), blocks))
    values = 2.0 ** (rng.integers(-2, 3, shape) if whole else rng.uniform(-2, 2, shape))
    if form == "number":
        return float(values)
    made = np.asarray(values, np.float32)
    return np.ascontiguousarray(made.T) if of_b and made.ndim == 2 else made
