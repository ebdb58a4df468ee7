"""Problem and Device to Plan: candidates, refusals, cost, best."""

from __future__ import annotations

from dataclasses import dataclass

from lapidist.config import Config
from lapidist.device import Device
from lapidist.errors import RefusalError
from lapidist.kernels import KERNELS, Kernel
from lapidist.problem import ELEMENT_BYTES, Problem

LAUNCH_SECONDS = 3e-6  # from the call to the first instruction, as measured on an H200


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel with a config: the time the model gives it, or the reason it was refused."""

    kernel: Kernel
    config: Config
    seconds: float
    refusal: str | None

    def __str__(self) -> str:
        verdict = f"refused: {self.refusal}" if self.refusal else f"{self.seconds * 1e6:.1f} us predicted"
        return f"{self.kernel.name} ({self.config}): {verdict}"


def choose(problem: Problem, device: Device, kernel: Kernel | None = None) -> tuple[Candidate, tuple[Candidate, ...]]:
    """The best candidate, and all that were weighed. `kernel` narrows the choice to one registry row."""
    weighed = tuple(candidates(problem, device, (kernel,) if kernel else KERNELS))
    allowed = [candidate for candidate in weighed if candidate.refusal is None]
    if not allowed:
        reasons = "\n".join(f"  {candidate}" for candidate in weighed)
        raise RefusalError(f"no kernel takes {problem} on {device.name}:\n{reasons}")
    return min(allowed, key=lambda candidate: candidate.seconds), weighed


def candidates(problem: Problem, device: Device, kernels: tuple[Kernel, ...]) -> list[Candidate]:
    rows = []
    for kernel in kernels:
        for config, efficiency in kernel.configs_for(problem.dtype):
            refusal = kernel.refuse(problem, config, device)
            rows.append(Candidate(kernel, config, predict(problem, device, kernel, config, efficiency), refusal))
    return rows


def predict(problem: Problem, device: Device, kernel: Kernel, config: Config, efficiency: float) -> float:
    """Seconds: the larger of arithmetic (whole tiles on the busiest SM) and memory traffic, after the launch."""
    blocks = kernel.tiles(problem, config)
    for extent in problem.batch:
        blocks *= extent
    on_busiest_sm = -(-blocks // device.sms)
    flops = 2.0 * config.bm * config.bn * problem.k * on_busiest_sm
    arithmetic = flops * device.sms / (device.limit_tflops(problem.dtype) * efficiency * 1e12)
    return LAUNCH_SECONDS + max(arithmetic, traffic_bytes(problem) / (device.dram_gbps * 1e9))


def traffic_bytes(problem: Problem) -> float:
    """Each operand moved once: what no kernel can undercut."""
    batch = 1
    for extent in problem.batch:
        batch *= extent
    elements = problem.m * problem.k + problem.k * problem.n + problem.m * problem.n * (2 if problem.c else 1)
    return float(batch * elements * ELEMENT_BYTES[problem.dtype])
