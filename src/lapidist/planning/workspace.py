"""Memory that launches use beside their operands: flags, and partial sums or packed operands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from lapidist.errors import LaunchError
from lapidist.frameworks.arrays import Operand
from lapidist.launch import Memory
from lapidist.problems.matrix import VECTOR_BYTES
from lapidist.schedule.units import FLAG_BYTES, PARTIALS_ALIGNMENT

if TYPE_CHECKING:
    from lapidist.config import Config
    from lapidist.kernels.kernel import Kernel
    from lapidist.planning.plans import Plan
    from lapidist.problems.problem import Problem


def memory_of(operand: Operand, rounded: bool) -> Memory:
    """The memory that a launch may touch. `rounded`: it begins at a multiple of 16 bytes."""
    first, end = operand.span
    start = first // VECTOR_BYTES * VECTOR_BYTES if rounded else first
    return Memory(operand.name, start, end - start, operand.owner)


def scratch_of_groups(kernel: Kernel, problem: Problem, config: Config, blocks: int) -> tuple[int, int]:
    """Bytes of flags and of partial sums where blocks share tiles of groups, each at most one of them. Also
    where each puts sums of its own aside.
    """
    if kernel.family.puts_sums_aside(problem):
        return 0, blocks * kernel.tile_bytes(problem, config)
    if kernel.family.parts_of_tiles(problem, config) == 1:
        return 0, 0
    flags = -(-blocks * FLAG_BYTES // PARTIALS_ALIGNMENT) * PARTIALS_ALIGNMENT
    return flags, kernel.family.tiles_handed_on(problem, blocks) * kernel.tile_bytes(problem, config)


class Scratch:
    """A workspace in host memory for the machine. Flags are zero, partial sums NaN until they are written."""

    def __init__(self, plan: Plan) -> None:
        flags, room = plan.scratch_bytes
        self.flags = np.zeros(flags // 4, np.int32)
        self.partials = np.full(room // 8, np.nan)

    @property
    def addresses(self) -> tuple[int, int]:
        return self.flags.ctypes.data, self.partials.ctypes.data

    @property
    def memory(self) -> tuple[Memory, ...]:
        parts = (("workspace flags", self.flags), ("workspace partial sums", self.partials))
        return tuple(
            Memory(name, array.ctypes.data, array.nbytes, array) for name, array in parts if array.nbytes
        )

    def require_zero_flags(self) -> None:
        """Raise unless all flags are zero, as the next launch relies on it."""
        raised = np.flatnonzero(self.flags)
        if len(raised):
            raise LaunchError(
                f"workspace: flags must be zero after a launch; flag {raised[0]} is {self.flags[raised[0]]}"
            )


def shared_workspace(sizes: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Workspace bytes that serve several plans in turn: of flags, and of what follows them. `sizes`: those of
    each plan. No plan may leave sums where another one has flags.
    """
    listed = list(sizes)
    return max((flags for flags, _ in listed), default=0), max((sums for _, sums in listed), default=0)
