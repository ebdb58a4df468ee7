"""Factors of A and B, and whether sums leave the tensor core every 128 of k: what models use with 8-bit
floats.

`Scaling` is part of the Problem, and what its kernel is compiled for. `ExtraPointers` (modes.py) hold the
addresses of factors. factors.cuh is the device side.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

K_BLOCK = 128  # elements of k that share a factor, and after which sums are promoted
NO, ONE, LINES, STRIPS, SQUARES = range(5)  # the same numbers as in factors.cuh
WORDS = ("", "one factor", "a factor a line", "factors by 1 x 128", "factors by 128 x 128")


class Scale(NamedTuple):
    """The factors of one operand. Strides in elements: to the next row of A or column of B (or 128 of them),
    to the next 128 of k, and to those of the next group.
    """

    kind: int = NO
    line_step: int = 0
    block_step: int = 0
    group_step: int = 0

    @property
    def along_k(self) -> bool:
        return self.kind in (STRIPS, SQUARES)


UNSCALED = Scale()


@dataclass(frozen=True, slots=True)
class Scaling:
    a: Scale = UNSCALED
    b: Scale = UNSCALED
    promoted: bool = False

    @property
    def scaled(self) -> bool:
        return bool(self.a.kind or self.b.kind)

    def transposed(self) -> Scaling:
        """The scaling of D' = B' A'."""
        return replace(self, a=self.b, b=self.a)

    def defines(self) -> dict[str, object]:
        """The macros of factors.cuh. Plain problems get none, so that their binaries are shared."""
        factors = {"A_FACTORS": self.a.kind, "B_FACTORS": self.b.kind} if self.scaled else {}
        return {**factors, **({"PROMOTED": 1} if self.promoted else {})}

    @property
    def members(self) -> tuple[int, ...]:
        """factors.cuh's struct Scales, with zeros in place of addresses."""
        return (0, 0, self.a.line_step, self.a.block_step, self.b.line_step, self.b.block_step)

    def __str__(self) -> str:
        words = [
            f"{letter} with {WORDS[scale.kind]}"
            for letter, scale in (("A", self.a), ("B", self.b))
            if scale.kind
        ]
        return ", ".join([*words, *(["sums promoted"] if self.promoted else [])])


AS_THEY_ARE, PROMOTED = Scaling(), Scaling(promoted=True)
