"""A number on the device that says whether a launch does anything: 0 leaves everything as it is."""

from __future__ import annotations

from dataclasses import replace

from lapidist.calls.part import Part, ProblemInputs
from lapidist.frameworks.arrays import Operand
from lapidist.problems.modes import ExtraPointers


class GuardOperand(Part):
    def __init__(self, guard: Operand) -> None:
        self.arrays = (guard,)

    def described(self, inputs: ProblemInputs) -> ProblemInputs:
        return inputs._replace(modes=replace(inputs.modes, guarded=True))

    def with_pointers(self, pointers: ExtraPointers) -> ExtraPointers:
        return pointers._replace(alpha=self.arrays[0].pointer)
