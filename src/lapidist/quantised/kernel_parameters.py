"""Parameters of kernels of few bits, the rows of x that they multiply, and what becomes of sums."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from lapidist.launch import ParameterBlock
from lapidist.problems import modes as routes
from lapidist.problems.modes import PLAIN, Modes
from lapidist.problems.ragged import Ragged
from lapidist.problems.scaling import AS_THEY_ARE

SKINNY = ParameterBlock(
    [
        *((name, "pointer") for name in ("A", "B", "C", "D", "scales", "zeros")),
        ("a_row", "i64"),
        ("d_row", "i64"),
        *((name, "i32") for name in ("m", "n", "blocks")),
        ("weights", "pointer"),
    ]
)
STREAMED = ParameterBlock(
    [
        ("A", "tensormap"),
        *((name, "pointer") for name in ("B", "C", "D", "scales", "zeros")),
        ("d_row", "i64"),
        *((name, "i32") for name in ("m", "n", "tiles", "blocks")),
        ("weights", "pointer"),
    ]
)
X_FACTORS = ("x_factor", "f32"), ("x_factors", "pointer"), ("x_factors_step", "i64")
SKINNY_BYTES = ParameterBlock([*SKINNY.parameters, *X_FACTORS])
SKINNY_NORM = ParameterBlock([*SKINNY.parameters, ("norm_share", "f32"), ("norm_epsilon", "f32")])
STREAMED_BYTES = ParameterBlock([*STREAMED.parameters, *X_FACTORS])
STREAMED_AGAIN = ParameterBlock([*STREAMED_BYTES.parameters, ("inexact", "pointer")])
CONVERTED = ParameterBlock([("A", "pointer"), ("D", "pointer"), ("vectors", "i64")])
DECODED = ParameterBlock(
    [
        *((name, "pointer") for name in ("B", "D", "scales", "zeros")),
        *((name, "i32") for name in ("n", "blocks")),
        *((name, "pointer") for name in ("weights", "factors", "inexact")),
    ]
)


MOST_BLOCKS = 65535  # of rows: a grid's second extent


class End(NamedTuple):
    """What becomes of sums: a bias is added; or a caller's function, as macros and by its operands."""

    bias: bool = False
    macros: tuple[tuple[str, object], ...] = ()
    operands: int = 0

    @property
    def knobs(self) -> dict[str, object]:
        return {"BIAS": int(self.bias), **dict(self.macros)}


class Rows(NamedTuple):
    """Rows of the product: how many, and elements from row to row of the result. How long groups are taken to
    be, if they are cut. Where x and the result have them.
    """

    total: int
    step: int
    each: int = 0
    modes: Modes = PLAIN

    @property
    def ragged(self) -> Ragged | None:
        return self.modes.ragged

    @property
    def expected(self) -> int:
        """Of a block's weight."""
        return self.total if self.ragged is None else self.each

    def blocks(self, lines: int) -> int:
        """At most, of so many rows."""
        return -(-self.total // lines) if self.ragged is None else self.ragged.tiles(lines)

    def fit_blocks(self, lines: int) -> bool:
        """Whether a grid has so many blocks."""
        return self.blocks(lines) <= MOST_BLOCKS

    def expected_blocks(self, lines: int) -> int:
        if self.ragged is None:
            return self.blocks(lines)
        return round(self.filled_groups(self.ragged.groups)) * -(-self.each // lines)

    def filled_groups(self, groups: int) -> float:
        """Those that have rows in the mean, where each row goes to any group."""
        return groups * (1 - (1 - 1 / groups) ** min(self.total, self.each * groups))


@lru_cache(maxsize=64)
def parameters_with(kernel: ParameterBlock, modes: Modes, operands: int) -> ParameterBlock:
    """The kernel's parameters, and those of indices, of groups and of an epilogue's operands. Rows of x that
    are gathered have no tensor map.
    """
    kinds = dict(kernel.parameters)
    if modes.gather_a:
        kinds["A"] = "pointer"
    if modes.routes:
        kinds["modes"] = "modes"
    if modes.ragged:
        kinds["ragged"] = "ragged"
    if operands:
        kinds["epilogue"] = f"epilogue{operands}"
    return ParameterBlock(list(kinds.items()))


def packed_with(parameters: ParameterBlock, rows: Rows, numbers: Mapping[str, object]) -> bytes:
    groups = {} if rows.ragged is None else {"ragged": rows.ragged.members(AS_THEY_ARE)}
    return bytes(parameters.pack({**numbers, **groups, "modes": routes.members(rows.modes)}))
