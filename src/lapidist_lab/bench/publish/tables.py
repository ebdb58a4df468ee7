"""Tables: columns of rows, written as Markdown, as HTML and for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from lapidist_lab.bench.publish.cells import COLUMNS, Cell

if TYPE_CHECKING:
    from rich.console import RenderableType

Column = (
    str | tuple[str, Cell]
)  # heads that COLUMNS has, "time | TFLOP/s", or a head and what writes its cells
# columns of words, beside the first; the others are numbers
WORDS = {"kernel", "chosen", "L2", "type", "planned", "fastest", "operands", "chip", "factors", "aim", ""}
WORDS |= {"slowest at", "which", "before the call", "ours", "against", "who", "A against B", "passed"}
WORDS |= {"what ran"}
MARGIN = 2  # columns of a terminal beside each cell, and beside the table


class Table(NamedTuple):
    """Heads and cells. `words`: columns of words in this table only."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Collection[str] = ()

    def markdown(self) -> str:
        """The table in Markdown: words to the left, numbers to the right."""
        aligned_left = {self.heads[0], *WORDS, *self.words}
        rule = "|" + "|".join("---" if head in aligned_left else "---:" for head in self.heads) + "|"
        lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in self.rows]
        return "\n".join(["| " + " | ".join(self.heads) + " |", rule, *lines]) + "\n"

    def html(self, css: Sequence[str] = (), seconds: Sequence[float | None] = ()) -> str:
        """The table in HTML. `css`: classes of the rows; `seconds`: what times are sorted by, as their units
        differ."""
        top = "".join(f"<th><button>{escape(head)}</button></th>" for head in self.heads)
        lines = []
        for place, row in enumerate(self.rows):
            time = seconds[place] if place < len(seconds) else None
            by = [
                "" if time is None or not head.endswith("time") else f' data-value="{time:g}"'
                for head in self.heads
            ]
            cells = "".join(f"<td{more}>{escape(cell)}</td>" for more, cell in zip(by, row, strict=True))
            lines.append(f'<tr class="{css[place] if css else ""}">{cells}</tr>')
        body = f"<thead><tr>{top}</tr></thead><tbody>\n{chr(10).join(lines)}\n</tbody>"
        return f'<div class="wide"><table>{body}</table></div>\n'

    def terminal(self, title: str, styles: Sequence[str | None], word_columns: int = 1) -> RenderableType:
        """The table for a terminal. The first `word_columns` columns are aligned to the left."""
        from rich import box
        from rich.table import Table as Drawn

        drawn = Drawn(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for place, (head, width) in enumerate(zip(self.heads, self.widths, strict=True)):
            drawn.add_column(head, justify="left" if place < word_columns else "right", width=width)
        for row, style in zip(self.rows, styles, strict=True):
            drawn.add_row(*row, style=style)
        return drawn

    @property
    def widths(self) -> list[int]:
        """The width of each column; heads are broken into lines between words."""
        return [
            max(map(len, [*head.split(), *cells]))
            for head, *cells in zip(self.heads, *self.rows, strict=True)
        ]

    def fitting(self, width: int, dispensable: Iterable[str]) -> Table:
        """The table without columns that the terminal lacks room for: a number is never parted from its
        unit."""
        widths = dict(zip(self.heads, self.widths, strict=True))
        for head in dispensable:
            if sum(widths.values()) + MARGIN * (len(widths) + 1) > width:
                widths.pop(head, None)
        return self.with_heads(widths.__contains__)

    def filled(self, absent: str = "-") -> Table:
        """The table without columns that are empty in every row."""
        cells = dict(zip(self.heads, zip(*self.rows, strict=True), strict=True))
        return self.with_heads(lambda head: any(cell != absent for cell in cells[head]))

    def with_heads(self, stays: Callable[[str], bool]) -> Table:
        stay = [stays(head) for head in self.heads]
        heads, *rows = (
            [cell for cell, keep in zip(row, stay, strict=True) if keep] for row in (self.heads, *self.rows)
        )
        return Table(heads, rows, self.words)


def table(
    columns: Iterable[Column] | Mapping[str, Cell], rows: Iterable[Any], words: Collection[str] = ()
) -> Table:
    pairs: list[tuple[str, Cell]] = []
    for column in columns.items() if isinstance(columns, Mapping) else columns:
        pairs += (
            [(head, COLUMNS[head]) for head in column.split(" | ")] if isinstance(column, str) else [column]
        )
    return Table([head for head, _ in pairs], [[cell(row) for _, cell in pairs] for row in rows], words)


def fold(summary: str, body: str) -> str:
    """The body folded below its summary."""
    return f'<details markdown="1">\n<summary>{escape(summary)}</summary>\n\n{body.strip()}\n\n</details>\n'
