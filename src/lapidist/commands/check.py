"""`lapidist check`: anyone's kernel, on many schedules, as a step of CI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lapidist.commands.options import JsonObject, LaunchBudget
from lapidist.errors import ArgumentError

if TYPE_CHECKING:
    from lapidist.launch import Launch
    from lapidist.machine.authors.kernel_text import KernelText

EXAMPLES = (
    "check saxpy.cu --block 128 --arg n=100 --arg a=2.0 --arg x=float32[100]:random --arg y=float32[100]",
    "check kernels.cuh --entry 'scale<float>' -I include -D TILE=16 --arg 0=float32[64] --arg 1=64",
    "check scale.cu --block 64 --arg n=64 --arg x=float32[64] --coverage --trace scale.json",
    "check scale.cu --block 64 --arg n=64 --arg x=float32[64] --page scale.html",
    "check saxpy.ptx --arg 0=100 --arg 1=2.0 --arg 2=x.npy --arg 3=float32[100] --ignore race --json",
)


def check(
    file: Annotated[Path, typer.Argument(help="CUDA C++ (.cu, .cuh) or a PTX module")],
    entry: Annotated[str, typer.Option(help="the kernel, a part of its name, or a template's with <>")] = "",
    grid: Annotated[str, typer.Option(help="blocks: X,Y,Z")] = "1",
    block: Annotated[str, typer.Option(help="threads: X,Y,Z")] = "32",
    cluster: Annotated[str, typer.Option(help="blocks of a cluster: X,Y,Z")] = "1",
    arg: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=VALUE, by name in the source or by position: a number, a .npy file, or e.g. int32[64]"
        ),
    ] = None,
    shared: Annotated[int, typer.Option(min=0, help="bytes of dynamic shared memory")] = 0,
    seeds: Annotated[int, typer.Option(min=0, help="random schedules to run")] = 8,
    include: Annotated[list[str] | None, typer.Option("-I", help="a folder of headers")] = None,
    define: Annotated[
        list[str] | None, typer.Option("-D", help="NAME=VALUE, or NAME, for the compiler")
    ] = None,
    arch: Annotated[str, typer.Option(help="sm_90a, or an older architecture")] = "sm_90a",
    ignore: Annotated[
        list[str] | None, typer.Option(help="a rule, FILE:LINE, or a kernel, whose findings are left out")
    ] = None,
    level: Annotated[list[str] | None, typer.Option(help="RULE=error, RULE=warning or RULE=off")] = None,
    budget: LaunchBudget = None,
    coverage: Annotated[bool, typer.Option("--coverage", help="show which lines and branches ran")] = False,
    html: Annotated[Path | None, typer.Option(help="write the coverage there, as a page")] = None,
    trace: Annotated[
        Path | None, typer.Option(help="write schedule 0 there, as a trace that Perfetto opens")
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(help="write a lesson there: each line's requests and findings, warps' turns"),
    ] = None,
    as_json: JsonObject = False,
) -> None:
    """Look for faults in any kernel, on many schedules."""
    from lapidist.machine.authors.checks import check_launch
    from lapidist.machine.authors.kernel_page import page_of
    from lapidist.machine.rules import require_levels

    levels = dict(pair.partition("=")[::2] for pair in level or [])
    require_levels(levels)
    launch, text = launch_of(
        file, entry, (grid, block, cluster), arg or [], shared, include or [], define or [], arch
    )
    if trace is not None:
        write_trace(trace, launch)
    findings = check_launch(launch, text, seeds, ignore or [], levels, budget)
    (covered,) = findings.coverage
    if html is not None:
        html.write_text(covered.html())
    if page is not None:
        page.write_text(page_of(launch, findings, covered), encoding="utf-8")
    data = findings.data() | ({"coverage": covered.data()} if coverage else {})
    words = f"{covered}\n{findings}" if coverage else str(findings)
    print(json.dumps(data) if as_json else words)
    if not findings:
        raise typer.Exit(1)


def launch_of(
    file: Path,
    entry: str,
    extents: tuple[str, str, str],
    arg: list[str],
    shared: int,
    include: list[str],
    define: list[str],
    arch: str,
) -> tuple[Launch, KernelText]:
    from lapidist.machine import kernel_arguments
    from lapidist.machine.authors import checks
    from lapidist.machine.authors.cuda_sources import of_file

    values = kernel_arguments.parse_arguments(arg)
    grid, block, cluster = (
        kernel_arguments.parse_extent(given, option)
        for given, option in zip(extents, ("--grid", "--block", "--cluster"), strict=True)
    )
    defines = {pair.partition("=")[0]: pair.partition("=")[2] or "1" for pair in define}
    text = of_file(file, entry, include, defines, arch)
    return checks.launch_of(text, grid, block, in_order(text, values), shared, cluster, []), text


def write_trace(path: Path, launch: Launch) -> None:
    """One schedule as a trace; what it wrote to the arrays is undone."""
    from lapidist.machine.authors.kernel_page import restored
    from lapidist.machine.authors.timeline import trace_of

    with restored(launch):
        path.write_text(trace_of(launch))


def in_order(text: KernelText, values: dict[str | int, Any]) -> list[Any]:
    """The arguments by position: their names are those of the source, or of the PTX."""
    from lapidist.machine.ptx.parse import parse_kernel

    declared = list(parse_kernel(text.ptx, text.entry).parameters)
    names = text.parameters if len(text.parameters) == len(declared) else tuple(declared)
    positions = {name: number for known in (declared, names) for number, name in enumerate(known)}
    by_place: dict[int, Any] = {}
    for key, value in values.items():
        number = key if isinstance(key, int) else positions.get(key, -1)
        if not 0 <= number < len(declared) or number in by_place:
            rule = f"must give each of {', '.join(names)} once, by name or by position from 0 on"
            raise ArgumentError(f"--arg: {rule}; got {key!r}. See the kernel's definition")
        by_place[number] = value
    missing = [name for number, name in enumerate(names) if number not in by_place]
    if missing:
        raise ArgumentError(
            f"--arg: must give every parameter; {', '.join(missing)} has none. Add --arg {missing[0]}=…"
        )
    return [by_place[number] for number in range(len(declared))]
