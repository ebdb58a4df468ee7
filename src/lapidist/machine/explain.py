"""Counts and the facts of a chip to a plain answer: what bounds a kernel, how far from it, what comes next.

Each resource of an SM is given the cycles that the counted work costs it. The largest is the bound; the others overlap
with it, but not fully: a share of their cycles is added. Latency is not modelled, so kernels with few warps and no
prefetch come out too fast.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from lapidist.device import Device
from lapidist.launch import Launch
from lapidist.machine.counters import Counts
from lapidist.machine.run import run

SCHEDULERS = 4  # warp instructions that an SM issues a cycle
UNHIDDEN = 0.15  # share of the other resources' cycles that does not overlap with the bound; fits the published V100 ladder
LAUNCH_SECONDS = 2e-6
# Bytes a cycle from L1 to the registers of an SM, for the part of a line that is used.
L1_BYTES = 64
# PTX that the assembler folds into other instructions.
FREE = ("move", "convert", "load param", "register budget")
# Published microbenchmarks, rounded: L2 read bandwidth in GB/s, and dense tensor TFLOP/s in half precision.
L2_GBPS = {(7, 0): 2200.0, (8, 0): 4200.0, (8, 9): 5000.0, (9, 0): 5600.0}
TENSOR_TFLOPS = {(7, 0): 125.0, (8, 0): 312.0, (8, 9): 165.0, (9, 0): 989.0}


@dataclass(frozen=True, slots=True)
class Limit:
    """One resource and the time it alone would take."""

    name: str
    seconds: float
    why: str


@dataclass(frozen=True)
class Explanation:
    """`seconds` is the prediction; `limits` come largest first."""

    chip: str
    seconds: float
    flops: float
    peak_flops: float
    limits: tuple[Limit, ...]
    advice: str

    @property
    def bound(self) -> Limit:
        return self.limits[0]

    @property
    def share_of_peak(self) -> float:
        return self.flops / self.seconds / self.peak_flops

    def __str__(self) -> str:
        lines = [
            f"on {self.chip}: {self.seconds * 1e3:.3f} ms predicted, {self.flops / self.seconds / 1e12:.2f} TFLOP/s, "
            f"{self.share_of_peak:.1%} of the peak",
            f"  bound by {self.bound.name}: {self.bound.why}",
        ]
        lines += [f"  {limit.name:18s} {limit.seconds * 1e3:9.3f} ms  {limit.why}" for limit in self.limits]
        return "\n".join([*lines, f"  next: {self.advice}"])


ADVICE = {
    "global requests": "let neighbouring lanes read neighbouring addresses, or stage tiles in shared memory",
    "shared memory": "conflicts: pad or permute the tile",
    "shared operands": "more results a thread, so that each operand read serves more multiplications; wider loads",
    "issue slots": "fewer instructions around the multiplications: hoisted indices, unrolling, copies by the engine",
    "multiplications": "nothing to remove: the units that do the work are the bound",
    "tensor cores": "nothing to remove: the units that do the work are the bound",
    "L2": "larger tiles: each byte is fetched by fewer blocks",
    "DRAM": "every byte is read once already; only smaller types help",
}


def explain(
    counts: Counts, device: Device, *, blocks: int = 0, compulsory_bytes: int = 0, dtype: str = "float32", scale: float = 1.0
) -> Explanation:
    """What bounds a run with these counts on a chip.

    `scale` multiplies the work: counts taken at a small size predict a larger one (8 for twice the extents). `blocks`
    (of the scaled run) accounts for SMs left idle at the end; `compulsory_bytes` are the arrays' own bytes.
    """
    limits = sorted(resources(counts, device, dtype, scale, compulsory_bytes), key=lambda limit: -limit.seconds)
    idle = 1.0 if not blocks else -(-blocks // device.sms) * device.sms / blocks
    total = (limits[0].seconds + UNHIDDEN * sum(limit.seconds for limit in limits[1:])) * idle + LAUNCH_SECONDS
    flops = (counts.flops + counts.tensor_flops) * scale
    peak = tensor_peak(device) if counts.tensor_flops > counts.flops else device.peak_tflops(dtype) * 1e12
    name = limits[0].name
    if name == "shared memory" and conflict_free(counts):
        name = "shared operands"
    return Explanation(device.name, total, flops, peak, tuple(limits), ADVICE[name])


def conflict_free(counts: Counts) -> bool:
    """Loads take no more turns than their width asks for."""
    load = counts.shared_load
    ideal = max(load.nbytes / 128, load.requests)
    return load.turns <= 1.1 * ideal


def tensor_peak(device: Device) -> float:
    return TENSOR_TFLOPS.get(device.capability, 4 * device.peak_tflops("float32")) * 1e12


def resources(counts: Counts, device: Device, dtype: str, scale: float, compulsory_bytes: int) -> list[Limit]:
    cycle = 1 / (device.sms * device.clock_mhz * 1e6)
    issued = sum(count for name, count in counts.instructions.items() if name not in FREE)
    lanes = device.fp64_lanes if dtype == "float64" else device.fp32_lanes
    multiplications = sum(count for name, count in counts.instructions.items() if name.startswith(("fma", "float")))
    loads, stores = counts.global_load, counts.global_store
    # A request takes a cycle for each line that it touches, or as long as its sectors need to arrive.
    requests = max(loads.lines + stores.lines, 32 * (loads.turns + stores.turns) / L1_BYTES)
    turns = counts.shared_load.turns + counts.shared_store.turns
    per_load = f"{counts.shared_load.per_request:.1f} turns a load" if counts.shared_load.requests else "not used"
    sectors = f"{loads.per_request:.1f} sectors a load" if loads.requests else "no loads"
    found = [
        Limit("issue slots", issued / SCHEDULERS * cycle * scale, f"{issued:,} warp instructions"),
        Limit("multiplications", multiplications * 32 / lanes * cycle * scale, f"{lanes} lanes an SM"),
        Limit("global requests", requests * cycle * scale, sectors),
        Limit("shared memory", turns * cycle * scale, per_load),
    ]
    if counts.tensor_flops:
        found.append(Limit("tensor cores", counts.tensor_flops * scale / tensor_peak(device), "dense half precision peak"))
    if counts.copied_bytes or compulsory_bytes:
        copied = counts.copied_bytes * scale
        rate = L2_GBPS.get(device.capability, 2 * device.dram_gbps) * 1e9
        found.append(Limit("L2", copied / rate, f"{copied:,.0f} bytes moved by the copy engine"))
    if compulsory_bytes:
        found.append(Limit("DRAM", compulsory_bytes / (device.dram_gbps * 1e9), f"{compulsory_bytes:,} bytes, each once"))
    return found


def explain_launch(launch: Launch, device: Device, *, dtype: str = "float32", scale: float = 1.0) -> tuple[Counts, Explanation]:
    """Run a launch with exact counts and explain it. The arrays hold its result afterwards."""
    counts = run(launch, exact_counts=True, merge_loads=True).counts
    assert counts is not None
    own = sum(memory.nbytes for memory in launch.memory)
    x, y, z = launch.grid
    larger = scale ** (2 / 3)
    return counts, explain(
        counts, device, blocks=max(1, round(x * y * z * larger)), compulsory_bytes=round(own * larger), dtype=dtype, scale=scale
    )


def registers_of(launch: Launch) -> int:
    """Registers a thread, as the assembler reported them; 0 if it did not."""
    found = re.search(r"Used (\d+) registers", launch.binary.log)
    return int(found.group(1)) if found else 0


def difference(before: Counts, after: Counts) -> list[str]:
    """What a step of the ladder changed, in sentences; only what changed by more than a tenth."""
    rows = [
        ("warp instructions", before.warp_instructions, after.warp_instructions, "{:,.0f}"),
        ("sectors a global load", before.global_load.per_request, after.global_load.per_request, "{:.1f}"),
        ("global loads", before.global_load.requests, after.global_load.requests, "{:,.0f}"),
        ("shared loads", before.shared_load.requests, after.shared_load.requests, "{:,.0f}"),
        ("turns a shared load", before.shared_load.per_request, after.shared_load.per_request, "{:.1f}"),
        ("bytes a flop between L2 and cores", before.bytes_per_flop, after.bytes_per_flop, "{:.3f}"),
        ("barriers", before.barriers, after.barriers, "{:,.0f}"),
    ]
    lines = []
    for name, old, new, form in rows:
        if abs(new - old) > 0.1 * max(abs(old), abs(new)):
            lines.append(f"{name}: {form.format(old)} -> {form.format(new)}")
    return lines


def explain_kernel(
    name: str, device: Device, size: int = 256, *, dtype: str = "float32", counted_at: int = 256
) -> tuple[Counts, Explanation]:
    """Count a registered kernel on a square problem and explain it at `size`; above `counted_at` the counts are scaled."""
    extent = min(size, counted_at)
    return explain_launch(square_launch(name, extent, dtype), device, dtype=dtype, scale=(size / extent) ** 3)


def square_launch(name: str, size: int, dtype: str) -> Launch:
    """A registered kernel on random square matrices, in the layout that it takes."""
    from lapidist.arrays import operand_of
    from lapidist.device import chip
    from lapidist.errors import RefusalError
    from lapidist.kernels import kernel_named
    from lapidist.plans import make_plan
    from lapidist.problem import Problem

    random = np.random.default_rng(0)
    a, b = (random.standard_normal((size, size)).astype(dtype) for _ in range(2))
    out = operand_of(np.zeros((size, size), dtype), "out")
    refused: RefusalError | None = None
    for second in (b, np.asfortranarray(b)):
        operands = operand_of(a, "a"), operand_of(second, "b")
        try:
            plan = make_plan(Problem.of(*operands, None, out), chip("h200"), kernel_named(name))
        except RefusalError as refusal:
            refused = refused or refusal
            continue
        return plan.launch(*operands, None, out, 1.0, 0.0)
    assert refused is not None
    raise refused


def next_step(name: str, *, dtype: str = "float32", counted_at: int = 256) -> tuple[str, list[str]] | None:
    """The rung after this one and what it changes; None behind the last."""
    from lapidist.kernels import RUNGS

    names = [rung.name for rung in RUNGS if dtype in rung.types.maths]
    if name not in names or names.index(name) + 1 == len(names):
        return None
    after = names[names.index(name) + 1]
    counts = [run(square_launch(one, counted_at, dtype), exact_counts=True, merge_loads=True).counts for one in (name, after)]
    assert counts[0] is not None
    assert counts[1] is not None
    return after, difference(counts[0], counts[1])
