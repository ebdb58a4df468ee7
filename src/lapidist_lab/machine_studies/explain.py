"""Counts and the facts of a chip to a plain answer: what bounds a kernel, how far from it, what comes next.

Each resource of an SM is given the cycles that the counted work costs it. The largest is the bound; the
others overlap with it, the better the more blocks share the SM and the further ahead they load. What a block
does before and after its loop overlaps with other blocks, if there are any. What the assembler made of the
main loop is read from the machine code, where that is known: instructions, how long they wait for registers,
how long a warp pauses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

from lapidist.config import Config
from lapidist.device import Device
from lapidist.dtypes import element_of, outputs_of, size_of
from lapidist.kernels.kernel import Kernel
from lapidist.launch import Launch
from lapidist.machine.counters import Counts, Traffic
from lapidist.machine.run import run
from lapidist.schedule.sharing_choice import Sharing
from lapidist_lab.machine_studies.registered import Shape, product_of
from lapidist_lab.machine_studies.resources import (
    ALONE,
    Limit,
    Pace,
    Residence,
    clock_held,
    code_of,
    pace_of,
    residence_of,
    resources,
)
from lapidist_lab.sass import Static

Progress = Callable[[int, int], None]
COUNTED_AT = 256  # more takes longer and counts the same
DATA_PARALLEL = Sharing("data_parallel")  # a small product would be cut up along k, a large one hardly
LAUNCH_SECONDS = 2e-6
PATH = ("global requests", "shared memory")  # both come to the registers on it
WORK = ("multiplications", "tensor cores")
NEARLY = 0.9  # of the time: no better in practice
SECTOR_BYTES = 32
FULL_SECTORS = 1.5  # sectors for a sector's bytes; more are scattered
FEW_FMAS = 512  # of a thread: a step of 128 x 128 x 8 by 256 threads
NEGLIGIBLE = 1e-3  # of the time: not worth a line
MICROSECONDS_BELOW = 1e-4
MUCH_WAITING = 0.2  # of the time: the size says more than the kernel


@dataclass(frozen=True)
class Explanation:
    """`seconds` is the prediction; of the `limits` the bound comes first, then the largest. `waiting` is the
    part of the time in which SMs have no work, or none yet."""

    chip: str
    seconds: float
    flops: float
    peak_flops: float
    limits: tuple[Limit, ...]
    advice: str
    waiting: Limit

    @property
    def bound(self) -> Limit:
        return self.limits[0]

    @property
    def binding(self) -> tuple[Limit, ...]:
        """The bound, and another resource on the same path if it takes more than a tenth of the
        bound's time.
        """
        shared = (limit for limit in self.limits[1:] if self.bound.name in PATH and limit.name in PATH)
        return self.bound, *(limit for limit in shared if limit.seconds > 0.1 * self.bound.seconds)

    @property
    def share_of_peak(self) -> float:
        return self.flops / self.seconds / self.peak_flops

    def __str__(self) -> str:
        unit, scale = ("ms", 1e3) if self.seconds >= MICROSECONDS_BELOW else ("us", 1e6)
        lines = [
            (
                f"on {self.chip}: {self.seconds * scale:.3f} {unit} predicted,"
                f" {self.flops / self.seconds / 1e12:.2f} TFLOP/s, {self.share_of_peak:.1%} of what its unit"
                " does"
            ),
            (
                f"  bound by {' and '.join(limit.name for limit in self.binding)},"
                f" {sum(limit.seconds for limit in self.binding) / self.seconds:.0%} of that time; each alone"
                " would take:"
            ),
        ]
        shown = [limit for limit in self.limits if limit.seconds >= NEGLIGIBLE * self.seconds]
        shown += [self.waiting] if self.waiting.seconds >= MUCH_WAITING * self.seconds else []
        lines += [f"  {limit.name:18s} {limit.seconds * scale:9.3f} {unit}  {limit.why}" for limit in shown]
        lines += [f"  next: {self.advice}"]
        if self.waiting.seconds > self.seconds / 2:
            lines += ["  at this size most of the time is waiting; a larger product shows the kernel itself"]
        return "\n".join(lines)


ADVICE = {
    "scattered requests": "let neighbouring lanes read neighbouring addresses",
    "global requests": "stage tiles in shared memory: each element is then read once a block, not a thread",
    "shared memory": "conflicts: pad or permute the tile",
    "shared operands": (
        "more results a thread, so that each operand read serves more multiplications; wider loads"
    ),
    "issue slots": (
        "fewer instructions around the multiplications: hoisted indices, unrolling, copies by TMA"
    ),
    "registers": (
        "another order of the multiplications, or sums that lie elsewhere: too many find two operands in one"
        " bank"
    ),
    "pauses": "ask for operands before they are needed, or more warps to go on meanwhile",
    "multiplications": "nothing to remove: the units that do the work are the bound",
    "tensor cores": "nothing to remove: the units that do the work are the bound",
    "barriers": "fewer of them, or more blocks on an SM that work meanwhile",
    "L2": "larger tiles: each byte is fetched by fewer blocks",
    "DRAM": "every byte is read once already; only smaller types help",
}

ADVICE_FOR_WARPS = {
    "shared operands": "larger tiles a warp, so that each fragment serves more products; wider loads"
}
# wgmma reads tiles that TMA brought: what is left of requests are those of D
ADVICE_FOR_WGMMA = {
    "global requests": "let TMA store D too, through patches of shared memory",
    "L2": "larger tiles, or clusters whose blocks load for each other",
}
ADVICE_BEHIND_TMA = {"issue slots": "fewer instructions around the multiplications: unrolling, longer steps"}


def explain(
    counts: Counts,
    device: Device,
    *,
    residence: Residence = ALONE,
    compulsory_bytes: int = 0,
    math: str = "float32",
    unit: str = "fma",
    scale: float = 1.0,
    outside: Counts | None = None,
    pace: Pace | None = None,
) -> Explanation:
    """What bounds a run with these counts on a chip.

    `scale` multiplies the work: counts taken at a small size predict a larger one (8 for twice the extents).
    `compulsory_bytes` are the arrays' own bytes. `math` and `unit` say what multiplies, as a kernel's row
    does. `outside` is what of the counts lies before and after the loops along k; `pace` is what the
    assembler made of these."""
    engine = unit, math
    inside = counts if outside is None else combined(counts, outside, 1, -1)
    loop = resources(inside, device, engine, scale, compulsory_bytes, residence.blocks, pace)
    around = (
        {}
        if outside is None
        else {limit.name: limit.seconds for limit in resources(outside, device, engine, scale)}
    )
    limits = ordered([replace(limit, seconds=limit.seconds + around.get(limit.name, 0.0)) for limit in loop])
    busy = residence.overlapped(parts(loop)) + sum(around.values()) / residence.blocks
    starting = residence.start_and_end(device) + LAUNCH_SECONDS
    # Power that idle SMs leave to the others is clock: as far as it held these back, nothing is lost.
    tensor = sum(limit.seconds for limit in limits if limit.name == "tensor cores")
    held = clock_held(device, engine, min(tensor / busy, 1.0)) if busy else 1.0
    total = busy * max(residence.idle(device) * held, 1.0) + starting
    few = (
        f"{residence.tiles * residence.cluster} blocks for {device.sms} SMs"
        if residence.tiles
        else "all SMs busy"
    )
    waiting = Limit(
        "waiting", total - busy, f"{few}; {starting * 1e6:.1f} us for the launch and until there are bytes"
    )
    flops = (counts.flops + counts.tensor_flops) * scale
    peak = device.unit_limit(unit, math) * 1e12
    advice = advised(unit, counts)[cause(limits[0].name, inside, pace)]
    if limits[0].name in WORK and limits[0].seconds < NEARLY * total:
        advice = (
            f"the units that do the work wait: hide {limits[1].name} and what comes before and after the loop"
            " behind them"
        )
    return Explanation(device.name, total, flops, peak, tuple(limits), advice, waiting)


def advised(unit: str, counts: Counts) -> dict[str, str]:
    """The advice for each bound; no kernel is advised to take what it has already."""
    advice = dict(ADVICE)
    if unit == "mma":
        advice |= ADVICE_FOR_WARPS
    if unit == "wgmma":
        advice |= ADVICE_FOR_WGMMA
    return advice | (ADVICE_BEHIND_TMA if counts.copied_bytes else {})


def cause(bound: str, counts: Counts, pace: Pace | None) -> str:
    """The key in ADVICE of what makes the bound as slow as it is."""
    if bound == "shared memory" and conflict_free(counts):
        return "shared operands"
    if bound == "global requests" and scattered(counts):
        return "scattered requests"
    if bound == "issue slots" and pace is not None:
        loop = pace.loop
        lost = {
            "issue slots": loop.instructions * (1 - loop.multiply_share),
            "registers": loop.slots - loop.instructions,
            "pauses": loop.pauses / pace.warps,
        }
        return max(lost, key=lambda name: lost[name])
    return bound


def ordered(limits: list[Limit]) -> list[Limit]:
    """Largest first. If the resources of one path together take longest, the larger of these comes first."""
    limits = sorted(limits, key=lambda limit: -limit.seconds)
    path = [limit for limit in limits if limit.name in PATH]
    if sum(limit.seconds for limit in path) > limits[0].seconds:
        limits.remove(path[0])
        limits.insert(0, path[0])
    return limits


def parts(limits: list[Limit]) -> list[float]:
    """The times that overlap. Multiplications are issued like all other instructions, so only the larger of
    the two counts. Nothing is issued at barriers. L1 and shared memory share a path to the registers.
    """
    seconds = {limit.name: limit.seconds for limit in limits}
    issue = max(seconds.pop("issue slots"), seconds.pop("multiplications")) + seconds.pop("barriers")
    path = sum(seconds.pop(name) for name in PATH)
    return [issue, path, *seconds.values()]


def conflict_free(counts: Counts) -> bool:
    """Whether loads take no more turns than their width needs."""
    load = counts.shared_load
    ideal = max(load.nbytes / 128, load.requests)
    return load.turns <= 1.1 * ideal


def scattered(counts: Counts) -> bool:
    """Whether global loads touch more sectors than their bytes fill, and more than broadcasts would."""
    load = counts.global_load
    return load.turns > FULL_SECTORS * max(load.nbytes / SECTOR_BYTES, load.requests)


def difference(before: Counts, after: Counts) -> list[str]:
    """The counts that a step of the ladder changed by more than a tenth, in sentences."""
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
    for name, old, new, spec in rows:
        if abs(new - old) > 0.1 * max(abs(old), abs(new)):
            lines.append(f"{name}: {spec.format(old)} -> {spec.format(new)}")
    return lines


# ---- registered kernels ----


def explain_kernel(
    kernel: Kernel,
    device: Device,
    shape: Shape,
    math: str,
    on_progress: Progress | None = None,
    config: Config | None = None,
    layouts: str = "rr",
) -> tuple[Counts, Explanation]:
    """Count a kernel on extents of at most COUNTED_AT, and explain it at `shape` by scaling the counts.

    Two depths give what a step along k costs and what a tile costs besides; only the steps grow with k.
    """
    m, n, k = shape
    rows, columns, depth = (min(extent, COUNTED_AT) for extent in shape)
    product, deeper = (
        product_of(kernel, math, (rows, columns, steps), layouts, config=config, schedule=DATA_PARALLEL)
        for steps in (depth, 2 * depth)
    )
    code = code_of(product.plan)
    counts, twice = count(product.launch(), on_progress), count(deeper.launch(), on_progress)
    element, output = element_of(math), outputs_of(element_of(math).name, element_of(math).name)[0]
    array_bytes = (m + n) * k * element.nbytes + m * n * size_of(output)
    residence = residence_of(product.plan, (m, n), device, code)
    answer = explain(
        along(counts, twice, k / depth - 1),
        device,
        residence=residence,
        compulsory_bytes=array_bytes,
        math=math,
        unit=kernel.unit,
        scale=m * n / (rows * columns),
        outside=along(counts, twice, -1.0),
        pace=pace_of(device, residence, code),
    )
    return counts, answer


def along(short: Counts, long: Counts, steps: float) -> Counts:
    """The counts so many steps beyond `short`, if `long` is one step beyond."""
    return combined(short, long, 1 - steps, steps)


def combined(one: Counts, other: Counts, first_weight: float, second_weight: float) -> Counts:
    """The weighted sum of two counts, nothing below zero."""

    def at(first: float, second: float) -> int:
        return max(round(first_weight * first + second_weight * second), 0)

    def traffic(first: Traffic, second: Traffic) -> Traffic:
        return Traffic(
            *(at(getattr(first, field.name), getattr(second, field.name)) for field in fields(Traffic))
        )

    values: dict[str, object] = {}
    for field in fields(Counts):
        first, second = getattr(one, field.name), getattr(other, field.name)
        if isinstance(first, Traffic):
            values[field.name] = traffic(first, second)
        elif isinstance(first, dict):
            values[field.name] = {
                name: at(first.get(name, 0), second.get(name, 0)) for name in {**first, **second}
            }
        elif isinstance(first, int) and not isinstance(first, bool):
            values[field.name] = at(first, second)
    return replace(one, **values, sites=())  # type: ignore[arg-type]


def count(launch: Launch, on_progress: Progress | None = None) -> Counts:
    """The counts of a launch, with every access looked at. Shared loads that the assembler joins count as
    one."""
    counts = run(launch, exact_counts=True, merge_loads=True, on_progress=on_progress).counts
    assert counts is not None
    return counts


def next_step(kernel: Kernel, math: str, device: Device) -> tuple[str, list[str]] | None:
    """The rung after this one in the same math, and what it changes on a chip; None behind the last."""
    from lapidist.kernels.registry import RUNGS

    rungs = [rung for rung in RUNGS if math in rung.types.maths]
    if kernel not in rungs[:-1]:
        return None
    after = rungs[rungs.index(kernel) + 1]
    shape = (COUNTED_AT, COUNTED_AT, COUNTED_AT)
    before, then = (product_of(one, math, shape, schedule=DATA_PARALLEL) for one in (kernel, after))
    changes = difference(count(before.launch()), count(then.launch()))
    return after.name, changes + recoded(code_of(before.plan), code_of(then.plan), device)


def recoded(before: Static, after: Static, device: Device) -> list[str]:
    """The same of machine code, for loops of multiply-adds on CUDA cores."""
    measured = before.source == after.source == "sass" and before.architecture == device.architecture
    if not (measured and before.ffma and after.ffma):
        return []
    rows = [
        ("instructions", "instructions"),
        ("cycles late for registers", "waits"),
        ("cycles that a warp pauses", "pauses"),
    ]
    lines = []
    for name, attribute in rows:
        old, new = (FEW_FMAS * getattr(code, attribute) / code.ffma for code in (before, after))
        if abs(new - old) > 0.1 * max(abs(old), abs(new)):
            lines.append(f"{name} for {FEW_FMAS} multiplications: {old:.0f} -> {new:.0f}")
    return lines
