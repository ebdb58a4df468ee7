"""Many rows of e4m3: a weight's codes are decoded into e4m3. Factors multiply sums of 128 steps of k."""

from __future__ import annotations

from typing import Any, NamedTuple

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
from lapidist.quantised.fragment_order import QUARTERS, tiles_of
from lapidist.quantised.launches import decoding
from lapidist.quantised.packed_weight import PackedWeight
from lapidist.quantised.weight_facts import Weight

E4M3 = "float8_e4m3fn"
# Groups of 32 share the largest factor of 128 steps, and codes have the rest, as far as e4m3 goes. Columns
# whose factors span more are multiplied once more, streamed, by the launch behind, which else ends at once.
FOLDED = ("mxfp4",)
# Streamed, 64 columns are decoded anew for each block of rows, which has up to 192. On an H200 4096 rows by
# 28672 x 4096 in int4 took 1.88 ms, and take 0.86 by codes that are decoded once. Our bfloat16 takes 1.23.
# 256 rows in MXFP4 took 160 us, where 257 take 131.
MORE_ROWS = {"int4": 256, "mxfp4": 192, "e4m3": 256}


def takes(weight: PackedWeight, activations: Activations, rows: int) -> bool:
    """Whether factors are those of scaled products, and rows so many that decoding once pays."""
    name = weight.format.name
    if name not in MORE_ROWS or rows <= MORE_ROWS[name] or activations.x.dtype != E4M3:
        return False
    return name in FOLDED or weight.group in (K_BLOCK, weight.shape[0])


class Decoded(NamedTuple):
    """Codes (n, k), factors in float32 (groups of k, n), and where codes were rounded, if any may be."""

    codes: Any
    factors: Any
    inexact: Any


def multiply(
    activations: Activations,
    weight: PackedWeight,
    described: Weight,
    bias: Operand | None,
    out: Operand,
    backend: Backend,
) -> Any:
    """Where codes were rounded, an array that streamed reads; None: of these formats all are exact."""
    from lapidist.epilogues.ready_made import bias as added

    k, n = weight.shape
    decoded = decode(weight, described, activations.x, backend)
    operation = Operation(epilogue=None if bias is None else added(bias=bias.owner))
    rows, target = activations.x.owner.reshape(-1, k), out.owner.reshape(-1, n)
    by_codes(activations, rows, decoded, operation, target, backend)
    return decoded.inexact


def multiply_exact(
    activations: Activations,
    weight: PackedWeight,
    described: Weight,
    operation: Operation,
    out: Any,
    backend: Backend,
) -> Any:
    """The results of an operation, of a format that is not FOLDED."""
    x = activations.x
    return by_codes(activations, x.owner, decode(weight, described, x, backend), operation, out, backend)


def by_codes(
    activations: Activations, rows: Any, decoded: Decoded, operation: Operation, out: Any, backend: Backend
) -> Any:
    factors = activations.factors
    assert factors is not None
    of_rows = factors.number if factors.array is None else factors.array.owner.reshape(-1)
    # A factor for a whole column counts as 128 steps of k, too.
    types = Types(out_dtype=activations.result, promote=True)
    scaled = operation._replace(types=types, factors=Factors(of_rows, decoded.factors))
    place = MACHINE if backend.ordinal == HOST else None
    return multiplied(Call(rows, decoded.codes.swapaxes(-1, -2), None, out, scaled, Choices(place), None))


def decode(weight: PackedWeight, described: Weight, like: Operand, backend: Backend) -> Decoded:
    """In new arrays beside `like`."""
    k, n = weight.shape
    folded = weight.format.name in FOLDED
    groups = 1 if weight.group == k and not folded else -(-k // K_BLOCK)
    codes = empty((n, described.steps), like, E4M3)
    factors = empty((groups, n), like, "float32")
    inexact = empty((tiles_of(n), described.blocks, QUARTERS), like, "uint8") if folded else None
    launch = decoding(described, backend.chip.architecture, backend.compiles, codes=True)
    arrays = {"B": weight.codes, "scales": weight.scales, "zeros": weight.zeros}
    arrays |= {"D": codes, "factors": factors, "inexact": inexact}
    at = {name: operand_of(array, name) for name, array in arrays.items() if array is not None}
    backend.launch_alone(launch, at, AS_IT_IS, like.framework, None)
    return Decoded(codes[:, :k], factors, inexact)
