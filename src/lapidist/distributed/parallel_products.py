"""Products whose rows, or whose terms, lie on several ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lapidist.distributed.chosen_ways import gathered, reduced, scattered
from lapidist.distributed.chunk_products import chunks_of_rank, require_no_factors
from lapidist.distributed.compiled_products import in_graph, is_compiling, require_no_more
from lapidist.distributed.exchange_steps import Way
from lapidist.distributed.group_facts import group_of, members_of
from lapidist.distributed.product_gradients import Gathered, Reduced, Scattered, recorded, require_plain
from lapidist.distributed.product_options import Options
from lapidist.distributed.row_products import RowProducts, finished, in_rows, in_shape, require_fit
from lapidist.distributed.unequal_parts import equal_parts, equal_shard, first_of
from lapidist.dtypes import IEEE, Precision
from lapidist.errors import ArgumentError


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
    way : {"collective", "chunks", "push", "waiting"}, optional
        In place of the plan's.

    Returns
    -------
    tensor, or a list of them if b is a list
    """
    several = isinstance(b, list | tuple)
    matrices = list(b) if several else [b]
    if extent is not None:
        a_shard, scale_a = equal_shard(a_shard, scale_a, dim, extent, group)
    biases, scales, epilogues = (
        one_each(name, value, len(matrices), several)
        for name, value in (("bias", bias), ("scale_b", scale_b), ("epilogue", epilogue))
    )
    if is_compiling():
        require_no_more(scale_a, scale_b, epilogue)
        how: dict[str, Any] = {"trans_b": trans_b, "precision": precision, "invariant": invariant, "way": way}
        shaped = in_graph("gather", a_shard, matrices, biases, group, dim, out_dtype, **how)
        shaped = [first_of(result, dim, extent) for result in shaped]
        return shaped if several else shaped[0]
    group = group_of(group)
    rows, leading = in_rows(a_shard, dim, "a_shard")
    options = Options(trans_b, out_dtype, precision, invariant)
    products = RowProducts(matrices, options, scales, biases, epilogues)
    require_fit(rows, products)
    if recorded(rows, *matrices, *biases):
        require_plain(scale_a, scale_b, epilogue)
        padded = biases or [None] * len(matrices)
        results = Gathered.apply(rows, group, options, way, *matrices, *padded)
    else:
        results = gathered(rows, scale_a, products, group, way)
    shaped = [first_of(in_shape(result, leading, dim), dim, extent) for result in results]
    return shaped if several else shaped[0]


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
    require_no_factors(chunks, scale_a, scale_b)
    a, scale_a, length = equal_parts(a, scale_a, dim, group)
    if is_compiling():
        require_no_more(scale_a, scale_b, epilogue)
        how = {"trans_b": trans_b, "precision": precision, "invariant": invariant, "chunks": chunks}
        return first_of(
            in_graph("scatter", a, [b], (), group, dim, out_dtype, **how, way=way)[0], dim, length
        )
    group = group_of(group)
    rows, leading = in_rows(a, dim, "a")
    members = members_of(group)
    parts = chunks_of_rank(chunks, members.ranks, rows.shape[1], invariant)
    options = Options(trans_b, out_dtype, precision, invariant, parts)
    products = RowProducts([b], options, present(scale_b))
    require_fit(rows, products)
    dtype = products.result_dtype(rows)
    if recorded(rows, b):
        require_plain(scale_a, scale_b, epilogue)
        total = finished(Scattered.apply(rows, group, options, way, b), None, dtype)
    else:
        total = scattered(rows, scale_a, products, group, way)
        if length is not None:
            total = total[: length * (len(rows) // leading[0])]
        total = finished(total, epilogue, dtype)
    return first_of(in_shape(total, leading, dim), dim, length)


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
    way : {"collective", "chunks", "slots", "tiles", "one_shot"}, optional
        In place of the plan's.

    Returns
    -------
    tensor
    """
    if is_compiling():
        require_no_more(scale_a, scale_b, epilogue)
        how = {"trans_b": trans_b, "precision": precision, "invariant": invariant, "chunks": chunks}
        return in_graph("reduce", a, [b], (), group, 0, out_dtype, **how, way=way)[0]
    group = group_of(group)
    rows, leading = in_rows(a, 0, "a")
    members = members_of(group)
    require_no_factors(chunks, scale_a, scale_b)
    parts = chunks_of_rank(chunks, members.ranks, rows.shape[1], invariant)
    options = Options(trans_b, out_dtype, precision, invariant, parts)
    products = RowProducts([b], options, present(scale_b))
    require_fit(rows, products)
    dtype = products.result_dtype(rows)
    if recorded(rows, b):
        require_plain(scale_a, scale_b, epilogue)
        total = finished(Reduced.apply(rows, group, options, way, b), None, dtype)
    else:
        total = finished(reduced(rows, scale_a, products, group, way), epilogue, dtype)
    return in_shape(total, leading, 0)


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
    rows, leading = in_rows(a, 0, "a")
    parts = chunks_of_rank(chunks, 1, rows.shape[1], None)
    options = Options(trans_b, out_dtype, precision, None, parts, device=device)
    products = RowProducts([b], options)
    require_fit(rows, products)
    dtype = products.result_dtype(rows)
    if recorded(rows, b):
        require_plain(epilogue)
        total = finished(Reduced.apply(rows, None, options, None, b), None, dtype)
    else:
        total = finished(products.multiply(rows)[0], epilogue, dtype)
    return in_shape(total, leading, 0)


def present(value: Any) -> Sequence[Any]:
    return () if value is None else [value]


def one_each(name: str, value: Any, count: int, several: bool) -> Sequence[Any]:
    """A value for each b; none at all for None."""
    if value is None or not several:
        return present(value)
    if not isinstance(value, list | tuple) or len(value) != count:
        raise ArgumentError(f"{name}: must be a list of {count}, one for each b; got {value!r}. Pass a list")
    return list(value)
