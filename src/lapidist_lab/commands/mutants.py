"""`lapidist mutants`: kernels with a barrier less, and whether the machine finds it."""

from __future__ import annotations

from typing import Annotated

import typer

from lapidist.commands.options import JsonObject, Types
from lapidist_lab.commands.options import Kernels, Records

EXAMPLES = ("mutants --kernel 12", "mutants --kernel 8,9 --seeds 2 --json", "mutants --kernel 4 --faults 8")


def mutants(
    kernel: Kernels = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="schedules for each mutant, and for each unbroken kernel")
    ] = 4,
    dtype: Types = "fp32,fp16",
    jobs: Annotated[int, typer.Option(min=1, help="processes")] = 1,
    faults: Annotated[
        int, typer.Option(min=0, help="small faults of many kinds, drawn for each way to launch a kernel")
    ] = 0,
    draw: Annotated[int, typer.Option(min=0, help="the seed that draws them")] = 0,
    part: Annotated[
        str, typer.Option(help="I/N: the I-th of N parts of the work, for several computers")
    ] = "1/1",
    limit: Annotated[
        float | None, typer.Option(min=1, help="seconds; what was found by then is kept, as at Ctrl-C")
    ] = None,
    as_json: JsonObject = False,
    record: Records = None,
) -> None:
    """Break kernels one barrier at a time: does the machine find it?

    Or one wait, fence or bounds check at a time; with --faults also counts, masks, phases, scopes and places.
    A kernel is broken in the first type that it multiplies.
    """
    from lapidist.dtypes import math_named
    from lapidist_lab.bench.studies.machine_runs import mutants_command

    maths = [math_named(part) for part in dtype.split(",")]
    survey = mutants_command(kernel, maths, seeds, (faults, draw), jobs, part, limit, as_json, record)
    raise typer.Exit(int(bool(survey.false_alarms)))
