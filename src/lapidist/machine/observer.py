"""What watches a run: the counter, the sanitizer in front of it, and whoever else asks to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lapidist.machine.barrier import Barrier
    from lapidist.machine.instructions.copies import Transfer
    from lapidist.machine.instructions.mbarrier import MBarrier
    from lapidist.machine.instructions.warpgroup_mma import PendingProduct
    from lapidist.machine.lanes import Lanes
    from lapidist.machine.memory import Address, MixedAddress

Array = np.ndarray


class Observer:
    """The machine calls each method where the event happens. This one watches nothing.

    `site` is the number of the instruction, `kind` of an access is "load", "store" or "atomic"."""

    # -- memory --

    def accessed(
        self, address: Address, offset: int, size: int, site: int, kind: str, values: tuple[Array, ...] = ()
    ) -> None:
        """Lanes load, store or update `size` bytes each. A plain store says what it is about to write."""

    def counted(self, address: Address, offset: int, size: int, site: int, kind: str) -> None:
        """Lanes issue an asynchronous access; when it happens is checked where it lands."""

    def stored(self, address: Address, offset: int, values: tuple[Array, ...], site: int) -> None:
        """A store has written these values."""

    def local_moved(self, target: int, source: int, size: int) -> None:
        """A call copied bytes from one place of local memory to another."""

    def transferred(self, transfer: Transfer) -> None:
        """A lane gave TMA a copy to do."""

    def ordered(self, address: Address | MixedAddress, offset: int, kind: str, scope: str, site: int) -> None:
        """An access with an order: acquire, release, relaxed, volatile."""

    def fenced(self, lanes: Lanes, kind: str, site: int) -> None:
        """Lanes executed a fence of this kind."""

    def map_released(self, lanes: Lanes) -> None:
        """Lanes published tensor maps that they wrote."""

    def map_acquired(self, lanes: Lanes, addresses: Array) -> None:
        """Lanes may use the tensor maps at these addresses as others published them."""

    def map_read(self, lanes: Lanes, lane: int, address: int, site: int) -> None:
        """TMA reads a tensor map in global memory."""

    def executed(self, number: int, lanes: Lanes) -> None:
        """Lanes executed the block of code of this number; what it waits for at its end is still to come."""

    def shuffled_from_nobody(self, lanes: Lanes, lost: Array, site: int) -> None:
        """A shuffle gives the marked lanes what a lane holds that takes no part in it."""

    def multiplied(self, product: PendingProduct) -> None:
        """Warps issued a wgmma."""

    # -- who meets whom --

    def block_started(self, slots: Array) -> None:
        """New blocks took these slots."""

    def launch_waited(self, lanes: Lanes) -> None:
        """griddepcontrol.wait: the launch before has ended."""

    def launch_triggered(self, lanes: Lanes) -> None:
        """griddepcontrol.launch_dependents: as far as this block goes, the next launch may start."""

    def warp_met(self, lanes: Lanes, mask: Array) -> None:
        """The lanes of a warp that each one's mask names synchronised."""

    def barrier_arrived(self, barrier: Barrier, lanes: Lanes, relaxed: bool = False) -> None:
        """Threads came to a barrier of their block or cluster."""

    def barrier_completed(self, barrier: Barrier) -> None:
        """All threads that it waits for have come."""

    def barrier_passed(self, lanes: Lanes) -> None:
        """All threads of all resident blocks came to a barrier of their block at once, and went on."""

    def mbarrier_initialised(self, lanes: Lanes, positions: Array, site: int) -> None:
        """mbarrier.init at these positions."""

    def mbarrier_arrived(self, lanes: Lanes, mine: Array, barrier: MBarrier, site: int) -> None:
        """The marked lanes arrive."""

    def mbarrier_completed(self, barrier: MBarrier) -> None:
        """A phase is complete."""

    def mbarrier_passed(self, lanes: Lanes, mine: Array, barrier: MBarrier, site: int) -> None:
        """The marked lanes learn that a phase is complete."""


class Several(Observer):
    """Tells several observers, one after the other."""

    def __init__(self, *observers: Observer) -> None:
        for event in vars(Observer):
            if not event.startswith("_"):
                setattr(self, event, partial(tell, [getattr(observer, event) for observer in observers]))


def tell(listeners: list[Callable[..., None]], *event: object) -> None:
    for listener in listeners:
        listener(*event)
