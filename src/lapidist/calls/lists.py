"""Batches of matrices that lie anywhere in memory, all of one layout: lists of arrays, or Pointers. BLAS
calls these "array" batches.

The addresses of a list are kernel parameters, 64 products a launch. So nothing is allocated or copied, and a
graph can capture the launch. Pointers are read by the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lapidist.backends.gpu.launcher import Addresses
from lapidist.backends.gpu.list_kernels import PartKernel
from lapidist.backends.selection import backend_at, choose_place
from lapidist.build.compile_policy import BACKGROUND, Compiling, kept_way
from lapidist.calls import argument_rules
from lapidist.calls.bound import Bound
from lapidist.calls.destination import output_of, require_choices
from lapidist.calls.executable import require_chip_of, require_no_workspace
from lapidist.calls.kernel_choice import OPEN, Choices
from lapidist.calls.list_overlap import require_disjoint_calls
from lapidist.calls.operation import Operation
from lapidist.calls.part import with_alignment
from lapidist.calls.prepared import of_all
from lapidist.errors import ArgumentError, DTypeError, ShapeError, explained
from lapidist.frameworks.arrays import HOST, Operand
from lapidist.frameworks.new_arrays import handed_over
from lapidist.frameworks.streams import require_stream
from lapidist.launch import ARRAYS_AT_ONCE
from lapidist.planning.plans import Plan, plan_once
from lapidist.planning.sum_orders import SumOrder
from lapidist.planning.workspace import shared_workspace
from lapidist.problems.modes import IN_LAUNCH, IN_MEMORY, Modes
from lapidist.problems.pointers import Pointers
from lapidist.problems.problem import GRID_BATCH_LIMIT, Problem


class ArrayGemm:
    """A planned batch of matrices in lists, as `plan` returns it for lists or Pointers.

    `execute(a, b, c=None, out=None, *, stream=None)` computes out[i] = alpha op(a[i]) op(b[i]) + beta c[i],
    for as many matrices as were planned, of one shape, one layout and one type.

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
        self.plans: list[Plan] = []  # for a full launch, and for a last one with fewer products
        self.launched: list[PartKernel] = []  # by the last run on a GPU, one for each part
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
    """All products in launches of many each."""

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
        if batch.no_kernel and self.place != HOST:
            raise DTypeError(batch.no_kernel)
        self.choice, self.way = choices.of_kernel, way or kept_way(choices.compile)
        self.own: Addresses | None = None  # where flags and sums start in it
        self.room = 0, 0
        require_choices(choices, self.backend)
        if not self.backend.plans:
            return
        if batch.like.device == HOST and not self.backend.takes_host_lists:
            raise ArgumentError("device: lists of host arrays are not copied to a GPU. Copy them there first")
        problems = dict.fromkeys(batch.part(start)[0] for start in range(0, batch.count, batch.at_once))
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

    @explained
    def execute(self, a: Any, b: Any, c: Any = None, out: Any = None, *, stream: Any = None) -> Any:
        batch = batch_of(a, b, c, out, self._operation)
        problem = batch.problem
        if problem.unaligned() != self.problem.unaligned():
            rule = f"must have the geometry that was planned, {self.problem}"
            raise ArgumentError(f"a, b, c, out: {rule}; got {problem}. Make a new plan")
        return self.run(batch, stream)

    def run(self, batch: Listed | Pointed, stream: Any = None) -> Any:
        """Run it on matrices of the planned geometry."""
        require_stream(stream)
        self.backend.multiply_lists(self, batch, stream)
        return batch.result


def batch_of(a: Any, b: Any, c: Any, out: Any, operation: Operation) -> Listed | Pointed:
    """The checked batch: all lists of arrays or all Pointers, of one length."""
    require_lists(a, b, c, {"out": out})
    return Pointed(a, b, c, out, operation) if isinstance(a, Pointers) else Listed(a, b, c, out, operation)


def require_lists(a: Any, b: Any, c: Any, outputs: dict[str, Any]) -> None:
    """Either all are lists or all are Pointers."""
    arguments = {"a": a, "b": b, "c": c, **outputs}
    for name, values in arguments.items():
        require_list_of_arrays(name, values)
    kind, words = (Pointers, "Pointers") if isinstance(a, Pointers) else ((list, tuple), "a list of arrays")
    for name, values in arguments.items():
        if (values is not None or name == "b") and not isinstance(values, kind):
            raise ArgumentError(
                f"{name}: must be {words}, as a is; got {type(values).__name__}. Call gemm for one product"
            )


def require_list_of_arrays(name: str, values: Any) -> None:
    """A nested list of numbers is one array to NumPy, so it is not taken for a list of matrices."""
    first = values[0] if isinstance(values, (list, tuple)) and values else None
    if isinstance(first, (int, float, complex, list, tuple)):
        raise ArgumentError(
            f"{name}: gemm takes a list for a batch of matrices, each an array; got a list of"
            f" {type(first).__name__}s. Make one array of it with numpy.asarray"
        )


def require_as_many(counts: dict[str, int]) -> int:
    for name, count in counts.items():
        if count != counts["a"]:
            raise ShapeError(
                f"{name}: must have as many arrays as a, {counts['a']}; got {count}. Pass one for each"
                " product"
            )
    return counts["a"]


class Listed:
    """Lists of arrays. Without `out`, new arrays are allocated."""

    at_once = ARRAYS_AT_ONCE
    extras: tuple[Operand, ...] = ()

    def __init__(
        self,
        a: Sequence[Any],
        b: Sequence[Any],
        c: Sequence[Any] | None,
        out: Sequence[Any] | None,
        operation: Operation,
    ) -> None:
        arguments = {
            "a": a,
            "b": b,
            **({"c": c} if c is not None else {}),
            **({"out": out} if out is not None else {}),
        }
        self.count = require_as_many({name: len(values) for name, values in arguments.items()})
        self.calls = []
        for i in range(self.count):
            call = Bound(a[i], b[i], c[i] if c else None, out[i] if out else None, operation)
            if call.out is None:
                call.out = output_of(call)[1]
            self.calls.append(call)
        self.like, self.problem = self.calls[0].like, common_problem(self.calls)
        self.scalars = self.calls[0].alpha_beta
        self.no_kernel, self._is_new = self.calls[0].no_kernel, not out
        if out:
            require_disjoint_calls(self.calls)

    @property
    def result(self) -> list[Any]:
        written = [call.deliver(call.out.owner) for call in self.calls if call.out is not None]
        return [handed_over(array, self.like) for array in written] if self._is_new else written

    def listed(self, start: int) -> Sequence[Bound]:
        return self.calls[start : start + self.at_once]

    def part(self, start: int) -> tuple[Problem, tuple[int, ...]]:
        """The problem of one launch, and its addresses of A, B, C and D, each list padded to its
        full length.
        """
        rows, calls = [], self.listed(start)
        for call in calls:
            assert call.out is not None
            factors = (call.b, call.a) if self.problem.transposed else (call.a, call.b)
            rows.append(
                [*(operand.pointer for operand in factors), (call.c or call.out).pointer, call.out.pointer]
            )
        padding = (0,) * (self.at_once - len(rows))
        addresses = tuple(address for column in zip(*rows, strict=True) for address in (*column, *padding))
        return in_a_batch(self.problem, len(calls)), addresses

    def on_host(self) -> None:
        for call in self.calls:
            assert call.out is not None
            call.multiply_on_host(call.out)


class Pointed:
    """Pointers. Their checks and problem come from an Bound of matrices that stand for one product."""

    at_once = GRID_BATCH_LIMIT

    def __init__(
        self, a: Pointers, b: Pointers, c: Pointers | None, out: Pointers | None, operation: Operation
    ) -> None:
        if out is None:
            raise ArgumentError(
                "out: must be given where matrices are given by their addresses; got None. Pass Pointers to"
                " write to"
            )
        self._pointers, self._operation, self.result = (
            (a, b, c if operation.beta else None, out),
            operation,
            out,
        )
        arguments = {
            name: matrix
            for name, matrix in zip(("a", "b", "c", "out"), self._pointers, strict=True)
            if matrix is not None
        }
        if operation.routing.check_indices:
            for name, matrix in arguments.items():
                matrix.check(name)
        self._lists = {name: matrix.list_of(name) for name, matrix in arguments.items()}
        self.count = require_as_many({name: matrix.shape[0] for name, matrix in self._lists.items()})
        self.like = self._lists["a"]
        matrices = {
            name: matrix.matrix(name, number) for number, (name, matrix) in enumerate(arguments.items(), 1)
        }
        if c is out and "c" in matrices:
            matrices["c"] = matrices["out"]
        call = Bound(matrices["a"], matrices["b"], matrices.get("c"), matrices["out"], operation)
        self.problem = replace(call.problem(), modes=Modes(arrays=IN_MEMORY))
        self.no_kernel, self.scalars = call.no_kernel, call.alpha_beta

    @property
    def extras(self) -> tuple[Operand, ...]:
        """The arrays of addresses, which the kernel reads."""
        return tuple(self._lists.values())

    def listed(self, start: int) -> Sequence[Bound]:
        """The matrices at the addresses, where these lie in host memory."""
        names, part = ("a", "b", "c", "out"), slice(start, start + self.at_once)
        a, b, c, out = (
            None if x is None else x.on_host(name)[part]
            for name, x in zip(names, self._pointers, strict=True)
        )
        assert a is not None
        assert b is not None
        return Listed(a, b, c, out, self._operation).calls

    def part(self, start: int) -> tuple[Problem, tuple[int, ...]]:
        """The problem of one launch, and where its addresses of A, B, C and D start."""
        a, b, out = (self._lists[name] for name in ("a", "b", "out"))
        first, second = (b, a) if self.problem.transposed else (a, b)
        lists = first, second, self._lists.get("c", out), out
        return in_a_batch(self.problem, min(self.count - start, self.at_once)), tuple(
            addresses.pointer + 8 * start for addresses in lists
        )

    def on_host(self) -> None:
        for start in range(0, self.count, self.at_once):
            for call in self.listed(start):
                assert call.out is not None
                call.multiply_on_host(call.out)


def in_a_batch(problem: Problem, count: int) -> Problem:
    return problem.with_batch((count,), [(0,)] * len(problem.matrices()))


def require_one_place(calls: Sequence[Bound]) -> None:
    """All products lie where the first one does. Each call was checked by itself."""
    first = replace(calls[0].a, name="a[0]")
    for number, call in enumerate(calls):
        argument_rules.require_same_device(replace(call.a, name=f"a[{number}]"), first)


def require_alike(problems: Sequence[Problem]) -> None:
    """All problems are equal, apart from their alignment."""
    for number, problem in enumerate(problems):
        if problem.unaligned() != problems[0].unaligned():
            raise ShapeError(
                "a, b, c, out: must have the same shapes, strides and types in each product; number 0 is"
                f" {problems[0]}, number {number} is {problem}. Sort them into lists of their own"
            )
    if problems[0].batch:
        raise ShapeError(
            f"a, b: lists are of matrices; got batches of {problems[0].batch}. Call gemm for each of them"
        )


def common_problem(calls: Sequence[Bound]) -> Problem:
    """The problem of each product, with the alignment that all of them have."""
    require_one_place(calls)
    problems = [call.problem() for call in calls]
    require_alike(problems)
    bits = min(matrix.alignment for problem in problems for matrix in problem.matrices())
    common = replace(with_alignment(problems[0], bits), modes=Modes(arrays=IN_LAUNCH))
    return replace(common, in_place=all(problem.in_place for problem in problems))
