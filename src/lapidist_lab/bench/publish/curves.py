"""Charts of any quantity against another one: errors in bits, shares of a speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lapidist_lab.bench.publish.charts import (
    HIGH,
    HINT,
    LIGHT,
    Chart,
    Series,
    drawing,
    line_colour,
    name_at_margin,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Axis(NamedTuple):
    """`values`: those with a tick, or the two ends of y."""

    title: str
    values: Sequence[float]
    logarithmic: bool = False


def curves(
    name: str,
    series: Sequence[Series],
    words: str,
    x: Axis,
    y: Axis,
    marks: Mapping[str, float] | None = None,
) -> Chart:
    """Each series is named at its right end. `marks`: horizontal lines of others' figures, named below."""
    from lapidist_lab.bench.publish.charts import require_matplotlib

    require_matplotlib()

    def draw(axes: Axes) -> Sequence[Sequence[str]]:
        from matplotlib.ticker import NullLocator

        if x.logarithmic:
            axes.set_xscale("log", base=2)
        axes.set_xticks(x.values, [f"{tick:g}" for tick in x.values])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set(xlabel=x.title, ylabel=y.title, xlim=(min(x.values), max(x.values)), ylim=y.values)
        axes.grid(axis="y")
        for title, height in (marks or {}).items():
            axes.axhline(height, color=LIGHT["muted"], lw=1, ls=(0, (4, 4)))
            look: Any = {"color": LIGHT["muted"], "va": "top"}
            axes.annotate(title, (min(x.values), height), (6, -4), textcoords="offset points", **look)
        for place, (title, points) in enumerate(series):
            colour: Any = {"color": line_colour(title, place), "gid": f"{HINT}{place}", "clip_on": False}
            axes.plot(*zip(*points, strict=True), "o-", ms=5, mew=0, lw=2, **colour)
        name_at_margin(axes, [(title, *points[-1]) for title, points in series])
        return [[f"{title}: {at:g}, {value:.4g}" for at, value in points] for title, points in series]

    return Chart(name, drawing(HIGH, words, draw, [title for title, _ in series]), words)
