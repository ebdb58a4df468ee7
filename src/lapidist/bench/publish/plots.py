"""Plots as files, by matplotlib: the ladder as bars, speed against size, the roofline; what the Records allow
of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lapidist.backends.gpu.doctor import MATPLOTLIB_HINT
from lapidist.bench.protocol.cases import shape_words
from lapidist.bench.protocol.record import Conditions, Record
from lapidist.bench.publish.views import (
    Point,
    Series,
    in_math,
    in_order,
    label,
    main_case,
    maths_in,
    on,
    roofline,
    roofs,
    squares,
    sweep,
)
from lapidist.dtypes import short_name
from lapidist.errors import ArgumentError, DeviceError

FORMATS = (".svg", ".png", ".pdf")
KIND_COLOURS = {"rung": "#3b6fb6", "production": "#2a9d8f", "peer": "#76b900", "detour": "#b08968"}

Panel = Callable[[Any], None]


def require_matplotlib(path: Path) -> None:
    if path.suffix.lower() not in FORMATS:
        raise ArgumentError(f"--plot: must end in {', '.join(FORMATS)}; got {str(path)!r}. Rename it")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        message = (
            f"--plot: needs matplotlib, which was not found. Install it with: {MATPLOTLIB_HINT}, or use"
            " --html"
        )
        raise DeviceError(message) from error


def draw(path: Path, conditions: Conditions, records: Sequence[Record]) -> None:
    """One file with a panel for each view."""
    import matplotlib

    matplotlib.use("Agg")
    # Dates and random element names would make each file differ from the last.
    matplotlib.rcParams["svg.hashsalt"] = "lapidist"
    from matplotlib import pyplot

    panels = panels_of(conditions, records)
    heights = [height for height, _ in panels]
    figure = pyplot.figure(figsize=(9, sum(heights) + 0.6), layout="constrained")
    axes = figure.subplots(len(panels), 1, squeeze=False, gridspec_kw={"height_ratios": heights})
    for axis, (_, panel) in zip(axes[:, 0], panels, strict=True):
        panel(axis)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def panels_of(conditions: Conditions, records: Sequence[Record]) -> list[tuple[float, Panel]]:
    """Each with its height in inches: for every type the ladder, speed against size, the roofline."""
    panels: list[tuple[float, Panel]] = []
    for math in maths_in(records):
        rows = in_math(records, math)
        climbed = in_order(on(rows, main_case(rows) or (0, 0, 0)))
        known, bandwidth = roofs(conditions, math), float(conditions.chip.get("dram_gbps", 0.0)) / 1000
        panels.append(
            (
                max(3.0, 0.28 * len(climbed)),
                partial(ladder_panel, climbed=climbed, known=known, conditions=conditions),
            )
        )
        for series, axis_name in ((squares(rows, least=3), "m = n = k"), (sweep(rows), "m = n, at k = 1024")):
            if series:
                panels.append((4.6, partial(size_panel, series=series, math=math, axis_name=axis_name)))
        if roofline(climbed) and known and bandwidth:
            panels.append((4.6, partial(roofline_panel, climbed=climbed, known=known, terabytes=bandwidth)))
    return panels


def ladder_panel(
    axis: Any, climbed: Sequence[Record], known: Mapping[str, float], conditions: Conditions
) -> None:
    """Speed, or where nothing was timed the share of multiplying instructions."""
    timed = any(record.limit_share is not None for record in climbed)
    rows = [record for record in reversed(climbed) if record.tflops is not None or not timed]
    values = [(r.tflops if timed else 100 * (r.ffma_share or 0.0)) or 0.0 for r in rows]
    bars = axis.barh(
        [label(r.kernel) for r in rows], values, color=[KIND_COLOURS.get(r.kind, "#888888") for r in rows]
    )
    axis.bar_label(bars, [f"{value:.3g}" for value in values], padding=3, fontsize=8)
    for limit in known.values() if timed else ():
        axis.axvline(limit, color="#667085", linestyle="--", linewidth=1)
    axis.set_xlabel("TFLOP/s" if timed else "multiply-adds, % of instructions")
    axis.margins(x=0.12)
    if rows:
        shape = shape_words(rows[0].m, rows[0].n, rows[0].k)
        dashed = (
            f"; dashed: {', '.join(f'{name} {limit:.4g}' for name, limit in known.items())}" if timed else ""
        )
        axis.set_title(
            f"{shape} {rows[0].dtype}, {conditions.device}, {conditions.mode}{dashed}",
            loc="left",
            fontsize=10,
        )


def size_panel(axis: Any, series: Sequence[Series], math: str, axis_name: str) -> None:
    for each in series:
        sizes, speeds = zip(*each.points, strict=True)
        axis.plot(sizes, speeds, marker="o", markersize=3, label=label(each.kernel))
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_xlabel(axis_name)
    axis.set_ylabel(f"TFLOP/s, {short_name(math)}")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=8)


def joined(points: Sequence[Point]) -> list[tuple[str, Point]]:
    """Points that lie on each other share a label."""
    groups: list[tuple[str, Point]] = []
    for p in sorted(points, key=lambda p: (p.intensity, p.tflops)):
        name = label(p.kernel).split(" ")[0]
        if groups and groups[-1][1].intensity == p.intensity and p.tflops < 1.1 * groups[-1][1].tflops:
            groups[-1] = (f"{groups[-1][0]}, {name}", groups[-1][1])
        else:
            groups.append((name, p))
    return groups


def roofline_panel(
    axis: Any, climbed: Sequence[Record], known: Mapping[str, float], terabytes: float
) -> None:
    points = roofline(record for record in climbed if record.kind != "detour")
    most = 2 * max(p.intensity for p in points)
    ridge = min(known.values()) / terabytes
    for limit in known.values():
        start, corner = min(0.2, ridge), limit / terabytes
        axis.plot([start, corner, max(most, corner)], [start * terabytes, limit, limit], color="#667085")
    axis.plot(
        [p.intensity for p in points],
        [p.tflops for p in points],
        "o",
        markersize=5,
        color=KIND_COLOURS["rung"],
    )
    for names, p in joined(points):
        crowded = ridge <= p.intensity < max(each.intensity for each in points)
        side = ("right", -6) if crowded else ("left", 6)
        axis.annotate(
            names, (p.intensity, p.tflops), (side[1], -3), textcoords="offset points", fontsize=8, ha=side[0]
        )
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_major_formatter("{x:g}")
    axis.set_xlabel("flop per byte that the blocks ask of global memory")
    axis.set_ylabel("TFLOP/s")
    axis.grid(alpha=0.3)
