"""`lapidist run-ptx`: any kernel's PTX in the machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lapidist.commands.options import JsonObject
from lapidist.errors import ArgumentError

if TYPE_CHECKING:
    from lapidist.machine.run import Report

EXAMPLES = ("run-ptx saxpy.ptx --entry saxpy --block 128 --arg 0=100 --arg 1=x.npy --save 1=after.npy",)


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
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"FILE: must be a readable PTX module; {error}") from error
    from lapidist.machine.authors.kernel_text import require_ptx

    require_ptx(text, "FILE")
    return text


def data_of(report: Report) -> dict[str, Any]:
    counts = None if report.counts is None else asdict(report.counts)
    return {
        "seconds": report.seconds,
        "steps": report.steps,
        "seed": report.seed,
        "counts": counts,
        "warnings": [finding.data() for finding in report.warnings],
    }
