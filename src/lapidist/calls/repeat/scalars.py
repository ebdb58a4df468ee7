"""alpha and beta of a repeated call: what a kernel depends on, and whether they fit its type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lapidist.backends.gpu.launcher import Scalars
from lapidist.backends.host_backend import LEAST, MOST
from lapidist.dtypes import number_type

# exact types: a subclass may change what comparison means
NUMBERS: frozenset[Any] = frozenset((int, float, np.float16, np.float32, np.float64, np.int32, np.int64))
MOST_WHOLE = 2**31 - 1
Fit = Callable[[Scalars], bool]


def asked_of(alpha: Any, beta: Any) -> tuple[bool, bool, bool]:
    """What a problem depends on: alpha = 0 reads no A and B, alpha = 1 multiplies nothing, beta = 0 reads no
    C.
    """
    return alpha == 0, alpha == 1, beta == 0


def fit_for(accumulator: str) -> Fit:
    """A test whether alpha and beta surely neither overflow nor round to zero in the type that kernels
    take.
    """
    whole = number_type(accumulator).kind in "iu"
    return whole_fit if whole else floats_fit


def whole_fit(scalars: Scalars) -> bool:
    return all(abs(x) <= MOST_WHOLE and x == int(x) for x in scalars)


def floats_fit(scalars: Scalars) -> bool:
    alpha, beta = scalars
    return (alpha == 0 or LEAST < abs(alpha) < MOST) and (beta == 0 or LEAST < abs(beta) < MOST)
