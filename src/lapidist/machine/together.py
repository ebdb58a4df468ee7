"""Launches of several devices at once, whose memory is mapped into each other, and copies between them.

Each work has a thread, of which one runs at a time. It goes on for some blocks of code, and then another one
that a seed draws. So every run of a seed is the same.

    work 0   | ***      *        ****        waits for a flag | **
    work 1   |    ******  *****                               |
    copies   |         *       **    sets it                  |

A device sees what another one wrote if it acquired, at the system's scope, a flag that was released. TMA
sees it behind a proxy fence after that. `Arrived` holds kernels to both (shared_words.py)."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from lapidist.launch import Launch
from lapidist.machine.faults import Deadlock, MissingProxyFence
from lapidist.machine.instructions.copies import Transfer
from lapidist.machine.lanes import Lanes
from lapidist.machine.memory import Address, MixedAddress
from lapidist.machine.observer import Observer
from lapidist.machine.run import run
from lapidist.machine.sanitize.ordered import warp_number
from lapidist.machine.shared_words import SharedWords

Array = np.ndarray
Copying = Callable[["Devices"], Iterator[Any]]  # it yields where another work may run
AFTER = 0.03  # how likely another work runs after a block of code
FRUITLESS = 20_000  # turns of copies that wait, while no launch goes on


class Stopped(Exception):
    """Another work failed."""


class Devices:
    """Works of several devices."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.seed, self.time = seed, 0
        self.written: list[tuple[int, int, int]] = []  # ranges of addresses, and when
        self.words: SharedWords | None = None  # whose readers and writers are watched
        self._turn = threading.Condition()
        self._current = -1
        self._living: list[int] = []
        self._failed: BaseException | None = None
        self._fruitless = 0  # turns of copies since a launch went on

    def write(self, target: Array, source: Array) -> None:
        """A copy engine's, or another device's."""
        np.copyto(target, source)
        self.time += 1
        start = target.ctypes.data
        self.written.append((start, start + target.nbytes, self.time))

    def run(self, works: Sequence[Launch | Copying]) -> None:
        """All of them, until all have ended. Raises the first fault of any."""
        self._living, self._current = list(range(len(works))), self.random.randrange(len(works))
        threads = [
            threading.Thread(target=self._work, args=(number, work)) for number, work in enumerate(works)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failed is not None:
            raise self._failed

    def _work(self, number: int, work: Launch | Copying) -> None:
        try:
            self._await_turn(number)
            if isinstance(work, Launch):
                watch = Arrived(self, number)
                run(work, sanitize=True, seed=self.seed + number, counting=False, watch=watch)
            else:
                self._copy(number, work)
        except Stopped:
            pass
        except BaseException as error:
            self._failed = self._failed or error
        finally:
            with self._turn:
                self._living.remove(number)
                self._current = self.random.choice(self._living) if self._living else -1
                self._turn.notify_all()

    def _copy(self, number: int, work: Copying) -> None:
        for _ in work(self):
            self._fruitless += 1
            if self._fruitless > FRUITLESS:
                raise Deadlock("copies wait for a flag that nobody sets", seed=self.seed)
            self.go_on(number, always=True)

    def _await_turn(self, number: int) -> None:
        with self._turn:
            self._turn.wait_for(lambda: self._current == number or self._failed is not None)
        if self._failed is not None:
            raise Stopped

    def go_on(self, number: int, always: bool = False) -> None:
        """Let another work run, now and then; `always` where this one may only wait."""
        if not always:
            self._fruitless = 0
        if not always and self.random.random() >= AFTER:
            return
        with self._turn:
            self._current = self.random.choice(self._living)
            self._turn.notify_all()
        self._await_turn(number)


class Arrived(Observer):
    """What a launch knows of memory that other devices write."""

    def __init__(self, devices: Devices, number: int) -> None:
        self.devices, self.number = devices, number
        self.acquired: dict[int, int] = {}  # by warp: when, at the system's scope
        self.fenced_at: dict[int, int] = {}
        self.order: tuple[str, str] | None = None  # of the access that follows, and its scope

    def executed(self, number: int, lanes: Lanes) -> None:
        self.devices.go_on(self.number)

    def ordered(self, address: Address | MixedAddress, offset: int, kind: str, scope: str, site: int) -> None:
        if kind in ("acquire", "acq_rel") and scope == "sys" and isinstance(address, Address):
            self.acquired[warp_number(address.g)] = self.devices.time
        self.order = kind, scope

    def accessed(
        self, address: Address, offset: int, size: int, site: int, kind: str, values: tuple[Array, ...] = ()
    ) -> None:
        order, self.order = self.order, None
        words = self.devices.words
        if words is None or address.space != "global":
            return
        addresses = address.addresses.astype(np.int64) + offset
        if kind != "load":
            words.write(self.number, addresses, size)
        if kind != "store":
            words.read(self.number, addresses, size)
        if order in (("acquire", "sys"), ("acq_rel", "sys")) and kind != "store":
            words.acquire(self.number, addresses)
        if kind != "load":
            publishes = order in (("release", "sys"), ("acq_rel", "sys"))
            words.publish(self.number, addresses, publishes)

    def fenced(self, lanes: Lanes, kind: str, site: int) -> None:
        if "proxy.async" in kind:
            warp = warp_number(lanes)
            self.fenced_at[warp] = self.acquired.get(warp, 0)

    def transferred(self, transfer: Transfer) -> None:
        if self.devices.words is not None:
            self.devices.words.transfer(self.number, transfer)
        if not transfer.to_shared or transfer.map is None:
            return
        start = transfer.map.address
        end = start + (transfer.map.strides or (0,))[-1] * transfer.map.shape[-1]
        known = self.fenced_at.get(warp_number(transfer.g), 0)
        for first, behind, when in self.devices.written:
            if first < end and start < behind and self.reads(transfer, first, behind) and when > known:
                raise MissingProxyFence(
                    "TMA reads what another device wrote, without a fence.proxy.async behind an acquire of"
                    " the system's scope",
                    seed=self.devices.seed,
                )

    @staticmethod
    def reads(transfer: Transfer, first: int, behind: int) -> bool:
        """Whether the box has lines of this range."""
        assert transfer.map is not None
        step = transfer.map.strides[0] if transfer.map.strides else 0
        line = transfer.map.address + transfer.corner[1] * step if len(transfer.corner) > 1 else 0
        return line < behind and first < line + transfer.map.box[1] * step
