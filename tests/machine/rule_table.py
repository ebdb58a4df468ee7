"""The table of rules in docs/machine.md. `python tests/machine/rule_table.py` writes it from the code."""

from __future__ import annotations

from pathlib import Path

from lapidist.machine.rules import RULES

PAGE = Path(__file__).parents[2] / "docs" / "machine.md"
BEGIN, END = "<!-- rules:begin -->\n", "<!-- rules:end -->"


def table() -> str:
    rows = [f"| `{name}` | {level} | {words} |" for name, (level, words) in RULES.items()]
    return "\n".join(["| rule | level | what it is |", "|---|---|---|", *rows]) + "\n"


def page(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
