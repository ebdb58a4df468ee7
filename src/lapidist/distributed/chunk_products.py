"""Products whose k is cut into chunks, however many ranks share it. Each chunk is a product with one order of
sums. A binary tree adds them, whose top levels are the ranks:

    chunks    0   1   2   3   4   5   6   7
               0+1     2+3     4+5     6+7          four ranks have two chunks each, and exchange these sums
                 0 to 3          4 to 7             two ranks have four chunks each, and exchange these
                         0 to 7                     one rank has all

So 1, 2, 4 and 8 ranks give the same bits. Sums stay in the type of accumulators; the last one is rounded.
"""

from __future__ import annotations

from typing import Any

from lapidist import api
from lapidist.calls.torch_epilogues import type_of_sums
from lapidist.distributed.collectives import sum_by_tree
from lapidist.distributed.product_options import Options
from lapidist.dtypes import EMULATIONS, IEEE, Precision, integer_from, tier_of
from lapidist.errors import ArgumentError, ShapeError, shown

ROOM = 1 << 28  # bytes of chunks' sums that are there at once


def chunks_of_rank(
    chunks: int | None, ranks: int, k: int, invariant: bool | None, precision: Precision = IEEE
) -> int | None:
    """How many chunks are this rank's. `k`: this rank's, too."""
    if chunks is None:
        return None
    count = integer_from(1, chunks)
    if count is None or count & (count - 1):
        raise ArgumentError(f"chunks: must be a power of two; got {shown(chunks)}. Write 8, say")
    chunks = count
    if invariant is False:
        raise ArgumentError(
            "invariant: must be True or None with chunks, each of which has one order of sums; got False."
            " Leave it out"
        )
    if tier_of(precision) in EMULATIONS:
        raise ArgumentError(
            f'precision: must be "ieee" or "tf32" with chunks, each of which has one order of sums; got'
            f" {precision!r}, which looks at all rows. Leave it out, or leave chunks out"
        )
    if chunks % ranks:
        raise ArgumentError(
            f"chunks: the number of ranks, {ranks}, must divide it; got {chunks}. Ranks are the tree's top"
            " levels: take 1, 2, 4 or 8 of them, and as many chunks as the most ranks"
        )
    if k * ranks % chunks or k == 0:
        raise ShapeError(
            f"chunks: must divide k of all ranks, {k * ranks}; got {chunks}. Take fewer, or pad k"
        )
    return chunks // ranks


def require_no_factors(chunks: int | None, *factors: Any) -> None:
    if chunks is not None and any(factor is not None for factor in factors):
        raise ArgumentError(
            "scale_a, scale_b: must be None with chunks, as each rank has other factors; got one. Multiply"
            " the result"
        )


def of_chunks(matrix: Any, dim: int, chunks: int) -> Any:
    """(chunks, ...): a view of the matrix, cut along `dim`."""
    return matrix.unflatten(dim, (chunks, -1)).movedim(dim, 0)


def multiply(a: Any, b: Any, options: Options, out: Any = None, **how: Any) -> Any:
    """A batch of chunks. On the host NumPy multiplies one after another, which no order of sums is promised
    of: matrices of one shape then take the same steps.
    """
    how = {"trans_b": options.trans_b, "precision": options.precision, **how}
    if a.is_cuda or options.device is not None:
        return api.gemm(a, b, out=out, device=options.device, invariant=True, **how)
    if out is None:
        first = multiply_one(a, b, 0, how)
        out = first.new_empty((max(len(a), len(b)), *first.shape))
    for chunk in range(len(out)):
        out[chunk] = multiply_one(a, b, chunk, how)
    return out


def multiply_one(a: Any, b: Any, chunk: int, how: dict[str, Any]) -> Any:
    left, right = (operand[chunk % len(operand)].contiguous() for operand in (a, b))
    return api.gemm(left, right, **how)


def sum_of_chunks(rows: Any, matrix: Any, options: Options, out: Any) -> Any:
    """The sum of the products of a rank's chunks, in the type of sums."""
    chunks = options.chunks or 1
    a, b = of_chunks(rows, 1, chunks), of_chunks(matrix, 1 if options.trans_b else 0, chunks)
    dtype, (count, columns) = type_of_sums(rows, matrix), (len(rows), b.shape[1 if options.trans_b else 2])
    if out is None:
        out = rows.new_empty((count, columns), dtype=dtype)
    step = max(1, ROOM // (chunks * columns * dtype.itemsize or 1)) if rows.is_cuda else max(1, count)
    for first in range(0, count, step):
        part = slice(first, first + step)
        terms = multiply(a[:, part], b, options, out_dtype=dtype)
        sum_by_tree(terms, out[part])
    return out


def columns_in_chunks(rows: Any, matrix: Any, options: Options, out: Any) -> Any:
    """A product whose columns are those of chunks, each multiplied as if it were alone."""
    dim = 0 if options.trans_b else 1
    if out is None:
        out = rows.new_empty((len(rows), matrix.shape[dim]), dtype=rows.dtype)
    chunks = options.chunks or 1
    multiply(rows[None], of_chunks(matrix, dim, chunks), options, of_chunks(out, 1, chunks))
    return out


def gradient_in_chunks(rows: Any, g: Any, options: Options) -> Any:
    """That of a matrix by which rows in chunks were multiplied: its rows along k are those of chunks."""
    a = of_chunks(rows, 1, options.chunks or 1)
    product = multiply(a, g[None], options, trans_a=True, trans_b=False).flatten(0, 1)
    return product.t().contiguous() if options.trans_b else product
