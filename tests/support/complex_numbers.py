"""Complex matrices of small whole numbers, whose products are exact."""

from __future__ import annotations

from typing import Any

import numpy as np

PLACES = "host", "machine"
Numbers = np.ndarray[Any, Any]


def whole(*shape: int, dtype: Any = np.complex64, seed: int = 0) -> Numbers:
    """Small whole numbers, whose products and sums are exact."""
    rng = np.random.default_rng((seed, *shape))
    return (rng.integers(-4, 5, shape) + 1j * rng.integers(-4, 5, shape)).astype(dtype)


def same(result: Any, right: Any, dtype: Any = np.complex64) -> None:
    assert result.dtype == dtype
    assert np.array_equal(result, right), (result, right)
