"""The operators on torch's DTensor: how operands may be split over devices, and how the result is split then.

Dimensions have names: a batch's their place in the result, then "m", "n" and "k". Devices may split the
dimensions of a name in all operands that have it. Splitting k makes the results terms of a sum. Dimensions
that are broadcast have no name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

Names = tuple[Any, ...]
Rule = tuple[list[Any], list[Any]]  # placements of results and of arguments; None if not a tensor
MATRIX = 2  # dimensions


class Split(NamedTuple):
    """How the result and the operands are split over devices."""

    result: Any
    a: Any
    b: Any
    added: Any
    factors: list[Any]

    def rule(self, constants: int) -> Rule:
        """For operators with so many arguments after the tensors."""
        return [self.result], [self.a, self.b, *self.factors, self.added, *[None] * constants]


def named(shape: Any, last: Names, rows: int = MATRIX) -> Names:
    """The names of an operand's dimensions, the last of which are `last`. Batch dimensions are named by their
    place in the result, before its last `rows` dimensions.
    """
    before = len(shape) - len(last)
    names = (*range(-rows - before, -rows), *last)
    return tuple(name if size != 1 else None for name, size in zip(names, shape, strict=True))


def broadcast(shape: Any, result: Names) -> Names:
    """The names of the dimensions of a tensor that is added to a result."""
    trailing = result[len(result) - len(shape) :]
    return tuple(name if size != 1 else None for name, size in zip(trailing, shape, strict=True))


def placed(name: Any, names: Names | None) -> Any:
    from torch.distributed.tensor import Replicate, Shard

    if names is None:
        return None
    return Shard(names.index(name)) if name in names else Replicate()


def splits(
    result: Names,
    a: Names,
    b: Names,
    added: Names | None = None,
    factors: tuple[Names, ...] = (),
    unsplit: tuple[Any, ...] = (),
) -> Iterator[Split]:
    """All correct ways to split. Names in `unsplit` are not split."""
    from torch.distributed.tensor import Partial

    def split(name: Any, of_result: Any, of_added: Any) -> Split:
        of_factors = [placed(name, names) for names in factors]
        return Split(of_result, placed(name, a), placed(name, b), of_added, of_factors)

    yield split("", placed("", result), placed("", added))  # no dimension has this name: nothing is split
    for name in dict.fromkeys((*a, *b)):
        if name is None or name in unsplit:
            continue
        if name == "k":
            yield split(name, Partial(), None if added is None else Partial())
        else:
            yield split(name, placed(name, result), placed(name, added))


# ---- the operators ----


def of_gemm(
    a: Any,
    b: Any,
    c: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    trans_a: bool = False,
    trans_b: bool = False,
    *types: Any,
) -> list[Rule]:
    rank = max(len(a.shape), len(b.shape))
    result = (*range(-rank, -MATRIX), "m", "n")
    of_a = named(a.shape, ("k", "m") if trans_a else ("m", "k"))
    of_b = named(b.shape, ("n", "k") if trans_b else ("k", "n"))
    ways = splits(result, of_a, of_b, None if c is None else broadcast(c.shape, result))
    constants = len((alpha, beta, trans_a, trans_b, *types))
    return [split.rule(constants) for split in ways]


def of_update(out: Any, a: Any, b: Any, *numbers: Any) -> list[Rule]:
    """Rules of gemm_, but those whose result is a sum over devices: `out` would have to be one, too."""
    in_place = [rule for rule in of_gemm(a, b, out, *numbers) if not rule[0][0].is_partial()]
    return [([], [of_out, of_a, of_b, *constants]) for _, (of_a, of_b, of_out, *constants) in in_place]


def of_matmul(a: Any, b: Any, *types: Any) -> list[Rule]:
    row, column = len(a.shape) == 1, len(b.shape) == 1
    rank = max(len(a.shape), len(b.shape), MATRIX)
    result = (*range(-rank, -MATRIX), *(() if row else ("m",)), *(() if column else ("n",)))
    of_a = named(a.shape, ("k",) if row else ("m", "k"))
    of_b = named(b.shape, ("k",) if column else ("k", "n"))
    constants = [None] * len(types)
    return [([split.result], [split.a, split.b, *constants]) for split in splits(result, of_a, of_b)]


def of_linear(input: Any, weight: Any, bias: Any = None, *types: Any) -> list[Rule]:
    outputs = ("n",) if len(weight.shape) == MATRIX else ()
    result = (*range(-len(input.shape), -1), *outputs)
    of_input, of_weight = named(input.shape, ("k",), 1), named(weight.shape, (*outputs, "k"))
    ways = splits(result, of_input, of_weight, None if bias is None else broadcast(bias.shape, result))
    return [split.rule(len(types)) for split in ways]


def of_scaled(a: Any, b: Any, scale_a: Any, scale_b: Any, c: Any = None, *types: Any) -> list[Rule]:
    """Rows, columns or parts of k that share a factor are not split."""
    result = ("m", "n")
    of_a, of_b = factors(scale_a, a.shape, ("m", "k")), factors(scale_b, b.shape, ("k", "n"))
    blocks = tuple(name for name in (*of_a, *of_b) if isinstance(name, tuple))
    ways = splits(
        result,
        named(a.shape, ("m", "k")),
        named(b.shape, ("k", "n")),
        None if c is None else broadcast(c.shape, result),
        (of_a, of_b),
        tuple(name for (name,) in blocks),
    )
    return [split.rule(len(types)) for split in ways]


def of_grouped(
    a: Any, b: Any, offsets: Any, trans_a: bool = False, trans_b: bool = False, *types: Any
) -> list[Rule]:
    """What groups cut, and their number, is not split: where they end is one array for all."""
    result, of_a, of_b = GROUPED[len(a.shape), len(b.shape)]
    ways = splits(
        result,
        named(a.shape, transposed(of_a) if trans_a else of_a),
        named(b.shape, transposed(of_b) if trans_b else of_b),
        factors=(("groups",),),
        unsplit=("total", "groups"),
    )
    constants = [None] * len((trans_a, trans_b, *types))
    return [([split.result], [split.a, split.b, *split.factors, *constants]) for split in ways]


def transposed(names: Names) -> Names:
    return (*names[:-2], names[-1], names[-2])


# the names of the result's, a's and b's dimensions, by how many a and b have
GROUPED: dict[tuple[int, int], tuple[Names, Names, Names]] = {
    (2, 3): (("total", "n"), ("total", "k"), ("groups", "k", "n")),
    (3, 2): (("m", "total"), ("groups", "m", "k"), ("k", "total")),
    (2, 2): (("groups", "m", "n"), ("m", "total"), ("total", "n")),
}


def factors(scale: Any, shape: Any, names: Names) -> Names:
    """The names of factors' dimensions, in a tuple where several rows, columns or k share a factor."""
    sizes = (
        (name, size, of)
        for name, size, of in zip(names[-len(scale.shape) :], scale.shape, shape, strict=False)
    )
    return tuple(None if size == 1 else name if size == of else (name,) for name, size, of in sizes)


RULES: dict[str, tuple[Callable[..., list[Rule]], int]] = {  # and the number of tensors that come first
    "gemm": (of_gemm, 3),
    "gemm_": (of_update, 3),
    "matmul": (of_matmul, 2),
    "linear": (of_linear, 3),
    "scaled": (of_scaled, 5),
    "grouped": (of_grouped, 3),
}
_registered: list[bool] = []


def register() -> None:
    """Register the rules once torch.distributed.tensor is imported, which takes half a second."""
    if _registered or "torch.distributed.tensor" not in sys.modules:
        return
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._op_schema import RuntimeSchemaInfo
    from torch.distributed.tensor.experimental import register_sharding

    _registered.append(True)
    propagator = DTensor._op_dispatcher.sharding_propagator
    for name, (rule, tensors) in RULES.items():
        op = getattr(torch.ops.lapidist, name).default
        register_sharding(op)(rule)
        # Otherwise a choice for one trans_a would be reused for the other.
        propagator.op_to_schema_info[op] = RuntimeSchemaInfo(tensors, needs_pytree=True)
