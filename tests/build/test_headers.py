"""Headers of device code bring what they use: each compiles by itself, in any order."""

from __future__ import annotations

import re

import pytest

from lapidist.build.compiler import CUDA_SOURCES, compile_options, compile_to_ptx
from lapidist.kernels.registry import kernel_named
from lapidist.knobs.header import config_header, snippet_header
from lapidist.quantised.kernel_parameters import End, Rows
from lapidist.quantised.launches import knobs_of_streamed
from lapidist.quantised.streamed_configs import streamed_config
from lapidist.quantised.weight_facts import Weight
from lapidist_lab.sass.analysis import sample_problem

HEADERS = sorted(str(path.relative_to(CUDA_SOURCES)) for path in CUDA_SOURCES.rglob("*.cuh"))
# Parts of several families, and one of these.
PART_OF = {
    "gemm/slices.cuh": "simt",
    "gemm/strided.cuh": "simt",
    "share/cut_tiles.cuh": "wgmma",
    "share/grouped_work.cuh": "simt",
    "share/unit_queue.cuh": "wgmma",
}
PARTS_OF_FEW_BITS = (
    "quantised/consume.cuh",
    "quantised/consume_bytes.cuh",
    "quantised/decode.cuh",
    "quantised/finish.cuh",
    "quantised/norms.cuh",
    "quantised/reduce_parts.cuh",
    "quantised/rows.cuh",
    "quantised/stages.cuh",
)


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_compiles_by_itself(header: str) -> None:
    text = f'#include "{header}"\nextern "C" __global__ void alone() {{}}\n'
    config = config_of(header)
    compiled = compile_to_ptx(text, "alone", compile_options("sm_90a"), "sm_90a", "alone.cu", config)
    assert ".entry alone" in compiled.ptx


def config_of(header: str) -> str:
    """That of the kernel whose part it is, or of any other."""
    part = re.match(r"gemm/(\w+)/", header)
    name = part[1] if part else PART_OF.get(header)
    if header in PARTS_OF_FEW_BITS:
        dtype = "float8_e4m3fn" if "bytes" in header else "bfloat16"
        weight = Weight(1024, 512, "int4", 128, "bfloat16", False, dtype)
        values = knobs_of_streamed(weight, streamed_config(Rows(1, 512), weight, 132)) | End(True).knobs
        return config_header("quantised/streamed.cu", values)
    if header == "exchange/rank_terms.cuh":
        knobs = {"THREADS": 256, "Term": "float", "Sum": "float", "RANKS": 2, "BY_TREE": 0, "TOGETHER": 4}
        return config_header("exchange/add_terms.cu", knobs)
    if header == "gemm/complex_results.cuh":
        knobs = {"PARTS": 2, "C_CONJUGATED": 1, "ALPHA_REAL": 0, "BETA_REAL": 0, "READS_C": 1}
        return config_header("gemm/complex_tile.cu", knobs)
    if header == "emulated/moduli.cuh":
        return config_header("emulated/remainders.cu", {"THREADS": 256, "MODULI": 15})
    if name is None:
        return snippet_header("alone.cu", {"T": "half"} if "mma" in header else {})
    kernel = kernel_named(name)
    math = "float32" if "float32" in kernel.types.maths else kernel.types.maths[0]
    values = kernel.macros(sample_problem(kernel, math), kernel.config_for(math))
    return config_header(kernel.source, values)
