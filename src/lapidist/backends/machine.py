"""Products in the PTX machine, which plays an H200."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lapidist.backends.backend import Backend
from lapidist.device import chip as chip_named
from lapidist.frameworks.arrays import Operand
from lapidist.planning.plans import Plan, Scratch, plan_once

if TYPE_CHECKING:
    from lapidist.calls.arguments import Arguments
    from lapidist.calls.lists import ArrayGemm, Listed, Pointed
    from lapidist.calls.prepared import Prepared


class MachineBackend(Backend):
    words = "the machine"
    chip = chip_named("h200")

    def multiply(self, ready: Prepared, arguments: Arguments, out: Operand, stream: Any) -> None:
        from lapidist import machine

        for plan, _, skipped in ready.parts:
            if not plan.is_empty:
                scratch, numbers = Scratch(plan), arguments.alpha_beta
                operands = arguments.a, arguments.b, arguments.c, out
                launch = plan.launch(
                    *operands, *numbers, skipped, scratch, arguments.extra_pointers, arguments.extras
                )
                machine.run(launch, counting=False)
                scratch.require_zero_flags()

    def multiply_lists(self, ready: ArrayGemm, batch: Listed | Pointed, stream: Any) -> None:
        for start in range(0, batch.count, batch.at_once):
            problem, addresses = batch.part(start)
            plan = plan_once(problem, self.chip, *ready.choice)
            run_lists(plan, batch.listed(start), batch.extras, addresses)


def run_lists(
    plan: Plan, calls: Sequence[Arguments], extras: tuple[Operand, ...], addresses: tuple[int, ...]
) -> None:
    from lapidist import machine

    if plan.is_empty:
        return
    first, scratch = calls[0], Scratch(plan)
    assert first.out is not None
    others = [
        *extras,
        *(
            operand
            for call in calls[1:]
            for operand in (call.a, call.b, call.c, call.out)
            if operand is not None
        ),
    ]
    operands = first.a, first.b, first.c, first.out
    launch = plan.launch(*operands, *first.alpha_beta, workspace=scratch, extras=tuple(others))
    machine.run(launch.patched({"lists": addresses}), counting=False)
    scratch.require_zero_flags()
