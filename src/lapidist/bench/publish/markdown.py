"""Records as Markdown: cells, rows, tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from html import escape

from lapidist.bench.protocol.record import Record
from lapidist.bench.publish.tables import number

Columns = Mapping[str, Callable[[Record], str]]
# columns of words; the others are numbers
WORDS = {"kernel", "idea", "chosen", "L2", "type", "dtype", "best kernel", "planned", "fastest", "operands"}
WORDS |= {"chip", "factors", "aim", "slowest at", "which", "before the call", "", "ours", "against", "who"}
WORDS |= {"A against B", "passed", "what ran"}


def speed(record: Record) -> str:
    return number(record.tflops, ".2f" if record.tflops is None or record.tflops < 10 else ".1f")


def row_of(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def rule(heads: Sequence[str], words: Collection[str] = ()) -> str:
    """Words to the left, numbers to the right. `words`: columns that have words in this table alone."""
    left = {heads[0], *WORDS, *words}
    return "|" + "|".join("---" if head in left else "---:" for head in heads) + "|"


def table(columns: Columns, records: Sequence[Record]) -> str:
    lines = [row_of(list(columns)), rule(list(columns))]
    lines += [row_of([cell(record) for cell in columns.values()]) for record in records]
    return "\n".join(lines) + "\n"


def fold(summary: str, body: str) -> str:
    """Folded below its summary."""
    return f'<details markdown="1">\n<summary>{escape(summary)}</summary>\n\n{body.strip()}\n\n</details>\n'
