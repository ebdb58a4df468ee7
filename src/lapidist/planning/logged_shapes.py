"""Lines of the file that LAPIDIST_SHAPES names, each with its chip: a product with its caller's choices, a
second pass of an epilogue, or what emulated products are cut into.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import NamedTuple, cast

from lapidist.config import Config
from lapidist.device import Device, like
from lapidist.dtypes import TYPES
from lapidist.epilogues.operations import OPERATIONS
from lapidist.epilogues.passes import QUANTISED, REDUCTIONS
from lapidist.epilogues.steps import CONSTANT, OPERAND, POSITION, SEED, SUM, Function
from lapidist.kernels.registry import kernel_named
from lapidist.planning.emulated_passes import EVERY_PARTS, PASSES, binary_of
from lapidist.planning.json_values import data_of, value_of
from lapidist.planning.plans import Plan, make_plan
from lapidist.planning.second_passes import Pass, steps_of
from lapidist.problems.epilogue_layout import READS
from lapidist.problems.modes import INDEX_TYPES
from lapidist.problems.problem import Problem
from lapidist.problems.ragged import NUMBERS
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
            plan.device,
            plan.callers_problem,
            plan.kernel_named.name if plan.kernel_named else None,
            plan.config if plan.config_named else None,
            plan.sharing,
        )

    def plan(self, device: Device | None = None) -> Plan:
        """The plan of compile="wait": for this device, or for the logged chip."""
        kernel = None if self.kernel is None else kernel_named(self.kernel)
        return make_plan(self.problem, device or self.chip, kernel, self.config, self.sharing)


class LoggedPass(NamedTuple):
    """A second pass, on a chip."""

    chip: Device
    second_pass: Pass

    @property
    def words(self) -> str:
        return self.second_pass.then

    def compile(self, device: Device | None = None) -> None:
        """Compile its kernels: for this device, or for the logged chip."""
        steps_of(self.second_pass, (device or self.chip).architecture)


class LoggedParts(NamedTuple):
    """The passes that cut float32 into parts of a kind, and join products of parts, on a chip."""

    chip: Device
    parts: int  # Parts.macro

    @property
    def words(self) -> str:
        return EVERY_PARTS[self.parts].dtype

    def compile(self, device: Device | None = None) -> None:
        """Compile their kernels: for this device, or for the logged chip."""
        for name in PASSES:
            binary_of(name, self.parts, (device or self.chip).architecture)


Logged = LoggedShape | LoggedPass | LoggedParts
# The field that a line of a kind has, and no other.
KINDS: dict[str, type[Logged]] = {"problem": LoggedShape, "second_pass": LoggedPass, "parts": LoggedParts}


def line_of(logged: Logged) -> str:
    chip = replace(logged.chip, limits={})  # the table of chips has them
    return json.dumps(data_of(logged._replace(chip=chip)), separators=(",", ":"))


def of_line(line: str) -> Logged:
    """What a line says. ValueError or RecursionError: this version did not write it."""
    content = json.loads(line)
    fields = content if isinstance(content, dict) else {}
    kind = next((kind for field, kind in KINDS.items() if field in fields), LoggedShape)
    logged = cast("Logged", value_of(kind, content))
    if isinstance(logged, LoggedPass):
        require_sound_pass(logged.second_pass)
    elif isinstance(logged, LoggedParts):
        require(logged.parts in EVERY_PARTS, f"{logged.parts!r} is no kind of parts")
    else:
        require_sound(logged.problem)
    return logged._replace(chip=replace(logged.chip, limits=like(logged.chip.name).limits))


# ---- what other versions, or other hands, may have written ----


def require_sound_pass(second_pass: Pass) -> None:
    require(second_pass.then in (QUANTISED, *REDUCTIONS), f"{second_pass.then!r} is no second pass")
    require(second_pass.dtype in ("float32", "float64"), f"{second_pass.dtype!r} is no type of sums")
    require(second_pass.target.dtype in READS, f"{second_pass.target.dtype!r} is no type of results")
    require(min(second_pass.shape) >= 0, f"{min(second_pass.shape)} is no extent")
    rows = second_pass.groups
    require(
        rows is None or rows.index_type in INDEX_TYPES, f"{rows and rows.index_type!r} is no type of ends"
    )


def require_sound(problem: Problem) -> None:
    """Raise ValueError over what planning and compiling rely on."""
    for name in (problem.dtype, problem.b_dtype, problem.out_dtype, problem.accumulator):
        require(name in TYPES, f"{name!r} is no type")
    least = min((problem.m, problem.n, problem.k, *problem.batch))
    require(least >= 0, f"{least} is no extent")
    ragged = problem.modes.ragged
    require(ragged is None or ragged.extent in NUMBERS, f"{ragged and ragged.extent!r} is no extent")
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
