"""What a rank does in the ways that write to other ranks' memory, as plain values.

A rank waits for flags in its memory alone, and sets flags in others'. Who waits for a flag clears it. Flags
are of one buffer and one peer: "arrived" says that the peer's part is there, "free" that the peer has read
what it was sent. All "free" flags are set at first."""

from __future__ import annotations

from typing import Literal, NamedTuple

Stream = Literal["products", "copies"]
Action = Literal["multiply", "push", "wait", "signal", "add"]
Flag = Literal["arrived", "free"]
Way = Literal["collective", "chunks", "push", "slots", "one_shot"]


class Step(NamedTuple):
    """`peer`: whose part is multiplied, to whom a shard is pushed, or with whom a flag is shared."""

    stream: Stream
    action: Action
    peer: int
    flag: Flag | None = None


def peers_after(rank: int, ranks: int) -> list[int]:
    return [(rank + distance) % ranks for distance in range(1, ranks)]


def gather_steps(rank: int, ranks: int) -> list[Step]:
    """The shard that this rank has is multiplied first, while copies push it to the others. They go round the
    ring backwards, so that the shard that a rank multiplies next is the next to arrive.
    """
    steps = [Step("products", "multiply", rank)]
    for peer in reversed(peers_after(rank, ranks)):
        steps.append(Step("copies", "wait", peer, "free"))
        steps.append(Step("copies", "push", peer))
        steps.append(Step("copies", "signal", peer, "arrived"))
    for peer in peers_after(rank, ranks):
        steps.append(Step("products", "wait", peer, "arrived"))
        steps.append(Step("products", "multiply", peer))
        steps.append(Step("products", "signal", peer, "free"))
    return steps


def scatter_steps(rank: int, ranks: int) -> list[Step]:
    """Products of others' rows are stored to this rank's slot at their owner. The rows that this rank owns
    come last, and then the sum of all slots in the order of ranks.
    """
    steps = []
    for peer in peers_after(rank, ranks):
        steps.append(Step("products", "wait", peer, "free"))
        steps.append(Step("products", "multiply", peer))
        steps.append(Step("products", "signal", peer, "arrived"))
    steps.append(Step("products", "multiply", rank))
    steps += [Step("products", "wait", peer, "arrived") for peer in reversed(peers_after(rank, ranks))]
    steps.append(Step("products", "add", rank))
    return steps + [Step("products", "signal", peer, "free") for peer in peers_after(rank, ranks)]


def one_shot_steps(rank: int, ranks: int) -> list[Step]:
    """A rank stores its term to its memory, and adds all ranks' terms where they lie."""
    others = peers_after(rank, ranks)
    return [
        *(Step("products", "wait", peer, "free") for peer in others),
        Step("products", "multiply", rank),
        *(Step("products", "signal", peer, "arrived") for peer in others),
        *(Step("products", "wait", peer, "arrived") for peer in others),
        Step("products", "add", rank),
        *(Step("products", "signal", peer, "free") for peer in others),
    ]


STEPS = {"push": gather_steps, "slots": scatter_steps, "one_shot": one_shot_steps}
