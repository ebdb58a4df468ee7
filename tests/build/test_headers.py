"""Headers of device code bring what they use: each compiles by itself, in any order."""

from __future__ import annotations

import re

import pytest

from lapidist.build.compiler import CUDA_SOURCES, compile_options, compile_to_ptx
from lapidist.kernels.registry import kernel_named
from lapidist.knobs.header import config_header, snippet_header
from lapidist_lab.sass.analysis import sample_problem

HEADERS = sorted(str(path.relative_to(CUDA_SOURCES)) for path in CUDA_SOURCES.rglob("*.cuh"))
# They are part of a family, which names the types and the warps that they speak of.
OF_A_FAMILY = {"gemm/strided.cuh", "share/unit_queue.cuh"}


@pytest.mark.parametrize("header", [name for name in HEADERS if name not in OF_A_FAMILY])
def test_a_header_compiles_by_itself(header: str) -> None:
    text = f'#include "{header}"\nextern "C" __global__ void alone() {{}}\n'
    compiled = compile_to_ptx(
        text, "alone", compile_options("sm_90a"), "sm_90a", "alone.cu", config_of(header)
    )
    assert ".entry alone" in compiled.ptx


def config_of(header: str) -> str:
    """That of the kernel whose part it is, or of any other."""
    part = re.match(r"gemm/(\w+)/", header)
    if part is None:
        return snippet_header("alone.cu", {"T": "half"} if "mma" in header else {})
    kernel = kernel_named(part[1])
    math = "float32" if "float32" in kernel.types.maths else kernel.types.maths[0]
    values = kernel.macros(sample_problem(kernel, math), kernel.config_for(math))
    return config_header(kernel.source, values)


def test_what_is_part_of_a_family_is_there() -> None:
    assert set(HEADERS) >= OF_A_FAMILY
