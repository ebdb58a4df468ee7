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
LEAST_STAGES, STAGES_OF_WIDE, MOST_STAGES = {4: 3, 2: 4}, 3, 8
REGISTERS_OF_SM, REGISTERS_LEFT, MOST_REGISTERS = 65536, 40, 232
SHARED_OF_SM, MOST_ROWS_OF_BOX = 228 * 1024, 32


class Streamed(NamedTuple):
    """A config of streamed: rows of x and groups of 64 columns of a block, blocks that share k, and stages.
    Then blocks on an SM at once, and how many times 64 steps of k a stage has. `factors_first`: factors
    multiply codes in the type of x, which rounds their products.
    """

    rows: int
    column_groups: int
    parts: int
    stages: int
    resident: int
    depth: int = 2
    factors_first: bool = False

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
        return min(self.rows, MOST_ROWS_OF_BOX)

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
    """Microseconds of rows of x on an H200: of 128 steps of 64 columns that an SM decodes, and that a block
    waits for; of a block more in the cluster, and until blocks that follow others on an SM multiply.

    alone: how many times as long a block waits where an SM has room for more. Some SMs then have two, and
    some none.
    """

    work: float
    wait: float
    part: float
    begin: float = 2.2
    alone: float = 1


ALONE = 1.4
# Of few rows, fitted to 5,000 launches of six layers.
COSTS = {8: Costs(0.14, 0.40, 0.15), 16: Costs(0.15, 0.42, 0.15), 32: Costs(0.20, 0.36, 0.10)}
# By the bytes of an element of x, where registers hold sums of a group beside all sums: of 8 bits they do of
# 192 rows. From 64 rows on, these are fitted to 1,200 launches of twelve layers, and so is ONE_SET.
COSTS_OF = {
    1: {
        **COSTS,
        64: Costs(0.219, 0.28, 0.40, 2.5, ALONE),
        96: Costs(0.246, 0.295, 0.14, 3.6, ALONE),
        128: Costs(0.282, 0.323, 0.22, 3.8, ALONE),
        192: Costs(0.343, 0.36, 0.11, 5.1, ALONE),
    },
    2: {
        **COSTS,
        64: Costs(0.258, 0.32, 0.37, 2.65, ALONE),
        96: Costs(0.314, 0.372, 0.195, 3.55, ALONE),
        128: Costs(0.381, 0.448, 0.32, 3.5, ALONE),
    },
}
# Rows: more of 16 bits leave registers for one set of sums, so factors multiply codes, or sums in the end.
NARROW = 128
ONE_SET = {
    rows: Costs(0.05 + 0.00229 * rows, 0.0033 * rows, 0.0038 * rows, 3.7, ALONE)
    for rows in (128, 160, 192, 224, 256)
}
# More rows than HALF by a small weight take several blocks of as many: 256 by 1536 x 2048 in int4 took 7.6 us
# by blocks of 64, and 8.0 by blocks of 128.
HALF, MOST_BY_HALF = 64, 320
# How many times as long 128 steps take in stages of 256, whose barriers and copies are half as many.
DEEP = 0.85
# Factors of groups of 32 and less, by rows of 16 and 8 bits: how many times the work, and the wait. In 8 bits
# sums of each group leave the tensor core. In 16 bits the tensor core hides them beside 128 rows and more.
SMALL_GROUPS = {2: (1.28, 1.17), 1: (1.9, 1.5)}
SMALL_GROUPS_OF_MANY = {2: (1.1, 1.15), 1: (1.75, 1.5)}  # from 64 rows on
# Some groups have more rows than are expected, and a second block reads the weight again: 48 rows of eight
# groups of 4096 x 7168 in int4 took 38 us by blocks of 16, and 44 by blocks of 8.
LEAST_OF_GROUPS = 16
# Microseconds of an SM for each block and 128 steps of gathered rows, which warps copy: wide blocks win.
OF_GATHERED = 0.03
# Of so many blocks, clusters that an H200 runs at once with a block on each SM: GPCs hold clusters whole.
# Cards differ in SMs of a GPC: one runs 42 clusters of three, another one 39.
CLUSTERS, SMS = {1: 132, 2: 66, 3: 38, 4: 31, 6: 19, 8: 15}, 132
# Groups of 64 columns of a block, and blocks on an SM; sums of many rows leave registers for fewer.
BLOCKS_OF_SM = {
    **dict.fromkeys((8, 16, 32), ((1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (3, 1), (3, 2), (4, 1))),
    64: ((1, 1), (1, 2), (1, 3), (2, 1), (3, 1)),
    96: ((1, 1), (1, 2), (2, 1), (3, 1)),
    128: ((1, 1), (1, 2), (2, 1)),
    192: ((2, 1),),
}
# Three groups fill 132 SMs where two do not: 256 rows by 6144 x 4096 are 128 blocks of 128 rows, of 192
# columns and half of k.
BLOCKS_OF_ONE_SET = {
    128: (*BLOCKS_OF_SM[128], (3, 1)),
    **dict.fromkeys((160, 192), ((2, 1), (3, 1))),
    **dict.fromkeys((224, 256), ((2, 1),)),
}


@lru_cache(maxsize=1024)
def streamed_config(rows: Rows, weight: Weight, multiprocessors: int, exact: bool = False) -> Streamed:
    """The config of the least predicted time, with `exact` of those that multiply no codes by factors in x's
    type where this rounds.
    """
    rounds = weight.x_bytes == 2 and not weight.exact_in_x and rows.expected > NARROW
    rounds = rounds and takes_wide_blocks(rows, weight, exact)
    configs = [
        config._replace(stages=config.most_stages(weight))
        for lines in lines_of(rows, weight, exact)
        for first in (rounds and lines >= NARROW,)
        for groups, resident in blocks_of_sm(lines, weight, first)
        for parts in CLUSTERS
        for depth in LEAST_STAGES
        if depth == 2 or may_be_deep(lines, resident, weight)
        if parts <= -(-weight.blocks // depth)
        and (config := Streamed(lines, groups, parts, 1, resident, depth, first)).most_stages(weight)
        >= (STAGES_OF_WIDE if lines > NARROW and weight.x_bytes == 2 else LEAST_STAGES[depth])
    ]
    return min(configs, key=lambda config: microseconds(rows, weight, config, multiprocessors))


def lines_of(rows: Rows, weight: Weight, exact: bool) -> list[int]:
    """How many rows of x a block may have: the fewest that are enough, or any of the most."""
    least = max(8 if rows.ragged is None else LEAST_OF_GROUPS, rows.expected)
    fewest = next((count for count in COSTS_OF[2] if count >= least and rows.fit_blocks(count)), NARROW)
    if fewest < NARROW:
        return [fewest]
    most = [NARROW] if rows.ragged is not None or rows.expected > MOST_BY_HALF else [NARROW, HALF]
    if rows.expected > NARROW and takes_wide_blocks(rows, weight, exact):
        most += [count for count in (ONE_SET if weight.x_bytes == 2 else COSTS_OF[1]) if count > NARROW]
    return [count for count in most if rows.fit_blocks(count)] or [NARROW]


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


def may_be_deep(lines: int, resident: int, weight: Weight) -> bool:
    """Stages of 256 steps. By 64 rows they take up to a tenth less in blocks of one shape, which others do
    without; of 8 bits this is so where an SM has two blocks. More rows were not measured with them.
    """
    gains = lines < HALF or (lines == HALF and (weight.x_bytes == 2 or resident > 1))
    return gains and weight.blocks % 4 == 0


def has_one_set(lines: int, weight: Weight, factors_first: bool) -> bool:
    """Whether registers of a block of so many rows hold no sums of a group beside all sums."""
    return weight.x_bytes == 2 and lines >= NARROW and (factors_first or weight.exact_in_x)


def blocks_of_sm(lines: int, weight: Weight, factors_first: bool) -> tuple[tuple[int, int], ...]:
    """Groups of 64 columns of a block of so many rows, and blocks on an SM, that may be chosen."""
    return (BLOCKS_OF_ONE_SET if has_one_set(lines, weight, factors_first) else BLOCKS_OF_SM)[lines]


def microseconds(rows: Rows, weight: Weight, config: Streamed, multiprocessors: int) -> float:
    """What is the same for all configs of these rows is left out. Blocks that share an SM take turns, and one
    that is alone waits for its stages.
    """
    one_set = has_one_set(config.rows, weight, config.factors_first)
    costs = (ONE_SET if one_set else COSTS_OF[weight.x_bytes])[config.rows]
    work, wait = costs.work * config.column_groups, costs.wait
    if weight.group < BLOCK and (weight.x_bytes == 1 or config.rows < NARROW):
        more, longer = (SMALL_GROUPS_OF_MANY if config.rows >= HALF else SMALL_GROUPS)[weight.x_bytes]
        work, wait = more * work, longer * wait
    if config.depth > 2 and config.rows < HALF:
        work, wait = DEEP * work, DEEP * wait
    stages = -(-weight.blocks // (config.depth * config.parts)) * config.depth / 2
    clusters = -(-tiles_of(weight.n) // config.column_groups) * rows.expected_blocks(config.rows)
    of_chip = max(1, CLUSTERS[config.parts] * multiprocessors // SMS)  # with a block on each SM
    rounds, rest = divmod(clusters, of_chip * config.resident)
    turns = [config.resident] * rounds + [-(-rest // of_chip)] * (rest > 0)
    if rows.modes.gather_a:
        work += OF_GATHERED
    begin = costs.begin + costs.part * config.parts
    alone = costs.alone * wait
    return sum(
        begin + stages * max(wait if blocks == config.resident else alone, work * blocks) for blocks in turns
    )
