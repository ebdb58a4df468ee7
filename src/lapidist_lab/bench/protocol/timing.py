"""How long a contender is timed, how often, and in which order its turns come."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lapidist_lab.bench.protocol.contenders import Contender

VENDOR_EVERY = 4  # contenders between two turns of the vendor's library


@dataclass(frozen=True, slots=True)
class Protocol:
    """How long a contender is timed, and how often."""

    mode: str
    rounds: int
    turn_seconds: float
    pause_seconds: float
    looks: int = 99  # at the sensors, for each contender
    checks: int = 2  # of each contender's results: before it is timed, and after
    replay_seconds: float = (
        0.01  # a graph is made this long: its launch and the two events around it weigh under 0.1 %
    )

    def replays(self, replay_seconds: float) -> tuple[int, int]:
        """(not timed, timed) in one turn."""
        if not self.turn_seconds:
            return 1, 1
        total = max(1, math.ceil(self.turn_seconds / replay_seconds))
        return total // 2, total - total // 2

    def __str__(self) -> str:
        timed = "the second half timed" if self.turn_seconds else "one replay to warm up, one timed"
        length = f"{self.turn_seconds:g} s of replays" if self.turn_seconds else "short"
        return (
            f"{self.rounds} turn{'s' if self.rounds > 1 else ''} each, {length}, {timed}, "
            f"after {self.pause_seconds:g} s of rest; graphs of about {self.replay_seconds * 1e3:g} ms; "
            f"median over replays; the vendor before every {VENDOR_EVERY} others"
            + (", of which each round begins with another one" if self.rounds > 1 else "")
        )


SUSTAINED = Protocol("sustained", rounds=2, turn_seconds=0.55, pause_seconds=0.0)
BURST = Protocol("burst", rounds=7, turn_seconds=0.0, pause_seconds=0.05)
# for hundreds of kernels or cases, as in tuning
SHORT = Protocol("short", 3, turn_seconds=0.0, pause_seconds=0.0, looks=1, checks=1, replay_seconds=0.002)
TUNE = replace(SHORT, mode="tune")
# For hundreds of products: the chip is as busy, or as rested, as in the longer turns above.
MANY_SUSTAINED = Protocol(
    "corpus sustained", 2, turn_seconds=0.08, pause_seconds=0.0, looks=1, checks=1, replay_seconds=0.004
)
MANY_BURST = replace(MANY_SUSTAINED, mode="corpus burst", rounds=3, turn_seconds=0.0, pause_seconds=0.05)
PROTOCOLS = {protocol.mode: protocol for protocol in (SUSTAINED, BURST, SHORT, MANY_SUSTAINED, MANY_BURST)}


def turn_order(kinds: Sequence[str], rounds: int) -> list[int]:
    """Indices: each contender once a round, and the vendor (the first peer) before every fourth of the
    others.

    Each round begins with another one. Of two turns of one kernel, that after a kernel which draws other
    power was up to a twentieth slower: the clock takes longer than half a turn to settle."""
    vendor = kinds.index("peer") if "peer" in kinds else None
    rivals = [index for index in range(len(kinds)) if index != vendor]
    order: list[int] = []
    for done in range(rounds):
        first = done % max(1, len(rivals))
        for place, index in enumerate(rivals[first:] + rivals[:first]):
            if vendor is not None and place % VENDOR_EVERY == 0:
                order.append(vendor)
            order.append(index)
    return order if rivals else [0] * rounds if kinds else []


def steps(contenders: Sequence[Contender], protocol: Protocol) -> int:
    """How often `measure` calls its `step` for a case."""
    return len(contenders) + len(turn_order([contender.kind for contender in contenders], protocol.rounds))
