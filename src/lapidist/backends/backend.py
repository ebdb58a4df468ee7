"""The interface of the three places where products run: NumPy on the host, the machine, a GPU; and what they
are given to run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from lapidist.frameworks.arrays import HOST, Operand

if TYPE_CHECKING:
    from lapidist.backends.gpu.launcher import Addresses, GpuKernel
    from lapidist.build.compile_policy import Compiling
    from lapidist.config import Config
    from lapidist.device import Device
    from lapidist.kernels.kernel import Kernel
    from lapidist.launch import Launch, Scalars
    from lapidist.planning.in_kernel_reductions import InKernelWork
    from lapidist.planning.plans import Plan
    from lapidist.planning.second_passes import Pass
    from lapidist.problems.modes import ExtraPointers
    from lapidist.problems.problem import Offsets, Problem
    from lapidist.schedule.sharing_choice import Sharing

NO_WORDS: Mapping[str, Any] = MappingProxyType({})

# ---- what calls bind and prepare ----


class EpilogueArrays(Protocol):
    """What second passes read and store."""

    dtype: str
    sources: list[Operand]
    slots: list[Operand]

    def value_shapes(self, before: InKernelWork) -> list[tuple[int, ...]]: ...
    def place(self, values: Sequence[int], slots: Sequence[int]) -> None: ...
    def passes(self, before: InKernelWork = ...) -> list[tuple[Pass, Operand, tuple[Operand, ...]]]: ...


class BoundProduct(Protocol):
    """The checked operands of a product."""

    a: Operand
    b: Operand
    c: Operand | None
    out: Operand | None

    @property
    def epilogue(self) -> EpilogueArrays | None: ...
    @property
    def alpha_beta(self) -> Scalars: ...
    @property
    def extra_pointers(self) -> ExtraPointers: ...
    @property
    def extras(self) -> tuple[Operand, ...]: ...
    def multiply_on_host(self, out: Operand) -> None: ...


class LaunchOfLists(Protocol):
    """Products of one geometry, which go together."""

    @property
    def problem(self) -> Problem: ...
    @property
    def addresses(self) -> tuple[int, ...]: ...


class BoundLists(Protocol):
    """The checked operands of a list of products."""

    like: Operand
    scalars: Scalars

    @property
    def extras(self) -> tuple[Operand, ...]: ...
    @property
    def launches(self) -> Sequence[LaunchOfLists]: ...
    def calls_of(self, launch: Any) -> Sequence[BoundProduct]: ...
    def on_host(self) -> None: ...


class PreparedPart(Protocol):
    """One launch of a product: a plan, its kernel if it runs on a GPU, and elements to skip."""

    @property
    def plan(self) -> Plan: ...
    @property
    def skipped(self) -> Offsets: ...


class PreparedProduct(Protocol):
    """A product planned for one geometry."""

    is_routed: bool

    @property
    def parts(self) -> Sequence[PreparedPart]: ...
    def start(
        self,
        a: int,
        b: int,
        c: int,
        d: int,
        scalars: Scalars,
        stream: int,
        extra_pointers: ExtraPointers = ...,
        parts: Any = ...,
    ) -> None: ...


class PreparedLists(Protocol):
    """Lists of products that were planned."""

    choice: tuple[Kernel | None, Config | None, Sharing]
    own: Addresses | None
    room: tuple[int, int]
    way: Compiling
    launched: list[Any]


# ---- where they run ----


class Backend(ABC):
    """`chip`: the device that plans are made for, where plans are made."""

    words: str
    chip: Device
    ordinal = HOST  # the GPU's number
    plans = True  # products are planned, and prepared for calls like them
    takes_host_lists = True  # lists of arrays in host memory
    compiles = False  # kernels may be compiled in the background, while others run

    def launch_alone(
        self,
        launch: Launch,
        at: Mapping[str, Operand],
        scalars: Scalars,
        framework: str,
        stream: Any,
        words: Mapping[str, Any] = NO_WORDS,
    ) -> None:
        """Launch a kernel that is no product, on these operands by the names of its parameters. `words`: of
        parameters that are no addresses.
        """
        raise NotImplementedError(f"{self.words} launches nothing")

    @abstractmethod
    def multiply(self, ready: PreparedProduct, bound: BoundProduct, out: Operand, stream: Any) -> None:
        """Run what was prepared on these operands, into `out`."""

    @abstractmethod
    def multiply_lists(self, ready: PreparedLists, batch: BoundLists, stream: Any) -> None:
        """The same for all matrices of lists."""

    def require_choice(self, kernel: Kernel | None, config: Config | None, sharing: Sharing) -> None:
        """A choice that means nothing here is an error."""
        return

    def fits(self, planned: Problem, problem: Problem) -> bool:
        """Whether what was planned for one problem serves the other."""
        return planned == problem

    def available(self, plan: Plan, way: Compiling, final: bool = True) -> Plan:
        """The plan to run now: this one, or one of the same SumOrder whose kernel is compiled. `final`: all
        configs were weighed.
        """
        return plan

    def loaded(self, plan: Plan, workspace: Addresses | None) -> GpuKernel | None:
        """The plan's kernel, on backends that keep kernels between runs; `workspace`: the caller's."""
        return None

    def load_passes(self, epilogue: EpilogueArrays) -> None:
        """Compile the second passes of this epilogue, on backends that keep kernels between runs."""
        return

    def is_captured(self, stream: Any, framework: str) -> bool:
        """Whether launches now become part of a graph."""
        return False
