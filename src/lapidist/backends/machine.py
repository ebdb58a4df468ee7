"""Products in the PTX machine, which plays an H200."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lapidist.backends.backend import Backend
from lapidist.device import chip as chip_named
from lapidist.frameworks.arrays import Operand
from lapidist.launch import Memory
from lapidist.planning.plans import Plan, Scratch, memory_of, plan_once
from lapidist.planning.second_passes import RESULT, VALUES, Pass, steps_of
from lapidist.planning.second_passes import room_of as room_between

if TYPE_CHECKING:
    from lapidist.calls.arguments import Arguments
    from lapidist.calls.fused import FusedOperands
    from lapidist.calls.lists import ArrayGemm, Listed, Pointed
    from lapidist.calls.prepared import Prepared


class MachineBackend(Backend):
    words = "the machine"
    chip = chip_named("h200")

    def multiply(self, ready: Prepared, arguments: Arguments, out: Operand, stream: Any) -> None:
        from lapidist import machine

        if arguments.fused:
            place_values(arguments.fused)
        for plan, _, skipped in ready.parts:
            if not plan.is_empty:
                scratch, numbers = Scratch(plan), arguments.alpha_beta
                operands = arguments.a, arguments.b, arguments.c, out
                launch = plan.launch(
                    *operands, *numbers, skipped, scratch, arguments.extra_pointers, arguments.extras
                )
                machine.run(launch, counting=False)
                scratch.require_zero_flags()
        for each in arguments.fused.passes() if arguments.fused else ():
            run_pass(*each, self.chip.architecture)

    def multiply_lists(self, ready: ArrayGemm, batch: Listed | Pointed, stream: Any) -> None:
        for start in range(0, batch.count, batch.at_once):
            problem, addresses = batch.part(start)
            plan = plan_once(problem, self.chip, *ready.choice)
            run_lists(plan, batch.listed(start), batch.extras, addresses)


def place_values(fused: FusedOperands) -> None:
    """Poison, until a kernel has written what second passes read."""
    arrays = [np.full(each.shape, np.nan, each.dtype) for each in fused.sources]
    fused.place(arrays, [array.ctypes.data for array in arrays])


def run_pass(each: Pass, values: Operand, results: Sequence[Operand], architecture: str) -> None:
    from lapidist import machine

    room = np.full(room_between(each) // 8 + 1, np.nan)
    known = {VALUES: values.pointer, RESULT: results[0].pointer}
    memory = [memory_of(operand, False) for operand in (values, *results)]
    between = Memory("sums of blocks", room.ctypes.data, room.nbytes, room)
    for launch, reads, writes in steps_of(each, architecture, assembled=False):
        read, written = (known.get(place, room.ctypes.data + place) for place in (reads, writes))
        at = {"A": read, "B": results[-1].pointer, "D": written}
        machine.run(launch.placed(at, memory=(*memory, between)), counting=False)


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
