"""The list of the CUDA runtime's functions: complete, true, and what a call to a missing one says."""

from __future__ import annotations

import re
from pathlib import Path

from cuda.pathfinder import find_nvidia_header_directory
from runtime_list import PAGE, hints, page, sources

from lapidist.machine.programs.runtime_functions import AREAS, ATTRIBUTES, IN_PART, REFUSED, refusal
from lapidist.machine.programs.stand_in_build import functions_of

DECLARED = re.compile(r"\bCUDARTAPI(?:_CDECL)?\s+(cuda\w+)\s*\(")
NAMES = [name for names in AREAS.values() for name in names.split()]


def test_the_page_is_that_of_the_code() -> None:
    assert PAGE.read_text() == page(), f"write it anew by {Path(__file__).with_name('runtime_list.py')}"


def test_each_function_is_there_or_lacking_with_a_reason() -> None:
    there = functions_of(sources())
    assert len(NAMES) == len(set(NAMES))
    assert not [name for name in NAMES if (name in there) == (name in REFUSED)]
    public = {name for name in there if not name.startswith("__")}
    assert public - set(NAMES) == {"cudaGetDeviceProperties_v2"}  # CUDA 12's name in programs
    assert there >= IN_PART.keys()
    assert hints() <= public


def test_the_names_are_those_of_the_installed_header() -> None:
    folder = find_nvidia_header_directory("cudart")
    assert folder is not None
    declared = set(DECLARED.findall((Path(folder) / "cuda_runtime_api.h").read_text(errors="replace")))
    assert len(declared) > 250
    assert {name for name in declared if not name.endswith("_ptsz")} <= set(NAMES)


def test_reasons_say_what_to_do() -> None:
    assert refusal("cudaMallocArray_ptsz") == refusal("cudaMallocArray")
    assert refusal("cudaMemcpy3DPeer").endswith("Run the program on one")
    assert "Write that part" in refusal("cudaOfTomorrow")
    for reason in {*REFUSED.values(), *ATTRIBUTES.values()}:
        assert re.fullmatch(r"[^.]+\. [A-Z][^.]+", reason.replace("13.1", "13")), reason
