"""Launches of products with weights of few bits, and the choice between their two ways.

few rows of x     streamed (sm_90) or skinny: codes are decoded on their way into the tensor cores
many rows         decoded, then the product of 16-bit floats by any kernel
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from lapidist.build.compiler import compile_kernel
from lapidist.dtypes import TYPES
from lapidist.launch import Launch, ParameterBlock, TensorMap
from lapidist.quantised.fragment_order import tiles_of
from lapidist.quantised.number_formats import BLOCK, FORMATS, GROUPS

FORMAT_NUMBERS = {"int4": 0, "mxfp4": 1, "int8": 2, "e4m3": 3}  # of quantised/decode.cuh
DECODING_WARPS = 8
MOST_EIGHTS = 8  # of rows of x that a block of skinny has in registers
STREAMED_ROWS = 16, 32, 64, 128
MOST_PARTS = 8  # blocks of a cluster
SHARED_BYTES = 226 * 1024  # of an SM for stages; blocks have barriers beside them
SKINNY = ParameterBlock(
    [
        *((name, "pointer") for name in ("A", "B", "C", "D", "scales", "zeros")),
        ("a_row", "i64"),
        ("d_row", "i64"),
        *((name, "i32") for name in ("m", "n", "blocks", "per_group")),
    ]
)
STREAMED = ParameterBlock(
    [
        ("A", "tensormap"),
        *((name, "pointer") for name in ("B", "C", "D", "scales", "zeros")),
        ("d_row", "i64"),
        *((name, "i32") for name in ("m", "n", "tiles", "blocks")),
    ]
)
DECODED = ParameterBlock(
    [
        *((name, "pointer") for name in ("B", "D", "scales", "zeros")),
        *((name, "i32") for name in ("n", "tiles", "blocks", "per_group")),
    ]
)


class Weight(NamedTuple):
    """What a kernel is compiled for and told of a packed weight; `dtype`: of x."""

    k: int
    n: int
    format: str
    group: int
    scale_type: str
    zeros: bool
    dtype: str

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
        return self.group not in GROUPS

    @property
    def factor_bytes(self) -> int:
        """Of a factor and a zero point."""
        return (1 if self.scale_type == "e8m0" else TYPES[self.scale_type].nbytes) + self.zeros

    def knobs_of_format(self) -> dict[str, object]:
        scale = "unsigned char" if self.scale_type == "e8m0" else TYPES[self.scale_type].c_type
        return {
            "FORMAT": FORMAT_NUMBERS[self.format],
            "Scale": scale,
            "GROUPS": max(1, BLOCK // self.group),
            "ZEROS": int(self.zeros),
        }

    def knobs(self, warps: int) -> dict[str, object]:
        return self.knobs_of_format() | {"X": TYPES[self.dtype].c_type, "WARPS": warps}


class Streamed(NamedTuple):
    """A config of streamed: rows of x and groups of 64 columns of a block, blocks that share k, stages of 128
    steps of k, and blocks on an SM at once.
    """

    rows: int
    column_groups: int
    parts: int
    stages: int
    resident: int

    def stage_bytes(self, weight: Weight) -> int:
        """As quantised/stages.cuh has them: x; codes, factors and zero points of each tile."""
        codes = 4096 * (FORMATS[weight.format].bits // 4)
        factors = 0 if weight.of_column else 8192 // weight.group * weight.factor_bytes
        return -(-(256 * self.rows + self.column_groups * (codes + factors)) // 1024) * 1024


def streamed_config(m: int, weight: Weight, multiprocessors: int) -> Streamed:
    rows = next(count for count in STREAMED_ROWS if count >= m or count == STREAMED_ROWS[-1])
    resident = 2 if rows <= 32 else 1
    blocks_at_once = multiprocessors * resident
    blocks = -(-tiles_of(weight.n) // 2) * -(-m // rows)
    most = min(MOST_PARTS, -(-weight.blocks // 2))
    parts = min(
        range(1, most + 1), key=lambda count: -(-blocks * count // blocks_at_once) / count + count / 64
    )
    config = Streamed(rows, 2, parts, 1, resident)
    stages = SHARED_BYTES // resident // config.stage_bytes(weight)
    return config._replace(stages=max(1, min(8, stages)))


@lru_cache(maxsize=256)
def streaming(
    m: int, row: int, weight: Weight, bias: bool, config: Streamed, architecture: str, assembled: bool = True
) -> Launch:
    """`row`: elements from row to row of the result."""
    knobs = weight.knobs_of_format() | {
        "T": TYPES[weight.dtype].c_type,
        "BN": config.rows,
        "BK": BLOCK,
        "BIAS": int(bias),
        "GROUP": 0 if weight.of_column else weight.group,
        "COLUMN_GROUPS": config.column_groups,
        "PARTS": config.parts,
        "STAGES": config.stages,
        "RESIDENT": config.resident,
    }
    numbers = {"d_row": row, "m": m, "n": weight.n, "tiles": tiles_of(weight.n), "blocks": weight.blocks}
    binary = compile_kernel("quantised/streamed.cu", "streamed", knobs, architecture, assembled=assembled)

    def maps(at: Mapping[str, Any]) -> tuple[tuple[int, TensorMap], ...]:
        box, extents = (BLOCK, config.rows), (weight.k, m)
        of_x = TensorMap(at["A"], weight.dtype, extents, (2 * weight.k,), box, swizzle=128)
        return ((STREAMED.offsets["A"], of_x),)

    return Launch(
        binary,
        (-(-tiles_of(weight.n) // config.column_groups), -(-m // config.rows), config.parts),
        (128 * (config.column_groups + 1), 1, 1),
        bytes(STREAMED.pack(numbers)),
        shared_bytes=config.stages * config.stage_bytes(weight),
        cluster=(1, 1, config.parts),
        overlaps=True,
        parameters=STREAMED,
        patches=STREAMED.patches(),
        maps=maps,
    )


class Skinny(NamedTuple):
    """A config of skinny: eights of rows of a block, warps that share k, and tiles on their way."""

    eights: int
    warps: int
    depth: int


def skinny_config(m: int, weight: Weight) -> Skinny:
    """Registers hold less on its way where more rows have sums; shared memory of 48 KiB holds their sums."""
    eights = next(count for count in (1, 2, 4, MOST_EIGHTS) if 8 * count >= m or count == MOST_EIGHTS)
    warps = 8 if eights > 4 or tiles_of(weight.n) >= 64 else 16
    return Skinny(eights, min(warps, max(1, weight.blocks)), 4 if eights <= 2 else 2)


@lru_cache(maxsize=256)
def multiplying(
    m: int,
    rows: tuple[int, int],
    weight: Weight,
    bias: bool,
    config: Skinny,
    architecture: str,
    assembled: bool = True,
) -> Launch:
    """`rows`: elements from row to row of x and of the result."""
    knobs = weight.knobs(config.warps) | {
        "BIAS": int(bias),
        "ROWS_OF_8": config.eights,
        "TILES_AHEAD": config.depth,
    }
    numbers = dict(zip(("a_row", "d_row"), rows, strict=True)) | {"m": m, "n": weight.n}
    numbers |= {"blocks": weight.blocks, "per_group": weight.per_group}
    grid = 4 * tiles_of(weight.n), -(-m // (8 * config.eights)), 1
    binary = compile_kernel("quantised/skinny.cu", "skinny", knobs, architecture, assembled=assembled)
    return Launch(
        binary,
        grid,
        (32 * config.warps, 1, 1),
        bytes(SKINNY.pack(numbers)),
        parameters=SKINNY,
        patches=SKINNY.patches(),
    )


@lru_cache(maxsize=256)
def decoding(weight: Weight, architecture: str, assembled: bool = True) -> Launch:
    """The launch that writes the weight as (n, k), row after row."""
    tiles = tiles_of(weight.n)
    numbers = {"n": weight.n, "tiles": tiles, "blocks": weight.blocks, "per_group": weight.per_group}
    binary = compile_kernel(
        "quantised/decoded.cu", "decoded", weight.knobs(DECODING_WARPS), architecture, assembled=assembled
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
