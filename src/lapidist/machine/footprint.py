"""How much memory a launch takes from the host, beside the caller's arrays; refused before anything is
allocated.
"""

from __future__ import annotations

from lapidist.errors import ArgumentError
from lapidist.launch import Launch
from lapidist.machine.codegen import storage
from lapidist.machine.lanes import Geometry
from lapidist.machine.program import Program
from lapidist.machine.sanitize.clocks import LEVELS, ROWS
from lapidist.machine.sanitize.written_ranges import WrittenRanges
from lapidist.machine.state import Machine

DEFAULT_MEMORY = 4 << 30
LANE_BYTES = 128  # the numbers of its block, warp and thread, and its place in the cohort
WARP_BYTES = 256  # what the sanitizer knows of a warp, also of one that has ended
GRAIN_BYTES = 56  # what the sanitizer knows of a grain; of shared memory a moment more for each reader

READ_BYTES = 4  # the same of memory that the launch only reads


def require_room(
    program: Program, geometry: Geometry, slots: int, budget: int, sanitized: dict[str, int]
) -> None:
    parts = machine_memory(program, geometry, slots) | sanitized
    if (total := sum(parts.values())) > budget:
        largest = ", ".join(
            f"{words} {nbytes:,}"
            for words, nbytes in sorted(parts.items(), key=lambda part: -part[1])[:3]
            if nbytes
        )
        rule = (
            f"must hold what {slots} resident blocks of {geometry.threads} threads may take, {total:,} bytes"
            f" ({largest})"
        )
        way = "Allow more, or take fewer blocks at a time by residency="
        raise ArgumentError(f"memory_budget: {rule}; got {budget:,}. {way}")


def machine_memory(program: Program, geometry: Geometry, slots: int) -> dict[str, int]:
    """Bytes that the machine takes, by what for."""
    lanes = slots * geometry.threads
    outside = sum(v.size for v in program.kernel.variables.values() if v.space in ("global", "const"))
    return {
        "local memory": program.local_bytes * lanes,
        "shared memory": geometry.shared_bytes * slots,
        "registers": (register_bytes(program) + LANE_BYTES) * lanes,
        "variables of the module": outside,
    }


def register_bytes(program: Program) -> int:
    """Bytes of a lane's registers: those that live across blocks of code, and those of the block that has
    most."""
    size = {name: int(storage(kind)[1:]) for name, kind in program.kernel.registers.items()}
    across = set().union(*(block.writes & block.live_out for block in program.blocks))
    within = max(sum(size[name] for name in block.writes) for block in program.blocks)
    return sum(size[name] for name in across) + within


def sanitizer_memory(machine: Machine, launch: Launch, grain: int) -> dict[str, int]:
    """Bytes of a sanitizer that looks at pieces of `grain` bytes. A warp has clocks of all while it runs, and
    some time longer."""
    if machine.seed is None:
        return {}  # a plain run
    geometry, slots, ranges = machine.geometry, machine.slots, WrittenRanges(machine)
    warps = geometry.blocks * geometry.warps
    held = min(2 * slots * geometry.warps, warps)
    readers = 2 * geometry.warps * geometry.cluster_size
    clocks = 4 * held * 2 * warps * (ROWS + LEVELS) + WARP_BYTES * warps
    shared = geometry.shared_bytes * slots * (GRAIN_BYTES + 4 * readers) // grain
    regions = [machine.globals.find(memory.address) for memory in launch.memory]
    touched = sum(
        (READ_BYTES if region is not None and ranges.are_only_read(region.start) else GRAIN_BYTES)
        * memory.nbytes
        for memory, region in zip(launch.memory, regions, strict=True)
    )
    local = machine.program.local_bytes * slots * geometry.threads
    return {"the sanitizer's memory": clocks + shared + touched // grain + local}
