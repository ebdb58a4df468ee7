"""A schedule as a timeline: who does what when, in the terminal, as JSON, or as an SVG; beside data-parallel
and split-K.
"""

from __future__ import annotations

import colorsys
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from lapidist.commands.fold import folded, terminal_columns
from lapidist.commands.schedule_table import idle, name, table, waiting, waves
from lapidist.device import chip
from lapidist.errors import ArgumentError
from lapidist.schedule import CostModel, Schedule, TileGrid, data_parallel, split_k
from lapidist.schedule.simulate import Span, Timeline, simulate

if TYPE_CHECKING:
    from lapidist.commands.products import Product

SPLITS = (2, 3, 4, 6, 8, 12, 16)
MOST_BLOCKS = 20_000  # a split of more is left out: it could only lose, and takes seconds to play out
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
MARKS = {"start": ">", "fixup": "+", "wait": ".", "reduce": "="}
LEGEND = (
    "a-Z: a tile's iterations; >: start; +: a partial sum handed on or taken in; .: waiting; =: reduction;"
    " blank: idle"
)
PIPE_COLUMNS = 120
LABELS = 12  # columns of a bar's name and of its ends


@dataclass(frozen=True, slots=True)
class Comparison:
    """The schedule that was asked for, and others of the same tiles."""

    chosen: Timeline
    data_parallel: Timeline
    splits: tuple[Timeline, ...]

    @property
    def lines(self) -> list[Timeline]:
        """All, the chosen one first and once."""
        alternatives = (self.data_parallel, *self.splits)
        return [self.chosen, *(line for line in alternatives if name(line) != name(self.chosen))]

    @property
    def drawn(self) -> list[Timeline]:
        """The chosen one, data-parallel and the best split."""
        best = min(self.splits, key=lambda line: line.end, default=None)
        return [line for line in self.lines if line in (self.chosen, self.data_parallel, best)]


def compare(schedule: Schedule, sms: int, occupancy: int, costs: CostModel) -> Comparison:
    def played(other: Schedule) -> Timeline:
        return simulate(other, sms, occupancy=occupancy, costs=costs)

    grid, raster = schedule.grid, schedule.raster
    reduction = "turnstile" if schedule.reduction == "none" else schedule.reduction
    counts = [n for n in SPLITS if n <= grid.iterations and grid.tiles * n <= MOST_BLOCKS]
    splits = [
        split_k(grid, n, reduction=reduction, fragments=schedule.fragments, raster=raster) for n in counts
    ]
    return Comparison(
        played(schedule), played(data_parallel(grid, raster=raster)), tuple(map(played, splits))
    )


class OfKernel(NamedTuple):
    """A kernel's default config in words and its tiles of a product; to a schedule the blocks of a cluster
    are one, on as many SMs. How many of these an SM of an H200 holds, and what the planner says they cost."""

    words: str
    grid: TileGrid
    cluster: int
    per_sm: int
    costs: CostModel


def of_kernel(name: str, product: Product) -> OfKernel:
    from lapidist.kernels.registry import kernel_named
    from lapidist.problems.problem import dense_problem

    row, device = kernel_named(name), chip("h200")
    problem = dense_problem(*product.extents, product.math)
    if not row.family.scheduled:
        raise ArgumentError(
            f"--kernel: must be one that takes schedules; got {row.name}. Take wgmma or simt, or give a"
            " --tile"
        )
    if wrong := row.types.refuse(problem):
        raise ArgumentError(
            f"--kernel: {row.name} does not take this --dtype: {wrong}. Name another type, or another kernel"
        )
    config = row.config_for(product.math)
    per_sm, costs = row.family.costs(problem, row, config, device)
    return OfKernel(f"{row.name}'s {config}", row.tile_grid(problem, config), config.cluster, per_sm, costs)


def parse_tile(text: str) -> tuple[int, int, int]:
    parts = text.lower().split("x")
    if len(parts) != 3 or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise ArgumentError(
            f"--tile: must be BMxBNxBK, three positive numbers; got {text!r}. Example: 128x128x32"
        )
    return int(parts[0]), int(parts[1]), int(parts[2])


def parse_costs(text: str | None) -> CostModel:
    if text is None:
        return CostModel()
    try:
        start, fixup, iteration, peer = (float(part) * 1e-6 for part in text.split(","))
    except ValueError:
        rule = "must be START,FIXUP,ITERATION,PEER in microseconds"
        raise ArgumentError(f"--costs: {rule}; got {text!r}. Example: 2,3,0.5,1") from None
    return CostModel(start, fixup, iteration, peer, "seconds", "given on the command line")


# ---- text ----


def as_text(comparison: Comparison, rows: int = 24) -> str:
    columns = terminal_columns(PIPE_COLUMNS)
    costs = comparison.chosen.costs
    words = str(comparison.chosen.schedule).splitlines()
    head = [*(folded(line, 4, columns) for line in words), ""]
    tail = [
        "",
        folded(LEGEND, 0, columns),
        "",
        *table(comparison.lines, comparison.data_parallel, columns),
        "",
    ]
    tail += [folded(f"costs: {costs_line(costs)}", 7, columns)]
    return "\n".join(head + bars(comparison.chosen, columns - LABELS, rows) + tail)


def costs_line(costs: CostModel) -> str:
    factor = 1e6 if costs.unit == "seconds" else 1.0
    words = ("start", "fixup", "iteration", "peer", *(("alongside",) if costs.alongside is not None else ()))
    values = ", ".join(f"{word} {getattr(costs, word) * factor:.4g}" for word in words)
    return f"{values} {'us' if factor > 1 else costs.unit} ({costs.source})"


def bars(line: Timeline, width: int, rows: int) -> list[str]:
    """One row for each place on an SM; `rows` of them (0: all), the first and the last."""
    if not line.spans:
        return ["nothing to launch"]
    spans_at: dict[tuple[int, int], list[Span]] = defaultdict(list)
    for span in line.spans:
        spans_at[span.sm, span.place].append(span)
    drawn = [
        f"{label(line, sm, place):>9} |{cells(spans_at[sm, place], line.end, width)}|"
        for sm in range(line.sms)
        for place in range(line.occupancy)
    ]
    if rows and len(drawn) > rows:
        hidden = len(drawn) - rows
        drawn[rows - rows // 3 : len(drawn) - rows // 3] = [
            f"{'':>9}   … {hidden} more rows (--rows 0 shows all)"
        ]
    return [f"{'':>9}  0{line.costs.amount(line.end):>{width - 1}}", *drawn]


def label(line: Timeline, sm: int, place: int) -> str:
    return f"SM {sm}" if line.occupancy == 1 else f"SM {sm}.{place}"


def cells(spans: Sequence[Span], end: float, width: int) -> str:
    """In each cell what takes most of its time."""
    shares: list[dict[str, float]] = [defaultdict(float) for _ in range(width)]
    for span in spans:
        mark = MARKS.get(span.kind) or LETTERS[span.tile % len(LETTERS)]
        first, last = span.begin / end * width, span.end / end * width
        for cell in range(int(first), min(int(last) + 1, width)):
            shares[cell][mark] += min(last, cell + 1) - max(first, cell)
    return "".join(
        max(share, key=lambda mark: share[mark]) if sum(share.values()) >= 0.5 else " " for share in shares
    )


# ---- data ----


def as_data(comparison: Comparison) -> dict[str, Any]:
    """Everything as plain values: the schedule, what each place does, and the predictions."""
    schedule = comparison.chosen.schedule
    return {
        "schedule": {**schedule.words(), "kind": schedule.kind, "reason": schedule.reason},
        "launch_blocks": schedule.launch_blocks,
        "workspace": {
            "slots": schedule.slots,
            "flags": schedule.flags,
            "partials_offset": schedule.partials_offset,
        },
        "costs": asdict(comparison.chosen.costs),
        "predictions": [
            {
                "schedule": name(line),
                "blocks": line.schedule.launch_blocks,
                "waves": waves(line),
                "time": line.end,
                "efficiency": line.efficiency,
                "idle": idle(line),
                "waiting": waiting(line),
            }
            for line in comparison.lines
        ],
        "spans": [asdict(span) for span in comparison.chosen.spans],
    }


# ---- SVG ----

WIDTH, LEFT, RIGHT = 1120, 64, 20
ROW_HEIGHT, PANEL_HEIGHT, TITLE_HEIGHT, AXIS_HEIGHT = 24, 330, 26, 34
TICKS = 8  # about so many
COLOURS = {"start": "#8a8f98", "fixup": "#1c2733", "wait": "#f2c14e", "reduce": "#2f7d4f"}
IDLE = "#eef0f3"
STYLE = """text { font: 12px system-ui, sans-serif; fill: #1c2733 }
.title { font-weight: 600; font-size: 14px }
.quiet { fill: #5b6675 } .small { font-size: 10px } .inside { font-size: 9px; fill: #10202e }"""


def draw(comparison: Comparison, title: str) -> str:
    """The chosen schedule above data-parallel and the best split, all on one time axis."""
    lines = comparison.drawn
    end = max(line.end for line in lines)
    reason = comparison.chosen.schedule.reason
    parts = [
        words(LEFT, 24, title, "title"),
        words(LEFT, 42, f"{name(comparison.chosen)}, because {reason}" if reason else "", "quiet"),
    ]
    top = 62.0
    for line in lines:
        parts += panel(line, comparison.data_parallel, end, top)
        top += TITLE_HEIGHT + panel_height(line) + AXIS_HEIGHT
    parts += legend(top + 4)
    parts.append(
        words(
            LEFT,
            top + 34,
            f"Predicted, not measured; costs: {costs_line(comparison.chosen.costs)}",
            "quiet small",
        )
    )
    height = top + 48
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}"'
        f' height="{height}">'
    )
    back = f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
    return "\n".join(
        [head, f"<title>{escape(title)}</title><style>{STYLE}</style>", back, *parts, "</svg>\n"]
    )


def words(x: float, y: float, text: str, css: str = "", anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" class="{css}" text-anchor="{anchor}">{escape(text)}</text>'
        if text
        else ""
    )


def panel_height(line: Timeline) -> float:
    return min(PANEL_HEIGHT, ROW_HEIGHT * line.sms * line.occupancy)


def panel(line: Timeline, reference: Timeline, end: float, top: float) -> list[str]:
    """Rows are places on SMs, grey where no block is."""
    facts = f"{line.schedule.launch_blocks} blocks, {waves(line):.2f} waves, efficiency {line.efficiency:.1%}"
    if line is not reference and line.end:
        facts += f", {reference.end / line.end:.2f}x data-parallel"
    rows, height = line.sms * line.occupancy, panel_height(line)
    step, y = height / rows, top + TITLE_HEIGHT
    scale = (WIDTH - LEFT - RIGHT) / end if end else 0.0
    parts = [words(LEFT, top + 16, f"{name(line)}: {facts}", "title")]
    parts.append(f'<rect x="{LEFT}" y="{y}" width="{line.end * scale:.1f}" height="{height}" fill="{IDLE}"/>')
    for row in range(rows) if step > 11 else sorted({0, rows // 2, rows - 1}):
        parts.append(
            words(
                LEFT - 6,
                y + (row + 0.5) * step + 4,
                label(line, *divmod(row, line.occupancy)),
                "quiet small",
                "end",
            )
        )
    parts.append(f'<g shape-rendering="{"crispEdges" if step < 4 else "auto"}">')
    for span in line.spans:
        parts += box(
            span, LEFT + span.begin * scale, y + (span.sm * line.occupancy + span.place) * step, scale, step
        )
    parts.append("</g>")
    parts.append(
        f'<path d="M{LEFT + line.end * scale:.1f} {y} v{height}" stroke="#b3261e" stroke-width="1.5"/>'
    )
    return parts + axis(line.costs, end, y + height, scale)


def box(span: Span, x: float, y: float, scale: float, step: float) -> list[str]:
    """What is too thin to be seen is left out: a large product has tens of thousands of blocks."""
    wide, high = (span.end - span.begin) * scale, step - (0.6 if step > 4 else 0)
    if wide < 0.2:
        return []
    fill = COLOURS.get(span.kind) or tile_colour(span.tile)
    tooltip = f"SM {span.sm}, block {span.block}: {span.kind}, tile {span.tile}"
    tooltip += f", k iterations {span.k_begin} to {span.k_end}" if span.kind == "compute" else ""
    rect = (
        f'<rect x="{x:.2f}" y="{y:.2f}" width="{wide:.2f}" height="{high:.2f}"'
        f' fill="{fill}"><title>{tooltip}</title></rect>'
    )
    if span.kind != "compute" or step < 11 or wide < 60:
        return [rect]
    return [rect, words(x + 4, y + step / 2 + 3, f"{span.tile}: {span.k_begin}-{span.k_end}", "inside")]


def tile_colour(tile: int) -> str:
    """Neighbouring tiles differ: the hue moves by the golden angle, the lightness in threes. Yellow is kept
    for waits.
    """
    hue = 0.19 + (tile * 0.618034) % 1 * 0.88
    red, green, blue = colorsys.hls_to_rgb(hue % 1, (0.62, 0.74, 0.68)[tile % 3], 0.5)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def axis(costs: CostModel, end: float, y: float, scale: float) -> list[str]:
    """Ticks at round numbers; the unit stands with the last one."""
    factor, unit = (1e6, "us") if costs.unit == "seconds" else (1.0, costs.unit)
    step = round_step(end * factor / TICKS)
    count = int(end * factor / step + 1e-9) if step > 0 else 0
    parts = [f'<path d="M{LEFT} {y} H{WIDTH - RIGHT}" stroke="#c4c9d1"/>']
    for tick in range(count + 1):
        x, value = LEFT + tick * step / factor * scale, f"{tick * step:,.6g}"
        value = f"{value} {unit}" if tick == count else value
        anchor = "end" if tick == count and x > WIDTH - 100 else "middle"
        parts += [
            f'<path d="M{x:.1f} {y} v4" stroke="#5b6675"/>',
            words(x, y + 16, value, "quiet small", anchor),
        ]
    return parts


def round_step(least: float) -> float:
    """The first of 1, 2, 5, 10, … times a power of ten that is no smaller."""
    if least <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= least * (1 - 1e-9))


def legend(y: float) -> list[str]:
    entries = [
        (tile_colour(0), "a tile's iterations, one colour a tile"),
        (COLOURS["start"], "start"),
        (COLOURS["fixup"], "partial sum handed on or taken in"),
        (COLOURS["wait"], "waiting for a peer"),
        (COLOURS["reduce"], "reduction block"),
        (IDLE, "idle"),
    ]
    parts, x = [], float(LEFT)
    for colour, text in entries:
        parts.append(
            f'<rect x="{x:.1f}" y="{y}" width="12" height="12" fill="{colour}" stroke="#5b6675"'
            ' stroke-width="0.5"/>'
        )
        parts.append(words(x + 17, y + 10, text))
        x += 36 + 6.4 * len(text)
    return parts
