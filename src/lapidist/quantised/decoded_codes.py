"""Many rows of e4m3: a weight's codes are decoded into e4m3. Factors multiply sums of 128 steps of k."""

from __future__ import annotations

from typing import Any

from lapidist.backends.backend import Backend
from lapidist.backends.selection import MACHINE
from lapidist.calls.call import Call
from lapidist.calls.full_path import multiplied
from lapidist.calls.kernel_choice import Choices
from lapidist.calls.operation import Factors, Operation, Types
from lapidist.frameworks.arrays import HOST, Operand, operand_of
from lapidist.frameworks.new_arrays import empty
from lapidist.launch import AS_IT_IS
from lapidist.problems.scaling import K_BLOCK
from lapidist.quantised.activations import Activations
from lapidist.quantised.launches import Weight, decoding
from lapidist.quantised.packed_weight import PackedWeight
from lapidist.quantised.quantising import as_numbers, cast

E4M3, FORMATS = "float8_e4m3fn", ("int4", "e4m3")
# Streamed, 64 columns are decoded anew for each block of rows: 4096 rows by 28672 x 4096 in int4 took 1.88 ms
# on an H200, and take 0.86 by codes that are decoded once. Our bfloat16 takes 1.23.
MORE_ROWS = 256


def takes(weight: PackedWeight, activations: Activations, rows: int) -> bool:
    """Whether factors are those of scaled products, and rows so many that decoding once pays."""
    of_format = weight.format.name in FORMATS and weight.group in (K_BLOCK, weight.shape[0])
    return rows > MORE_ROWS and activations.x.dtype == E4M3 and of_format


def multiply(
    activations: Activations,
    weight: PackedWeight,
    described: Weight,
    bias: Operand | None,
    out: Operand,
    backend: Backend,
) -> None:
    from lapidist.epilogues.ready_made import bias as added

    k, n = weight.shape
    x, factors = activations.x, activations.factors
    assert factors is not None
    codes = decoded(weight, described, x, backend)
    of_rows = factors.number if factors.array is None else factors.array.owner.reshape(-1)
    operation = Operation(
        types=Types(promote=True),  # a factor for a whole column counts as 128 steps of k, too
        factors=Factors(of_rows, factors_of(weight)),
        epilogue=None if bias is None else added(bias=bias.owner),
    )
    place = MACHINE if backend.ordinal == HOST else None
    rows, target = x.owner.reshape(-1, k), out.owner.reshape(-1, n)
    multiplied(Call(rows, codes.swapaxes(-1, -2), None, target, operation, Choices(place), None))


def decoded(weight: PackedWeight, described: Weight, like: Operand, backend: Backend) -> Any:
    """The weight's codes as (n, k)."""
    k, n = weight.shape
    rows = empty((n, k), like, E4M3)
    launch = decoding(described, backend.chip.architecture, backend.compiles, codes=True)
    arrays = {"B": weight.codes, "scales": weight.scales, "zeros": weight.zeros, "D": rows}
    at = {name: operand_of(array, name) for name, array in arrays.items() if array is not None}
    backend.launch_alone(launch, at, AS_IT_IS, like.framework, None)
    return rows


def factors_of(weight: PackedWeight) -> Any:
    """Factors in float32, one for each group and column, from the order of kernels."""
    tiles, groups, *_ = weight.scales.shape
    by_tile = weight.scales[..., 0, :]  # tile, group, quarter, column of eight, half
    axes = 1, 0, 2, 4, 3
    in_columns = by_tile.permute(axes) if hasattr(by_tile, "permute") else by_tile.transpose(axes)
    scales = in_columns.reshape(groups, 64 * tiles)[:, : weight.shape[1]]
    return cast(as_numbers(scales, weight.scale_type), "float32")
