"""`lapidist plan`: what runs, in which order it sums, and why; `lapidist kernels`: which there are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lapidist.commands.options import TYPES, Json, JsonObject, Layout, ThisChip, Type, kernels_like, one_of
from lapidist.commands.run_target import device_named, require_layout

if TYPE_CHECKING:
    from lapidist.kernels.kernel import Kernel
    from lapidist.planning.plans import Plan
    from lapidist_lab.machine_studies.explain import Explanation

PLAN_EXAMPLES = (
    "plan --mnk 300,520,200 --dtype bf16",
    "plan --mnk 64,4096,4096 --layout rc --chip a100 --weighed",
    "plan --mnk 4096,4096,4096 --kernel 20 --json",
    "plan --mnk 4096,4096,4096 --dtype fp16 --chip rtx4090 --explain",
)
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
        typer.Option("--explain", help="and what bounds it there, from the machine's counts: takes seconds"),
    ] = False,
    as_json: JsonObject = False,
) -> None:
    """Which kernel a product is given, and why.

    The plan also says in which order k is summed. Nothing is compiled and nothing runs, but for --explain.
    """
    from lapidist.kernels.registry import kernel_named
    from lapidist.planning.plans import make_plan
    from lapidist.problems.problem import dense_problem
    from lapidist_lab.bench.protocol.cases import parse_mnk

    require_layout(layout)
    case = parse_mnk(mnk, dtype)
    chosen = None if kernel is None else kernel_named(kernel)
    made = make_plan(dense_problem(*case.extents, case.math, layout), device_named(chip), chosen)
    lines = str(made).splitlines()
    weighing = next(place for place, line in enumerate(lines) if line.startswith("  weighed"))
    head, rest = lines[:weighing], lines[weighing:]
    text = "\n".join([*head, *reasons(made), *(rest if weighed else [])])
    bound = bound_of(made, case.extents, layout) if explained else None
    if as_json:
        print(json.dumps(as_data(made) | ({} if bound is None else bound_as_data(bound))))
    else:
        print(
            text
            if bound is None
            else f"{text}\nfrom the machine's counts, a model apart from the planner's:\n{bound}"
        )


def bound_of(plan: Plan, shape: tuple[int, int, int], layout: str) -> Explanation:
    """Of this config on this chip, whole tiles. On few sides the machine counts as it does on many."""
    from lapidist_lab.machine_studies.explain import explain_kernel

    math = plan.problem.math
    return explain_kernel(plan.kernel, plan.device, shape, math, config=plan.config, layouts=layout)[1]


def bound_as_data(bound: Explanation) -> dict[str, Any]:
    return {
        "explained_seconds": bound.seconds,
        "bound": [each.name for each in bound.binding],
        "limits": {each.name: each.seconds for each in bound.limits},
    }


def reasons(plan: Plan) -> list[str]:
    """Why this kernel: what the others would take, or why they refuse."""
    taken = sorted((each for each in plan.considered if not each.refusal), key=lambda each: each.seconds)
    words = [
        f"{'as tuned' if plan.tuned else 'the shortest prediction'}; {len(taken)} configs take the product"
    ]
    others = [each for each in taken if (each.kernel, each.config) != (plan.kernel, plan.config)]
    for kernel in dict.fromkeys(each.kernel for each in plan.considered if each.kernel.kind == "production"):
        best = next((each for each in others if each.kernel is kernel), None)
        if best is not None:
            words.append(f"{kernel.name} with {best.config}: {best.seconds * 1e6:.1f} us")
        elif kernel is not plan.kernel:
            # What the largest tile is refused for holds for the kernel: small's tiles end at a size.
            refused = [each for each in plan.considered if each.kernel is kernel]
            refusal = max(refused, key=lambda each: each.config.bm * each.config.bn).refusal
            words.append(f"{kernel.name} is refused: {refusal}")
    return [f"  {'because' if place == 0 else '':10s}{each}" for place, each in enumerate(words)]


def as_data(plan: Plan) -> dict[str, Any]:
    weighed = [
        {
            "kernel": each.kernel.name,
            "config": str(each.config),
            "seconds": None if each.refusal else each.seconds,
            "refusal": each.refusal,
        }
        for each in plan.considered
    ]
    return {
        "problem": str(plan.problem),
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
            print(json.dumps(row) if as_json else f"{row['number'] or '':>3} {kernel.name:<20} {kernel.idea}")


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
