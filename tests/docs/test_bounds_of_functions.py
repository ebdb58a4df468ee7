"""The page on numerics says how far off each step of an epilogue may be, as tests reckon with it."""

from __future__ import annotations

import re

from lapidist.epilogues.operations import OPERATIONS
from lapidist.epilogues.steps import DROPOUT_MASK, DROPOUT_MASK_BY_OPERAND
from pages import ROOT

SIGNS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}
# changes of sign, comparisons and what joins them, and the choice of dropout: exact, as the text says
UNNAMED = {
    "negative",
    "less",
    "less_equal",
    "equal",
    "not_equal",
    "both",
    "any_of",
    "no",
    DROPOUT_MASK,
    DROPOUT_MASK_BY_OPERAND,
}


def test_each_step_has_the_roundings_that_the_page_says() -> None:
    page = (ROOT / "docs" / "numerics.md").read_text()
    table = page.partition("### Functions of an epilogue")[2].partition("## Random calls")[0]
    rows = re.findall(r"^\| ([^|]*`[^|]*) \| (\d+) \|", table, re.M)
    said = {
        SIGNS.get(name, name): int(count) for names, count in rows for name in re.findall("`(.*?)`", names)
    }
    assert said == {name: row.roundings for name, row in OPERATIONS.items() if name not in UNNAMED}
    assert not any(OPERATIONS[name].roundings for name in UNNAMED)
