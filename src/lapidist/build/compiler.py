"""CUDA C++ to Binary: NVRTC compiles at run time, cache.py keeps the result.

The constants of a source are a header, config.cuh, that is written for each binary (lapidist/knobs). No
nvcc, host compiler, driver or GPU is needed. One run gives PTX (for the machine and static counts) and the
cubin (for the GPU). Without the assembler it gives the PTX alone, in three fifths of the time.
"""

from __future__ import annotations

import hashlib
import logging
import re
import sys
import threading
import time
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from lapidist.build import cache as cache_files
from lapidist.build.portable_files import at_fork
from lapidist.build.standard_headers import STANDARD_HEADERS, USUAL
from lapidist.build.toolkit import load_older_nvrtc, older_headers
from lapidist.errors import CompileError, DeviceError
from lapidist.knobs.header import NAME as CONFIG_HEADER
from lapidist.knobs.header import config_header
from lapidist.launch import Binary

log = logging.getLogger(__name__)
CUDA_SOURCES = Path(__file__).parents[1] / "cuda"
MEASURED_NVRTC = 13, 0  # the version of the Records; pyproject.toml requires it
NO_COMPILER = (
    "NVIDIA has no compiler for macOS. NumPy multiplies there, and lapidist.machine runs PTX compiled"
    " elsewhere"
)
VERSION = "{}.{}.*".format(*MEASURED_NVRTC)
NVRTC_HINT = f'pip install "nvidia-cuda-nvrtc=={VERSION}" "nvidia-cuda-runtime=={VERSION}"'
LIBRARY_HINT = f'pip install "nvidia-cuda-cccl=={VERSION}"'
# By what NVRTC says.
HINTS = {
    r'cannot open source file "(cuda|cub|thrust|nv)/': (
        f"Install the headers of CUDA's C++ libraries with: {LIBRARY_HINT}"
    ),
    r'cannot open source file "crt/': (
        f'Install the headers behind mma.h with: pip install "nvidia-cuda-crt=={VERSION}"'
    ),
    r'cannot open source file "(torch|ATen|c10|pybind11)/': (
        "Headers of torch are for host code: give it the file with the kernel alone, or PTX by nvcc -ptx"
    ),
    r'cannot open source file "curand': (
        "Install cuRAND's headers with: pip install nvidia-curand. Name their folder: include=, or -I of the"
        " command"
    ),
    r"Error in parsing name expression": (
        'Name the template as its file does, with its namespaces and all arguments: "shop::scale<float>", say'
    ),
    r'cannot open source file "[^"]+\.\w+"': "Name the folder of this header: include=, or -I of the command",
}


# Threads compile one at a time: with many threads inside NVRTC its heap was found corrupted. A fork waits for
# the running compilation: in the child, NVRTC's locks would be held by threads that do not exist there.
_one_at_a_time = threading.RLock()
at_fork(
    before=_one_at_a_time.acquire,
    after_in_parent=_one_at_a_time.release,
    after_in_child=_one_at_a_time.release,
)


class Order(NamedTuple):
    """The arguments of `compile_kernel`."""

    source: str
    entry: str
    defines: Mapping[str, object]
    architecture: str
    more: tuple[str, ...]


def compile_kernel(
    source: str,
    entry: str,
    defines: Mapping[str, object],
    architecture: str,
    more: tuple[str, ...] = (),
    assembled: bool = True,
    anew: bool = False,
) -> Binary:
    """Compile the file `source` (a path below lapidist/cuda) for `architecture` ("sm_90a"), with these values
    of its knobs and further options.

    `anew`: ignore the cache, whose binary the driver refused.
    """
    text = (CUDA_SOURCES / source).read_text()
    options, config = (*compile_options(architecture), *more), config_header(source, defines)
    if not assembled:
        return compile_to_ptx(text, entry, options, architecture, source, config)
    return compile_source(text, entry, options, architecture, source, config, anew)


def key_of(
    source: str, entry: str, defines: Mapping[str, object], architecture: str, more: tuple[str, ...] = ()
) -> str:
    """The name of that binary in the cache."""
    text, config = (CUDA_SOURCES / source).read_text(), config_header(source, defines)
    return cache_key(text, entry, (*compile_options(architecture), *more), config)


def compile_options(architecture: str) -> tuple[str, ...]:
    """NVRTC's options, without include paths, which depend on the computer and are no part of the cache key.

    NVRTC's own cache is off: its answers lack ptxas' report in the log.
    """
    return (
        f"--gpu-architecture={architecture}",
        "--std=c++17",
        "-lineinfo",
        "--ptxas-options=-v",
        "--no-cache",
    )


def compile_source(
    text: str,
    entry: str,
    options: tuple[str, ...],
    architecture: str,
    name: str,
    config: str = "",
    anew: bool = False,
) -> Binary:
    """Compile CUDA C++ text, through the cache. `config`: what it includes as config.cuh."""
    key = cache_key(text, entry, options, config)
    binary = None if anew else cache_files.read(key, entry, architecture)
    if binary is not None:
        log.debug("%s of %s for %s was in the cache", entry, name, architecture)
        return binary
    with _one_at_a_time:
        binary = (
            None if anew else cache_files.read(key, entry, architecture)
        )  # another thread may have compiled it
        if binary is None:
            start = time.perf_counter()
            binary = run_nvrtc(text, entry, options, architecture, name, config)
            log.info(
                "compiled %s of %s for %s in %.2f s", entry, name, architecture, time.perf_counter() - start
            )
            cache_files.write(key, binary)
        return binary


def compile_to_ptx(
    text: str, entry: str, options: tuple[str, ...], architecture: str, name: str, config: str = ""
) -> Binary:
    """The same PTX, without cubin and the assembler's report, unless the cache has them."""
    cached = cache_files.read(cache_key(text, entry, options, config), entry, architecture)
    return cached or compile_source(text, entry, unassembled(options), architecture, name, config)


def unassembled(options: tuple[str, ...]) -> tuple[str, ...]:
    """The options for a virtual architecture, for which NVRTC does not run the assembler."""
    return tuple(
        option.replace("=sm_", "=compute_", 1)
        for option in options
        if not option.startswith("--ptxas-options")
    )


def cache_key(text: str, entry: str, options: tuple[str, ...], config: str = "") -> str:
    digest = hashlib.sha256()
    for part in (text, entry, *options, config, "{}.{}".format(*nvrtc_version()), header_fingerprint()):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


@cache
def header_fingerprint() -> str:
    """A digest of all project headers. A change in one outdates every entry: that costs seconds and is never
    wrong.
    """
    digest = hashlib.sha256()
    for header in sorted(CUDA_SOURCES.rglob("*.cuh")):
        digest.update(header.relative_to(CUDA_SOURCES).as_posix().encode() + header.read_bytes())
    return digest.hexdigest()


# ---- NVRTC ----


@lru_cache(maxsize=1)
def nvrtc_version() -> tuple[int, int]:
    nvrtc = load_nvrtc()
    status, major, minor = nvrtc.nvrtcVersion()
    check(nvrtc, status, "nvrtcVersion")
    return major, minor


@lru_cache(maxsize=1)
def load_nvrtc():  # type: ignore[no-untyped-def]
    """cuda.bindings.nvrtc. If the library is missing, the error has the command that installs it."""
    try:
        load_older_nvrtc()
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError, OSError) as error:
        if sys.platform == "darwin":
            raise DeviceError(f"NVRTC: {NO_COMPILER}") from error
        raise DeviceError(
            f"NVRTC: the run-time compiler was not found ({error}). Install it with: {NVRTC_HINT}"
        ) from error
    return nvrtc


@lru_cache(maxsize=1)
def include_paths() -> tuple[Path, ...]:
    """The project's headers and CUDA's own (cuda_fp16.h and its like)."""
    from cuda import pathfinder

    toolkit = older_headers() or pathfinder.find_nvidia_header_directory("cudart")
    if toolkit is None:
        raise DeviceError(f"CUDA headers: cuda_fp16.h was not found. Install it with: {NVRTC_HINT}")
    return (CUDA_SOURCES, Path(toolkit))


@lru_cache(maxsize=1)
def library_paths() -> tuple[Path, ...]:
    """The headers of CUDA's C++ libraries (cuda/atomic, cub), where they are installed."""
    from cuda import pathfinder

    folder = pathfinder.find_nvidia_header_directory("cccl")
    # An installed toolkit has parts of CUDA's own headers that the package lacks: mma.h's.
    toolkit = Path(folder).parent if folder else None
    parts = (toolkit,) if toolkit is not None and (toolkit / "crt").is_dir() else ()
    return (Path(folder), *parts) if folder else ()


def create_program(nvrtc, text: str, name: str, headers: Mapping[str, str]):  # type: ignore[no-untyped-def]
    texts, names = ([part.encode() for part in parts] for parts in (headers.values(), headers))
    status, program = nvrtc.nvrtcCreateProgram(text.encode(), name.encode(), len(headers), texts, names)
    check(nvrtc, status, "nvrtcCreateProgram")
    return program


def run_nvrtc(
    text: str, entry: str, options: tuple[str, ...], architecture: str, name: str, config: str
) -> Binary:
    """One compilation: PTX, cubin and the log, in which ptxas reports registers and spills."""
    nvrtc = load_nvrtc()
    program = create_program(nvrtc, text, name, {CONFIG_HEADER: config})
    try:
        # Else headers would come first from a folder of the source's name in the working directory.
        paths = "--no-source-include", *(f"-I{path}" for path in include_paths())
        flags = [option.encode() for option in (*options, *paths)]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        log = fetch(nvrtc, program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            shown = " ".join(options)
            raise CompileError(
                f"source {name!r}: NVRTC {nvrtc_version()} refused it ({status.name}); options: {shown}",
                f"{log}\n{config}",
            )
        ptx = fetch(nvrtc, program, "PTX").rstrip(b"\0").decode()
        return Binary(entry, architecture, ptx, fetch(nvrtc, program, "CUBIN"), log)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def compile_module(text: str, name: str, options: tuple[str, ...], template: str = "") -> tuple[str, str]:
    """The PTX of anyone's CUDA C++, past the cache, which knows no headers of theirs. With it comes the name
    of the kernel that a template's name with arguments stands for, or nothing.

    A source that does not compile is compiled again with the names that nvcc knows without an include.
    Functions of the host that call nothing there are device code then."""
    with _one_at_a_time:
        try:
            return _compiled(text, name, options, template)
        except CompileError as first:
            usual = (*(f"--pre-include={header}" for header in USUAL), "--device-as-default-execution-space")
            try:
                return _compiled(text, name, (*options, *usual), template)
            except CompileError as second:
                # The one that says less has left what only nvcc knows behind.
                raise min(first, second, key=lambda error: error.log.count(": error")) from None


def _compiled(text: str, name: str, options: tuple[str, ...], template: str) -> tuple[str, str]:
    nvrtc = load_nvrtc()
    program = create_program(nvrtc, text, name, {CONFIG_HEADER: "", **STANDARD_HEADERS, **USUAL})
    try:
        if template:
            (status,) = nvrtc.nvrtcAddNameExpression(program, template.encode())
            check(nvrtc, status, "nvrtcAddNameExpression")
        # Not --no-source-include: with it, no header finds another one that lies beside it.
        paths = [f"-I{path}" for path in (*include_paths()[1:], *library_paths())]
        flags = [option.encode() for option in (*options, *paths)]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = fetch(nvrtc, program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            hint = "It compiles device code alone: give it the file with the kernel, or PTX by nvcc -ptx"
            hint = next((words for sign, words in HINTS.items() if re.search(sign, log)), hint)
            raise CompileError(f"source {name!r}: NVRTC refused it ({status.name}). {hint}", errors_of(log))
        ptx = fetch(nvrtc, program, "PTX").rstrip(b"\0").decode()
        if not template:
            return ptx, ""
        status, lowered = nvrtc.nvrtcGetLoweredName(program, template.encode())
        check(nvrtc, status, "nvrtcGetLoweredName")
        return ptx, lowered.decode()
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def errors_of(log: str) -> str:
    """What a compiler says, without its warnings: headers of libraries have many."""
    parts = log.split("\n\n")
    return "\n\n".join(part for part in parts if not re.search(r": warning|^Remark: ", part, re.MULTILINE))


def fetch(nvrtc, program, output: str) -> bytes:  # type: ignore[no-untyped-def]
    """One of NVRTC's outputs: each has a call for its size and one that copies it."""
    status, size = getattr(nvrtc, f"nvrtcGet{output}Size")(program)
    check(nvrtc, status, f"nvrtcGet{output}Size")
    content = bytes(size)
    (status,) = getattr(nvrtc, f"nvrtcGet{output}")(program, content)
    check(nvrtc, status, f"nvrtcGet{output}")
    return content


def check(nvrtc, status, call: str) -> None:  # type: ignore[no-untyped-def]
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"{call}: NVRTC answered {status.name}")
