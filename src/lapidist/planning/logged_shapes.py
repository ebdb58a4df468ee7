"""What a line of the file that LAPIDIST_SHAPES names says: a product, what its caller chose, and the chip."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import NamedTuple

from lapidist.config import Config
from lapidist.device import Device, like
from lapidist.dtypes import TYPES
from lapidist.epilogues.operations import OPERATIONS
from lapidist.epilogues.steps import CONSTANT, OPERAND, POSITION, SEED, SUM, Function
from lapidist.kernels.registry import kernel_named
from lapidist.planning.json_values import data_of, value_of
from lapidist.planning.plans import Plan, make_plan
from lapidist.problems.epilogue_layout import READS
from lapidist.problems.problem import Problem
from lapidist.schedule.sharing_choice import PLANNED, Sharing

STEPS = OPERATIONS.keys() | {SUM, OPERAND, CONSTANT, SEED, POSITION}
# What may become device code: names, numbers as float.hex writes them, "[0]".
WORD = re.compile(r"[\w.+\-\[\]]*")


class LoggedShape(NamedTuple):
    """A product with the caller's choices, on a chip."""

    chip: Device
    problem: Problem
    kernel: str | None = None
    config: Config | None = None
    sharing: Sharing = PLANNED

    @staticmethod
    def of(plan: Plan) -> LoggedShape:
        """What the plan was made for, or the one that it stands in for."""
        return LoggedShape(
            replace(plan.device, limits={}),  # the table of chips has them
            plan.callers_problem,
            plan.kernel_named.name if plan.kernel_named else None,
            plan.config if plan.config_named else None,
            plan.sharing,
        )

    def plan(self, device: Device | None = None) -> Plan:
        """The plan of compile="wait": for this device, or for the logged chip."""
        kernel = None if self.kernel is None else kernel_named(self.kernel)
        return make_plan(self.problem, device or self.chip, kernel, self.config, self.sharing)

    def line(self) -> str:
        return json.dumps(data_of(self), separators=(",", ":"))

    @staticmethod
    def of_line(line: str) -> LoggedShape:
        """The shape of a line. ValueError or RecursionError: this version did not write it."""
        shape: LoggedShape = value_of(LoggedShape, json.loads(line))
        require_sound(shape.problem)
        return shape._replace(chip=replace(shape.chip, limits=like(shape.chip.name).limits))


# ---- what other versions, or other hands, may have written ----


def require_sound(problem: Problem) -> None:
    """Raise ValueError over what planning and compiling rely on."""
    for name in (problem.dtype, problem.b_dtype, problem.out_dtype, problem.accumulator):
        require(name in TYPES, f"{name!r} is no type")
    least = min((problem.m, problem.n, problem.k, *problem.batch))
    require(least >= 0, f"{least} is no extent")
    if problem.fused is not None:
        require_sound_steps(problem.fused.function)
        for operand in problem.fused.operands:
            require(operand.dtype in READS, f"{operand.dtype!r} is no type of operands")


def require_sound_steps(function: Function) -> None:
    for place, step in enumerate(function.steps):
        require(step.operation in STEPS, f"{step.operation!r} is no operation")
        require(all(0 <= arg < place for arg in step.args), f"step {place} takes a later one")
        require(WORD.fullmatch(step.value) is not None, f"{step.value[:40]!r} is no value of a step")
    for result in function.results:
        last = max(result.step, result.other or 0)
        require(0 <= last < len(function.steps), f"there is no step {last}")


def require(holds: bool, words: str) -> None:
    if not holds:
        raise ValueError(words)
