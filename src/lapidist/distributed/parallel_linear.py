"""Linear layers whose weights are split over ranks: by columns of the result, or by rows of the sum."""

from __future__ import annotations

from typing import Any

from lapidist.distributed.compiled_products import in_graph, is_compiling, shared_in_graph
from lapidist.distributed.exchange_steps import Way
from lapidist.distributed.group_facts import group_of
from lapidist.distributed.parallel_products import (
    all_gather_matmul,
    matmul_all_reduce,
    matmul_reduce_scatter,
    one_each,
)
from lapidist.distributed.product_gradients import Entered, Shared
from lapidist.distributed.product_options import Options
from lapidist.distributed.row_products import RowProducts, in_rows, in_shape, require_fit
from lapidist.distributed.unequal_parts import place_in
from lapidist.dtypes import IEEE, Precision
from lapidist.errors import ShapeError


def column_parallel_linear(
    input: Any,
    weight: Any,
    bias: Any = None,
    group: Any = None,
    *,
    sequence_dim: int | None = None,
    precision: Precision = IEEE,
    invariant: bool | None = None,
    way: Way | None = None,
) -> Any:
    """input @ weight.T + bias, where every rank has some rows of weight, and so some columns of the result.

    Parameters
    ----------
    input : tensor
        The same on all ranks, or with `sequence_dim` this rank's part.
    weight, bias : tensors or lists of tensors
        This rank's rows. Several (q, k and v, say) share one gather, and one sum going back.
    group : torch.distributed.ProcessGroup or DeviceMesh of one dimension, optional
        The ranks; all by default.
    sequence_dim : int, optional
        The dimension along which input is split: its parts are gathered under the product.
    precision, invariant
        As in `lapidist.gemm`.
    way : str, optional
        In place of the plan's.

    Returns
    -------
    tensor, or a list of them if weight is a list
    """
    how: dict[str, Any] = {"precision": precision, "invariant": invariant}
    if sequence_dim is not None:
        return all_gather_matmul(
            input, weight, group, dim=sequence_dim, trans_b=True, bias=bias, **how, way=way
        )
    several = isinstance(weight, list | tuple)
    matrices = list(weight) if several else [weight]
    given = one_each("bias", bias, len(matrices), several)
    if is_compiling():
        shaped = in_graph("enter", input, matrices, given, group, trans_b=True, **how, way=way)
        return shaped if several else shaped[0]
    group, biases = group_of(group), given or [None] * len(matrices)
    rows, leading = in_rows(input, 0, "input")
    options = Options(True, None, precision, invariant)
    require_fit(rows, RowProducts(matrices, options))
    results = Entered.apply(rows, group, options, way, *matrices, *biases)
    shaped = [in_shape(result, leading, 0) for result in results]
    return shaped if several else shaped[0]


def row_parallel_linear(
    input: Any,
    weight: Any,
    bias: Any = None,
    group: Any = None,
    *,
    sequence_dim: int | None = None,
    precision: Precision = IEEE,
    invariant: bool | None = None,
    chunks: int | None = None,
    way: Way | None = None,
) -> Any:
    """input @ weight.T + bias, where every rank has some columns of input and of weight.

    Parameters
    ----------
    input, weight : tensors
        This rank's columns.
    bias : tensor, optional
        The same on all ranks; it is added once, to the sum.
    group : torch.distributed.ProcessGroup or DeviceMesh of one dimension, optional
        The ranks; all by default.
    sequence_dim : int, optional
        The dimension along which each rank keeps a part of the sum. All ranks get all of it by default.
    precision, invariant
        As in `lapidist.gemm`.
    chunks : int, optional
        As in `matmul_all_reduce`: the same bits for every number of ranks that divides it.
    way : str, optional
        In place of the plan's.

    Returns
    -------
    tensor
    """
    how: dict[str, Any] = {
        "trans_b": True,
        "precision": precision,
        "invariant": invariant,
        "chunks": chunks,
        "way": way,
    }
    if sequence_dim is None:
        total = matmul_all_reduce(input, weight, group, **how)
        return total if bias is None else total + bias
    extent, (_, ranks) = input.shape[sequence_dim], place_in(group)
    if extent % ranks:
        raise ShapeError(
            f"input: its extent along sequence_dim must divide by the number of ranks, {ranks}, as layers"
            f" take equal parts; got {extent}. Pad it, or use matmul_reduce_scatter"
        )
    total = matmul_reduce_scatter(input, weight, group, dim=sequence_dim, **how)
    if bias is None:
        return total
    return total + (shared_in_graph(bias, group) if is_compiling() else Shared.apply(bias, group_of(group)))
