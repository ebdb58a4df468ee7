"""Compilers in processes of their own: one build a line in, one answer a line out.

In threads of one process phases of NVRTC wait for each other, so many gained little; and with sixteen of them
its heap was found corrupted twice."""

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

MODULE = "lapidist.build.workers"  # this one, whatever it is called when it runs

LOW, LOWEST = "--low", 19  # of priorities
OnDone = Callable[[str], None]


class Answer(NamedTuple):
    seconds: float
    error: str | None


def compile_one(order: Order) -> Answer:
    """Into the cache, here. What a process looks for once, the library and its headers, is no part of the
    seconds.
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
    """For those who only wait for the end."""


def compile_all(orders: Sequence[Order], processes: int, on_done: OnDone = nobody) -> list[Answer]:
    """Into the cache, by as many processes. One alone needs none. `on_done` is given each entry point."""
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
    """A worker that died says so for each build that it was to make."""
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
    """It finds this package and the cache where this process does, and ends with its input. `low`: its work
    is not urgent, and whoever asks reports what goes wrong."""
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
