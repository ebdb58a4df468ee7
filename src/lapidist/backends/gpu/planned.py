"""A plan made ready for a GPU: its launch, with the order of tiles for this chip."""

from __future__ import annotations

from dataclasses import replace

from lapidist.backends.gpu.launcher import Addresses, GpuKernel
from lapidist.backends.gpu.placement import order_of
from lapidist.errors import LaunchError
from lapidist.planning.plans import Plan


def kernel_of(plan: Plan, ordinal: int, workspace: Addresses | None = None) -> GpuKernel:
    """The loaded kernel. If the driver refuses what the cache had, it is compiled again, once."""
    launch = plan.common_launch(plan.binary, {"order": order_of(plan, ordinal)})
    try:
        return GpuKernel(launch, ordinal, workspace)
    except LaunchError:
        return GpuKernel(replace(launch, binary=plan.recompiled()), ordinal, workspace)
