"""One thread that makes decisions in the background, one after another. It reports an error once, and calls
go on with the kernels that they have.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from lapidist.build.folder import warn_once
from lapidist.build.portable_files import at_fork

Work = Callable[[], None]


class BackgroundThread:
    """A thread that starts with the first piece of work and ends with the interpreter."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: SimpleQueue[Work] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def ask(self, work: Work) -> None:
        self._queue.put(work)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, daemon=True)
                self._thread.start()

    def _serve(self) -> None:
        while True:
            work = self._queue.get()
            try:
                work()
            except Exception as error:  # no error of the background may reach a caller
                warn_once(f"plan: a better kernel was not looked for ({type(error).__name__}: {error})")


_thread = BackgroundThread()


def renew() -> None:
    """Start anew in a forked child, which has none of its parent's threads."""
    global _thread
    _thread = BackgroundThread()


at_fork(after_in_child=renew)


def ask(work: Work) -> None:
    """Run it later, after the work that others asked for."""
    _thread.ask(work)
