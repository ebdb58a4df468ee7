"""`lapidist run`: a whole CUDA program, its kernels in the machine."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from lapidist.commands.options import JsonObject, LaunchBudget

EXAMPLES = (
    "run program.cu 1000",
    "run --seeds 4 --nvcc=-std=c++20 -I include program.cu",
    "run --ignore race --level uninitialised=warning ./program --size 64",
)
# Options behind the program's name are the program's.
ALL_TO_THE_PROGRAM = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def run(
    program: Annotated[Path, typer.Argument(help="a .cu file, or a program linked by nvcc -cudart shared")],
    arguments: Annotated[list[str] | None, typer.Argument(help="what the program is called with")] = None,
    seeds: Annotated[int, typer.Option(min=0, help="random schedules of each launch, before the plain")] = 1,
    include: Annotated[list[str] | None, typer.Option("-I", help="a folder of headers")] = None,
    define: Annotated[list[str] | None, typer.Option("-D", help="NAME=VALUE, or NAME, for nvcc")] = None,
    nvcc: Annotated[list[str] | None, typer.Option("--nvcc", help="another option for nvcc")] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="a rule, FILE:LINE, or a kernel, whose findings are left out")
    ] = None,
    level: Annotated[list[str] | None, typer.Option(help="RULE=error, RULE=warning or RULE=off")] = None,
    budget: LaunchBudget = None,
    most_warps: Annotated[
        int | None, typer.Option(min=0, help="launches of more warps have no schedules; without it, all have")
    ] = None,
    as_json: JsonObject = False,
) -> None:
    """Run a CUDA program without a GPU, and look for faults.

    The program's host code runs as it is, with a stand-in for the CUDA runtime, which needs a C compiler. A
    .cu file needs nvcc, too. With --json, what the program prints goes to stderr. The exit code is 1 if there
    is an error, else the program's."""
    from lapidist.machine.programs.run_program import run_program
    from lapidist.machine.run import DEFAULT_BUDGET

    levels = dict(pair.partition("=")[::2] for pair in level or [])
    with redirect_stdout(sys.stderr if as_json else sys.stdout):
        sys.stdout.flush()
        report = run_program(
            program,
            arguments or [],
            seeds=seeds,
            include=include or [],
            define=define or [],
            compiler_options=nvcc or [],
            ignore=ignore or [],
            levels=levels,
            budget=budget or DEFAULT_BUDGET,
            most_warps=most_warps,
            output=2 if as_json else None,
        )
        sys.stdout.flush()
    print(json.dumps(report.data()) if as_json else report)
    raise typer.Exit(report.exit_code if report else 1)
