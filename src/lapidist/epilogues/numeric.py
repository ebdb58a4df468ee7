"""A traced function by NumPy: the host's path, and what kernels are held against; and how far off either
may be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lapidist.dtypes import TYPES, numpy_dtype
from lapidist.epilogues.operations import OPERATIONS, Operation
from lapidist.epilogues.passes import finished, off_by
from lapidist.epilogues.steps import CONSTANT, OPERAND, POSITION, POSITIONS, SEED, SUM, Function, Result, Step

Array = np.ndarray[Any, Any]


def evaluate(function: Function, sums: Array, operands: Mapping[str, Any]) -> list[Array]:
    """Each result, in the type of the sums; factors in float32. Operands broadcast to them. Without
    POSITIONS among them, elements are numbered as the sums have them."""
    dtype = sums.dtype
    shape = sums[..., ::2].shape if function.paired else sums.shape
    values: list[Any] = []
    with np.errstate(all="ignore"):
        for step in function.steps:
            if step.operation == SUM:
                values.append(sums if not step.value else sums[..., int(step.value == "[1]") :: 2])
            elif step.operation == OPERAND:
                values.append(np.asarray(operands[step.value]).astype(dtype))
            elif step.operation in (SEED, POSITION):
                values.append(whole(step, operands, shape))
            elif step.operation == CONSTANT:
                values.append(dtype.type(float.fromhex(step.value)))
            else:
                args = [values[arg] for arg in step.args]
                more = (step.value,) if step.value else ()
                values.append(OPERATIONS[step.operation].numpy(*args, *more))
    return [finished(joined(values, each, shape), each.then, each.dtype) for each in function.results]


def whole(step: Step, operands: Mapping[str, Any], shape: tuple[int, ...]) -> Array:
    """Seeds, and numbers of elements: 64 bits each."""
    if step.operation == POSITION and POSITIONS not in operands:
        return np.arange(math.prod(shape), dtype=np.uint64).reshape(shape)
    value = int(step.value) if step.value.isdigit() else operands[step.value]
    return np.asarray(value).astype(np.uint64)


def joined(values: Sequence[Any], result: Result, shape: tuple[int, ...]) -> Array:
    """A result as its array has it: neighbours side by side."""
    first = np.broadcast_to(values[result.step], shape)
    if result.other is None:
        return first
    both = np.stack([first, np.broadcast_to(values[result.other], shape)], axis=-1)
    return both.reshape(*shape[:-1], 2 * shape[-1])


def stored(values: Array, dtype: str) -> Array:
    """As an array of that type has them: whole numbers are the nearest ones, and those of 8 bits stop at the
    largest."""
    if dtype == "bool":
        return values != 0
    kept = np.nan_to_num(np.rint(values), posinf=np.inf, neginf=-np.inf) if "int" in dtype else values
    bounds = TYPES[dtype].bounds
    with np.errstate(over="ignore"):
        return (kept if bounds is None else np.clip(kept, *bounds)).astype(numpy_dtype(dtype))


class Near(NamedTuple):
    """A value in doubles, and how far from it one computed in another type may be."""

    value: Any
    off: Any


def near(function: Function, sums: Near, operands: Mapping[str, Any], dtype: str) -> list[Near]:
    """Where results lie that were computed in `dtype` from sums that are off by so much."""
    u, spacing = TYPES[dtype].roundoff, TYPES[dtype].spacing
    shape = np.shape(sums.value[..., ::2] if function.paired else sums.value)
    found: list[Near] = []
    with np.errstate(all="ignore"):
        for step in function.steps:
            if step.operation == SUM:
                own = slice(int(step.value == "[1]"), None, 2 if step.value else 1)
                value, off = np.asarray(sums.value, np.float64), np.broadcast_to(sums.off, sums.value.shape)
                found.append(Near(value[..., own], off[..., own]))
            elif step.operation == OPERAND:
                found.append(rounded(np.asarray(operands[step.value], np.float64), u, spacing))
            elif step.operation in (SEED, POSITION):
                found.append(Near(whole(step, operands, shape), 0.0))
            elif step.operation == CONSTANT:
                found.append(rounded(np.float64(float.fromhex(step.value)), u, spacing))
            else:
                row, args = OPERATIONS[step.operation], [found[arg] for arg in step.args]
                more = (step.value,) if step.value else ()
                value = row.numpy(*(arg.value for arg in args), *more)
                spread = row.spread(value, *args, *more)
                found.append(Near(value, computed(value, spread, row, args, dtype)))
    columns = [list(each) for each in zip(*found, strict=True)]
    results = []
    for each in function.results:
        value, off = (joined(column, each, shape) for column in columns)
        results.append(Near(*off_by(value, off, each.then, each.dtype, dtype)))
    return results


def computed(value: Any, spread: Any, row: Operation, args: list[Near], dtype: str) -> Any:
    """With an operation's own roundings. What may be beyond the type's largest number is infinity there."""
    if not row.roundings:
        return spread
    size = row.size(value, *args) + spread
    off = spread + row.roundings * (TYPES[dtype].roundoff * size + TYPES[dtype].spacing)
    return np.where(abs(value) + off <= np.finfo(dtype).max, off, np.inf)


def rounded(value: Any, u: float, spacing: float) -> Near:
    """A number as it comes to the type that is reckoned in."""
    kept = value.astype(np.float32) == value if u == TYPES["float32"].roundoff else value == value
    return Near(value, np.where(kept, 0.0, u * abs(value) + spacing))
