"""What a shape costs that was never multiplied before: as a served model meets them, call by call.

Each part runs in a new process. "shapes cold" has an empty cache, and "shapes disk" what `lapidist warm`
compiles. "shapes loaded" are other shapes after those. torch multiplies each shape right after. The request
loop ("served") multiplies the lengths of a trace by one layer's weights, as a person writes it."""

from __future__ import annotations

import math
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from lapidist.backends.gpu.doctor import TORCH_HINT
from lapidist.backends.gpu.driver import query_device
from lapidist.build.processes import Process, make_calls
from lapidist.dtypes import math_named
from lapidist.errors import DeviceError
from lapidist.planning.warm import build_all, builds_of, covering_plans
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.measure import Stage
from lapidist_lab.bench.protocol.record import Conditions, Record
from lapidist_lab.bench.protocol.timing import BURST
from lapidist_lab.bench.studies.ladder_runs import Keep

TYPES = ("bf16", "fp32", "e4m3")
SHAPES, SEEDS = 500, (101, 102)
LOW, HIGH = 128, 4096  # extents, log-uniform; every second shape's lines start on 16 bytes
STEPS, HIDDEN, SETTLED = 2000, 4096, 50  # of the request loop; from which step on times are added up
LONGEST = 4096  # rows of a step
# n and k of a layer: its queries, keys and values, what follows attention, both halves of what follows that
WEIGHTS = ((3 * HIDDEN // 2, HIDDEN), (HIDDEN, HIDDEN), (7 * HIDDEN, HIDDEN), (HIDDEN, 7 * HIDDEN // 2))
PROTOCOL = (
    f"{SHAPES} shapes of a type, each new to its process; from the call to the end of the kernel; medians,"
    " with the 90th and 99th hundredth; torch's product of each shape right after; cold: nothing is compiled;"
    " disk: after `lapidist warm`, in a new process; loaded: as many more shapes in that process"
)
Times = list[list[float]]  # ours, and torch's
Shape = tuple[int, int, int]


def new_shapes(count: int, seed: int) -> list[Shape]:
    draw = random.Random(seed)

    def extent(aligned: bool) -> int:
        drawn = round(math.exp(draw.uniform(math.log(LOW), math.log(HIGH))))
        return drawn // 16 * 16 if aligned else drawn

    return [(extent(i % 2 == 1), extent(i % 2 == 1), extent(i % 2 == 1)) for i in range(count)]


def lengths(count: int, seed: int) -> list[int]:
    """Rows of each step of a served model: a few sequences decode, and sometimes a prompt joins them."""
    draw = random.Random(seed)
    rows, running = [], 8
    for _ in range(count):
        running = min(64, max(1, running + draw.choice((-1, 0, 0, 1))))
        prompt = round(math.exp(draw.gauss(6.0, 1.0))) if draw.random() < 0.15 else 0
        rows.append(min(running + prompt, LONGEST))
    return rows


# ---- in a new process ----


def times_of(name: str, shapes: Sequence[Shape], device: str = "cuda") -> Times:
    """Seconds of each shape; NaN where torch does not take it."""
    import torch

    import lapidist

    types = {"bf16": torch.bfloat16, "fp32": torch.float32, "e4m3": torch.float8_e4m3fn}
    store = torch.randn(HIGH * HIGH, device=device).to(types[name])
    one = torch.ones((), device=device)

    def scaled(a: Any, b: Any) -> Any:
        return torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)

    seconds_of = stopwatch(device)
    peer = scaled if name == "e4m3" else torch.mm
    times: Times = [[], []]
    for m, n, k in shapes:
        a, b = store[: m * k].view(m, k), store[: n * k].view(n, k).T
        times[0].append(seconds_of(lambda a=a, b=b: lapidist.matmul(a, b)))  # type: ignore[misc]
        fits = name != "e4m3" or n % 16 == k % 16 == 0
        times[1].append(seconds_of(lambda a=a, b=b: peer(a, b)) if fits else math.nan)  # type: ignore[misc]
    return times


def stopwatch(device: str) -> Callable[[Callable[[], Any]], float]:
    """A function for the seconds until work is done. The first call of the process comes before: others
    measure it."""
    import torch

    import lapidist

    wait = torch.cuda.synchronize if device == "cuda" else lambda: None

    def seconds_of(work: Callable[[], Any]) -> float:
        wait()
        start = time.perf_counter()
        work()
        wait()
        return time.perf_counter() - start

    a = torch.ones((64, 64), device=device, dtype=torch.float16)
    seconds_of(lambda: (torch.mm(a, a), lapidist.matmul(a, a)))
    return seconds_of


def served(steps: int, device: str = "cuda", weights: Sequence[tuple[int, int]] = WEIGHTS) -> Times:
    """Seconds of each step of the request loop: the products of one layer, bf16."""
    import torch

    import lapidist

    seconds_of = stopwatch(device)
    layer = [torch.randn(n, k, device=device, dtype=torch.bfloat16) for n, k in weights]
    inputs = {k: torch.randn(LONGEST, k, device=device, dtype=torch.bfloat16) for _, k in weights}

    def step(multiply: Callable[[Any, Any], Any], rows: int) -> float:
        return seconds_of(lambda: [multiply(inputs[weight.shape[1]][:rows], weight.T) for weight in layer])

    trace = lengths(steps, SEEDS[0])
    pairs = [(step(lapidist.matmul, rows), step(torch.matmul, rows)) for rows in trace]
    return [list(times) for times in zip(*pairs, strict=True)]


def warmed(name: str) -> int:
    """How many binaries `lapidist warm` compiles for a type."""
    builds = builds_of(covering_plans(math_named(name), query_device(0), with_c=False))
    return len(build_all(builds))


# ---- in the parent ----


def measure(ordinal: int, keep: Keep) -> tuple[Conditions, list[Record]]:
    with Stage(ordinal, BURST) as stage:
        if stage.framework.name != "torch":
            raise DeviceError(
                f"bench shapes: compares with torch.mm; torch was not found. Install it with: {TORCH_HINT}"
            )
        vendor = stage.framework.vendor("bfloat16")
        conditions = gather(stage.device, stage.device.name, "host", PROTOCOL, vendor=vendor)
        records: list[Record] = []
        for name in TYPES:
            records += [row(stage.device.name, name, *part) for part in parts_of(name)]
            keep(conditions, records)
        with tempfile.TemporaryDirectory() as folder:
            answer(warmed, folder, "bf16")
            records.append(served_row(stage.device.name, answer(served, folder, STEPS)))
        keep(conditions, records)
        return conditions, records


def parts_of(name: str) -> list[tuple[str, Times]]:
    first, second = (new_shapes(SHAPES, seed) for seed in SEEDS)
    with tempfile.TemporaryDirectory() as folder:
        cold = answer(times_of, folder, name, first)
        answer(warmed, folder, name)
        both = answer(times_of, folder, name, [*first, *second])
    return [
        ("shapes cold", cold),
        ("shapes disk", [times[:SHAPES] for times in both]),
        ("shapes loaded", [times[SHAPES:] for times in both]),
    ]


def answer(function: Callable[..., Any], folder: str, *arguments: Any) -> Any:
    """What the function returns in a new process that keeps its kernels in this folder."""
    process = Process(make_calls, LAPIDIST_CACHE_DIR=folder)
    try:
        return process.call(function, *arguments)
    except ChildProcessError as error:
        raise DeviceError(
            f"bench shapes: a new {error}; its traceback stands above. Run {function.__name__} of"
            f" {__name__} by itself"
        ) from error
    finally:
        process.end()


def row(chip: str, name: str, mode: str, times: Times) -> Record:
    """The row of a part: the median over all shapes, the ratio over those that torch takes."""
    ours, both = times[0], [pair for pair in zip(*times, strict=True) if not math.isnan(pair[1])]
    p90, p99 = np.quantile(ours, (0.9, 0.99)).tolist()
    mine, peer = (median(side) for side in zip(*both, strict=True))
    head = ("matmul of new shapes", "host", chip, math_named(name), "rcr", 0, 0, 0, median(ours))
    note = f"torch's median {peer * 1e6:.0f} us"
    return Record(
        *head, None, peer / mine, None, None, True, mode, p90=p90, p99=p99, calls=len(ours), note=note
    )


def served_row(chip: str, times: Times) -> Record:
    """The row of the request loop: torch's time over ours, from the step on at which lengths have settled."""
    ours, theirs = (side[SETTLED:] for side in times)
    p90, p99 = np.quantile(ours, (0.9, 0.99)).tolist()
    ratio, with_start = sum(theirs) / sum(ours), sum(times[1]) / sum(times[0])
    head = ("request loop", "host", chip, "bfloat16", "rcr", 0, HIDDEN, HIDDEN, median(ours))
    note = f"with the first {SETTLED} steps {with_start:.2f}x"
    return Record(
        *head, None, ratio, None, None, True, "served", p90=p90, p99=p99, calls=len(ours), note=note
    )
