"""Products on the host, by NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lapidist.backends.backend import Backend, BoundLists, BoundProduct, PreparedLists, PreparedProduct
from lapidist.config import AUTO
from lapidist.errors import ArgumentError
from lapidist.frameworks.arrays import Operand

if TYPE_CHECKING:
    from lapidist.config import Config
    from lapidist.kernels.kernel import Kernel
    from lapidist.problems.problem import Problem
    from lapidist.schedule.sharing_choice import Sharing


class HostBackend(Backend):
    """NumPy decides how to multiply, so nothing is planned; the operands are converted for it."""

    words, plans = "the host", False

    def multiply(self, ready: PreparedProduct, bound: BoundProduct, out: Operand, stream: Any) -> None:
        bound.multiply_on_host(out)

    def multiply_lists(self, ready: PreparedLists, batch: BoundLists, stream: Any) -> None:
        batch.on_host()

    def fits(self, planned: Problem, problem: Problem) -> bool:
        """Alignment does not matter."""
        return planned == problem or planned.unaligned() == problem.unaligned()

    def require_choice(self, kernel: Kernel | None, config: Config | None, sharing: Sharing) -> None:
        """Kernel, config and schedule mean nothing here, so a caller who names one gets an error."""
        if kernel is not None:
            raise ArgumentError(
                f'kernel: host arrays are multiplied by NumPy; got {kernel.name}. Add device="machine" or'
                ' device="gpu" to run it'
            )
        if config is not None:
            raise ArgumentError(
                f"config: belongs to a kernel, and host arrays are multiplied by NumPy; got {config}. Add"
                " device= and kernel="
            )
        if sharing.asked_for:
            name = "schedule" if sharing.split_k == AUTO else "split_k"
            raise ArgumentError(
                f"{name}: the blocks of a kernel share work, and host arrays are multiplied by NumPy; got"
                ' split_k or a schedule. Add device="machine" or device="gpu"'
            )
