"""The full path of a call: every rule is checked, then it runs where its arrays are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from numpy import ndarray

from lapidist.backends.selection import choose_place
from lapidist.build.compile_policy import way_of
from lapidist.calls.bound import Bound
from lapidist.calls.call import Call, numbers_in
from lapidist.calls.destination import backend_for, multiply_on_host, require_choices
from lapidist.calls.kernel_choice import OPEN, Choices
from lapidist.calls.numpy_protocols import product
from lapidist.calls.repeat import ARRAY_PATHS, LISTS, MATRIX_PATHS, ROWS, remember
from lapidist.calls.repeat.scalars import is_repeatable
from lapidist.calls.repeat.shape import (
    extra_values,
    key_of_matrices,
    key_of_rows_of,
    key_with_arrays,
    keys_of_lists,
)
from lapidist.dtypes import EMULATIONS
from lapidist.errors import explained, not_in_graphs
from lapidist.frameworks.arrays import HOST
from lapidist.frameworks.streams import require_stream

# ---- modules imported by the first call that needs them, so that other processes start sooner ----


@cache
def copied_output() -> Any:
    from lapidist.calls import copied_output

    return copied_output


@cache
def planned_products() -> Any:
    from lapidist.calls import planned_products

    return planned_products


@cache
def fast_paths() -> Any:
    from lapidist.calls.repeat import fast_path

    return fast_path


@cache
def of_lists() -> Any:
    from lapidist.calls.repeat import list_repeat

    return list_repeat


# Arguments of gemm in the order of a fast path's values. The last value is of groups, and gemm has none.
BESIDE = ("gather_a", "gather_b", "scatter_d", "alpha", "beta", "scale_a", "scale_b")


@cache
def with_arrays() -> Any:
    from lapidist.calls.repeat import with_arrays

    return with_arrays


@not_in_graphs("matmul")
def repeated(*arguments: Any) -> Any:
    """matmul with arrays beside its operands, by its fast path. Dynamo would follow a cached import."""
    return with_arrays().repeated_with_arrays(*arguments)


@cache
def followed_lists() -> Any:
    from lapidist.calls import followed_lists

    return followed_lists


@cache
def complex_product() -> Any:
    from lapidist.calls import complex_product

    return complex_product


@cache
def complex_pointers() -> Any:
    from lapidist.calls import complex_pointers

    return complex_pointers


@cache
def complex_halves() -> Any:
    from lapidist.calls import complex_halves

    return complex_halves


@cache
def emulated() -> Any:
    from lapidist.calls import emulated

    return emulated


# ---- a call ----


@not_in_graphs("gemm")
def repeated_by_name(arguments: Mapping[str, Any]) -> Any:
    """gemm with arrays beside its operands and no choice of the caller's, by its fast path if it has one.

    Dynamo keeps no locals of gemm behind a call that ends its graph, so the full path follows here."""
    a, b, c, out, stream = (arguments[name] for name in ("a", "b", "c", "out", "stream"))
    values = (*(arguments[name] for name in BESIDE), None)
    flags = arguments["trans_a"], arguments["trans_b"], False, False
    how = values, arguments["epilogue"], flags, arguments["types"], stream
    result = with_arrays().repeated_with_arrays(ARRAY_PATHS, a, b, c, out, *how)
    return multiplied_by_name(arguments) if result is None else result


@not_in_graphs("gemm")
@explained
def multiplied_by_name(arguments: Mapping[str, Any]) -> Any:
    """The full path of gemm, whose arguments these are: matrices, or lists of them."""
    from lapidist.calls.named_arguments import call_of

    if arguments.get("unknown"):
        from lapidist.calls.keywords import unexpected_of

        names = list(arguments)
        raise unexpected_of("gemm", names[: names.index("unknown")], "lapidist", arguments["unknown"])
    call = call_of(arguments)
    operation, choices = call.operation, call.choices
    alpha, beta = numbers_in(operation.alpha, operation.beta, choices.device)
    call = replace(call, operation=operation._replace(alpha=alpha, beta=beta))
    if call.is_of_lists:
        return followed_lists().multiplied(call, of_complex) if call.is_successive else multiplied_lists(call)
    return multiplied(call.numbered() if call.is_remembered else call)


@not_in_graphs("matmul")
@explained
def multiplied(call: Call) -> Any:
    """The full path, after matmul or gemm found no fast path by the arrays alone."""
    if not (call.out is None or call.out.__class__ is ndarray) and copied_output().is_written_by_copy(call):
        return copied_output().by_copy(call, multiplied)
    is_emulated = call.operation.types.precision in EMULATIONS
    if not (call.operation.is_plain or is_emulated):
        return multiplied_with_arrays(call)
    key = key_of_matrices(call)
    fast_path = None if key is None else MATRIX_PATHS.get(key)
    if fast_path is not None:
        operation = call.operation
        scalars = operation.alpha, operation.beta
        result = fast_path(call.a, call.b, call.c, call.out, scalars, call.stream)
        if result is not None:
            return result
    if is_emulated:
        return emulated().multiplied(call, multiplied, key)
    if call.is_numpys:
        call = call.as_arrays()
        if call.asks_operands:
            return product(call.a, call.b, call.out)
    rows = key_of_rows_of(call)
    result = (
        None
        if rows is None or not ROWS
        else planned_products().of_new_rows(call.a, call.b, rows, key, call.stream)
    )
    if result is not None:
        return result
    bound = call.bound()
    return (
        of_complex(key, bound, call) if bound.is_complex else run(key, bound, call.choices, call.stream, rows)
    )


def multiplied_with_arrays(call: Call) -> Any:
    """A product with factors, indices, an epilogue, or alpha and beta in arrays."""
    key = key_with_arrays(call)
    fast_path = None if key is None else ARRAY_PATHS.get(key)
    if fast_path is not None:
        result = fast_path(call.a, call.b, call.c, call.out, extra_values(call.operation), call.stream)
        if result is not None:
            return result
    bound = call.bound()
    if bound.takes_complex:
        return of_complex(None, bound, call)
    require_stream(call.stream)
    if key is not None and backend_for(bound, call.choices).plans:
        return planned_products().run_with_arrays(key, bound, call)
    result = run(None, bound, call.choices, call.stream)
    if key is not None and bound.epilogue is not None and call.choices is OPEN:
        fast_path = with_arrays().fast_path_with_arrays(None, bound, call, result)
        if fast_path is not None:
            remember(ARRAY_PATHS, key, fast_path)
    return result


@explained
def multiplied_lists(call: Call) -> Any:
    call = call.of_lists()
    if call.of_none:
        return []
    for key in keys_of_lists(call):
        fast_path = LISTS.get(key)
        result = None if fast_path is None else fast_path(call)
        if result is not None:
            return result
    from lapidist.calls.bound_lists import Listed, Pointed, batch_of
    from lapidist.calls.lists import ListGemm

    batch = batch_of(call.a, call.b, call.c, call.out, call.operation)
    place = choose_place(batch.like.device, call.choices.device)
    if isinstance(batch, Pointed) and batch.stand_in.is_complex and place != HOST:
        require_stream(call.stream)
        return complex_pointers().multiplied(batch, call, multiplied_lists)
    way = None if call.choices.workspace is not None else way_of(call.choices.compile)
    ready = ListGemm(batch, call.operation, call.choices, way)
    result = ready.run(batch, call.stream)
    keys = list(keys_of_lists(call)) if isinstance(batch, Listed) else []
    fast_path = of_lists().fast_path_of_lists(call, batch, ready.launched) if keys else None
    if fast_path is not None:
        remember(LISTS, keys[0] if len(batch.bundles) == 1 else keys[-1], fast_path)
    return call.out if is_filled(call.out) else result


def of_complex(key: Any, bound: Bound, call: Call) -> Any:
    """Where kernels are planned, several launches make a product of complex numbers."""
    require_stream(call.stream)
    place = choose_place(bound.a.device, call.choices.device)
    if bound.is_of_halves and not complex_halves().is_of_kernels(bound, place):
        return complex_halves().by_complex64(call, multiplied)
    if place == HOST:
        return run(key, bound, call.choices, call.stream)
    return complex_product().multiplied(bound, call, multiplied, key)


def is_filled(out: Any) -> bool:
    """Whether these outputs are the results: not where places are left for new arrays."""
    return isinstance(out, (list, tuple)) and all(array is not None for array in out)


def run(key: Any, bound: Bound, choices: Choices, stream: Any, rows: Any = None) -> Any:
    """Check nothing more, but plan and launch; then make the fast path that calls with this key take next.
    `rows`: the key of calls that differ in their rows alone.
    """
    require_stream(stream)
    backend = backend_for(bound, choices)
    if backend.plans:
        return planned_products().run(key, bound, choices, stream, rows)
    require_choices(choices, backend)
    result = multiply_on_host(bound)
    if bound.a.framework == "torch" and is_repeatable(key, bound):
        fast_path = fast_paths().fast_path_on_host(bound)
        if fast_path is not None:
            remember(MATRIX_PATHS, key, fast_path)
    return result
