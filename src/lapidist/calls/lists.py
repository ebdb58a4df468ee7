"""Batches of matrices that lie anywhere in memory: lists of arrays, or Pointers to matrices of one layout.
BLAS calls these "array" batches.

The addresses of a list are kernel parameters, of 64 products of one geometry a launch. So nothing is
allocated or copied, and a graph can capture the launches. Pointers are read by the kernel.
"""

from __future__ import annotations

from typing import Any

from lapidist.backends.gpu.launcher import Addresses
from lapidist.backends.gpu.list_kernels import PartKernel
from lapidist.backends.selection import backend_at, choose_place
from lapidist.build.compile_policy import BACKGROUND, Compiling, kept_way
from lapidist.calls import argument_rules
from lapidist.calls.bound_lists import Listed, Pointed, batch_of
from lapidist.calls.destination import require_a_kernel, require_choices
from lapidist.calls.executable import require_chip_of, require_no_workspace
from lapidist.calls.kernel_choice import OPEN, Choices
from lapidist.calls.operation import Operation
from lapidist.calls.prepared import of_all
from lapidist.errors import ArgumentError, DTypeError, explained
from lapidist.frameworks.arrays import HOST, Operand
from lapidist.frameworks.streams import require_stream
from lapidist.planning.plans import Plan, plan_once
from lapidist.planning.sum_orders import SumOrder
from lapidist.planning.workspace import shared_workspace
from lapidist.problems.problem import Problem


class ArrayGemm:
    """A planned batch of matrices in lists, as `plan` returns it for lists or Pointers.

    `execute(a, b, c=None, out=None, *, stream=None)` computes out[i] = alpha op(a[i]) op(b[i]) + beta c[i],
    for matrices of the planned shapes, layouts and types.

    Examples
    --------
    >>> import numpy as np
    >>> import lapidist
    >>> a, b = [np.eye(2)] * 3, [np.ones((2, 2))] * 3
    >>> len(lapidist.plan(a, b).execute(a, b))
    3
    """

    def __init__(self, problem: Problem, place: int | str) -> None:
        self.problem, self.place, self.backend = problem, place, backend_at(place)
        self.plans: list[Plan] = []  # of each launch that differs from the others
        self.launched: list[PartKernel] = []  # by the last run on a GPU, one for each launch
        self._workspace: Operand | None = None  # the caller's, kept alive

    def __getstate__(self) -> dict[str, Any]:
        """Pickled and copied without what ran, which belongs to this process."""
        require_no_workspace(self._workspace)
        return {**self.__dict__, "launched": [], "backend": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= {**state, "backend": backend_at(state["place"])}
        require_chip_of(self.plans, self.backend)

    @property
    def plan(self) -> Plan | None:
        """The plan of the first launch; None on the host."""
        return self.plans[0] if self.plans else None

    @property
    def sum_order(self) -> SumOrder | tuple[SumOrder, ...] | None:
        """The order in which k is summed, as Gemm.sum_order."""
        return of_all(self.plans)

    @property
    def workspace_bytes(self) -> int:
        """How large a `workspace` must be that a caller brings."""
        raise NotImplementedError

    def __repr__(self) -> str:
        name = self.plan.kernel.name if self.plan else "NumPy"
        return f"<lapidist.ArrayGemm of {self.problem}, by {name} on {self.backend.words}>"

    def __str__(self) -> str:
        return str(self.plan) if self.plan else f"{self.problem} on the host, by NumPy"

    def execute(self, a: Any, b: Any, c: Any = None, out: Any = None, *, stream: Any = None) -> Any:
        """Run it on other lists, or Pointers, of the geometry that was planned.

        Returns
        -------
        list of arrays, or Pointers
            `out`, or a new list.
        """
        raise NotImplementedError


class ListGemm(ArrayGemm):
    """The products of each geometry in launches of many."""

    def __init__(
        self,
        batch: Listed | Pointed,
        operation: Operation,
        choices: Choices = OPEN,
        way: Compiling | None = None,
    ) -> None:
        """`way`: what a call does while a kernel is not compiled; None: the plan keeps the kernel that it
        starts with.
        """
        super().__init__(batch.problem, choose_place(batch.like.device, choices.device))
        self._operation = operation
        self._geometries = [problem.unaligned() for problem, _ in batch.bundles]
        if batch.no_kernel and self.place != HOST:
            raise DTypeError(batch.no_kernel)
        require_a_kernel(operation.types.invariant, self.place)
        self.choice, self.way = choices.of_kernel, way or kept_way(choices.compile)
        self.own: Addresses | None = None  # where flags and sums start in it
        self.room = 0, 0
        require_choices(choices, self.backend)
        if not self.backend.plans:
            return
        if batch.like.device == HOST and not self.backend.takes_host_lists:
            raise ArgumentError("device: lists of host arrays are not copied to a GPU. Copy them there first")
        problems = dict.fromkeys(launch.problem for launch in batch.launches)
        plans = [plan_once(problem, self.backend.chip, *self.choice) for problem in problems]
        keeps = self.way != BACKGROUND  # else a better kernel may take over later
        self.plans = [self.backend.available(plan, self.way) for plan in plans] if keeps else plans
        self.room = shared_workspace(plan.scratch_bytes for plan in self.plans)
        if choices.workspace is not None:
            workspace = argument_rules.workspace_of(choices.workspace)
            self._workspace = argument_rules.require_workspace(workspace, batch.like, self.workspace_bytes)
            self.own = workspace.pointer, workspace.pointer + self.room[0]

    @property
    def workspace_bytes(self) -> int:
        return sum(self.room)

    def __str__(self) -> str:
        count = len(self._geometries)
        return (
            super().__str__() if count == 1 else f"{count} geometries; the first one is\n{super().__str__()}"
        )

    @explained
    def execute(self, a: Any, b: Any, c: Any = None, out: Any = None, *, stream: Any = None) -> Any:
        batch = batch_of(a, b, c, out, self._operation)
        for problem, numbers in batch.bundles:
            if problem.unaligned() not in self._geometries:
                others = len(self._geometries) - 1
                raise ArgumentError(
                    f"a, b, c, out: must have the geometry that was planned, {self.problem}"
                    f"{f' or one of {others} others' if others else ''}; got {problem} for product"
                    f" {numbers[0]}. Make a new plan"
                )
        return self.run(batch, stream)

    def run(self, batch: Listed | Pointed, stream: Any = None) -> Any:
        """Run it on matrices of the planned geometries."""
        require_stream(stream)
        self.backend.multiply_lists(self, batch, stream)
        return batch.result
