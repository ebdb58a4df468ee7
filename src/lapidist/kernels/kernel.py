"""A kernel's row in the registry: its source, its knobs, the types it takes and the rules by which it
refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from math import prod
from typing import Any

from lapidist.config import Config, Knobs
from lapidist.device import Device
from lapidist.dtypes import FP8, TYPES, element_of, size_of
from lapidist.kernels import halves
from lapidist.kernels.family import Family
from lapidist.kernels.rules.every import ALONE, EVERY, ORDERED, WHOLE_STAGES, loaders
from lapidist.kernels.rules.problem_facts import facts_of
from lapidist.kernels.rules.rule import Rule, obey, refusal
from lapidist.launch import INT_LIMIT
from lapidist.problems.compile_key import of_kind
from lapidist.problems.problem import Problem
from lapidist.problems.ragged import COLS, DEPTH, ROWS, Ragged
from lapidist.schedule import Raster, TileGrid
from lapidist.schedule.grid import ROW_MAJOR

WAVES_OF_GROUPS = 8  # blocks of a grouped product for each SM, where they do not say how many stay there
EVEN_ROUNDS = 4  # with fewer rounds of tiles, an even number for each block would leave many SMs idle
PACKED_BYTES = 16384  # a further block pays for each so many bytes of operands that are packed
Tuned = tuple[tuple[Config, float], ...]  # configs with their efficiency; the first is the default


class Listed(Mapping[str, Tuned]):
    """Configs by type. A list is made when it is first asked for, as most processes need one."""

    def __init__(self, maths: tuple[str, ...], configs_of: Callable[[str], Tuned]) -> None:
        self._maths, self._configs_of = maths, cache(configs_of)

    def __getitem__(self, math: str) -> Tuned:
        if math not in self._maths:
            raise KeyError(math)
        return self._configs_of(math)

    def __contains__(self, math: object) -> bool:
        return math in self._maths

    def __iter__(self) -> Iterator[str]:
        return iter(self._maths)

    def __len__(self) -> int:
        return len(self._maths)


@dataclass(frozen=True)
class Types:
    """The types that a kernel multiplies. `mixed`: A and B may differ; `outputs`: D may have another type;
    `half_sums`: sums may be float16.
    """

    maths: tuple[str, ...]
    mixed: bool = False
    outputs: bool = False
    half_sums: bool = False
    promoted: bool = False  # sums of 8-bit floats can leave the tensor core every 128 of k
    factors: bool = False  # A and B may have factors

    def refuse(self, problem: Problem) -> str | None:
        if problem.math not in self.maths:
            return f"it multiplies {', '.join(self.maths)}; the type is {problem.math}"
        if problem.b_dtype != problem.dtype and not self.mixed:
            return f"it multiplies operands of one type; these are {problem.dtype} and {problem.b_dtype}"
        if problem.out_dtype != problem.dtype and not self.outputs:
            return f"it writes its operands' type, {problem.dtype}; D is {problem.out_dtype}"
        if problem.accumulator != TYPES[problem.dtype].accumulators[0] and not self.half_sums:
            return (
                f"it sums {problem.dtype} in {TYPES[problem.dtype].accumulators[0]}, not in"
                f" {problem.accumulator}"
            )
        if problem.scaling.scaled and not self.factors:
            return f"it multiplies A and B without factors; here {problem.scaling}"
        if problem.scaling.promoted and not self.promoted:
            return f"it keeps sums of {problem.dtype} in the tensor core; these shall be promoted"
        return None


FMA_TYPES = Types(("float16", "float32", "float64"))
# the least compute capability whose tensor cores multiply a type, if it is not the kernel's
SINCE = dict.fromkeys(FP8, (8, 9))


@dataclass(frozen=True, eq=False, repr=False)
class Kernel:
    """`efficiency`: the measured share of its unit's limit that a full SM reaches; the planner's model uses
    it.
    """

    name: str
    kind: str  # rung, detour or production
    source: str
    idea: str
    family: Family
    config: Config
    efficiency: float
    capability: tuple[int, int] = (7, 5)
    by_dtype: Mapping[str, Config] = field(default_factory=dict)
    others: Tuned = ()  # more configs that the planner weighs
    tuned: Mapping[str, Tuned] = field(default_factory=dict)  # all configs of a math, in place of the above
    defines: Mapping[str, object] = field(default_factory=dict)
    overlaps: bool = False  # its blocks may start before the last launch ends, for which they wait themselves
    persistent: int = 0  # blocks on each SM, which loop over tiles; 0: a block for each tile
    raster: Raster = ROW_MAJOR  # the order of tiles
    options: tuple[str, ...] = ()  # further options of the compiler
    types: Types = FMA_TYPES
    unit: str = "fma"  # what multiplies: fma (CUDA cores), mma (tensor cores) or wgmma (Hopper's)
    longer: float = 1.0  # factor on the time that its family predicts
    reductions: tuple[str, ...] = ()  # reductions that its persistent blocks know
    # Shared tiles are chosen only if they take less than this part of whole tiles' time, as models err.
    worth: float = 1.0
    rules: tuple[Rule, ...] = ()  # for its configs, beside those of every kernel
    remainder_first: bool = False  # the first tile of k is the short one; else the last is padded with zeros
    wmma: bool = False  # it uses wmma, which adds other steps of k than mma.sync
    free_order: bool = False  # configs may exchange A and B, order tiles, and choose ping-pong
    slices_stages: bool = False  # configs may have slices of k
    only_small: bool = False  # a matrix of D is no larger than a tile

    def __repr__(self) -> str:
        return f"<lapidist.Kernel {self.name}: {self.idea}>"

    @property
    def entry(self) -> str:
        """The name of the kernel function: its file's, without the number."""
        return self.source.rpartition("/")[2].removesuffix(".cu").lstrip("0123456789_")

    def config_for(self, math: str) -> Config:
        return self.configs_for(math)[0][0]

    def configs_for(self, math: str) -> Tuned:
        """Every (config, efficiency) that the planner may weigh. `others` are for elements up to 4 bytes:
        larger ones would not fit in 48 KB of static shared memory.
        """
        if math in self.tuned:
            return self.tuned[math]
        tuned = self.others if element_of(math).nbytes <= 4 else ()
        return ((self.by_dtype.get(math, self.config), self.efficiency), *tuned)

    def efficiency_of(self, config: Config, math: str) -> float:
        """The registered efficiency; a caller's own config gets that of the default one."""
        tuned = self.configs_for(math)
        return dict(tuned).get(config, tuned[0][1])

    def shared_bytes(self, config: Config, problem: Problem) -> int:
        """Bytes of dynamic shared memory."""
        return shared_bytes_of(problem, self.family, config)

    def grid(self, problem: Problem, config: Config, device: Device) -> tuple[int, int, int]:
        """Tiles along x, the batch along y and z. A persistent kernel has a few blocks for each SM, which
        loop over tiles. Where operands are packed first, blocks without a tile help to pack.
        """
        grid = self.family.grid(problem)
        if grid is not None:
            return grid
        if problem.modes.ragged is not None:
            return self.grid_of_groups(problem, problem.modes.ragged, config, device), 1, 1
        tiles = self.tile_grid(problem, config).tiles_of_matrix
        inner, outer = (*problem.batch[::-1], 1, 1)[:2]
        if not self.persistent:
            return tiles, inner, outer
        clusters, most = (
            self.clusters(problem, config) * inner * outer,
            device.clusters_resident(config.cluster) * self.persistent,
        )
        rounds = -(-clusters // most)
        if self.unit == "wgmma" and rounds >= EVEN_ROUNDS:
            # Fewer blocks with the same number of rounds. At 8192^3, 64 pairs of 128 x 256 form a square of
            # tiles, and an eighth less comes from DRAM.
            most = -(-clusters // rounds)
        if self.packs(problem) and self.family.leaves_room(problem, config):
            return most * config.cluster, 1, 1  # else two blocks of the next launch would meet on a free SM
        return (
            min(max(clusters, self.family.scratch(problem)[1] // PACKED_BYTES), most) * config.cluster,
            1,
            1,
        )

    def grid_of_groups(self, problem: Problem, ragged: Ragged, config: Config, device: Device) -> int:
        """Blocks of a grouped product, which loop over tiles: no more than the groups can have. Those of a
        persistent kernel are on the chip at once, and so are those that share tiles.
        """
        high, wide = config.bm * config.cluster_m, config.bn * config.cluster_n
        rows = ragged.tiles(high) if ragged.extent == ROWS else -(-problem.m // high)
        columns = ragged.tiles(wide) if ragged.extent == COLS else -(-problem.n // wide)
        clusters = rows * columns * (ragged.groups if ragged.extent == DEPTH else 1)
        parts = self.family.parts_of_tiles(problem, config)
        clusters *= parts
        waves = self.persistent or WAVES_OF_GROUPS
        if parts > 1:
            waves = self.family.blocks_of_sm(problem, self, config, device)
        helpers = self.family.scratch(problem)[1] // PACKED_BYTES
        most = device.clusters_resident(config.cluster) * waves
        return max(1, min(max(clusters, helpers), most)) * config.cluster

    def clusters(self, problem: Problem, config: Config) -> int:
        """Clusters that cover the tiles. A cluster computes neighbouring tiles, some of which may lie
        outside.
        """
        return -(-problem.m // (config.bm * config.cluster_m)) * -(
            -problem.n // (config.bn * config.cluster_n)
        )

    def packs(self, problem: Problem) -> bool:
        """Whether its blocks pack operands and wait for each other before they multiply. Then all must be on
        the chip at once.
        """
        return sum(self.family.scratch(problem)) > 0

    def tile_grid(self, problem: Problem, config: Config) -> TileGrid:
        """The tiles as schedules count them: those of a cluster are one."""
        bm, bn = halves.sides(config)
        half = halves.triangle_of(problem, config) if self.family.walks_triangles else None
        extents = problem.m, problem.n, problem.k
        return TileGrid.of(*extents, bm, bn, max(config.bk, 1), prod(problem.batch), half)

    def sum_rows(self, config: Config) -> int:
        """Rows of a thread's sums, which a separate reduction divides among blocks. On tensor cores, the
        patches of a warp.
        """
        return config.tm // config.slices if self.unit == "fma" else config.wm // 16

    @cached_property
    def all_rules(self) -> tuple[Rule, ...]:
        """All rules, in the order in which they are asked."""
        common = EVERY if self.unit == "wgmma" else (*EVERY[:1], *ALONE, *EVERY[1:])
        ordered = () if self.free_order else ORDERED
        stages = () if self.slices_stages else WHOLE_STAGES
        return (*common, *ordered, *stages, *self.rules, loaders(self.config.producers))

    @cached_property
    def rules_of_knobs(self) -> tuple[Rule, ...]:
        return tuple(rule for rule in self.all_rules if rule.of_knobs)

    @cached_property
    def rules_of_problem(self) -> tuple[Rule, ...]:
        return tuple(rule for rule in self.all_rules if not rule.of_knobs)

    def tile_bytes(self, problem: Problem, config: Config) -> int:
        """Bytes of a tile of sums, as they leave the tensor core: sums in half are float there."""
        return config.bm * config.bn * max(4, size_of(problem.accumulator))

    def refuse(self, problem: Problem, config: Config, device: Device) -> str | None:
        """Why this kernel with this config does not take the problem, or None."""
        facts = facts_of(problem, self.family)
        return (
            self.refuse_problem(problem, device)
            or refusal(self.all_rules, config, facts)
            or self.refuse_room(problem, config, device)
            or facts.refusal
        )

    def takes(self, problem: Problem, configs: Knobs, device: Device) -> Any:
        """Which of these configs take the problem, if their knobs break no rule."""
        facts = facts_of(problem, self.family)
        if self.refuse_problem(problem, device) or facts.refusal:
            return False
        accepted = obey(self.rules_of_problem, configs, facts)
        return accepted is not False and accepted & (
            self.family.shared_bytes(problem, configs) <= device.shared_per_block
        )

    def refuse_problem(self, problem: Problem, device: Device) -> str | None:
        """Why no config takes the problem, or None."""
        wrong_types = self.types.refuse(problem)
        if wrong_types:
            return wrong_types
        since = max(self.capability, SINCE[problem.dtype]) if problem.dtype in SINCE else self.capability
        if self.unit == "wgmma" and device.capability[0] != since[0]:
            return "its instructions are those of compute capability {}.{} alone; {} has {}.{}".format(
                *since, device.name, *device.capability
            )
        if device.capability < since:
            return "it needs compute capability {}.{}; {} has {}.{}".format(
                *since, device.name, *device.capability
            )
        ragged = problem.modes.ragged
        longest = max(problem.m, problem.n, problem.k, 0 if ragged is None else ragged.total)
        if longest > INT_LIMIT:
            return f"an extent is counted in 32 bits; the largest is {longest}"
        if ragged is not None and not self.family.takes_groups:
            return f"its blocks find no groups; these matrices have {ragged}"
        if problem.arrivals is not None and not self.family.awaits_rows:
            return "its blocks read A at once, and do not wait for rows that arrive"
        if problem.owners is not None and not self.family.has_owners:
            return "its blocks store D to one matrix, not to owners of its rows"
        if problem.modes.routes and not self.family.takes_modes(problem):
            return f"it takes matrices as they lie; these have {problem.modes}"
        if problem.fused is not None and self.kind != "production":
            return f"it stores sums as they are; here they are {problem.fused.function.name}(sum) first"
        return None

    def refuse_room(self, problem: Problem, config: Config, device: Device) -> str | None:
        needed = self.shared_bytes(config, problem)
        if needed <= device.shared_per_block:
            return None
        return (
            f"its buffers take {needed} bytes of shared memory; {device.name} gives a block"
            f" {device.shared_per_block}"
        )

    def macros(self, problem: Problem, config: Config, scheduled: bool = False) -> dict[str, object]:
        """All macros of the source. `scheduled`: blocks read a schedule; some kernels always do, and their
        rows define it.
        """
        scheduling = {"SCHEDULED": int(scheduled)} if self.family.scheduled else {}
        of_config = self.family.config_macros(problem, config, scheduled)
        in_order, joins = not problem.modes.scatter_cols, self.family.joins_values(problem)
        fused = problem.fused.defines(in_order, joins) if problem.fused else {}
        of_problem = facts_of(problem, self.family).macros
        if self.family.walks_triangles:
            of_problem = {**of_problem, **halves.macros(problem, config, halves.stores_twice(problem))}
        return {**config.defines(), **of_config, **scheduling, **self.defines, **of_problem, **fused}


@of_kind
def shared_bytes_of(problem: Problem, family: Family, config: Config) -> int:
    return int(family.shared_bytes(problem, config))
