"""config.cuh: the header by which a binary is compiled, with every constant that the host decides.

It is written for each binary and given to NVRTC in memory. Each line has a value and its meaning, so device
code has no defaults and no order of includes.
"""

from __future__ import annotations

from lapidist.knobs.knob import TYPE, Knobs, Values
from lapidist.knobs.sources import OWN_8_BITS, SHARED, knobs_of

NAME = "config.cuh"
HEADERS = {
    "half": "<cuda_fp16.h>",
    "__nv_bfloat16": "<cuda_bf16.h>",
    "__nv_fp8_e4m3": "<cuda_fp8.h>",
    "__nv_fp8_e5m2": "<cuda_fp8.h>",
}


def config_header(source: str, values: Values) -> str:
    """The header of a source below lapidist/cuda."""
    return header_of(source, knobs_of(source), values, source in OWN_8_BITS)


def snippet_header(source: str, values: Values, knobs: Knobs = SHARED, own_8_bits: bool = False) -> str:
    """The header of any other source that includes parts of lapidist/cuda. What no knob has is a macro."""
    names = {knob.name for knob in knobs}
    macros = "".join(f"#define {name} {value}\n" for name, value in values.items() if name not in names)
    known = {name: value for name, value in values.items() if name in names}
    return header_of(source, knobs, known, own_8_bits) + macros


def header_of(source: str, knobs: Knobs, values: Values, own_8_bits: bool) -> str:
    unknown = sorted(set(values) - {knob.name for knob in knobs})
    if unknown:
        raise ValueError(f"{source} has no knob {', '.join(unknown)}")
    settled = dict(values)
    for knob in knobs:
        settled[knob.name] = knob.value(settled)
    lines = [
        f"// How {source} is compiled here, as the host decided: lapidist/knobs.",
        "#pragma once",
        *includes(knobs, settled, own_8_bits),
        *(knob.line(settled[knob.name]) for knob in knobs if settled[knob.name] is not None),
    ]
    return "\n".join(lines) + "\n"


def includes(knobs: Knobs, values: Values, own_8_bits: bool) -> list[str]:
    """What defines the types. `own_8_bits`: fp8.cuh does, in a twentieth of the time to compile."""
    types = {values[knob.name] for knob in knobs if knob.kind == TYPE}
    names = {HEADERS[name] for name in types if name in HEADERS}
    names |= {'"epilogue_types.cuh"' for name in types if name.startswith("fused::")}
    if own_8_bits:
        names = {'"fp8.cuh"' if name == "<cuda_fp8.h>" else name for name in names}
    return [f"#include {name}" for name in sorted(names)]
