"""The resources of an SM, and the time that counted work costs each of them; how blocks share an SM.

From the machine code, where there is some for the chip, comes what PTX does not say of the main loop: the
instructions that the assembler made, how long they wait for registers, how long a warp pauses, what spilled.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from lapidist.device import Device
from lapidist.dtypes import size_of
from lapidist.machine.counters import SECTOR, Counts
from lapidist.machine.program import compile_program
from lapidist.planning.plans import Plan
from lapidist_lab.sass.analysis import SCHEDULERS, WARP, Static, count
from lapidist_lab.sass.listing import ptx_lines, sass_lines

# How well resources overlap that one block uses, by who loads while others multiply: nobody, for barriers
# part the two; the same warps, ahead of time; warps of their own. Exponents of the norm that adds the cycles
# of resources: 1 is one after the other, a large one all at once. They grow with the blocks on an SM. Fitted
# to all ladders at once, in every type.
BY_TURNS, AHEAD, SPECIALISED = 0.7, 3.0, 3.4
MORE_BLOCKS = 1.5  # the power of their number with which they grow
BARRIER_CYCLES = 40  # of an SM that its other blocks have to fill when one meets at a barrier
FIRST_BYTES_CYCLES = 1500  # from a block's start until it has something to multiply
# Bytes a cycle from L1 to the registers of an SM, for the part of a line that is used.
L1_BYTES = 64
SHARED_BYTES = 128  # the same of shared memory
# PTX that the assembler folds into other instructions.
FREE = ("move", "convert", "load param", "register budget")
# L2 to SMs in GB/s: bulk copies of 16 KB by all SMs of an H200, whatever of L2 they read; else published
# ones, rounded.
L2_GBPS = {(7, 0): 2200.0, (8, 0): 4200.0, (8, 9): 5000.0, (9, 0): 7900.0}


@dataclass(frozen=True, slots=True)
class Limit:
    """One resource and the time it alone would take."""

    name: str
    seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class Residence:
    """How blocks come to SMs: `tiles` (clusters of them) are given out, `cluster` blocks to each. `blocks`
    run on an SM at once, with `warps` that multiply on each scheduler.

    `persistent` blocks take tile after tile, and load for the next one meanwhile. `balanced` ones share
    tiles, so that no SM waits at the end, and hand `partial_bytes` of sums on for it. `ahead` says how well a
    block loads while it multiplies."""

    tiles: int = 0
    cluster: int = 1
    blocks: int = 1
    warps: float = 1.0
    persistent: bool = False
    balanced: bool = False
    partial_bytes: int = 0
    ahead: float = BY_TURNS

    def rounds(self, device: Device) -> int:
        """Tiles that the busiest SM works on."""
        return -(-self.tiles * self.cluster // device.sms)

    def idle(self, device: Device) -> float:
        """How much longer all takes because some SMs have nothing left to do."""
        if not self.tiles or self.balanced:
            return 1.0
        return self.rounds(device) * device.sms / (self.tiles * self.cluster)

    def start_and_end(self, device: Device) -> float:
        """Seconds until first bytes come, and in which an SM hands sums on and takes those of another."""
        starts = 1 if self.persistent else -(-self.rounds(device) // self.blocks)
        handed = 2 * self.partial_bytes * device.sms / l2_rate(device) if self.balanced else 0.0
        return starts * FIRST_BYTES_CYCLES / (device.clock_mhz * 1e6) + handed

    def overlapped(self, seconds: list[float]) -> float:
        """The time of a loop whose resources take these seconds."""
        most = max(seconds)
        exponent = max(self.ahead * self.blocks**MORE_BLOCKS, 1.0)
        if not most:
            return 0.0
        return most * sum((resource / most) ** exponent for resource in seconds) ** (1 / exponent)


ALONE = Residence()


def residence_of(
    plan: Plan, extents: tuple[int, int], device: Device, loop: Static | None = None
) -> Residence:
    """How a plan's kernel and config occupy a chip with a product of these extents. `loop` is what the
    assembler made.
    """
    kernel, config = plan.kernel, plan.config
    rows, columns = config.bm * config.cluster_m, config.bn * config.cluster_n
    shared = plan.shared_bytes + compile_program(plan.binary.ptx, plan.binary.entry).shared_static
    resident = device.blocks_resident(config.threads, loop.registers if loop else 0, shared)
    blocks = max(min(resident, kernel.persistent or resident), 1)
    prefetches = config.stages or (loop and loop.ahead)
    return Residence(
        tiles=prod(plan.problem.batch) * -(-extents[0] // rows) * -(-extents[1] // columns),
        cluster=config.cluster,
        blocks=blocks,
        warps=blocks * (config.threads - config.producers) / WARP / SCHEDULERS,
        persistent=bool(kernel.persistent),
        balanced=bool(kernel.persistent) and kernel.family.scheduled,
        partial_bytes=config.bm * config.bn * size_of(plan.problem.accumulator),
        ahead=SPECIALISED if config.producers else AHEAD if prefetches else BY_TURNS,
    )


def code_of(plan: Plan) -> Static:
    """The counts of a plan's machine code, or of its PTX where nothing reads machine code."""
    binary = plan.binary
    lines = sass_lines(binary) or ptx_lines(binary)
    return count(plan.kernel, plan.config, plan.problem.math, binary.architecture, True, binary, lines)


def clock_held(device: Device, engine: tuple[str, str], share: float) -> float:
    """The part of the full clock at which power holds an SM whose tensor cores are busy for a share of the
    time. Known of wgmma, whose measured limit is one of power; what mma does at the full clock is not."""
    unit, math = engine
    held = device.unit_limit(unit, math) / device.peak_tflops(math, unit) if unit == "wgmma" else 1.0
    return 1 - share * (1 - min(held, 1.0))


def l2_rate(device: Device) -> float:
    return L2_GBPS.get(device.capability, 2 * device.dram_gbps) * 1e9


# ---- cycles ----


@dataclass(frozen=True, slots=True)
class Pace:
    """What the assembler made of the main loop, and how many warps of a scheduler fill each other's
    pauses.
    """

    loop: Static
    warps: float

    @property
    def slots(self) -> float:
        """Cycles of a scheduler for a round of one warp."""
        return self.loop.slots + self.loop.pauses / self.warps


def pace_of(device: Device, residence: Residence, loop: Static) -> Pace | None:
    """The pace of a loop; None where the machine code is not the chip's, or nothing could read it."""
    measured = (
        loop.source == "sass"
        and loop.looped
        and loop.products > 0
        and loop.architecture == device.architecture
    )
    return Pace(loop, max(residence.warps, 1.0)) if measured else None


def resources(
    counts: Counts,
    device: Device,
    engine: tuple[str, str],
    scale: float,
    compulsory_bytes: int = 0,
    blocks: int = 1,
    pace: Pace | None = None,
) -> list[Limit]:
    """The time that each needs for the counted work times `scale`. `engine` is the unit and the math of the
    products; with a `pace`, the work is that of the main loop."""
    cycle = 1 / (device.sms * device.clock_mhz * 1e6)
    multiplied = sum(
        count for name, count in counts.instructions.items() if name.startswith(("fma", "float"))
    )
    lanes = device.fp64_lanes if engine == ("fma", "float64") else device.fp32_lanes
    rounds = products_of(counts) / pace.loop.products if pace else 0.0
    slots, issued = slots_of(counts, pace, rounds)
    loads, stores = counts.global_load, counts.global_store
    # A request takes a cycle for each line that it brings to registers, or as long as its sectors need; what
    # spills, too.
    spilled = (
        rounds * sum(width * n for width, n in pace.loop.widths["local"].items()) * WARP / SHARED_BYTES
        if pace
        else 0.0
    )
    sectors = loads.turns + stores.turns - counts.copied_sectors
    requests = max(loads.lines + stores.lines, SECTOR * sectors / L1_BYTES) + spilled
    turns = counts.shared_load.turns + counts.shared_store.turns + counts.streamed_bytes / SHARED_BYTES
    met = counts.barriers * scale
    streamed = "read by wgmma, written by TMA" if counts.streamed_bytes else "not used"
    per_load = (
        f"{counts.shared_load.per_request:.1f} turns a load" if counts.shared_load.requests else streamed
    )
    per_request = f"{loads.per_request:.1f} sectors a load" if loads.requests else "no loads"
    limits = [
        Limit("issue slots", slots / SCHEDULERS * cycle * scale, issued),
        Limit("multiplications", multiplied * WARP / lanes * cycle * scale, f"{lanes} lanes an SM"),
        Limit("global requests", requests * cycle * scale, per_request),
        Limit("shared memory", turns * cycle * scale, per_load),
        Limit("barriers", met * BARRIER_CYCLES / blocks * cycle, f"{met:,.0f} of a block"),
    ]
    if counts.tensor_flops:
        rate = device.unit_limit(*engine)
        busy = (
            rounds * pace.loop.tensor_cycles / SCHEDULERS * cycle
            if pace
            else counts.tensor_flops / (rate * 1e12)
        )
        limits.append(Limit("tensor cores", busy * scale, f"{rate:,.0f} TFLOP/s by {engine[0]}"))
    if counts.copied_bytes or compulsory_bytes:
        copied = counts.copied_bytes * scale
        limits.append(Limit("L2", copied / l2_rate(device), f"{copied:,.0f} bytes moved by TMA"))
    if compulsory_bytes:
        limits.append(
            Limit(
                "DRAM", compulsory_bytes / (device.dram_gbps * 1e9), f"{compulsory_bytes:,} bytes, each once"
            )
        )
    return limits


def products_of(counts: Counts) -> float:
    """Multiply-adds of all warps, on whatever unit."""
    fused = sum(count for name, count in counts.instructions.items() if name.startswith("fma"))
    return fused * WARP + counts.tensor_flops / 2


def slots_of(counts: Counts, pace: Pace | None, rounds: float) -> tuple[float, str]:
    """Cycles of schedulers, and what they are: the machine code's, else one for each instruction of PTX that
    is not free.
    """
    if pace is None:
        issued = sum(count for name, count in counts.instructions.items() if name not in FREE)
        return issued, f"{issued:,} warp instructions counted"
    return rounds * pace.slots, round_of(pace)


def round_of(pace: Pace) -> str:
    """A round of the main loop in words, which say where the cycles of a scheduler go."""
    loop = pace.loop
    multiply = loop.ffma + loop.mix.get("mma", 0)
    words = f"{loop.instructions} instructions a round, {multiply} multiply"
    if loop.slots > loop.instructions:
        words += f"; {loop.slots - loop.instructions} cycles late for registers of one bank"
    return words + f"; {loop.pauses / pace.warps:.0f} cycles paused"
