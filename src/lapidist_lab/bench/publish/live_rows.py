"""Rows on the terminal as they come, in columns whose widths are known before the first row is."""

from __future__ import annotations

from collections.abc import Mapping

from lapidist_lab.bench.protocol.cases import shape_words
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.cells import Cell
from lapidist_lab.bench.publish.terminal import COUNTED, DISPENSABLE, dropped_words

GAP = 2
WIDTHS = {
    "rung": 20,
    "wall time": 8,
    "warp instr.": 10,
    "multi- ply %": 6,
    "sectors/ load": 8,
    "turns/ load": 6,
    "bytes/ flop": 6,
    "regis- ters": 6,
    "shared B": 7,
    "error/ bound": 6,
}


class LiveRows:
    """Prints rows of runs in the machine: a head wherever the product changes, then a line a row."""

    def __init__(self, width: int) -> None:
        self.columns: Mapping[str, Cell] = fitting(width)
        self.printed: list[Record] = []

    def print_new(self, records: list[Record]) -> None:
        for record in records[len(self.printed) :]:
            if not self.printed or product_of(record) != product_of(self.printed[-1]):
                print(self.head(record))
            print(self.line([cell(record) for cell in self.columns.values()]), flush=True)
            self.printed.append(record)

    def head(self, record: Record) -> str:
        """The product, and the heads of the columns in two lines where they may be broken."""
        pairs = [head.rsplit(" ", 1) if " " in head else ["", head] for head in self.columns]
        lines = [self.line([pair[number] for pair in pairs]).rstrip() for number in (0, 1)]
        title = f"{shape_words(record.m, record.n, record.k, record.batch or 1)} {record.dtype}"
        return "\n".join([f"{title} on {record.device}", *lines, "-" * len(lines[1])])

    def line(self, cells: list[str]) -> str:
        texts = zip(cells, self.columns, strict=True)
        words, *numbers = (
            f"{cell:>{WIDTHS[head]}}" if place else f"{cell:<{WIDTHS[head]}}"
            for place, (cell, head) in enumerate(texts)
        )
        return (" " * GAP).join([words, *numbers])

    def note(self) -> str:
        """Which columns the terminal lacks room for; empty where none."""
        return dropped_words([head for head in COUNTED if head not in self.columns])


def fitting(width: int) -> dict[str, Cell]:
    columns = dict(COUNTED)
    for head in (*DISPENSABLE, "error/ bound"):
        if sum(WIDTHS[head] + GAP for head in columns) - GAP > width:
            columns.pop(head, None)
    return columns


def product_of(record: Record) -> tuple[object, ...]:
    return record.batch, record.m, record.n, record.k, record.dtype
