"""Charts by matplotlib, as SVG text. Each is drawn once, in the colours of a light page. The file for a dark
page, and a page that follows its reader, have others in their place."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from lapidist.commands.lab import INSTALL
from lapidist.errors import DeviceError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 448  # a phone shows 358 pixels of its 390 as the page: letters of 13 are still 10 high
FONTS = 'system-ui, "DejaVu Sans", sans-serif'  # laid out by DejaVu's letters, the widest of these
COLOURS = {  # light, dark
    "paper": ("#fdfdfc", "#14171d"),
    "ink": ("#1d2330", "#e6e9ef"),
    "muted": ("#667085", "#98a2b3"),
    "grid": ("#e4e7ec", "#2b303b"),
    "rung": ("#3b6fb6", "#6fa3ea"),
    "production": ("#2a9d8f", "#4fd1c5"),
    "detour": ("#b08968", "#d4a373"),
    "peer": ("#5b9100", "#9be015"),
    "cutlass": ("#c2410c", "#fb923c"),
    "chosen": ("#d1495b", "#ff7b8b"),
    "warn": ("#b42318", "#f97066"),
    "series-1": ("#2f5fa8", "#7fb0f5"),
    "series-3": ("#7c3aed", "#b794f6"),
    "series-5": ("#be185d", "#f472b6"),
    "series-6": ("#92600a", "#e3b341"),
    "series-7": ("#4b5563", "#b6bfcc"),
    "series-8": ("#d11a2a", "#ff6b6b"),
    "series-10": ("#8a2be2", "#d0a2ff"),
    "series-11": ("#5d6b00", "#c5d86d"),
}
THEMES = {"light": 0, "dark": 1}
LIGHT = {name: light for name, (light, _) in COLOURS.items()}
SERIES = [light for name, light in LIGHT.items() if name.startswith("series")]
WHOSE = {"lapidist": "production", "cublas": "peer", "cutlass": "cutlass", "our": "production"}
NAMES, SMALL = 14, 13  # sizes of letters
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "lapidist",
    "font.size": SMALL,
    "figure.facecolor": LIGHT["paper"],
    "axes.facecolor": "none",
    "axes.edgecolor": LIGHT["muted"],
    "axes.labelcolor": LIGHT["ink"],
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.axisbelow": True,
    "grid.color": LIGHT["grid"],
    "text.color": LIGHT["ink"],
    "xtick.labelcolor": LIGHT["muted"],
    "ytick.labelcolor": LIGHT["muted"],
    "xtick.color": LIGHT["muted"],
    "ytick.major.size": 0,
    "ytick.major.pad": 8,
    "xtick.minor.size": 0,
    "legend.frameon": False,
    "figure.constrained_layout.w_pad": 10 / 72,
    "figure.constrained_layout.h_pad": 8 / 72,
}
HEAD = 34  # pixels: the title of a chart among others
START_MARGIN, TOP_MARGIN, FOOT_MARGIN = 50, 36, 52  # around points
HIGH = 340  # pixels, of a chart of points
LABEL_GAP, NAME_GAP = 16, 16
MOST_TICKS = 7
HINT = "hints-"  # begins the name of what has words under the pointer
FRACTION = re.compile(r"-?\d+\.\d{2,}")

Series = tuple[str, Sequence[tuple[float, float]]]  # its name, its (x, y)
Point = tuple[str, float, float]  # its name, x and y
ROOF = "limit of "
Drawing = Callable[["Axes"], Sequence[Sequence[str]]]  # what it draws has words under the pointer


@dataclass(frozen=True, slots=True)
class Chart:
    """`name` begins the names of its files; `words` say what it shows, to who cannot see it."""

    name: str
    drawn: str
    words: str

    def shown(self, folder: str = "") -> str:
        """The HTML of the picture; `folder` leads from the page to the files."""
        dark = f'<source media="(prefers-color-scheme: dark)" srcset="{folder}{self.name}-dark.svg">'
        plain = f'<img src="{folder}{self.name}-light.svg" alt="{escape(self.words)}">'
        return f"<picture>{dark}{plain}</picture>\n"

    def files(self, folder: Path) -> dict[Path, str]:
        return {folder / f"{self.name}-{theme}.svg": themed(self.drawn, theme) for theme in THEMES}


# ---- colours ----


def themed(drawn: str, theme: str) -> str:
    """The drawing as a file of its own, in the colours of a theme."""
    for colours in COLOURS.values():
        drawn = drawn.replace(colours[0], colours[THEMES[theme]])
    return drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"


def following(drawn: str) -> str:
    """The drawing for a page that defines `variables`."""
    for name, light in LIGHT.items():
        drawn = drawn.replace(light, f"var(--{name})")
    return drawn


def variables(selector: str) -> str:
    light, dark = (
        " ".join(f"--{name}: {colours[place]};" for name, colours in COLOURS.items())
        for place in THEMES.values()
    )
    return f"{selector} {{ {light} }}\n@media (prefers-color-scheme: dark) {{ {selector} {{ {dark} }} }}\n"


def stacked(charts: Sequence[tuple[str, str]]) -> str:
    """One file with titled drawings below each other, which follows the reader's light or dark."""
    parts, top = [], 0.0
    for title, drawn in charts:
        words = f'<text x="10" y="{top + 22:g}" style="font: 15px {escape(FONTS)}; fill: var(--ink)">'
        parts += [f"{words}{escape(title)}</text>", drawn.replace("<svg ", f'<svg y="{top + HEAD:g}" ', 1)]
        top += HEAD + float(drawn.partition(' height="')[2].partition('"')[0])
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top:g}" width="{WIDTH}">'
    paper = f'<style>{variables("svg")}</style><rect width="{WIDTH}" height="{top:g}" fill="var(--paper)"/>'
    return "\n".join([opening, paper, *map(following, parts), "</svg>\n"])


# ---- a drawing ----


def drawing(height: float, words: str, draw: Drawing, named: Sequence[str] = ()) -> str:
    """The SVG that `draw` makes. `named`: what stands in the margin at the right of fixed axes; without them
    names and words get the room that they need."""
    require_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a reader's own matplotlibrc would change the files
        matplotlib.rcParams.update(STYLE)
        figure = Figure((WIDTH / 72, height / 72), 72, layout=None if named else "constrained")
        axes = figure.add_subplot()
        if named:
            right, top = 1 - end_margin(named) / WIDTH, 1 - TOP_MARGIN / height
            figure.subplots_adjust(START_MARGIN / WIDTH, FOOT_MARGIN / height, right, top)
        hints, file = draw(axes), io.StringIO()
        if named:  # a name of y that lay beside the axis would take room from the lines
            figure.suptitle(axes.get_ylabel(), x=10 / WIDTH, ha="left", size=SMALL)
            axes.set_ylabel("")
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", metadata=nothing)
    return tidied(file.getvalue(), words, hints)


def end_margin(named: Sequence[str]) -> float:
    """Pixels for the longest of these names beside the axes, by DejaVu's letters, and for its thin line."""
    from matplotlib.textpath import TextPath

    widths = [TextPath((0, 0), name, size=SMALL).get_extents().width for name in named]
    return NAME_GAP + 1.04 * max(widths) + 10


def require_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise DeviceError(f"charts need matplotlib, which is not installed. Get it: {INSTALL}") from error


def tidied(svg: str, words: str, hints: Sequence[Sequence[str]]) -> str:
    """The SVG without what no viewer needs, with words for who cannot see it and under the pointer."""
    root = ElementTree.fromstring(svg)
    for element in list(root.iter()):
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = {key.rpartition("}")[2]: plain(value) for key, value in element.attrib.items()}
        element.attrib.pop("clip-path", None)  # nothing is drawn beyond the axes
        if element.get("transform", "").startswith("rotate(-0 "):
            del element.attrib["transform"]
    for defs in root.findall("defs"):
        root.remove(defs)
    for group in list(root.iter("g")):
        name = group.attrib.pop("id", "")
        if name.startswith(HINT):
            tell(group, hints[int(name.removeprefix(HINT))])
        share_style(group)
    width, height = (root.attrib[side].removesuffix("pt") for side in ("width", "height"))
    root.attrib = {"width": width, "height": height, "viewBox": root.attrib["viewBox"]}
    root.attrib |= {"role": "img", "aria-label": words, "style": f"font-family: {FONTS}"}
    title = ElementTree.Element("title")
    title.text = words
    root.insert(0, title)
    return re.sub(r"\n\s*", "\n", ElementTree.tostring(root, encoding="unicode").strip())


def plain(value: str) -> str:
    """The attribute with hundredths of a pixel at most and without fonts: viewers have their own."""
    value = FRACTION.sub(lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), value)
    return re.sub(r"font-family: [^;]*(; )?", "", value)


def tell(group: ElementTree.Element, hints: Sequence[str]) -> None:
    """Give each mark its words, under the pointer and at a touch."""
    marks = list(group.iter("use")) or list(group.iter("path"))
    for mark, words in zip(marks, hints, strict=True):
        mark.set("data-words", words)
        ElementTree.SubElement(mark, "title").text = words


def share_style(group: ElementTree.Element) -> None:
    """Move a style that all marks of a series have to the series."""
    marks = [mark for mark in group if mark.tag == "use"]
    if marks and len({mark.get("style") for mark in marks}) == 1:
        group.set("style", marks[0].get("style", ""))
        for mark in marks:
            mark.attrib.pop("style", None)


# ---- lines and points ----


def lines(
    name: str,
    series: Sequence[Series],
    words: str,
    roofs: Mapping[str, float] | None = None,
    x_name: str = "m = n = k",
) -> Chart:
    """TFLOP/s against size, each series named at its right end; roofs are the limits of units."""
    limits = roofs or {}
    xs = sorted({x for _, points in series for x, _ in points})
    most = max([y for _, points in series for _, y in points] + list(limits.values()))

    def draw(axes: Axes) -> Sequence[Sequence[str]]:
        frame(axes, x_name, apart([x for x in xs if math.log2(x).is_integer()] or xs))
        axes.set(xlim=(xs[0], max(xs[-1], xs[0] * 2)), ylim=(0, most * 1.05))
        ends = draw_roofs(axes, {title: [(xs[0], top), (xs[-1], top)] for title, top in limits.items()})
        for place, (title, points) in enumerate(series):
            look: Any = {"color": line_colour(title, place), "gid": f"{HINT}{place}", "clip_on": False}
            axes.plot(
                *zip(*points, strict=True), "o--" if "burst" in title else "o-", ms=5, mew=0, lw=2, **look
            )
        name_at_margin(axes, [*((title, *points[-1]) for title, points in series), *ends])
        return [[f"{title}: {x:g}, {y:.4g}" for x, y in points] for title, points in series]

    named = [title for title, _ in series] + names_of_roofs(limits)
    return Chart(name, drawing(HIGH, words, draw, named), words)


def line_colour(title: str, place: int) -> str:
    """Lapidist, cuBLAS and CUTLASS have one colour on every chart; others take the next of SERIES."""
    if title.startswith(ROOF):
        return LIGHT["muted"]
    return LIGHT[whose(title)] if whose(title) else SERIES[place % len(SERIES)]


def whose(title: str) -> str:
    """The colour that is one library's on every chart; empty for others."""
    return next((kind for who, kind in WHOSE.items() if title.lower().startswith(who)), "")


def roofline(
    name: str,
    points: Sequence[tuple[str, float, float]],
    roofs: Mapping[str, float],
    terabytes: float,
    words: str,
) -> Chart:
    """(name, flops a byte, TFLOP/s) under the roofs, their names in the margin."""
    limit = max(roofs.values())
    low = min([x for _, x, _ in points] + [0.25]) / 1.3
    high = max([x for _, x, _ in points] + [64.0, limit / terabytes]) * 1.6
    floor = min([y for _, _, y in points] + [1.0]) / 1.5
    start = max(low, floor / terabytes)

    def draw(axes: Axes) -> Sequence[Sequence[str]]:
        frame(
            axes,
            f"flop per byte; slope: DRAM, {terabytes:g} TB/s",
            powers_of_two(low, high),
            (floor, limit * 1.6),
        )
        axes.set_xlim(low, high)
        slopes = {
            title: [(start, start * terabytes), (top / terabytes, top), (high, top)]
            for title, top in roofs.items()
        }
        ends = draw_roofs(axes, slopes)
        for place, (title, x, y) in enumerate(points):
            axes.plot(x, y, "o", ms=8, mew=0, color=line_colour(title, place), gid=f"{HINT}{place}")
        name_at_margin(axes, [*points, *ends])
        return [[f"{title}: {x:.3g} flop/byte, {y:.4g} TFLOP/s"] for title, x, y in points]

    named = [title for title, _, _ in points] + names_of_roofs(roofs)
    height = max(400, LABEL_GAP * len(named) + 100)
    return Chart(name, drawing(height, words, draw, named), words)


def frame(
    axes: Axes, x_name: str, x_ticks: Sequence[float], y_range: tuple[float, float] | None = None
) -> None:
    """Set the axes: logarithmic x, and logarithmic y where `y_range` is not None."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_xscale("log", base=2)
    axes.set_xticks(x_ticks, [f"{tick:g}" for tick in x_ticks])
    axes.set(xlabel=x_name, ylabel="TFLOP/s")
    axes.xaxis.set_minor_locator(NullLocator())
    if y_range is not None:
        steps = (1.0, 2.0, 5.0) if y_range[1] / y_range[0] < 1e5 else (1.0,)
        axes.set(yscale="log", ylim=y_range)
        axes.yaxis.set_major_locator(LogLocator(10.0, steps, numticks=100))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}"))
    axes.grid(axis="y")


def powers_of_two(low: float, high: float) -> list[float]:
    powers = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)
    return apart([2.0**power for power in powers])


def apart(ticks: Sequence[float]) -> list[float]:
    """Every one, or every second or third, so that their numbers do not meet; the last one is there."""
    return list(ticks[:: -max(1, math.ceil(len(ticks) / MOST_TICKS))][::-1])


def draw_roofs(axes: Axes, roofs: Mapping[str, Sequence[tuple[float, float]]]) -> list[Point]:
    """Draw the limit of each unit. Returns their names and right ends, for the margin: over the curves a name
    would hide some of them.
    """
    for corners in roofs.values():
        axes.plot(*zip(*corners, strict=True), color=LIGHT["muted"], lw=1.5)
    return [
        (words, *roofs[name][-1]) for name, words in zip(roofs, names_of_roofs(tops_of(roofs)), strict=True)
    ]


def tops_of(roofs: Mapping[str, Sequence[tuple[float, float]]]) -> dict[str, float]:
    return {name: corners[-1][1] for name, corners in roofs.items()}


def names_of_roofs(tops: Mapping[str, float]) -> list[str]:
    return [f"{ROOF}{name}, {top:.4g}" for name, top in tops.items()]


def name_at_margin(axes: Axes, points: Sequence[Point]) -> None:
    """Write names beside the axes, in the order of their heights, each with a thin line to its point."""
    spots = [axes.transData.transform((x, y)) for _, x, y in points]
    heights = spread([float(y) for _, y in spots], LABEL_GAP, axes.bbox.y0 + 6, axes.bbox.y1)
    line: Any = {"arrowstyle": "-", "color": LIGHT["muted"], "lw": 0.7, "relpos": (0, 0.5), "shrinkB": 4}
    for place, ((name, *at), height) in enumerate(zip(points, heights, strict=True)):
        spot = axes.bbox.x1 + NAME_GAP, height
        axes.annotate(name, (at[0], at[1]), spot, "data", "figure pixels", line, False, va="center",
                      color=line_colour(name, place))  # fmt: skip


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions near these, in the same order, at least `gap` from each other, between low and high."""
    order = sorted(range(len(positions)), key=lambda index: positions[index])
    placed, floor, ceiling = dict[int, float](), low, high
    for index in order:
        placed[index] = max(positions[index], floor)
        floor = placed[index] + gap
    for index in reversed(order):
        placed[index] = min(placed[index], ceiling)
        ceiling = placed[index] - gap
    return [placed[index] for index in range(len(positions))]
