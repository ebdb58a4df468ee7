"""The command line. Results go to stdout, progress and notes to stderr; a wrong argument is one line and exit
code 2.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lapidist.commands.cache import cache
from lapidist.commands.fuzz import fuzz
from lapidist.commands.plans import plan
from lapidist.commands.schedule import schedule
from lapidist.commands.streamk import streamk
from lapidist.commands.tune import tune, warm
from lapidist.commands.works import (
    chosen_cases,
    chosen_instead,
    measure_instead,
    note,
    one_case,
    perform,
    present,
    require_rounds,
    sweep_works,
)
from lapidist.errors import ArgumentError, LapidistError
from lapidist.visible import visible

app = typer.Typer(
    help="Dense matrix multiply on NVIDIA GPUs: climb the ladder of kernels, measure, report.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

GPU_SIZE = 4096
MACHINE_SIZE = 256

Size = Annotated[
    str | None, typer.Option(help="m = n = k; 4096 unless told, 256 in the machine", metavar="N")
]
Mnk = Annotated[str | None, typer.Option(help="in place of --size", metavar="M,N,K")]
Type = Annotated[str, typer.Option("--dtype", help="fp32, tf32, fp64, fp16, bf16, int8, uint8, e4m3 or e5m2")]
Place = Annotated[str, typer.Option("--device", help="gpu, machine, or a GPU's number")]
Kernels = Annotated[
    str | None,
    typer.Option(help="names or rung numbers, separated by commas; lapidist is the planner's choice"),
]
Json = Annotated[bool, typer.Option("--json", help="JSON lines on stdout, one a row, in place of the table")]
Csv = Annotated[Path | None, typer.Option(help="write the rows to this CSV file")]
Plot = Annotated[Path | None, typer.Option(help="draw to this file (.svg, .png, .pdf); needs matplotlib")]
Html = Annotated[Path | None, typer.Option(help="write one self-contained HTML report")]
Keep = Annotated[
    Path | None, typer.Option("--record", help="write a file of Records into this folder", metavar="DIR")
]
Sustained = Annotated[
    bool, typer.Option("--sustained/--burst", help="turns of over half a second, or short ones after a rest")
]


Rounds = Annotated[
    int | None, typer.Option(help="turns for each kernel; 2 sustained, 7 in bursts, 1 in the machine")
]


@app.command()
def climb(
    size: Size = None,
    mnk: Mnk = None,
    dtype: Type = "fp32",
    device: Place = "gpu",
    kernels: Kernels = None,
    detours: Annotated[bool, typer.Option(help="the ideas that lost, too")] = False,
    sweep: Annotated[
        bool | None, typer.Option(help="also m = n = 128 … 16384, k = 1024, for some rungs; on with --html")
    ] = None,
    as_json: Json = False,
    csv: Csv = None,
    plot: Plot = None,
    html: Html = None,
    record: Keep = None,
    sustained: Sustained = True,
    rounds: Rounds = None,
) -> None:
    """Climb the ladder: every rung on one product, beside cuBLAS."""
    from lapidist.bench import contenders
    from lapidist.bench.climb import Work, place_of
    from lapidist.bench.outputs import Outputs
    from lapidist.dtypes import short_name

    place = present(place_of(device))
    case = one_case(size, mnk, dtype, GPU_SIZE if isinstance(place, int) else MACHINE_SIZE)
    climbers = tuple(contenders.choose(kernels, detours, case.math))
    works = [Work(case, climbers)]
    if (html is not None if sweep is None else sweep) and isinstance(place, int):
        works += sweep_works(case)
    outputs = Outputs(
        as_json, csv, plot, html, record, f"climb-{short_name(case.math)}-{case.shape.removesuffix('^3')}"
    )
    perform(works, place, "sustained" if sustained else "burst", require_rounds(rounds), outputs)


@app.command()
def bench(
    lists: Annotated[
        list[str] | None, typer.Argument(help="ladder, sweep, squares, types, ragged, layers, corpus")
    ] = None,
    mnk: Annotated[
        list[str] | None, typer.Option(help="a product more, or alone; may be repeated", metavar="M,N,K")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="JSON: [[m, n, k], …]")] = None,
    dtype: Type = "fp32",
    device: Place = "gpu",
    kernels: Annotated[
        str, typer.Option(help="names or numbers; lapidist is the planner's choice, ladder all")
    ] = "lapidist",
    launch: Annotated[
        bool, typer.Option("--launch", help="host costs instead: launches, first calls, import")
    ] = False,
    limits: Annotated[
        bool, typer.Option("--limits", help="each unit's own limit instead: fma, mma.sync, wgmma")
    ] = False,
    scaled: Annotated[
        bool, typer.Option("--scaled", help="8-bit floats with factors instead, in every form")
    ] = False,
    layouts: Annotated[
        bool, typer.Option("--layouts", help="the types of wgmma in all four layouts instead")
    ] = False,
    as_json: Json = False,
    csv: Csv = None,
    plot: Plot = None,
    html: Html = None,
    record: Keep = None,
    sustained: Sustained = True,
    short: Annotated[bool, typer.Option("--short", help="turns of 2 ms, for hundreds of products")] = False,
    rounds: Rounds = None,
    count: Annotated[
        int | None, typer.Option(min=1, help="so many of the lists' products, or pairs; 300 of a corpus")
    ] = None,
    skip: Annotated[int, typer.Option(min=0, help="leave out the first ones")] = 0,
    seed: Annotated[int, typer.Option(help="of the corpus: m, n, k log-uniform in [128, 8192]")] = 2301,
) -> None:
    """Measure lists of products, or the host's costs, beside cuBLAS."""
    from lapidist.bench import contenders
    from lapidist.bench.cases import CORPUS, NEIGHBOUR_EVERY, Part
    from lapidist.bench.climb import Work, place_of
    from lapidist.bench.outputs import Outputs
    from lapidist.dtypes import short_name

    place = present(place_of(device))
    drawn, part = CORPUS in (lists or ()), Part(count, skip, seed)
    cases = chosen_cases(lists, mnk, file, dtype, Part() if scaled else part)
    listed = "-".join(
        [*(lists or ["cases"]), short_name(cases[0].math), *([str(skip)] if skip or drawn else [])]
    )
    modes = {"--launch": launch, "--limits": limits, "--scaled": scaled, "--layouts": layouts}
    instead = chosen_instead([name for name, given in modes.items() if given], lists or mnk or file)
    outputs = Outputs(as_json, csv, plot, html, record, f"bench-{instead or listed}")
    if instead:
        return measure_instead(instead, place, outputs, part)
    names = None if kernels == "ladder" else kernels
    mode = "short" if short else ("corpus " if drawn else "") + ("sustained" if sustained else "burst")
    aligned = [case.neighbour for case in cases[::NEIGHBOUR_EVERY] if drawn]
    everyone = [(case, drawn) for case in cases] + [(case, False) for case in aligned]
    few = not (short or drawn)  # of a few, machine code is read too
    works = [
        Work(case, tuple(contenders.choose(names, False, case.math, few)), padded)
        for case, padded in everyone
    ]
    return perform(works, place, mode, require_rounds(rounds), outputs, part.words if drawn else "")


@app.command()
def report(
    check: Annotated[
        bool, typer.Option("--check", help="change nothing; exit 1 when a file differs from the Records")
    ] = False,
    root: Annotated[Path, typer.Option(help="the checkout whose files are written")] = Path(),
    html: Html = None,
) -> None:
    """Write every published number from the Records under results/."""
    from lapidist.bench import report as writer
    from lapidist.writable import require_writable

    if html is not None:
        require_writable("--html", html)
    raise typer.Exit(writer.publish(root, check, html))


@app.command()
def static(
    kernel: Annotated[str | None, typer.Argument(help="a kernel's name or a rung's number")] = None,
    dtype: Type = "fp32",
    chip: Annotated[str, typer.Option(help="v100, a100, rtx4090, h100, h200")] = "h200",
    hashes: Annotated[
        bool,
        typer.Option("--hashes", help="hashes of the PTX, of this kernel or of all, over a list of problems"),
    ] = False,
    processes: Annotated[int, typer.Option(help="compilers for --hashes")] = 1,
) -> None:
    """What the compiler made of a kernel: its mix, registers, spills."""
    from lapidist import device, static
    from lapidist.dtypes import math_named
    from lapidist.kernels.registry import kernel_named

    if hashes:
        from lapidist.static.hashes import lines

        names = [] if kernel is None else [kernel_named(kernel).name]
        for line in lines(device.chip(chip), processes, names):
            print(line, flush=True)
        return
    if kernel is None:
        raise ArgumentError(
            "KERNEL: must be a kernel's name or a rung's number; got none. Name one, or ask for --hashes"
            " of all"
        )
    row, math = kernel_named(kernel), math_named(dtype)
    print(static.analyse(row, None, math, device.chip(chip).architecture).describe())


app.command()(cache)
app.command()(fuzz)
app.command()(plan)
app.command()(schedule)
app.command()(streamk)
app.command()(tune)
app.command()(warm)


# ---- the machine ----


@app.command()
def explain(
    kernel: Annotated[
        str, typer.Argument(help="a kernel's name, a rung's number, or ladder: a line for each rung")
    ],
    size: Annotated[str | None, typer.Option(help="m = n = k; 256 unless told", metavar="N")] = None,
    mnk: Mnk = None,
    chip: Annotated[str, typer.Option(help="v100, a100, rtx4090, h100, h200")] = "h200",
    dtype: Type = "fp32",
    as_json: Json = False,
    record: Keep = None,
) -> None:
    """What bounds a kernel on a chip, from the machine's counts.

    How far it is from that, and what the next rung removes.
    """
    from lapidist.bench.machine_runs import explain_command
    from lapidist.device import chip as chip_named

    explain_command(kernel, chip_named(chip), one_case(size, mnk, dtype, MACHINE_SIZE), as_json, record)


@app.command()
def mutants(
    kernel: Annotated[
        str | None, typer.Option(help="names or numbers, separated by commas; all of them unless told")
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="schedules for each mutant, and for each unbroken kernel")
    ] = 4,
    dtype: Annotated[
        str, typer.Option("--dtype", help="types: a kernel is broken in the first that it multiplies")
    ] = "fp32,fp16",
    jobs: Annotated[int, typer.Option(min=1, help="processes")] = 1,
    part: Annotated[
        str, typer.Option(help="I/N: the I-th of N parts of the work, for several computers")
    ] = "1/1",
    limit: Annotated[
        float | None, typer.Option(min=1, help="seconds; what was found by then is kept, as at Ctrl-C")
    ] = None,
    as_json: Json = False,
    record: Keep = None,
) -> None:
    """Break kernels one barrier at a time: does the machine find it?

    Or one wait, fence or bounds check at a time.
    """
    from lapidist.bench.machine_runs import mutants_command
    from lapidist.dtypes import math_named

    maths = [math_named(part) for part in dtype.split(",")]
    raise typer.Exit(
        int(bool(mutants_command(kernel, maths, seeds, jobs, part, limit, as_json, record).false_alarms))
    )


@app.command("run-ptx")
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
        int | None, typer.Option(min=1, help="blocks of code to execute at most; 2 million unless told")
    ] = None,
    memory_budget: Annotated[
        int | None, typer.Option(min=1, help="bytes to take at most; 4 GiB unless told")
    ] = None,
    sanitize: Annotated[bool, typer.Option(help="look for races, missing waits and fences; slower")] = False,
    seed: Annotated[int | None, typer.Option(help="of the fuzzed schedule; with --sanitize")] = None,
) -> None:
    """Run any kernel's PTX in the machine and print what it did."""
    from lapidist.machine import arguments, foreign
    from lapidist.machine.faults import MachineFault
    from lapidist.machine.waiting import bar_of_blocks

    if seed is not None and not sanitize:
        raise ArgumentError(
            f"--seed: is of the fuzzed schedule; got {seed} without --sanitize. Add --sanitize"
        )
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"FILE: must be a readable PTX module; {error}") from error
    values = arguments.parse_arguments(arg or [], room=memory_budget)
    arguments.require_savable(save or [], values)
    extents = arguments.parse_extent(grid, "--grid"), arguments.parse_extent(block, "--block")
    options = {"shared_bytes": shared, "sanitize": sanitize, "seed": seed, "residency": residency}
    options |= {"budget": budget} if budget else {}
    options |= {"memory_budget": memory_budget} if memory_budget else {}
    try:
        with bar_of_blocks(entry) as told:
            print(foreign.run_ptx(text, entry, *extents, values, on_progress=told, **options))  # type: ignore[arg-type]
    except MachineFault:  # what the kernel had written until then shows how far it came
        arguments.save_arrays(save or [], values)
        raise
    arguments.save_arrays(save or [], values)


@app.command()
def doctor() -> None:
    """What was found on this computer, and how to get what is missing."""
    from lapidist.backends.gpu import doctor

    raise typer.Exit(doctor.run())


def main() -> None:
    """Entry point: errors that lapidist raises on purpose become one line, and so does what the system
    refuses.
    """
    try:
        app()
    except (LapidistError, OSError) as error:
        note(f"lapidist: {visible(str(error))}")
        sys.exit(2)


if __name__ == "__main__":
    main()
