"""What NumPy on the host, the machine and a GPU have in common: where products run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lapidist.build.waiting import Compiling
from lapidist.config import Config
from lapidist.device import Device
from lapidist.frameworks.arrays import Operand
from lapidist.kernels.row import Kernel
from lapidist.planning.plans import Plan, make_plan
from lapidist.problems.problem import Problem
from lapidist.schedule.sharing import Sharing

if TYPE_CHECKING:
    from lapidist.backends.gpu.launcher import Addresses, GpuKernel
    from lapidist.calls.arguments import Arguments
    from lapidist.calls.lists import ArrayGemm, Listed, Pointed
    from lapidist.calls.prepared import Prepared

KEPT = 256  # plans and kernels of parts of lists


class Backend(ABC):
    """`chip`: what plans are made for. None: there is nothing to plan."""

    words: str
    chip: Device | None
    takes_host_lists = True  # lists of arrays in host memory
    compiles = False  # behind calls, too: what is there may run first

    @abstractmethod
    def multiply(self, ready: Prepared, arguments: Arguments, out: Operand, stream: Any) -> None:
        """What was prepared, on these arguments, into `out`."""

    @abstractmethod
    def multiply_lists(self, ready: ArrayGemm, batch: Listed | Pointed, stream: Any) -> None:
        """The same for all matrices of lists."""

    def available(self, plan: Plan, way: Compiling) -> Plan:
        """What runs now: this plan, or one of the same sums whose kernel is there."""
        return plan

    def loaded(self, plan: Plan, own: Addresses | None) -> GpuKernel | None:
        """The plan's kernel where it is kept between runs; `own`: the caller's workspace."""
        return None

    def is_captured(self, stream: Any, framework: str) -> bool:
        """Whether what is launched now becomes a part of a graph."""
        return False


@lru_cache(maxsize=KEPT)
def plan_for(
    problem: Problem, chip: Device, kernel: Kernel | None, config: Config | None, sharing: Sharing
) -> Plan:
    """Of a part of a list, planned once."""
    return make_plan(problem, chip, kernel, config, sharing)
