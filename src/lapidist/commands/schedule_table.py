"""Predicted times of schedules, a row each, as wide as the terminal allows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from lapidist.commands.fold import folded
from lapidist.schedule.simulate import Timeline

WHERE_ROOM = ("waiting", "idle", "waves", "efficiency")  # columns that a narrow terminal goes without


def table(lines: Sequence[Timeline], baseline: Timeline, columns: int) -> list[str]:
    """Predicted times, and speeds against a baseline; without columns of WHERE_ROOM in a narrow terminal."""
    cells_by_head: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        gain = baseline.end / line.end if line.end else 1.0
        row = {
            "schedule": name(line),
            "blocks": str(line.schedule.launch_blocks),
            "time": str(line.costs.amount(line.end)),
            "speed": f"{gain:.2f}x",
            "efficiency": f"{line.efficiency:.1%}",
            "waves": f"{waves(line):.2f}",
            "idle": f"{idle(line):.1%}",
            "waiting": f"{waiting(line):.1%}",
        }
        for head, cell in row.items():
            cells_by_head[head].append(cell)
    widths = {head: max(map(len, [head, *cells])) + 2 for head, cells in cells_by_head.items()}
    absent = [head for head in WHERE_ROOM if sum(widths.values()) > columns and widths.pop(head)]
    rows = [[head, *cells] for head, cells in cells_by_head.items() if head in widths]
    text = [
        "".join(f"{cell:<{width - 2}}" if not place else f"{cell:>{width}}" for place, (cell, width) in pairs)
        for pairs in (enumerate(zip(row, widths.values(), strict=True)) for row in zip(*rows, strict=True))
    ]
    note = f"left out, as the terminal is narrow: {', '.join(absent)}; --json has them"
    return [*text, "speed: against data-parallel", *([folded(note, 0, columns)] if absent else [])]


def waves(line: Timeline) -> float:
    return line.schedule.launch_blocks / (line.sms * line.occupancy)


def name(line: Timeline) -> str:
    schedule = line.schedule
    return f"split-K {schedule.blocks_per_region}" if schedule.kind == "split-K" else schedule.kind


def idle(line: Timeline) -> float:
    """Share of all places' time in which no block was there."""
    capacity = line.sms * line.occupancy * line.end
    return 1 - sum(span.end - span.begin for span in line.spans) / capacity if capacity else 0.0


def waiting(line: Timeline) -> float:
    capacity = line.sms * line.occupancy * line.end
    return line.busy("wait") / capacity if capacity else 0.0
