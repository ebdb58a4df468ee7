"""The interface of the three places where products run: NumPy on the host, the machine, a GPU."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from lapidist.build.compile_policy import Compiling
from lapidist.device import Device
from lapidist.frameworks.arrays import Operand

if TYPE_CHECKING:
    from lapidist.backends.gpu.launcher import Addresses, GpuKernel
    from lapidist.calls.arguments import Arguments
    from lapidist.calls.epilogue_operands import FusedOperands
    from lapidist.calls.executable import Prepared
    from lapidist.calls.lists import ArrayGemm, Listed, Pointed
    from lapidist.planning.plans import Plan


class Backend(ABC):
    """`chip`: the device that plans are made for. None: nothing is planned."""

    words: str
    chip: Device | None
    takes_host_lists = True  # lists of arrays in host memory
    compiles = False  # kernels may be compiled in the background, while others run

    @abstractmethod
    def multiply(self, ready: Prepared, arguments: Arguments, out: Operand, stream: Any) -> None:
        """Run what was prepared on these arguments, into `out`."""

    @abstractmethod
    def multiply_lists(self, ready: ArrayGemm, batch: Listed | Pointed, stream: Any) -> None:
        """The same for all matrices of lists."""

    def available(self, plan: Plan, way: Compiling, final: bool = True) -> Plan:
        """The plan to run now: this one, or one of the same SumOrder whose kernel is compiled. `final`: all
        configs were weighed.
        """
        return plan

    def loaded(self, plan: Plan, own: Addresses | None) -> GpuKernel | None:
        """The plan's kernel, on backends that keep kernels between runs; `own`: the caller's workspace."""
        return None

    def load_passes(self, fused: FusedOperands) -> None:
        """Compile the second passes of this epilogue, on backends that keep kernels between runs."""
        return

    def is_captured(self, stream: Any, framework: str) -> bool:
        """Whether launches now become part of a graph."""
        return False
