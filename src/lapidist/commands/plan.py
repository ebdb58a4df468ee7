"""`lapidist plan`: what runs, in which order it sums, and why; `lapidist kernels`: which there are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lapidist.commands.fold import folded
from lapidist.commands.lab import lab_module
from lapidist.commands.options import (
    TYPES,
    Json,
    JsonObject,
    Layout,
    ThisChip,
    Type,
    device_named,
    kernels_like,
    one_of,
    require_layout,
)
from lapidist.commands.products import parse_mnk

if TYPE_CHECKING:
    from lapidist.kernels.kernel import Kernel
    from lapidist.planning.plans import Plan
    from lapidist.problems.problem import Problem

PLAN_EXAMPLES = (
    "plan --mnk 300,520,200 --dtype bf16",
    "plan --mnk 64,4096,4096 --layout rc --chip a100 --weighed",
    "plan --mnk 4096,4096,4096 --kernel 20 --json",
    "plan --mnk 4096,4096,4096 --kernel wgmma --header",
    "plan --mnk 4096,4096,4096 --dtype fp16 --chip rtx4090 --explain",
)
UNDER_THE_WORDS, UNDER_THE_IDEA = 12, 25  # columns at which what does not fit the line goes on
KERNELS_EXAMPLES = ("kernels", "kernels --dtype fp16", "kernels --json")


def plan(
    mnk: Annotated[str, typer.Option(help="the product", metavar="M,N,K")] = "4096,4096,4096",
    dtype: Type = "bf16",
    layout: Layout = "rr",
    chip: ThisChip = None,
    kernel: Annotated[
        str | None,
        typer.Option(
            "--kernel",
            help="this one, a name or a rung's number",
            metavar="NAME",
            autocompletion=kernels_like,
        ),
    ] = None,
    weighed: Annotated[bool, typer.Option("--weighed", help="and everything that was weighed")] = False,
    explained: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="and what bounds it there, from the machine's counts: takes seconds; needs the lab",
        ),
    ] = False,
    header: Annotated[
        bool,
        typer.Option("--header", help="only config.cuh of its kernel: every constant of the device code"),
    ] = False,
    as_json: JsonObject = False,
) -> None:
    """Which kernel a product is given, and why.

    The plan also says in which order k is summed. Nothing is compiled and nothing runs, but for --explain.
    """
    from lapidist.kernels.registry import kernel_named
    from lapidist.knobs.header import config_header
    from lapidist.planning.plans import make_plan
    from lapidist.problems.problem import dense_problem

    require_layout(layout)
    product = parse_mnk(mnk, dtype)
    row = None if kernel is None else kernel_named(kernel)
    problem = dense_problem(*product.extents, product.math, layout)
    chosen = make_plan(problem, device_named(chip), row)
    if header:
        print(config_header(chosen.kernel.source, dict(chosen.problem_macros)), end="")
        return
    lines = [*heading(problem, chosen), *str(chosen).splitlines()[1:]]
    first = next(number for number, line in enumerate(lines) if line.startswith("  weighed"))
    shown = [*lines[:first], *reasons(chosen), *(lines[first:] if weighed else [])]
    text = "\n".join(folded(line, UNDER_THE_WORDS) for line in shown)
    bound = bound_of(chosen, product.extents, layout) if explained else None
    if as_json:
        print(json.dumps(as_data(problem, chosen) | ({} if bound is None else bound_as_data(bound))))
    else:
        print(
            text
            if bound is None
            else f"{text}\nfrom the machine's counts alone; the time above has measured losses:\n{bound}"
        )


def heading(problem: Problem, plan: Plan) -> list[str]:
    """The product as it was named, and as it is computed where that is another."""
    computed = plan.problem
    line = f"{problem} on {plan.device.name}"
    if computed.transposed == problem.transposed:
        return [line]
    return [line, f"  computed  as D' = B' A', {computed.m} x {computed.n} x {computed.k}"]


def bound_of(plan: Plan, shape: tuple[int, int, int], layout: str) -> Any:
    """The lab's Explanation of this config on this chip, whole tiles. On few sides the machine counts as it
    does on many.
    """
    explain = lab_module("machine_studies.explain", "plan --explain (what bounds the choice)")
    product = plan.kernel, plan.device, shape, plan.problem.math
    return explain.explain_kernel(*product, config=plan.config, layouts=layout)[1]


def bound_as_data(bound: Any) -> dict[str, Any]:
    return {
        "explained_seconds": bound.seconds,
        "bound": [limit.name for limit in bound.binding],
        "limits": {limit.name: limit.seconds for limit in bound.limits},
    }


def reasons(plan: Plan) -> list[str]:
    """Why this kernel: what the others would take, or why they refuse."""
    from lapidist.planning.fitted_times import origin

    candidates = sorted(
        (choice for choice in plan.considered if not choice.refusal), key=lambda choice: choice.seconds
    )
    reason = "as tuned" if plan.tuned else "the shortest prediction"
    words = [f"{reason}; {len(candidates)} configs take the product", f"times are {origin(plan.device)}"]
    chosen = plan.kernel, plan.config
    slower = [choice for choice in candidates if (choice.kernel, choice.config) != chosen]
    for kernel in dict.fromkeys(
        choice.kernel for choice in plan.considered if choice.kernel.kind == "production"
    ):
        best = next((choice for choice in slower if choice.kernel is kernel), None)
        if best is not None:
            words.append(f"{kernel.name} with {best.config}: {best.seconds * 1e6:.1f} us")
        elif kernel is not plan.kernel:
            # What the largest tile is refused for holds for the kernel: small's tiles end at a size.
            refused = [choice for choice in plan.considered if choice.kernel is kernel]
            refusal = max(refused, key=lambda choice: choice.config.bm * choice.config.bn).refusal
            words.append(f"{kernel.name} is refused: {refusal}")
    return [f"  {'because' if number == 0 else '':10s}{line}" for number, line in enumerate(words)]


def as_data(problem: Problem, plan: Plan) -> dict[str, Any]:
    weighed = [
        {
            "kernel": choice.kernel.name,
            "config": str(choice.config),
            "seconds": None if choice.refusal else choice.seconds,
            "refusal": choice.refusal,
        }
        for choice in plan.considered
    ]
    return {
        "problem": str(problem),
        "chip": plan.device.name,
        "kernel": plan.kernel.name,
        "config": str(plan.config),
        "sums": str(plan.sum_order),
        "grid": list(plan.grid),
        "threads": plan.block[0],
        "dynamic_shared_bytes": plan.shared_bytes,
        "workspace_bytes": plan.workspace_bytes,
        "schedule": None if plan.schedule is None else str(plan.schedule),
        "predicted_seconds": plan.predicted_seconds,
        "tuned": plan.tuned or None,
        "weighed": weighed,
    }


def kernels(
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype", help="those that take this type", metavar="TYPE", autocompletion=one_of(TYPES)
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the kernels: the ladder's rungs, detours, production."""
    from lapidist.dtypes import math_named
    from lapidist.kernels.registry import KERNELS

    math = None if dtype is None else math_named(dtype)
    for kernel in KERNELS:
        if math is None or math in kernel.types.maths:
            row = row_of(kernel)
            line = f"{row['number'] or '':>3} {kernel.name:<20} {kernel.idea}"
            print(json.dumps(row) if as_json else folded(line, UNDER_THE_IDEA))


def row_of(kernel: Kernel) -> dict[str, Any]:
    from lapidist.dtypes import short_name
    from lapidist.kernels.registry import RUNGS

    return {
        "number": RUNGS.index(kernel) + 1 if kernel in RUNGS else None,
        "kernel": kernel.name,
        "kind": kernel.kind,
        "types": [short_name(math) for math in kernel.types.maths],
        "idea": kernel.idea,
    }
