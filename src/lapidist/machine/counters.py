"""What a run did, in numbers: instruction mix, memory requests and how well they coalesce, flops, barriers,
divergence.

Executions are counted exactly, block by block. Two counts are taken on the first calls of each instruction,
in one block, or always, on request. One is how many 32-byte sectors a global request touches, the other how
many turns (wavefronts) a shared request takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from lapidist.machine.observer import Observer
from lapidist.machine.ptx.matrix_shapes import shared_operand_bytes, tensor_flops
from lapidist.machine.ptx.syntax_tree import TYPE_BYTES, Instruction, Kernel

if TYPE_CHECKING:
    from lapidist.machine.instructions.copies import Transfer
    from lapidist.machine.memory import Address
    from lapidist.machine.scheduler import Scheduler

Array = np.ndarray
SAMPLED_CALLS = 4
SECTOR = 32
LINE = 128
BANKS = 32
SPACES = ("global", "shared", "local", "param")

CLASSES = {
    "control": "bra brx ret exit trap call",
    "barrier": "bar barrier mbarrier fence membar griddepcontrol nanosleep",
    "tensor": "mma wmma wgmma",
    "matrix move": "ldmatrix stmatrix movmatrix",
    "copy": "cp prefetch prefetchu",
    "atomic": "atom red",
    "warp": "shfl vote match redux elect activemask",
    "move": "mov selp cvta slct prmt mapa",
    "compare": "setp set testp",
    "convert": "cvt",
    "function": "ex2 lg2 sin cos tanh rcp sqrt rsqrt",
    "register budget": "setmaxnreg",
}
CLASS_OF = {name: group for group, names in CLASSES.items() for name in names.split()}


def class_of(i: Instruction) -> str:
    """The row of the instruction mix that an instruction counts in."""
    if i.opcode in ("ld", "st", "ldu"):
        space = next(
            (mod.split("::")[0] for mod in i.mods if mod.split("::")[0] in (*SPACES, "const")), "generic"
        )
        return f"{'store' if i.opcode == 'st' else 'load'} {space}"
    if i.opcode == "wmma" and "mma" not in i.mods:
        return "matrix move"
    if i.opcode == "wgmma" and "mma_async" not in i.mods:
        return "barrier"
    if i.opcode in CLASS_OF:
        return CLASS_OF[i.opcode]
    kind = next((mod for mod in i.mods if mod in TYPE_BYTES or mod in ("f16", "bf16")), "")
    if "f" in kind:
        return f"{'fma' if i.opcode in ('fma', 'mad') else 'float'} {kind}"
    return "integer"


def flops_of(i: Instruction) -> int:
    """Floating-point operations of one lane."""
    kind = next((mod for mod in i.mods if mod in TYPE_BYTES), "")
    if "f" not in kind or i.opcode not in ("fma", "mad", "add", "sub", "mul", "div", "min", "max"):
        return 0
    return (2 if i.opcode in ("fma", "mad") else 1) * (2 if kind.endswith("x2") else 1)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Memory instructions of one kind. `turns` are sectors for global and wavefronts for shared memory;
    `lines` are the 128-byte lines that global requests touch."""

    requests: int = 0
    nbytes: int = 0
    turns: float = 0.0
    lines: float = 0.0

    @property
    def per_request(self) -> float:
        return self.turns / self.requests if self.requests else 0.0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.requests + other.requests,
            self.nbytes + other.nbytes,
            self.turns + other.turns,
            self.lines + other.lines,
        )


@dataclass(frozen=True, slots=True)
class SiteTraffic:
    """One memory instruction."""

    line: int
    text: str
    source: str
    space: str
    traffic: Traffic


@dataclass(frozen=True)
class Counts:
    """`instructions` counts warp instructions by class; `active` is the share of lanes that took part in
    them.
    """

    instructions: dict[str, int]
    active: float
    flops: int
    tensor_flops: int
    global_load: Traffic
    global_store: Traffic
    shared_load: Traffic
    shared_store: Traffic
    local: Traffic
    copied_bytes: int  # moved by bulk and tensor copies
    copied_sectors: int  # of the global loads, those of cp.async
    # through shared memory, not by loads and stores: what such copies bring and take, what wgmma reads
    streamed_bytes: int
    barriers: int
    divergent_branches: int
    exact: bool
    sites: tuple[SiteTraffic, ...] = field(repr=False)

    @property
    def warp_instructions(self) -> int:
        """Warp instructions of all classes together."""
        return sum(self.instructions.values())

    @property
    def global_bytes(self) -> float:
        """Bytes between the cores and L2: whole sectors, and what TMA moved."""
        return SECTOR * (self.global_load.turns + self.global_store.turns) + self.copied_bytes

    @property
    def bytes_per_flop(self) -> float:
        """Bytes between the cores and L2 for each floating-point operation."""
        return self.global_bytes / max(self.flops + self.tensor_flops, 1)

    def __str__(self) -> str:
        mix = sorted(self.instructions.items(), key=lambda pair: -pair[1])
        total = max(self.warp_instructions, 1)
        lines = [f"{self.warp_instructions:,} warp instructions, {self.active:.1%} of the lanes active"]
        lines += [f"  {name:16s} {count:14,} {count / total:6.1%}" for name, count in mix if count]
        for name, traffic, turn in (
            ("global loads", self.global_load, "sectors"),
            ("global stores", self.global_store, "sectors"),
            ("shared loads", self.shared_load, "wavefronts"),
            ("shared stores", self.shared_store, "wavefronts"),
            ("local", self.local, "sectors"),
        ):
            if traffic.requests:
                lines.append(
                    f"{name}: {traffic.requests:,} requests, {traffic.nbytes:,} bytes,"
                    f" {traffic.per_request:.2f} {turn} each"
                )
        flops = (
            f"flops: {self.flops:,} on cores, {self.tensor_flops:,} on tensor cores;"
            f" {self.bytes_per_flop:.3f} bytes a flop"
        )
        copied = f"copied by TMA: {self.copied_bytes:,} bytes" if self.copied_bytes else ""
        other = f"barriers: {self.barriers:,}; divergent branches: {self.divergent_branches:,}"
        sampled = "" if self.exact else "sectors and wavefronts are sampled (exact_counts=True counts all)"
        return "\n".join(line for line in [*lines, flops, copied, other, sampled] if line)


class Counter(Observer):
    """Watches the memory accesses of a run."""

    def __init__(self, kernel: Kernel, exact: bool, merged: dict[int, tuple[int, int]] | None = None) -> None:
        sites = len(kernel.instructions) * len(SPACES)
        self.exact = exact
        self.requests = np.zeros(sites, np.int64)
        self.nbytes = np.zeros(sites, np.int64)
        self.samples_due = [1 << 62 if exact else SAMPLED_CALLS] * sites
        self.sampled_requests = np.zeros(sites, np.int64)
        self.turns = np.zeros(sites, np.int64)
        self.lines = np.zeros(sites, np.int64)
        self.copied_bytes = self.landed_bytes = 0
        self.merged = merged or {}
        self.joined = 0  # loads that were counted as part of a wider one

    def accessed(
        self, address: Address, offset: int, size: int, site: int, kind: str, values: tuple[Array, ...] = ()
    ) -> None:
        if site in self.merged:
            start, width = self.merged[site]
            if (address.low | start) & (width - 1) == 0:
                if offset != start:
                    self.joined += address.g.warps
                    return
                size = width
        place = site * len(SPACES) + SPACES.index(address.space)
        g = address.g
        self.requests[place] += g.warps
        self.nbytes[place] += g.n * size
        if self.samples_due[place] > 0 and address.space != "param":
            self.samples_due[place] -= 1
            self.sample(address, offset, size, place, kind == "load")

    def sample(self, address: Address, offset: int, size: int, place: int, load: bool) -> None:
        """Count the sectors or wavefronts of one access. Global addresses count from the start of their
        range: where the host put an array says nothing about the chip."""
        g, addresses = address.g, address.addresses
        if address.space == "global":
            region = address.m.globals.find(address.lo + offset)
            addresses = addresses - np.uint64(region.start if region else 0)
        rows, present = g.dense(addresses).astype(np.int64) + offset, g.present
        if not self.exact:
            first = g.slot == g.slot[0]
            count = len(np.unique(g.row[first]))
            rows, present = rows[:count], present[:count]
        if address.space == "shared":
            self.turns[place] += wavefronts(rows, present, size, load)
        else:
            self.turns[place] += pieces(rows, present, size, SECTOR)
            self.lines[place] += pieces(rows, present, size, LINE)
        self.sampled_requests[place] += len(rows)

    def counted(self, address: Address, offset: int, size: int, site: int, kind: str) -> None:
        self.accessed(address, offset, size, site, kind)

    def transferred(self, t: Transfer) -> None:
        """Count the bytes of a bulk copy. A multicast is read once and lands several times."""
        self.copied_bytes += t.nbytes
        self.landed_bytes += t.nbytes * len(t.shared)


def pieces(rows: Array, present: Array, size: int, width: int) -> int:
    """Distinct pieces of memory of `width` bytes that are touched, summed over the rows (one a warp)."""
    first = np.where(present, rows // width, -1)
    last = np.where(present, (rows + size - 1) // width, -1)
    touched = np.sort(np.concatenate([first, last], axis=1), axis=1)
    return int(first_of_equals(touched).sum())


def first_of_equals(rows: Array) -> Array:
    """Which entries of sorted rows are the first of their value; those below zero count as absent."""
    return np.concatenate([rows[:, :1] >= 0, (rows[:, 1:] != rows[:, :-1]) & (rows[:, 1:] >= 0)], axis=1)


def wavefronts(rows: Array, present: Array, size: int, load: bool = True) -> int:
    """Turns that shared memory takes. 8-byte requests go by half warps, 16-byte ones by quarters.

    In a turn each of the 32 banks gives one word of four bytes, to as many lanes as want it. A wide load
    whose lanes n and n^1 (or all n and n^2) want the same address goes by parts of twice the size: what it
    returns is packed."""
    parts = max(size // 4, 1)
    if parts == 1 or not load:
        return turns_of(rows, present, parts, 32 // parts)
    paired = np.zeros(len(rows), bool)
    for distance in (1, 2):
        other = np.arange(32) ^ distance
        paired |= ((rows == rows[:, other]) | ~present | ~present[:, other]).all(axis=1)
    twice = turns_of(rows[paired], present[paired], parts, 64 // parts)
    return twice + turns_of(rows[~paired], present[~paired], parts, 32 // parts)


def turns_of(rows: Array, present: Array, parts: int, lanes: int) -> int:
    """Per part of `lanes` lanes, the most distinct words in one bank; summed."""
    words = (rows[:, :, None] + 4 * np.arange(parts)) // 4
    words = np.where(present[:, :, None], words, -1).reshape(-1, lanes * parts)
    words = np.sort(words, axis=1)
    fresh = first_of_equals(words)
    row = np.repeat(np.arange(len(words)), words.shape[1]).reshape(words.shape)
    banks = (row * BANKS + words % BANKS)[fresh].astype(np.intp, copy=False)
    conflicts = np.bincount(banks, minlength=len(words) * BANKS).reshape(-1, BANKS)
    return int(conflicts.max(axis=1).sum()) if len(words) else 0


def collect(scheduler: Scheduler, counter: Counter) -> Counts:
    """The counts of a finished run."""
    program = scheduler.m.program
    kernel = program.kernel
    mix: dict[str, int] = {}
    issued = active = flops = tensor = operands = 0
    for block, warps, lanes in zip(
        program.blocks, scheduler.warp_runs.tolist(), scheduler.lane_runs.tolist(), strict=True
    ):
        for i in kernel.instructions[block.start : block.stop] if warps else ():
            group = class_of(i)
            mix[group] = mix.get(group, 0) + warps
            flops += lanes * flops_of(i)
            tensor += warps * tensor_flops(i)
            operands += warps * shared_operand_bytes(i)
        issued += warps * (block.stop - block.start)
        active += lanes * (block.stop - block.start)
    if counter.joined:
        mix["load shared"] -= counter.joined
    sites = site_traffic(kernel, counter)
    total = {
        key: Traffic()
        for key in ("load global", "store global", "load shared", "store shared", "load local", "store local")
    }
    for kind, site in sites:
        total[f"{kind} {site.space}"] += site.traffic
    ordered = sorted((site for _, site in sites), key=lambda site: -site.traffic.turns)
    return Counts(
        mix,
        active / max(issued * 32, 1),
        flops,
        tensor,
        total["load global"],
        total["store global"],
        total["load shared"],
        total["store shared"],
        total["load local"] + total["store local"],
        counter.copied_bytes,
        round(
            sum(site.traffic.turns for _, site in sites if site.space == "global" and "cp.async" in site.text)
        ),
        counter.landed_bytes + operands,
        scheduler.barriers.releases,
        int(scheduler.splits.sum()),
        counter.exact,
        tuple(ordered),
    )


def site_traffic(kernel: Kernel, counter: Counter) -> list[tuple[str, SiteTraffic]]:
    rows = []
    for place in np.flatnonzero(counter.requests).tolist():
        index, space = place // len(SPACES), SPACES[place % len(SPACES)]
        if space == "param":
            continue
        i = kernel.instructions[index]
        requests = int(counter.requests[place])
        sampled = max(counter.sampled_requests[place], 1)
        turns, lines = (float(table[place] / sampled * requests) for table in (counter.turns, counter.lines))
        if i.opcode == "cp":
            turns, lines = copied(counter, index, space, turns, requests)
        traffic = Traffic(requests, int(counter.nbytes[place]), turns, lines)
        rows.append(
            (direction(i, space), SiteTraffic(i.site.line, i.site.text, i.site.source, space, traffic))
        )
    return rows


def copied(counter: Counter, index: int, space: str, turns: float, requests: int) -> tuple[float, float]:
    """Turns and lines of one side of a cp.async. Its lines do not come to registers: they go straight to
    shared memory, each in a turn of its own. An H200 takes four for 4-byte copies from four lines that meet
    no bank twice."""
    if space != "shared":
        return turns, 0.0
    source = index * len(SPACES) + SPACES.index("global")
    lines = counter.lines[source] / max(counter.sampled_requests[source], 1)
    return max(turns, lines * requests), 0.0


def direction(i: Instruction, space: str) -> str:
    """Whether an instruction loads or stores in a space. A copy loads on its global side and stores on its
    shared side."""
    if i.opcode == "cp":
        return "store" if space == "shared" else "load"
    if i.opcode == "wmma":
        return "store" if "store" in i.mods else "load"
    return "store" if i.opcode in ("st", "red", "atom", "stmatrix") else "load"
