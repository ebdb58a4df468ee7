"""What watches a run: the counter, and the sanitizer in front of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lapidist.machine.barrier import Barrier
    from lapidist.machine.instructions.copies import Transfer
    from lapidist.machine.instructions.mbarrier import MBarrier
    from lapidist.machine.lanes import Lanes
    from lapidist.machine.memory import Address, MixedAddress

Array = np.ndarray


class Observer:
    """The machine calls each method where the event happens. This one watches nothing.

    `site` is the number of the instruction, `what` is "load", "store" or "atomic"."""

    # -- memory --

    def accessed(self, address: Address, offset: int, size: int, site: int, what: str) -> None:
        """Lanes load, store or update `size` bytes each."""

    def counted(self, address: Address, offset: int, size: int, site: int, what: str) -> None:
        """The same of an asynchronous access: when it happens is checked where it lands."""

    def stored(self, address: Address, offset: int, values: tuple[Array, ...], site: int) -> None:
        """What a store has written."""

    def transferred(self, transfer: Transfer) -> None:
        """The copy engine was given an order."""

    def ordered(self, address: Address | MixedAddress, offset: int, kind: str, scope: str, site: int) -> None:
        """An access with an order: acquire, release, relaxed, volatile."""

    def fenced(self, lanes: Lanes, kind: str, site: int) -> None:
        """A fence of this kind."""

    # -- who meets whom --

    def block_started(self, slots: Array) -> None:
        """New blocks took these slots."""

    def launch_waited(self, lanes: Lanes) -> None:
        """griddepcontrol.wait: the launch before has ended."""

    def warp_met(self, lanes: Lanes) -> None:
        """The lanes of a warp synchronised."""

    def barrier_arrived(self, barrier: Barrier, lanes: Lanes, relaxed: bool = False) -> None:
        """Threads came to a barrier of their block or cluster."""

    def barrier_completed(self, barrier: Barrier) -> None:
        """All threads that it waits for have come."""

    def mbarrier_made(self, lanes: Lanes, positions: Array, site: int) -> None:
        """mbarrier.init at these positions."""

    def mbarrier_arrived(self, lanes: Lanes, mine: Array, barrier: MBarrier, site: int) -> None:
        """The marked lanes arrive."""

    def mbarrier_completed(self, barrier: MBarrier) -> None:
        """A phase is complete."""

    def mbarrier_seen(self, lanes: Lanes, mine: Array, barrier: MBarrier, site: int) -> None:
        """The marked lanes learn that a phase is complete."""
