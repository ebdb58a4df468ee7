"""Kernels compiled in processes of their own.

In threads of one process, phases of NVRTC wait for each other, so many threads gained little. With sixteen
its heap was found corrupted twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from lapidist.build.compiler import Order, compile_kernel, include_paths, load_nvrtc
from lapidist.build.portable_files import WINDOWS
from lapidist.build.processes import Pool, Process
from lapidist.errors import LapidistError

OnDone = Callable[[str], None]


class Answer(NamedTuple):
    seconds: float
    error: str | None


def load_compiler() -> None:
    """Find the library and its headers, which happens once in a process."""
    load_nvrtc(), include_paths()


def compile_one(order: Order) -> Answer:
    """Compile into the cache, in this process. Loading the compiler does not count."""
    start, error = time.perf_counter(), None
    try:
        load_compiler()
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
    count = 1 if WINDOWS else min(processes, len(orders))  # Process needs what Windows lacks
    if count < 2:
        answers = []
        for order in orders:
            answers.append(compile_one(order))
            on_done(order.entry)
        return answers
    with Pool(count) as pool:
        begun = [pool.submit(compile_one, order) for order in orders]
        for order, future in zip(orders, begun, strict=True):
            future.add_done_callback(partial(tell, on_done, order.entry))
        return [answer_of(future.result) for future in begun]


def tell(on_done: OnDone, entry: str, _: Future[Answer]) -> None:
    on_done(entry)


def compile_in(worker: Process, order: Order) -> Answer:
    return answer_of(lambda: worker.call(compile_one, order))


def answer_of(result: Callable[[], Answer]) -> Answer:
    """A process that died gives an error for each of its builds."""
    try:
        return result()
    except ChildProcessError as error:
        return Answer(0.0, f"the compiler's {error}")
