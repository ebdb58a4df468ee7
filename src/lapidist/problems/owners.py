"""Rows of D that are stored at their owners, other ranks for instance (gemm/wgmma/owners.cuh).

rows of D | owner 0's | owner 1's | owner 2's |
            to addresses[0], [1] and [2]: a matrix each, with lines as far apart as D's
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Owners:
    """`addresses`: where the rows of each owner go. D itself is not written."""

    addresses: tuple[int, ...]
    rows: int  # of an owner; the last one may have fewer
    first: int = 0  # the owner whose rows are computed first

    @property
    def parameter(self) -> tuple[str, str]:
        """owners.cuh's struct Owners, by name and kind."""
        return "owners", f"owners{len(self.addresses)}"
