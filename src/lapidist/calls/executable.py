"""Plans that a caller holds: `lapidist.plan` returns a Gemm, or an ArrayGemm for lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lapidist.backends.backend import Backend
from lapidist.calls.bound import Bound
from lapidist.calls.destination import place_for, require_kernel
from lapidist.calls.kernel_choice import OPEN, Choices
from lapidist.calls.prepared import Prepared
from lapidist.calls.repeat.fast_path import FastPath, fast_path, fast_path_on_host
from lapidist.errors import ArgumentError, DeviceError, explained
from lapidist.frameworks.arrays import Operand
from lapidist.planning.plans import Plan
from lapidist.problems.parts import parts_of

# what a plan has beside its plans and kernels
DECIDED = ("place", "problem", "shape", "out_dtype", "is_routed", "scalars", "_operation")


def require_no_workspace(workspace: Operand | None) -> None:
    """Of a plan that is pickled or copied: two of them would use the same flags."""
    if workspace is not None:
        raise ArgumentError(
            "workspace: a plan that was given one is neither copied nor pickled, as it belongs to one plan;"
            f" got {workspace.shape}. Plan again with another, or without"
        )


def require_chip_of(plans: Iterable[Plan], backend: Backend) -> None:
    for plan in plans:
        if backend.chip != plan.device:
            raise DeviceError(
                f"plan: runs where it was planned for, on {plan.device.name}; got one here on"
                f" {backend.chip.name}. Plan again here"
            )


class Gemm(Prepared):
    """A planned multiplication, as `plan` returns it.

    Its first `execute` checks every rule. On torch tensors the next ones only look whether anything but
    the memory changed. Arrays of factors, indices, alpha and beta belong to the plan.

    Examples
    --------
    >>> import numpy as np
    >>> import lapidist
    >>> a, b = np.ones((8, 4), np.float32), np.ones((4, 8), np.float32)
    >>> lapidist.plan(a, b).execute(a, 2 * b)[0]
    array([8., 8., 8., 8., 8., 8., 8., 8.], dtype=float32)
    """

    def __init__(self, bound: Bound, choices: Choices = OPEN) -> None:
        super().__init__(bound, place_for(bound, choices), choices)
        self._operation, self.scalars = bound.operation, bound.alpha_beta
        self._fast_path: FastPath | None = None
        self._path_with_arrays: Callable[[Any, Any, Any, Any, Any], Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickled and copied as what was decided. Kernels are loaded again, and fast paths made again."""
        require_no_workspace(self._workspace)
        problems = [problem for problem, _ in parts_of(self.problem)] if self.parts else []
        plans = {problem: part.plan for problem, part in zip(problems, self.parts, strict=True)}
        state = {name: self.__dict__[name] for name in DECIDED}
        return {**state, "like": self.like.alone(), "plans": plans}

    def __setstate__(self, state: dict[str, Any]) -> None:
        begun = (state[name] for name in ("place", "problem", "shape", "out_dtype", "like"))
        self._begin(*begun)  # type: ignore[arg-type]
        self.__dict__ |= {name: state[name] for name in DECIDED}
        self._fast_path = self._path_with_arrays = None
        require_chip_of(state["plans"].values(), self.backend)
        if state["plans"]:
            self._take(state["plans"])

    def __repr__(self) -> str:
        """One line; str() adds the reasons."""
        name = self.plan.kernel.name if self.plan else "NumPy"
        return (
            f"<lapidist.Gemm {self.problem}, by {name}{f' {self.config}' if self.config else ''} on"
            f" {self.backend.words}>"
        )

    def execute(self, a: Any, b: Any, c: Any = None, out: Any = None, *, stream: Any = None) -> Any:
        """Run it on other arrays of the geometry that was planned.

        Parameters
        ----------
        a, b, c, out : arrays
            With the shapes, strides, types and alignment of those that were planned.
        stream : stream or int, optional

        Returns
        -------
        array
            `out`, or a new one.
        """
        fast_path = self._fast_path
        if fast_path is not None:
            result = fast_path(a, b, c, out, self.scalars, stream)
        else:
            result = self.execute_repeated(a, b, c, out, stream)
        if result is not None:
            return result
        return self.run_checked(self.checked(a, b, c, out), a, b, c, out, stream)

    def execute_repeated(self, a: Any, b: Any, c: Any, out: Any, stream: Any) -> Any:
        """The fast path of calls with arrays apart from the matrices. None: the full path must check the
        call.
        """
        return None if self._path_with_arrays is None else self._path_with_arrays(a, b, c, out, stream)

    @explained
    def checked(self, a: Any, b: Any, c: Any, out: Any) -> Bound:
        """The operands, after every rule was checked. Their problem must be the planned one."""
        bound = Bound(a, b, c, out, self._operation)
        require_kernel(bound, self.place)
        if bound.result_shape != self.shape or not self.backend.fits(self.problem, bound.problem()):
            raise ArgumentError(
                f"a, b, c, out: must have the geometry that was planned, {self.problem}; got"
                f" {bound.problem()} (type, shape, strides or alignment differ). Make a new plan"
            )
        return bound

    @explained
    def run_checked(self, bound: Bound, a: Any, b: Any, c: Any, out: Any, stream: Any) -> Any:
        """Run it, and make the fast path of the next call."""
        result, planned = self.run(bound, stream), self.backend.plans
        if not self.is_routed:
            self._fast_path = fast_path(self, bound, keeps=True) if planned else fast_path_on_host(bound)
        elif not self._operation.routing.check_indices:  # else each execution looks at the indices
            from lapidist.calls.repeat.with_arrays import Executed, fast_path_of_plan

            call = Executed(a, b, c, out, self._operation)
            self._path_with_arrays = fast_path_of_plan(self if planned else None, bound, call, result)
        return result
