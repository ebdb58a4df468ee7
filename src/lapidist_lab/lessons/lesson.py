"""A lesson as plain data: a rung, run in the machine on a small product, and what its first block did."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lapidist.build.compiler import CUDA_SOURCES
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.registry import RUNGS
from lapidist.machine.counters import Counts
from lapidist.machine.run import run
from lapidist_lab.bench.publish.worklog import header_fields
from lapidist_lab.lessons.clock import LATENCY, Flight
from lapidist_lab.lessons.elements import NAMES
from lapidist_lab.lessons.moments import (
    LANES,
    Observed,
    Patterns,
    follow,
    followed_warps,
    lesson_product,
    math_of,
    observed_rung,
    roles,
    segments,
    shape_of,
)
from lapidist_lab.lessons.opening import opening
from lapidist_lab.machine_studies.registered import Shape

WARPS_SHOWN = 4  # of each role: rows of the timeline
TOGETHER = 50  # cycles between copies of one stage


def lesson_of(kernel: Kernel, watched: Observed | None = None) -> dict[str, Any]:
    """All that the page of a rung shows, except measured times. `watched`: another run than the lesson's."""
    math = math_of(kernel)
    before = rung_before(kernel, math)
    earlier = None if before is None else observed_rung(before, math)
    observed = watched or observed_rung(kernel, math)
    patterns = Patterns()
    followed = [follow(observed, number, role, patterns) for number, role in followed_warps(observed)]
    return {
        **about(kernel, math, observed),
        "before": "" if before is None else before.name,
        "counts": counts_rows(kernel, math, observed),
        "warps": followed,
        "timeline": timeline(observed),
        "opening": opening(observed, earlier, patterns),
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
    if shape == shape_of(kernel, math):
        return observed_rung(kernel, math).counts
    launch = lesson_product(kernel, math, shape).launch()
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
