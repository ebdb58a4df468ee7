"""Sums of all ranks' terms by a launch that meets the other ranks itself (cuda/exchange/add_terms.cu)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from lapidist.backends.selection import backend_at, choose_place
from lapidist.build.compiler import compile_kernel
from lapidist.dtypes import TYPES, accumulators_of
from lapidist.frameworks.arrays import Operand, operand_of
from lapidist.launch import AS_IT_IS, MOST_OWNERS, Launch, ParameterBlock

THREADS, VECTOR_BYTES = 256, 16
SUMMED = ("float16", "bfloat16", "float32", "float64", "int32")


class Meeting(NamedTuple):
    """Flags by which ranks meet. `flags`: the address of each rank's first one. `arrived` and `free` count
    from there to those that rank 0 sets; `step`: to the next rank's. `reports`: 8 bytes for each rank, which
    are not 0 once it was missed for `limit` nanoseconds. `done`: a counter of blocks. `operands`: what the
    machine must know of these addresses.
    """

    rank: int
    flags: tuple[int, ...]
    reports: int
    limit: int
    done: int
    arrived: int
    free: int
    step: int
    operands: Mapping[str, Operand]

    def parameter(self, terms: Sequence[Operand]) -> tuple[int, ...]:
        """add_terms.cu's struct Meeting."""
        where = self.reports, self.limit, self.done
        numbers = self.rank, self.arrived, self.free, self.step
        return (*(term.pointer for term in terms), *self.flags, *where, *numbers)


def takes(dtype: str, ranks: int) -> bool:
    return dtype in SUMMED and ranks <= MOST_OWNERS


def add_terms(terms: Sequence[Any], out: Any, meeting: Meeting, by_tree: bool, device: Any) -> None:
    """Arrays of one shape, whose elements touch."""
    to = operand_of(out, "out")
    operands = [operand_of(term, f"the term of rank {rank}") for rank, term in enumerate(terms)]
    backend = backend_at(choose_place(to.device, device))
    count = out.numel()
    together = VECTOR_BYTES // TYPES[to.dtype].nbytes
    if any(operand.pointer % VECTOR_BYTES for operand in (to, *operands)):
        together = 1
    how = backend.chip.sms, backend.chip.architecture, backend.compiles
    launch = adding(to.dtype, len(terms), together, by_tree, count, *how)
    at = {"D": to, **{operand.name: operand for operand in operands}, **meeting.operands}
    words = {"meeting": meeting.parameter(operands)}
    backend.launch_alone(launch, at, AS_IT_IS, to.framework, None, words)


@lru_cache(maxsize=256)
def adding(
    dtype: str,
    ranks: int,
    together: int,
    by_tree: bool,
    count: int,
    multiprocessors: int,
    architecture: str,
    assembled: bool = True,
) -> Launch:
    knobs = {
        "THREADS": THREADS,
        "Term": TYPES[dtype].c_type,
        "Sum": TYPES[accumulators_of(dtype)[0]].c_type,
        "RANKS": ranks,
        "BY_TREE": int(by_tree),
        "TOGETHER": together,
    }
    binary = compile_kernel("exchange/add_terms.cu", "add_terms", knobs, architecture, assembled=assembled)
    parameters = ParameterBlock([("meeting", f"meeting{ranks}"), ("D", "pointer"), ("count", "i64")])
    blocks = max(1, min(-(-count // (together * THREADS)), multiprocessors))
    content = bytes(parameters.pack({"count": count}))
    grid, block = (blocks, 1, 1), (THREADS, 1, 1)
    return Launch(binary, grid, block, content, parameters=parameters, patches=parameters.patches())
