"""What the compiler's front end says of a source: nothing is generated, which makes it quick."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lapidist.build.compiler import (
    CUDA_SOURCES,
    compile_options,
    create_program,
    fetch,
    include_paths,
    load_nvrtc,
    unassembled,
)
from lapidist.config import Config
from lapidist.kernels.kernel import Kernel
from lapidist.knobs.header import NAME as CONFIG_HEADER
from lapidist.knobs.header import config_header
from lapidist.problems.problem import Problem


def objections(
    kernel: Kernel, problem: Problem, config: Config, macros: Mapping[str, Any], behind: str = ""
) -> str:
    """To a kernel's source, with this text behind it; "" where it compiles."""
    header = config_header(kernel.source, {**kernel.macros(problem, config), **macros})
    text = (CUDA_SOURCES / kernel.source).read_text() + behind
    flags = [
        *unassembled(compile_options("sm_90a")),
        "--fdevice-syntax-only",
        *(f"-I{path}" for path in include_paths()),
    ]
    encoded, nvrtc = [each.encode() for each in flags], load_nvrtc()
    program = create_program(nvrtc, text, kernel.source, {CONFIG_HEADER: header})
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        log: str = fetch(nvrtc, program, "ProgramLog").decode(errors="replace")
        return "" if status == nvrtc.nvrtcResult.NVRTC_SUCCESS else log
    finally:
        nvrtc.nvrtcDestroyProgram(program)
