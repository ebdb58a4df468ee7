"""A multiplication planned for one geometry: kernels are chosen and loaded, and replaced where better ones
come.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from lapidist.backends.gpu.launcher import GpuKernel
from lapidist.backends.selection import backend_at
from lapidist.build.compile_policy import BACKGROUND, WAIT, Compiling, kept_way
from lapidist.calls import argument_rules
from lapidist.calls.bound import Bound
from lapidist.calls.destination import output_of, require_choices
from lapidist.calls.kernel_choice import OPEN, Choices
from lapidist.config import Config
from lapidist.errors import ArgumentError
from lapidist.frameworks.arrays import HOST, Operand
from lapidist.frameworks.streams import require_stream
from lapidist.launch import Scalars
from lapidist.planning import background_thread
from lapidist.planning.binaries import at_hand
from lapidist.planning.fallback_kernels import (
    CALLS_BETWEEN,
    Awaited,
    better_than,
    compile_behind,
    planned_at_once,
)
from lapidist.planning.in_kernel_reductions import in_kernel_work
from lapidist.planning.plans import Plan, make_plan
from lapidist.planning.sum_orders import SumOrder
from lapidist.planning.workspace import shared_workspace
from lapidist.problems.modes import NO_POINTERS, PLAIN, ExtraPointers
from lapidist.problems.parts import parts_of
from lapidist.problems.problem import Offsets, Problem


class PlannedPart(NamedTuple):
    """One launch of a multiplication: its plan, its kernel if it runs on a GPU, and the elements to skip in
    A, B, C and D in the plan's order.
    """

    plan: Plan
    kernel: GpuKernel | None
    skipped: Offsets


class Prepared:
    """A multiplication planned for one geometry. It runs on any arrays of that geometry, with any alpha and
    beta of the same problem. It keeps none of the caller's arrays.
    """

    def __init__(
        self,
        bound: Bound,
        place: int | str,
        choices: Choices = OPEN,
        way: Compiling | None = None,
        problem: Problem | None = None,
    ) -> None:
        """`way`: what a call does while a plan's kernel is not compiled; None: the plan keeps the kernel that
        it starts with. `problem`: that of the operands, if it is already known.
        """
        self._begin(
            place,
            bound.problem() if problem is None else problem,
            bound.result_shape,
            bound.out_dtype,
            bound.like.alone(),
        )
        # whether kernels take further pointers beside those of A, B, C and D
        self.is_routed = (
            self.problem.modes != PLAIN or self.problem.scaling.scaled or bound.extra_pointers.fused != ()
        )
        require_choices(choices, self.backend)
        if not self.backend.plans:
            return
        for operand in bound.operands:
            argument_rules.require_aligned_elements(operand)
        self._load(choices, way or kept_way(choices.compile))
        if bound.epilogue is not None:
            self.backend.load_passes(bound.epilogue)

    def _begin(
        self, place: int | str, problem: Problem, shape: tuple[int, ...], out_dtype: str, like: Operand
    ) -> None:
        self.place, self.backend, self.problem = place, backend_at(place), problem
        self.shape, self.out_dtype, self.like = shape, out_dtype, like
        self.is_routed = False
        self.parts: list[PlannedPart] = []
        self._workspace: Operand | None = None  # the caller's
        self._room = 0, 0  # workspace bytes: flags first, then sums and packed operands
        self._awaited: Awaited | None = None  # better plans, whose kernels are being compiled
        self._open = False  # not all configs have been weighed yet
        self._search_started = False  # they will be, in the background
        self.countdown = 0  # calls until the next look for a better plan
        self.was_called = False  # a call used it: the second one makes a fast path

    @classmethod
    def with_rows(cls, other: Prepared, problem: Problem, way: Compiling | None) -> Prepared:
        """The same product with another number of rows. What was checked for `other` holds for it too."""
        ready = cls.__new__(cls)
        ready._begin(other.place, problem, (problem.m, problem.n), other.out_dtype, other.like)
        ready._load(OPEN, way or kept_way(None))
        return ready

    def _load(self, choices: Choices, way: Compiling) -> None:
        """Plan every part, and load the kernels where they run on a GPU."""
        parts, chip = parts_of(self.problem), self.backend.chip
        if len(parts) > 1 and self.problem.modes.of_each:
            raise ArgumentError(
                "gather_a, gather_b, scatter_d: indices of each matrix are for a batch that one launch"
                f" takes, of two dimensions at the most; got {self.problem.batch}. Multiply it in parts, or"
                " pass indices for all"
            )
        at_once = (
            self.backend.compiles and way != WAIT and (choices is OPEN or choices.of_kernel == OPEN.of_kernel)
        )
        best_plans, plans, missing = {}, {}, []
        for problem in dict.fromkeys(part for part, _ in parts):
            quick_plan = planned_at_once(problem, chip) if at_once else None
            final = quick_plan is None or way != BACKGROUND
            self._open |= not final
            plan = best_plans[problem] = quick_plan or make_plan(problem, chip, *choices.of_kernel)
            plans[problem] = self.backend.available(plan, way, final)
            if final and plans[problem] is not plan:
                missing.append(plan.build)
        self._awaited = Awaited(best_plans, missing) if missing else None
        self._take(plans, choices.workspace)

    def _take(self, plans: dict[Problem, Plan], workspace: Any = None) -> None:
        """Use these plans for all parts from now on."""
        flags, room = self._room = shared_workspace(plan.scratch_bytes for plan in plans.values())
        addresses = None
        if workspace is not None:
            operand = self._workspace = argument_rules.workspace_of(workspace)
            argument_rules.require_workspace(operand, self.like, flags + room)
            addresses = operand.pointer, operand.pointer + flags
        kernels = {problem: self.backend.loaded(plan, addresses) for problem, plan in plans.items()}
        launches = []
        for problem, (skip_a, skip_b, *skip_c_d) in parts_of(self.problem):
            plan = plans[problem]
            in_its_order = (skip_b, skip_a) if plan.config.exchanged else (skip_a, skip_b)
            launches.append(PlannedPart(plan, kernels[problem], (*in_its_order, *skip_c_d)))  # type: ignore[arg-type]
        self.parts = launches  # one assignment: other threads may be running these parts
        self.countdown = 1 if self._awaited is None else CALLS_BETWEEN

    # ---- better plans, while calls go on ----

    @property
    def settled(self) -> bool:
        """Whether its plans are final: no better kernel is being compiled, and all configs have been
        weighed.
        """
        return self._awaited is None and not self._open

    def look_for_upgrade(self, kernel: GpuKernel | None) -> int:
        """Called by a fast path after so many launches of `kernel`. Returns how many may follow until the
        next look; 0: the kernel has changed, or the plans are final.
        """
        self.countdown = 0
        self.improve()
        return 0 if self.settled or self.kernel is not kernel else max(1, self.countdown)

    def is_captured(self, stream: Any) -> bool:
        """Whether a graph will keep what is launched on this stream."""
        return self.backend.is_captured(stream, self.like.framework)

    def settle(self) -> None:
        """Take the best plans now, and compile what is missing: whoever keeps a kernel keeps the best one."""
        plans = {part.plan.callers_problem: part.plan for part in self.parts}
        if self._open:
            plans = {problem: better_than(plan) or plan for problem, plan in plans.items()}
        elif self._awaited is not None:
            plans = self._awaited.plans
        self._take({problem: self.backend.available(plan, WAIT) for problem, plan in plans.items()})
        self._awaited, self._open = None, False

    def improve(self) -> None:
        """Count a call. After enough of them, take the wanted plans if their kernels are compiled, or look
        for better plans. Kernels that failed to compile are given up.
        """
        self.countdown -= 1
        if self.countdown > 0:
            return
        self.countdown, awaited = CALLS_BETWEEN, self._awaited
        if awaited is None:
            self._look_for_better()
            return
        if awaited.have_come:
            self._awaited = None
            self._take(awaited.plans)
        elif awaited.will_not_come:
            self._awaited = None

    def _look_for_better(self) -> None:
        """Weigh all configs once, in the background."""
        if self._open and not self._search_started:
            self._search_started = True
            background_thread.ask(self._weigh_all)

    def _weigh_all(self) -> None:
        """Find the best plans. If they beat those in use, have their kernels compiled."""
        try:
            current = {part.plan.callers_problem: part.plan for part in self.parts}
            best = {problem: better_than(plan) or plan for problem, plan in current.items()}
            if best != current:
                missing = [plan for plan in best.values() if not at_hand(*plan.build)]
                for plan in missing:
                    compile_behind(plan)
                self._awaited = Awaited(best, [plan.build for plan in missing])
        finally:
            self._open = False

    @property
    def plan(self) -> Plan | None:
        """The plan that is launched, or the first one if a batch takes several launches. None on the host."""
        return self.parts[0].plan if self.parts else None

    @property
    def kernel(self) -> GpuKernel | None:
        """The kernel on the GPU, if a single launch does everything."""
        return self.parts[0].kernel if len(self.parts) == 1 else None

    @property
    def config(self) -> Config | None:
        """The tile shapes; None on the host, where NumPy decides."""
        return self.plan.config if self.plan else None

    @property
    def sum_order(self) -> SumOrder | tuple[SumOrder, ...] | None:
        """The order in which k is summed: plans of one order give equal bits. A tuple if the launches differ
        in it; None on the host, where NumPy decides.
        """
        return of_all(part.plan for part in self.parts)

    @property
    def workspace_bytes(self) -> int:
        """How large a `workspace` must be that a caller brings."""
        return sum(self._room)

    @property
    def direct(self) -> bool:
        """Whether a fast path may hand pointers straight to the kernel: GPU arrays of a framework with
        streams.
        """
        of_streams = self.like.device != HOST and self.like.framework in ("torch", "cupy")
        return of_streams and self.kernel is not None and not self.is_routed

    def __str__(self) -> str:
        if self.plan is None:
            return f"{self.shape} {self.problem.types} on the host, by NumPy"
        several = (
            f"\n  in {len(self.parts)} launches, the first of which is shown" if len(self.parts) > 1 else ""
        )
        results = self.problem.fused.function.results if self.problem.fused else ()
        followed = results[2:] if results and in_kernel_work([self.plan]).quantised else results
        passes = passes_named([result.then for result in followed if result.then])
        return str(self.plan) + several + passes

    def start(
        self,
        a: int,
        b: int,
        c: int,
        d: int,
        scalars: Scalars,
        stream: int,
        extra_pointers: ExtraPointers = NO_POINTERS,
        parts: list[PlannedPart] | None = None,
    ) -> None:
        """Launch on these pointers, which must keep the planned geometry and alignment. `parts`: launches to
        use in place of the current ones.
        """
        a_size, b_size, c_size, d_size = self.problem.element_bytes
        for plan, kernel, skipped in self.parts if parts is None else parts:
            if kernel is not None:
                first, second = plan.caller_order(a, b)
                skip_a, skip_b, skip_c, skip_d, *of_epilogue = skipped
                first, second = first + a_size * skip_a, second + b_size * skip_b
                operands = first, second, c + c_size * skip_c, d + d_size * skip_d
                if self.is_routed:
                    kernel.start_with(
                        plan.call_parameters(extra_pointers, of_epilogue), stream, scalars, operands
                    )
                else:
                    kernel.start(operands, scalars, stream)

    def run(self, bound: Bound, stream: Any = None) -> Any:
        """The full path: any device, checked operands."""
        require_stream(stream)
        result, target = output_of(bound)
        if self._workspace is not None:
            argument_rules.require_no_overlap(target, self._workspace)
        self.backend.multiply(self, bound, target, stream)
        return bound.deliver(result)


def passes_named(then: list[str]) -> str:
    """One line about the kernels that follow a product for its epilogue."""
    if not then:
        return ""
    from lapidist.epilogues.passes import kernel_of

    return f"\n  behind it: {', '.join(dict.fromkeys(map(kernel_of, then)))}, as the epilogue asks"


def of_all(plans: Iterable[Plan]) -> SumOrder | tuple[SumOrder, ...] | None:
    """The sum order that all plans share, or a tuple of those that occur. None without plans."""
    orders = tuple(dict.fromkeys(plan.sum_order for plan in plans))
    return orders if len(orders) > 1 else next(iter(orders), None)
