"""Configs of streamed, the kernel of few rows by weights of few bits, and the choice between them."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from lapidist.quantised.fragment_order import tiles_of
from lapidist.quantised.kernel_parameters import Rows
from lapidist.quantised.number_formats import BLOCK, FORMATS
from lapidist.quantised.weight_facts import Weight

# By their depth. With three stages of 128 steps, blocks wait for each: on an H200 192 rows by 6144 x 4096
# took 51 us, and 28 with five. Of wide blocks no more than three fit, and these were measured.
LEAST_STAGES, STAGES_OF_WIDE, MOST_STAGES = {2: 4, 4: 3}, 3, 8
REGISTERS_OF_SM, REGISTERS_LEFT, MOST_REGISTERS = 65536, 40, 232
SHARED_OF_SM, MOST_ROWS_OF_BOX = 228 * 1024, 32


class Streamed(NamedTuple):
    """A config of streamed: rows of x and groups of 64 columns of a block, blocks that share k, and stages.
    Then blocks on an SM at once, and how many times 64 steps of k a stage has.
    """

    rows: int
    column_groups: int
    parts: int
    stages: int
    resident: int
    depth: int = 2

    @property
    def registers(self) -> int:
        """Of a thread that multiplies. A block has what the assembler allots to all its threads, in eights,
        and warps that load give theirs back; one that asked for more would wait for ever.
        """
        allotted = REGISTERS_OF_SM // (self.resident * self.threads) // 8 * 8
        left = allotted * self.threads - 128 * REGISTERS_LEFT
        return min(MOST_REGISTERS, left // (128 * self.column_groups) // 8 * 8)

    @property
    def rows_of_box(self) -> int:
        """Of x, that a copy of TMA brings."""
        return self.rows if self.rows <= 64 else MOST_ROWS_OF_BOX

    @property
    def threads(self) -> int:
        return 128 * (self.column_groups + 1)

    @property
    def shared_bytes(self) -> int:
        """For stages: barriers and the system take two KiB of each block."""
        return SHARED_OF_SM // self.resident - 2048

    def most_stages(self, weight: Weight) -> int:
        return min(MOST_STAGES, self.shared_bytes // self.stage_bytes(weight))

    def stage_bytes(self, weight: Weight) -> int:
        """As quantised/stages.cuh has them: x; codes, factors and zero points of each tile."""
        codes = 2048 * (FORMATS[weight.format].bits // 4)
        factors = 0 if weight.of_column else 4096 // weight.group * weight.factor_bytes
        of_block = 64 * weight.x_bytes * self.rows + self.column_groups * (codes + factors)
        return -(-self.depth * of_block // 1024) * 1024


class Costs(NamedTuple):
    """Microseconds of rows of x, fitted to 5,000 launches on an H200: six layers of 8 to 128 rows, and later
    five of 64. They are of 128 steps of 64 columns that an SM decodes, of 128 steps that a block waits for,
    of a block more in the cluster, and until blocks that follow others on an SM multiply.
    """

    work: float
    wait: float
    part: float
    begin: float = 2.2


COSTS = {
    8: Costs(0.14, 0.40, 0.15),
    16: Costs(0.15, 0.42, 0.15),
    32: Costs(0.20, 0.36, 0.10),
    64: Costs(0.22, 0.31, 0.39),
    128: Costs(0.30, 0.41, 0.62),
}
NARROW = 128  # rows: in 16 bits, factors multiply codes in wider blocks, as registers hold one set of sums
# By the bytes of an element of x. Of 8 bits, sums of 192 rows fit in registers. Costs of wide blocks, and of
# 128 rows of 16 bits, are fitted to 400 launches of nine layers.
WIDE = {rows: Costs(0.00245 * rows, 0.0049 * rows, 0.0022 * rows, 5.1) for rows in (160, 192, 224, 256)}
COSTS_OF = {
    1: {**COSTS, 192: Costs(0.34, 0.46, 0.9)},
    2: {**COSTS, 128: Costs(0.375, 0.51, 0.78, 2.75), **WIDE},
}
# How many times as long 128 steps take in stages of 256, whose barriers and copies are half as many. Blocks
# of more rows were not measured with them.
DEEP, ROWS_OF_DEEP = 0.85, 64
# Factors of groups of 32 and less, by rows of 16 and 8 bits: how many times the work, and the wait. In 8 bits
# sums of each group leave the tensor core. In 16 bits the tensor core hides them beside 128 rows and more.
SMALL_GROUPS = {2: (1.28, 1.17), 1: (1.9, 1.5)}
# Some groups have more rows than are expected, and a second block reads the weight again: 48 rows of eight
# groups of 4096 x 7168 in int4 took 38 us by blocks of 16, and 44 by blocks of 8.
LEAST_OF_GROUPS = 16
# Microseconds of an SM for each block and 128 steps of gathered rows, which warps copy: wide blocks win.
OF_GATHERED = 0.03
# Of so many blocks, clusters that an H200 runs at once with a block on each SM: GPCs hold clusters whole.
CLUSTERS, SMS = {1: 132, 2: 66, 3: 42, 4: 31, 6: 19, 8: 15}, 132
# Groups of 64 columns of a block, and blocks on an SM; sums of many rows leave registers for fewer.
BLOCKS_OF_SM = {
    **dict.fromkeys((8, 16, 32), ((1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (3, 1), (3, 2), (4, 1))),
    64: ((1, 1), (1, 2), (1, 3), (2, 1), (3, 1)),
    128: ((1, 1), (1, 2), (2, 1)),
    **dict.fromkeys(WIDE, ((2, 1),)),
}


@lru_cache(maxsize=1024)
def streamed_config(rows: Rows, weight: Weight, multiprocessors: int, exact: bool = False) -> Streamed:
    """The config of the least predicted time, with `exact` of those that multiply no codes by factors in x's
    type where this rounds.
    """
    configs = [
        config._replace(stages=config.most_stages(weight))
        for lines in lines_of(rows, weight, exact)
        for groups, resident in BLOCKS_OF_SM[lines]
        for parts in CLUSTERS
        for depth in LEAST_STAGES
        if depth == 2 or (lines <= ROWS_OF_DEEP and weight.blocks % depth == 0)
        if parts <= -(-weight.blocks // depth)
        and (config := Streamed(lines, groups, parts, 1, resident, depth)).most_stages(weight)
        >= (STAGES_OF_WIDE if lines > NARROW and weight.x_bytes == 2 else LEAST_STAGES[depth])
    ]
    return min(configs, key=lambda config: microseconds(rows, weight, config, multiprocessors))


def lines_of(rows: Rows, weight: Weight, exact: bool) -> list[int]:
    """How many rows of x a block may have: the fewest that are enough, or any of the most."""
    least = 8 if rows.ragged is None else LEAST_OF_GROUPS
    enough = (count for count in COSTS if count >= max(least, rows.expected) and rows.fit_blocks(count))
    wide = [count for count in COSTS_OF[weight.x_bytes] if count > NARROW]
    most = [NARROW, *wide] if takes_wide_blocks(rows, weight, exact) else [NARROW]
    fitting = [count for count in most if rows.fit_blocks(count)]
    return next(([count] for count in enough), fitting or most)


def takes_wide_blocks(rows: Rows, weight: Weight, exact: bool) -> bool:
    """Of x in 16 bits, whether codes of four bits may be multiplied by their factors. Where this rounds, as
    quantised/decoded.cu does, factors have the type of x. Groups of rows and gathered ones keep blocks of
    128: warps that load have no registers for the places of more. Of codes of eight bits two stages fit.
    """
    if weight.x_bytes == 1:
        return True
    if rows.ragged is not None or rows.modes.gather_a or FORMATS[weight.format].bits > 4:
        return False
    return weight.exact_in_x or (not exact and weight.scale_type == weight.dtype)


def microseconds(rows: Rows, weight: Weight, config: Streamed, multiprocessors: int) -> float:
    """What is the same for all configs of these rows is left out. Blocks that share an SM take turns, and one
    that is alone waits for its stages.
    """
    costs = COSTS_OF[weight.x_bytes][config.rows]
    work, wait = costs.work * config.column_groups, costs.wait
    if weight.group < BLOCK and (weight.x_bytes == 1 or config.rows < NARROW):
        more, longer = SMALL_GROUPS[weight.x_bytes]
        work, wait = more * work, longer * wait
    if config.depth > 2:
        work, wait = DEEP * work, DEEP * wait
    stages = -(-weight.blocks // (config.depth * config.parts)) * config.depth / 2
    clusters = -(-tiles_of(weight.n) // config.column_groups) * rows.expected_blocks(config.rows)
    of_chip = max(1, CLUSTERS[config.parts] * multiprocessors // SMS)  # with a block on each SM
    rounds, rest = divmod(clusters, of_chip * config.resident)
    turns = [config.resident] * rounds + [-(-rest // of_chip)] * (rest > 0)
    if rows.modes.gather_a:
        work += OF_GATHERED
    begin = costs.begin + costs.part * config.parts
    return sum(begin + stages * max(wait, work * blocks) for blocks in turns)
