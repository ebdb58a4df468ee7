"""Products with weights of few bits whose sums a caller's function changes before they are stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from lapidist.backends import host_product
from lapidist.backends.backend import Backend
from lapidist.backends.host_product import HostProduct
from lapidist.backends.selection import backend_at, choose_place
from lapidist.calls.bound import Bound
from lapidist.calls.destination import output_of
from lapidist.calls.operation import Operation
from lapidist.epilogues.tracing import BoundEpilogue
from lapidist.errors import StrideError
from lapidist.frameworks.arrays import Operand, operand_of
from lapidist.frameworks.host_arrays import on_host
from lapidist.frameworks.new_arrays import fresh
from lapidist.problems.problem import Problem
from lapidist.quantised import packed_weight
from lapidist.quantised import product as plain
from lapidist.quantised.launches import End
from lapidist.quantised.packed_weight import PackedWeight, unpack

RESULT = "epilogue's array"  # the name of its arrays beside those that kernels have parameters for


def fused_product(
    x: Any,
    weight: PackedWeight,
    epilogue: BoundEpilogue | None,
    out: Any,
    device: int | str | None,
    decode: bool | None,
) -> Any:
    """The results of the epilogue: D, or a tuple. Functions with second passes, and operands whose rows lie
    unevenly, follow a product by the decoded weight.
    """
    left, arrays = operand_of(x, "x"), plain.arrays_of(weight)
    plain.require_activations(left, weight.shape[0], arrays)
    plain.require_vectors(arrays)
    operation = Operation(vectors=True, epilogue=epilogue)
    bound = Bound(x, fresh("weight", weight.shape, left, left.dtype), None, out, operation)
    require_apart(bound, arrays)
    backend = backend_at(choose_place(left.device, device))
    if not backend.plans:
        return on_the_host(bound, weight)
    plain.require_place(left, backend)
    problem = bound.problem()
    many = problem.m > plain.few_rows(backend.chip) if decode is None else decode
    if many or not fits_few_rows(problem):
        return plain.by_decoded(left, x, weight, out, operation, backend)
    result, target = output_of(bound)
    if problem.m:
        by_few_rows(problem, bound, left, weight, target, backend)
    return bound.deliver(result)


def require_apart(bound: Bound, arrays: tuple[Operand, ...]) -> None:
    for result in bound.results:
        if any(result.overlaps(array) for array in arrays):
            raise StrideError(
                f"{result.name}: must share no memory with the weight; got such memory. Leave it out"
            )


def fits_few_rows(problem: Problem) -> bool:
    """Whether the kernels for few rows store the results: one matrix in rows, no second pass."""
    assert problem.fused is not None
    passes = any(result.then for result in problem.fused.function.results)
    return not (passes or problem.batch or problem.transposed) and problem.d.col_stride == 1


def by_few_rows(
    problem: Problem, bound: Bound, x: Operand, weight: PackedWeight, out: Operand, backend: Backend
) -> None:
    fused = problem.fused
    assert fused is not None
    end = End(False, tuple(fused.defines(in_order=True).items()), len(fused.operands))
    described = plain.described(weight, x.dtype)
    launch = plain.by_few_rows(problem.m, problem.d.row_stride, described, end, backend)
    at = {"A": plain.aligned(x), "D": out} | plain.arrays_by_name(weight)
    at |= {f"{RESULT} {number}": array for number, array in enumerate(bound.extras)}
    words = {"epilogue": fused.words(bound.extra_pointers.fused)} if fused.operands else {}
    plain.start(launch, at, x, backend, words)


def on_the_host(bound: Bound, weight: PackedWeight) -> Any:
    assert bound.epilogue is not None
    result, out = output_of(bound)
    a, numbers = on_host(bound.a), packed_weight.on_host(unpack(weight))
    with np.errstate(invalid="ignore", over="ignore"):
        sums = a.astype(np.float32) @ numbers
        product = HostProduct(a, a, None, on_host(out), 1.0, 0.0, "float32", "ieee", sums=lambda *given: sums)
        host_product.multiply(*bound.epilogue.on_host(product))
    return bound.deliver(result)
