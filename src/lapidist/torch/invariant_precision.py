"""invariant=True on its way through torch's operators: behind their precision."""

from __future__ import annotations

from typing import Any

import torch

from lapidist.calls.argument_rules import require_precision
from lapidist.calls.operation import FREE, INVARIANT, is_invariant


def with_invariance(precision: Any, invariant: bool | None) -> Any:
    """What operators are passed as precision. A graph that is being compiled leaves it to each run what block
    is around it.
    """
    if not isinstance(precision, str):
        require_precision(precision)
    if invariant is None and torch.compiler.is_compiling():
        return precision
    if is_invariant(invariant):
        return precision + INVARIANT
    return precision if invariant is None else precision + FREE


def summed_freely(precision: str) -> str:
    """The precision of a product that sums over rows: invariant=True says nothing of it."""
    return precision.partition(",")[0]
