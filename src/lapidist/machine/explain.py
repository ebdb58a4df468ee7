"""Counts and the facts of a chip to a plain answer: what bounds a kernel, how far from it, what comes next.

Each resource of an SM is given the cycles that the counted work costs it. The largest is the bound; the others overlap
with it, but not fully: a share of their cycles is added. What a block does before and after its loop overlaps with other
blocks of the SM, if there are any. Of latency there is only the time until a tile's first bytes come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from math import prod

from lapidist.device import Device
from lapidist.dtypes import element_of, outputs_of, size_of
from lapidist.kernel import Kernel
from lapidist.launch import Launch
from lapidist.machine.counters import Counts, Traffic
from lapidist.machine.program import compile_program
from lapidist.machine.registered import Shape, product_of
from lapidist.machine.run import run
from lapidist.plans import Plan
from lapidist.sharing import Sharing

Progress = Callable[[int, int], None]
COUNTED_AT = 256  # more takes longer and counts the same
WHOLE_TILES = Sharing("data_parallel")  # a small product would be cut up along k, a large one hardly

SCHEDULERS = 4  # warp instructions that an SM issues a cycle
# The share of the other resources' cycles that does not overlap with the bound, by who loads while others multiply: nobody, for
# barriers part the two; the same warps, ahead of time; warps of their own. Fitted to all ladders at once, in every type.
BY_TURNS, AHEAD, APART = 0.3, 0.25, 0.12
LAUNCH_SECONDS = 2e-6
FIRST_BYTES_CYCLES = 1500  # from a block's start until it has something to multiply
# Bytes a cycle from L1 to the registers of an SM, for the part of a line that is used.
L1_BYTES = 64
SHARED_BYTES = 128  # the same of shared memory
# PTX that the assembler folds into other instructions.
FREE = ("move", "convert", "load param", "register budget")
# L2 to SMs in GB/s: bulk copies of 16 KB by all SMs of an H200, whatever of L2 they read; else published ones, rounded.
L2_GBPS = {(7, 0): 2200.0, (8, 0): 4200.0, (8, 9): 5000.0, (9, 0): 7900.0}


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
            f"{self.share_of_peak:.1%} of what its unit does",
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


@dataclass(frozen=True, slots=True)
class Residence:
    """How blocks come to SMs: `tiles` (clusters of them) are given out, `cluster` blocks to each, `blocks` run on an SM at once.

    `persistent` blocks take tile after tile, and load for the next one meanwhile; `balanced` ones share tiles, so that no SM
    waits at the end.
    """

    tiles: int = 0
    cluster: int = 1
    blocks: int = 1
    persistent: bool = False
    balanced: bool = False
    unhidden: float = BY_TURNS

    def rounds(self, device: Device) -> int:
        """Tiles that the busiest SM works on."""
        return -(-self.tiles * self.cluster // device.sms)

    def idle(self, device: Device) -> float:
        """How much longer all takes because some SMs have nothing left to do."""
        if not self.tiles or self.balanced:
            return 1.0
        return self.rounds(device) * device.sms / (self.tiles * self.cluster)

    def first_bytes(self, device: Device) -> float:
        starts = 1 if self.persistent else -(-self.rounds(device) // self.blocks)
        return starts * FIRST_BYTES_CYCLES / (device.clock_mhz * 1e6)


def explain(
    counts: Counts,
    device: Device,
    *,
    residence: Residence = Residence(),
    compulsory_bytes: int = 0,
    math: str = "float32",
    unit: str = "fma",
    scale: float = 1.0,
    outside: Counts | None = None,
) -> Explanation:
    """What bounds a run with these counts on a chip.

    `scale` multiplies the work: counts taken at a small size predict a larger one (8 for twice the extents).
    `compulsory_bytes` are the arrays' own bytes. `math` and `unit` say what multiplies, as a kernel's row does. `outside` is
    what of the counts lies before and after the loops along k.
    """
    engine = unit, math
    limits = sorted(resources(counts, device, engine, scale, compulsory_bytes), key=lambda limit: -limit.seconds)
    before_and_after = (
        {} if outside is None else {each.name: each.seconds for each in resources(outside, device, engine, scale, 0)}
    )
    loop = [limit.seconds - before_and_after.get(limit.name, 0.0) for limit in limits if limit.name != folded(limits)]
    busy = max(loop) + residence.unhidden * (sum(loop) - max(loop)) + sum(before_and_after.values()) / residence.blocks
    total = busy * residence.idle(device) + residence.first_bytes(device) + LAUNCH_SECONDS
    flops = (counts.flops + counts.tensor_flops) * scale
    peak = device.unit_limit(unit, math) * 1e12
    name = limits[0].name
    if name == "shared memory" and conflict_free(counts):
        name = "shared operands"
    return Explanation(device.name, total, flops, peak, tuple(limits), ADVICE[name])


def folded(limits: list[Limit]) -> str:
    """Multiplications are issued like all others: of the two the smaller one costs nothing of its own."""
    return next(limit.name for limit in reversed(limits) if limit.name in ("issue slots", "multiplications"))


def conflict_free(counts: Counts) -> bool:
    """Loads take no more turns than their width asks for."""
    load = counts.shared_load
    ideal = max(load.nbytes / 128, load.requests)
    return load.turns <= 1.1 * ideal


def resources(counts: Counts, device: Device, engine: tuple[str, str], scale: float, compulsory_bytes: int) -> list[Limit]:
    """`engine` is the unit and the math of the products."""
    cycle = 1 / (device.sms * device.clock_mhz * 1e6)
    issued = sum(count for name, count in counts.instructions.items() if name not in FREE)
    lanes = device.fp64_lanes if engine == ("fma", "float64") else device.fp32_lanes
    multiplications = sum(count for name, count in counts.instructions.items() if name.startswith(("fma", "float")))
    loads, stores = counts.global_load, counts.global_store
    # A request takes a cycle for each line that it touches, or as long as its sectors need to arrive.
    requests = max(loads.lines + stores.lines, 32 * (loads.turns + stores.turns) / L1_BYTES)
    turns = counts.shared_load.turns + counts.shared_store.turns + counts.streamed_bytes / SHARED_BYTES
    per_load = f"{counts.shared_load.per_request:.1f} turns a load" if counts.shared_load.requests else "not used"
    sectors = f"{loads.per_request:.1f} sectors a load" if loads.requests else "no loads"
    found = [
        Limit("issue slots", issued / SCHEDULERS * cycle * scale, f"{issued:,} warp instructions"),
        Limit("multiplications", multiplications * 32 / lanes * cycle * scale, f"{lanes} lanes an SM"),
        Limit("global requests", requests * cycle * scale, sectors),
        Limit("shared memory", turns * cycle * scale, per_load),
    ]
    if counts.tensor_flops:
        rate = device.unit_limit(*engine)
        found.append(Limit("tensor cores", counts.tensor_flops * scale / (rate * 1e12), f"{rate:,.0f} TFLOP/s by {engine[0]}"))
    if counts.copied_bytes or compulsory_bytes:
        copied = counts.copied_bytes * scale
        rate = L2_GBPS.get(device.capability, 2 * device.dram_gbps) * 1e9
        found.append(Limit("L2", copied / rate, f"{copied:,.0f} bytes moved by the copy engine"))
    if compulsory_bytes:
        found.append(Limit("DRAM", compulsory_bytes / (device.dram_gbps * 1e9), f"{compulsory_bytes:,} bytes, each once"))
    return found


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


# ---- registered kernels ----


def explain_kernel(
    kernel: Kernel, device: Device, shape: Shape, math: str, on_progress: Progress | None = None
) -> tuple[Counts, Explanation]:
    """Count a kernel on extents of at most COUNTED_AT, and explain it at `shape` by scaling the counts.

    Two depths give what a step along k costs and what a tile costs besides; only the steps grow with k.
    """
    m, n, k = shape
    rows, columns, depth = (min(extent, COUNTED_AT) for extent in shape)
    product = product_of(kernel, math, (rows, columns, depth), schedule=WHOLE_TILES)
    counts = count(product.launch(), on_progress)
    twice = count(product_of(kernel, math, (rows, columns, 2 * depth), schedule=WHOLE_TILES).launch(), on_progress)
    element, output = element_of(math), outputs_of(element_of(math).name, element_of(math).name)[0]
    own = (m + n) * k * element.nbytes + m * n * size_of(output)
    answer = explain(
        along(counts, twice, k / depth - 1),
        device,
        residence=residence_of(product.plan, (m, n), device),
        compulsory_bytes=own,
        math=math,
        unit=kernel.unit,
        scale=m * n / (rows * columns),
        outside=along(counts, twice, -1.0),
    )
    return counts, answer


def residence_of(plan: Plan, extents: tuple[int, int], device: Device) -> Residence:
    """How a plan's kernel and config occupy a chip with a product of these extents."""
    kernel, config = plan.kernel, plan.config
    rows, columns = config.bm * config.cluster_m, config.bn * config.cluster_n
    shared = plan.shared_bytes + compile_program(plan.binary.ptx, plan.binary.entry).shared_static
    return Residence(
        tiles=prod(plan.problem.batch) * -(-extents[0] // rows) * -(-extents[1] // columns),
        cluster=config.cluster,
        blocks=max(kernel.persistent or device.blocks_resident(config.threads, 0, shared), 1),
        persistent=bool(kernel.persistent),
        balanced=bool(kernel.persistent) and kernel.signature.scheduled,
        unhidden=APART if config.producers else AHEAD if config.stages else BY_TURNS,
    )


def along(short: Counts, long: Counts, steps: float) -> Counts:
    """The counts so many steps beyond `short`, if `long` is one step beyond; nothing is less than none."""

    def at(first: float, second: float) -> int:
        return max(round(first + steps * (second - first)), 0)

    def traffic(first: Traffic, second: Traffic) -> Traffic:
        return Traffic(*(at(getattr(first, each.name), getattr(second, each.name)) for each in fields(Traffic)))

    values: dict[str, object] = {}
    for each in fields(Counts):
        first, second = getattr(short, each.name), getattr(long, each.name)
        if isinstance(first, Traffic):
            values[each.name] = traffic(first, second)
        elif isinstance(first, dict):
            values[each.name] = {name: at(first.get(name, 0), second.get(name, 0)) for name in {**first, **second}}
        elif isinstance(first, int) and not isinstance(first, bool):
            values[each.name] = at(first, second)
    return replace(short, **values, sites=())  # type: ignore[arg-type]


def count_kernel(kernel: Kernel, shape: Shape, math: str) -> Counts:
    return count(product_of(kernel, math, shape, schedule=WHOLE_TILES).launch())


def count(launch: Launch, on_progress: Progress | None = None) -> Counts:
    """Every access is looked at; shared loads that the assembler joins count as one."""
    counts = run(launch, exact_counts=True, merge_loads=True, on_progress=on_progress).counts
    assert counts is not None
    return counts


def next_step(kernel: Kernel, math: str) -> tuple[str, list[str]] | None:
    """The rung after this one in the same math, and what it changes; None behind the last."""
    from lapidist.kernels import RUNGS

    rungs = [rung for rung in RUNGS if math in rung.types.maths]
    if kernel not in rungs[:-1]:
        return None
    after = rungs[rungs.index(kernel) + 1]
    before, then = (count_kernel(one, (COUNTED_AT, COUNTED_AT, COUNTED_AT), math) for one in (kernel, after))
    return after.name, difference(before, then)
