"""A Plan: kernel, config and everything derived from them for one Problem on one Device. Printing it gives the reasons."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from lapidist.arrays import Operand
from lapidist.compiler import compile_kernel
from lapidist.config import Config
from lapidist.device import Device
from lapidist.errors import ArgumentError, RefusalError
from lapidist.kernels import Kernel
from lapidist.launch import Binary, Dim3, Launch, Memory
from lapidist.planner import Candidate, choose, predict
from lapidist.problem import ELEMENT_BYTES, Offsets, Problem
from lapidist.signatures import OPERANDS, constants


@dataclass(frozen=True)
class Plan:
    """Which kernel runs, how it was compiled and started, and what else was weighed."""

    problem: Problem
    device: Device
    kernel: Kernel
    config: Config
    predicted_seconds: float
    considered: tuple[Candidate, ...] = field(repr=False)

    @property
    def grid(self) -> Dim3:
        return self.kernel.grid(self.problem, self.config, self.device)

    @property
    def block(self) -> Dim3:
        return (self.config.threads, 1, 1)

    @property
    def shared_bytes(self) -> int:
        return self.kernel.shared_bytes(self.config, self.problem.dtype)

    @property
    def workspace_bytes(self) -> int:
        """Device scratch that the plan needs: none of these kernels needs any."""
        return 0

    @property
    def binary(self) -> Binary:
        """The compiled kernel; compiled at the first look, then from memory or the disk cache."""
        return compiled(self.kernel, self.problem_macros, self.device.architecture)

    @property
    def problem_macros(self) -> tuple[tuple[str, object], ...]:
        return tuple(sorted(self.kernel.macros(self.problem, self.config).items()))

    @property
    def is_empty(self) -> bool:
        """No output elements: nothing is launched."""
        return 0 in (self.problem.m, self.problem.n, *self.problem.batch)

    def launch(
        self,
        a: Operand,
        b: Operand,
        c: Operand | None,
        d: Operand,
        alpha: float,
        beta: float,
        skipped: Offsets = (0, 0, 0, 0),
    ) -> Launch:
        """Everything a machine needs to run this once on these arrays, so many elements into each."""
        size = ELEMENT_BYTES[self.problem.dtype]
        starts = (*self.caller_order(a.pointer, b.pointer), d.pointer if c is None else c.pointer, d.pointer)
        at = {name: start + size * skip for name, start, skip in zip(OPERANDS, starts, skipped, strict=True)}
        signature, block = self.kernel.signature, self.kernel.signature.block(self.problem)
        values = {**constants(self.problem, alpha, beta), **{name: at[name] for name in block.places("pointer")}}
        maps = signature.tensor_maps(self.problem, self.config, at["A"], at["B"])
        operands = [operand for operand in (a, b, c, d) if operand is not None]
        return Launch(
            self.binary,
            self.grid,
            self.block,
            bytes(block.pack(values)),
            self.shared_bytes,
            tensor_maps=tuple((block.offsets[name], tensor_map) for name, tensor_map in maps.items()),
            memory=tuple(Memory(x.name, x.span[0], x.span[1] - x.span[0], x.owner) for x in operands),
        )

    def caller_order(self, a: Any, b: Any) -> tuple[Any, Any]:
        """The caller's A and B in the order that the problem has them: exchanged when it computes the transposed product."""
        return (b, a) if self.problem.transposed else (a, b)

    def __str__(self) -> str:
        problem, device = self.problem, self.device
        seconds = self.predicted_seconds
        share = problem.flops / seconds / 1e12 / device.limit_tflops(problem.dtype) if seconds else 0.0
        lines = [
            f"{problem} on {device.name}",
            f"  kernel    {self.kernel.name}: {self.kernel.idea}",
            f"  config    {self.config}",
            f"  launch    grid {self.grid}, {self.block[0]} threads, {self.shared_bytes} bytes of dynamic shared memory",
            f"  predicted {seconds * 1e6:.1f} us, {share:.0%} of the limit; workspace {self.workspace_bytes} bytes",
            "  weighed",
            *(f"    {candidate}" for candidate in sorted(self.considered, key=lambda c: (c.refusal is not None, c.seconds))),
        ]
        return "\n".join(lines)


@cache
def compiled(kernel: Kernel, macros: tuple[tuple[str, object], ...], architecture: str) -> Binary:
    return compile_kernel(kernel.source, kernel.entry, dict(macros), architecture)


def make_plan(problem: Problem, device: Device, kernel: Kernel | None = None, config: Config | None = None) -> Plan:
    """Choose a kernel and config. With `kernel`, only that one; with `config` too, exactly that."""
    best, considered = choose(problem, device, kernel) if config is None else exactly(problem, device, kernel, config)
    return Plan(problem, device, best.kernel, best.config, best.seconds, considered)


def exactly(problem: Problem, device: Device, kernel: Kernel | None, config: Config) -> tuple[Candidate, tuple[Candidate, ...]]:
    """The caller's own choice, which must pass the same rules."""
    if kernel is None:
        raise ArgumentError(f"config: belongs to one kernel; got {config} and no kernel. Name it with kernel=")
    refusal = kernel.refuse(problem, config, device)
    chosen = Candidate(kernel, config, predict(problem, device, kernel, config, kernel.efficiency), refusal)
    if refusal is not None:
        raise RefusalError(f"config: {kernel.name} does not take {problem} on {device.name} with it:\n  {chosen}")
    return chosen, (chosen,)
