"""How the operators go with torch's DTensor: which parts of their operands devices may hold, and what part of
the result each has then.

Dimensions have names: a batch's their place in the result, then "m", "n" and "k". Devices may split a name's
dimensions, in all operands that have it. What was split along k are terms of a sum. Dimensions that are
broadcast have no name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

Names = tuple[Any, ...]
Rule = tuple[list[Any], list[Any]]  # where results are, and where operands are; None for what is no tensor
MATRIX, NUMBERS = 2, 4  # dimensions of one; alpha, beta, trans_a, trans_b


class Split(NamedTuple):
    """How the result and the operands are split over devices."""

    result: Any
    a: Any
    b: Any
    added: Any
    others: list[Any]


def named(shape: Any, last: Names, rows: int = MATRIX) -> Names:
    """An operand that ends in dimensions of those names. A result ends in `rows` dimensions: what comes
    before has the name of its place there.
    """
    before = len(shape) - len(last)
    names = (*range(-rows - before, -rows), *last)
    return tuple(name if size != 1 else None for name, size in zip(names, shape, strict=True))


def broadcast(shape: Any, result: Names) -> Names:
    """The names of what is added to a result."""
    there = result[len(result) - len(shape) :]
    return tuple(name if size != 1 else None for name, size in zip(there, shape, strict=True))


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
    others: tuple[Names, ...] = (),
    whole: tuple[Any, ...] = (),
) -> Iterator[Split]:
    """All correct ways to split. Operands and dimensions named in `whole` are not split."""
    from torch.distributed.tensor import Partial

    def split(name: Any, of_result: Any, of_added: Any) -> Split:
        return Split(of_result, placed(name, a), placed(name, b), of_added, [placed(name, x) for x in others])

    yield split("", placed("", result), placed("", added))  # nothing has no name: all have everything
    for name in dict.fromkeys((*a, *b)):
        if name is None or name in whole:
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
    found = splits(result, of_a, of_b, None if c is None else broadcast(c.shape, result))
    rest = [None] * (NUMBERS + len(types))
    return [([each.result], [each.a, each.b, each.added, *rest]) for each in found]


def of_update(out: Any, a: Any, b: Any, *numbers: Any) -> list[Rule]:
    """Rules of gemm_. A result that is a sum over devices is impossible in place: `out` would have to be one,
    too.
    """
    kept = [rule for rule in of_gemm(a, b, out, *numbers) if not rule[0][0].is_partial()]
    return [([], [where[2], *where[:2], *where[3:]]) for _, where in kept]


def of_matmul(a: Any, b: Any, *types: Any) -> list[Rule]:
    row, column = len(a.shape) == 1, len(b.shape) == 1
    rank = max(len(a.shape), len(b.shape), MATRIX)
    result = (*range(-rank, -MATRIX), *(() if row else ("m",)), *(() if column else ("n",)))
    of_a = named(a.shape, ("k",) if row else ("m", "k"))
    of_b = named(b.shape, ("k",) if column else ("k", "n"))
    return [([each.result], [each.a, each.b, *[None] * len(types)]) for each in splits(result, of_a, of_b)]


def of_linear(input: Any, weight: Any, bias: Any = None, *types: Any) -> list[Rule]:
    outputs = ("n",) if len(weight.shape) == MATRIX else ()
    result = (*range(-len(input.shape), -1), *outputs)
    of_input, of_weight = named(input.shape, ("k",), 1), named(weight.shape, (*outputs, "k"))
    found = splits(result, of_input, of_weight, None if bias is None else broadcast(bias.shape, result))
    return [([each.result], [each.a, each.b, each.added, *[None] * len(types)]) for each in found]


def of_scaled(a: Any, b: Any, scale_a: Any, scale_b: Any, c: Any = None, *types: Any) -> list[Rule]:
    """Where a factor belongs to several rows, columns or parts of k, these are not split."""
    result = ("m", "n")
    of_a, of_b = factors(scale_a, a.shape, ("m", "k")), factors(scale_b, b.shape, ("k", "n"))
    blocks = tuple(name for name in (*of_a, *of_b) if isinstance(name, tuple))
    found = splits(
        result,
        named(a.shape, ("m", "k")),
        named(b.shape, ("k", "n")),
        None if c is None else broadcast(c.shape, result),
        (of_a, of_b),
        tuple(name for (name,) in blocks),
    )
    rest = [None] * len(types)
    return [([each.result], [each.a, each.b, *each.others, each.added, *rest]) for each in found]


def factors(scale: Any, shape: Any, names: Names) -> Names:
    """The names of factors' dimensions. A factor that belongs to several rows, columns or k has the name in a
    tuple.
    """
    sizes = (
        (name, size, of)
        for name, size, of in zip(names[-len(scale.shape) :], scale.shape, shape, strict=False)
    )
    return tuple(None if size == 1 else name if size == of else (name,) for name, size, of in sizes)


RULES: dict[str, tuple[Callable[..., list[Rule]], int]] = {  # and how many tensors each begins with
    "gemm": (of_gemm, 3),
    "gemm_": (of_update, 3),
    "matmul": (of_matmul, 2),
    "linear": (of_linear, 3),
    "scaled": (of_scaled, 5),
}
_registered: list[bool] = []


def register() -> None:
    """Register the rules once DTensors may exist: importing them takes half a second."""
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
        # By itself it would take a choice for one trans_a for that of another.
        propagator.op_to_schema_info[op] = RuntimeSchemaInfo(tensors, needs_pytree=True)
