"""The cost of values in place of constants, in registers and instructions of a kernel's machine code.

A constant that leaves code out is a value in a build that has that code, whatever a problem uses. One that is
a number is compiled as a number of the launch that the compiler does not know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from lapidist.kernels.kernel import Kernel
from lapidist.kernels.registry import kernel_named
from lapidist.planning.binaries import compiled
from lapidist_lab.sass.analysis import resources, sample_problem
from lapidist_lab.sass.listing import ptx_lines, sass_lines
from lapidist_lab.sass.loops import main_loop

MATHS = {"wgmma": "bfloat16", "sgemm": "float32", "mma": "bfloat16", "simt": "float32"}


class Value(NamedTuple):
    """What would be a value, in words, and the macros of a build in which it is one."""

    kernel: str
    words: str
    macros: Mapping[str, object]


C_AND_SCALARS = {"ADDEND": 1, "ALPHA": 1}
BY_ELEMENTS = {"A_VECTOR": 1, "B_VECTOR": 1}
VALUES = (
    Value("wgmma", "alpha", {"ALPHA": 1}),
    Value("wgmma", "C, alpha and beta", C_AND_SCALARS),
    Value("wgmma", "batches", {"BATCHED": 1}),
    Value("wgmma", "height of a band", {"RASTER": "(e.batch)"}),
    Value("wgmma", "shared tiles", {"SCHEDULED": 1}),
    Value("wgmma", "lines of A and B that start anywhere", {"PACK_A": 1, "PACK_B": 1}),
    Value("wgmma", "rows of D that start anywhere", {"D_COPY_ENGINE": 0}),
    Value("sgemm", "alpha", {"ALPHA": 1}),
    Value("sgemm", "C, alpha and beta", C_AND_SCALARS),
    Value("sgemm", "batches", {"BATCHED": 1}),
    Value("sgemm", "lines of A and B that start anywhere", {"PACK_A": 1, "PACK_B": 1}),
    Value("sgemm", "rows of D that start anywhere", {"D_VECTOR": 1}),
    Value("mma", "alpha", {"ALPHA": 1}),
    Value("mma", "C, alpha and beta", C_AND_SCALARS),
    Value("mma", "shared tiles", {"SCHEDULED": 1}),
    Value("mma", "lines of A and B that start anywhere", BY_ELEMENTS),
    Value("mma", "rows of D that start anywhere", {"D_VECTOR": 1, "C_VECTOR": 1}),
    Value("simt", "shared tiles", {"SCHEDULED": 1}),
    Value("simt", "lines of A and B that start anywhere", BY_ELEMENTS),
    Value("simt", "rows of D that start anywhere", {"D_VECTOR": 1}),
)


class Counts(NamedTuple):
    registers: int
    loop: int  # instructions of the main loop
    all: int


def counts_of(kernel: Kernel, macros: Mapping[str, object], architecture: str) -> Counts:
    binary = compiled(kernel, tuple(sorted(macros.items())), architecture)
    lines = sass_lines(binary) or ptx_lines(binary)
    does = [line.opcode != "NOP" for line in lines]
    return Counts(resources(binary)[0], sum(does[index] for index in main_loop(lines) or ()), sum(does))


def rows(architecture: str, names: tuple[str, ...] = tuple(MATHS)) -> Iterator[tuple[str, str, Counts]]:
    """Kernel, words, counts; first each kernel as compiled for a large problem in which all is plain."""
    for name in names:
        kernel, math = kernel_named(name), MATHS[name]
        plain = kernel.macros(sample_problem(kernel, math), kernel.config_for(math))
        yield name, "as it is", counts_of(kernel, plain, architecture)
        for value in VALUES:
            if value.kernel == name:
                yield name, value.words, counts_of(kernel, {**plain, **value.macros}, architecture)


def table(architecture: str) -> str:
    """The table of docs/knobs.md."""
    lines = ["| kernel | value | registers | main loop | all instructions |", "|---|---|---:|---:|---:|"]
    for name, words, (registers, loop, instructions) in rows(architecture):
        lines.append(f"| `{name}` | {words} | {registers} | {loop} | {instructions} |")
    return "\n".join(lines) + "\n"
