"""Products in the PTX machine, which simulates an H200."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import numpy as np

from lapidist.backends.backend import (
    NO_WORDS,
    Backend,
    BoundLists,
    BoundProduct,
    EpilogueArrays,
    PreparedLists,
    PreparedProduct,
)
from lapidist.device import chip as chip_named
from lapidist.epilogues.passes import SLOTS
from lapidist.errors import LaunchError
from lapidist.frameworks.arrays import Operand
from lapidist.launch import Launch, Memory, Scalars
from lapidist.planning.in_kernel_reductions import InKernelWork, in_kernel_work
from lapidist.planning.plans import Plan, plan_once
from lapidist.planning.second_passes import RESULT, VALUES, Pass, steps_of
from lapidist.planning.second_passes import room_of as room_between
from lapidist.planning.workspace import Scratch, memory_of
from lapidist.problems.problem import Problem

_SEED: ContextVar[int | None] = ContextVar("seed", default=None)
_WATCH: ContextVar[Any] = ContextVar("watch", default=None)
_CHIP_SUMS: ContextVar[bool] = ContextVar("chip_sums", default=False)


@contextmanager
def sanitized(seed: int) -> Iterator[None]:
    """A context whose products in the machine are sanitized, on schedules drawn by `seed`: races and missing
    waits are faults.
    """
    before = _SEED.set(seed)
    try:
        yield
    finally:
        _SEED.reset(before)


@contextmanager
def watched(observer: Any) -> Iterator[None]:
    """A context whose products in the machine are watched by an observer."""
    before = _WATCH.set(observer)
    try:
        yield
    finally:
        _WATCH.reset(before)


@contextmanager
def chip_sums() -> Iterator[None]:
    """A context whose products in the machine have an H200's bits, of tensor cores too."""
    before = _CHIP_SUMS.set(True)
    try:
        yield
    finally:
        _CHIP_SUMS.reset(before)


def run(launch: Launch) -> None:
    from lapidist import machine

    seed = _SEED.get()
    how: dict[str, Any] = {} if seed is None else {"sanitize": True, "seed": seed}
    machine.run(launch, counting=False, chip_sums=_CHIP_SUMS.get(), watch=_WATCH.get(), **how)


class MachineBackend(Backend):
    words = "the machine"
    chip = chip_named("h200")

    def multiply(self, ready: PreparedProduct, bound: BoundProduct, out: Operand, stream: Any) -> None:
        before = in_kernel_work(part.plan for part in ready.parts)
        values = PassValues(bound.epilogue, before) if bound.epilogue else None
        aside = values.memory if values else ()
        for part in ready.parts:
            plan, skipped = part.plan, part.skipped
            if not plan.is_empty:
                scratch, numbers = Scratch(plan), bound.alpha_beta
                operands = bound.a, bound.b, bound.c, out
                launch = plan.launch(
                    *operands, *numbers, skipped, scratch, bound.extra_pointers, bound.extras
                )
                run(replace(launch, memory=(*launch.memory, *aside, *memory_of_ranks(plan.problem))))
                scratch.require_zero_flags()
        if bound.epilogue and values:
            for second_pass in bound.epilogue.passes(before):
                run_pass(*second_pass, values, self.chip.architecture)
            values.require_zero_slots()

    def launch_alone(
        self,
        launch: Launch,
        at: Mapping[str, Operand],
        scalars: Scalars,
        framework: str,
        stream: Any,
        words: Mapping[str, Any] = NO_WORDS,
    ) -> None:
        values = {**dict(zip(("alpha", "beta"), scalars, strict=True)), **words}
        memory = tuple(memory_of(operand, False) for operand in at.values())
        addresses = {name: operand.pointer for name, operand in at.items()}
        run(launch.patched(values).placed(addresses, memory=memory))

    def multiply_lists(self, ready: PreparedLists, batch: BoundLists, stream: Any) -> None:
        plans = [plan_once(launch.problem, self.chip, *ready.choice) for launch in batch.launches]
        for plan, launch in zip(plans, batch.launches, strict=True):
            run_lists(plan, batch.calls_of(launch), batch.extras, launch.addresses)


def memory_of_ranks(problem: Problem) -> tuple[Memory, ...]:
    """What kernels read and write of rows that arrive, and that others own."""
    arrivals, owners = problem.arrivals, problem.owners
    if owners is not None:
        d = problem.d.transposed() if problem.transposed else problem.d
        nbytes = ((owners.rows - 1) * d.row_stride + d.cols) * problem.element_bytes[3]
        return tuple(
            Memory(f"owner {place}", address, nbytes, None) for place, address in enumerate(owners.addresses)
        )
    if arrivals is None:
        return ()
    rows = problem.n if problem.transposed else problem.m
    count = (-(-rows // arrivals.rows) - 1) * arrivals.step + 1
    flags = Memory("arrivals", arrivals.flags, 4 * count, None)
    return flags, Memory("report", arrivals.report, 8, None)


class PassValues:
    """Arrays that kernels leave for second passes. Values are NaN until they are written; slots must be zero
    before and after.
    """

    def __init__(self, epilogue: EpilogueArrays, before: InKernelWork) -> None:
        self.values = [np.full(shape, np.nan, epilogue.dtype) for shape in epilogue.value_shapes(before)]
        self.slots = [np.zeros(SLOTS, array.dtype) for array in epilogue.slots]
        epilogue.place(*([array.ctypes.data for array in arrays] for arrays in (self.values, self.slots)))

    @property
    def memory(self) -> tuple[Memory, ...]:
        return tuple(
            Memory(name, array.ctypes.data, array.nbytes, array)
            for name, arrays in (("values", self.values), ("slots", self.slots))
            for array in arrays
        )

    def require_zero_slots(self) -> None:
        for slot in self.slots:
            if np.any(slot):
                raise LaunchError("slots: must be zero behind a second pass; some are not")


def run_pass(
    second_pass: Pass, read: Operand, results: Sequence[Operand], values: PassValues, architecture: str
) -> None:
    room = np.full(room_between(second_pass) // 8 + 1, np.nan)
    addresses = {VALUES: read.pointer, RESULT: results[0].pointer}
    memory = [*(memory_of(operand, False) for operand in results), *values.memory]
    between = Memory("sums of blocks", room.ctypes.data, room.nbytes, room)
    for launch, reads, writes in steps_of(second_pass, architecture, assembled=False):
        first, last = (addresses.get(place, room.ctypes.data + place) for place in (reads, writes))
        more = dict(zip("BC", (result.pointer for result in results[1:]), strict=False))
        at = {"A": first, "D": last, **more}
        run(launch.placed(at, memory=(*memory, between)))


def run_lists(
    plan: Plan, calls: Sequence[BoundProduct], extras: tuple[Operand, ...], addresses: tuple[int, ...]
) -> None:
    if plan.is_empty:
        return
    first, scratch = calls[0], Scratch(plan)
    assert first.out is not None
    further = [
        *extras,
        *(
            operand
            for call in calls[1:]
            for operand in (call.a, call.b, call.c, call.out)
            if operand is not None
        ),
    ]
    operands = first.a, first.b, first.c, first.out
    launch = plan.launch(*operands, *first.alpha_beta, workspace=scratch, extras=tuple(further))
    run(launch.patched({"lists": addresses}))
    scratch.require_zero_flags()
