"""A rung watched on a small product: its warps' moments, as data of the page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from lapidist.device import chip
from lapidist.kernels.kernel import Kernel
from lapidist.machine.counters import Counts
from lapidist.machine.program import Program, compile_program
from lapidist.machine.run import run, shared_extent
from lapidist_lab.lessons.clock import Clock, Moment, Warp
from lapidist_lab.lessons.elements import NOWHERE, Elements
from lapidist_lab.lessons.origins import Atom
from lapidist_lab.lessons.serving import least_turns, sectors_of, turns_of_words
from lapidist_lab.lessons.watch import Copy, Multiplication, Request, Watcher
from lapidist_lab.machine_studies.explain import DATA_PARALLEL
from lapidist_lab.machine_studies.registered import MACHINE_CHIP, Product, Shape, product_of

Array = np.ndarray
FIRST_MATHS = ("float32", "float16")
LEAST_K, STEPS = 64, 3
WARPS_FOLLOWED = 2  # of each role, by the slider
LANES = 32


def math_of(kernel: Kernel) -> str:
    """The math of a lesson: float, where the kernel multiplies that."""
    return next((math for math in FIRST_MATHS if math in kernel.types.maths), kernel.types.maths[0])


def shape_of(kernel: Kernel, math: str) -> Shape:
    """A product of two tiles by two, deep enough that every stage is used again."""
    config = kernel.config_for(math)
    steps = config.stages + 2 if config.stages else STEPS
    return 2 * config.bm * config.cluster_m, 2 * config.bn * config.cluster_n, max(LEAST_K, steps * config.bk)


def lesson_product(kernel: Kernel, math: str, shape: Shape) -> Product:
    """The product; of wgmma's rungs on so few SMs that a block which stays has two tiles."""
    device = chip(MACHINE_CHIP)
    if kernel.unit == "wgmma":
        device = replace(device, sms=2 * kernel.config_for(math).cluster_m)
    return product_of(kernel, math, shape, schedule=DATA_PARALLEL, device=device)


@lru_cache(maxsize=2)
def observed_rung(kernel: Kernel, math: str) -> Observed:
    """The rung on its own product. Kept, as the next rung's lesson shows a moment of it."""
    return Observed(kernel, math, shape_of(kernel, math))


class Observed:
    """One run of a rung, watched."""

    def __init__(self, kernel: Kernel, math: str, shape: Shape) -> None:
        self.kernel, self.math, self.shape = kernel, math, shape
        self.product: Product = lesson_product(kernel, math, shape)
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
    sums = [
        request for request in requests if request.action == "store" and (request.elements >= start).any()
    ]
    to_global = [request for request in sums if request.space == "global"]
    stores = [request.elements for request in to_global or sums]
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
        boxed = {"boxes": boxes(observed.elements, [event.elements]), "blocks": event.blocks}
        return common | words | boxed | {"atoms": atoms([event.atom] if event.atom else [], patterns)}
    if isinstance(event, Multiplication):
        boxed = {"kind": "product", "boxes": boxes(observed.elements, [event.a, event.b])}
        return common | boxed | {"atoms": atoms(event.atoms, patterns)}
    return common | {"kind": "wait", "name": event}


def atoms(shown: Iterable[Atom], patterns: Patterns) -> list[dict[str, Any]]:
    """The first elements of the pieces of 1024 bytes each, and bits of those that are read."""
    return [
        {"places": patterns.add(atom.elements), "read": "".join(str(int(bit)) for bit in atom.read)}
        for atom in shown
    ]


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


def segments(warp: Warp) -> list[list[Any]]:
    return [
        [round(s.begin), round(s.end), s.kind or "other", s.line, {k: round(v) for k, v in s.parts.items()}]
        for s in warp.segments
        if s.end > s.begin
    ]
