"""Products whose rows, or whose terms, lie on several ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NoReturn

from lapidist.calls.keywords import unexpected
from lapidist.calls.torch_epilogues import type_of_sums
from lapidist.distributed.chosen_ways import gathered, reduced, scattered
from lapidist.distributed.chunk_products import chunks_of_rank, require_no_factors
from lapidist.distributed.compiled_products import FUNCTIONS, in_graph, is_compiling
from lapidist.distributed.exchange_steps import Way
from lapidist.distributed.group_facts import group_of
from lapidist.distributed.product_gradients import Reduced, agreeing, recorded, require_no_scales
from lapidist.distributed.product_options import OTHER_NAMES, Options, type_named
from lapidist.distributed.rank_epilogues import followed, in_order, require_follows, shaped, tensors_of
from lapidist.distributed.row_products import (
    RowProducts,
    in_rows,
    in_shape,
    leading_of_result,
    require_bias,
    require_fit,
    require_matrices,
    result_dtype,
)
from lapidist.distributed.unequal_parts import equal_parts, equal_shard, place_in
from lapidist.dtypes import IEEE, Precision
from lapidist.errors import ArgumentError, shown
from lapidist.frameworks.torch_autocast import in_autocast


def all_gather_matmul(
    a_shard: Any,
    b: Any,
    group: Any = None,
    *,
    dim: int = 0,
    extent: int | None = None,
    trans_b: bool = False,
    bias: Any = None,
    out_dtype: Any = None,
    precision: Precision = IEEE,
    scale_a: Any = None,
    scale_b: Any = None,
    epilogue: Any = None,
    invariant: bool | None = None,
    way: Way | None = None,
    **unknown: NoReturn,
) -> Any:
    """a @ b + bias, where every rank has some rows of a and a b of its own.

    Parameters
    ----------
    a_shard : tensor
        This rank's part of a, which is split along `dim`: the same shape on all ranks, without `extent`.
    b : tensor or list of tensors
        This rank's matrix. Several (q, k and v, say) share one gather.
    group : torch.distributed.ProcessGroup or DeviceMesh of one dimension, optional
        The ranks; all by default.
    dim : int
        The dimension along which a, and so the result, is put together.
    extent : int, optional
        a's extent along `dim`, if parts are those of torch.chunk, of which the last ones may be shorter.
    trans_b, out_dtype, precision, scale_a, invariant
        As in `lapidist.gemm`; `scale_a` has the factors of this rank's rows, which travel with them.
    bias, scale_b, epilogue : optional
        As in `lapidist.gemm`; with several b, lists of one for each.
    way : {"collective", "chunks", "push", "waiting", "one_shot"}, optional
        In place of the plan's.

    Returns
    -------
    tensor, or a list of them if b is a list
    """
    if unknown:
        raise unexpected(all_gather_matmul, unknown, OTHER_NAMES)
    several = isinstance(b, list | tuple)
    matrices = list(b) if several else [b]
    if extent is not None:
        a_shard, scale_a = equal_shard(a_shard, scale_a, dim, extent, group)
    biases, scales, epilogues = (
        one_each(name, value, len(matrices), several)
        for name, value in (("bias", bias), ("scale_b", scale_b), ("epilogue", epilogue))
    )
    options = Options(trans_b, type_named(out_dtype), precision, invariant)
    products = RowProducts(matrices, options, scales, biases, epilogues)
    results = products_of_rows("gather", a_shard, products, group, way, dim, extent, scale_a)
    return results if several else results[0]


def matmul_reduce_scatter(
    a: Any,
    b: Any,
    group: Any = None,
    *,
    dim: int = 0,
    trans_b: bool = False,
    out_dtype: Any = None,
    precision: Precision = IEEE,
    scale_a: Any = None,
    scale_b: Any = None,
    epilogue: Any = None,
    invariant: bool | None = None,
    chunks: int | None = None,
    way: Way | None = None,
    **unknown: NoReturn,
) -> Any:
    """This rank's part along `dim` of the sum over ranks of a @ b. Terms are added in the order of ranks.

    Parameters
    ----------
    a, b : tensors
        This rank's columns of a and rows of b.
    group : torch.distributed.ProcessGroup or DeviceMesh of one dimension, optional
        The ranks; all by default.
    dim : int
        The dimension along which the sum is split, as torch.chunk splits it.
    trans_b, out_dtype, precision, scale_a, scale_b, invariant
        As in `lapidist.gemm`, for this rank's term.
    epilogue : optional
        As in `lapidist.gemm`: a function of the sum, after the exchange.
    chunks : int, optional
        Cuts k of all ranks into so many parts, a power of two, which a binary tree adds: every number of
        ranks that divides it gives the same bits, and `matmul_in_chunks` on one card does.
    way : {"collective", "chunks", "slots", "tiles", "one_shot"}, optional
        In place of the plan's.

    Returns
    -------
    tensor
    """
    if unknown:
        raise unexpected(matmul_reduce_scatter, unknown, OTHER_NAMES)
    require_no_factors(chunks, scale_a, scale_b)
    a, scale_a, length = equal_parts(a, scale_a, dim, group)
    options = Options(trans_b, type_named(out_dtype), precision, invariant, chunks)
    factors = scale_a, scale_b
    return sum_of_products("scatter", a, b, factors, epilogue, group, options, way, dim, length)


def matmul_all_reduce(
    a: Any,
    b: Any,
    group: Any = None,
    *,
    trans_b: bool = False,
    out_dtype: Any = None,
    precision: Precision = IEEE,
    scale_a: Any = None,
    scale_b: Any = None,
    epilogue: Any = None,
    invariant: bool | None = None,
    chunks: int | None = None,
    way: Way | None = None,
    **unknown: NoReturn,
) -> Any:
    """The sum over ranks of a @ b, on every rank. All have the same bits.

    Parameters
    ----------
    a, b : tensors
        This rank's columns of a and rows of b.
    group : torch.distributed.ProcessGroup or DeviceMesh of one dimension, optional
        The ranks; all by default.
    trans_b, out_dtype, precision, scale_a, scale_b, invariant
        As in `lapidist.gemm`, for this rank's term.
    epilogue : optional
        As in `lapidist.gemm`: a function of the sum, after the exchange.
    chunks : int, optional
        Cuts k of all ranks into so many parts, a power of two, which a binary tree adds: every number of
        ranks that divides it gives the same bits, and `matmul_in_chunks` on one card does.
    way : {"collective", "chunks", "slots", "one_shot"}, optional
        In place of the plan's.

    Returns
    -------
    tensor
    """
    if unknown:
        raise unexpected(matmul_all_reduce, unknown, OTHER_NAMES)
    require_no_factors(chunks, scale_a, scale_b)
    options = Options(trans_b, type_named(out_dtype), precision, invariant, chunks)
    return sum_of_products("reduce", a, b, (scale_a, scale_b), epilogue, group, options, way)


def matmul_in_chunks(
    a: Any,
    b: Any,
    *,
    chunks: int = 8,
    trans_b: bool = False,
    out_dtype: Any = None,
    precision: Precision = IEEE,
    epilogue: Any = None,
    device: str | None = None,
    **unknown: NoReturn,
) -> Any:
    """a @ b on one card, with the bits of `matmul_all_reduce(..., chunks=chunks)` over several.

    Parameters
    ----------
    a, b : tensors
        All of a and b.
    chunks : int
        k is cut into so many parts, a power of two, which a binary tree adds. Each has one order of sums.
    trans_b, out_dtype, precision, epilogue, device
        As in `lapidist.gemm`.

    Returns
    -------
    tensor

    Examples
    --------
    >>> import torch
    >>> import lapidist.distributed
    >>> lapidist.distributed.matmul_in_chunks(torch.ones(2, 64), torch.ones(64, 3), chunks=4).shape
    torch.Size([2, 3])
    """
    if unknown:
        raise unexpected(matmul_in_chunks, unknown, OTHER_NAMES)
    a, b = in_autocast(a, b)
    rows, leading = in_rows(a, 0, "a")
    bound = in_order(epilogue, 0, leading)
    parts = chunks_of_rank(chunks, 1, rows.shape[1], None, precision)
    options = Options(trans_b, type_named(out_dtype), precision, None, parts, device=device)
    products = RowProducts([b], options)
    require_matrices("b", [b])
    require_fit(rows, products)
    is_recorded = recorded(rows, b)
    total = Reduced.apply(rows, None, options, None, b) if is_recorded else products.multiply(rows)[0]
    return followed(in_shape(total, leading, 0), bound, 0, products.result_dtype(rows))


def products_of_rows(
    kind: Literal["gather", "enter"],
    a: Any,
    products: RowProducts,
    group: Any,
    way: Way | None,
    dim: int = 0,
    extent: int | None = None,
    scale_a: Any = None,
) -> list[Any]:
    """Products of all ranks' rows, or of rows that all ranks have, and functions of them."""
    require_matrices("b" if kind == "gather" else "weight", products.matrices)
    a, products = cast_together(a, products, scale_a)
    rows, leading = in_rows(a, dim, "a_shard" if kind == "gather" else "input")
    dim, dtype, matrices, biases = (
        dim % a.ndim,
        products.result_dtype(rows),
        products.matrices,
        products.biases,
    )
    bounds = [in_order(epilogue, dim, leading) for epilogue in products.epilogues]
    for index, bias in enumerate(biases):
        require_bias(bias, products.columns(index), dtype)
    is_recorded = recorded(rows, *matrices, *biases, *tensors_of(bounds))
    if is_recorded or is_compiling():
        require_no_scales(scale_a, *products.scales)
    options = agreeing(split_along(products.options, dim, leading), kind, rows, matrices)
    of_results = leading_of_result(kind, leading, place_in(group)[1] if kind == "gather" else 1)
    products = RowProducts(matrices, options, products.scales, biases, bounds)
    # rows that fill up a shard are in no result
    later = is_recorded or is_compiling() or (extent is not None and products.barred() != "")
    later = later and any(bound is not None for bound in bounds)
    if later:
        products = products.of_sums(rows)
    if is_compiling():
        how = {**named(products.options), "way": way}
        results = in_graph(kind, rows, matrices, products.biases, group, options.split, **how)
    else:
        group = group_of(group)
        require_fit(rows, products)
        if is_recorded:
            padded = products.biases or [None] * len(matrices)
            results = FUNCTIONS[kind].apply(rows, group, products.options, way, *matrices, *padded)
        else:
            results = (
                gathered(rows, scale_a, products, group, way) if kind == "gather" else products.multiply(rows)
            )
    of_each = list(zip(results, bounds or [None] * len(matrices), strict=True))
    if later:
        return [
            followed(shaped(sums, None, of_results, dim, extent), bound, dim, dtype)
            for sums, bound in of_each
        ]
    return [shaped(result, bound, of_results, dim, extent) for result, bound in of_each]


def split_along(options: Options, dim: int, leading: tuple[int, ...]) -> Options:
    """What ranks must agree on of an operand whose rows run over several dimensions."""
    return options if len(leading) == 1 else replace(options, split=(dim, leading))


def cast_together(a: Any, products: RowProducts, scale_a: Any) -> tuple[Any, RowProducts]:
    """As torch.autocast casts products. What has factors has its type already."""
    if scale_a is not None or products.scales:
        return a, products
    matrices, biases = list(products.matrices), list(products.biases)
    a, *tensors = in_autocast(a, *matrices, *biases)
    return a, replace(products, matrices=tensors[: len(matrices)], biases=tensors[len(matrices) :])


def sum_of_products(
    kind: Literal["scatter", "reduce"],
    a: Any,
    b: Any,
    factors: tuple[Any, Any],
    epilogue: Any,
    group: Any,
    options: Options,
    way: Way | None,
    dim: int = 0,
    length: int | None = None,
) -> Any:
    """The sum over ranks, and the function of it. `options`: with the chunks of all ranks' k."""
    require_matrices("b", [b])
    if factors == (None, None):
        a, b = in_autocast(a, b)
    rows, leading = in_rows(a, dim, "a")
    dim, dtype, chunks = dim % a.ndim, result_dtype(rows, options.out_dtype), options.chunks
    bound, (scale_a, scale_b) = in_order(epilogue, dim, leading), factors
    options = agreeing(split_along(options, dim, leading), kind, rows, [b])
    of_result = leading_of_result(kind, leading, ranks := place_in(group)[1])
    if is_compiling():
        require_no_scales(*factors)
        if chunks is not None and bound is not None:  # the function gets what is not rounded yet
            options = replace(options, out_dtype=type_of_sums(rows, b))
        total = in_graph(kind, rows, [b], (), group, options.split, **named(options), way=way)[0]
    else:
        group = group_of(group)
        parts = chunks_of_rank(chunks, ranks, rows.shape[1], options.invariant, options.precision)
        options = replace(options, chunks=parts)
        products = RowProducts([b], options, present(scale_b))
        require_fit(rows, products)
        count = math.prod(of_result[1:]) * (of_result[0] if length is None else length)
        require_follows(bound, rows, (count, products.columns(0)), dtype)
        if recorded(rows, b):
            require_no_scales(*factors)
            total = FUNCTIONS[kind].apply(rows, group, options, way, b)
        else:
            total = (scattered if kind == "scatter" else reduced)(rows, scale_a, products, group, way)
    return followed(shaped(total, None, of_result, dim, length), bound, dim, dtype)


def named(options: Options) -> dict[str, Any]:
    """What operators of graphs are told."""
    names = "trans_b", "out_dtype", "precision", "invariant", "chunks", "gradients"
    return {name: getattr(options, name) for name in names}


def present(value: Any) -> Sequence[Any]:
    return () if value is None else [value]


def one_each(name: str, value: Any, count: int, several: bool) -> Sequence[Any]:
    """A value for each b; none at all for None."""
    if value is None or not several:
        return present(value)
    if type(value) not in (list, tuple) or len(value) != count:  # an epilogue is a tuple, too
        raise ArgumentError(
            f"{name}: must be a list of {count}, one for each b; got {shown(value)}. Pass a list"
        )
    return list(value)
