"""What a rank does in the ways that write to other ranks' memory, as plain values.

A rank waits for flags in its memory alone, and sets flags in others'. Who waits for a flag clears it, once
what it waited for is used. Flags are of one buffer, one peer and one part of what it sends: "arrived" says
that the part is there, "free" that the peer has read what it was sent, "summed" that a part of the peer's
sums is there to be read. All "free" flags are set at first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

Stream = Literal["products", "copies"]
Action = Literal["multiply", "await", "copy", "push", "pull", "wait", "clear", "signal", "add", "meet"]
Flag = Literal["arrived", "free", "summed"]
Way = Literal["collective", "chunks", "push", "waiting", "slots", "tiles", "one_shot"]


class Step(NamedTuple):
    """`peer`: whose part is multiplied, to whom a shard is pushed, or with whom a flag is shared. "await"
    multiplies the shards of peers from this one on, up to `end`, by kernels that wait for flags themselves.
    "meet" adds all terms by a kernel that sets and clears the flags itself.
    """

    stream: Stream
    action: Action
    peer: int
    flag: Flag | None = None
    part: int = 0
    end: int = 0


def peers_after(rank: int, ranks: int) -> list[int]:
    return [(rank + distance) % ranks for distance in range(1, ranks)]


def pushes(rank: int, ranks: int, parts: int = 1) -> list[Step]:
    """Copies of this rank's shard to all others. They go round the ring backwards, so that the shard that a
    rank multiplies next is the next to arrive.
    """
    steps = []
    for peer in reversed(peers_after(rank, ranks)):
        steps.append(Step("copies", "wait", peer, "free"))
        for part in range(parts):
            steps.append(Step("copies", "push", peer, part=part))
            if part == 0:  # the peer sets it again once it has all parts
                steps.append(Step("copies", "clear", peer, "free"))
            steps.append(Step("copies", "signal", peer, "arrived", part))
    return steps


def gather_steps(rank: int, ranks: int) -> list[Step]:
    """The shard that this rank has is multiplied first, while copies push it to the others."""
    steps = [Step("products", "multiply", rank), *pushes(rank, ranks)]
    for peer in peers_after(rank, ranks):
        steps.append(Step("products", "wait", peer, "arrived"))
        steps.append(Step("products", "multiply", peer))
        steps.append(Step("products", "clear", peer, "arrived"))
        steps.append(Step("products", "signal", peer, "free"))
    return steps


def waiting_steps(rank: int, ranks: int, parts: int = 1, together: bool = False) -> list[Step]:
    """One product of all shards, `together`; or this rank's shard first, where it lies, and then those that
    follow it in order of ranks, and those before it. Kernels wait for the parts that their tiles need.
    """
    steps = pushes(rank, ranks, parts)
    if together:
        steps += [Step("products", "copy", rank), Step("products", "await", 0, end=ranks)]
    else:
        steps.append(Step("products", "multiply", rank))
        bounds = (rank + 1, ranks), (0, rank)
        steps += [Step("products", "await", first, end=end) for first, end in bounds if first < end]
    return steps + freed(rank, ranks)


def scatter_steps(
    rank: int, ranks: int, at_once: bool = False, parts: int = 1, shared: bool = False
) -> list[Step]:
    """Products of others' rows are stored to this rank's slot at their owner. The rows that this rank owns
    come last, and then the sum of all slots in the order of ranks. `at_once`: both in one product. `shared`:
    all ranks read a part of the sums while their owner goes on with the next.
    """
    steps = []
    for peer in peers_after(rank, ranks):
        steps.append(Step("products", "wait", peer, "free"))
        steps.append(Step("products", "multiply", peer))
        steps.append(Step("products", "clear", peer, "free"))
        steps.append(Step("products", "signal", peer, "arrived"))
    for part in range(parts):
        if not at_once:
            steps.append(Step("products", "multiply", rank, part=part))
        if part == 0:
            steps += [
                Step("products", "wait", peer, "arrived") for peer in reversed(peers_after(rank, ranks))
            ]
        steps.append(Step("products", "add", rank, part=part))
        if shared:
            steps += [Step("products", "signal", peer, "summed", part) for peer in peers_after(rank, ranks)]
    steps += freed(rank, ranks)
    return [*steps, *pulls(rank, ranks, parts)] if shared else steps


def pulls(rank: int, ranks: int, parts: int) -> list[Step]:
    """Copies of all ranks' sums. An owner writes the next ones to the same memory once it has all terms of
    the next call, which peers send behind these copies: no flag says that sums were read.
    """
    steps = [Step("products", "copy", rank)]
    for part in range(parts):
        for peer in peers_after(rank, ranks):
            steps.append(Step("copies", "wait", peer, "summed", part))
            steps.append(Step("copies", "clear", peer, "summed", part))
            steps.append(Step("copies", "pull", peer, part=part))
    return steps


def stored_once_steps(rank: int, ranks: int, meets: bool = False) -> list[Step]:
    """One product, whose tiles are stored to the memory of those who own its rows, who add them. Of one_shot
    a rank stores all of it to its own memory, and adds all ranks' terms where they lie. A call ends when all
    peers have read what this rank stored. `meets`: one kernel does what follows the product.
    """
    others, multiply = peers_after(rank, ranks), Step("products", "multiply", rank)
    if meets:
        return [multiply, Step("products", "meet", rank)]
    return [
        multiply,
        *(Step("products", "clear", peer, "free") for peer in others),
        *(Step("products", "signal", peer, "arrived") for peer in others),
        *(Step("products", "wait", peer, "arrived") for peer in others),
        Step("products", "add", rank),
        *freed(rank, ranks),
        *(Step("products", "wait", peer, "free") for peer in others),
    ]


def freed(rank: int, ranks: int) -> list[Step]:
    """What peers sent was used: its flags are cleared before they may be set again."""
    steps = []
    for peer in peers_after(rank, ranks):
        steps.append(Step("products", "clear", peer, "arrived"))
        steps.append(Step("products", "signal", peer, "free"))
    return steps


STEPS: dict[Way, Callable[..., list[Step]]] = {
    "push": gather_steps,
    "waiting": waiting_steps,
    "slots": scatter_steps,
    "tiles": stored_once_steps,
    "one_shot": stored_once_steps,
}
