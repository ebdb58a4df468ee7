"""Times predicted from the machine's counts at a small size, as Records."""

from __future__ import annotations

from lapidist.device import Device
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.registry import RUNGS
from lapidist.machine.progress import bar_of_blocks
from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.record import Conditions, Record
from lapidist_lab.machine_studies.explain import COUNTED_AT, Explanation, explain_kernel

MODE = "predicted"
OLDEST_COMPILED = (7, 5)


def predict(kernel: Kernel, device: Device, case: Case) -> tuple[Record, Explanation]:
    """The prediction of a kernel from counts at a small size."""
    with bar_of_blocks(f"{kernel.name} {case.shape}") as advance:
        _, answer = explain_kernel(kernel, device, (case.m, case.n, case.k), case.math, advance)
    speed = case.flops / answer.seconds / 1e12
    record = Record(
        kernel=kernel.name,
        kind=kernel.kind,
        device=device.name,
        dtype=case.math,
        layout="rrr",
        m=case.m,
        n=case.n,
        k=case.k,
        seconds=answer.seconds,
        tflops=speed,
        ratio=None,
        limit_share=speed / device.limit_tflops(case.math),
        worst=None,
        ok=True,
        mode=MODE,
        unit=kernel.unit,
        unit_share=speed / device.unit_limit(kernel.unit, case.math),
        note=answer.bound.name,
    )
    return record, answer


def conditions_of(device: Device) -> Conditions:
    return gather(
        device, device.name, MODE, f"the machine's counts at {COUNTED_AT}^3 and twice as deep, scaled"
    )


def climbable(device: Device, math: str) -> list[Kernel]:
    """The rungs that a chip has the instructions for, and that multiply in a math."""
    return [rung for rung in RUNGS if math in rung.types.maths and has_instructions(device, rung)]


def has_instructions(device: Device, kernel: Kernel) -> bool:
    """Whether the chip can run the kernel. Compilers dropped chips before Turing, which run what has no such
    need."""
    return kernel.capability <= OLDEST_COMPILED or device.capability >= kernel.capability
