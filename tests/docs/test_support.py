"""The table of chips and types says what the planner chooses."""

from __future__ import annotations

import re

from lapidist.device import CHIPS, chip
from lapidist.dtypes import math_named
from lapidist.errors import LapidistError
from lapidist.planning.plans import make_plan
from lapidist.problems.problem import dense_problem
from pages import ROOT


def family(math: str, name: str) -> str:
    try:
        return make_plan(dense_problem(4096, 4096, 4096, math), chip(name)).kernel.name
    except LapidistError:
        return "-"


def test_the_table_of_chips_and_types_is_the_planners() -> None:
    text = (ROOT / "docs" / "support.md").read_text()
    table = re.search(r"^\| chip \|(.*) \|\n.*\n((?:\|.*\|\n)+)", text, re.M)
    assert table is not None
    maths = [math_named(short.strip()) for short in table[1].split("|")]
    rows = {}
    for line in table[2].splitlines():
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        rows[name.lower().replace(" ", "")] = cells
    assert set(rows) == set(CHIPS) - {"v100"}
    for name, cells in rows.items():
        assert cells == [family(math, name) for math in maths], name


def test_the_table_of_features_says_which_chips_multiply_8_bit_floats() -> None:
    section = (ROOT / "docs" / "support.md").read_text().partition("## Features")[2].partition("\n## ")[0]
    heads, *rows = (line.strip("|").split("|") for line in re.findall(r"^\| .*", section, re.M))
    (row,) = (cells[1:] for cells in rows if cells[0].strip() == "8-bit floats with factors")
    told = {
        name.strip().lower().replace(" ", ""): cell.strip()
        for names, cell in zip(heads[1:], row, strict=True)
        for name in names.split(",")
    }
    assert told == {name: "-" if family("float8_e4m3fn", name) == "-" else "yes" for name in told}
    assert set(told) == set(CHIPS) - {"v100"}
