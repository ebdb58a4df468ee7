"""Launches of products with weights of few bits, and the choice between their two ways.

few rows of x     skinny: codes are decoded on their way into the tensor cores
many rows         decoded, then the product of 16-bit floats by any kernel
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from lapidist.build.compiler import compile_kernel
from lapidist.dtypes import TYPES
from lapidist.launch import Launch, ParameterBlock
from lapidist.quantised.fragment_order import tiles_of
from lapidist.quantised.number_formats import BLOCK

FORMAT_NUMBERS = {"int4": 0, "mxfp4": 1, "int8": 2, "e4m3": 3}  # of quantised/decode.cuh
DECODING_WARPS = 8
MOST_EIGHTS = 8  # of rows of x that a block of skinny has in registers
SKINNY = ParameterBlock(
    [
        *((name, "pointer") for name in ("A", "B", "C", "D", "scales", "zeros")),
        ("a_row", "i64"),
        ("d_row", "i64"),
        *((name, "i32") for name in ("m", "n", "blocks", "per_group")),
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

    def knobs(self, warps: int) -> dict[str, object]:
        scale = "unsigned char" if self.scale_type == "e8m0" else TYPES[self.scale_type].c_type
        return {
            "FORMAT": FORMAT_NUMBERS[self.format],
            "X": TYPES[self.dtype].c_type,
            "Scale": scale,
            "GROUPS": max(1, BLOCK // self.group),
            "ZEROS": int(self.zeros),
            "WARPS": warps,
        }


class Skinny(NamedTuple):
    """A config of skinny: eights of rows of a block, warps that share k, and tiles on their way."""

    eights: int
    warps: int
    depth: int


def skinny_config(m: int, weight: Weight) -> Skinny:
    """Registers hold less on its way where more rows have sums; shared memory of 48 KiB holds their sums."""
    eights = next(count for count in (1, 2, 4, MOST_EIGHTS) if 8 * count >= m or count == MOST_EIGHTS)
    warps = 8 if eights > 4 or tiles_of(weight.n) >= 256 else 16
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
    grid = tiles_of(weight.n), -(-m // (8 * config.eights)), 1
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
    grid = -(-tiles * weight.blocks // DECODING_WARPS), 1, 1
    return Launch(
        binary,
        grid,
        (32 * DECODING_WARPS, 1, 1),
        bytes(DECODED.pack(numbers)),
        parameters=DECODED,
        patches=DECODED.patches(),
    )
