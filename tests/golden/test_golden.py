"""The machine against what an H200 answered: lane layouts, descriptors, swizzles, tensor maps, rounding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cases import Case, all_cases
from replay import distance, run_on_machine

RECORDING = Path(__file__).parent / "h200.npz"
CASES = all_cases()


@pytest.fixture(scope="module")
def recording() -> dict[str, np.ndarray]:
    if not RECORDING.exists():
        pytest.skip("no recording: run tests/golden/record.py on a machine with an H200")
    with np.load(RECORDING) as file:
        return {name: file[name] for name in file.files}


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_chip_agrees(case: Case, recording: dict[str, np.ndarray]) -> None:
    key = f"{case.name}|{case.digest[:16]}"
    if key not in recording:
        pytest.skip("this case is not in the recording")
    assert distance(case, run_on_machine(case), recording[key]) <= case.ulps


def test_cases_run_and_have_names_of_their_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    for case in CASES[:: len(CASES) // 12]:
        run_on_machine(case)
