"""What print() says of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lapidist.planning.cost_table import LESSON
from lapidist.planning.fitted_times import origin
from lapidist.problems.ragged import DEPTH
from lapidist.visible import visible

if TYPE_CHECKING:
    from lapidist.planning.plans import Plan


def plan_text(plan: Plan) -> str:
    """The plan in words: what runs, why, and the candidates that lost."""
    problem, device = plan.problem, plan.device
    seconds = plan.predicted_seconds
    share = problem.flops / seconds / 1e12 / device.limit_tflops(problem.math) if seconds else 0.0
    shape = f"{plan.config.cluster_m}x{plan.config.cluster_n}"
    clusters = f"\n  to it a cluster of {shape} is one block" if plan.config.cluster > 1 else ""
    lines = [
        f"{problem} on {device.name}",
        f"  kernel    {plan.kernel.name}: {plan.kernel.idea}",
        f"  config    {plan.config}",
        *([f"  tuned     {plan.tuned}"] if plan.tuned else []),
        f"  sums      {plan.sum_order}",
        (
            f"  launch    grid {plan.grid}, {plan.block[0]} threads, {plan.shared_bytes} bytes of dynamic"
            " shared memory"
        ),
        *(
            []
            if plan.schedule is None
            else [f"  schedule  {plan.schedule}{clusters}".replace("\n", "\n          ")]
        ),
        *shared_by_device(plan),
        *([f"  unshared  {plan.unshared}"] if plan.unshared else []),
        (
            f"  predicted {seconds * 1e6:.1f} us, {share:.0%} of the limit; workspace"
            f" {plan.workspace_bytes} bytes"
        ),
        f"  weighed   times are {origin(device)}; those of rungs and detours count {LESSON} times",
        *(
            f"    {candidate}"
            for candidate in sorted(plan.considered, key=lambda c: (c.refusal is not None, c.seconds))
        ),
    ]
    return visible("\n".join(lines))


def shared_by_device(plan: Plan) -> list[str]:
    """Which tiles of groups the device cuts, once it reads how long groups are."""
    least = dict(plan.problem_macros).get("LEAST_STEPS")
    if least is None:
        return []
    tiles = "all tiles" if plan.problem.modes.cuts(DEPTH) else "tiles that are left over full waves"
    return [
        f"  schedule  blocks share {tiles}, as groups end; it pays from {least} steps of k for each block on"
    ]
