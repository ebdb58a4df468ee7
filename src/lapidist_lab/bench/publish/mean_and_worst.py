"""A chart with a bar for the mean of some ratios, and a point for the worst: red where it is a loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lapidist_lab.bench.publish.cells import geomean
from lapidist_lab.bench.publish.charts import LIGHT, NAMES, SMALL, Chart, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW, KEY_ROOM = 30, 40  # pixels


def mean_and_worst(name: str, ratios: Mapping[str, Sequence[float]], words: str, peer: str) -> Chart:
    """`ratios`: of every line its name, and how many times as fast as the peer each case is."""
    # what is written as 1.00x is no loss
    lines = [(title, geomean(values), round(min(values), 2)) for title, values in ratios.items()]

    def draw(axes: Axes) -> Sequence[Sequence[str]]:
        spots = range(len(lines))
        means = [mean for _, mean, _ in lines]
        axes.barh(spots, means, 0.62, color=LIGHT["production"], label="mean")
        for loss, colour, label in ((False, "ink", "worst case"), (True, "chosen", "a loss")):
            points = [(least, spot) for spot, (_, _, least) in enumerate(lines) if (least < 1) == loss]
            if points:
                xs, ys = zip(*points, strict=True)
                axes.scatter(xs, ys, 34, color=LIGHT[colour], label=label, zorder=3)
        axes.axvline(1.0, color=LIGHT["muted"], lw=1, ls=(0, (4, 4)))
        axes.set(xlim=(0, max(1.0, *(mean for _, mean, _ in lines))), ylim=(len(lines) - 0.5, -0.5))
        axes.set_xticks([1.0], [f"as fast as {peer}"])
        axes.set_yticks(spots, [title for title, _, _ in lines])
        axes.tick_params(axis="y", length=0, pad=6, labelsize=NAMES, labelcolor=LIGHT["ink"])
        right_axis = axes.secondary_yaxis("right")
        right_axis.spines["right"].set_visible(False)
        right_axis.set_yticks(spots, [f"{mean:.2f}x, worst {least:.2f}x" for _, mean, least in lines])
        right_axis.tick_params(length=0, pad=6, labelsize=SMALL, labelcolor=LIGHT["ink"])
        for text, (_, _, least) in zip(right_axis.get_yticklabels(), lines, strict=True):
            text.set_color(LIGHT["chosen" if least < 1 else "ink"])
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, labelcolor=LIGHT["ink"])
        return []

    return Chart(name, drawing(ROW * len(lines) + KEY_ROOM + ROW, words, draw), words)
