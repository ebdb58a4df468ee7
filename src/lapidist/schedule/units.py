"""Schedule and WorkUnit: the work of every block, and what it waits for.

Blocks come in segments by launch index: Stream-K blocks, data-parallel blocks, reduction blocks (the first
two in either order). A Stream-K block has a stretch of iterations that may begin and end inside tiles. It
computes its tiles backwards. The tile that others will finish comes first. The tile that it finishes itself
comes last, when its other peers have long handed on their sums.

    block 0         block 1         block 2          peers 0, 1 of tile 0 are blocks 0, 1; block 1 finishes it
    [ tile 0   ......... ][ tile 1 .........  ]      of tile 1 they are blocks 1, 2; block 2 finishes it

A block only waits for blocks of lower index in its segment, so of lower launch index; the lowest never waits.
Blocks are dispatched in order of their index, so no deadlock is possible, however few are resident. Two
options give that up: `remap` needs `2 * wave` blocks resident at once, `launched` as many as it says.

In a split-K with reduction `cluster` the peers of a tile are a cluster: neighbours in launch order, resident
together. Each sums its share of the tile from all peers' shared memory, so there is no workspace, and every
peer runs the epilogue of its share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lapidist.errors import ArgumentError
from lapidist.schedule.grid import ROW_MAJOR, Raster, TileGrid, ceil_div
from lapidist.schedule.schedule_rules import REDUCTIONS, check
from lapidist.schedule.shares import Shared

FLAG_BYTES = 4
PARTIALS_ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """Iterations k_begin .. k_end of one tile. Peers are the blocks that share the tile, counted along k.

    A reduction block has a unit without iterations: it sums fragment `fragment` of the partial sums of all
    `peers`. `slot`: the index of the partial sum in the workspace. `flag`: the index of the counter of peers
    that are done. -1: none is needed.
    """

    tile: int
    row: int
    column: int
    batch: int
    k_begin: int
    k_end: int
    peer: int = 0
    peers: int = 1
    slot: int = -1
    flag: int = -1
    fragment: int = -1

    @property
    def first(self) -> bool:
        """Whether this unit starts the tile, so that it adds no other peer's sum."""
        return self.peer == 0

    @property
    def last(self) -> bool:
        """Whether this unit ends the tile. Its block then runs the epilogue, unless the reduction is a
        separate one.
        """
        return self.peer == self.peers - 1 and self.fragment < 0

    @property
    def iterations(self) -> int:
        return self.k_end - self.k_begin


@dataclass(frozen=True, slots=True)
class Schedule(Shared):
    """Which block computes what. Made by `data_parallel`, `split_k` and `stream_k`; everything else is a
    function of it.

    In a kernel with clusters, tiles and blocks here mean those of a whole cluster.
    """

    kind: str
    grid: TileGrid
    raster: Raster = ROW_MAJOR
    sk_tiles: int = 0  # tiles that Stream-K or split-K blocks share
    sk_blocks: int = 0
    regions: int = 1  # groups of shared tiles with blocks of their own; as many as shared tiles: split-K
    wave: int = 1  # SMs that the load is balanced over
    dp_first: bool = False  # data-parallel tiles before the shared ones
    first_wave_tiles: int = 1  # tiles of each block in the first data-parallel wave
    reduction: str = "none"
    fragments: int = 1  # reduction blocks of each tile
    remap: bool = False  # neighbours in launch order, which share an SM, become blocks of different waves
    launched: int = 0  # persistent blocks; each does the work of every `launched`-th block
    reason: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        check(self)

    # ---- counts ----

    def reduces_by(self, reduction: str) -> bool:
        return self.reduction == reduction

    @property
    def dp_blocks(self) -> int:
        """The first wave's blocks compute several tiles each, the others one."""
        saved = (self.first_wave_tiles - 1) * self.wave
        return max(self.dp_tiles - saved, min(self.wave, self.dp_tiles))

    @property
    def blocks(self) -> int:
        """Blocks with work, and those that fill up a remapped grid: the chip pairs neighbours only in grids
        of four waves.
        """
        active = self.sk_blocks + self.dp_blocks + self.reduction_blocks
        return max(active, 4 * self.wave) if self.remap else active

    @property
    def launch_blocks(self) -> int:
        """Blocks of the grid. Zero: launch nothing."""
        return min(self.launched, self.blocks) if self.launched else self.blocks

    # ---- workspace ----

    @property
    def slot_per_block(self) -> bool:
        """Whether a tile's slot is that of its first block, which starts at most one unfinished tile; else it
        is the tile's number.
        """
        return self.sk_blocks < self.sk_tiles

    @property
    def slots(self) -> int:
        """Partial sums in the workspace, a tile of accumulators each. The chip bounds them, through the
        blocks, whatever the problem.
        """
        if self.reduction in ("none", "cluster") or not self.shares_tiles:
            return 0
        return (
            self.sk_blocks * self.slots_per_block
            if self.reduction == "separate"
            else min(self.sk_blocks, self.sk_tiles)
        )

    @property
    def slots_per_block(self) -> int:
        """A separate reduction keeps the sums of all peers: a block has one for the tile that it ends and one
        for the tile that it starts.
        """
        return 1 if self.regions == self.sk_tiles else 2

    @property
    def flags(self) -> int:
        return self.reduction_blocks if self.reduction == "separate" else self.slots

    @property
    def partials_offset(self) -> int:
        """Byte of the workspace where partial sums start, behind the flags, which are zero between
        launches.
        """
        return ceil_div(self.flags * FLAG_BYTES, PARTIALS_ALIGNMENT) * PARTIALS_ALIGNMENT

    def workspace_bytes(self, tile_bytes: int) -> int:
        """`tile_bytes`: one tile of accumulators, bm * bn * 4 for float."""
        return self.partials_offset + self.slots * tile_bytes

    def require_workspace(self, nbytes: int, tile_bytes: int) -> None:
        need = self.workspace_bytes(tile_bytes)
        if nbytes < need:
            raise ArgumentError(
                f"workspace: this schedule needs {need} bytes; got {nbytes}. Pass a larger one, or None"
            )

    # ---- who does what (cuda/share/schedule.cuh has the same functions) ----

    def block_of_launch(self, index: int) -> int:
        """Undo the pairing of neighbours in the first two waves, and the grouping of peers in clusters."""
        if self.cluster > 1:
            return index % self.cluster * self.regions + index // self.cluster
        if self.remap and index < 2 * self.wave:
            return index // 2 + index % 2 * self.wave
        return index

    def units_of_launch(self, index: int) -> Iterator[tuple[int, WorkUnit]]:
        """(block, unit) in the order in which the launched block `index` works."""
        step = self.launch_blocks if self.launched else self.blocks
        for virtual in range(index, self.blocks, step):
            block = self.block_of_launch(virtual)
            for unit in self.units(block):
                yield block, unit

    def units(self, block: int) -> Iterator[WorkUnit]:
        """The units of a block, in the order in which it works. Blocks are numbered as if there were no
        remap.
        """
        dp_start = 0 if self.dp_first else self.sk_blocks
        sk_start = self.dp_blocks if self.dp_first else 0
        reduce_start = self.sk_blocks + self.dp_blocks
        if sk_start <= block < sk_start + self.sk_blocks:
            return self.shared_units(block - sk_start)
        if dp_start <= block < dp_start + self.dp_blocks:
            return self.tile_units(block - dp_start)
        if reduce_start <= block < reduce_start + self.reduction_blocks:
            return self.reduction_units(block - reduce_start)
        return iter(())

    def tile_units(self, block: int) -> Iterator[WorkUnit]:
        """Tiles that one block computes alone, a wave apart."""
        first = 0 if self.dp_first else self.sk_tiles
        skipped = 0 if block < self.wave else (self.first_wave_tiles - 1) * self.wave
        for number in range(self.first_wave_tiles if block < self.wave else 1):
            tile = block + skipped + number * self.wave
            if tile < self.dp_tiles:
                yield self.unit(first + tile, 0, self.grid.iterations)

    def shared_units(self, block: int) -> Iterator[WorkUnit]:
        """Neighbours in launch order belong to different regions, so that blocks that wait for each other
        start far apart.
        """
        region, number = block % self.regions, block // self.regions
        begin, end = self.stretch(number)
        while end > begin:
            tile = (end - 1) // self.grid.iterations
            tile_begin = tile * self.grid.iterations
            start = max(begin, tile_begin)
            yield self.shared_unit(region, tile, start - tile_begin, end - tile_begin, number)
            end = start

    def reduction_units(self, block: int) -> Iterator[WorkUnit]:
        """One fragment of one tile; a tile that is not shared needs no reduction."""
        tile, fragment = divmod(block, self.fragments)
        region, within = divmod(tile, self.sk_tiles // self.regions)
        first, last = self.peers_of(within)
        if last > first:
            slot = self.slot_of(region * self.blocks_per_region + first, 0)
            yield self.unit(self.first_shared_tile + tile, 0, 0, 0, last - first + 1, slot, block, fragment)

    def stretch(self, number: int) -> tuple[int, int]:
        """Iterations (begin, end) of a region that its block `number` computes."""
        begin = number * self.normal_iterations + min(number, self.big_blocks)
        return begin, begin + self.normal_iterations + (number < self.big_blocks)

    def owner(self, iteration: int) -> int:
        """The block of a region that computes this iteration."""
        in_big = self.big_blocks * (self.normal_iterations + 1)
        if iteration < in_big:
            return iteration // (self.normal_iterations + 1)
        return self.big_blocks + (iteration - in_big) // self.normal_iterations

    def peers_of(self, tile: int) -> tuple[int, int]:
        """First and last block of a region that compute this tile."""
        begin = tile * self.grid.iterations
        return self.owner(begin), self.owner(begin + self.grid.iterations - 1)

    def slot_of(self, shared_block: int, peer: int) -> int:
        """The slot of a peer's partial sum in a separate reduction. Of a block's two slots the second is for
        the tile that it starts.
        """
        return shared_block * self.slots_per_block + (peer == 0 and self.slots_per_block == 2)

    def peer_slot(self, unit: WorkUnit, peer: int) -> int:
        """The slot of one of a reduction block's peers."""
        return unit.slot if peer == 0 else (unit.slot // self.slots_per_block + peer) * self.slots_per_block

    @property
    def first_shared_tile(self) -> int:
        return self.dp_tiles if self.dp_first else 0

    def shared_unit(self, region: int, within: int, k_begin: int, k_end: int, number: int) -> WorkUnit:
        first, last = self.peers_of(within)
        shared_tile = region * (self.sk_tiles // self.regions) + within
        tile, slot, flag = self.first_shared_tile + shared_tile, -1, -1
        if last == first:
            return self.unit(tile, k_begin, k_end)
        if self.reduction == "cluster":
            return self.unit(tile, k_begin, k_end, number - first, last - first + 1)
        if self.reduction == "separate":
            slot = self.slot_of(region * self.blocks_per_region + number, number - first)
            flag = shared_tile * self.fragments
        else:
            slot = flag = region * self.blocks_per_region + first if self.slot_per_block else shared_tile
        return self.unit(tile, k_begin, k_end, number - first, last - first + 1, slot, flag)

    def unit(self, tile: int, k_begin: int, k_end: int, *sharing: int) -> WorkUnit:
        """`sharing`: peer, peers, slot, flag and fragment, as far as they are needed."""
        batch, index = divmod(tile, self.grid.tiles_of_matrix)
        row, column = self.grid.place(index, self.raster)
        return WorkUnit(tile, row, column, batch, k_begin, k_end, *sharing)

    def finishes(self, unit: WorkUnit) -> bool:
        """Whether this unit's block runs the epilogue (a reduction block: of its fragment) and resets the
        flag to zero.
        """
        if unit.fragment >= 0 or unit.peers == 1 or self.reduction == "cluster":
            return True
        return unit.last and self.reduction != "separate"

    def arrivals_needed(self, unit: WorkUnit) -> int:
        """How many peers must have raised the flag before a unit's sum may be handed on or finished. Zero: it
        does not wait.
        """
        if unit.fragment >= 0:
            return unit.peers
        if self.reduction in ("separate", "cluster") or unit.peers == 1:
            return 0
        if self.reduction == "atomic" and not unit.last:
            return min(unit.peer, 1)
        return unit.peer

    # ---- for kernels and readers ----

    def words(self) -> dict[str, int]:
        """The ints of the device's struct Schedule, in its order; divisors follow them (divisors.py)."""
        grid = self.grid
        return {
            "tiles_m": grid.tiles_m,
            "tiles_n": grid.tiles_n,
            "iterations": grid.iterations,
            "along_m": int(self.raster.along == "m"),
            "panel": self.raster.panel,
            "chunk": self.raster.chunk,
            "sk_tiles": self.sk_tiles,
            "sk_blocks": self.sk_blocks,
            "regions": self.regions,
            "big_blocks": self.big_blocks,
            "normal_iterations": self.normal_iterations,
            "dp_tiles": self.dp_tiles,
            "dp_blocks": self.dp_blocks,
            "dp_first": int(self.dp_first),
            "first_wave_tiles": self.first_wave_tiles,
            "wave": self.wave,
            "reduction": REDUCTIONS.index(self.reduction),
            "fragments": self.fragments,
            "remap": int(self.remap),
            "blocks": self.blocks,
        }

    def __str__(self) -> str:
        parts = [f"{self.kind}: {self.grid}, {self.raster}"]
        if self.dp_blocks:
            deep = (
                f", {self.first_wave_tiles} tiles a block in the first wave"
                if self.first_wave_tiles > 1
                else ""
            )
            parts.append(f"{self.dp_tiles} data-parallel tiles in {self.dp_blocks} blocks{deep}")
        if self.sk_blocks:
            big = f"{self.big_blocks * self.regions} big blocks of {self.normal_iterations + 1}, others of "
            sizes = f"{big if self.big_blocks else ''}{self.normal_iterations} iterations"
            regions = f" in {self.regions} regions" if self.regions > 1 else ""
            parts.append(
                f"{self.sk_tiles} tiles shared by {self.sk_blocks} blocks{regions}: {sizes}; reduction"
                f" {self.reduction}"
            )
        if self.reduction_blocks:
            parts.append(f"{self.reduction_blocks} reduction blocks, {self.fragments} a tile")
        parts.append(f"{self.launch_blocks} blocks launched, {self.slots} partial sums, {self.flags} flags")
        parts += [f"because {self.reason}"] if self.reason else []
        return "\n  ".join(parts)
