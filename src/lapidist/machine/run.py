"""Launch in, Report out: the machine's front door, for the project's launches and for foreign PTX."""

from __future__ import annotations

import math
import random
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from lapidist.device import H100
from lapidist.errors import ArgumentError
from lapidist.launch import Dim3, Launch, Memory, TensorMap
from lapidist.machine.counters import Counter, Counts, collect
from lapidist.machine.faults import MachineFault, PtxError
from lapidist.machine.footprint import DEFAULT_MEMORY, require_room, sanitizer_memory
from lapidist.machine.instructions import (
    access,
    alu,
    bits,
    bulk,
    carries,
    convert,
    floats,
    flow,
    frames,
    function_calls,
    mbarrier,
    moves,
    remote,
    tensor_maps,
    tensorcore,
    warp,
    warpgroup_mma,
    wmma,
)
from lapidist.machine.instructions.copies import element_size
from lapidist.machine.lanes import Geometry
from lapidist.machine.memory import GlobalMemory, Region, block_of_bytes
from lapidist.machine.named_parameters import require_named_alike
from lapidist.machine.observer import Observer, Several
from lapidist.machine.program import Program, compile_program
from lapidist.machine.ptx.merging import merged_loads
from lapidist.machine.ptx.syntax_tree import Kernel, Variable
from lapidist.machine.residency import resident_blocks
from lapidist.machine.sanitize.grains import smallest_access
from lapidist.machine.sanitize.random_orders import FuzzedScheduler
from lapidist.machine.sanitize.sanitized_launch import Earlier
from lapidist.machine.sanitize.sanitizer import Sanitizer
from lapidist.machine.scheduler import Progress, Scheduler
from lapidist.machine.state import GRID_BARRIER, Machine

if TYPE_CHECKING:
    from lapidist.machine.authors.findings import Finding

# The emitters register themselves; naming the modules keeps the imports.
INSTRUCTION_SETS = (
    access,
    alu,
    bits,
    bulk,
    carries,
    convert,
    floats,
    flow,
    frames,
    function_calls,
    mbarrier,
    moves,
    remote,
    tensor_maps,
    tensorcore,
    warp,
    warpgroup_mma,
    wmma,
)

MAX_THREADS = 1024
MAX_SHARED = H100.shared_per_block
MAX_GRID = (2**31 - 1, 65535, 65535)
DEFAULT_BUDGET = 2_000_000


@dataclass(frozen=True)
class Report:
    """What a run did, without the kernel's own results. A faulty run raises instead."""

    counts: Counts | None = None
    seed: int | None = None
    seconds: float = 0.0
    steps: int = field(default=0, compare=False)
    warp_steps: int = field(default=0, compare=False)  # blocks of code, of each warp for itself
    reached: frozenset[int] = field(default=frozenset(), repr=False)  # lines of PTX that some lane executed
    ways: dict[int, int] = field(
        default_factory=dict, repr=False, compare=False
    )  # by line of a branch: 1 | 2
    touched: Earlier = field(default_factory=Earlier, repr=False, compare=False)  # if `earlier` was given
    heap: tuple[Memory, ...] = field(default=(), repr=False, compare=False)  # what nobody freed
    warnings: tuple[Finding, ...] = ()  # of `run_ptx`

    def __str__(self) -> str:
        end = [] if self.seed is None else [f"no error found; replay with sanitize=True, seed={self.seed}"]
        return "\n".join([f"{self.counts or 'nothing was counted'}", *map(str, self.warnings), *end])


def run(
    launch: Launch,
    *,
    sanitize: bool = False,
    seed: int | None = None,
    residency: int | None = None,
    in_order: bool = False,
    exact_counts: bool = False,
    counting: bool = True,
    budget: int = DEFAULT_BUDGET,
    memory_budget: int = DEFAULT_MEMORY,
    merge_loads: bool = False,
    chip_sums: bool = False,
    watch: Observer | None = None,
    on_progress: Progress | None = None,
    judge: Callable[[MachineFault], bool] | None = None,
    earlier: Earlier | None = None,
) -> Report:
    """Execute a launch; results appear in the arrays that own its memory. A faulty kernel raises a fault.

    `exact_counts` looks at every memory access instead of a sample, and without `counting` nobody looks.
    `merge_loads` counts neighbouring shared loads as the one wide load that the assembler makes of them.
    `chip_sums` sums on tensor cores bit for bit as an H200 does, which takes longer. `residency` is how many
    blocks run at a time; with `in_order`, a schedule starts them in order, as many as a chip holds. `budget`
    is how many blocks of code may be executed in all, and `memory_budget` how many bytes the machine may
    take beside the launch's own memory. `watch` hears of what happens, `on_progress` of blocks that start.
    `judge` takes a fault that leaves the kernel's work as it is, and says whether the run goes on; without
    one, warnings end it, too. `earlier` is what launches before did, which a sanitized one overlaps."""
    require_launch(launch)
    integers = {"budget": budget, "memory_budget": memory_budget, "residency": residency, "seed": seed}
    for name, number in integers.items():
        require_integer(name, number, least=0 if name == "seed" else 1)
    start, program = time.perf_counter(), compile_program(launch.binary.ptx, launch.binary.entry)
    geometry = check_geometry(launch, program)
    for offset, tensor in launch.tensor_maps:
        require_fields(offset, tensor)
        check_tensor_map(offset, tensor)
    if sanitize and seed is None:
        seed = random.randrange(1 << 32)
    schedule_seed = seed if sanitize else None
    slots = resident_blocks(launch, geometry, residency, schedule_seed, program, in_order)
    grain = smallest_access(program, [element_size(tensor.dtype) for _, tensor in launch.tensor_maps])
    require_room(program, geometry, slots, memory_budget, {})
    memory, variables = build_memory(launch, program)
    machine = Machine(launch, program, geometry, memory, variables, slots, chip_sums, schedule_seed)
    require_room(program, geometry, slots, memory_budget, sanitizer_memory(machine, launch, grain))
    merged = merged_loads(program.kernel, program.blocks) if merge_loads else None
    counter = Counter(program.kernel, exact_counts, merged)
    machine.observer, machine.judge = counter if counting else Observer(), judge
    scheduler = scheduler_of(machine, grain, budget, on_progress, earlier, in_order)
    if watch is not None:
        machine.observer = Several(machine.observer, watch)
    try:
        scheduler.run()
        machine.end()
    finally:
        memory.regions.clear()  # the machine is part of cycles, which would keep a caller's arrays
    counts, seconds = collect(scheduler, counter) if counting else None, time.perf_counter() - start
    did = machine.steps, int(scheduler.warp_runs.sum()), scheduler.reached_lines(), scheduler.ways()
    return Report(counts, seed, seconds, *did, touched_by(scheduler, earlier), machine.heap.survivors)


def scheduler_of(
    machine: Machine,
    grain: int,
    budget: int,
    on_progress: Progress | None,
    earlier: Earlier | None,
    in_order: bool,
) -> Scheduler:
    """The plain schedule, or the one that the machine's seed draws, which the sanitizer watches."""
    if machine.seed is None:
        return Scheduler(machine, range(machine.geometry.blocks), budget, on_progress)
    sanitizer = Sanitizer(machine, grain, machine.observer)
    sanitizer.launches.earlier, sanitizer.ranges.keeps_reads = earlier or Earlier(), earlier is not None
    machine.observer = sanitizer
    return FuzzedScheduler(machine, sanitizer, machine.seed, budget, on_progress, in_order)


def touched_by(scheduler: Scheduler, earlier: Earlier | None) -> Earlier:
    """What the next launch is to know, where the launches before are known."""
    if earlier is None or not isinstance(scheduler, FuzzedScheduler):
        return Earlier()
    return scheduler.sanitizer.launches.of_this(scheduler.sanitizer.globals, scheduler.sanitizer.only_read)


# ---- checks before anything runs ----


def require_launch(launch: object) -> None:
    if not isinstance(launch, Launch):
        raise ArgumentError(
            f"launch: must be a Launch, as Plan.launch makes it; got {launch!r}. For other PTX take run_ptx"
        )


def require_integer(name: str, number: object, least: int) -> None:
    """Refuse what is no integer from `least` on. None leaves the choice to the machine."""
    if number is not None and (
        not isinstance(number, int | np.integer) or isinstance(number, bool) or number < least
    ):
        raise ArgumentError(
            f"{name}: must be a whole number from {least} on; got {number!r}. Leave it out, or give one"
        )


def require_extents(name: str, dims: object, most: Dim3) -> None:
    integers = (
        isinstance(dims, tuple)
        and len(dims) == 3
        and all(isinstance(d, int | np.integer) and not isinstance(d, bool) for d in dims)
    )
    if not (integers and all(1 <= extent <= limit for extent, limit in zip(dims, most, strict=True))):  # type: ignore[arg-type, call-overload]
        rule = f"must be a tuple of three whole numbers, along x, y and z, from 1 to {most}"
        raise ArgumentError(f"{name}: {rule}; got {dims!r}. Give 1 where there is one only")


def check_geometry(launch: Launch, program: Program) -> Geometry:
    for name, dims, most in (
        ("grid", launch.grid, MAX_GRID),
        ("block", launch.block, (1024, 1024, 64)),
        ("cluster", launch.cluster, (16, 16, 16)),
    ):
        require_extents(name, dims, most)
    threads, kernel = math.prod(launch.block), program.kernel
    limit = kernel.most_threads or MAX_THREADS
    if threads > limit:
        whose = (
            f"{kernel.name} was compiled for at most {limit} threads"
            if kernel.most_threads
            else f"at most {limit} threads"
        )
        raise ArgumentError(f"block: {whose}, got {threads}; use a smaller block")
    if kernel.required_block and launch.block != kernel.required_block:
        raise ArgumentError(
            f"block: {kernel.name} was compiled for blocks of {kernel.required_block}, got {launch.block}"
        )
    cluster = cluster_of(launch.cluster, kernel)
    if any(g % c for g, c in zip(launch.grid, cluster, strict=True)):
        raise ArgumentError(f"grid: must be a multiple of the cluster {cluster}, got {launch.grid}")
    shared = shared_extent(program, launch.shared_bytes)
    if shared - 1024 > MAX_SHARED:
        raise ArgumentError(
            f"shared memory: at most {MAX_SHARED} bytes a block, static and dynamic together, got"
            f" {shared - 1024}"
        )
    need = program.kernel.parameter_bytes
    if len(launch.arguments) < need:
        raise ArgumentError(
            f"arguments: {program.kernel.name} takes {need} bytes of parameters, got {len(launch.arguments)}"
        )
    require_named_alike(launch, kernel)
    return Geometry(launch.grid, launch.block, cluster, shared, launch.shared_bytes)


def cluster_of(cluster: Dim3, kernel: Kernel) -> Dim3:
    """The cluster of the launch, or the one that the kernel was compiled for."""
    if not kernel.required_cluster or cluster == kernel.required_cluster:
        return cluster
    x, y, z = kernel.required_cluster
    if cluster != (1, 1, 1):
        rule = f"{kernel.name} was compiled for clusters of {(x, y, z)}, got {cluster}"
        raise ArgumentError(f"cluster: {rule}. Leave it out")
    return x, y, z


def require_fields(offset: int, tensor: TensorMap) -> None:
    """Refuse a map whose fields are of other types, as when two of them were exchanged."""
    extents = (tensor.shape, tensor.strides, tensor.box)
    numbers = [tensor.address, tensor.swizzle, tensor.fetched]
    numbers += [n for part in extents if isinstance(part, tuple) for n in part]
    fits = all(isinstance(part, tuple) for part in extents)
    fits &= all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in numbers)
    try:
        element_size(tensor.dtype)
    except TypeError:
        fits = False
    if not fits or not isinstance(tensor.dtype, str):
        rule = (
            "an address, the name of an element type, and tuples of whole numbers for shape, strides and box,"
            " in this order"
        )
        raise ArgumentError(f"tensor_maps: the map at offset {offset} must have {rule}; got {tensor}")


def check_tensor_map(offset: int, tensor: TensorMap) -> None:
    """Hold a map to the rules of cuTensorMapEncodeTiled: what the driver refuses does not run here."""
    size, rank = element_size(tensor.dtype), len(tensor.shape)
    inner = size * tensor.box[0] if tensor.box else 0
    rules = [
        (
            1 <= rank <= 5 and len(tensor.box) == rank and len(tensor.strides) == rank - 1,
            "1 to 5 extents, a box extent for each, a stride for each but the first",
        ),
        (tensor.address % 16 == 0, "an address that is a multiple of 16"),
        (
            all(stride % 16 == 0 and 0 <= stride < 1 << 40 for stride in tensor.strides),
            "strides that are multiples of 16 bytes",
        ),
        (all(extent >= 1 for extent in tensor.shape), "extents of at least 1"),
        (all(1 <= extent <= 256 for extent in tensor.box), "box extents from 1 to 256"),
        (inner % 16 == 0, "box rows of a multiple of 16 bytes"),
        (tensor.swizzle in (0, 32, 64, 128), "a swizzle of 0, 32, 64 or 128 bytes"),
        (tensor.swizzle == 0 or inner <= tensor.swizzle, "box rows no longer than the swizzle"),
    ]
    for holds, rule in rules:
        if not holds:
            raise ArgumentError(f"tensor_maps: the map at offset {offset} must have {rule}; got {tensor}")


def shared_extent(program: Program, dynamic: int) -> int:
    """End of shared memory: dynamic memory starts behind the static variables, aligned as it asks."""
    starts = [
        program.layout[name]
        for name, v in program.kernel.variables.items()
        if v.space == "shared" and v.size == 0
    ]
    return (max(starts) if starts else program.shared_static) + dynamic


def require_plain(name: str, array: np.ndarray) -> None:
    """Refuse arrays that hold pointers of Python's, which a kernel could overwrite."""
    if array.dtype.kind not in "biufcV" or array.dtype.hasobject:
        raise ArgumentError(
            f"{name}: must be an array of plain numbers; got dtype {array.dtype}. Convert it by astype"
        )


def initial(variable: Variable) -> np.ndarray:
    data = block_of_bytes(max(variable.size, 1))
    data[: len(variable.data)] = np.frombuffer(variable.data, np.uint8)
    return data


def build_memory(launch: Launch, program: Program) -> tuple[GlobalMemory, dict[str, int]]:
    """The launch's ranges, and the module's own global variables."""
    regions = []
    for memory in launch.memory:
        if isinstance(memory.owner, np.ndarray):
            require_plain(f"memory {memory.name}", memory.owner)
        flags = getattr(memory.owner, "flags", None)
        regions.append(
            Region(
                memory.name,
                memory.address,
                memory.nbytes,
                memory.owner,
                flags is None or bool(flags.writeable),
                memory.undefined,
            )
        )
    variables: dict[str, int] = {}
    storage: dict[str, np.ndarray] = {}
    arrays = {memory.name: memory.owner.reshape(-1).view(np.uint8) for memory in launch.variables}
    for name, variable in program.kernel.variables.items():
        if variable.space in ("global", "const"):
            storage[name] = arrays[name] if name in arrays else initial(variable)
            variables[name] = storage[name].ctypes.data
            regions.append(
                Region(name, variables[name], variable.size, storage[name], variable.space == "global")
            )
    if program.syncs_grid:
        words = block_of_bytes(8)
        words.view(np.uint32)[0] = len(words)  # its size; the second word counts
        variables[GRID_BARRIER] = words.ctypes.data
        regions.append(Region(GRID_BARRIER, words.ctypes.data, len(words), words))
    for name in storage.keys() - arrays.keys():
        data = storage[name]
        for offset, target in program.kernel.variables[name].pointers:
            address = variables.get(target) or program.kernel.functions.get(target)
            if address is None:
                raise PtxError(f"{name}: its initial value names {target}, which the module does not define")
            data[offset : offset + 8] = np.frombuffer(struct.pack("<Q", address), np.uint8)
    return GlobalMemory(regions), variables
