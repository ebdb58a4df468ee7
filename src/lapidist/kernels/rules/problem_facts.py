"""The facts of a problem that rules depend on. Each is found when it is first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from lapidist.dtypes import TF32, size_of
from lapidist.kernels.family import Family
from lapidist.kernels.tma_alignment import along_k
from lapidist.kernels.wgmma.operands import by_registers, copies_out, transposed_d
from lapidist.problems.matrix import VECTOR_BYTES
from lapidist.problems.problem import Problem


def fragment(math: str) -> tuple[int, int, int]:
    """FM, FN and FK of wmma.cuh."""
    return {"float64": (8, 8, 4), TF32: (16, 16, 8)}.get(math, (16, 16, 16))


class Facts:
    def __init__(self, problem: Problem, family: Family) -> None:
        self.problem, self.family = problem, family

    @cached_property
    def size(self) -> int:
        """Bytes of an element of A or B."""
        return size_of(self.problem.dtype)

    @cached_property
    def out_size(self) -> int:
        return size_of(self.problem.out_dtype)

    @cached_property
    def chunk(self) -> int:
        """Elements in 16 bytes."""
        return VECTOR_BYTES // self.size

    @cached_property
    def macros(self) -> Mapping[str, object]:
        """The macros that the source gets for the problem."""
        return self.family.macros(self.problem)

    @cached_property
    def refusal(self) -> str | None:
        """Why the family does not take the problem, or None."""
        return self.family.refuse(self.problem)

    def macro(self, name: str, otherwise: int = 0) -> int:
        return int(str(self.macros.get(name, otherwise)))

    @cached_property
    def stored_at_once(self) -> int:
        """Elements of D that a thread stores at once. The constant D_VECTOR has the same default."""
        return self.macro("D_VECTOR", VECTOR_BYTES // self.out_size if self.macro("ALIGNED") else 1)

    # ---- for wmma and mma.sync ----

    @cached_property
    def fragment(self) -> tuple[int, int, int]:
        return fragment(self.problem.math)

    @cached_property
    def depth(self) -> int:
        """Elements of k that one mma.sync multiplies, as mma_instructions.cuh counts them."""
        return 8 if self.size == 8 else 32 // self.size

    @cached_property
    def tiles_along_k(self) -> tuple[bool, bool]:
        """Whether tiles of A, and of B, are contiguous along k in shared memory. Rungs have no such macros:
        their operands are row-major.
        """
        return self.macro("A_CONTIGUOUS", 1) != 2, self.macro("B_CONTIGUOUS", 2) != 2

    # ---- for wgmma ----

    @cached_property
    def by_registers(self) -> bool:
        return by_registers(self.problem)

    @cached_property
    def copies_out(self) -> bool:
        return copies_out(self.problem)

    @cached_property
    def transposed_d(self) -> bool:
        return transposed_d(self.problem)

    @cached_property
    def a_along_k(self) -> bool:
        return along_k(self.problem.a, True)


def facts_of(problem: Problem, family: Family) -> Facts:
    """The facts of a problem, found once for all configs."""
    cached = problem.facts
    if family not in cached:
        cached[family] = Facts(problem, family)
    facts: Facts = cached[family]
    return facts
