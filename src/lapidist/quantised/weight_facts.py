"""What kernels of few bits are compiled for and told of a packed weight."""

from __future__ import annotations

from typing import NamedTuple

from lapidist.dtypes import TYPES
from lapidist.quantised.number_formats import BLOCK, GROUP_OF, GROUPS, VECTOR_BYTES, steps_of_codes

FORMAT_NUMBERS = {"int4": 0, "mxfp4": 1, "int8": 2, "e4m3": 3, "nvfp4": 4}  # of quantised/decode.cuh
BYTES = "e8m0", "e4m3"  # types of factors


class Weight(NamedTuple):
    """What a kernel is compiled for and told of a packed weight; `dtype`: of x; `out`: of other results;
    `norm`: whether x has an RMSNorm.
    """

    k: int
    n: int
    format: str
    group: int
    scale_type: str
    zeros: bool
    dtype: str
    out: str = ""
    norm: bool = False

    @property
    def x_bytes(self) -> int:
        """Of an element of x."""
        return TYPES[self.dtype].nbytes

    @property
    def blocks(self) -> int:
        return self.steps // BLOCK

    @property
    def steps(self) -> int:
        """Of k, with those behind its end, whose codes are zeros."""
        return steps_of_codes(self.k, self.group)

    @property
    def streamed_row(self) -> int:
        """Elements from row to row of x for streamed, whose rows begin at vectors."""
        return self.steps if self.k * self.x_bytes % VECTOR_BYTES else self.k

    @property
    def of_column(self) -> bool:
        """Whether a column has one factor, and more steps of k than a group has."""
        return self.group not in (*GROUPS, *GROUP_OF.values())

    @property
    def exact_in_x(self) -> bool:
        """Whether the type of x (of 16 bits) holds products of codes and factors, or sums are multiplied."""
        return self.of_column or self.format == "nvfp4" or (self.format, self.dtype) == ("mxfp4", "bfloat16")

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
        """Of mma.sync, which multiplies 8 bits as halves."""
        of_x = TYPES[self.dtype].c_type
        types = {"T": of_x} if self.x_bytes == 2 else {"T": "__half", "X": of_x}
        return self.knobs_of_format() | types | {"WARPS": warps}
