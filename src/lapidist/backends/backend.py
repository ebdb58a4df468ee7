"""What NumPy on the host, the machine and a GPU have in common: where products run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from lapidist.build.waiting import Compiling
from lapidist.device import Device
from lapidist.frameworks.arrays import Operand

if TYPE_CHECKING:
    from lapidist.backends.gpu.launcher import Addresses, GpuKernel
    from lapidist.calls.arguments import Arguments
    from lapidist.calls.fused import FusedOperands
    from lapidist.calls.lists import ArrayGemm, Listed, Pointed
    from lapidist.calls.prepared import Prepared
    from lapidist.planning.plans import Plan


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

    def load_passes(self, fused: FusedOperands) -> None:
        """What follows a product of that epilogue is compiled, where kernels are kept between runs."""
        return

    def is_captured(self, stream: Any, framework: str) -> bool:
        """Whether what is launched now becomes a part of a graph."""
        return False
