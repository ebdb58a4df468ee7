"""How many blocks of a launch run at once."""

from __future__ import annotations

from lapidist.device import CHIPS
from lapidist.errors import ArgumentError
from lapidist.launch import Launch
from lapidist.machine.lanes import Geometry
from lapidist.machine.program import Program
from lapidist.machine.ptx.basic_blocks import may_poll

CHIP = CHIPS["h200"]
PLAIN_LANES = 16384
MOST_FUZZED_CLUSTERS = 4
INDEPENDENT_WARPS = 256  # resident in large launches of independent warps: as many compute together
LARGE_FROM = 32  # warps of a launch: of fewer, little is gained
RESERVED_SHARED = 1024  # of each block
# What one block may learn of another by, or what makes its warps wait.
MEETS = frozenset(
    ["atom", "red", "fence", "membar", "bar", "barrier", "mbarrier", "wgmma", "cp", "griddepcontrol"]
)


def resident_blocks(
    launch: Launch,
    geometry: Geometry,
    residency: int | None,
    seed: int | None,
    program: Program,
    in_order: bool = False,
) -> int:
    """How many blocks run at once, always whole clusters: all if they meet at a barrier of the grid, else
    `residency`.

    Without one, a seed draws one to four clusters: some seeds then find blocks that wait for blocks yet to
    start. In a large launch of independent warps, at least INDEPENDENT_WARPS are resident. With `in_order` a
    schedule has as many as a chip. The plain schedule takes lanes enough to keep NumPy busy, and where blocks
    may wait for each other as many blocks as a chip has SMs."""
    size = geometry.cluster_size
    if launch.cooperative and residency is not None and residency < geometry.blocks:
        rule = f"all {geometry.blocks} blocks of a cooperative launch are resident together; got {residency}"
        raise ArgumentError(f"residency: {rule}. Leave it out")
    if launch.cooperative or (program.syncs_grid and residency is None):
        residency = geometry.blocks
    elif residency is None and in_order:
        residency = CHIP.sms * max(
            1, blocks_per_sm(geometry.threads, geometry.shared_bytes - RESERVED_SHARED)
        )
    elif residency is None and seed is not None:
        residency = (1 + seed % MOST_FUZZED_CLUSTERS) * size
        if are_independent(program, geometry):
            residency = max(residency, INDEPENDENT_WARPS // geometry.warps)
    elif residency is None:
        waits = any(may_poll(i) for i in program.kernel.instructions)
        residency = max(PLAIN_LANES // geometry.threads, CHIP.sms if waits else 1)
    return min(max(residency // size, 1) * size, geometry.blocks)


def are_independent(program: Program, geometry: Geometry) -> bool:
    """Whether a launch is large, and no warp of it waits, nor asks what others did. Then nothing depends on
    who is resident, nor on the order in which warps run."""
    code = program.kernel.instructions
    meets = program.syncs_grid or any(i.opcode in MEETS or may_poll(i) for i in code)
    return geometry.blocks * geometry.warps > LARGE_FROM and not meets


def blocks_per_sm(threads: int, shared_bytes: int) -> int:
    """By threads and shared memory: how many registers a thread has, an assembler alone knows."""
    return CHIP.blocks_resident(threads, 0, shared_bytes) if 0 < threads <= 1024 else 0
