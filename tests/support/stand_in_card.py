"""A kernel whose driver writes down what it is given, for tests of how calls are repeated."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from beside_cases import Ready
from lapidist.backends.gpu import launcher, second_pass_launches, workspaces
from lapidist.backends.gpu.launched_products import GpuBackend
from lapidist.calls.bound import Bound
from lapidist.calls.call import Call
from lapidist.calls.prepared import PlannedPart, Prepared
from lapidist.calls.repeat import start_with_arrays
from lapidist.device import chip
from lapidist.frameworks.arrays import Operand
from lapidist.planning.plans import make_plan
from lapidist.planning.second_passes import steps_of
from lapidist.problems.parts import parts_of

Given = tuple[bytes, int]  # parameters and stream
ROOMS = 0x0ABC_0000  # upper halves of their addresses, less their numbers from 1 on


class Card(launcher.GpuKernel):
    def __init__(self, launch: Any, tell: Callable[[str, Given], object] | None = None) -> None:
        """`tell`: of each launch, once it is written down; what it returns is the driver's answer."""
        self.launch, self._blocks, self._workspace = launch, None, (0, 0)
        self.given: list[Given] = []
        self.tell, self._function = tell, None
        self.repeated_start()

    def _make_start(self, blocks: Any) -> Any:
        return self._starter(SimpleNamespace(cuLaunchKernelEx=self.write_down, CUstream=int), blocks)

    def write_down(self, config: Any, *_: Any) -> tuple[Any]:
        self.given.append((bytes(config.block.view), config.hStream))
        failed = None if self.tell is None else self.tell(self.launch.binary.entry, self.given[-1])
        return (SimpleNamespace(name="refused") if failed else 0,)

    def _make_block(self) -> Any:
        block = launcher._Block(self.launch, SimpleNamespace(hStream=0))
        block.config.block = block
        return block

    def _place_maps(self, block: Any, operands: Any) -> None:
        """The driver's."""

    def _place_workspace(self, block: Any, key: Any) -> None:
        block.workspace_key = key


class Straight(Ready):
    """Of one launch, planned for an H200."""

    def __init__(self, call: Call, tell: Callable[[str, Given], object] | None = None) -> None:
        super().__init__()
        self.problem, self.is_routed = call.bound().problem(), True
        plan, ((_, skipped),) = make_plan(self.problem, chip("H200")), parts_of(self.problem)
        self.kernel = Card(plan.common_launch(plan.unassembled), tell)
        self.parts = [PlannedPart(plan, self.kernel, skipped)]

    def start(self, *given: Any) -> None:
        Prepared.start(self, *given)  # type: ignore[arg-type]

    def expected(self, call: Call) -> Given:
        """As the long way would fill in the parameters."""
        at, (plan, kernel, skipped) = call.bound(), self.parts[0]
        assert at.out is not None
        a, b = plan.caller_order(at.a.pointer, at.b.pointer)
        operands = {"A": a, "B": b, "C": (at.c or at.out).pointer, "D": at.out.pointer}
        numbers = dict(zip(("alpha", "beta"), at.alpha_beta, strict=True))
        brought = plan.call_parameters(at.extra_pointers, skipped[4:])
        return kernel.launch.patched({**operands, **numbers, **brought}).arguments, 7


class Rooms:
    """What stands for a GPU's memory and streams where second passes follow."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tell: Callable[[str, Given], object]) -> None:
        self.capture: object = None
        self.made = 0

        @cache
        def kernels_of(each: Any, ordinal: int) -> list[tuple[Any, int, int]]:
            steps = steps_of(each, "sm_90a", assembled=False)
            return [(Card(launch, tell), reads, writes) for launch, reads, writes in steps]

        monkeypatch.setattr(workspaces, "_free", {})
        monkeypatch.setattr(start_with_arrays, "kernels_of", kernels_of)
        for name, value in {
            "kernels_of": kernels_of,
            "load_driver": lambda: SimpleNamespace(CUstream=int),
            "gpu_count": lambda: 1,
            "current_device": lambda ordinal: nullcontext(),
            "stream_key": lambda driver, handle, stream: (stream, self.capture),
            "allocate": self.allocate,
        }.items():
            monkeypatch.setattr(second_pass_launches, name, value)

    def allocate(self, driver: Any, flag_bytes: int, slot_bytes: int) -> tuple[int, int]:
        self.made += 1
        first = (ROOMS + self.made) << 32
        return first, first + flag_bytes


def rooms_in(given: Given) -> set[int]:
    """Numbers of those that a kernel was given."""
    content, _ = given
    upper = [int.from_bytes(content[at + 4 : at + 8], "little") for at in range(0, len(content) - 7, 8)]
    return {word - ROOMS for word in upper if word >> 16 == ROOMS >> 16}


def launched_the_long_way(ready: Straight, bound: Bound, out: Operand) -> None:
    """Results have their arrays."""
    fused = bound.epilogue
    assert fused is not None
    fused.write_to(out)
    at = bound.a.pointer, bound.b.pointer, (bound.c or out).pointer, out.pointer
    GpuBackend(0)._with_passes(ready, bound, fused, 7, at)  # type: ignore[arg-type]
