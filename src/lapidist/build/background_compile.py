"""Kernels compiled in the background, while calls go on: by a few processes of low priority, into the cache
on disk.

An error there is reported once, and calls go on with the kernels that they have. What failed once is not
tried again in this process.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

from lapidist.build.cache import limit_or_default, read
from lapidist.build.compiler import Order, key_of
from lapidist.build.folder import cache_directory, log, warn_once
from lapidist.build.portable_files import at_fork
from lapidist.build.processes import Process, make_calls
from lapidist.build.workers import Answer, compile_in, load_compiler
from lapidist.launch import Binary

Done = Callable[[Binary], None]
Name = tuple[object, ...]
CORES_PER_COMPILER = 4  # one compiler for so many cores: its work is not urgent
MOST_COMPILERS = 4
LEAST_BYTES = 1 << 30  # memory that must be free: NVRTC was seen to take 0.4 GB
MOST_DEATHS = 3  # after so many dead compilers in a row no more are started
GO_ON = "Calls go on with the kernels that are there"


def name_of(order: Order) -> Name:
    """A hashable name of an order. The cache's key would read the source each time, and calls ask often."""
    return order._replace(defines=tuple(sorted(order.defines.items())))  # type: ignore[arg-type]


class Behind:
    """The compilers of this process, and their orders."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._orders: SimpleQueue[tuple[Order, Done] | None] = SimpleQueue()
        self._under_way: dict[Name, bool] = {}  # of every order so far
        self._threads: list[threading.Thread] = []
        self._workers: set[Process] = set()
        self._deaths = 0
        self._stopped = False

    def ask(self, order: Order, done: Done) -> bool:
        """Whether the order is under way. Each is compiled once, however often it is asked for."""
        name = name_of(order)
        with self._lock:
            if name in self._under_way:
                return self._under_way[name]
            self._under_way[name] = not self._stopped and self._deaths < MOST_DEATHS and may_compile()
            if not self._under_way[name]:
                return False
            self._orders.put((order, done))
            if len(self._threads) < min(sum(self._under_way.values()), most_compilers()):
                self._start_thread()
            return True

    def be_ready(self) -> None:
        """Start the first compiler before an order comes, which then need not wait half a second for it."""
        with self._lock:
            if not self._threads and not self._stopped and may_compile():
                self._start_thread()

    def _start_thread(self) -> None:
        self._threads.append(threading.Thread(target=self._serve, daemon=True))
        self._threads[-1].start()

    def is_under_way(self, order: Order) -> bool:
        return self._under_way.get(name_of(order), False)

    def _serve(self) -> None:
        """Serve orders in one thread, with one compiler, until the interpreter ends."""
        worker = self._ahead()
        while (request := self._orders.get()) is not None:
            order, done = request
            try:
                worker = self._alive(worker) or self._started()
                self._deliver(order, done, compile_in(worker, order))
                self._deaths = self._deaths + 1 if worker.popen.poll() is not None else 0
            except Exception as error:  # no error of the background may reach a caller
                self._report(f"{type(error).__name__}: {error}")
            worker = self._alive(worker)
            self._under_way[name_of(order)] = False
        if worker is not None:
            self._dismiss(worker)

    def _ahead(self) -> Process | None:
        """A compiler that has loaded what it needs. None: it failed, and the first order says why."""
        with suppress(Exception):
            worker = self._started()
            worker.call(load_compiler)
            return worker
        return None

    def _alive(self, worker: Process | None) -> Process | None:
        if worker is None or worker.popen.poll() is None:
            return worker
        self._dismiss(worker)
        return None

    def _started(self) -> Process:
        with self._lock:
            if self._stopped or self._deaths >= MOST_DEATHS:
                raise OSError("no more compilers are started")
            worker = Process(make_calls, low=True)
            self._workers.add(worker)
            return worker

    def _dismiss(self, worker: Process) -> None:
        worker.end()
        with self._lock:
            self._workers.discard(worker)

    def _deliver(self, order: Order, done: Done, answer: Answer) -> None:
        if answer.error is not None:
            return self._report(answer.error)
        binary = read(key_of(*order), order.entry, order.architecture)
        if binary is None:
            return self._report(f"{order.entry} was compiled and could not be kept in {cache_directory()}")
        log.info("compile: %s, behind the calls, in %.1f s", order.entry, answer.seconds)
        done(binary)
        return None

    def _report(self, why: str) -> None:
        if not self._stopped:
            warn_once(f"compile: a kernel was not compiled behind the calls ({why}). {GO_ON}")

    def stop(self) -> None:
        """Stop at the end of the interpreter. Entries of the cache are written whole or not at all, so
        compilers may be killed.
        """
        with self._lock:
            self._stopped = True
            for worker in self._workers:
                worker.popen.kill()
        for _ in self._threads:
            self._orders.put(None)
        for thread in self._threads:
            thread.join()

    def leave(self) -> None:
        """Close a forked child's ends of the connections to its parent's compilers, which they would keep
        alive.
        """
        if not self._workers:
            return
        nothing = os.open(os.devnull, os.O_RDWR)
        for worker in self._workers:
            if not worker.connection.closed:
                os.dup2(nothing, worker.connection.fileno())
        os.close(nothing)


_behind = Behind()


def renew() -> None:
    global _behind
    _behind.leave()
    _behind = Behind()


atexit.register(lambda: _behind.stop())
at_fork(after_in_child=renew)


def ask(order: Order, done: Done) -> bool:
    return _behind.ask(order, done)


def be_ready() -> None:
    _behind.be_ready()


def is_under_way(order: Order) -> bool:
    return _behind.is_under_way(order)


# ---- limits ----


def most_compilers() -> int:
    """Compiler processes to run at once, while the program itself goes on."""
    return max(1, min(MOST_COMPILERS, (os.cpu_count() or 1) // CORES_PER_COMPILER))


def may_compile() -> bool:
    """Whether there is memory for a compiler process, and a cache through which its result comes."""
    free = free_bytes()
    if free is not None and free < LEAST_BYTES:
        warn_once(f"compile: {free >> 20} MiB of memory are free, too few for a compiler behind. {GO_ON}")
        return False
    return limit_or_default() > 0


def free_bytes() -> int | None:
    """Free memory of the computer, and of this process' container; None if it is unknown."""
    limits = []
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        limits.append(int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) << 10)
    with suppress(OSError, ValueError):
        limit, used = (int(Path(f"/sys/fs/cgroup/memory.{name}").read_text()) for name in ("max", "current"))
        limits.append(limit - used)
    return min(limits, default=None)
