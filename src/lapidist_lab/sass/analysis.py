"""`analyse`: compile a kernel, read the compiler's report, count its main loop, say what the counts mean."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from lapidist.config import Config
from lapidist.device import CHIPS, Device
from lapidist.dtypes import MATHS, TF32, element_of
from lapidist.errors import ArgumentError, RefusalError
from lapidist.frameworks.arrays import HOST, Operand
from lapidist.kernels.kernel import Kernel
from lapidist.launch import Binary
from lapidist.planning.binaries import compiled
from lapidist.problems.problem import Problem, dense_problem
from lapidist_lab.sass.listing import KINDS, Line, ptx_lines, sass_lines
from lapidist_lab.sass.loops import main_loop
from lapidist_lab.sass.rounds import loads_ahead, operand_waits, pauses

MOVERS = ("lds", "ldsm", "sts", "ldg", "stg", "ldgsts", "local")
SHARED_BYTES_PER_CYCLE = 128  # what an SM reads from shared memory
SCHEDULERS = 4  # of an SM; each issues one warp instruction a cycle
WARP = 32
# An H200's m16n8k4 of tf32 and m16n8k16 of int8 take this long, two thirds of what twice the depth takes
# (measured alone, by eight warps with sixteen sums each).
LEAST_TENSOR_CYCLES = 4.4


@dataclass(frozen=True)
class Static:
    """What the compiler made of one kernel. Counts are those of the main loop, in instructions of one
    thread.
    """

    kernel: str
    config: Config
    dtype: str
    architecture: str
    aligned: bool
    registers: int
    shared_bytes: int  # static; what a launch adds is in `dynamic_shared_bytes`
    dynamic_shared_bytes: int
    spills: int  # bytes stored to and loaded from local memory
    source: str  # "sass" or "ptx"
    looped: bool  # False: no loop multiplies, the counts are those of the whole kernel
    mix: Mapping[str, int]  # kind of instruction (see listing.KINDS) to its count
    widths: Mapping[str, Mapping[int, int]]  # kind of move to {bytes a thread: count}
    fma_cycles: float  # that one warp's multiply-add keeps its scheduler's lanes busy
    unit: str  # that multiplies: fma, mma or wgmma
    # That a warp's tensor-core instructions take of its quarter of an SM, at the unit's limit.
    tensor_cycles: float
    products: int  # multiply-adds of a warp in a round of the loop
    waits: int  # cycles of a round in which registers are late, and
    pauses: int  # that a warp waits by itself (rounds.py); 0 where only PTX is known
    ahead: bool  # tiles are loaded while others are multiplied

    @property
    def instructions(self) -> int:
        return sum(self.mix.values())

    @property
    def ffma(self) -> int:
        """Fused multiply-adds: FFMA, for double DFMA. Half is multiplied as float, after a conversion."""
        return self.mix.get("fma", 0)

    @property
    def lds(self) -> int:
        return self.mix.get("lds", 0)

    @property
    def barriers(self) -> int:
        return self.mix.get("barrier", 0)

    @property
    def multiply_share(self) -> float:
        """The share of instructions that multiply and add, whatever the unit."""
        return (self.ffma + self.mix.get("mma", 0)) / self.instructions if self.instructions else 0.0

    @property
    def shared_cycles(self) -> float:
        """Cycles of shared memory for one warp on each scheduler; conflicts and lanes that share a word
        not counted."""
        moved = sum(
            width * n for kind in ("lds", "ldsm", "sts") for width, n in self.widths.get(kind, {}).items()
        )
        return moved * 32 * SCHEDULERS / SHARED_BYTES_PER_CYCLE

    @property
    def ffma_share(self) -> float:
        return self.ffma / self.instructions if self.instructions else 0.0

    @property
    def ffma_per_lds(self) -> float | None:
        """None where the loop reads no shared memory."""
        return self.ffma / self.lds if self.lds else None

    @property
    def shared_bytes_per_ffma(self) -> float:
        """Bytes that a thread reads from shared memory for each multiply-add."""
        moved = sum(width * count for width, count in self.widths.get("lds", {}).items())
        return moved / self.ffma if self.ffma else 0.0

    @property
    def issue_ceiling(self) -> float:
        """The largest share of the multiply-add rate that the mix allows: a scheduler issues one instruction
        a cycle.
        """
        return min(1.0, self.ffma * self.fma_cycles / self.slots) if self.slots else 0.0

    @property
    def slots(self) -> int:
        """Cycles of a scheduler that a warp's round of the loop takes. Registers are waited for where each
        cycle has its fma.
        """
        return self.instructions + (self.waits if self.fma_cycles <= 1 else 0)

    def describe(self) -> str:
        return "\n".join([*self._header(), *self._mix(), "", *self._meaning()])

    def _header(self) -> list[str]:
        alignment = "aligned" if self.aligned else "any alignment"
        dynamic = f" + {self.dynamic_shared_bytes} dynamic" if self.dynamic_shared_bytes else ""
        spills = f"{self.spills} bytes spilled" if self.spills else "no spills"
        part = "main loop" if self.looped else "whole kernel (no loop multiplies)"
        return [
            f"{self.kernel}  {self.config}  {self.dtype}  {self.architecture}  {alignment}",
            f"  {self.registers} registers, {self.shared_bytes}{dynamic} bytes of shared memory, {spills}",
            "",
            f"  {part}, {self.source.upper()}: {self.instructions} instructions",
        ]

    def _mix(self) -> list[str]:
        rows = []
        for kind, count in sorted(self.mix.items(), key=lambda item: -item[1]):
            widths = ", ".join(
                f"{n} x {8 * width} bit"
                for width, n in sorted(self.widths.get(kind, {}).items(), reverse=True)
            )
            rows.append(
                f"    {KINDS[kind]:<22}{count:>6}  {count / self.instructions:6.1%}  {widths}".rstrip()
            )
        return rows

    def _meaning(self) -> list[str]:
        if self.mix.get("mma"):
            return self._tensor_meaning()
        if not self.ffma:
            return ["  No multiply-add was found."]
        lines = []
        if self.ffma_per_lds is not None:
            lines.append(
                f"  FFMA : LDS = {self.ffma_per_lds:.1f}, {self.shared_bytes_per_ffma:.2f} bytes of shared"
                " memory a multiply-add"
            )
            rate = SHARED_BYTES_PER_CYCLE * self.fma_cycles / (32 * SCHEDULERS)
            lines.append(
                f"  (an SM reads {rate:.2f} bytes for each at full rate; lanes that read one word share it)"
            )
        waits = (
            f", and {self.waits} cycles are lost to registers of one bank"
            if self.slots > self.instructions
            else ""
        )
        lines.append(
            f"  {self.ffma_share:.1%} of the instructions multiply. One is issued a cycle{waits}, so if"
            f" nothing else waits the loop reaches at most {self.issue_ceiling:.1%} of the multiply-add rate."
        )
        if self.source == "ptx":
            lines.append(
                "  Counted in PTX, before ptxas: nvdisasm is not there or could not read the machine code."
            )
            from lapidist.commands.lab import INSTALL  # brings typer, which a browser has not

            lines.append(f"  Get it: {INSTALL}")
        return lines

    def _tensor_meaning(self) -> list[str]:
        """Cycles of a quarter of an SM for each unit: the largest is what the loop cannot be faster than."""
        need = {
            "tensor cores": self.tensor_cycles,
            "issue slots": float(self.instructions),
            "shared memory": self.shared_cycles,
        }
        most = max(need.values())
        cycles = ", ".join(f"{name} {count:.0f}" for name, count in need.items())
        slowest = max(need, key=lambda name: need[name])
        return [
            f"  The tensor cores multiply ({self.unit}): {self.mix['mma']} instructions of one warp.",
            f"  Cycles that they and others need for a warp on each scheduler: {cycles}.",
            (
                f"  The bound: {slowest}; at most {self.tensor_cycles / most:.1%} of the unit's limit, if"
                " nothing ever waits."
            ),
        ]


def analyse(
    kernel: Kernel, config: Config | None, dtype: str, architecture: str, aligned: bool = True
) -> Static:
    """Compile `kernel` and count what came out; config None means its own for `dtype`. Needs no GPU.

    The main loop comes from SASS where nvdisasm is found, else from PTX.
    """
    config = config or kernel.config_for(dtype)
    device = device_of(architecture)
    if device.capability < kernel.capability:
        raise RefusalError(
            "architecture: {} needs compute capability {}.{}; got {!r}. Choose a newer chip".format(
                kernel.name, *kernel.capability, architecture
            )
        )
    binary = binary_of(kernel, config, dtype, architecture, aligned)
    return count(
        kernel, config, dtype, architecture, aligned, binary, sass_lines(binary) or ptx_lines(binary)
    )


def count(
    kernel: Kernel,
    config: Config,
    dtype: str,
    architecture: str,
    aligned: bool,
    binary: Binary,
    lines: tuple[Line, ...],
) -> Static:
    """The counts of a listing's main loop."""
    loop = main_loop(lines)
    counted = [
        lines[index]
        for index in sorted(range(len(lines)) if loop is None else loop)
        if lines[index].opcode != "NOP"
    ]
    registers, shared, spills = resources(binary)
    device = device_of(architecture)
    lanes = device.fp64_lanes if dtype == "float64" else device.fp32_lanes
    return Static(
        kernel=kernel.name,
        config=config,
        dtype=dtype,
        architecture=architecture,
        aligned=aligned,
        registers=registers,
        shared_bytes=shared,
        dynamic_shared_bytes=kernel.shared_bytes(config, sample_problem(kernel, dtype, aligned)),
        spills=spills,
        source="sass" if lines and lines[0].opcode.isupper() else "ptx",
        looped=loop is not None,
        mix=dict(Counter(line.kind for line in counted).most_common()),
        widths={
            kind: dict(Counter(line.nbytes for line in counted if line.kind == kind and line.nbytes))
            for kind in MOVERS
        },
        fma_cycles=32 * SCHEDULERS / lanes,
        unit=kernel.unit,
        tensor_cycles=sum(tensor_cycles(line.products, device, kernel.unit, dtype) for line in counted),
        products=sum(WARP * (line.kind == "fma") + line.products for line in counted),
        waits=operand_waits(counted),
        pauses=pauses(counted),
        ahead=loads_ahead(counted),
    )


def tensor_cycles(products: int, device: Device, unit: str, math: str) -> float:
    """Cycles of one instruction, on the tensor core of a quarter of an SM."""
    return (
        max(products * SCHEDULERS / products_per_cycle(device, unit, math), LEAST_TENSOR_CYCLES)
        if products
        else 0.0
    )


def products_per_cycle(device: Device, unit: str, math: str) -> float:
    """Multiply-adds of an SM in a cycle, at a unit's limit."""
    return device.unit_limit(unit, math) * 1e12 / 2 / (device.sms * device.clock_mhz * 1e6)


def device_of(architecture: str) -> Device:
    """A chip of this architecture: "sm_90a" is a Hopper."""
    digits = re.fullmatch(r"sm_(\d+)(\d)[af]?", architecture)
    if digits is None:
        raise ArgumentError(
            f'architecture: must look like "sm_90a"; got {architecture!r}. Name one like that'
        )
    capability = int(digits[1]), int(digits[2])
    newest = max(CHIPS.values(), key=lambda device: device.capability)
    same = [device for device in CHIPS.values() if device.capability == capability]
    older = [device for device in CHIPS.values() if device.capability <= capability]
    return same[-1] if same else max(older, key=lambda device: device.capability, default=newest)


# ---- the binary ----

USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")
SPILLED = re.compile(r"(\d+) bytes spill (?:stores|loads)")


def resources(binary: Binary) -> tuple[int, int, int]:
    """(registers, static shared bytes, bytes spilled), as ptxas reports them in the log."""
    _, _, report = binary.log.partition(f"Compiling entry function '{binary.entry}'")
    used, shared = USED.search(report), SHARED.search(report)
    spilled = sum(int(amount) for amount in SPILLED.findall(report))
    return int(used[1]) if used else 0, int(shared[1]) if shared else 0, spilled


def binary_of(kernel: Kernel, config: Config, dtype: str, architecture: str, aligned: bool = True) -> Binary:
    """The kernel compiled as for a large problem that it takes."""
    macros = kernel.macros(sample_problem(kernel, dtype, aligned), config)
    return compiled(kernel, tuple(sorted(macros.items())), architecture)


@cache
def sample_problem(kernel: Kernel, math: str, aligned: bool = True) -> Problem:
    """A large square problem that the kernel takes, or a batch of small ones: with every row on 16 bytes, or
    with as little alignment as it accepts.
    """
    if math not in MATHS:
        raise ArgumentError(f"dtype: must be one of {', '.join(MATHS)}; got {math!r}. Choose one of them")
    dtype, precision = element_of(math).name, TF32 if math == TF32 else "ieee"
    output = dtype if not kernel.types.outputs else element_of(math).outputs[0]
    leads = ((4096, 4096),) if aligned else ((4095, 4095), (4096, 4095))
    refusal: str | None = None
    for inputs, results in leads:
        for b_strides in ((inputs, 1), (1, inputs)):
            extent = min(inputs, results)
            a = operand("a", extent, dtype, (inputs, 1))
            b = operand("b", extent, dtype, b_strides)
            out = operand("out", extent, output, (results, 1))
            problem = Problem.of(a, b, None, out, precision=precision, one_alpha=True)
            refusal = kernel.types.refuse(problem) or kernel.family.refuse(problem)
            if refusal is None:
                return batch_of_small(math, aligned) if kernel.only_small else problem
    rows = "with" if aligned else "without"
    raise RefusalError(
        f"dtype: {kernel.name} takes no {math} problem {rows} aligned rows: {refusal}. Name another type"
    )


def batch_of_small(math: str, aligned: bool) -> Problem:
    extent = 16 if aligned else 15
    return dense_problem(extent, extent, extent, math, batch=4096)


def operand(name: str, extent: int, dtype: str, strides: tuple[int, int]) -> Operand:
    return Operand(name, 0, (extent, extent), strides, dtype, HOST, "numpy", None)
