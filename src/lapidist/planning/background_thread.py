"""Decisions that are made in the background, by one thread, one after another. An error there is reported
once, and calls go on with what they have.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

from lapidist.build.folder import warn_once

Work = Callable[[], None]


class Later:
    """A thread that starts with the first piece of work and ends with the interpreter."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: SimpleQueue[Work] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def ask(self, work: Work) -> None:
        self._asked.put(work)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, daemon=True)
                self._thread.start()

    def _serve(self) -> None:
        while True:
            work = self._asked.get()
            try:
                work()
            except Exception as error:  # no error of the background may reach a caller
                warn_once(f"plan: a better kernel was not looked for ({type(error).__name__}: {error})")


_later = Later()


def renew() -> None:
    """A forked child has none of its parent's threads, so it needs a new one."""
    global _later
    _later = Later()


os.register_at_fork(after_in_child=renew)


def ask(work: Work) -> None:
    _later.ask(work)
