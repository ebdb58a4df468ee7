"""Compilers in processes of their own: each line of input is a build, each line of output its answer.

In threads of one process, phases of NVRTC wait for each other, so many threads gained little. With sixteen
its heap was found corrupted twice.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import NamedTuple

from lapidist.build.compiler import Order, compile_kernel, include_paths, load_nvrtc
from lapidist.build.folder import VARIABLE, cache_directory
from lapidist.errors import LapidistError

MODULE = "lapidist.build.workers"  # this module, whose __name__ may be "__main__"

LOW, LOWEST = "--low", 19  # the option for low priority, and its nice value
OnDone = Callable[[str], None]


class Answer(NamedTuple):
    seconds: float
    error: str | None


def compile_one(order: Order) -> Answer:
    """Compile into the cache, in this process. Finding the library and its headers, which happens once, does
    not count.
    """
    start, error = time.perf_counter(), None
    try:
        load_nvrtc(), include_paths()
        start = time.perf_counter()
        compile_kernel(order.source, order.entry, order.defines, order.architecture, order.more)
    except LapidistError as raised:
        error = str(raised).splitlines()[0]
    return Answer(time.perf_counter() - start, error)


def nobody(_entry: str) -> None:
    """An `on_done` that does nothing."""


def compile_all(orders: Sequence[Order], processes: int, on_done: OnDone = nobody) -> list[Answer]:
    """Compile into the cache, in so many processes; a single order needs none. `on_done` gets each entry
    point.
    """
    count = min(processes, len(orders))
    idle: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()

    def ask(order: Order) -> Answer:
        worker = idle.get() if count > 1 else None
        try:
            return compile_one(order) if worker is None else asked(worker, order)
        finally:
            if worker is not None:
                idle.put(worker)
            on_done(order.entry)

    if count < 2:
        return [ask(order) for order in orders]

    with workers(count) as started, ThreadPoolExecutor(count) as pool:
        for worker in started:
            idle.put(worker)
        return list(pool.map(ask, orders))


def asked(worker: subprocess.Popen[str], order: Order) -> Answer:
    """The worker's answer. A worker that died gives an error for each of its builds."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        worker.stdin.write(json.dumps(order) + "\n")
        worker.stdin.flush()
        line = worker.stdout.readline()
    except OSError:
        line = ""
    return (
        Answer(*json.loads(line)) if line else Answer(0.0, f"the compiler's process ended ({worker.wait()})")
    )


@contextmanager
def workers(count: int) -> Iterator[list[subprocess.Popen[str]]]:
    started = [start_worker() for _ in range(count)]
    try:
        yield started
    finally:
        for worker in started:
            worker.communicate()


def start_worker(low: bool = False) -> subprocess.Popen[str]:
    """A worker, which finds this package and the cache where this process does, and ends with its input.
    `low`: at low priority and without its stderr, since the caller reports errors.
    """
    found = {
        "PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path),
        VARIABLE: str(cache_directory()),
    }
    return subprocess.Popen(
        [sys.executable, "-m", MODULE, *([LOW] if low else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if low else None,
        text=True,
        env={**os.environ, **found},
    )


def serve(lines: Iterable[str]) -> None:
    for line in lines:
        print(json.dumps(compile_one(order_from(line))), flush=True)


def order_from(line: str) -> Order:
    source, entry, defines, architecture, more = json.loads(line)
    return Order(source, entry, defines, architecture, tuple(more))


if __name__ == "__main__":
    if LOW in sys.argv and hasattr(os, "nice"):
        os.nice(LOWEST)
    serve(sys.stdin)
