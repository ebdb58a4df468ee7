"""A kernel as an author has it, ready to be run: its PTX, and what the PTX alone does not say."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

import numpy as np

from lapidist.errors import ArgumentError
from lapidist.launch import Dim3

ENTRY = re.compile(r"\.entry\s+([\w$]+)")
VERSION = re.compile(r"^\s*\.version\s+\d+\.\d+", re.M)
TARGET = re.compile(r"^\s*\.target\s+(sm_\d+[a-z]?)", re.M)
COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)


@dataclass(frozen=True)
class Scratch:
    """Global memory that a kernel needs beside its arguments: which parameter points to it, and bytes a
    block."""

    parameter: int
    nbytes: int


@dataclass(frozen=True)
class KernelText:
    """`arguments` are values for all parameters in order, or None where the caller's are these as they are.
    `memory` is what only tensor maps among them lead to.
    `sources` are the lines of files, by the names that the PTX gives them."""

    ptx: str
    entry: str
    parameters: tuple[str, ...] = ()  # their names in the source, where it is known
    arguments: tuple[Any, ...] | None = None
    block: Dim3 | None = None
    shared_bytes: int = 0
    cluster: Dim3 = (1, 1, 1)
    scratch: Scratch | None = None
    memory: tuple[np.ndarray, ...] = ()
    sources: Mapping[str, Sequence[str]] = field(default_factory=dict)


def require_ptx(text: str, name: str) -> None:
    """Refuse what is no PTX, or PTX for features of another architecture than the machine's."""
    if not VERSION.search(text):
        rule = "must be PTX, which begins with .version, or CUDA C++ in a file that ends with .cu or .cuh"
        raise ArgumentError(f"{name}: {rule}; got {text.strip()[:40]!r}. Let nvcc -ptx write it")
    target = TARGET.search(text)
    if target is not None and target[1][-1].isalpha() and target[1] != "sm_90a":
        rule = "must be PTX of sm_90a, or of no architecture's own features: the machine is an H200"
        raise ArgumentError(f"{name}: {rule}; got {target[1]}. Compile for sm_90a")


def entry_of(text: str, pattern: str, name: str) -> str:
    """The kernel of a module whose name, as it is or demangled, has this part; the only one for none."""
    entries = ENTRY.findall(text)
    if not entries:
        raise ArgumentError(
            f"{name}: must hold a kernel; none of it is compiled. Mark one __global__, or name a template"
            ' with its arguments: entry="scale<float>"'
        )
    exact = [entry for entry in entries if pattern in (entry, demangled(entry))]
    fitting = exact or [entry for entry in entries if pattern in entry or pattern in demangled(entry)]
    if len(fitting) != 1:
        listed = ", ".join(demangled(entry) for entry in entries)
        rule = f"must name one kernel of {name}: {listed}"
        raise ArgumentError(f"entry: {rule}; got {pattern!r}. Give more of its name")
    return fitting[0]


@cache
def demangler() -> Any:
    """C++'s own function, where its library is found."""
    try:
        function = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_void_p
    return function


@lru_cache(maxsize=1024)
def demangled(name: str) -> str:
    """A name as C++ writes it; as it is where nobody can tell."""
    function = demangler() if name.startswith("_Z") else None
    if function is None:
        return name
    status = ctypes.c_int()
    place = function(name.encode(), None, None, ctypes.byref(status))
    if status.value or not place:
        return name
    text = ctypes.string_at(place).decode(errors="replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(place))
    return re.sub(r"\[abi:[^]]*\]", "", text)  # numba's


def parameter_names(source: str, entry: str) -> tuple[str, ...]:
    """The names of a kernel's parameters in CUDA C++; () where its definition is not found."""
    text = COMMENTS.sub(" ", source)
    name = re.split(r"[(<]", demangled(entry))[0].split("::")[-1].split()[-1]
    for match in re.finditer(rf"__global__\b[^;{{}}]*?\b{re.escape(name)}\s*\(", text):
        declared = parts(text, match.end())
        return tuple(words[-1] for part in declared if (words := re.findall(r"\w+", part.split("=")[0])))
    return ()


def parts(text: str, position: int) -> list[str]:
    """What stands between commas up to the bracket that closes, without what brackets hold."""
    depth, pieces = 1, [""]
    for sign in text[position:]:
        depth += (sign in "(<[{") - (sign in ")>]}")
        if depth == 0:
            break
        if sign == "," and depth == 1:
            pieces.append("")
        elif depth == 1 and sign not in ")>]}":
            pieces[-1] += sign
    return [part for part in pieces if part.strip()]
