"""The work of an epilogue's second passes that kernels do themselves."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lapidist.planning.plans import Plan


class Before(NamedTuple):
    """`quantised`: the kernel makes D and its factors, so no pass does. `joined`: it reduces 16 rows of a
    column, or 16 columns of a row.
    """

    quantised: bool = False
    joined: bool = False


NOTHING = Before()
EVERY = [Before(*flags) for flags in product((False, True), repeat=2)]


def made_before(plans: Iterable[Plan]) -> Before:
    """What the kernels of all these plans do."""
    every = [(plan, plan.kernel.family, plan.schedule.cluster if plan.schedule else 1) for plan in plans]
    if not every:
        return NOTHING
    return Before(
        all(family.quantises(plan.problem, plan.config, peers) for plan, family, peers in every),
        all(family.joins_values(plan.problem) for plan, family, _ in every),
    )
