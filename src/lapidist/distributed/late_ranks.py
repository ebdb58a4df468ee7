"""Calls that wait on the GPU for other ranks. After the group's time limit they are released, and the next
call raises.

A stream that waits for a flag has no limit of its own, and what it holds up cannot be cancelled. So the flags
are set in the missing rank's place. Results of calls that were released are not valid."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lapidist.errors import LaunchError

INTERVAL = 1.0  # seconds between two looks at calls that have not ended


class Waiting(NamedTuple):
    """A call that was enqueued: an event at its end, and when it is late."""

    call: str
    end: Any
    deadline: float
    waits: Sequence[tuple[int, int]] = ()  # flags, and the ranks that set them


class LateRanks:
    """Looks at the calls of one group, in a thread of its own from the first one on."""

    def __init__(
        self,
        limit: float,
        release: Callable[[], None],
        prepare: Callable[[], None] = lambda: None,
        missing: Callable[[Sequence[tuple[int, int]]], list[int]] = lambda waits: [],
    ) -> None:
        """`release` lets calls go on that wait; `prepare` is called first in the thread. `missing`: the ranks
        that did not set their flags.
        """
        self.limit, self._release, self._prepare, self._missing = limit, release, prepare, missing
        self.failure: str | None = None
        self._calls: deque[Waiting] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def require_none(self) -> None:
        """Raise if a call was released."""
        if self.failure is not None:
            raise LaunchError(self.failure)

    def fail(self, call: str, ranks: Sequence[int]) -> None:
        """What the next call raises."""
        who = {0: "another rank", 1: f"rank {ranks[0] if ranks else ''}"}.get(
            len(ranks), f"ranks {', '.join(map(str, ranks))}"
        )
        self.failure = (
            f"{call}: {who} did not come within the group's time limit, {self.limit:g} s; it died, is late,"
            " or called otherwise. The result is not valid. Destroy the group and start its ranks again"
        )

    def add(
        self, call: str, end: Any, waits: Sequence[tuple[int, int]] = (), now: float | None = None
    ) -> None:
        start = time.monotonic() if now is None else now
        with self._changed:
            self._calls.append(Waiting(call, end, start + self.limit, waits))
            self._changed.notify()

    def look(self, now: float) -> None:
        """Forget calls that ended, and release those that are late."""
        while self._calls and self._calls[0].end.query():
            self._calls.popleft()
        if not self._calls:
            return
        first = self._calls[0]
        if self.failure is None and now >= first.deadline:
            self.fail(first.call, self._missing(first.waits))
        if self.failure is not None:  # calls behind it wait for the same flags
            self._release()

    def start(self) -> None:
        if self._thread is None:
            changed = self._changed

            def gone(_: object) -> None:
                with changed:
                    changed.notify()

            arguments = weakref.ref(self, gone), changed
            self._thread = threading.Thread(
                target=watch, args=arguments, name="lapidist late ranks", daemon=True
            )
            self._thread.start()

    def begin(self) -> None:
        self._prepare()

    def pause(self) -> float | None:
        """Seconds until the next look; None: until a call is added."""
        return min(INTERVAL, self.limit) if self._calls else None


def watch(reference: weakref.ref[LateRanks], changed: threading.Condition) -> None:
    """Look until the group is gone. While this waits it keeps nothing of the group's."""
    late = reference()
    if late is not None:
        late.begin()
    while late is not None:
        with changed:
            pause = late.pause()
            late = None
            if reference() is None:
                return
            changed.wait(pause)
        late = reference()
        if late is not None:
            late.look(time.monotonic())
