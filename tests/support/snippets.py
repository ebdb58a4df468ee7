"""Small PTX kernels for the tests: a body between standard loads and stores, or one of the sources here."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lapidist.build.compiler import compile_options, compile_to_ptx
from lapidist.knobs.header import snippet_header
from lapidist.launch import Binary
from lapidist.machine import Report, run_ptx

SOURCES = Path(__file__).parent / "sources"
HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n"
REGISTERS = """
    .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .f32 %f<40>; .reg .b64 %rd<20>; .reg .f64
    %fd<20>;
    .reg .b64 %in, %out; .reg .b32 %t;
    ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %t, %tid.x;
"""


def kernel(body: str, declarations: str = "") -> str:
    """A module with one kernel `k(in, out)`; %t is the thread, %in and %out the pointers."""
    return (
        f"{HEADER}{declarations}\n.visible .entry k(.param .u64 in, .param .u64"
        f" out)\n{{{REGISTERS}\n{body}\nret;\n}}\n"
    )


def lanes(
    body: str, sources: list[np.ndarray], result: str, threads: int = 32, **options: object
) -> np.ndarray:
    """Run `body` with register a0, a1, ... = element t of each source; it leaves its result in register d."""
    loads, declared = [], []
    kinds = {
        "u4": "b32",
        "i4": "b32",
        "f4": "f32",
        "u8": "b64",
        "i8": "b64",
        "f8": "f64",
        "u2": "b16",
        "f2": "b16",
    }
    stacked = (
        np.concatenate([np.ascontiguousarray(source).view(np.uint8).reshape(-1) for source in sources])
        if sources
        else np.zeros(8, "u1")
    )
    start = 0
    for number, source in enumerate(sources):
        size, kind = source.dtype.itemsize, kinds[source.dtype.str[1:]]
        declared.append(f".reg .{kind} a{number};")
        loads.append(f"mad.wide.u32 %rd0, %t, {size}, %in; ld.global.{kind} a{number}, [%rd0+{start}];")
        start += source.nbytes
    out = np.zeros(threads, result)
    kind = kinds[out.dtype.str[1:]]
    store = f"mad.wide.u32 %rd1, %t, {out.dtype.itemsize}, %out; st.global.{kind} [%rd1], d;"
    text = kernel("\n".join([*declared, f".reg .{kind} d;", *loads, body, store]))
    run_ptx(text, "k", (1, 1, 1), (threads, 1, 1), {"in": stacked, "out": out}, **options)  # type: ignore[arg-type]
    return out


def run_body(
    body: str,
    source: np.ndarray,
    out: np.ndarray,
    grid: int = 1,
    threads: int = 32,
    declarations: str = "",
    **options: object,
) -> Report:
    text = kernel(body, declarations)
    return run_ptx(text, "k", (grid, 1, 1), (threads, 1, 1), {"in": source, "out": out}, **options)  # type: ignore[arg-type]


def compiled(file: str, entry: str, architecture: str = "sm_90a", **defines: object) -> Binary:
    """A source of this folder through the project's compiler."""
    text = (SOURCES / file).read_text()
    options, config = compile_options(architecture), snippet_header(file, defines)
    return compile_to_ptx(text, entry, options, architecture, file, config)
