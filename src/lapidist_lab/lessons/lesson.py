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
    """float, where the kernel multiplies that."""
    return next((math for math in FIRST_MATHS if math in kernel.types.maths), kernel.types.maths[0])


def shape_of(kernel: Kernel, math: str) -> Shape:
    """Two tiles by two, deep enough that every stage is used again."""
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
        watcher = Watcher(self.program, self.elements, shared_extent(self.program, launch.shared_bytes))
        counts = run(launch, exact_counts=True, merge_loads=True, watch=watcher).counts
        assert counts is not None
        self.counts: Counts = counts
        self.lines = source_lines(self.program, kernel.source)
        self.clock = Clock(self.program, watcher, tensor_rate(kernel, math), self.lines)


def source_lines(program: Program, file: str) -> dict[int, int]:
    """The line in the kernel's own file of each instruction: where a header's function was inlined."""
    found, name = {}, Path(file).name
    for site, i in enumerate(program.kernel.instructions):
        elements = (part.rpartition(":") for part in i.site.source.split(", inlined at "))
        own = [int(line) for path, _, line in elements if path == name and int(line)]
        if own:
            found[site] = own[0]
    return found


def tensor_rate(kernel: Kernel, math: str) -> float:
    """Flops a cycle of a quarter of an SM, on the chip that lessons are about."""
    device = chip(MACHINE_CHIP)
    unit = kernel.unit if kernel.unit != "fma" else "wgmma"
    known = device.unit_limit(unit, math) or device.unit_limit("wgmma", "float16")
    return known * 1e12 / (device.sms * device.clock_mhz * 1e6 * 4)


class Patterns:
    """Lists of numbers that come again and again, each kept once, from a base."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self.known: dict[bytes, int] = {}

    def add(self, values: Array) -> tuple[int, int]:
        """The base, and the number of the list of what is above it; NOWHERE stays."""
        flat = values.reshape(-1).astype(np.int64)
        base = int(flat[flat != NOWHERE].min()) if (flat != NOWHERE).any() else 0
        rest = np.where(flat == NOWHERE, NOWHERE, flat - base)
        key = rest.tobytes()
        if key not in self.known:
            self.known[key] = len(self.rows)
            self.rows.append(rest.tolist())
        return base, self.known[key]


def lesson_of(kernel: Kernel) -> dict[str, Any]:
    """All that the page of a rung shows, but what was measured."""
    math = math_of(kernel)
    seen = Observed(kernel, math, shape_of(kernel, math))
    patterns = Patterns()
    followed = [follow(seen, number, role, patterns) for number, role in followed_warps(seen)]
    return {
        **about(kernel, math, seen),
        "before": before.name if (before := rung_before(kernel, math)) else "",
        "counts": counts_rows(kernel, math, seen),
        "warps": followed,
        "timeline": timeline(seen),
        "patterns": patterns.rows,
        "sites": sites(seen, followed),
    }


def sites(seen: Observed, followed: Sequence[dict[str, Any]]) -> dict[int, list[Any]]:
    """Source line and PTX of each instruction that a moment is about."""
    code = seen.program.kernel.instructions
    used = {moment["site"] for warp in followed for moment in warp["moments"]}
    return {site: [seen.lines.get(site, 0), code[site].site.text] for site in sorted(used)}


def about(kernel: Kernel, math: str, seen: Observed) -> dict[str, Any]:
    config = kernel.config_for(math)
    m, n, k = seen.shape
    return {
        "number": RUNGS.index(kernel) + 1 if kernel in RUNGS else 0,
        "name": kernel.name,
        "idea": kernel.idea,
        "header": header_fields(kernel),
        "math": math,
        "config": str(config),
        "shape": [m, n, k],
        "tile": [config.bm, config.bn, config.bk],
        "threads": seen.threads,
        "latency": LATENCY,
        "source": (CUDA_SOURCES / kernel.source).read_text().splitlines(),
        "file": kernel.source,
        "matrices": [
            {"name": name, "rows": array.shape[0], "columns": array.shape[1], "start": start}
            for name, array, start in zip(NAMES, seen.elements.arrays, seen.elements.starts, strict=True)
        ],
    }


# ---- warps ----


def role_of(warp: Warp) -> str:
    """What a warp is there for; empty: for nothing that is shown."""
    loads = any(isinstance(moment.what, Copy) and moment.what.loads for moment in warp.moments)
    multiplies = any("multiply" in segment.parts for segment in warp.segments)
    if loads:
        return "loads and multiplies" if multiplies else "loads"
    return "multiplies" if multiplies else ""


def roles(seen: Observed) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, warp in sorted(seen.clock.warps.items()):
        if role := role_of(warp):
            found.setdefault(role, []).append(number)
    return found


def followed_warps(seen: Observed) -> list[tuple[int, str]]:
    return [(number, role) for role, warps in roles(seen).items() for number in warps[:WARPS_FOLLOWED]]


def follow(seen: Observed, number: int, role: str, patterns: Patterns) -> dict[str, Any]:
    warp = seen.clock.warps[number]
    return {
        "warp": number,
        "role": role,
        "moments": [moment_data(seen, moment, patterns) for moment in warp.moments],
        "owns": owned(seen, warp, patterns),
    }


def owned(seen: Observed, warp: Warp, patterns: Patterns) -> list[tuple[int, int] | None]:
    """Of each lane, the elements of C that it stores."""
    start = seen.elements.starts[2]
    stores = [
        moment.what.elements
        for moment in warp.moments
        if isinstance(moment.what, Request) and (moment.what.elements >= start).any()
    ]
    if not stores:
        return []
    stored = np.concatenate([np.where(each >= start, each, NOWHERE) for each in stores], axis=1)
    lanes = (np.unique(row[row != NOWHERE]) for row in stored)
    return [patterns.add(row) if len(row) else None for row in lanes]


def moment_data(seen: Observed, moment: Moment, patterns: Patterns) -> dict[str, Any]:
    common = {"t": round(moment.time), "site": moment.site}
    what = moment.what
    if isinstance(what, Request):
        return common | request_data(what, patterns)
    if isinstance(what, Copy):
        words = {"kind": "copy", "bytes": what.nbytes, "loads": what.loads, "shared": what.shared}
        return common | words | {"boxes": boxes(seen.elements, [what.elements])}
    if isinstance(what, Multiplication):
        return common | {"kind": "product", "boxes": boxes(seen.elements, [what.a, what.b])}
    return common | {"kind": "wait", "name": what}


def request_data(what: Request, patterns: Patterns) -> dict[str, Any]:
    data: dict[str, Any] = {
        "kind": what.space,
        "what": what.what,
        "size": what.size,
        "lanes": int((what.present * (1 << np.arange(LANES, dtype=np.int64))).sum()),
        "at": patterns.add(np.where(what.present, what.at, NOWHERE)),
        "places": patterns.add(what.elements),
    }
    if what.space == "global":
        return data | {"sectors": len(sectors_of(what.at, what.present, what.size))}
    how = what.at, what.present, what.size, what.what == "load"
    turns = turns_of_words(*how)
    return data | {"turns": int(turns.max()) + 1, "least": least_turns(*how), "turn": patterns.add(turns)}


def boxes(elements: Elements, found: Iterable[Array]) -> list[list[int]]:
    """[matrix, row, column, rows, columns] around elements of one matrix each."""
    result = []
    for numbers in found:
        known = numbers[numbers != NOWHERE]
        if len(known):
            matrix = int(np.searchsorted(elements.starts, known.min(), side="right")) - 1
            rows, columns = np.divmod(known - elements.starts[matrix], elements.arrays[matrix].shape[1])
            low, left = int(rows.min()), int(columns.min())
            result.append([matrix, low, left, int(rows.max()) - low + 1, int(columns.max()) - left + 1])
    return result


# ---- the timeline ----


def timeline(seen: Observed) -> dict[str, Any]:
    """Rows of the first warps of each role; copies under way; the end."""
    rows = [(number, role) for role, warps in roles(seen).items() for number in warps[:WARPS_SHOWN]]
    shown = {number for number, _ in rows}
    return {
        "end": max(warp.now for warp in seen.clock.warps.values()),
        "warps": len(seen.clock.warps),
        "rows": [
            {"warp": number, "role": role, "segments": segments(seen.clock.warps[number])}
            for number, role in rows
        ],
        "flights": flights(f for f in seen.clock.flights if f.warp in shown),
    }


def flights(found: Iterable[Flight]) -> list[list[Any]]:
    """[begin, end, name, warp, how many]: copies that are ordered and waited for together are one."""
    rows: list[list[Any]] = []
    for flight in found:
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


def counts_rows(kernel: Kernel, math: str, seen: Observed) -> list[dict[str, Any]]:
    """What the rung before and this one need for the same product."""
    before = rung_before(kernel, math)
    old = None if before is None else counted(before, math, seen.shape)
    now = measures(seen.counts, seen.shape)
    then = [None] * len(now) if old is None else [value for _, value, _ in measures(old, seen.shape)]
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
    """(name, value, meaning); work is held against what one fma of a warp does, 32 multiply-adds."""
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
