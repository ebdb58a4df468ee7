"""Products with weights of few bits that have more than a bias: groups of rows, and functions of sums."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lapidist.backends import host_product
from lapidist.backends.backend import Backend
from lapidist.backends.host_product import HostProduct
from lapidist.backends.selection import backend_at, choose_place
from lapidist.calls.bound import Bound
from lapidist.calls.copied_output import through_copy
from lapidist.calls.destination import output_of
from lapidist.calls.operation import Factors, Operation, epilogue_checked, is_array
from lapidist.dtypes import IEEE
from lapidist.errors import ArgumentError, StrideError, not_in_graphs, shown
from lapidist.frameworks.arrays import Operand, operand_of
from lapidist.frameworks.host_arrays import is_odd, on_host
from lapidist.frameworks.new_arrays import fresh
from lapidist.problems.problem import Problem
from lapidist.problems.ragged import ROWS
from lapidist.quantised import decoded_codes, packed_weight
from lapidist.quantised import product as plain
from lapidist.quantised.activations import Activations, activations_of, in_rows
from lapidist.quantised.kernel_parameters import End, Rows
from lapidist.quantised.packed_weight import PackedExperts, PackedWeight, columns_in_order, unpack
from lapidist.quantised.ways import FOLDED, Way, way_on

FURTHER = "further array"  # the name of those that kernels have no parameter for
# Arguments of grouped that must be as they are by default
REFUSED: dict[str, Any] = {
    **dict.fromkeys(("c", "scale_b", "kernel", "config", "compile")),
    **{"alpha": 1.0, "beta": 0.0, "trans_a": False, "trans_b": False},
}


@not_in_graphs("quantised.matmul", "lapidist.torch.matmul")
def matmul(
    x: Any, weight: PackedWeight, bias: Any = None, out: Any = None, *, epilogue: Any = None, **more: Any
) -> Any:
    """As in lapidist.quantised. Kernels write rows one after another: another `out` gets a copy."""
    if is_array(out) and not is_odd(out):
        target = operand_of(out, "out")
        if target.writable and not in_rows(target):
            through_copy(out, lambda fresh: matmul(x, weight, bias, fresh, epilogue=epilogue, **more))
            return out
    if epilogue is None:
        return plain.product(x, weight, bias, out, **more)
    scale_a, out_dtype, norm = (more.pop(name, None) for name in ("scale_a", "out_dtype", "norm_eps"))
    require_bias_alone(bias)
    plain.require_weight(weight, x)
    plain.require_free_order()
    plain.require_current_stream(more.pop("stream", None))
    operation = Operation(vectors=True, epilogue=epilogue_checked(epilogue))
    device, decode = more.pop("device", None), more.pop("decode", None)
    x_operand, arrays = operand_of(x, "x"), packed_weight.arrays_of(weight)
    plain.require_activations(x_operand, weight.shape[-2], arrays)
    if weight.order is not None:
        x, weight = columns_in_order(x, weight.order), weight.in_order
        x_operand = operand_of(x, "x")
    activations = activations_of(
        x_operand, weight, scale_a, out_dtype, out if is_array(out) else None, decode, norm
    )
    if activations.factors is not None:
        return bound_bytes(activations, weight, operation, out, device, **more)
    return bound_product(activations, weight, operation, out, device, decode, **more)


OF_MATMUL = "precision", "acc_dtype", "scale_b", "promote", "symmetric", "triangle", "invariant", "compile"


def matmul_by_name(
    x: Any,
    weight: PackedWeight,
    out: Any,
    refused: tuple[Any, ...],
    scale_a: Any,
    out_dtype: Any,
    epilogue: Any,
    stream: Any,
    device: int | str | None,
) -> Any:
    """lapidist.matmul of a weight of few bits; `refused`: its arguments by OF_MATMUL, None or "ieee"."""
    for name, value in zip(OF_MATMUL, refused, strict=True):
        usual = name == "precision" and isinstance(value, str) and value == IEEE
        if value is not None and not usual:
            raise ArgumentError(
                f"{name}: is not for weights of few bits; got"
                f" {shown(value)}. Leave it out, or unpack the weight"
            )
    factors = {"scale_a": scale_a, "out_dtype": out_dtype}
    return matmul(x, weight, out=out, **factors, stream=stream, device=device, epilogue=epilogue)


def require_bias_alone(bias: Any) -> None:
    if bias is not None:
        raise ArgumentError(
            "bias: must be an operand of the epilogue, where there is one; got both. Take"
            " lapidist.epilogues.bias_gelu(bias=...), say"
        )


def grouped(operation: Operation, named: Mapping[str, Any]) -> Any:
    """lapidist.grouped of packed experts; `named`: its arguments."""
    experts = named["b"]
    for name, usual in REFUSED.items():
        value = named[name]
        if value is not usual and (is_array(value) or value != usual):
            raise ArgumentError(
                f"{name}: is not for weights of few bits; got"
                f" {shown(value)}. Leave it out, or unpack the weight"
            )
    if not isinstance(experts, PackedExperts):
        raise ArgumentError(
            f"b: must be weights of all groups, PackedExperts; got {shown(experts)}. Put them together with"
            " lapidist.quantised.stack"
        )
    plain.require_free_order(operation.types.invariant)
    plain.require_current_stream(named["stream"])
    out, device = named["out"], named["device"]
    x_operand, arrays = operand_of(named["a"], "x"), packed_weight.arrays_of(experts)
    plain.require_activations(x_operand, experts.shape[-2], arrays)
    types = named["out_dtype"], out if is_array(out) else None
    activations = activations_of(x_operand, experts, named["scale_a"], *types)
    if activations.factors is None:
        return bound_product(activations, experts, operation, out, device, None)
    return bound_bytes(activations, experts, operation._replace(factors=Factors()), out, device)


def bound_product(
    activations: Activations,
    weight: PackedWeight,
    operation: Operation,
    out: Any,
    device: int | str | None,
    decode: bool | None,
) -> Any:
    """The results of an operation: D, or a tuple. Functions with second passes, and operands whose rows lie
    unevenly, follow a product by the decoded weight.
    """
    x_operand, arrays = activations.x, packed_weight.arrays_of(weight)
    plain.require_vectors(arrays)
    bound = Bound(x_operand.owner, fresh("b", weight.shape, x_operand, x_operand.dtype), None, out, operation)
    require_apart(bound, arrays)
    backend = backend_at(choose_place(x_operand.device, device))
    if not backend.plans:
        return on_the_host(bound, weight, activations)
    plain.require_place(x_operand, backend)
    problem = bound.problem()
    rows = rows_of(problem, x_operand)
    facts = plain.described(weight, activations, activations.result)
    way = way_on(backend.chip, rows, facts, decode)
    if not fits_few_rows(problem):
        way = "decoded"
    if plain.has_launch_of_norm(rows, facts, way, backend.chip):
        return bound_product(activations.normalised(), weight, operation, out, device, decode)
    if way == "decoded":
        return plain.by_decoded(x_operand, x_operand.owner, weight, out, operation, backend)
    result, target = output_of(bound)
    if rows.total:
        by_few_rows(problem, bound, activations, weight, target, backend, way, decode is False)
    return bound.deliver(result)


def bound_bytes(
    activations: Activations, weight: PackedWeight, operation: Operation, out: Any, device: int | str | None
) -> Any:
    """The same of x in 8 bits, by codes that are decoded once where these are exact and rows are many."""
    like, x = activations.stand_in(), activations.x
    bound = Bound(like, fresh("b", weight.shape, like, like.dtype), None, out, operation)
    require_apart(bound, (*activations.factor_arrays, x, *packed_weight.arrays_of(weight)))
    plain.require_vectors(packed_weight.arrays_of(weight))
    backend = backend_at(choose_place(x.device, device))
    if not backend.plans:
        return on_the_host(bound, weight, activations)
    plain.require_place(x, backend)
    problem = bound.problem()
    rows = rows_of(problem, x)
    facts = plain.described(weight, activations, activations.result)
    may_decode = len(x.shape) == 2 and weight.format.name not in FOLDED
    way = way_on(backend.chip, rows, facts, may_decode=may_decode)
    if way == "decoded":
        of_halves = plain.described_for(weight, "float16")
        return decoded_codes.multiply_exact(activations, weight, of_halves, operation, out, backend)
    if not fits_few_rows(problem):
        raise ArgumentError(
            f"epilogue: after x of 8 bits it has no second pass, and results lie in rows; got x of {x.dtype}."
            " Convert x to bfloat16, or apply the function to the result"
        )
    result, target = output_of(bound)
    if rows.total:
        by_few_rows(problem, bound, activations, weight, target, backend, way)
    return bound.deliver(result)


def require_apart(bound: Bound, arrays: tuple[Operand, ...]) -> None:
    for result in bound.results:
        if any(result.overlaps(array) for array in arrays):
            raise StrideError(
                f"{result.name}: must share no memory with the weight; got such memory. Leave it out"
            )


def fits_few_rows(problem: Problem) -> bool:
    """Whether the kernels for few rows store the results: D in rows of one matrix, no second pass."""
    ragged, fused = problem.modes.ragged, problem.fused
    if problem.transposed or problem.d.col_stride != 1:
        return False
    if fused is not None and any(result.then for result in fused.function.results):
        return False
    return not problem.batch if ragged is None else ragged.extent == ROWS


def rows_of(problem: Problem, x: Operand) -> Rows:
    """Rows of the product, of all groups together."""
    ragged = problem.modes.ragged
    total = math.prod(x.shape[:-1]) if ragged is None else ragged.total
    return Rows(total, problem.d.row_stride, problem.m, problem.modes)


def by_few_rows(
    problem: Problem,
    bound: Bound,
    activations: Activations,
    weight: PackedWeight,
    out: Operand,
    backend: Backend,
    way: Way,
    exact: bool = True,
) -> None:
    fused, pointers = problem.fused, bound.extra_pointers
    of_routes = pointers.values(False)
    words = {name: of_routes[name] for name in ("modes", "ragged")} | activations.words
    end = End()
    if fused is not None:
        end = End(False, tuple(fused.defines(in_order=True).items()), len(fused.operands))
        words["epilogue"] = fused.words(pointers.fused)
    facts = plain.described(weight, activations, out.dtype)
    activations, facts = plain.as_read(activations, facts, way, backend)
    rows = rows_of(problem, activations.x)
    launch = plain.by_few_rows(rows, facts, end, backend, exact)
    at = activations.addresses(plain.row_of_x(rows, facts, backend.chip)) | {"D": out}
    at |= packed_weight.arrays_by_name(weight)
    at |= {f"{FURTHER} {number}": array for number, array in enumerate(bound.extras)}
    plain.start(launch, at, activations.x, backend, words)


def on_the_host(bound: Bound, weight: PackedWeight, activations: Activations) -> Any:
    result, out = output_of(bound)
    plain_rows = activations.factors is None and activations.norm is None
    values = on_host(bound.a) if plain_rows else activations.numbers
    numbers = packed_weight.on_host(unpack(weight))
    product = HostProduct(values, numbers, None, on_host(out), 1.0, 0.0, "float32", "ieee")
    for part in bound.parts:
        product = part.on_host(product)
    if bound.groups is not None and bound.epilogue is not None:
        product = bound.groups.finished(product, bound.epilogue)
    with np.errstate(invalid="ignore", over="ignore"):
        host_product.multiply(*product)
    return bound.deliver(result)
