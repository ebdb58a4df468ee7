"""Headers of device code bring what they use: each compiles by itself, in any order."""

from __future__ import annotations

import pytest

from lapidist.build.compiler import CUDA_SOURCES, compile_options, compile_to_ptx

HEADERS = sorted(str(path.relative_to(CUDA_SOURCES)) for path in CUDA_SOURCES.rglob("*.cuh"))
# They are part of a family, which names the types and the warps that they speak of.
OF_A_FAMILY = {"gemm/strided.cuh", "share/unit_queue.cuh"}


@pytest.mark.parametrize("header", [name for name in HEADERS if name not in OF_A_FAMILY])
def test_a_header_compiles_by_itself(header: str) -> None:
    text = f'#include "{header}"\nextern "C" __global__ void alone() {{}}\n'
    options = compile_options({"ELEMENT": "half"} if "mma" in header else {}, "sm_90a")
    assert ".entry alone" in compile_to_ptx(text, "alone", options, "sm_90a", "alone.cu").ptx


def test_what_is_part_of_a_family_is_there() -> None:
    assert set(HEADERS) >= OF_A_FAMILY
