"""Launches of products with weights of few bits, and the choice between their two ways.

few rows of x     skinny, or streamed (sm_90, more than 4): codes are decoded on their way to tensor cores
many rows         decoded, then the product of 16-bit floats by any kernel
"""

from __future__ import annotations

import math
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
    SKINNY_BYTES,
    SKINNY_NORM,
    STREAMED,
    STREAMED_AGAIN,
    STREAMED_BYTES,
    End,
    Rows,
    packed_with,
    parameters_with,
)
from lapidist.quantised.number_formats import BLOCK, FORMATS
from lapidist.quantised.streamed_configs import REGISTERS_LEFT, Streamed
from lapidist.quantised.weight_facts import Weight

SUMS = {"float8_e4m3fn": "float", "int8": "int"}  # of products of 8 bits in the tensor core
DECODING_WARPS = 8
MOST_EIGHTS = 8  # of rows of x that a block of skinny has in registers
# With up to so many rows skinny is faster where streamed can run: on an H200 8192 x 8192 in int4 took 12.9 us
# for 1 row, 24.0 for 8 and 43 for 16, and 17.9 streamed for each.
ROWS_OF_SKINNY = 4
ROWS_THAT_FILL = 3  # in the mean of groups: of random ones 5 % are empty


def knobs_of_streamed(weight: Weight, config: Streamed, gathered: bool = False) -> dict[str, object]:
    return (
        weight.knobs_of_format()
        | weight.group_knob
        | {
            "T": TYPES[weight.dtype].c_type,
            "BN": config.rows,
            "ROWS_OF_BOX": config.rows_of_box,
            "BK": 128 // weight.x_bytes,
            "COLUMN_GROUPS": config.column_groups,
            "PARTS": config.parts,
            "BLOCKS": config.depth,
            "STAGES": config.stages,
            "RESIDENT": config.resident,
            "FACTORS_FIRST": int(config.factors_first),
            "REGISTERS": config.registers,
            "REGISTERS_LEFT": REGISTERS_LEFT,
            "STEPS_BEHIND": weight.steps - weight.streamed_row if gathered else 0,  # TMA gives zeros
        }
        | ({"Scalar": "float", "Sum": SUMS[weight.dtype]} if weight.x_bytes == 1 else {})
        | ({"Out": TYPES[weight.out].c_type, "X_FACTORS": 1} if weight.out else {})
    )


def fills_groups(rows: Rows) -> bool:
    """Whether nearly each group has rows."""
    return rows.ragged is not None and rows.each >= ROWS_THAT_FILL


@lru_cache(maxsize=256)
def streaming(
    rows: Rows,
    weight: Weight,
    end: End,
    config: Streamed,
    architecture: str,
    assembled: bool = True,
    at_once: int = 0,
) -> Launch:
    """`at_once`: of columns with rounded codes alone, by the blocks that run at once."""
    columns = -(-tiles_of(weight.n) // config.column_groups)
    blocks_of_rows = rows.blocks(config.rows)
    if at_once:
        blocks_of_rows = max(1, min(blocks_of_rows, at_once // (columns * config.parts)))
    numbers = {"d_row": rows.step, "m": rows.total, "n": weight.n}
    numbers |= {"tiles": tiles_of(weight.n), "blocks": weight.blocks}
    knobs = knobs_of_streamed(weight, config, rows.modes.gather_a > 0) | end.knobs | rows.modes.defines()
    knobs |= {"INEXACT": int(at_once > 0), "BEFORE_ENDS": int(fills_groups(rows))}
    binary = compile_kernel("quantised/streamed.cu", "streamed", knobs, architecture, assembled=assembled)

    named = STREAMED_AGAIN if at_once else STREAMED_BYTES if weight.out else STREAMED
    parameters = parameters_with(named, rows.modes, end.operands)

    def maps(at: Mapping[str, Any]) -> tuple[tuple[int, TensorMap], ...]:
        row, box = weight.streamed_row, (128 // weight.x_bytes, config.rows_of_box)
        bytes_of_row = (weight.x_bytes * row,)
        of_x = TensorMap(at["A"], weight.dtype, (row, rows.total), bytes_of_row, box, swizzle=128)
        return ((STREAMED.offsets["A"], of_x),)

    return Launch(
        binary,
        (columns, blocks_of_rows, config.parts),
        (config.threads, 1, 1),
        packed_with(parameters, rows, numbers),
        shared_bytes=config.stages * config.stage_bytes(weight),
        cluster=(1, 1, config.parts),
        overlaps=True,
        parameters=parameters,
        patches=parameters.patches(),
        maps=None if rows.modes.gather_a else maps,
    )


class Skinny(NamedTuple):
    """A config of skinny: eights of rows of a block, warps that share k, tiles on their way, and sixteens of
    columns of a tile. Then blocks on an SM at once, for which registers are saved.
    """

    eights: int
    warps: int
    depth: int
    sixteens: int = 1
    resident: int = 1

    def waves(self, tiles: int, multiprocessors: int) -> float:
        """How many blocks a place has, one after another."""
        return 4 * tiles / self.sixteens / (multiprocessors * self.resident)


# Of eight rows, and what part of TILES_IN_ONE it has on an H200 where all places are filled. One row by
# 8192 x 28672 in int4 took 30.3 us by tiles of 32 columns, and 33.9 by tiles of 16 with as many warps on
# their way. 4096 x 14336 took 9.7 us by three tiles ahead and 10.3 by two, in MXFP4 12.3 and 11.6.
OF_INT4 = Skinny(1, 16, 3, 1, 2)
WIDEST = Skinny(1, 8, 1, 4, 4)
EIGHT_ROWS = {
    OF_INT4: 0.86,
    Skinny(1, 16, 2, 1, 2): 0.82,
    Skinny(1, 16, 1, 1, 3): 0.82,
    Skinny(1, 8, 3, 1, 4): 0.95,
    Skinny(1, 16, 1, 2, 2): 1.0,
    Skinny(1, 4, 3, 2, 7): 1.0,
    WIDEST: 1.1,
}
# 64 steps of k of 16 columns that an SM multiplies in a microsecond, at the memory's rate; and microseconds
# in which a block begins and ends. Those of groups look for theirs: 64 tokens to 8 of 128 experts each, of
# 1536 x 2048 in int4, took 160 us by blocks of 16 warps, and 66 by blocks of 4.
TILES_IN_ONE, BEGIN, BEGIN_OF_GROUPS, BEGIN_OF_WIDEST_INT4 = 60, 1.0, 3.0, 5.9
# Of more rows, tiles of 64 columns: with many of them eight warps share k, and four with so many more.
MANY_TILES, MANY_WAVES = 96, 1024


def skinny_config(rows: Rows, weight: Weight, multiprocessors: int) -> Skinny:
    """Registers hold less on its way where more rows have sums; shared memory of 48 KiB holds their sums."""
    enough = (count for count in (1, 2, 4) if 8 * count >= rows.expected and rows.fit_blocks(8 * count))
    eights = next(enough, MOST_EIGHTS)
    tiles = tiles_of(weight.n) * rows.expected_blocks(8 * eights)
    if eights == 1:
        fitting = [config for config in EIGHT_ROWS if fits_registers(config, weight)]
        best = min(fitting, key=lambda each: microseconds(each, rows, weight, multiprocessors))
    else:
        most = 4 if tiles >= MANY_WAVES else 8 if eights > 4 or tiles >= MANY_TILES else 16
        best = Skinny(eights, most, 2)
    return best._replace(warps=min(best.warps, max(1, weight.blocks)))


def microseconds(config: Skinny, rows: Rows, weight: Weight, multiprocessors: int) -> float:
    """Of up to eight rows, or of groups of them, whose blocks do not go by waves: many have none."""
    waves = config.waves(tiles_of(weight.n) * rows.expected_blocks(8), multiprocessors)
    of_block = config.sixteens * config.resident * weight.blocks / (TILES_IN_ONE * EIGHT_ROWS[config])
    if rows.ragged is None:
        return math.ceil(waves) * (BEGIN + of_block)
    begins_late = config == WIDEST and weight.format == "int4"
    return max(1, waves) * ((BEGIN_OF_WIDEST_INT4 if begins_late else BEGIN_OF_GROUPS) + of_block)


def fits_registers(config: Skinny, weight: Weight) -> bool:
    """Whether the assembler spills none. Codes of 8 bits take twice as many, and wide tiles gain nothing."""
    if config.sixteens == 1:
        return config != OF_INT4 or weight.format == "int4"
    if FORMATS[weight.format].bits > 4:
        return False
    if config.resident == 2:
        return True
    return not weight.zeros and (config.sixteens < 4 or weight.format != "int4" or weight.group == 2 * BLOCK)


@lru_cache(maxsize=256)
def multiplying(
    rows: Rows, weight: Weight, end: End, config: Skinny, architecture: str, assembled: bool = True
) -> Launch:
    knobs = weight.knobs(config.warps) | weight.group_knob | end.knobs | rows.modes.defines()
    knobs |= {"ROWS_OF_8": config.eights, "SIXTEENS": config.sixteens, "TILES_AHEAD": config.depth}
    knobs |= {"RESIDENT": config.resident, "NORM": int(weight.norm)}
    if weight.out:
        knobs["Out"] = TYPES[weight.out].c_type
    named = SKINNY_NORM if weight.norm else SKINNY_BYTES if weight.x_bytes == 1 else SKINNY
    parameters = parameters_with(named, rows.modes, end.operands)
    numbers = {"a_row": weight.steps, "d_row": rows.step, "m": rows.total, "n": weight.n}
    numbers["blocks"] = weight.blocks
    shares = {"norm_share": 1 / weight.k} if weight.norm else {}
    grid = 4 * tiles_of(weight.n) // config.sixteens, rows.blocks(8 * config.eights), 1
    binary = compile_kernel("quantised/skinny.cu", "skinny", knobs, architecture, assembled=assembled)
    return Launch(
        binary,
        grid,
        (32 * config.warps, 1, 1),
        packed_with(parameters, rows, {**numbers, **shares}),
        overlaps=".launch_dependents" in binary.ptx,
        parameters=parameters,
        patches=parameters.patches(),
    )


@lru_cache(maxsize=256)
def decoding(weight: Weight, architecture: str, assembled: bool = True, codes: bool = False) -> Launch:
    """The launch that writes the weight as (n, k), row after row. `codes`: in e4m3, and factors apart."""
    binary = compile_kernel(
        "quantised/decoded.cu",
        "decoded",
        weight.knobs(DECODING_WARPS) | weight.group_knob | {"CODES_ALONE": int(codes)},
        architecture,
        assembled=assembled,
    )
    turns = -(-weight.blocks // (DECODING_WARPS // 2))
    return Launch(
        binary,
        (tiles_of(weight.n) * turns, 1, 1),
        (32 * DECODING_WARPS, 1, 1),
        bytes(DECODED.pack({"n": weight.n, "blocks": weight.blocks})),
        overlaps=".launch_dependents" in binary.ptx,
        parameters=DECODED,
        patches=DECODED.patches(),
    )
