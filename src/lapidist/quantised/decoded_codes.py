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
from lapidist.quantised.ways import E4M3, FOLDED
from lapidist.quantised.weight_facts import Weight


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
