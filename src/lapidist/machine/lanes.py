"""Who executes: cohorts of warps that share register arrays, and groups of their lanes at one place in the
code.

Lanes keep the order block, warp, lane. `index` is None when all lanes of the cohort take part, which is
the fast case: registers are then used as they are, without gathering and scattering."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lapidist.machine.codegen import runtime
from lapidist.machine.computed_once import lazily

Array = np.ndarray
TRUE = np.array([True])
Dim3 = tuple[int, int, int]
# The chip keeps the first KiB of shared memory for itself; it also makes a null pointer an error.
SHARED_START = 1024
GROUPS_START = 512  # where groups of several warps meet, in that KiB: zeros when a block starts


class Cohort:
    """The lanes of some warps of resident blocks. `slot` is the place of a lane's block among the resident
    ones.
    """

    def __init__(
        self, slots: Array, blocks: Array, threads: Array, launch: Geometry, registers: list[Array]
    ) -> None:
        self.slot, self.block, self.thread, self.geometry = slots, blocks, threads, launch
        self.n = len(slots)
        self.registers = registers
        self.lane = threads % 32
        self.warp = threads // 32  # within the block
        self.first_warp = int(blocks[0]) * launch.warps + int(threads[0]) // 32  # in the launch
        self.all = Lanes(self, None)
        self.groups: dict[int, tuple[Lanes, int]] = {}
        # For fuzzed schedules. `looked` is how many stores there had been when it last polled in vain.
        self.priority, self.passed, self.looked = 0.5, 0, -1


class Geometry:
    """Grid, block and cluster sizes of a launch."""

    def __init__(self, grid: Dim3, block: Dim3, cluster: Dim3, shared_bytes: int, dynamic_bytes: int) -> None:
        self.grid, self.block, self.cluster = grid, block, cluster
        self.threads = block[0] * block[1] * block[2]
        self.warps = -(-self.threads // 32)
        self.blocks = grid[0] * grid[1] * grid[2]
        self.cluster_size = cluster[0] * cluster[1] * cluster[2]
        self.shared_bytes, self.dynamic_bytes = shared_bytes, dynamic_bytes

    def block_index(self, number: int) -> Dim3:
        """Blocks are numbered cluster by cluster, so that a cluster's blocks are neighbours."""
        x, y, z = self.block_indices(np.array([number]))
        return int(x[0]), int(y[0]), int(z[0])

    def block_indices(self, numbers: Array) -> tuple[Array, Array, Array]:
        cluster, rank = np.divmod(numbers, self.cluster_size)
        outer = unravel(cluster, tuple(g // c for g, c in zip(self.grid, self.cluster, strict=True)))
        inner = unravel(rank, self.cluster)
        x, y, z = (o * c + i for o, c, i in zip(outer, self.cluster, inner, strict=True))
        return x, y, z


def unravel(number: Array, dims: tuple[int, ...]) -> tuple[Array, Array, Array]:
    return number % dims[0], number // dims[0] % dims[1], number // (dims[0] * dims[1])


class Lanes:
    """Some lanes of a cohort. `within` are their positions in the group that they were narrowed from."""

    def __init__(
        self, cohort: Cohort, index: Array | None, within: Array | None = None, group_size: int = 0
    ) -> None:
        self.cohort, self.index, self.within, self.group_size = cohort, index, within, group_size
        self.n = cohort.n if index is None else len(index)
        self.steps_alone = 0  # blocks of code executed away from the rest of the cohort
        self.specials: dict[str, Array] = {}
        self.readiness: tuple[tuple[int, int], Array] | None = None  # at a collective instruction, and when

    # -- registers of the group --

    def pick_all(self, values: Array) -> Array:
        """A cohort register's values for these lanes."""
        return values if values.shape[0] == 1 else values[self.index]

    def put(self, old: Array, new: Array) -> Array:
        """A cohort register after these lanes wrote it. Always a new array: registers may share one after a
        mov.
        """
        merged = old.copy() if old.shape[0] == self.cohort.n else np.repeat(old, self.cohort.n)
        merged[self.index] = new
        return merged

    # -- lanes narrowed by a guard --

    def where(self, mask: Array) -> Lanes | None:
        """The lanes for which the mask holds, None if it holds for nobody."""
        if mask.shape[0] == 1:
            return self if mask[0] else None
        within = np.flatnonzero(mask)
        if len(within) == self.n:
            return self
        if len(within) == 0:
            return None
        return Lanes(self.cohort, within if self.index is None else self.index[within], within, self.n)

    def one(self, lane: int) -> Lanes:
        return Lanes(self.cohort, np.array([lane if self.index is None else self.index[lane]]))

    def pick(self, values: Array) -> Array:
        return values if self.within is None or values.shape[0] == 1 else values[self.within]

    def merge(self, old: Array, new: Array) -> Array:
        """A group's value after the narrowed lanes wrote it."""
        if self.within is None:
            return new
        merged = old.copy() if old.shape[0] == self.group_size else np.repeat(old, self.group_size)
        merged[self.within] = new
        return merged

    # -- facts about each lane --

    def of(self, per_lane: Array) -> Array:
        return per_lane if self.index is None else per_lane[self.index]

    @lazily
    def slot(self) -> Array:
        return self.of(self.cohort.slot)

    @lazily
    def block(self) -> Array:
        return self.of(self.cohort.block)

    @lazily
    def rank(self) -> Array:
        """The ranks of the lanes' blocks in their clusters; one value if all are the same."""
        ranks = self.block % self.cohort.geometry.cluster_size
        return ranks[:1] if (ranks == ranks[:1]).all() else ranks

    @lazily
    def thread(self) -> Array:
        return self.of(self.cohort.thread)

    @lazily
    def lane(self) -> Array:
        return self.of(self.cohort.lane)

    # -- warps --

    @lazily
    def warp_key(self) -> Array:
        """A number that is the same for the lanes of one warp, and ordered as the lanes are."""
        return self.slot * self.cohort.geometry.warps + self.of(self.cohort.warp)

    @lazily
    def row(self) -> Array:
        """Which warp of the group each lane belongs to: 0, 1, ..."""
        if self.n == 0:
            return np.zeros(0, np.int64)
        return np.concatenate([[0], np.cumsum(self.warp_key[1:] != self.warp_key[:-1])])

    @lazily
    def full_warps(self) -> bool:
        """Whether all lanes of all its warps are in the group, so that values can be seen as (warps, 32)."""
        return self.n % 32 == 0 and bool((self.lane.reshape(-1, 32) == np.arange(32)).all())

    @lazily
    def warps(self) -> int:
        return self.n // 32 if self.full_warps else (int(self.row[-1]) + 1 if self.n else 0)

    @lazily
    def present(self) -> Array:
        """(warps, 32) mask of the lanes that are in the group."""
        return self.dense(np.ones(self.n, bool))

    def dense(self, values: Array) -> Array:
        """The values with one row a warp; zero where a lane is not in the group."""
        if values.shape[0] == 1 and self.n != 1:
            values = np.repeat(values, self.n)
        if self.full_warps:
            return values.reshape(-1, 32)
        out = np.zeros((self.warps, 32), values.dtype)
        out[self.row, self.lane] = values
        return out

    def flat(self, rows: Array) -> Array:
        """One value a lane, from one row a warp."""
        return np.ascontiguousarray(rows).reshape(-1) if self.full_warps else rows[self.row, self.lane]


def part_of(parent: Lanes, index: Array | None) -> Lanes:
    """Some lanes of a group as a group of their own, which has run alone as long as the parent has."""
    part = Lanes(parent.cohort, index)
    part.steps_alone = parent.steps_alone
    return part


def split(lanes: Lanes, mask: Array) -> tuple[Lanes | None, Lanes | None]:
    """Two groups: the lanes for which the mask holds, and the others. None stands for an empty one."""
    yes = part_where(lanes, mask)
    return yes, None if yes is lanes else part_where(lanes, ~mask)


def part_where(lanes: Lanes, mask: Array) -> Lanes | None:
    """The lanes for which the mask holds, as a group of their own; None if it holds for nobody."""
    part = lanes.where(mask)
    return part if part is None or part is lanes else part_of(lanes, part.index)


def united(parts: list[Lanes]) -> Lanes:
    """Groups of one cohort as one group, which has run alone as long as the oldest of them."""
    cohort = parts[0].cohort
    index = np.sort(np.concatenate([indices(part) for part in parts]))
    if len(index) == cohort.n:
        return cohort.all
    return part_of(max(parts, key=lambda part: part.steps_alone), index)


def indices(lanes: Lanes) -> Array:
    return np.arange(lanes.cohort.n) if lanes.index is None else lanes.index


# ---- special registers ----


@runtime
def special(g: Lanes, name: str) -> Array:
    """A special register that does not change, one value a lane or one for all."""
    if name not in g.specials:
        value = special_value(g, name)
        g.specials[name] = value.astype("u4") if value.dtype != np.uint64 else value
    return g.specials[name]


def special_value(g: Lanes, name: str) -> Array:
    geometry = g.cohort.geometry
    base, _, axis = name.partition(".")
    if axis:
        return axis_value(g, base, "xyz".index(axis))
    one = {
        "nwarpid": geometry.warps,
        "cluster_nctarank": geometry.cluster_size,
        "is_explicit_cluster": int(geometry.cluster_size > 1),
        "nsmid": 132,
        "gridid": 1,
        "dynamic_smem_size": geometry.dynamic_bytes,
        "total_smem_size": geometry.shared_bytes,
        "reserved_smem_offset_1": GROUPS_START,
        "reserved_smem_offset_end": SHARED_START,
        "reserved_smem_offset_cap": SHARED_START,
    }
    if base in one:
        return np.array([one[base]])
    if base.startswith(("envreg", "reserved_smem_offset")):
        return np.array([0])
    lane = g.lane.astype(np.uint64)
    bit = np.uint64(1) << lane
    many: dict[str, Callable[[], Array]] = {
        "laneid": lambda: g.lane,
        "warpid": lambda: g.thread // 32,
        "smid": lambda: g.slot % 132,
        "cluster_ctarank": lambda: g.block % geometry.cluster_size,
        "lanemask_eq": lambda: bit,
        "lanemask_lt": lambda: bit - np.uint64(1),
        "lanemask_le": lambda: (bit << np.uint64(1)) - np.uint64(1),
        "lanemask_ge": lambda: np.uint64(0xFFFFFFFF) & ~(bit - np.uint64(1)),
        "lanemask_gt": lambda: np.uint64(0xFFFFFFFF) & ~((bit << np.uint64(1)) - np.uint64(1)),
    }
    return many[base]().astype("u4")


def axis_value(g: Lanes, base: str, axis: int) -> Array:
    geometry = g.cohort.geometry
    fixed = {"ntid": geometry.block, "nctaid": geometry.grid, "cluster_nctaid": geometry.cluster}
    if base in fixed:
        return np.array([fixed[base][axis]])
    if base == "nclusterid":
        return np.array([geometry.grid[axis] // geometry.cluster[axis]])
    if base == "tid":
        return unravel(g.thread, geometry.block)[axis] if geometry.block[axis] > 1 else np.array([0])
    extent = geometry.cluster[axis] if base == "cluster_ctaid" else geometry.grid[axis]
    if extent == 1:
        return np.array([0])
    index = geometry.block_indices(g.block)[axis]
    return {
        "ctaid": index,
        "clusterid": index // geometry.cluster[axis],
        "cluster_ctaid": index % geometry.cluster[axis],
    }[base]


@runtime
def select(mask: Array, new: Array, old: Array) -> Array:
    """`new` where the guard holds, else `old`."""
    if mask.shape[0] == 1:
        return new if mask[0] else old
    return np.where(mask, new, old)
