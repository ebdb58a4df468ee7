"""Kernels for parts of lists, planned and loaded once. A better kernel may replace one that was compiled
first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from lapidist.backends.backend import Backend
from lapidist.build.compile_policy import BACKGROUND, WAIT, Compiling
from lapidist.config import Config
from lapidist.kernels.kernel import Kernel
from lapidist.planning.fallback_kernels import CALLS_BETWEEN, Awaited
from lapidist.planning.plans import CACHED_PLANS, Plan, plan_once
from lapidist.problems.problem import Problem
from lapidist.schedule.sharing_choice import Sharing

if TYPE_CHECKING:
    from lapidist.backends.gpu.launcher import Addresses, GpuKernel


class PartChoice(NamedTuple):
    """What lists ask of the kernel of each part."""

    kernel: Kernel | None
    config: Config | None
    sharing: Sharing
    workspace: Addresses | None  # the caller's workspace
    way: Compiling


class PartKernel:
    """The kernel for as many products as one launch takes; None if there is nothing to compute."""

    def __init__(self, plan: Plan, backend: Backend, workspace: Addresses | None, way: Compiling) -> None:
        self.backend, self._workspace = backend, workspace
        first = backend.available(plan, way)
        self.kernel: GpuKernel | None = backend.loaded(first, workspace)
        stands_in = first is not plan and way == BACKGROUND
        self._awaited = Awaited({plan.callers_problem: plan}, [plan.build]) if stands_in else None
        self.countdown = CALLS_BETWEEN  # calls until the next look for a better kernel

    @property
    def settled(self) -> bool:
        """Whether its kernel is final."""
        return self._awaited is None

    def settle(self) -> None:
        """Take the wanted plan now; its kernel is compiled if it is missing."""
        if self._awaited is not None:
            (plan,) = self._awaited.plans.values()
            self.kernel, self._awaited = self.backend.loaded(plan, self._workspace), None

    def improve(self) -> None:
        """Count a call. After enough of them, take the wanted plan if its kernel is compiled, or give it up
        if that failed.
        """
        self.countdown -= 1
        awaited = self._awaited
        if self.countdown > 0 or awaited is None:
            return
        self.countdown = CALLS_BETWEEN
        if awaited.have_come:
            self.settle()
        elif awaited.will_not_come:
            self._awaited = None


KERNELS: dict[tuple[Problem, int, PartChoice], PartKernel] = {}


def kernel_for(
    problem: Problem, backend: Backend, choice: PartChoice, framework: str, stream: Any
) -> PartKernel:
    """The kernel of a part. A graph that is captured keeps the wanted one, so the call waits for it."""
    key = problem, backend.ordinal, choice
    kernel = KERNELS.get(key)
    keeps = choice.way == BACKGROUND and (kernel is None or not kernel.settled)
    keeps = keeps and backend.is_captured(stream, framework)
    if kernel is None:
        plan = plan_once(problem, backend.chip, choice.kernel, choice.config, choice.sharing)
        kernel = PartKernel(plan, backend, choice.workspace, WAIT if keeps else choice.way)
        if len(KERNELS) >= CACHED_PLANS:
            KERNELS.clear()
        KERNELS[key] = kernel
    elif keeps:
        kernel.settle()
    elif not kernel.settled:
        kernel.improve()
    return kernel
