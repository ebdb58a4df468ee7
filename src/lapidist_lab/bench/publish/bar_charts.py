"""Charts of horizontal bars, with a key below them that says what each colour means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lapidist_lab.bench.publish.charts import HINT, LIGHT, NAMES, SMALL, WIDTH, Chart, drawing, whose

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KEY = {
    "rung": "a rung",
    "production": "lapidist",
    "peer": "cuBLAS",
    "cutlass": "CUTLASS",
    "detour": "a detour",
}
ROW, KEY_ROOM, HEAD_ROOM = 26, 30, 20  # pixels
UNIT = "TFLOP/s"
DASHES = (0, (4, 4))
EVEN = 100.0  # of bars in % of a peer: as fast


@dataclass(frozen=True, slots=True)
class Bar:
    """A horizontal bar; `kind` is that of a kernel, rung, peer, production or detour, or a colour."""

    name: str
    value: float
    words: str
    kind: str = "production"
    more: str = ""  # under the pointer, after the name and the words

    @property
    def colour(self) -> str:
        return "cutlass" if self.kind == "peer" and self.name.startswith("cutlass") else self.kind


def bars(
    name: str,
    rows: Sequence[Bar],
    marks: Sequence[tuple[str, float]],
    words: str,
    key: Mapping[str, str] | None = None,
    losses: bool = False,
) -> Chart:
    """One bar a row, its words in a column at the right; marks are vertical lines with a name above. `key`
    says what each colour means, KEY where it is None; an empty one is not drawn. A unit that all rows have
    stands once, above the column. `losses`: bars are in % of a peer, and have a red point where they lose."""
    entries = {kind: text for kind, text in (KEY if key is None else key).items()
               if kind in {row.colour for row in rows}}  # fmt: skip
    unit = UNIT if all(f" {UNIT}," in row.words for row in rows) else ""
    lost = [losses and round(row.value) < EVEN for row in rows]
    column = [row.words.replace(f" {unit},", ",") if unit else row.words for row in rows]

    def draw(axes: Axes) -> Sequence[Sequence[str]]:
        spots = range(len(rows))
        most = max([row.value for row in rows] + [value for _, value in marks] + [1e-9])
        colours = [LIGHT[row.colour] for row in rows]
        for place, bar in enumerate(axes.barh(spots, [row.value for row in rows], 0.72, color=colours)):
            bar.set_gid(f"{HINT}{place}")
        axes.set(xlim=(0, most), ylim=(len(rows) - 0.5, -0.5), xticks=[])
        axes.spines["bottom"].set_visible(False)
        right_axis = axes.secondary_yaxis("right")
        right_axis.spines["right"].set_visible(False)
        for axis, texts, size in ((axes, [row.name for row in rows], NAMES), (right_axis, column, SMALL)):
            axis.set_yticks(spots, texts)
            axis.tick_params(length=0, pad=6, labelsize=size, labelcolor=LIGHT["ink"])
        if any(lost):
            draw_losses(axes, right_axis, [row.value for row in rows], lost)
        for place, (named, value) in enumerate(marks):
            axes.axvline(value, color=LIGHT[whose(named) or "muted"], lw=1.5, ls=DASHES, clip_on=False)
            above: Any = axes.get_xaxis_transform()
            axes.annotate(named, (value, 1), (0, 3 + 15 * (place % 3)), above, "offset points", ha="center",
                          color=LIGHT["muted"])  # fmt: skip
        draw_key(axes, entries, [named for named, _ in marks], any(lost))
        if unit:
            above_column: Any = {"x": 1 - 10 / WIDTH, "ha": "right", "size": SMALL, "color": LIGHT["muted"]}
            axes.figure.suptitle(unit, **above_column)
        return [[", ".join(filter(None, (row.name, row.words, row.more)))] for row in rows]

    height = ROW * len(rows) + 16 + 15 * min(len(marks), 3)
    height += (KEY_ROOM if entries else 0) + (HEAD_ROOM if unit else 0)
    return Chart(name, drawing(height, words, draw), words)


def draw_losses(axes: Axes, column: Any, values: Sequence[float], lost: Sequence[bool]) -> None:
    """A red point at the end of the bar, and its words in red."""
    spots = [spot for spot, loss in enumerate(lost) if loss]
    axes.scatter([values[spot] for spot in spots], spots, 34, color=LIGHT["chosen"], zorder=3)
    for spot in spots:
        column.get_yticklabels()[spot].set_color(LIGHT["chosen"])


def draw_key(axes: Axes, entries: Mapping[str, str], marks: Sequence[str], losses: bool = False) -> None:
    """Say below the bars what each colour means, and each line."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if entries:
        patches: Any = [Patch(color=LIGHT[kind], label=text) for kind, text in entries.items()]
        for named in marks:
            colour = LIGHT[whose(named) or "muted"]
            patches.append(Line2D([], [], color=colour, lw=1.5, ls=(0, (2, 2)), label=named))
        if losses:
            patches.append(Line2D([], [], marker="o", ls="", color=LIGHT["chosen"], label="a loss"))
        axes.legend(handles=patches, loc="upper center", bbox_to_anchor=(0.5, 0), ncols=len(patches),
                    handlelength=1, handleheight=1, labelcolor=LIGHT["ink"])  # fmt: skip
