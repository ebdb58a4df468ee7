"""Rows of A that arrive while the kernel runs, as shards of other ranks do (gemm/wgmma/arrivals.cuh).

rows     | chunk 0 | chunk 1 | chunk 2 | chunk 3 |
flags      [0]       [step]    [2 step]  [3 step]      set by whoever writes the chunk, after it
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arrivals:
    """`flags`: the address of the first chunk's, which is not 0 once its rows are there. `report`: that of 8
    bytes which the host sees too. A kernel that waited for `limit` nanoseconds writes there which flag it
    missed, counted from 1, and goes on.
    """

    flags: int
    report: int
    limit: int
    rows: int  # of a chunk
    step: int = 1  # flags from one chunk's to the next one's

    @property
    def members(self) -> tuple[int, int, int, int, int]:
        """arrivals.cuh's struct Arrivals."""
        return self.flags, self.report, self.limit, self.rows, self.step
