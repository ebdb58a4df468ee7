"""A CUDA program from its start to its end, with the machine in the place of the card."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from lapidist.errors import ArgumentError
from lapidist.machine.authors.cuda_sources import near_files
from lapidist.machine.programs.device_memory import ROOM, START, DeviceMemory
from lapidist.machine.programs.kernel_runs import KernelRuns, ProgramReport
from lapidist.machine.programs.runtime_calls import RuntimeCalls
from lapidist.machine.programs.stand_in_build import (
    DRIVER_FOLDER,
    build_stand_in,
    compile_program,
    libraries_of,
    needs_of,
    require_runnable,
)
from lapidist.machine.rules import require_levels
from lapidist.machine.run import DEFAULT_BUDGET, require_integer

SOURCES = (".cu",)
PATIENCE = 5.0  # seconds that a program has to end when the machine stops


def run_program(
    program: Path,
    arguments: Sequence[str] = (),
    *,
    seeds: int = 1,
    include: Sequence[str] = (),
    define: Sequence[str] = (),
    compiler_options: Sequence[str] = (),
    ignore: Collection[str] = (),
    levels: Mapping[str, str] | None = None,
    budget: int = DEFAULT_BUDGET,
    most_warps: int | None = None,
    output: int | None = None,
) -> ProgramReport:
    """Run a CUDA program, or a .cu file that nvcc makes one of; its kernels run in the machine.

    Each launch runs on `seeds` random schedules, whose effects are undone, and then plainly. `budget` is how
    many blocks of code each run may execute; on a schedule, for every 4,096 warps of the launch. A launch of
    more than `most_warps` warps has no schedules. `output` is the file descriptor for what the program
    prints, if not this process's own."""
    require_integer("seeds", seeds, least=0)
    require_integer("budget", budget, least=1)
    require_integer("most_warps", most_warps, least=0)
    require_levels(levels or {})
    if not program.is_file():
        raise ArgumentError(
            f"program: must be a file, a CUDA program or its .cu; got {str(program)!r}. {near_files(program)}"
        )
    if program.suffix not in SOURCES and not is_elf(program):
        rule = "must be a program that nvcc linked, or a .cu file"
        raise ArgumentError(
            f"program: {rule}; {str(program)!r} is neither. Give that, not a script or a header"
        )
    with tempfile.TemporaryDirectory(prefix="lapidist-") as name:
        folder = Path(name)
        if program.suffix in SOURCES:
            executable = compile_program(program, folder, include, define, compiler_options)
            needs = needs_of([executable])
        else:
            executable = program
            needs = needs_of(libraries_of(program))
            require_runnable(program, needs)
        library = build_stand_in(needs, folder)
        memory = DeviceMemory()
        try:
            runs = KernelRuns(memory, seeds, ignore, levels or {}, memory.total, budget, most_warps)
            calls = RuntimeCalls(memory, runs, needs.major)
            code = served([str(executable.absolute()), *arguments], library, memory, calls, output)
        finally:
            memory.close()
    return ProgramReport(program.name, seeds, code, runs.launches, runs.findings(), list(runs.notes))


def served(
    words: Sequence[str], library: Path, memory: DeviceMemory, calls: RuntimeCalls, output: int | None
) -> int:
    """The program's exit code, as a shell has it."""
    machine_end, program_end = socket.socketpair()
    variables = dict(os.environ)
    for name, first in (("LD_PRELOAD", library), ("LD_LIBRARY_PATH", library.parent / DRIVER_FOLDER)):
        variables[name] = ":".join(filter(None, (str(first), variables.get(name))))
    variables["LAPIDIST_MACHINE"] = f"{program_end.fileno()} {memory.file} {START} {ROOM}"
    shared = (program_end.fileno(), memory.file)
    with machine_end, program_end:
        process = subprocess.Popen(words, env=variables, pass_fds=shared, stdout=output)
        program_end.close()
        try:
            calls.serve(machine_end)
            code = process.wait()
        finally:
            machine_end.close()
            end(process)
    return code if code >= 0 else 128 - code


def end(process: subprocess.Popen[bytes]) -> None:
    """Let the program end, or end it, where the machine stopped."""
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def is_elf(program: Path) -> bool:
    with program.open("rb") as file:
        return file.read(4) == b"\x7fELF"
