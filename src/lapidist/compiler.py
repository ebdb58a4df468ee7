"""CUDA C++ to Binary: NVRTC compiles at run time, a directory of files keeps what it made.

No nvcc, host compiler, driver or GPU is needed. One pass gives the PTX (for the machine and the static counts) and the
cubin (for the GPU); without the assembler, the PTX alone, it takes three fifths of the time. The cache never stands in the
way: an entry that cannot be read is compiled again, one that cannot be written is done without.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path

from lapidist.errors import CompileError, DeviceError
from lapidist.launch import Binary

CUDA_SOURCES = Path(__file__).parent / "cuda"
CACHE_FORMAT = b"lapidist-binary-2\n"
NVRTC_HINT = 'pip install "nvidia-cuda-nvrtc>=13.0,<14" "nvidia-cuda-runtime>=13.0,<14"'


def compile_kernel(
    source: str,
    entry: str,
    defines: Mapping[str, object],
    architecture: str,
    more: tuple[str, ...] = (),
    assembled: bool = True,
) -> Binary:
    """Compile the file `source` (a path below lapidist/cuda) with `-D` defines and more options for `architecture` ("sm_90a")."""
    text = (CUDA_SOURCES / source).read_text()
    options = (*compile_options(defines, architecture), *more)
    make = compile_source if assembled else compile_to_ptx
    return make(text, entry, options, architecture, source)


def kept_at(source: str, entry: str, defines: Mapping[str, object], architecture: str, more: tuple[str, ...] = ()) -> Path:
    """Where the cache has that binary, or would have it."""
    options = (*compile_options(defines, architecture), *more)
    return cache_directory() / f"{cache_key((CUDA_SOURCES / source).read_text(), entry, options)}.bin"


def compile_options(defines: Mapping[str, object], architecture: str) -> tuple[str, ...]:
    """What NVRTC is told, without the include paths: they are machine-dependent and no part of the cache key.

    NVRTC's own cache is off: this one is ours, and an answer from there comes without ptxas' report in the log.
    """
    macros = tuple(f"-D{name}={value}" for name, value in sorted(defines.items()))
    return (f"--gpu-architecture={architecture}", "--std=c++17", "-lineinfo", "--ptxas-options=-v", "--no-cache", *macros)


def compile_source(text: str, entry: str, options: tuple[str, ...], architecture: str, name: str) -> Binary:
    """Compile CUDA C++ text, through the cache."""
    path = cache_directory() / f"{cache_key(text, entry, options)}.bin"
    cached = read_cache(path, entry, architecture)
    if cached is not None:
        return cached
    binary = run_nvrtc(text, entry, options, architecture, name)
    write_cache(path, binary)
    return binary


def compile_to_ptx(text: str, entry: str, options: tuple[str, ...], architecture: str, name: str) -> Binary:
    """The same PTX, and neither cubin nor the assembler's report, unless the cache has them."""
    whole = read_cache(cache_directory() / f"{cache_key(text, entry, options)}.bin", entry, architecture)
    return whole or compile_source(text, entry, unassembled(options), architecture, name)


def unassembled(options: tuple[str, ...]) -> tuple[str, ...]:
    """For an architecture that no chip has, NVRTC leaves the assembler out."""
    return tuple(option.replace("=sm_", "=compute_", 1) for option in options if not option.startswith("--ptxas-options"))


def cache_key(text: str, entry: str, options: tuple[str, ...]) -> str:
    digest = hashlib.sha256(CACHE_FORMAT)
    for part in (text, entry, *options, "{}.{}".format(*nvrtc_version()), header_fingerprint()):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


@cache
def header_fingerprint() -> str:
    """All project headers together: a change in one of them outdates every entry, which costs seconds and is never wrong."""
    digest = hashlib.sha256()
    for header in sorted(CUDA_SOURCES.rglob("*.cuh")):
        digest.update(header.name.encode() + header.read_bytes())
    return digest.hexdigest()


# ---- the directory of binaries ----


def cache_directory() -> Path:
    """LAPIDIST_CACHE_DIR, else the user's cache folder."""
    chosen = os.environ.get("LAPIDIST_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lapidist"


def read_cache(path: Path, entry: str, architecture: str) -> Binary | None:
    """The entry at `path`, or None when it is absent, unreadable or not whole (its digest tells)."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    magic, digest, body = (
        content[: len(CACHE_FORMAT)],
        content[len(CACHE_FORMAT) :][:32],
        content[len(CACHE_FORMAT) + 32 :],
    )
    if magic != CACHE_FORMAT or hashlib.sha256(body).digest() != digest:
        return None
    header, cubin = zlib.decompress(body).split(b"\n", 1)
    kept = json.loads(header)
    return Binary(entry, architecture, kept["ptx"], cubin, kept["log"])


def write_cache(path: Path, binary: Binary) -> None:
    """Write beside the target, then rename: another process sees the whole entry or none. A full disk is no error."""
    header = json.dumps({"ptx": binary.ptx, "log": binary.log}).encode()
    body = zlib.compress(header + b"\n" + binary.cubin, level=1)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(CACHE_FORMAT + hashlib.sha256(body).digest() + body)
        os.replace(temporary, path)
    except OSError:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)


# ---- NVRTC ----


@lru_cache(maxsize=1)
def nvrtc_version() -> tuple[int, int]:
    nvrtc = load_nvrtc()
    status, major, minor = nvrtc.nvrtcVersion()
    check(nvrtc, status, "nvrtcVersion")
    return major, minor


@lru_cache(maxsize=1)
def load_nvrtc():  # type: ignore[no-untyped-def]
    """cuda.bindings.nvrtc, with the missing library turned into the command that installs it."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError, OSError) as error:
        raise DeviceError(f"NVRTC: the run-time compiler was not found ({error}). Install it with: {NVRTC_HINT}") from error
    return nvrtc


@lru_cache(maxsize=1)
def include_paths() -> tuple[Path, ...]:
    """The project's headers and CUDA's own (cuda_fp16.h and its like)."""
    from cuda import pathfinder

    toolkit = pathfinder.find_nvidia_header_directory("cudart")
    if toolkit is None:
        raise DeviceError(f"CUDA headers: cuda_fp16.h was not found. Install it with: {NVRTC_HINT}")
    return (CUDA_SOURCES, Path(toolkit))


def run_nvrtc(text: str, entry: str, options: tuple[str, ...], architecture: str, name: str) -> Binary:
    """One compilation: PTX, cubin and the log (ptxas reports registers and spills there)."""
    nvrtc = load_nvrtc()
    status, program = nvrtc.nvrtcCreateProgram(text.encode(), name.encode(), 0, [], [])
    check(nvrtc, status, "nvrtcCreateProgram")
    try:
        flags = [option.encode() for option in (*options, *(f"-I{path}" for path in include_paths()))]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        log = fetch(nvrtc, program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            shown = " ".join(options)
            raise CompileError(f"source {name!r}: NVRTC {nvrtc_version()} refused it ({status.name}); options: {shown}", log)
        ptx = fetch(nvrtc, program, "PTX").rstrip(b"\0").decode()
        return Binary(entry, architecture, ptx, fetch(nvrtc, program, "CUBIN"), log)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def fetch(nvrtc, program, what: str) -> bytes:  # type: ignore[no-untyped-def]
    """One of NVRTC's outputs: each has a size call and a copy call."""
    status, size = getattr(nvrtc, f"nvrtcGet{what}Size")(program)
    check(nvrtc, status, f"nvrtcGet{what}Size")
    content = bytes(size)
    (status,) = getattr(nvrtc, f"nvrtcGet{what}")(program, content)
    check(nvrtc, status, f"nvrtcGet{what}")
    return content


def check(nvrtc, status, call: str) -> None:  # type: ignore[no-untyped-def]
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"{call}: NVRTC answered {status.name}")
