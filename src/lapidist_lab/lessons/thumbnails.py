"""A lesson's opening picture, small, as SVG for the index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lapidist_lab.lessons.serving import LANES, WORD

WIDTH, HEIGHT = 132, 48
BANKS, SECTOR_LINE = 32, 128
Lesson = dict[str, Any]
Box = tuple[float, float, float, float, str]  # x, y, width, height as shares of the picture, and its fill
KINDS = {
    "multiply": "multiply",
    "shared load": "load",
    "global": "global",
    "copy": "global",
    "work": "multiply",
}


def thumbnail(lesson: Lesson) -> str:
    """The SVG; fills are names of the page's colours, or hues."""
    opening = lesson["opening"]
    boxes = DRAWN[opening["picture"]](lesson)
    drawn = "".join(rectangle(box) for box in boxes)
    label = f"{opening['picture']} of {lesson['name']}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img"'
        f' aria-label="{label}">{drawn}</svg>'
    )


def rectangle(box: Box) -> str:
    x, y, width, height, fill = box
    place = f'x="{x * WIDTH:.1f}" y="{y * HEIGHT:.1f}"'
    size = f'width="{max(width * WIDTH - 0.5, 0.5):.1f}" height="{max(height * HEIGHT - 0.5, 0.5):.1f}"'
    colour = f"hsl({fill} 62% 62%)" if fill.isdigit() else f"var(--{fill})"
    return f'<rect {place} {size} style="fill:{colour}"/>'


def request(lesson: Lesson) -> list[Box]:
    """Lanes in the turns and banks, or in the lines of memory, of the opening moment."""
    opening = lesson["opening"]
    warp, place = opening["place"]
    moment = lesson["warps"][warp]["moments"][place]
    words = placed(moment, lesson["patterns"])
    rows = sorted({row for row, _, _ in words})
    high, wide = 1 / max(len(rows), 4), max(moment["size"] // WORD, 1) / BANKS
    return [
        (column / BANKS, rows.index(row) * high, wide, high, str(round(lane * 360 / LANES)))
        for row, column, lane in words
    ]


def placed(moment: dict[str, Any], patterns: Sequence[Sequence[int]]) -> list[tuple[int, int, int]]:
    """(turn or line of memory, bank or word of the line, lane) of the first word of each lane."""
    base, pattern = moment["at"]
    at = [(lane, offset + base) for lane, offset in enumerate(patterns[pattern]) if offset >= 0]
    if moment["kind"] == "global":
        return [(byte // SECTOR_LINE, byte % SECTOR_LINE // WORD, lane) for lane, byte in at]
    first, number = moment["turn"]
    turns = patterns[number]
    words = len(turns) // LANES
    return [(turns[lane * words] + first, byte // WORD % BANKS, lane) for lane, byte in at]


def counts(lesson: Lesson) -> list[Box]:
    rows = [row for row in lesson["counts"] if row["name"] == lesson["opening"]["row"]]
    values = [value for row in rows for value in (row["before"], row["now"]) if value is not None]
    fills = ["other", "load"][-len(values) :]
    shares = [(value / max(values), fill) for value, fill in zip(values, fills, strict=True)]
    return [(0, place * 0.5 + 0.08, share, 0.36, fill) for place, (share, fill) in enumerate(shares)]


def timeline(lesson: Lesson) -> list[Box]:
    rows = lesson["opening"]["rows"]
    longest = max(row["end"] for row in rows)
    return [
        (begin / longest, place * 0.5 + 0.08, (end - begin) / longest, 0.36, KINDS.get(kind, kind))
        for place, row in enumerate(rows)
        for begin, end, kind, *_ in row["segments"]
    ]


def tile(_: Lesson) -> list[Box]:
    """The swizzle: piece p of row r at p ^ r."""
    return [
        ((piece ^ row) / 8, row / 8, 1 / 8, 1 / 8, str(45 * piece)) for row in range(8) for piece in range(8)
    ]


def ring(lesson: Lesson) -> list[Box]:
    fills = lesson["opening"]["ring"]
    end, stages = max(fill[5] for fill in fills), max(fill[0] for fill in fills) + 1
    return [
        (begin / end, stage / stages, max(stop - begin, 0) / end, 0.9 / stages, colour)
        for stage, _, *times in fills
        for begin, stop, colour in zip(times, times[1:], ("accent", "other", "multiply"), strict=False)
    ]


def shares(lesson: Lesson) -> list[Box]:
    parts = lesson["opening"]["shares"]
    boxes: list[Box] = []
    for block, units in enumerate(parts["now"]):
        done = 0.0
        for number, first, stop, *_ in units:
            length = (stop - first) / parts["steps"] / 2
            boxes.append((done, block / 4, length, 0.22, str(60 * number)))
            done += length
    return boxes


def registers(lesson: Lesson) -> list[Box]:
    rows = [rows["rows"][:8] for rows in lesson["opening"]["registers"]]
    return [
        (place / 2 + operand / 7, fma / 8, 1 / 7, 1 / 8, ("load", "multiply")[bank] if fetched else "matrix")
        for place, fmas in enumerate(rows)
        for fma, operands in enumerate(fmas)
        for operand, (_, bank, fetched) in enumerate(operands)
    ]


def cluster(_: Lesson) -> list[Box]:
    """A of each block above, the halves of B in both below."""
    fills = ("load", "multiply")
    upper = [(block * 0.52, 0, 0.48, 0.4, fills[block]) for block in (0, 1)]
    lower = [(block * 0.52 + half * 0.24, 0.5, 0.24, 0.5, fills[half]) for block in (0, 1) for half in (0, 1)]
    return [*upper, *lower]


DRAWN: dict[str, Callable[[Lesson], list[Box]]] = {
    "request": request,
    "counts": counts,
    "timeline": timeline,
    "tile": tile,
    "ring": ring,
    "rounds": ring,
    "shares": shares,
    "registers": registers,
    "cluster": cluster,
}
