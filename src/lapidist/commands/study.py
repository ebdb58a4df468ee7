"""What the machine and the compiler say of a kernel: `static`, `explain`, `mutants`, `run-ptx`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lapidist.commands.options import (
    Chip,
    Json,
    JsonObject,
    Keep,
    Kernels,
    MachineSize,
    Mnk,
    Type,
    Types,
    kernels_like,
)
from lapidist.commands.run_target import one_case
from lapidist.errors import ArgumentError

if TYPE_CHECKING:
    from lapidist.machine.run import Report

MACHINE_SIZE = 256
EXAMPLES = {
    "static": (
        "static 20",
        "static 24 --dtype fp16 --chip a100",
        "static --hashes --processes 4",
        "static --values",
    ),
    "explain": ("explain 4 --chip a100 --size 4096", "explain ladder --size 4096", "explain 12 --json"),
    "mutants": ("mutants --kernel 12", "mutants --kernel 8,9 --seeds 2 --json"),
    "run-ptx": ("run-ptx saxpy.ptx --entry saxpy --block 128 --arg n=100 --arg x=x.npy --save x=after.npy",),
}


def static(
    kernel: Annotated[
        str | None, typer.Argument(help="a kernel's name or a rung's number", autocompletion=kernels_like)
    ] = None,
    dtype: Type = "fp32",
    chip: Chip = "h200",
    hashes: Annotated[
        bool, typer.Option("--hashes", help="hashes of the PTX, of this kernel or of all")
    ] = False,
    processes: Annotated[int, typer.Option(min=1, help="compilers for --hashes")] = 1,
    values: Annotated[
        bool, typer.Option("--values", help="what macros would cost as values of the launch, of every family")
    ] = False,
    as_json: Json = False,
) -> None:
    """What the compiler made of a kernel: its mix, registers, spills."""
    from lapidist import device
    from lapidist.dtypes import math_named
    from lapidist.kernels.registry import kernel_named
    from lapidist_lab import sass

    if hashes:
        names = [] if kernel is None else [kernel_named(kernel).name]
        for name, value in hash_rows(device.chip(chip), processes, names):
            print(json.dumps({"case": name, "hash": value}) if as_json else f"{name} {value}", flush=True)
        return
    if values:
        print(value_table(device.chip(chip), as_json), end="")
        return
    if kernel is None:
        raise ArgumentError(
            "KERNEL: must be a kernel's name or a rung's number; got none. Name one, or ask for --hashes"
            " of all"
        )
    found = sass.analyse(kernel_named(kernel), None, math_named(dtype), device.chip(chip).architecture)
    print(json.dumps(asdict(found) | {"config": str(found.config)}) if as_json else found.describe())


def hash_rows(device: Any, processes: int, names: list[str]) -> Iterator[tuple[str, str]]:
    from lapidist_lab.sass.hashes import lines

    for line in lines(device, processes, names):
        name, _, value = line.partition(" ")
        yield name, value


def value_table(device: Any, as_json: bool) -> str:
    from lapidist_lab.sass.constant_values import rows, table

    if not as_json:
        return table(device.architecture)
    listed = [
        {"kernel": kernel, "value": words, **counts._asdict()}
        for kernel, words, counts in rows(device.architecture)
    ]
    return "".join(json.dumps(row) + "\n" for row in listed)


def explain(
    kernel: Annotated[
        str,
        typer.Argument(
            help="a kernel's name, a rung's number, or ladder: a line for each rung",
            autocompletion=kernels_like,
        ),
    ],
    size: MachineSize = None,
    mnk: Mnk = None,
    chip: Chip = "h200",
    dtype: Type = "fp32",
    as_json: JsonObject = False,
    record: Keep = None,
) -> None:
    """What bounds a kernel on a chip, from the machine's counts.

    How far it is from that, and what the next rung removes.
    """
    from lapidist.device import chip as chip_named
    from lapidist_lab.bench.studies.machine_runs import explain_command

    explain_command(kernel, chip_named(chip), one_case(size, mnk, dtype, MACHINE_SIZE), as_json, record)


def mutants(
    kernel: Kernels = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="schedules for each mutant, and for each unbroken kernel")
    ] = 4,
    dtype: Types = "fp32,fp16",
    jobs: Annotated[int, typer.Option(min=1, help="processes")] = 1,
    part: Annotated[
        str, typer.Option(help="I/N: the I-th of N parts of the work, for several computers")
    ] = "1/1",
    limit: Annotated[
        float | None, typer.Option(min=1, help="seconds; what was found by then is kept, as at Ctrl-C")
    ] = None,
    as_json: JsonObject = False,
    record: Keep = None,
) -> None:
    """Break kernels one barrier at a time: does the machine find it?

    Or one wait, fence or bounds check at a time. A kernel is broken in the first type that it multiplies.
    """
    from lapidist.dtypes import math_named
    from lapidist_lab.bench.studies.machine_runs import mutants_command

    maths = [math_named(part) for part in dtype.split(",")]
    found = mutants_command(kernel, maths, seeds, jobs, part, limit, as_json, record)
    raise typer.Exit(int(bool(found.false_alarms)))


def run_ptx(
    file: Annotated[Path, typer.Argument(help="a PTX module")],
    entry: Annotated[str, typer.Option(help="the kernel in it")],
    grid: Annotated[str, typer.Option(help="blocks: X,Y,Z")] = "1",
    block: Annotated[str, typer.Option(help="threads: X,Y,Z")] = "32",
    arg: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE: a number, a .npy file, or e.g. float32[64,64]:random"),
    ] = None,
    save: Annotated[
        list[str] | None, typer.Option(help="NAME=FILE.npy: an array argument, after the run or a fault")
    ] = None,
    shared: Annotated[int, typer.Option(min=0, help="bytes of dynamic shared memory")] = 0,
    residency: Annotated[int | None, typer.Option(min=1, help="blocks that run at a time")] = None,
    budget: Annotated[
        int | None, typer.Option(min=1, help="blocks of code to execute at most; 2 million by default")
    ] = None,
    memory_budget: Annotated[
        int | None, typer.Option(min=1, help="bytes to take at most; 4 GiB by default")
    ] = None,
    sanitize: Annotated[bool, typer.Option(help="look for races, missing waits and fences; slower")] = False,
    seed: Annotated[int | None, typer.Option(help="of the fuzzed schedule; with --sanitize")] = None,
    as_json: JsonObject = False,
) -> None:
    """Run any kernel's PTX in the machine and print what it did."""
    from lapidist.machine import foreign, kernel_arguments
    from lapidist.machine.progress import bar_of_blocks

    if seed is not None and not sanitize:
        raise ArgumentError(
            f"--seed: is of the fuzzed schedule; got {seed} without --sanitize. Add --sanitize"
        )
    text = text_of(file)
    values = kernel_arguments.parse_arguments(arg or [], room=memory_budget)
    kernel_arguments.require_savable(save or [], values)
    extents = kernel_arguments.parse_extent(grid, "--grid"), kernel_arguments.parse_extent(block, "--block")
    options = {"shared_bytes": shared, "sanitize": sanitize, "seed": seed, "residency": residency}
    options |= {"budget": budget} if budget else {}
    options |= {"memory_budget": memory_budget} if memory_budget else {}
    try:
        with bar_of_blocks(entry) as advance:
            report = foreign.run_ptx(text, entry, *extents, values, on_progress=advance, **options)  # type: ignore[arg-type]
    finally:  # after a fault, too: what the kernel had written until then shows how far it came
        kernel_arguments.save_arrays(save or [], values)
    print(json.dumps(data_of(report)) if as_json else report)


def text_of(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"FILE: must be a readable PTX module; {error}") from error


def data_of(report: Report) -> dict[str, Any]:
    counts = None if report.counts is None else asdict(report.counts)
    return {"seconds": report.seconds, "steps": report.steps, "seed": report.seed, "counts": counts}
