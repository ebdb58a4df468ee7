"""The numbers of a repeated call: alpha and beta, factors and an epilogue's operands that are no arrays."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from lapidist.calls.operation import is_array
from lapidist.calls.repeat.scalars import fit_for, scalars_key
from lapidist.calls.repeat.shape import AT_ALPHA, AT_BETA, AT_FACTORS, AT_OPERANDS
from lapidist.launch import Scalars

if TYPE_CHECKING:
    from lapidist.calls.bound import Bound
    from lapidist.epilogues.steps import Function


class Indices(NamedTuple):
    """Indices in the values of a call. An epilogue's operands start at the last."""

    alpha: int
    beta: int
    factors: tuple[int, ...]
    operands: int


OF_MATRICES, WITH_ARRAYS = Indices(0, 1, (), 2), Indices(AT_ALPHA, AT_BETA, AT_FACTORS, AT_OPERANDS)


def is_number(value: Any) -> bool:
    return value is not None and not is_array(value)


class NumbersOf:
    """Called with the values of a call: its scalars and the numbers of its epilogue. None: they ask for
    another problem, or do not fit.
    """

    def __init__(self, bound: Bound, values: Any, function: Function | None = None) -> None:
        """`values`: those of the call that the full path checked."""
        self.at = OF_MATRICES if len(values) == 2 else WITH_ARRAYS
        self.function: Function | None = function
        self.dtype = "" if bound.epilogue is None else bound.epilogue.dtype
        self.indices = [place for place, x in enumerate(values) if is_number(x)]
        self.factors = [(place, values[place]) for place in self.at.factors if is_number(values[place])]
        self.alpha = math.prod(x for _, x in self.factors)
        self.key_of_scalars, self.fit = scalars_key(*bound.alpha_beta), fit_for(bound.accumulator)
        self.kinds = self._kinds(values)
        # of the call that was checked, as a fast path remembers them
        self.first = values if len(values) == 2 else tuple(values[place] for place in self.indices)
        self.first_scalars, self.first_fused = bound.alpha_beta, self.fused(values)

    def __call__(self, values: Any) -> tuple[Scalars, list[float]] | None:
        if self._kinds(values) != self.kinds:
            return None
        scalars = self.scalars(values)
        return None if scalars is None else (scalars, self.fused(values))

    def _kinds(self, values: Any) -> tuple[type, ...]:
        """alpha and beta alone may be of any type of number: the key knows no others."""
        return () if self.at is OF_MATRICES else tuple(type(values[place]) for place in self.indices)

    def scalars(self, values: Any) -> Scalars | None:
        """alpha, times the factors that are numbers, and beta."""
        if any(values[place] != x for place, x in self.factors):
            return None
        at, indices = self.at, self.indices
        of_alpha, of_beta = (values[place] if place in indices else 1.0 for place in (at.alpha, at.beta))
        scalars = of_alpha * self.alpha, of_beta
        return scalars if scalars_key(*scalars) == self.key_of_scalars and self.fit(scalars) else None

    def fused(self, values: Any) -> list[float]:
        """Operands of an epilogue that are numbers."""
        function = self.function
        if function is None:
            return []
        from lapidist.calls.epilogue_values import checked_number

        return [
            checked_number(function, parameter.name, values[place], self.dtype)
            for place, parameter in enumerate(function.parameters, self.at.operands)
            if place in self.indices
        ]
