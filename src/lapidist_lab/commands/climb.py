"""`lapidist climb`: every rung of the ladder on one product."""

from __future__ import annotations

from typing import Annotated

import typer

from lapidist.commands.fold import folded
from lapidist.commands.options import Json, Type
from lapidist_lab.commands.options import (
    Csv,
    Html,
    Kernels,
    Mnk,
    Place,
    Plot,
    Records,
    Rounds,
    Size,
    Sustained,
)
from lapidist_lab.commands.run_target import (
    MACHINE_SIZE,
    one_case,
    perform,
    present,
    require_rounds,
    sweep_works,
)

EXAMPLES = (
    "climb",
    "climb --size 8192 --html report.html",
    "climb --dtype fp16 --kernel 24,25,26,wgmma",
    "climb --device machine --size 128 --kernel 2,8",
)
GPU_SIZE = 4096
NEXT = (
    "lapidist explain 4: what bounds rung 04, and what rung 05 removes",
    "lapidist lesson 5 --html banks.html: rung 05 as a page that moves: lanes, banks, barriers",
    "lapidist plan --mnk 300,520,200: which kernel a product of yours is given, and why",
    "lapidist doctor: what this computer has, and how to get what it lacks",
)


def climb(
    size: Size = None,
    mnk: Mnk = None,
    dtype: Type = "fp32",
    device: Place = "auto",
    kernel: Kernels = None,
    detours: Annotated[bool, typer.Option(help="the ideas that lost, too")] = False,
    schedules: Annotated[
        bool, typer.Option("--schedules", help="in the machine: what schedules with all checks take")
    ] = False,
    parts: Annotated[
        bool, typer.Option("--parts", help="in the machine: which part of schedules takes their time")
    ] = False,
    sweep: Annotated[
        bool | None, typer.Option(help="also m = n = 128 … 16384, k = 1024, for some rungs; on with --html")
    ] = None,
    as_json: Json = False,
    csv: Csv = None,
    plot: Plot = None,
    html: Html = None,
    record: Records = None,
    sustained: Sustained = True,
    rounds: Rounds = None,
) -> None:
    """Climb the ladder: every rung on one product, beside cuBLAS."""
    from lapidist.dtypes import short_name
    from lapidist.errors import ArgumentError
    from lapidist_lab.bench.protocol import contenders
    from lapidist_lab.bench.publish.output_files import Outputs
    from lapidist_lab.bench.studies.ladder_runs import Work, place_of

    if schedules and parts:
        raise ArgumentError("--parts: must be without --schedules, whose table is another; leave one out")
    machine_mode = "schedule parts" if parts else "schedule" if schedules else "machine"
    place = "machine" if (schedules or parts) and device == "auto" else present(place_of(device))
    if (schedules or parts) and place != "machine":
        option = "--parts" if parts else "--schedules"
        raise ArgumentError(
            f"{option}: is of the machine; got --device {device}. Leave that out, or name the machine"
        )
    case = one_case(size, mnk, dtype, GPU_SIZE if isinstance(place, int) else MACHINE_SIZE)
    climbers = tuple(contenders.choose(kernel, detours, case.math))
    works = [Work(case, climbers)]
    if (html is not None if sweep is None else sweep) and isinstance(place, int):
        works += sweep_works(case)
    study = "parts" if parts else "schedules" if schedules else "climb"
    name = f"{study}-{short_name(case.math)}-{case.shape.removesuffix('^3')}"
    outputs = Outputs(as_json, csv, plot, html, record, name)
    mode = "sustained" if sustained else "burst"
    perform(
        works,
        place,
        mode,
        require_rounds(rounds),
        outputs,
        named=kernel is not None,
        machine_mode=machine_mode,
    )
    if not as_json:
        print("\n".join(["", "What next:", *(folded(f"  {line}", 4) for line in NEXT)]))
