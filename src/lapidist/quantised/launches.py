"""Launches of products with weights of few bits, and the choice between their two ways.

few rows of x     skinny, or streamed (sm_90, more than 4): codes are decoded on their way to tensor cores
many rows         decoded, then the product of 16-bit floats by any kernel
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from lapidist.build.compiler import compile_kernel
from lapidist.dtypes import TYPES
from lapidist.launch import Launch, TensorMap
from lapidist.quantised.fragment_order import tiles_of
from lapidist.quantised.kernel_parameters import (
    DECODED,
    SKINNY,
    STREAMED,
    STREAMED_BYTES,
    End,
    Rows,
    packed_with,
    parameters_with,
)
from lapidist.quantised.number_formats import BLOCK, FORMATS, GROUP_OF, GROUPS

FORMAT_NUMBERS = {"int4": 0, "mxfp4": 1, "int8": 2, "e4m3": 3, "nvfp4": 4}  # of quantised/decode.cuh
BYTES = "e8m0", "e4m3"  # types of factors
SUMS = {"float8_e4m3fn": "float", "int8": "int"}  # of products of 8 bits in the tensor core
DECODING_WARPS = 8
MOST_EIGHTS = 8  # of rows of x that a block of skinny has in registers
# With up to so many rows skinny is faster where streamed can run: on an H200 8192 x 8192 in int4 took 12.9 us
# for 1 row, 24.0 for 8 and 43 for 16, and 17.9 streamed for each.
ROWS_OF_SKINNY = 4
MOST_STAGES = 8
# Blocks of a cluster. GPCs hold few fives: on an H200 16 rows by 8192 x 8192 took 25.0 us, by pairs 18.0.
PARTS = 1, 2, 3, 4, 8
REGISTERS_OF_SM, REGISTERS_LEFT, MOST_REGISTERS = 65536, 40, 232
SHARED_OF_SM = 228 * 1024


class Weight(NamedTuple):
    """What a kernel is compiled for and told of a packed weight; `dtype`: of x; `out`: of other results."""

    k: int
    n: int
    format: str
    group: int
    scale_type: str
    zeros: bool
    dtype: str
    out: str = ""

    @property
    def x_bytes(self) -> int:
        """Of an element of x."""
        return TYPES[self.dtype].nbytes

    @property
    def blocks(self) -> int:
        return self.k // BLOCK

    @property
    def per_group(self) -> int:
        """Blocks of k with the same factors."""
        return max(1, self.group // BLOCK)

    @property
    def of_column(self) -> bool:
        """Whether a column has one factor, and more steps of k than a group has."""
        return self.group not in (*GROUPS, *GROUP_OF.values())

    @property
    def factor_bytes(self) -> int:
        """Of a factor and a zero point."""
        return (1 if self.scale_type in BYTES else TYPES[self.scale_type].nbytes) + self.zeros

    def knobs_of_format(self) -> dict[str, object]:
        scale = "unsigned char" if self.scale_type in BYTES else TYPES[self.scale_type].c_type
        return {
            "FORMAT": FORMAT_NUMBERS[self.format],
            "Scale": scale,
            "GROUPS": max(1, BLOCK // self.group),
            "ZEROS": int(self.zeros),
        }

    @property
    def group_knob(self) -> dict[str, object]:
        return {"GROUP": 0 if self.of_column else self.group}

    def knobs(self, warps: int) -> dict[str, object]:
        return self.knobs_of_format() | {"T": TYPES[self.dtype].c_type, "WARPS": warps}


class Streamed(NamedTuple):
    """A config of streamed: rows of x and groups of 64 columns of a block, blocks that share k, stages of 128
    steps of k, and blocks on an SM at once.
    """

    rows: int
    column_groups: int
    parts: int
    stages: int
    resident: int

    @property
    def registers(self) -> int:
        """Of a thread that multiplies. A block has what the assembler allots to all its threads, in eights,
        and warps that load give theirs back; one that asked for more would wait for ever.
        """
        allotted = REGISTERS_OF_SM // (self.resident * self.threads) // 8 * 8
        left = allotted * self.threads - 128 * REGISTERS_LEFT
        return min(MOST_REGISTERS, left // (128 * self.column_groups) // 8 * 8)

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
        codes = 4096 * (FORMATS[weight.format].bits // 4)
        factors = 0 if weight.of_column else 8192 // weight.group * weight.factor_bytes
        return -(-(128 * weight.x_bytes * self.rows + self.column_groups * (codes + factors)) // 1024) * 1024


class Costs(NamedTuple):
    """Microseconds of rows of x, fitted to 400 launches on an H200 (int4, groups of 128): of a stage of 64
    columns that an SM decodes, of a stage that a block waits for, of a block more in the cluster.
    """

    work: float
    wait: float
    part: float


COSTS = {
    16: Costs(0.13, 0.38, 1.0),
    32: Costs(0.13, 0.29, 1.5),
    64: Costs(0.24, 0.33, 2.9),
    128: Costs(0.33, 0.37, 11),
}
# Of 8 bits, sums of 192 rows fit in registers. Their costs are those of 128 by issue slots, not measured.
COSTS_OF_BYTES = {**COSTS, 192: Costs(0.37, 0.42, 16)}
# GPCs are cut unevenly: an H200 has room for 124 clusters of four blocks, where its SMs would hold 132.
LARGE_CLUSTER, SHARE_OF_LARGE_CLUSTERS = 3, 0.93
# Groups of 64 columns of a block, and blocks on an SM; sums of many rows leave registers for fewer.
BLOCKS_OF_SM = {
    **dict.fromkeys((16, 32), ((1, 2), (2, 1), (2, 2), (3, 2), (4, 1))),
    64: ((1, 2), (2, 1), (3, 1)),
    128: ((1, 1), (2, 1)),
    192: ((2, 1),),
}


@lru_cache(maxsize=1024)
def streamed_config(rows: Rows, weight: Weight, multiprocessors: int) -> Streamed:
    """The config of the least predicted time."""
    configs = [
        config._replace(stages=config.most_stages(weight))
        for lines in lines_of(rows, weight)
        for groups, resident in BLOCKS_OF_SM[lines]
        for parts in PARTS
        if parts <= -(-weight.blocks // 2)
        and (config := Streamed(lines, groups, parts, 1, resident)).most_stages(weight) > 1
    ]
    return min(configs, key=lambda config: microseconds(rows, weight, config, multiprocessors))


def lines_of(rows: Rows, weight: Weight) -> list[int]:
    """How many rows of x a block may have: the fewest that are enough, or either of the most."""
    most = [max(COSTS)] if weight.x_bytes == 2 else [max(COSTS), max(COSTS_OF_BYTES)]
    return next(([count] for count in COSTS if count >= rows.expected), most)


def microseconds(rows: Rows, weight: Weight, config: Streamed, multiprocessors: int) -> float:
    """What is the same for all configs of these rows is left out."""
    costs = COSTS_OF_BYTES[config.rows]
    of_rows = rows.expected_blocks(config.rows) * config.parts
    blocks = -(-tiles_of(weight.n) // config.column_groups) * of_rows
    stages = -(-weight.blocks // (2 * config.parts))
    of_sm = -(-blocks // multiprocessors)
    at_once = multiprocessors * config.resident
    if config.parts >= LARGE_CLUSTER:
        at_once = int(at_once * SHARE_OF_LARGE_CLUSTERS)
    rounds = -(-blocks // at_once)
    decoded = costs.work * of_sm * config.column_groups
    ends = costs.part * config.parts * (rounds if weight.x_bytes == 1 else 1)  # waves have one each
    return stages * (decoded + costs.wait * rounds) + ends


def knobs_of_streamed(weight: Weight, config: Streamed) -> dict[str, object]:
    return (
        weight.knobs_of_format()
        | weight.group_knob
        | {
            "T": TYPES[weight.dtype].c_type,
            "BN": config.rows,
            "BK": 128 // weight.x_bytes,
            "COLUMN_GROUPS": config.column_groups,
            "PARTS": config.parts,
            "STAGES": config.stages,
            "RESIDENT": config.resident,
            "REGISTERS": config.registers,
            "REGISTERS_LEFT": REGISTERS_LEFT,
        }
        | ({"Scalar": "float", "Sum": SUMS[weight.dtype]} if weight.x_bytes == 1 else {})
        | ({"Out": TYPES[weight.out].c_type} if weight.out else {})
    )


@lru_cache(maxsize=256)
def streaming(
    rows: Rows, weight: Weight, end: End, config: Streamed, architecture: str, assembled: bool = True
) -> Launch:
    numbers = {"d_row": rows.step, "m": rows.total, "n": weight.n}
    numbers |= {"tiles": tiles_of(weight.n), "blocks": weight.blocks}
    binary = compile_kernel(
        "quantised/streamed.cu",
        "streamed",
        knobs_of_streamed(weight, config) | end.knobs | rows.modes.defines(),
        architecture,
        assembled=assembled,
    )

    named = STREAMED_BYTES if weight.x_bytes == 1 else STREAMED
    parameters = parameters_with(named, rows.modes, end.operands)

    def maps(at: Mapping[str, Any]) -> tuple[tuple[int, TensorMap], ...]:
        box, extents = (128 // weight.x_bytes, config.rows), (weight.k, rows.total)
        of_x = TensorMap(at["A"], weight.dtype, extents, (weight.x_bytes * weight.k,), box, swizzle=128)
        return ((STREAMED.offsets["A"], of_x),)

    return Launch(
        binary,
        (-(-tiles_of(weight.n) // config.column_groups), rows.blocks(config.rows), config.parts),
        (config.threads, 1, 1),
        packed_with(parameters, rows, numbers),
        shared_bytes=config.stages * config.stage_bytes(weight),
        cluster=(1, 1, config.parts),
        overlaps=True,
        parameters=parameters,
        patches=parameters.patches(),
        maps=None if rows.modes.gather_a else maps,
    )


# Of 64 columns, and of 64 steps of k for each warp. On an H200 16 warps, two tiles ahead, took 4.9 us for one
# row by 4096 x 4096 in int4, and 8 warps, four ahead, 7.2; by 8192 x 8192 it was 14.0 and 12.9.
MANY_TILES, MANY_BLOCKS = 96, 16
# Of 64 columns, where blocks come in waves: by 8192 x 81920 4 warps, two ahead, took 96 us, 8 and four 106.
SEVERAL_WAVES, MANY_WAVES = 256, 1024


class Skinny(NamedTuple):
    """A config of skinny: eights of rows of a block, warps that share k, and tiles on their way."""

    eights: int
    warps: int
    depth: int


def skinny_config(rows: Rows, weight: Weight) -> Skinny:
    """Registers hold less on its way where more rows have sums; shared memory of 48 KiB holds their sums.
    More warps share k where columns are few, and take fewer tiles ahead where they have few to take.
    """
    eights = next(
        count for count in (1, 2, 4, MOST_EIGHTS) if 8 * count >= rows.expected or count == MOST_EIGHTS
    )
    tiles = tiles_of(weight.n) * rows.expected_blocks(8 * eights)
    most = 4 if tiles >= MANY_WAVES else 8 if eights > 4 or tiles >= MANY_TILES else 16
    warps = min(most, max(1, weight.blocks))
    far = eights <= 2 and tiles < SEVERAL_WAVES and weight.blocks >= MANY_BLOCKS * warps
    return Skinny(eights, warps, 4 if far else 2)


@lru_cache(maxsize=256)
def multiplying(
    rows: Rows, weight: Weight, end: End, config: Skinny, architecture: str, assembled: bool = True
) -> Launch:
    knobs = weight.knobs(config.warps) | weight.group_knob | end.knobs | rows.modes.defines()
    knobs |= {"ROWS_OF_8": config.eights, "TILES_AHEAD": config.depth}
    parameters = parameters_with(SKINNY, rows.modes, end.operands)
    numbers = {"a_row": weight.k, "d_row": rows.step, "m": rows.total, "n": weight.n}
    numbers["blocks"] = weight.blocks
    grid = 4 * tiles_of(weight.n), rows.blocks(8 * config.eights), 1
    binary = compile_kernel("quantised/skinny.cu", "skinny", knobs, architecture, assembled=assembled)
    return Launch(
        binary,
        grid,
        (32 * config.warps, 1, 1),
        packed_with(parameters, rows, numbers),
        overlaps=".launch_dependents" in binary.ptx,
        parameters=parameters,
        patches=parameters.patches(),
    )


@lru_cache(maxsize=256)
def decoding(weight: Weight, architecture: str, assembled: bool = True, codes: bool = False) -> Launch:
    """The launch that writes the weight as (n, k), row after row. `codes`: without factors, in e4m3."""
    tiles = tiles_of(weight.n)
    numbers = {"n": weight.n, "tiles": tiles, "blocks": weight.blocks, "per_group": weight.per_group}
    binary = compile_kernel(
        "quantised/decoded.cu",
        "decoded",
        weight.knobs(DECODING_WARPS) | {"CODES_ALONE": int(codes)},
        architecture,
        assembled=assembled,
    )
    grid = -(-4 * tiles * weight.blocks // DECODING_WARPS), 1, 1
    return Launch(
        binary,
        grid,
        (32 * DECODING_WARPS, 1, 1),
        bytes(DECODED.pack(numbers)),
        parameters=DECODED,
        patches=DECODED.patches(),
    )
