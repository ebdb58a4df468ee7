"""Charts of points: each product over its arithmetic intensity, or beside cuBLAS over its size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lapidist_lab.bench.publish.charts import HIGH, LIGHT, Chart, drawing, frame, powers_of_two

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ABOVE: Any = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": 3, "labelcolor": LIGHT["ink"]}


def scatter(name: str, groups: Mapping[str, Sequence[tuple[float, float]]], words: str) -> Chart:
    """Speed over arithmetic intensity; `groups` are of cuBLAS, a way beside it, and our choice."""
    xs, ys = zip(*(point for points in groups.values() for point in points), strict=True)

    def draw(axes: Axes) -> Sequence[Sequence[str]]:
        frame(axes, "flops a byte", powers_of_two(min(xs), max(xs)), (min(ys) / 1.2, max(ys) * 1.2))
        axes.set_xlim(min(xs) / 1.1, max(xs) * 1.1)
        for (title, points), kind in zip(groups.items(), ("peer", "rung", "production"), strict=True):
            look: Any = {"color": LIGHT[kind], "alpha": 0.6, "clip_on": False}
            axes.plot(*zip(*points, strict=True), "o", ms=4, mew=0, label=title, **look)
        axes.legend(**ABOVE, handletextpad=0, markerscale=2)
        return []

    return Chart(name, drawing(HIGH, words, draw), words)


def ratios_over_size(name: str, points: Sequence[tuple[float, float]], words: str) -> Chart:
    """How many times as fast as cuBLAS each product is, over the cube root of m n k; losses are red."""
    sizes, ratios = zip(*points, strict=True)

    def draw(axes: Axes) -> Sequence[Sequence[str]]:
        frame(axes, "cube root of m n k", powers_of_two(min(sizes), max(sizes)))
        axes.set_yscale("log", base=2)
        axes.set(ylabel="times cuBLAS", ylim=(min(*ratios, 0.5) / 1.1, max(*ratios, 2.0) * 1.1))
        ticks = [
            2.0**power for power in range(-2, 5) if axes.get_ylim()[0] <= 2.0**power <= axes.get_ylim()[1]
        ]
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.axhline(1.0, color=LIGHT["peer"], lw=2)
        for lost, colour, title in ((False, "production", "lapidist"), (True, "chosen", "a loss")):
            shown = [point for point in points if (point[1] < 1) == lost]
            if shown:
                axes.plot(
                    *zip(*shown, strict=True), "o", ms=4, mew=0, label=title, color=LIGHT[colour], alpha=0.8
                )
        axes.plot([], [], color=LIGHT["peer"], lw=2, label="cuBLAS: 1")
        axes.legend(**ABOVE, handletextpad=0.4)
        return []

    return Chart(name, drawing(HIGH, words, draw), words)
