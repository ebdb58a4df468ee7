"""Lines that fit the terminal: broken between words, and never between a number and its unit."""

from __future__ import annotations

import re
import shutil
import textwrap

PIPE = 1_000_000  # what reads a pipe wants whole lines
LEAST = 40
JOINED = "\xa0"  # textwrap does not break there
NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=[A-Za-z%])")


def terminal_columns(of_a_pipe: int = PIPE) -> int:
    """The columns of the terminal, or COLUMNS; `of_a_pipe` where neither says."""
    return max(shutil.get_terminal_size((of_a_pipe, 24)).columns, LEAST)


def folded(line: str, hang: int, width: int | None = None) -> str:
    """The line, broken where the terminal ends; what follows begins `hang` columns from the left."""
    columns = terminal_columns() if width is None else width
    text = NUMBER_AND_UNIT.sub(JOINED, line)
    lines = textwrap.wrap(
        text, columns, subsequent_indent=" " * hang, break_on_hyphens=False, break_long_words=False
    )
    return "\n".join(lines).replace(JOINED, " ")


def folded_text(text: str) -> str:
    """Every line, broken where the terminal ends; what follows is indented as its line is."""
    return "\n".join(folded(line, len(line) - len(line.lstrip())) for line in text.splitlines())
