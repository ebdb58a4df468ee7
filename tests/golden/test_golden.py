"""The machine against what an H200 answered: lane layouts, descriptors, swizzles, tensor maps, rounding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cases import Case, accumulating, all_cases
from replay import distance, run_on_machine

with np.load(Path(__file__).parent / "h200.npz") as file:
    RECORDING = {name: file[name] for name in file.files}
CASES = all_cases()
# A tensor copy of 128-byte rows overran its buffer while they were recorded, and took the five after it along; the
# accumulating sums are younger than the recording.
UNRECORDED = {"tma swizzle 128 narrow", "tma border", "tma outside", "tma 1d", "tma 3d", "tma 5d"}
UNRECORDED |= {case.name for case in accumulating()}


def key_of(case: Case) -> str:
    return f"{case.name}|{case.digest[:16]}"


@pytest.mark.parametrize("case", [case for case in CASES if case.name not in UNRECORDED], ids=lambda case: case.name)
def test_the_chip_agrees(case: Case) -> None:
    mine, chip = run_on_machine(case)[case.compared], RECORDING[key_of(case)][case.compared]
    assert distance(case, mine, chip) == 0


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.ulps and case.name not in UNRECORDED], ids=lambda case: case.name
)
def test_quick_sums_stay_close_to_the_chip(case: Case) -> None:
    assert distance(case, run_on_machine(case, chip_sums=False), RECORDING[key_of(case)]) <= case.ulps


def test_what_is_not_recorded_is_known() -> None:
    assert {case.name for case in CASES if key_of(case) not in RECORDING} == UNRECORDED


def test_cases_run_and_have_names_of_their_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    for case in CASES[:: len(CASES) // 12]:
        run_on_machine(case)
