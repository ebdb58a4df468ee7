"""Linear layers whose weights are split over ranks: by columns of the result, or by rows of the sum."""

from __future__ import annotations

import math
from typing import Any, NoReturn

from lapidist.calls.keywords import unexpected
from lapidist.distributed.chosen_ways import require_way
from lapidist.distributed.compiled_products import is_compiling, shared_in_graph
from lapidist.distributed.exchange_steps import Way
from lapidist.distributed.group_facts import group_of
from lapidist.distributed.parallel_products import (
    all_gather_matmul,
    matmul_all_reduce,
    matmul_reduce_scatter,
    one_each,
    products_of_rows,
)
from lapidist.distributed.product_gradients import Shared
from lapidist.distributed.product_options import OTHER_NAMES, Options
from lapidist.distributed.rank_epilogues import followed, in_order, require_follows
from lapidist.distributed.row_products import (
    MATRIX,
    RowProducts,
    require_bias,
    require_equal_parts,
    require_matrices,
    require_rows,
    require_tensor,
    result_dtype,
)
from lapidist.distributed.unequal_parts import place_in
from lapidist.dtypes import IEEE, Precision
from lapidist.errors import ShapeError
from lapidist.frameworks.torch_autocast import in_autocast


def column_parallel_linear(
    input: Any,
    weight: Any,
    bias: Any = None,
    group: Any = None,
    *,
    sequence_dim: int | None = None,
    epilogue: Any = None,
    precision: Precision = IEEE,
    invariant: bool | None = None,
    way: Way | None = None,
    **unknown: NoReturn,
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
    epilogue : optional
        As in `lapidist.gemm`, of the sums with the bias; with several weights, a list of one for each.
    precision, invariant
        As in `lapidist.gemm`.
    way : str, optional
        In place of the plan's. Without `sequence_dim` gradients alone travel.

    Returns
    -------
    tensor, or a list of them if weight is a list
    """
    if unknown:
        raise unexpected(column_parallel_linear, unknown, OTHER_NAMES)
    require_weights(input, weight)
    if sequence_dim is not None:
        how: dict[str, Any] = {"precision": precision, "invariant": invariant, "way": way}
        return all_gather_matmul(
            input, weight, group, dim=sequence_dim, trans_b=True, bias=bias, epilogue=epilogue, **how
        )
    several = isinstance(weight, list | tuple)
    matrices = list(weight) if several else [weight]
    biases = one_each("bias", bias, len(matrices), several)
    epilogues = one_each("epilogue", epilogue, len(matrices), several)
    require_way("matmul_all_reduce", way)  # of gradients
    options = Options(True, None, precision, invariant)
    products = RowProducts(matrices, options, (), biases, epilogues)
    results = products_of_rows("enter", input, products, group, way)
    return results if several else results[0]


def row_parallel_linear(
    input: Any,
    weight: Any,
    bias: Any = None,
    group: Any = None,
    *,
    sequence_dim: int | None = None,
    epilogue: Any = None,
    precision: Precision = IEEE,
    invariant: bool | None = None,
    chunks: int | None = None,
    way: Way | None = None,
    **unknown: NoReturn,
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
    epilogue : optional
        As in `lapidist.gemm`, of the sum with the bias. With `sequence_dim` it is a function of this rank's
        part, and so are gradients of its operands.
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
    if unknown:
        raise unexpected(row_parallel_linear, unknown, OTHER_NAMES)
    require_weights(input, weight)
    input, weight, bias = in_autocast(input, weight, bias)
    how: dict[str, Any] = {
        "trans_b": True,
        "precision": precision,
        "invariant": invariant,
        "chunks": chunks,
        "way": way,
    }
    dim = 0 if sequence_dim is None else sequence_dim
    require_rows(input, dim, "input", "sequence_dim")
    dim, epilogue = dim % input.ndim, in_order(epilogue, dim, input.shape[:-1])
    require_bias(bias, len(weight), result_dtype(input, None))
    ranks = 1 if sequence_dim is None else place_in(group)[1]
    require_equal_parts(input.shape[dim], ranks)
    if not is_compiling():
        shape = math.prod(input.shape[:-1]) // ranks, len(weight)
        require_follows(epilogue, input, shape, result_dtype(input, None))
    if sequence_dim is None:
        total = matmul_all_reduce(input, weight, group, **how)
    else:
        total = matmul_reduce_scatter(input, weight, group, dim=sequence_dim, **how)
        if bias is not None:
            bias = shared_in_graph(bias, group) if is_compiling() else Shared.apply(bias, group_of(group))
    if bias is not None:
        total = total + bias
    return followed(total, epilogue, dim, total.dtype)


def require_weights(input: Any, weight: Any) -> None:
    """Matrices as layers have them. Graphs hold other errors for later."""
    if is_compiling():
        return
    require_tensor("input", input)
    matrices = weight if isinstance(weight, list | tuple) else [weight]
    require_matrices("weight", matrices)
    for matrix in matrices:
        if matrix.ndim != MATRIX or not input.ndim or matrix.shape[1] != input.shape[-1]:
            raise ShapeError(
                f"weight: must be a matrix with as many columns as input; input is {tuple(input.shape)},"
                f" weight {tuple(matrix.shape)}. Transpose it if it lies the other way"
            )
