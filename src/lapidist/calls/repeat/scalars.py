"""alpha and beta of a repeated call: what a kernel depends on, and whether they fit its type."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from lapidist.backends.host_at_once import LEAST, MOST
from lapidist.dtypes import number_type
from lapidist.launch import Scalars

if TYPE_CHECKING:
    from lapidist.calls.bound import Bound

# exact types: a subclass may change what comparison means
NUMBERS: frozenset[Any] = frozenset((int, float, np.float16, np.float32, np.float64, np.int32, np.int64))
LARGEST_INTEGER = 2**31 - 1
Fit = Callable[[Scalars], bool]


def scalars_key(alpha: Any, beta: Any) -> tuple[bool, bool, bool]:
    """What a problem depends on: alpha = 0 reads no A and B, alpha = 1 multiplies nothing, beta = 0 reads no
    C.
    """
    return alpha == 0, alpha == 1, beta == 0


def fit_for(accumulator: str) -> Fit:
    """A test whether alpha and beta surely neither overflow nor round to zero in the type that kernels
    take.
    """
    is_integer = number_type(accumulator).kind in "iu"
    return integers_fit if is_integer else floats_fit


def integers_fit(scalars: Scalars) -> bool:
    return all(abs(x) <= LARGEST_INTEGER and x == int(x) for x in scalars)


def floats_fit(scalars: Scalars) -> bool:
    alpha, beta = scalars
    return (alpha == 0 or LEAST < abs(alpha) < MOST) and (beta == 0 or LEAST < abs(beta) < MOST)


def is_repeatable(key: Any, bound: Bound) -> bool:
    """Whether the key tells the problem. An alpha that rounds to 0 or 1 in the sums' type asks for another
    problem than the next alpha with the same key.
    """
    operation = bound.operation
    return key is not None and scalars_key(operation.alpha, operation.beta) == scalars_key(*bound.alpha_beta)
