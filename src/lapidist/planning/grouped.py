"""Whether kernels quantise by themselves what an epilogue has quantised, so that no second pass does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lapidist.planning.plans import Plan


def quantised_before(plans: Iterable[Plan]) -> bool:
    """Whether the kernels of all these make D and its factors."""
    every = [(plan, plan.schedule.cluster if plan.schedule else 1) for plan in plans]
    of_kernels = (plan.kernel.family.quantises(plan.problem, plan.config, peers) for plan, peers in every)
    return bool(every) and all(of_kernels)
