"""CUDA C++ of authors, compiled to PTX by NVRTC: no nvcc, driver or GPU is needed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from lapidist.build.compiler import compile_module
from lapidist.errors import ArgumentError
from lapidist.machine.authors.kernel_text import KernelText, entry_of, parameter_names, require_ptx
from lapidist.machine.ptx.source_text import short_name

ARCHITECTURE = re.compile(r"sm_(\d{2,3})([af]?)")
SUFFIXES = (".cu", ".cuh")


def near_files(path: Path) -> str:
    """What to do where a file cannot be read: names like that of one that is not there."""
    if path.exists():
        return "Name a file that you may read"
    try:
        names = [file.name for file in path.parent.iterdir() if file.is_file()]
    except OSError:
        return f"Check its folder, {path.parent}"
    close = get_close_matches(path.name, names, 1)
    return f"Did you mean {path.parent / close[0]}?" if close else f"No file of {path.parent} has such a name"


def read_text(path: Path, name: str = "kernel") -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ArgumentError(
            f"{name}: must be a file that can be read; {error}. {near_files(path)}"
        ) from error
    if b"\0" in content.rstrip(b"\0"):
        rule = "must be text: CUDA C++ or PTX"
        raise ArgumentError(f"{name}: {rule}; {path} is binary. Let nvcc -ptx or cuobjdump -ptx write it")
    return content.decode(errors="replace")


def of_file(
    path: Path, entry: str, include: Sequence[str], define: Mapping[str, object], architecture: str
) -> KernelText:
    """The kernel in a file of CUDA C++ or PTX."""
    text = read_text(path)
    if path.suffix not in SUFFIXES:
        require_ptx(text, str(path))
        return KernelText(text, entry_of(text, entry, str(path)))
    return of_cuda(text, str(path), entry, [str(path.parent), *include], define, architecture)


def of_cuda(
    text: str,
    name: str,
    entry: str,
    include: Sequence[str],
    define: Mapping[str, object],
    architecture: str,
    options: Sequence[str] = (),
) -> KernelText:
    number = ARCHITECTURE.fullmatch(architecture)
    if number is None or int(number[1]) > 90 or (number[2] and architecture != "sm_90a"):
        rule = "must be sm_90a or an older one, as the machine is an H200"
        raise ArgumentError(f"arch: {rule}; got {architecture!r}. Leave it out")
    flags = (
        f"--gpu-architecture={architecture.replace('sm_', 'compute_')}",
        *(() if any("std=" in option for option in options) else ("--std=c++17",)),
        "-lineinfo",
        "--no-cache",
        *(f"-I{folder}" for folder in include),
        *(f"-D{key}={value}" for key, value in define.items()),
        *options,
    )
    template = entry if "<" in entry else ""
    ptx, lowered = compile_module(text, name, flags, template)
    kernel = lowered or entry_of(ptx, entry, name)
    sources = {short_name(name): text.splitlines()}
    return KernelText(ptx, kernel, parameter_names(text, kernel), sources=sources)
