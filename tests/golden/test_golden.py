"""The machine against what an H200 answered: lane layouts, descriptors, swizzles, tensor maps, rounding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cases import Case, all_cases
from replay import distance, run_on_machine

with np.load(Path(__file__).parent / "h200.npz") as file:
    RECORDING = {name: file[name] for name in file.files}
CASES = all_cases()


def key_of(case: Case) -> str:
    return f"{case.name}|{case.digest[:16]}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_chip_agrees(case: Case) -> None:
    mine, chip = run_on_machine(case)[case.compared], RECORDING[key_of(case)][case.compared]
    assert distance(case, mine, chip) == 0


@pytest.mark.parametrize("case", [case for case in CASES if case.ulps], ids=lambda case: case.name)
def test_quick_sums_stay_close_to_the_chip(case: Case) -> None:
    assert distance(case, run_on_machine(case, chip_sums=False), RECORDING[key_of(case)]) <= case.ulps


def test_every_case_is_recorded_under_a_name_of_its_own() -> None:
    assert {key_of(case) for case in CASES} == set(RECORDING) - {"chip"}
    assert len({case.name for case in CASES}) == len(CASES)
