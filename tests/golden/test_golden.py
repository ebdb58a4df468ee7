"""The machine against what an H200 answered: lane layouts, descriptors, swizzles, tensor maps, rounding."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from cases import Case, all_cases
from replay import distance, run_on_machine

from offenders import each_holds

with np.load(Path(__file__).parent / "h200.npz") as file:
    RECORDING = {name: file[name] for name in file.files}
CASES = all_cases()
LARGE = "mma", "wgmma", "wmma", "tma"  # instructions with many cases each


def instruction_of(case: Case) -> str:
    """Where there are many cases; else what remains is one group."""
    name = re.split(r"\W", case.name)[0]
    return name if name in LARGE else "others"


INSTRUCTIONS = sorted({instruction_of(case) for case in CASES})


def key_of(case: Case) -> str:
    return f"{case.name}|{case.digest[:16]}"


def of_instruction(name: str) -> list[Case]:
    return [case for case in CASES if instruction_of(case) == name]


@pytest.mark.often(2)
@pytest.mark.parametrize("instruction", INSTRUCTIONS)
def test_the_chip_agrees(instruction: str) -> None:
    def agrees(case: Case) -> None:
        mine, chip = run_on_machine(case)[case.compared], RECORDING[key_of(case)][case.compared]
        assert distance(case, mine, chip) == 0, case.name

    each_holds(agrees, [(case,) for case in of_instruction(instruction)])


@pytest.mark.parametrize("instruction", sorted({instruction_of(case) for case in CASES if case.ulps}))
def test_quick_sums_stay_close_to_the_chip(instruction: str) -> None:
    def is_close(case: Case) -> None:
        apart = distance(case, run_on_machine(case, chip_sums=False), RECORDING[key_of(case)])
        assert apart <= case.ulps, case.name

    each_holds(is_close, [(case,) for case in of_instruction(instruction) if case.ulps])


def test_every_case_is_recorded_under_a_name_of_its_own() -> None:
    assert {key_of(case) for case in CASES} == set(RECORDING) - {"chip"}
    assert len({case.name for case in CASES}) == len(CASES)
