"""Plots as SVG text, drawn by small functions: bars, lines, points. Colours are the page's CSS variables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

WIDTH = 900
COLOURS = 12  # --series-0 … in the page's style
LABEL_GAP = 15
LETTER = 7.5  # wide, in the words at a mark
NAME_LETTER, WIDE, WIDER = 8.5, "mwMW^", 6.0  # in the names of bars

NAME_WIDTH = 150
MOST_TICKS = 16
STEPS = 24  # points that are tried along the slope of DRAM

Named = tuple[str, Sequence[tuple[float, float]]]  # a series and its (x, y)
Point = tuple[str, float, float]  # a kernel, its flops a byte, its TFLOP/s


def text(x: float, y: float, words: str, anchor: str = "start", css: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{css}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{css}"/>'


def drawing(height: float, parts: Sequence[str], title: str, width: float = WIDTH) -> str:
    head = f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(title)}">'
    return "\n".join([head, f"<title>{escape(title)}</title>", *parts, "</svg>"])


def hover(words: str) -> str:
    """The end of a shape's tag: its words under the pointer, and for who has none, at a touch."""
    return f' data-words="{escape(words)}"><title>{escape(words)}</title>'


def colour(place: int) -> str:
    return f"var(--series-{place % COLOURS})"


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions as near as may be to those wanted, in the same order, at least `gap` apart, between low and
    high.
    """
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    placed: dict[int, float] = {}
    floor = low
    for index in order:
        placed[index] = max(wanted[index], floor)
        floor = placed[index] + gap
    ceiling = high
    for index in reversed(order):
        placed[index] = min(placed[index], ceiling)
        ceiling = placed[index] - gap
    return [placed[index] for index in range(len(wanted))]


# ---- bars ----


@dataclass(frozen=True, slots=True)
class Bar:
    """A horizontal bar; `css` is its class: rung, peer, production or detour."""

    name: str
    value: float
    words: str
    css: str
    more: str = ""  # under the pointer, after the name and the words


def bars(
    rows: Sequence[Bar],
    marks: Sequence[tuple[str, float]],
    title: str,
    width: float = WIDTH,
    right: float = 120,
) -> str:
    """One bar a row, with room for its words at the right; marks are vertical lines with a name. Where there
    are marks, words stand in a column behind the longest bar, so that no line runs through them.
    """
    left, top, step = max([name_width(row.name) for row in rows] + [68.0]) + 16, 57 if marks else 6, 26
    most = max([row.value for row in rows] + [value for _, value in marks] + [1e-9])
    span = width - left - right

    def x(value: float) -> float:
        return left + span * value / most

    bottom = top + step * len(rows)
    parts, values = [], []
    for place, row in enumerate(rows):
        y = top + step * place
        parts.append(text(left - 10, y + 16, row.name, "end"))
        length = max(x(row.value) - left, 1.0)
        parts.append(
            f'<rect x="{left:.1f}" y="{y + 3}" width="{length:.1f}" height="{step - 7}" rx="2" class="bar'
            f' {row.css}"{hover(", ".join(part for part in (row.name, row.words, row.more) if part))}</rect>'
        )
        values.append(text(x(most if marks else row.value) + 6, y + 16, row.words, css="halo small"))
    for place, (name, value) in enumerate(marks):
        parts.append(line(x(value), top - 6, x(value), bottom, f"mark mark-{place}"))
        half = LETTER * len(name) / 2
        middle = min(max(x(value), half), width - half)
        parts.append(text(middle, top - 12 - 13 * (place % 3), name, "middle", "small muted"))
    return drawing(bottom + 10, parts + values, title, width)


def name_width(name: str) -> float:
    """As wide as viewers' letters are at most."""
    return NAME_LETTER * len(name) + WIDER * sum(letter in WIDE for letter in name)


# ---- axes ----


@dataclass(frozen=True, slots=True)
class Frame:
    """A plotting area with logarithmic x and linear or logarithmic y."""

    x_range: tuple[float, float]
    y_range: tuple[float, float]
    log_y: bool
    left: float = 64
    right: float = 170
    top: float = 16
    height: float = 380
    width: float = WIDTH

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def x(self, value: float) -> float:
        low, high = (math.log2(end) for end in self.x_range)
        return self.left + (self.width - self.left - self.right) * (math.log2(value) - low) / (high - low)

    def y(self, value: float) -> float:
        low, high = self.y_range
        if self.log_y:
            value, low, high = math.log10(max(value, low)), math.log10(low), math.log10(high)
        return self.bottom - self.height * (value - low) / (high - low)

    def axes(self, x_ticks: Sequence[float], y_ticks: Sequence[float], x_name: str, y_name: str) -> list[str]:
        edge = self.width - self.right
        parts = []
        for tick in y_ticks:
            parts.append(line(self.left, self.y(tick), edge, self.y(tick), "grid"))
            parts.append(text(self.left - 8, self.y(tick) + 4, f"{tick:g}", "end", "small muted"))
        for tick in x_ticks:
            parts.append(line(self.x(tick), self.bottom, self.x(tick), self.bottom + 5, "axis"))
            parts.append(text(self.x(tick), self.bottom + 19, f"{tick:g}", "middle", "small muted"))
        parts.append(line(self.left, self.bottom, edge, self.bottom, "axis"))
        parts.append(text((self.left + edge) / 2, self.bottom + 40, x_name, "middle", "small"))
        rotation = f"translate(16 {self.top + self.height / 2:.0f}) rotate(-90)"
        parts.append(
            f'<text transform="{rotation}" text-anchor="middle" class="small">{escape(y_name)}</text>'
        )
        return parts


def ticks_to(most: float) -> list[float]:
    """Round numbers from 0 to at least `most`, about seven."""
    unit = 10 ** math.floor(math.log10(max(most, 1e-9)))
    step = next(factor * unit for factor in (0.1, 0.2, 0.5, 1, 2) if most / (factor * unit) <= 8)
    return [step * index for index in range(math.ceil(most / step) + 1)]


# ---- lines ----


def lines(
    series: Sequence[Named],
    roofs: Mapping[str, float],
    x_name: str,
    y_name: str,
    title: str,
    width: float = WIDTH,
) -> str:
    """Values against size, each series named at its right end; roofs are the limits of units."""
    xs = sorted({x for _, points in series for x, _ in points})
    most = max([y for _, points in series for _, y in points] + list(roofs.values()))
    y_ticks = ticks_to(most)
    frame = Frame((xs[0], max(xs[-1], xs[0] * 2)), (0.0, y_ticks[-1]), log_y=False, width=width)
    powers = [x for x in xs if math.log2(x).is_integer()]
    parts = frame.axes(powers or xs, y_ticks, x_name, y_name)
    heights = spread([frame.y(limit) - 6 for limit in roofs.values()], LABEL_GAP, 12, frame.bottom)
    for (name, limit), height in zip(roofs.items(), heights, strict=True):
        parts.append(line(frame.left, frame.y(limit), width - frame.right, frame.y(limit), "mark mark-1"))
        parts.append(text(frame.left + 6, height, f"limit of {name}, {limit:.4g}", css="small muted halo"))
    ends = spread([frame.y(points[-1][1]) for _, points in series], LABEL_GAP, frame.top + 6, frame.bottom)
    names = []
    for place, ((name, points), end) in enumerate(zip(series, ends, strict=True)):
        path = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" class="series" style="stroke:{colour(place)}"/>')
        parts += [dot(frame.x(x), frame.y(y), 2.6, place, f"{name}: {x:g}, {y:.4g}") for x, y in points]
        names += leader(frame.x(points[-1][0]), frame.y(points[-1][1]), end, name, place)
    return drawing(frame.bottom + 50, parts + names, title, width)


def dot(x: float, y: float, radius: float, place: int, words: str) -> str:
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" style="fill:{colour(place)}"{hover(words)}</circle>'
    )


def leader(
    x: float, y: float, label_y: float, name: str, place: int, margin: float | None = None
) -> list[str]:
    """A label beside a point or at the margin, with a thin line to it."""
    end = x + 14 if margin is None else margin
    path = (
        f'<polyline points="{x + 4:.1f},{y:.1f} {end:.1f},{label_y:.1f} {end + 4:.1f},{label_y:.1f}"'
        ' class="leader"/>'
    )
    label = (
        f'<text x="{end + 8:.1f}" y="{label_y + 4:.1f}" class="small halo"'
        f' style="fill:{colour(place)}">{escape(name)}</text>'
    )
    return [path, label]


# ---- points ----


def roofline(
    points: Sequence[Point], roofs: Mapping[str, float], terabytes: float, title: str, width: float = WIDTH
) -> str:
    """(name, flops a byte, TFLOP/s) under the roofs. Where points lie close, as they do right of the first
    ridge, the margin has their names."""
    limit = max(roofs.values())
    low = min([x for _, x, _ in points] + [0.25])
    high = max([x for _, x, _ in points] + [64.0, limit / terabytes]) * 1.6
    y_ticks = round_numbers(min([y for _, _, y in points] + [1.0]) / 1.5, limit * 1.05)
    floor = y_ticks[0]
    frame = Frame((low / 1.3, high), (floor, y_ticks[-1]), log_y=True, height=460, width=width)
    x_ticks = [
        2.0**power for power in range(math.ceil(math.log2(frame.x_range[0])), math.floor(math.log2(high)) + 1)
    ]
    parts = frame.axes(
        x_ticks, thinned(y_ticks), "flop per byte that the blocks ask of global memory", "TFLOP/s"
    )
    ridge = min(roofs.values()) / terabytes
    start = max(frame.x_range[0], floor / terabytes)
    for top in roofs.values():
        parts.append(roof(frame, ((start, start * terabytes), (top / terabytes, top), (high, top))))
    heights = spread([frame.y(top) - 7 for top in roofs.values()], LABEL_GAP, 12, frame.bottom)
    for (name, top), height in zip(roofs.items(), heights, strict=True):
        words = f"limit of {name}, {top:.4g} TFLOP/s"
        parts.append(text(frame.x(high) - 4, height, words, "end", "small muted halo"))
    columns = sorted({x for _, x, _ in points})
    near = [[point for point in points if point[1] == x] for x in columns if x < ridge]
    close = min([ridge, *(left[0][1] for left, right in pairwise(near) if names_meet(frame, left, right))])
    close = min([close, *(group[0][1] for group in near if names_reach(frame, group, heights))])
    beside = [group for group in near if group[0][1] < close]
    x, y = place_at_slope(frame, start, ridge, terabytes, beside)
    parts.append(text(x, y, f"DRAM, {terabytes:g} TB/s", css="small muted"))
    for group in beside:
        parts += points_of(frame, group, columns, margin=False)
    parts += points_of(frame, [point for point in points if point[1] >= close], columns, margin=True)
    return drawing(frame.bottom + 50, parts, title, width)


def place_at_slope(
    frame: Frame, start: float, ridge: float, terabytes: float, groups: Sequence[Sequence[Point]]
) -> tuple[float, float]:
    """Where the words at the slope of DRAM meet no name beside a point: as far left as they can be."""
    named = [(frame.x(group[0][1]), height) for group in groups for height in name_heights(frame, group)]
    slope = [start * (ridge / start) ** (step / STEPS) for step in range(STEPS)]
    at = [(frame.x(each) + 10, frame.y(each * terabytes) + 22) for each in slope]
    for x, y in at:
        if not any(abs(y - height) < LABEL_GAP and abs(x - left) < NAME_WIDTH for left, height in named):
            return x, y
    return at[0]


def thinned(ticks: Sequence[float]) -> Sequence[float]:
    """Powers of ten alone where more would be crowded."""
    few = [tick for tick in ticks if f"{tick:e}".startswith("1.0")]
    return ticks if len(ticks) <= MOST_TICKS else few


def roof(frame: Frame, corners: Sequence[tuple[float, float]]) -> str:
    path = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in corners)
    return f'<polyline points="{path}" class="roof"/>'


def names_meet(frame: Frame, left: Sequence[Point], right: Sequence[Point]) -> bool:
    """Whether names beside two columns of points would run into each other."""
    (high, low), (other_high, other_low) = (
        (min(ends), max(ends)) for ends in (name_heights(frame, left), name_heights(frame, right))
    )
    overlap = high < other_low + LABEL_GAP and other_high < low + LABEL_GAP
    return overlap and frame.x(right[0][1]) - frame.x(left[0][1]) < NAME_WIDTH


def names_reach(frame: Frame, points: Sequence[Point], heights: Sequence[float]) -> bool:
    """Whether names beside a column of points would run into the words at a roof."""
    labelled = name_heights(frame, points)
    return any(abs(place - height) < LABEL_GAP for place in labelled for height in heights)


def name_heights(frame: Frame, points: Sequence[Point]) -> list[float]:
    return spread([frame.y(y) for _, _, y in points], LABEL_GAP, frame.top + 22, frame.bottom - 4)


def points_of(frame: Frame, points: Sequence[Point], columns: Sequence[float], margin: bool) -> list[str]:
    """Dots with their names beside them, or in the margin."""
    parts = []
    for (name, x, y), end in zip(points, name_heights(frame, points), strict=True):
        place = columns.index(x)
        parts.append(dot(frame.x(x), frame.y(y), 4, place, f"{name}: {x:.3g} flop/byte, {y:.4g} TFLOP/s"))
        parts += leader(
            frame.x(x), frame.y(y), end, name, place, frame.width - frame.right if margin else None
        )
    return parts


def round_numbers(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten, from the last below `low` to the first above `high`."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    numbers = [float(f"{factor}e{power}") for power in powers for factor in (1, 2, 5)]
    start = max(number for number in numbers if number <= low)
    end = min(number for number in numbers if number >= high)
    return [number for number in numbers if start <= number <= end]
