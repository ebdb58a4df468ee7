"""Which tests are surveys, and which part of these CI runs."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from cases_often import places
from project_files import ROOT
from survey_parts import Part, part_from

CASES = "tests/quantised/test_rows_of_8_bits.py"  # tests of each change, and surveys
PRODUCTS = "test_products_are_those_of_decoded_weights["  # two of many stand for all


def collected(*options: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", *options, CASES]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [line for line in shown.splitlines() if "::" in line]


def test_each_survey_is_in_one_part() -> None:
    parts = [Part(number, 4) for number in range(1, 5)]
    names = [f"tests/test_a.py::test_b[{case}]" for case in range(400)]
    homes = Counter(part.number for name in names for part in parts if part.has(name))
    assert homes.total() == len(names)
    assert min(homes.values()) > 50


def test_a_part_leaves_out_surveys_alone() -> None:
    whole = set(collected())
    first, second = (set(collected("--part", part)) for part in ("1/2", "2/2"))
    always = first & second
    assert first | second == whole
    assert always < first < whole
    assert always < second < whole
    assert sum(PRODUCTS in name for name in always) == 2 < sum(PRODUCTS in name for name in whole)


def test_the_ends_stand_and_others_at_equal_steps() -> None:
    assert places(9, 3) == {0, 4, 8}
    assert places(5, 2) == {0, 4}
    assert places(4, 1) == {0}
    assert places(2, 5) == {0, 1}
    assert all(len(places(cases, count)) == count for count in range(1, 9) for cases in range(count, 200))


@pytest.mark.parametrize("text", ["", "0/4", "5/4", "1/0", "1", "-1/4", "a/b", "1/4/2"])
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(pytest.UsageError, match="--part: must be I/N with I from 1 to N"):
        part_from(text)
