"""What a call asks for beside its arrays: the same for each product of a batch, and for each run of a
plan.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lapidist.epilogues.tracing import Given


def is_array(value: object) -> bool:
    """An array, where a number could be: alpha, beta and factors."""
    return hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, np.generic)


class Types(NamedTuple):
    """The types that a caller asks for, by name; None takes the default of the operands' types."""

    out_dtype: str | None = None
    accumulator: str | None = None
    precision: str = "ieee"
    promote: bool | None = None


class Routing(NamedTuple):
    """Where rows and columns come from and go to; `check_indices` is for addresses too."""

    gather_a: Any = None
    gather_b: Any = None
    scatter_d: Any = None
    permuted: bool = False
    check_indices: bool = False

    @property
    def any(self) -> bool:
        return self.permuted is not False or any(each is not None for each in self[:3])


class Factors(NamedTuple):
    """What a caller gave as scale_a and scale_b."""

    a: Any = None
    b: Any = None

    @property
    def any(self) -> bool:
        return self.a is not None or self.b is not None


USUAL_TYPES = Types()


class Operation(NamedTuple):
    """`vectors`: one dimension stands for a row or a column, as matmul has it. `alpha` and `beta` as the
    caller gave them.
    """

    trans_a: bool = False
    trans_b: bool = False
    vectors: bool = False
    alpha: Any = 1.0
    beta: Any = 0.0
    types: Types = USUAL_TYPES
    routing: Routing = Routing()
    factors: Factors = Factors()
    epilogue: Given | None = None

    @property
    def routed(self) -> bool:
        """Whether strides and two numbers do not say it all."""
        return self.routing.any or is_array(self.alpha) or is_array(self.beta)

    @property
    def is_plain(self) -> bool:
        """Whether nothing but a, b, c and out lies in memory."""
        return not (self.routed or self.factors.any or self.epilogue is not None)
