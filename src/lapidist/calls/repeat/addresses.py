"""Addresses of a repeated call: aligned as planned, what is written apart from everything else."""

from __future__ import annotations

from collections.abc import Sequence

from lapidist.frameworks.arrays import Operand

D = 2  # D's index among the arrays of a call, which begin with A and B
C = 3  # C's index, if it is read and is not D
Interval = tuple[int, int]


def pairs_written(count: int, further: int) -> list[tuple[int, int]]:
    """Indices of each array that is written, D and the last ones, and of each other one."""
    written = [D, *range(count - further, count)]
    return [(out, other) for out in written for other in range(count) if out != other]


def forbidden(operands: Sequence[Operand], further: int) -> list[Interval]:
    """For each of `pairs_written`, the open interval of distances in which the two would overlap."""
    return [
        forbidden_distances(operands[out], operands[other])
        for out, other in pairs_written(len(operands), further)
    ]


def forbidden_distances(out: Operand, operand: Operand) -> Interval:
    """The open interval of (out pointer - operand pointer), in bytes, in which the two would overlap."""
    (first, last), (other_first, other_last) = out.span, operand.span
    return (other_first - operand.pointer) - (last - out.pointer), (other_last - operand.pointer) - (
        first - out.pointer
    )
