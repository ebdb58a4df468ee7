"""The part of an epilogue's reductions and quantisation that kernels do, so that second passes need not."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lapidist.planning.plans import Plan


class InKernelWork(NamedTuple):
    """`quantised`: the kernel computes D and its factors, so no pass does. `joined`: the kernel reduces 16
    rows of a column, or 16 columns of a row.
    """

    quantised: bool = False
    joined: bool = False


NOTHING = InKernelWork()
EVERY = [InKernelWork(*flags) for flags in product((False, True), repeat=2)]


def in_kernel_work(plans: Iterable[Plan]) -> InKernelWork:
    """The work that the kernels of all these plans do."""
    plans = list(plans)
    if not plans:
        return NOTHING
    return InKernelWork(
        all(quantises(plan) for plan in plans),
        all(plan.kernel.family.joins_values(plan.problem) for plan in plans),
    )


def quantises(plan: Plan) -> bool:
    peers = plan.schedule.cluster if plan.schedule else 1
    return plan.kernel.family.quantises(plan.problem, plan.config, peers)
