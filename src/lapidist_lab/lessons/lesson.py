"""A lesson as plain data: a rung, run in the machine on a small product, and what its first block did."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lapidist.build.compiler import CUDA_SOURCES
from lapidist.device import chip
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.registry import RUNGS
from lapidist.machine.counters import Counts
from lapidist.machine.program import Program, compile_program
from lapidist.machine.run import run, shared_extent
from lapidist_lab.bench.publish.worklog import header_fields
from lapidist_lab.lessons.clock import LATENCY, Clock, Flight, Moment, Warp
from lapidist_lab.lessons.elements import NAMES, NOWHERE, Elements
from lapidist_lab.lessons.serving import least_turns, sectors_of, turns_of_words
from lapidist_lab.lessons.watch import Copy, Multiplication, Request, Watcher
from lapidist_lab.machine_studies.explain import DATA_PARALLEL
from lapidist_lab.machine_studies.registered import MACHINE_CHIP, Product, Shape, product_of

Array = np.ndarray
FIRST_MATHS = ("float32", "float16")
LEAST_K, STEPS = 64, 3
WARPS_SHOWN, WARPS_FOLLOWED = 4, 2  # of each role: rows of the timeline, and those that the slider follows
LANES = 32
TOGETHER = 50  # cycles between copies of one stage


def math_of(kernel: Kernel) -> str:
    """The math of a lesson: float, where the kernel multiplies that."""
    return next((math for math in FIRST_MATHS if math in kernel.types.maths), kernel.types.maths[0])


def shape_of(kernel: Kernel, math: str) -> Shape:
    """A product of two tiles by two, deep enough that every stage is used again."""
    config = kernel.config_for(math)
    steps = config.stages + 2 if config.stages else STEPS
    return 2 * config.bm * config.cluster_m, 2 * config.bn * config.cluster_n, max(LEAST_K, steps * config.bk)


class Observed:
    """One run of a rung, watched."""

    def __init__(self, kernel: Kernel, math: str, shape: Shape) -> None:
        self.kernel, self.math, self.shape = kernel, math, shape
        self.product: Product = product_of(kernel, math, shape, schedule=DATA_PARALLEL)
        self.elements = Elements(self.product)
        launch = self.product.launch()
        self.program: Program = compile_program(launch.binary.ptx, launch.binary.entry)
        self.threads = launch.block[0] * launch.block[1] * launch.block[2]
        shared_bytes = shared_extent(self.program, launch.shared_bytes)
        watcher = Watcher(self.program, self.elements, self.threads, shared_bytes)
        counts = run(launch, exact_counts=True, merge_loads=True, watch=watcher).counts
        assert counts is not None
        self.counts: Counts = counts
        self.lines = source_lines(self.program, kernel.source)
        self.clock = Clock(self.program, watcher, tensor_rate(kernel, math), self.lines)


def source_lines(program: Program, file: str) -> dict[int, int]:
    """The line in the kernel's own file of each instruction: where a header's function was inlined."""
    line_by_site, name = {}, Path(file).name
    for site, i in enumerate(program.kernel.instructions):
        elements = (part.rpartition(":") for part in i.site.source.split(", inlined at "))
        lines = [int(line) for path, _, line in elements if path == name and int(line)]
        if lines:
            line_by_site[site] = lines[0]
    return line_by_site


def tensor_rate(kernel: Kernel, math: str) -> float:
    """Flops a cycle of a quarter of an SM, on the chip that lessons are about."""
    device = chip(MACHINE_CHIP)
    unit = kernel.unit if kernel.unit != "fma" else "wgmma"
    tflops = device.unit_limit(unit, math) or device.unit_limit("wgmma", "float16")
    return tflops * 1e12 / (device.sms * device.clock_mhz * 1e6 * 4)


class Patterns:
    """Repeated lists of numbers, each stored once, less its base."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self.numbers: dict[bytes, int] = {}

    def add(self, values: Array) -> tuple[int, int]:
        """The base, and the number of the list of what exceeds it; NOWHERE stays."""
        flat = values.reshape(-1).astype(np.int64)
        base = int(flat[flat != NOWHERE].min()) if (flat != NOWHERE).any() else 0
        offsets = np.where(flat == NOWHERE, NOWHERE, flat - base)
        key = offsets.tobytes()
        if key not in self.numbers:
            self.numbers[key] = len(self.rows)
            self.rows.append(offsets.tolist())
        return base, self.numbers[key]


def lesson_of(kernel: Kernel) -> dict[str, Any]:
    """All that the page of a rung shows, except measured times."""
    math = math_of(kernel)
    observed = Observed(kernel, math, shape_of(kernel, math))
    patterns = Patterns()
    followed = [follow(observed, number, role, patterns) for number, role in followed_warps(observed)]
    return {
        **about(kernel, math, observed),
        "before": before.name if (before := rung_before(kernel, math)) else "",
        "counts": counts_rows(kernel, math, observed),
        "warps": followed,
        "timeline": timeline(observed),
        "patterns": patterns.rows,
        "sites": sites(observed, followed),
    }


def sites(observed: Observed, followed: Sequence[dict[str, Any]]) -> dict[int, list[Any]]:
    """Source line and PTX of each instruction that a moment is about."""
    code = observed.program.kernel.instructions
    used = {moment["site"] for warp in followed for moment in warp["moments"]}
    return {site: [observed.lines.get(site, 0), code[site].site.text] for site in sorted(used)}


def about(kernel: Kernel, math: str, observed: Observed) -> dict[str, Any]:
    config = kernel.config_for(math)
    m, n, k = observed.shape
    return {
        "number": RUNGS.index(kernel) + 1 if kernel in RUNGS else 0,
        "name": kernel.name,
        "idea": kernel.idea,
        "header": header_fields(kernel),
        "math": math,
        "config": str(config),
        "shape": [m, n, k],
        "tile": [config.bm, config.bn, config.bk],
        "threads": observed.threads,
        "latency": LATENCY,
        "source": (CUDA_SOURCES / kernel.source).read_text(encoding="utf-8").splitlines(),
        "file": kernel.source,
        "matrices": [
            {"name": name, "rows": array.shape[0], "columns": array.shape[1], "start": start}
            for name, array, start in zip(
                NAMES, observed.elements.arrays, observed.elements.starts, strict=True
            )
        ],
    }


# ---- warps ----


def role_of(warp: Warp) -> str:
    """What a warp is for: it loads, multiplies, or does nothing that is shown."""
    loads = any(isinstance(moment.event, Copy) and moment.event.loads for moment in warp.moments)
    multiplies = any("multiply" in segment.parts for segment in warp.segments)
    if loads:
        return "loads and multiplies" if multiplies else "loads"
    return "multiplies" if multiplies else ""


def roles(observed: Observed) -> dict[str, list[int]]:
    warps_by_role: dict[str, list[int]] = {}
    for number, warp in sorted(observed.clock.warps.items()):
        if role := role_of(warp):
            warps_by_role.setdefault(role, []).append(number)
    return warps_by_role


def followed_warps(observed: Observed) -> list[tuple[int, str]]:
    return [(number, role) for role, warps in roles(observed).items() for number in warps[:WARPS_FOLLOWED]]


def follow(observed: Observed, number: int, role: str, patterns: Patterns) -> dict[str, Any]:
    warp = observed.clock.warps[number]
    return {
        "warp": number,
        "role": role,
        "moments": [moment_data(observed, moment, patterns) for moment in warp.moments],
        "owns": stored_elements(observed, warp, patterns),
    }


def stored_elements(observed: Observed, warp: Warp, patterns: Patterns) -> list[tuple[int, int] | None]:
    """The elements of C that each lane stores: to global memory, or to what TMA takes there."""
    start = observed.elements.starts[2]
    requests = [moment.event for moment in warp.moments if isinstance(moment.event, Request)]
    sums = [each for each in requests if each.action == "store" and (each.elements >= start).any()]
    to_global = [each for each in sums if each.space == "global"]
    stores = [each.elements for each in to_global or sums]
    if not stores:
        return []
    stored = np.concatenate([np.where(elements >= start, elements, NOWHERE) for elements in stores], axis=1)
    lanes = (np.unique(row[row != NOWHERE]) for row in stored)
    return [patterns.add(row) if len(row) else None for row in lanes]


def moment_data(observed: Observed, moment: Moment, patterns: Patterns) -> dict[str, Any]:
    common = {"t": round(moment.time), "site": moment.site}
    event = moment.event
    if isinstance(event, Request):
        return common | request_data(event, patterns)
    if isinstance(event, Copy):
        words = {"kind": "copy", "bytes": event.nbytes, "loads": event.loads, "shared": event.shared}
        return common | words | {"boxes": boxes(observed.elements, [event.elements])}
    if isinstance(event, Multiplication):
        return common | {"kind": "product", "boxes": boxes(observed.elements, [event.a, event.b])}
    return common | {"kind": "wait", "name": event}


def request_data(request: Request, patterns: Patterns) -> dict[str, Any]:
    data: dict[str, Any] = {
        "kind": request.space,
        "what": request.action,
        "size": request.size,
        "lanes": int((request.present * (1 << np.arange(LANES, dtype=np.int64))).sum()),
        "at": patterns.add(np.where(request.present, request.at, NOWHERE)),
        "places": patterns.add(request.elements),
    }
    if request.space == "global":
        return data | {"sectors": len(sectors_of(request.at, request.present, request.size))}
    how = request.at, request.present, request.size, request.action == "load"
    turns = turns_of_words(*how)
    return data | {"turns": int(turns.max()) + 1, "least": least_turns(*how), "turn": patterns.add(turns)}


def boxes(elements: Elements, groups: Iterable[Array]) -> list[list[int]]:
    """[matrix, row, column, rows, columns] around elements of one matrix each."""
    result = []
    for numbers in groups:
        numbers_inside = numbers[numbers != NOWHERE]
        if len(numbers_inside):
            matrix = int(np.searchsorted(elements.starts, numbers_inside.min(), side="right")) - 1
            rows, columns = np.divmod(
                numbers_inside - elements.starts[matrix], elements.arrays[matrix].shape[1]
            )
            low, first_column = int(rows.min()), int(columns.min())
            result.append(
                [matrix, low, first_column, int(rows.max()) - low + 1, int(columns.max()) - first_column + 1]
            )
    return result


# ---- the timeline ----


def timeline(observed: Observed) -> dict[str, Any]:
    """Segments of the first warps of each role, flights of copies, and the end."""
    rows = [(number, role) for role, warps in roles(observed).items() for number in warps[:WARPS_SHOWN]]
    shown = {number for number, _ in rows}
    return {
        "end": max(warp.now for warp in observed.clock.warps.values()),
        "warps": len(observed.clock.warps),
        "rows": [
            {"warp": number, "role": role, "segments": segments(observed.clock.warps[number])}
            for number, role in rows
        ],
        "flights": flights(f for f in observed.clock.flights if f.warp in shown),
    }


def flights(flown: Iterable[Flight]) -> list[list[Any]]:
    """[begin, end, name, warp, how many]: copies that are ordered and waited for together are one."""
    rows: list[list[Any]] = []
    for flight in flown:
        begin, end = round(flight.begin), round(flight.end)
        last: list[Any] = rows[-1] if rows else [-TOGETHER, 0, "", -1, 0]
        if [end, flight.name, flight.warp] == last[1:4] and begin - last[0] <= TOGETHER:
            last[4] += 1
        else:
            rows.append([begin, end, flight.name, flight.warp, 1])
    return rows


def segments(warp: Warp) -> list[list[Any]]:
    return [
        [round(s.begin), round(s.end), s.kind or "other", s.line, {k: round(v) for k, v in s.parts.items()}]
        for s in warp.segments
        if s.end > s.begin
    ]


# ---- counts ----


def counts_rows(kernel: Kernel, math: str, observed: Observed) -> list[dict[str, Any]]:
    """What this rung and the one before need for the same product."""
    before = rung_before(kernel, math)
    old = None if before is None else counted(before, math, observed.shape)
    now = measures(observed.counts, observed.shape)
    then = [None] * len(now) if old is None else [value for _, value, _ in measures(old, observed.shape)]
    return [
        {"name": name, "before": earlier, "now": value, "means": means}
        for (name, value, means), earlier in zip(now, then, strict=True)
        if value or earlier
    ]


def rung_before(kernel: Kernel, math: str) -> Kernel | None:
    place = RUNGS.index(kernel) if kernel in RUNGS else 0
    return RUNGS[place - 1] if place and math in RUNGS[place - 1].types.maths else None


def counted(kernel: Kernel, math: str, shape: Shape) -> Counts:
    launch = product_of(kernel, math, shape, schedule=DATA_PARALLEL).launch()
    counts = run(launch, exact_counts=True, merge_loads=True).counts
    assert counts is not None
    return counts


def measures(counts: Counts, shape: Shape) -> list[tuple[str, float, str]]:
    """(name, value, meaning); work is for 32 multiply-adds, one fma of a warp."""
    products = shape[0] * shape[1] * shape[2] / LANES
    turns = counts.shared_load.turns + counts.shared_store.turns + counts.streamed_bytes / 128
    return [
        ("warp instructions", counts.warp_instructions / products, "for 32 multiply-adds"),
        ("sectors a global load", counts.global_load.per_request, "4 is best for 4-byte elements"),
        ("bytes from global memory", counts.global_bytes / products, "for 32 multiply-adds"),
        (
            "turns a shared load",
            counts.shared_load.per_request,
            "more than its width asks for: bank conflicts",
        ),
        ("turns of shared memory", turns / products, "for 32 multiply-adds"),
        ("barriers", float(counts.barriers), "of all blocks"),
    ]
