"""Kernels of parts of lists, planned and loaded once; a better one takes over from one that was there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lapidist.build.waiting import BACKGROUND, WAIT, Compiling
from lapidist.config import Config
from lapidist.kernels.row import Kernel
from lapidist.planning.plans import KEPT, Plan, plan_once
from lapidist.planning.standing import CALLS_BETWEEN, Awaited
from lapidist.problems.problem import Problem
from lapidist.schedule.sharing import Sharing

if TYPE_CHECKING:
    from lapidist.backends.gpu.launcher import Addresses, GpuKernel
    from lapidist.backends.gpu.products import GpuBackend


class Wish(NamedTuple):
    """What lists ask of each part's kernel."""

    kernel: Kernel | None
    config: Config | None
    sharing: Sharing
    own: Addresses | None  # the caller's workspace
    way: Compiling


class PartKernel:
    """The kernel of as many products as a launch takes; None where there is nothing to compute."""

    def __init__(self, plan: Plan, backend: GpuBackend, own: Addresses | None, way: Compiling) -> None:
        self._backend, self._own = backend, own
        first = backend.available(plan, way)
        self.kernel: GpuKernel | None = backend.loaded(first, own)
        stands_in = first is not plan and way == BACKGROUND
        self._wanted = Awaited({plan.asked: plan}, [plan.build]) if stands_in else None
        self.countdown = CALLS_BETWEEN  # of calls, until it is looked at whether something better has come

    @property
    def settled(self) -> bool:
        """Whether nothing better is to come."""
        return self._wanted is None

    def improve(self) -> None:
        """Another call. After so many: take the plan that was wanted, where its kernel has come. What failed
        is not waited for."""
        self.countdown -= 1
        wanted = self._wanted
        if self.countdown > 0 or wanted is None:
            return
        self.countdown = CALLS_BETWEEN
        if wanted.have_come:
            (plan,) = wanted.plans.values()
            self.kernel, self._wanted = self._backend.loaded(plan, self._own), None
        elif wanted.will_not_come:
            self._wanted = None


KERNELS: dict[tuple[Problem, int, Wish], PartKernel] = {}


def kernel_for(problem: Problem, backend: GpuBackend, wish: Wish, captured: bool) -> PartKernel:
    """While a graph is captured nothing changes, and a first call waits for its kernel."""
    key = problem, backend.ordinal, wish
    found = KERNELS.get(key)
    if found is None:
        way = WAIT if captured and wish.way == BACKGROUND else wish.way
        plan = plan_once(problem, backend.chip, wish.kernel, wish.config, wish.sharing)
        found = PartKernel(plan, backend, wish.own, way)
        if len(KERNELS) >= KEPT:
            KERNELS.clear()
        KERNELS[key] = found
    elif not captured and not found.settled:
        found.improve()
    return found
