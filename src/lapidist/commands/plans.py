"""`lapidist plan`: what would run, in which order it sums, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from lapidist.commands.tune import device_named, require_layout


def plan(
    mnk: Annotated[str, typer.Option(help="the product", metavar="M,N,K")] = "4096,4096,4096",
    dtype: Annotated[
        str, typer.Option("--dtype", help="fp32, tf32, fp64, fp16, bf16, int8, uint8, e4m3 or e5m2")
    ] = "bf16",
    layout: Annotated[
        str, typer.Option(help="how A and B lie: r(ows) or c(olumns)", metavar="rr|rc|cr|cc")
    ] = "rr",
    chip: Annotated[
        str | None, typer.Option(help="v100, a100, rtx4090, h100, h200; else the GPU here")
    ] = None,
    weighed: Annotated[bool, typer.Option("--weighed", help="and everything that was weighed")] = False,
) -> None:
    """Print the plan of a product: its kernel, the order of its sums, its reasons. Nothing is compiled."""
    from lapidist.bench.cases import parse_mnk
    from lapidist.planning.plans import make_plan
    from lapidist.problems.problem import dense_problem

    require_layout(layout)
    case = parse_mnk(mnk, dtype)
    lines = str(make_plan(dense_problem(*case.extents, case.math, layout), device_named(chip))).splitlines()
    print("\n".join(lines if weighed else lines[: lines.index("  weighed")]))
