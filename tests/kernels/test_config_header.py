"""config.cuh, the one way in which the host configures device code: what it says of each constant, and that
device code has neither defaults nor conditions of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lapidist.build.compiler import CUDA_SOURCES
from lapidist.dtypes import short_name
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.registry import KERNELS, kernel_named
from lapidist.knobs.header import config_header, snippet_header
from lapidist.knobs.knob import INT, MACRO, Knob
from lapidist.knobs.shared_knobs import TILE
from lapidist.knobs.sources import OWN, SHARED, THREADS_LOAD
from lapidist_lab.sass.analysis import sample_problem
from offenders import hold_none

FILES = sorted(CUDA_SOURCES.rglob("*.cu*"))
KNOBS = {knob for knobs in (*OWN.values(), THREADS_LOAD, SHARED) for knob in knobs}
MACROS = {knob.name for knob in KNOBS if knob.kind == MACRO}
OF_THE_COMPILER = {"__CUDA_ARCH__", "FP8_AS_HALF"}  # the second follows from the first and a macro
RUNGS = [kernel for kernel in KERNELS if kernel.kind != "production"]


def conditions(path: Path) -> Iterator[tuple[str, set[str]]]:
    """Each line by which the preprocessor decides, with the names in it."""
    for line in path.read_text().splitlines():
        if re.match(r"\s*#\s*(if|elif)", line):
            words = re.sub(r"//.*", "", line).split(maxsplit=1)
            yield line, set(re.findall(r"[A-Za-z_]\w*", words[1])) | {words[0]}


# ---- device code ----


def test_device_code_has_no_defaults() -> None:
    hold_none(
        f"{path.name}: {line}"
        for path in FILES
        for line, names in conditions(path)
        if names & {"#ifndef", "#ifdef", "defined"}
    )


def test_the_preprocessor_is_asked_for_macros_alone() -> None:
    """It would silently take a constexpr for 0."""
    hold_none(
        f"{path.name}: {line}"
        for path in FILES
        for line, names in conditions(path)
        if not names - {"#if", "#elif"} <= MACROS | OF_THE_COMPILER
    )


def test_each_constant_is_used() -> None:
    words = set(re.findall(r"\w+", "".join(path.read_text() for path in FILES)))
    hold_none(knob.name for knob in KNOBS if knob.name not in words)


def test_a_source_names_the_header_itself() -> None:
    """What it includes may bring it too, but then an order would matter."""
    names = {knob.name for knob in KNOBS}
    hold_none(
        path.name
        for path in FILES
        if names & set(re.findall(r"\w+", re.sub(r"//.*", "", path.read_text())))
        and '#include "config.cuh"' not in path.read_text()
    )


# ---- the header ----


def test_a_line_has_a_value_and_its_meaning() -> None:
    kernel = kernel_named("mma")
    values = kernel.macros(sample_problem(kernel, "bfloat16"), kernel.config_for("bfloat16"))
    lines = config_header(kernel.source, values).splitlines()
    assert "constexpr int BM = 128;  // rows of a tile of D" in lines
    assert "using T = __nv_bfloat16;  // the type of A's elements, and of B's if no other is named" in lines
    assert "#define FUSED 0  // 1: a caller's function is compiled in" in lines
    assert "#include <cuda_bf16.h>" in lines
    assert not any(line.startswith("#define EPILOGUE ") for line in lines)
    defined = [line for line in lines if not line.startswith(("//", "#pragma", "#include"))]
    before = dict(zip(lines[1:], lines, strict=False))
    assert all("  // " in line or before[line].startswith("// ") for line in defined)


def test_one_value_has_one_header() -> None:
    """So binaries that differ in nothing are compiled once."""
    values = {"T": "float", "BM": 32, "BN": 32}
    plain = config_header("ladder/02_coalesced.cu", values)
    assert config_header("ladder/02_coalesced.cu", {**dict(reversed(values.items())), "ALIGNED": 0}) == plain
    assert config_header("ladder/02_coalesced.cu", {**values, "ALIGNED": 1}) != plain


def test_a_value_that_no_constant_has_is_refused() -> None:
    with pytest.raises(ValueError, match=r"ladder/02_coalesced.cu has no knob BATCHED"):
        config_header("ladder/02_coalesced.cu", {"BATCHED": 1})


def test_an_expression_of_the_source_is_a_macro() -> None:
    assert Knob("RASTER", "rows", 8, INT).line("(e.batch)") == "#define RASTER (e.batch)  // rows"


def test_what_snippets_define_are_macros() -> None:
    assert snippet_header("test.cu", {"FAULT": 3}).endswith("\n#define FAULT 3\n")


# ---- the ladder ----


def config_lines(kernel: Kernel, text: str) -> str:
    """The config as its file says it: of float or half, then what other types have in its place."""
    words = set(re.findall(r"\w+", re.sub(r"//.*", "", text)))
    names = [name for name in (*(knob.name for knob in TILE), "CLUSTER") if name in words]
    maths, others = kernel.types.maths, dict[str, list[str]]()
    first = values_of(kernel, "float32" if "float32" in maths else maths[0])
    for math in maths:
        values = values_of(kernel, math)
        changed = said(values, [name for name in names if values.get(name) != first.get(name)])
        others.setdefault(changed, []).append(short_name(math))
    parts = [said(first, names), *(f"{' '.join(maths)}: {said}" for said, maths in others.items() if said)]
    return ";\n//         ".join(["// Config: " + parts[0], *parts[1:]]) + "\n"


def values_of(kernel: Kernel, math: str) -> dict[str, object]:
    config = kernel.config_for(math)
    return config.defines() | ({"CLUSTER": config.cluster} if config.cluster > 1 else {})


def said(values: dict[str, object], names: list[str]) -> str:
    return ", ".join(f"{name} {values[name]}" for name in names if name in values)


@pytest.mark.parametrize("kernel", RUNGS, ids=lambda kernel: kernel.name)
def test_a_rung_shows_its_config(kernel: Kernel) -> None:
    text = (CUDA_SOURCES / kernel.source).read_text()
    assert f"\n{config_lines(kernel, text)}" in text
