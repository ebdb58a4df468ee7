"""Products with an epilogue: one launch where nobody needs the sums; else torch has the function, and with it
its gradients, transforms and compilers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from lapidist import api
from lapidist.calls.fused import fits_batch
from lapidist.calls.operation import given_epilogue
from lapidist.dtypes import TYPES, accumulators_of, number_type
from lapidist.epilogues import passes
from lapidist.epilogues.steps import (
    CAST,
    COLUMN,
    CONSTANT,
    KEPT,
    KEPT_BY,
    OPERAND,
    POSITION,
    ROW,
    SCALAR,
    SEED,
    SUM,
    TILE,
    Function,
    Result,
)
from lapidist.epilogues.tracing import Given
from lapidist.frameworks.arrays import torch_dtype
from lapidist.torch import operators, outlines
from lapidist.torch.autocast import in_autocast
from lapidist.torch.sight import is_plain, is_recorded, is_unobserved


def is_seen(given: Given, *tensors: Any) -> bool:
    """Whether torch needs more than the result: the product before the function, or a gradient of one of its
    operands.
    """
    every = (*tensors, *given.values.values())
    return not is_unobserved() or not all(map(is_plain, every)) or is_recorded(every)


def matmul(a: Any, b: Any, epilogue: Any, out_dtype: Any, precision: Any) -> Any:
    given = given_epilogue(epilogue)
    assert given is not None
    a, b = in_autocast(a, b)
    if not is_seen(given, a, b):
        return api.matmul(a, b, out_dtype=out_dtype, precision=precision, epilogue=given)
    dtype = outlines.of_matmul(a, b, out_dtype, precision, given).dtype
    row, column = a.ndim == 1, b.ndim == 1
    given = with_tiles(given, lambda tile: with_lines(tile, row, column))
    a, b = (a.unsqueeze(0) if row else a), (b.unsqueeze(1) if column else b)
    sums = operators.matmul(a, b, type_of_sums(a), precision)
    return finished(given, sums, dtype, row, column)


def gemm(
    a: Any,
    b: Any,
    c: Any,
    epilogue: Any,
    how: dict[str, Any],
    out_dtype: Any,
    precision: Any,
    row: bool = False,
) -> Any:
    """`how`: alpha, beta and what is transposed, in the operator's order. `row`: the caller has no rows."""
    given = given_epilogue(epilogue)
    assert given is not None
    a, b, c = in_autocast(a, b, c)
    if row:
        given = with_tiles(given, lambda tile: tile.unsqueeze(0) if tile.ndim == 1 else tile)
    how = {**how, "precision": precision}
    if not is_seen(given, a, b, c):
        made = api.gemm(a, b, c, **how, out_dtype=out_dtype, epilogue=given)
        found = made if isinstance(made, tuple) else (made,)
        return delivered(
            [without(*each, row, False) for each in zip(given.function.results, found, strict=True)]
        )
    dtype = outlines.of_gemm(a, b, c, **how, out_dtype=out_dtype, epilogue=given).dtype
    kind = type_of_sums(a)
    numbers = how["alpha"], how["beta"], how["trans_a"], how["trans_b"]
    sums = operators.gemm(a, b, None if c is None else c.to(kind), *numbers, kind, precision)
    return finished(given, sums, dtype, row)


def linear(input: Any, weight: Any, bias: Any, epilogue: Any, out_dtype: Any, precision: Any) -> Any:
    """Of a bias, too, the sums have their share before the function."""
    how = {"alpha": 1.0, "beta": 0.0 if bias is None else 1.0, "trans_a": False, "trans_b": True}
    return gemm(outlines.as_rows(input), weight, bias, epilogue, how, out_dtype, precision, input.ndim == 1)


def with_tiles(given: Given, change: Callable[[Any], Any]) -> Given:
    """Its operands that have a value for each element of D, changed."""
    tiles = {each.name for each in given.function.parameters if each.kind == TILE}
    changed = {
        name: change(value) if name in tiles and isinstance(value, torch.Tensor) else value
        for name, value in given.values.items()
    }
    return given._replace(values=changed) if tiles else given


def with_lines(tile: Any, row: bool, column: bool) -> Any:
    """With the rows and columns that a product of vectors lacks."""
    tile = tile.unsqueeze(-1) if column else tile
    return tile.unsqueeze(-2) if row else tile


def delivered(results: list[Any]) -> Any:
    return tuple(results) if len(results) > 1 else results[0]


def type_of_sums(a: Any) -> Any:
    return torch_dtype(number_type(accumulators_of(str(a.dtype)[6:])[0]).name)


# ---- the function by torch ----


def smaller(x: Any, y: Any) -> Any:
    return torch.where((x < y) | torch.isnan(x), x, y)


def larger(x: Any, y: Any) -> Any:
    """The larger value; NaN where either is. Where they are equal, the second gets the gradient: relu's is 0
    at 0.
    """
    return torch.where((x > y) | torch.isnan(x), x, y)


def gelu(x: Any) -> Any:
    """gelu, with its limits 0 and x at the infinities, where torch's is NaN."""
    bounded = torch.isinf(x)
    return torch.where(bounded, larger(x, 0), torch.nn.functional.gelu(torch.where(bounded, 0, x)))


def gelu_slope(x: Any) -> Any:
    """gelu's derivative: the normal distribution function at x, and x times the density."""
    bounded = x.clamp(-40, 40)
    share = 0.5 * (1 + torch.erf(bounded * 0.5**0.5))
    return share + bounded * torch.exp(-0.5 * bounded * bounded) * (0.5 / math.pi) ** 0.5


def cast(x: Any, dtype: str) -> Any:
    return x.to(torch_dtype(dtype)).to(x.dtype)


LOW = 0xFFFFFFFF
FACTORS, STEPS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)  # philox.py's


def kept(seed: Any, position: Any, p: str) -> Any:
    return first_word(seed, position) >= int(float(p) * 2**32)


def kept_by(seed: Any, position: Any, p: Any) -> Any:
    share = torch.nan_to_num(p.float()).double() * 2**32
    return first_word(seed, position) >= share.clamp(0, LOW).long()


def first_word(seed: Any, position: Any) -> Any:
    """The first word of philox.py, computed in int64: products wrap around, and have the same bits."""
    a, b, c, d = position & LOW, position >> 32 & LOW, torch.zeros_like(position), torch.zeros_like(position)
    key = seed & LOW, seed >> 32 & LOW
    for turn in range(10):
        first, second = a * FACTORS[0], c * FACTORS[1]
        k, l = ((each + turn * step) & LOW for each, step in zip(key, STEPS, strict=True))
        a, b, c, d = second >> 32 & LOW ^ b ^ k, second & LOW, first >> 32 & LOW ^ d ^ l, first & LOW
    return a


BY_TORCH = {
    "maximum": larger,
    "minimum": smaller,
    "both": torch.logical_and,
    "any_of": torch.logical_or,
    "no": torch.logical_not,
    "equal": torch.eq,
    "rint": torch.round,
    "gelu": gelu,
    "gelu_slope": gelu_slope,
    CAST: cast,
    KEPT: kept,
    KEPT_BY: kept_by,
}


def operation(name: str) -> Any:
    return BY_TORCH[name] if name in BY_TORCH else getattr(torch, name)


def evaluated(function: Function, sums: Any, operands: dict[str, Any]) -> list[Any]:
    """Each result's values, in the type of the sums: of a function of pairs neighbours are side by side."""
    values: list[Any] = []
    shape = sums[..., ::2].shape if function.paired else sums.shape
    for step in function.steps:
        if step.operation == SUM:
            values.append(sums if not step.value else sums[..., int(step.value == "[1]") :: 2])
        elif step.operation == OPERAND:
            values.append(operands[step.value])
        elif step.operation == CONSTANT:
            values.append(torch.tensor(float.fromhex(step.value), dtype=sums.dtype))
        elif step.operation == SEED:
            values.append(whole(int(step.value)) if step.value.isdigit() else operands[step.value])
        elif step.operation == POSITION:
            values.append(torch.arange(shape.numel(), device=sums.device).reshape(shape))
        else:
            more = (step.value,) if step.value else ()
            values.append(operation(step.operation)(*(values[arg] for arg in step.args), *more))
    return [joined(values, each, shape) for each in function.results]


def whole(seed: int) -> Any:
    """A seed of 64 bits as a tensor."""
    return torch.tensor(seed - 2**64 if seed >= 2**63 else seed)


def joined(values: list[Any], result: Result, shape: Any) -> Any:
    first = values[result.step].expand(shape)
    if result.other is None:
        return first
    return torch.stack([first, values[result.other].expand(shape)], -1).flatten(-2)


# ---- operands, and results as they are stored ----


def finished(given: Given, sums: Any, dtype: Any, row: bool = False, column: bool = False) -> Any:
    """Apply the function to the sums. `row`, `column`: dimensions of D that were added for vectors, and are
    dropped.
    """
    function = given.function
    operands = {
        each.name: beside(each.kind, given.values[each.name], sums, each.name in function.seeds)
        for each in function.parameters
    }
    results = zip(function.results, evaluated(function, sums, operands), strict=True)
    found = [stored(each, values, sums.dtype if each.then else dtype) for each, values in results]
    dropped = [without(each, made, row, column) for each, made in zip(function.results, found, strict=True)]
    return delivered(dropped)


def beside(kind: str, value: Any, sums: Any, is_seed: bool) -> Any:
    """An operand of the function in the sums' type, with the dimensions to be broadcast to them."""
    if not isinstance(value, torch.Tensor):
        return whole(value) if is_seed else torch.tensor(float(value), dtype=sums.dtype)
    if kind == SCALAR:
        return value.reshape(()).to(torch.int64 if is_seed else sums.dtype)
    value = value.to(sums.dtype)
    if kind == ROW:
        lacks = fits_batch(value.shape[:-1], sums.shape[:-2])
        return value.unsqueeze(-2) if lacks else value
    if kind == COLUMN:
        lacks = value.shape[-1] == sums.shape[-2] and fits_batch(value.shape[:-1], sums.shape[:-2])
        return value.unsqueeze(-1) if lacks else value
    return value


def stored(result: Result, values: Any, dtype: Any) -> Any:
    """A value in the type that it is stored in. Integers and 8-bit floats have no gradient."""
    dtype = torch_dtype(result.dtype) if result.dtype else dtype
    made = made_of(values, result)
    if dtype is torch.bool:
        return made != 0
    bounds = TYPES[str(dtype)[6:]].bounds
    if bounds is None:
        return made.to(dtype)
    with torch.no_grad():
        kept = made if dtype.is_floating_point else torch.nan_to_num(torch.round(made))
        return kept.clamp(*bounds).to(dtype)


def made_of(values: Any, result: Result) -> Any:
    """What a result's pass (passes.py) makes of the values, computed by torch."""
    then = result.then
    if not then:
        return values
    if then not in passes.REDUCTIONS:
        return in_groups(values.detach(), then, result.dtype)
    over, operation = passes.REDUCTIONS[then]
    values = abs(values) if operation == passes.AMAX else values
    values = values.flatten() if over == passes.ALL else values
    axis = -2 if over == passes.COLUMN else -1
    if operation == passes.SUM:
        return values.sum(axis)
    if not values.shape[axis]:
        nothing = 0.0 if operation == passes.AMAX else -float("inf")
        return values.new_full(values.sum(axis).shape, nothing)
    return values.amax(axis)


def in_groups(values: Any, then: str, dtype: str) -> Any:
    most = passes.largest_of(dtype if then == passes.QUANTISED else then.removeprefix(passes.FACTORS))
    cols, groups = values.shape[-1], passes.groups_of(values.shape[-1])
    padded = torch.nn.functional.pad(values, (0, groups * passes.GROUP - cols))
    largest = padded.unflatten(-1, (groups, passes.GROUP)).abs().amax(-1)
    factors = (largest / most).float()
    factors = torch.where(factors == 0, 1, factors)
    if then != passes.QUANTISED:
        return factors
    return values / factors.repeat_interleave(passes.GROUP, -1)[..., :cols].to(values.dtype)


def without(result: Result, made: Any, row: bool, column: bool) -> Any:
    """The result without the dimensions that vectors were given."""
    over = passes.REDUCTIONS[result.then].over if result.then in passes.REDUCTIONS else ""
    if over == passes.ALL:
        return made
    has_row, has_column = over != passes.COLUMN, over != passes.ROW
    if column and has_column:
        made = made.squeeze(-1)
    if row and has_row:
        made = made.squeeze(-2 if has_column and not column else -1)
    return made
