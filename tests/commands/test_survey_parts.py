"""Parts of the surveys, of which CI runs one."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from project_files import ROOT
from survey_parts import Part, part_from

CASES = "tests/kernels/test_routed_groups.py"  # tests of each change, and surveys


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
    whole, always = set(collected()), set(collected("-m", "not survey"))
    first, second = (set(collected("--part", part)) for part in ("1/2", "2/2"))
    assert first & second == always
    assert first | second == whole
    assert always < first < whole
    assert always < second < whole


@pytest.mark.parametrize("text", ["", "0/4", "5/4", "1/0", "1", "-1/4", "a/b", "1/4/2"])
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(pytest.UsageError, match="--part: must be I/N with I from 1 to N"):
        part_from(text)
