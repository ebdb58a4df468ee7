"""The kernels that a program gets which asks for none, beside those of compile="wait".

New processes with empty caches have a part of the shapes each, and compile at the same time. A product is
called three times, then captured in a graph, as served models do it; or it is called for a second. What is
timed has the GPU alone: processes take turns at it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, NamedTuple

from lapidist.build.portable_files import lock
from lapidist.dtypes import math_named
from lapidist.errors import DeviceError
from lapidist_lab.bench.protocol.cases import EVERY_CASE, Part
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.measure import Stage
from lapidist_lab.bench.protocol.record import Conditions, Record
from lapidist_lab.bench.protocol.timing import BURST
from lapidist_lab.bench.studies.ladder_runs import Keep
from lapidist_lab.bench.studies.new_shapes import Shape, answer, new_shapes

CAPTURED, EAGER = MODES = "default captured", "default eager"
TYPES = {
    "bf16": "bfloat16",
    "e4m3": "float8_e4m3fn",
    "fp16": "float16",
    "tf32": "float32",
    "fp32": "float32",
    "fp64": "float64",
}  # torch's names
CASES = [(mode, name) for mode in MODES for name in TYPES]
# A second of calls has the GPU alone, so fewer shapes fit into a lent hour.
SHAPES, SEED = {CAPTURED: 200, EAGER: 60}, 303
CORES_A_PROCESS, MOST_PROCESSES = 4, 8
WARM_UPS, CALLS, REPEATS = 3, 20, 9
EAGER_SECONDS = 1.0
AS_WARM_SECONDS = 0.15  # of the others: large products draw so much power that the clock falls
BUSY_CYCLES = 4_000_000  # the GPU is kept busy while calls are queued, so that the host is not what is timed
PROTOCOL = (
    f"{SHAPES[CAPTURED]} shapes of a type captured, {SHAPES[EAGER]} eager, half aligned, B by columns, in"
    f" up to {MOST_PROCESSES} new processes with empty caches, which take turns at the GPU;"
    f" captured: {WARM_UPS} calls, then a graph of {CALLS}; eager: the first call, calls for"
    f" {EAGER_SECONDS:.0f} s, then {CALLS} behind a busy GPU; the least of {REPEATS}, of graphs in turns;"
    f" then the same with compile=wait, and torch's product, eagerly after calls for {AS_WARM_SECONDS} s"
)


class Times(NamedTuple):
    """Seconds of a product by default, with compile="wait", and by torch; None: torch does not take it."""

    default: float
    waited: float
    torch: float | None


# ---- in a new process ----


def times_of(name: str, mode: str, shapes: Sequence[Shape], turns: str) -> list[Times]:
    """`turns`: the file whose lock says which process has the GPU."""
    import torch

    largest = max(max(m * k, n * k) for m, n, k in shapes)
    store = torch.randn(largest, device="cuda").to(getattr(torch, TYPES[name]))
    torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    precision = "tf32" if name == "tf32" else "ieee"
    return [
        times_of_one(mode, precision, store[: m * k].view(m, k), store[: n * k].view(n, k).T, Path(turns))
        for m, n, k in shapes
    ]


def times_of_one(mode: str, precision: Any, a: Any, b: Any, turns: Path) -> Times:
    import lapidist

    products = (
        lambda: lapidist.matmul(a, b, precision=precision),
        lambda: lapidist.matmul(a, b, precision=precision, compile="wait"),
        torchs(a, b),
    )
    times_in = eager if mode == EAGER else captured
    seconds = times_in([product for product in products if product], turns)
    return Times(seconds[0], seconds[1], seconds[2] if len(seconds) == len(products) else None)


def torchs(a: Any, b: Any) -> Callable[[], Any] | None:
    """torch's product; None where its 8-bit products refuse the lines."""
    import torch

    if a.dtype != torch.float8_e4m3fn:
        return lambda: torch.mm(a, b)
    if b.shape[1] % 16 or a.shape[1] % 16:
        return None
    one = torch.ones((), device=a.device)
    return lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)


def captured(products: Sequence[Callable[[], Any]], turns: Path) -> list[float]:
    """Seconds of each product in a graph that was captured after a few calls."""
    replays = [graph_of(product).replay for product in products]
    with alone(turns):
        rounds = [[timed(replay) for replay in replays] for _ in range(REPEATS)]
    return [min(seconds) for seconds in zip(*rounds, strict=True)]


def graph_of(product: Callable[[], Any]) -> Any:
    import torch

    for _ in range(WARM_UPS):
        product()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            product()
    return graph


def eager(products: Sequence[Callable[[], Any]], turns: Path) -> list[float]:
    """Seconds of each product on the GPU: of the first one after a second of calls. The others have their
    kernels with the first call."""
    default, *others = products
    seconds = [called(default, EAGER_SECONDS, turns)]
    for product in others:
        product()
        seconds.append(called(product, AS_WARM_SECONDS, turns))
    return seconds


def called(product: Callable[[], Any], before: float, turns: Path) -> float:
    """Seconds of a product after the first call and calls for `before` seconds, 20 at least."""
    import torch

    def calls() -> None:
        for _ in range(CALLS):
            product()

    with alone(turns):
        product()  # the first of a type compiles its fallback meanwhile
        end = time.perf_counter() + before
        while True:
            calls()
            torch.cuda.synchronize()
            if time.perf_counter() >= end:
                return min(timed(calls) for _ in range(REPEATS))


@contextmanager
def alone(turns: Path) -> Iterator[None]:
    """The GPU for this process alone, among those that share the file."""
    import torch

    torch.cuda.synchronize()
    with turns.open("ab") as file:
        lock(file.fileno())
        yield
        torch.cuda.synchronize()


def turns_of(ordinal: int) -> Path:
    """The file of one GPU, which two of these studies can share."""
    import torch

    return Path(tempfile.gettempdir()) / f"lapidist-turns-{torch.cuda.get_device_properties(ordinal).uuid}"


def timed(work: Callable[[], Any]) -> float:
    """Seconds of one of the products that `work` queues. A process that compiles may take a slice of the GPU
    meanwhile, so callers take the least of several."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(BUSY_CYCLES)
    start.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3 / CALLS


# ---- in the parent ----


def measure(ordinal: int, keep: Keep, part: Part = EVERY_CASE) -> tuple[Conditions, list[Record]]:
    with Stage(ordinal, BURST) as stage:
        if stage.framework.name != "torch":
            raise DeviceError("bench default: graphs are torch's, which was not found. Install torch")
        vendor = stage.framework.vendor("bfloat16")
        conditions = gather(stage.device, stage.device.name, "burst", PROTOCOL, vendor=vendor)
        records: list[Record] = []
        for mode, name in CASES[part.skip :][: part.count]:
            records.append(
                row(stage.device.name, name, mode, times_in_new_processes(name, mode, turns_of(ordinal)))
            )
            keep(conditions, records)
        return conditions, records


def times_in_new_processes(name: str, mode: str, turns: Path) -> list[Times]:
    """Each process has every n-th shape. The order of times is not that of the shapes. Captures wait
    for their kernels, so that these processes can share a cache."""
    processes = max(1, min((os.cpu_count() or 1) // CORES_A_PROCESS, MOST_PROCESSES))
    shapes = new_shapes(SHAPES[mode], SEED)

    def times_of_part(first: int) -> list[Times]:
        folder = Path(caches, "shared" if mode == CAPTURED else str(first))
        seconds = answer(times_of, str(folder), name, mode, shapes[first::processes], str(turns))
        return [Times(*each) for each in seconds]

    with tempfile.TemporaryDirectory() as caches, ThreadPoolExecutor(processes) as pool:
        return [times for part in pool.map(times_of_part, range(processes)) for times in part]


def row(chip: str, name: str, mode: str, times: Sequence[Times]) -> Record:
    """Geometric means over all shapes: of wait's time over the default's, and of torch's over both."""
    waited = [product.waited / product.default for product in times]
    by_torch = [
        (product.torch / product.default, product.torch / product.waited)
        for product in times
        if product.torch
    ]
    over_default, over_waited = map(geometric_mean, zip(*by_torch, strict=True))
    head = ("the default's kernels", "host", chip, math_named(name), "rcr", 0, 0, 0)
    return Record(
        *head,
        median(product.default for product in times),
        None,
        over_default,
        None,
        None,
        True,
        mode,
        calls=len(times),
        over_wait=geometric_mean(waited),
        note=f"{min(waited):.2f}x at least; torch's time over that of wait {over_waited:.2f}x",
    )
