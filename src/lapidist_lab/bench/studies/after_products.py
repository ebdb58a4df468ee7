"""What may follow a product, for bench epilogue: our epilogue, torch's kernels for the same, and how far off
a result may be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lapidist.dtypes import TYPES
from lapidist.epilogues.expressions import Row, Tile
from lapidist.epilogues.functions import gelu as gelu_of
from lapidist.epilogues.passes import GROUP
from lapidist.epilogues.ready_made import READY
from lapidist.epilogues.tracing import epilogue
from lapidist.verify.sum_bound import Expected, to_float64

STEEPEST = 1.13  # the slope of GELU and SiLU, the largest of any here
FAR = 16  # units in the last place of float that its functions may be off
LARGEST, E4M3_ROUNDOFF, E4M3_SPACING = 448, 2**-4, 2**-10
Torch = Any


@dataclass(frozen=True, slots=True)
class EpilogueArrays:
    """Arrays for one set of inputs: a bias for each column, a residual for each element, and the results."""

    bias: Any
    residual: Any
    results: tuple[Any, ...]


@epilogue
def bias_gelu_and_sum(acc: Any, bias: Row, residual: Tile) -> Any:
    """GELU and a residual, and beside D the sum before them: what a backward needs"""
    before = acc + bias
    return gelu_of(before) + residual, before


def plain(torch: Torch, sums: Any, arrays: EpilogueArrays) -> tuple[Any, ...]:
    return (sums,)


def bias_gelu(torch: Torch, sums: Any, arrays: EpilogueArrays) -> tuple[Any, ...]:
    return (torch.nn.functional.gelu(sums),)


def bias_gelu_tanh(torch: Torch, sums: Any, arrays: EpilogueArrays) -> tuple[Any, ...]:
    return (torch.nn.functional.gelu(sums, approximate="tanh"),)


def bias_gelu_residual(torch: Torch, sums: Any, arrays: EpilogueArrays) -> tuple[Any, ...]:
    return (torch.nn.functional.gelu(sums) + arrays.residual,)


def with_sum(torch: Torch, sums: Any, arrays: EpilogueArrays) -> tuple[Any, ...]:
    return torch.nn.functional.gelu(sums) + arrays.residual, sums


def swiglu(torch: Torch, sums: Any, arrays: EpilogueArrays) -> tuple[Any, ...]:
    """SiLU of the first half times the second, as torch's layers have gate and value. Ours takes
    neighbours."""
    gate, value = sums.chunk(2, dim=1)
    return (torch.nn.functional.silu(gate) * value,)


def amax(torch: Torch, sums: Any, arrays: EpilogueArrays) -> tuple[Any, ...]:
    return sums, torch.linalg.vector_norm(sums, float("inf"))


def groups(torch: Torch, sums: Any, arrays: EpilogueArrays) -> tuple[Any, ...]:
    parts = sums.unflatten(1, (-1, GROUP))
    factors = parts.abs().amax(-1).float() / LARGEST
    return (parts / factors.unsqueeze(-1)).flatten(1), factors


# ---- the same by one kernel after the other, in place: no copy that a user would not need ----


def nothing(torch: Torch, sums: Any, arrays: EpilogueArrays) -> None:
    pass


def gelu_in_place(torch: Torch, sums: Any, arrays: EpilogueArrays) -> None:
    torch.ops.aten.gelu_(sums)


def gelu_tanh_in_place(torch: Torch, sums: Any, arrays: EpilogueArrays) -> None:
    torch.ops.aten.gelu_(sums, approximate="tanh")


def residual_in_place(torch: Torch, sums: Any, arrays: EpilogueArrays) -> None:
    torch.ops.aten.gelu_(sums).add_(arrays.residual)


def gelu_with_sum(torch: Torch, sums: Any, arrays: EpilogueArrays) -> None:
    torch.ops.aten.gelu.out(sums, out=arrays.results[0]).add_(arrays.residual)


def swiglu_to_half(torch: Torch, sums: Any, arrays: EpilogueArrays) -> None:
    gate, value = sums.chunk(2, dim=1)
    torch.ops.aten.silu.out(gate, out=arrays.results[0]).mul_(value)


def largest_of(torch: Torch, sums: Any, arrays: EpilogueArrays) -> None:
    torch.linalg.vector_norm(sums, float("inf"), dtype=torch.float32, out=arrays.results[1])


def groups_of(torch: Torch, sums: Any, arrays: EpilogueArrays) -> None:
    small, factors = arrays.results
    parts = sums.unflatten(1, (-1, GROUP))
    factors.copy_(parts.abs().amax(-1)).div_(LARGEST)
    small.unflatten(1, (-1, GROUP)).copy_(parts / factors.unsqueeze(-1))


@dataclass(frozen=True, slots=True)
class Ending:
    """An epilogue, and torch's kernels for the same: `after` and `in_place` follow a product with its bias.
    `stored` names the results, `sums_in` the array of torch's product."""

    name: str
    after: Callable[[Torch, Any, EpilogueArrays], tuple[Any, ...]] = plain
    in_place: Callable[[Torch, Any, EpilogueArrays], None] = nothing
    stored: tuple[str, ...] = ("d",)
    sums_in: str = "d"
    function: Any = None

    @property
    def compiled(self) -> bool:
        """Whether torch.compile has kernels to join."""
        return self.in_place is not nothing

    @property
    def biased(self) -> bool:
        return self.name.startswith("bias")

    def bound_epilogue(self, arrays: EpilogueArrays) -> Any:
        """Our epilogue with its operands."""
        if self.name == PLAIN:
            return None
        function = self.function or READY[self.name]
        operands = {"bias": arrays.bias, "residual": arrays.residual}
        return function(
            **{parameter.name: operands[parameter.name] for parameter in function.function.parameters}
        )

    # ---- what it must be ----

    def expected(
        self, torch: Torch, sums: Expected, arrays: EpilogueArrays, output: str, roundings: int
    ) -> Expected:
        """All results in one vector, as `combined` has them. `sums` are in float64 with their bias;
        `roundings` is how often they are rounded to the output's type."""
        exact = EpilogueArrays(to_float64(arrays.bias), to_float64(arrays.residual), ())
        values, kind = self.after(torch, sums.reference, exact), TYPES[output]
        if self.name == GROUPS:
            factors = values[1].repeat_interleave(GROUP, 1)
            size = sums.reference.abs()
            bound = 1.1 * (sums.bound + roundings * kind.roundoff * size)
            return Expected(
                sums.reference, bound + E4M3_ROUNDOFF * size + 1.1 * E4M3_SPACING * factors + kind.spacing
            )
        slopes = self.off(torch, sums)
        bounds = []
        for value in values:
            size = abs(value) + (abs(sums.reference) if value.shape == sums.reference.shape else 0)
            off = slopes if value.dim() else slopes.max()
            far = FAR * TYPES["float32"].roundoff * size + kind.roundoff * (abs(value) + roundings * size)
            bounds.append(off + far + kind.spacing)
        return Expected(side_by_side(torch, values), side_by_side(torch, bounds))

    def off(self, torch: Torch, sums: Expected) -> Any:
        """The bound of a result's error, from the bound of its sums' error."""
        if self.name != SWIGLU:
            return STEEPEST * sums.bound
        (gate, value), (of_gate, of_value) = sums.reference.chunk(2, dim=1), sums.bound.chunk(2, dim=1)
        return STEEPEST * of_gate * (value.abs() + of_value) + gate.abs() * of_value

    def combined(self, torch: Torch, results: tuple[Any, ...]) -> Any:
        values = tuple(map(to_float64, results))
        if self.name == GROUPS:
            return values[0] * values[1].repeat_interleave(GROUP, 1)
        return side_by_side(torch, values)


def side_by_side(torch: Torch, values: Any) -> Any:
    return torch.cat([value.reshape(-1) for value in values])


PLAIN, GROUPS, SWIGLU, LT = "plain", "quantise_e4m3_groups", "swiglu", "bias_gelu_tanh"
ENDINGS = (
    Ending(PLAIN),
    Ending("bias"),
    Ending("bias_gelu", bias_gelu, gelu_in_place),
    Ending(LT, bias_gelu_tanh, gelu_tanh_in_place),  # cuBLASLt has this one
    Ending("bias_gelu_residual", bias_gelu_residual, residual_in_place),
    Ending(
        "bias_gelu_residual, sum beside",
        with_sum,
        gelu_with_sum,
        ("d", "second"),
        "second",
        bias_gelu_and_sum,
    ),
    Ending(SWIGLU, swiglu, swiglu_to_half, ("half",)),
    Ending("amax", amax, largest_of, ("d", "largest")),
    Ending(GROUPS, groups, groups_of, ("small", "factors")),
)
