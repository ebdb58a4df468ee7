"""Few bytes that each rank has for others, sent by a launch that meets them (cuda/exchange/send_terms.cu)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import gcd
from typing import Any, NamedTuple

from lapidist.backends.selection import backend_at, choose_place
from lapidist.build.compiler import compile_kernel
from lapidist.dtypes import TYPES, accumulators_of
from lapidist.frameworks.arrays import Operand, operand_of
from lapidist.frameworks.new_arrays import torch_dtype
from lapidist.launch import AS_IT_IS, Launch, ParameterBlock
from lapidist.planning.widening_pass import overlaps_on

THREADS, VECTOR_BYTES = 512, 16
BLOCKS = 64  # of each launch, as flags are those of blocks
BYTES = "uint8"  # in which rows travel


class Sending(NamedTuple):
    """Where ranks meet. `flags`: the address of each rank's first one; `calls`: of this rank's counts of
    calls, one for each block. `reports`: 8 bytes for each rank, which are `missed` once it was missed for
    `limit` nanoseconds. `operands`: what the machine must know of these addresses.
    """

    rank: int
    flags: tuple[int, ...]
    reports: int
    limit: int
    calls: int
    missed: int
    operands: Mapping[str, Operand]

    def parameter(
        self, outgoing: Sequence[Operand], rooms: Sequence[Operand], element_bytes: int
    ) -> tuple[int, ...]:
        """send_terms.cu's struct Sending. `rooms`: bytes of two calls at each rank."""
        half = rooms[0].shape[0] // 2 // element_bytes
        where = self.reports, self.limit, self.calls
        pointers = (operand.pointer for operand in (*outgoing, *rooms))
        return (*pointers, *self.flags, *where, half, half // len(rooms), self.missed, self.rank)


def in_bytes(tensor: Any) -> Any:
    """The bytes of a contiguous one."""
    return tensor.view(-1).view(torch_dtype(BYTES))


def send_and_add(
    terms: Sequence[Any], out: Any, rooms: Sequence[Any], sending: Sending, by_tree: bool, device: Any
) -> None:
    """The sum of all ranks' terms for this one. `terms`: this rank's for each."""
    send(terms, out, None, rooms, sending, by_tree, device)


def send_and_gather(
    rows: Any, factors: Any, outs: Sequence[Any], rooms: Sequence[Any], sending: Sending, device: Any
) -> None:
    """All ranks' bytes, one rank after the other; `factors`: a second tensor of them, or none."""
    ranks = len(rooms)
    outgoing = [rows, rows if factors is None else factors, *[rows] * (ranks - 2)]
    send(outgoing, outs[0], outs[1] if factors is not None else None, rooms, sending, False, device)


def send(
    outgoing: Sequence[Any],
    out: Any,
    factors: Any,
    rooms: Sequence[Any],
    sending: Sending,
    by_tree: bool,
    device: Any,
) -> None:
    result, ranks = operand_of(out, "out"), len(rooms)
    sources = [operand_of(array, f"what rank {rank} gets") for rank, array in enumerate(outgoing)]
    destinations = [operand_of(room, f"the room of rank {rank}") for rank, room in enumerate(rooms)]
    gathered = result.dtype == BYTES
    count = out.numel() // (ranks if gathered else 1)
    factor_count = 0 if factors is None else factors.numel() // ranks
    element_bytes = TYPES[result.dtype].nbytes
    sizes = [
        *(operand.pointer for operand in (result, *sources)),
        count * element_bytes,
        factor_count * element_bytes,
    ]
    operands = {
        "D": result,
        **{operand.name: operand for operand in (*sources, *destinations)},
        **sending.operands,
    }
    words: dict[str, Any] = {"sending": sending.parameter(sources, destinations, element_bytes)}
    if factors is not None:
        operands["factors"] = operand_of(factors, "factors")
        sizes.append(operands["factors"].pointer)
    together = gcd(VECTOR_BYTES, *sizes) // element_bytes
    backend = backend_at(choose_place(result.device, device))
    how = backend.chip.architecture, backend.compiles
    launch = sent(result.dtype, ranks, together, by_tree, gathered, count, factor_count, *how)
    backend.launch_alone(launch, operands, AS_IT_IS, result.framework, None, words)


@lru_cache(maxsize=256)
def sent(
    dtype: str,
    ranks: int,
    together: int,
    by_tree: bool,
    gathered: bool,
    count: int,
    factor_count: int,
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
        "GATHERED": int(gathered),
        "OVERLAPS": int(overlaps_on(architecture)),
    }
    binary = compile_kernel("exchange/send_terms.cu", "send_terms", knobs, architecture, assembled=assembled)
    parameters = ParameterBlock(
        [
            ("sending", f"sending{ranks}"),
            ("D", "pointer"),
            ("count", "i64"),
            ("factors", "pointer"),
            ("factor_count", "i64"),
        ]
    )
    content = bytes(parameters.pack({"count": count, "factor_count": factor_count}))
    grid, block = (BLOCKS, 1, 1), (THREADS, 1, 1)
    # A block waits for that of its number at each peer: all of them run at once.
    return Launch(
        binary,
        grid,
        block,
        content,
        cooperative=True,
        overlaps=overlaps_on(architecture),
        parameters=parameters,
        patches=parameters.patches(),
    )
