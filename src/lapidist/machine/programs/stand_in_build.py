"""What a program needs before it starts: nvcc's work for a .cu file, and the stand-in, compiled for it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lapidist.errors import ArgumentError, CompileError, DeviceError

SOURCES = Path(__file__).parent / "runtime"
UNDEFINED = re.compile(r"^\s+[Uw] (\w+)(?:@+([\w.]+))?", re.M)
DEFINED = re.compile(r"^\w+ [TW] (\w+)", re.M)
NAME = re.compile(r"(?:__)?cuda[A-Z]\w*")
DRIVER = re.compile(r"cu[A-Z]\w*")
PER_THREAD = ("_ptsz", "_ptds")  # calls whose default stream is the thread's
LIBRARY = re.compile(r"libcudart\.so\.(\d+)")
NEWEST = 13
DRIVER_FOLDER = "driver"  # beside the stand-in, for programs that are linked with the driver


@dataclass(frozen=True)
class Needs:
    """The CUDA functions that a program calls, and the version of the runtime that it was linked with."""

    runtime: frozenset[str]
    driver: frozenset[str]
    major: int


def tool(name: str) -> str:
    path = shutil.which(name)
    if path is None and name == "nvcc":
        from cuda import pathfinder

        path = pathfinder.find_nvidia_binary_utility("nvcc")
    if path is None:
        ways = {
            "nvcc": "Install CUDA's toolkit, put its bin folder on PATH, or give a program that is compiled",
            "cc": "Install one, as by apt-get install gcc",
            "nm": "Install binutils",
        }
        raise DeviceError(f"{name}: must be on PATH to run CUDA programs; it was not found. {ways[name]}")
    return path


def output_of(words: Sequence[str], failure: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise CompileError(f"{failure}:", done.stderr or done.stdout)
    return done.stdout


def compile_program(
    source: Path, folder: Path, include: Sequence[str], define: Sequence[str], more: Sequence[str]
) -> Path:
    """A program of one file, linked with the stand-in in the runtime's place."""
    compiler, code = tool("nvcc"), folder / "program.o"
    flags = [f"-I{name}" for name in include] + [f"-D{pair}" for pair in define] + list(more)
    target = "arch=compute_90a,code=compute_90a"
    words = [compiler, "-c", "-lineinfo", "-gencode", target, *flags, str(source), "-o", str(code)]
    output_of(words, f"nvcc refused {source}")
    library = build_stand_in(needs_of([code]), folder)
    program = folder / source.stem
    linked = [compiler, "-cudart", "none", *more, str(code), "-Xlinker", str(library), "-o", str(program)]
    output_of(linked, f"{source} could not be linked")
    return program


def needs_of(files: Iterable[Path]) -> Needs:
    names: set[str] = set()
    theirs: set[str] = set()  # what one of the files has, for the others
    major = 0
    for file in files:
        flags = ["-D"] if file.suffix != ".o" else []
        listed = output_of([tool("nm"), *flags, str(file)], f"nm {file}")
        theirs |= set(DEFINED.findall(listed))
        for name, version in UNDEFINED.findall(listed):
            names.add(name)
            match = LIBRARY.fullmatch(version)
            major = max(major, int(match[1]) if match else 0)
    runtime = frozenset(name for name in names if NAME.fullmatch(name))
    driver = frozenset(name for name in names - theirs if DRIVER.fullmatch(name))
    return Needs(runtime, driver, major or NEWEST)


def require_runnable(program: Path, needs: Needs) -> None:
    """Refuse a program that would not meet the stand-in."""
    if needs.runtime:
        return
    content = program.read_bytes()
    if needs.driver:
        rule = "must call the CUDA runtime; this one calls the driver itself"
        way = "Give its kernels to lapidist check"
        raise ArgumentError(f"program: {rule} ({', '.join(sorted(needs.driver)[:3])}). {way}")
    if b".nv_fatbin" in content:
        rule = "must be linked with the CUDA runtime as a shared library, in whose place the stand-in comes"
        raise ArgumentError(f"program: {rule}; {program} has it inside. Link with nvcc -cudart shared")
    rule = "must be a CUDA program that nvcc made, or a .cu file"
    raise ArgumentError(f"program: {rule}; {program} registers no kernels. Give one")


def libraries_of(program: Path) -> list[Path]:
    """The program and the shared libraries that it loads with it, without the system's."""
    listed = subprocess.run(
        ["ldd", str(program)], capture_output=True, text=True, errors="replace", check=False
    )
    paths = [Path(path) for path in re.findall(r"=> (/\S+)", listed.stdout)]
    near = [
        path
        for path in paths
        if not str(path).startswith(("/lib", "/usr/lib")) and "libcudart" not in path.name
    ]
    return [program, *near]


def build_stand_in(needs: Needs, folder: Path) -> Path:
    """The shared library that takes the places of the runtime and the driver, with a function for each call
    that it lacks."""
    compiler, library = tool("cc"), folder / f"libcudart.so.{needs.major}"
    sources = sorted(map(str, SOURCES.glob("*.c")))
    flags = ["-std=gnu11", "-O0", "-fPIC", "-fvisibility=hidden", f"-DRUNTIME_VERSION={1000 * needs.major}"]
    flags += [f"-I{SOURCES}", "-shared", f"-Wl,-soname,{library.name}"]
    script = folder / "versions"
    driver = functions_of(sources, "DRIVER") | needs.driver
    names = "; ".join(["cuda*", "__cuda*", *sorted(driver)])
    script.write_text(f"{library.name} {{ global: {names}; local: *; }};\n")
    (folder / DRIVER_FOLDER).mkdir(exist_ok=True)
    (folder / DRIVER_FOLDER / "libcuda.so.1").unlink(missing_ok=True)
    (folder / DRIVER_FOLDER / "libcuda.so.1").symlink_to(library)
    more = folder / "lacking.c"
    defined = functions_of(sources)
    ending = {name: name.removesuffix(e) for name in needs.runtime for e in PER_THREAD if name.endswith(e)}
    aliases = [f"-Wl,--defsym={name}={plain}" for name, plain in ending.items() if plain in defined]
    lacking = sorted(n for n in needs.runtime - defined if ending.get(n) not in defined)
    lacking += sorted(needs.driver - functions_of(sources, "DRIVER"))
    lines = [f'API cudaError_t {name}(void) {{ return lacking("{name}"); }}' for name in lacking]
    more.write_text("\n".join(['#include "stand_in.h"', "cudaError_t lacking(const char *);", *lines, ""]))
    words = [compiler, *flags, *aliases, f"-Wl,--version-script={script}", *sources, str(more), "-lpthread"]
    output_of([*words, "-o", str(library)], "the stand-in for the CUDA runtime could not be compiled")
    return library


def functions_of(sources: Iterable[str], kind: str = "API") -> frozenset[str]:
    """The calls that the stand-in has, of the runtime or, as "DRIVER", of the driver."""
    text = "\n".join(Path(source).read_text() for source in sources)
    return frozenset(re.findall(rf"^{kind} [^;{{(]*?(\w+)\(", text, re.M))
