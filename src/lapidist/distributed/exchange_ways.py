"""The ways of a product over several ranks that need collectives alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch

from lapidist.distributed.collectives import exchange, gather
from lapidist.distributed.exchange_times import CHUNKS
from lapidist.distributed.row_factors import of_rows
from lapidist.distributed.row_products import RowProducts

SMALL = 1 << 20  # bytes of a term below which all ranks get all terms: one collective in place of two


def chunks_of(rows: int) -> Iterator[slice]:
    """Parts of a rank's rows, the longest first."""
    count = max(1, min(CHUNKS, rows))
    ends = [-(-rows * index // count) for index in range(count + 1)]
    return (slice(start, end) for start, end in pairwise(ends))


def factors_of_all(scale: Any, group: Any, call: str) -> Any:
    """The factors of all ranks' rows."""
    return None if scale is None else gather(scale, group, call).wait().flatten(0, 1)


# ---- rows of all ranks ----


def gather_then_multiply(rows: Any, scale: Any, products: RowProducts, group: Any, call: str) -> list[Any]:
    everything = gather(rows, group, call).wait().flatten(0, 1)
    return products.multiply(everything, factors_of_all(scale, group, call))


def gather_in_chunks(rows: Any, scale: Any, products: RowProducts, group: Any, call: str) -> list[Any]:
    """All gathers start at once, and run one after the other under the products of what is there."""
    chunks = list(chunks_of(rows.shape[0]))
    under_way = [gather(rows[chunk], group, call) for chunk in chunks]
    scale = factors_of_all(scale, group, call)
    ranks = None
    for chunk, exchanged in zip(chunks, under_way, strict=True):
        parts = exchanged.wait()
        if ranks is None:
            ranks = parts.shape[0]
            outs = products.new(rows, ranks, rows.shape[0])
        for rank in range(ranks):
            first = rank * rows.shape[0]
            factors = of_rows(scale, slice(first + chunk.start, first + chunk.stop))
            products.multiply(parts[rank], factors, [out[rank, chunk] for out in outs])
    return [out.flatten(0, 1) for out in outs]


# ---- sums over ranks ----


def multiply_then_scatter(
    rows: Any, scale: Any, products: RowProducts, group: Any, ranks: int, call: str
) -> Any:
    (terms,) = products.multiply(rows, scale)
    return products.sum_of(exchange(terms.unflatten(0, (ranks, -1)), group, call).wait())


def scatter_in_chunks(rows: Any, scale: Any, products: RowProducts, group: Any, ranks: int, call: str) -> Any:
    """Terms of a chunk travel under the products of the next one."""
    owned = rows.shape[0] // ranks
    under_way = []
    for chunk in chunks_of(owned):
        (terms,) = products.new(rows, ranks, chunk.stop - chunk.start)
        for rank in range(ranks):
            part = slice(rank * owned + chunk.start, rank * owned + chunk.stop)
            products.multiply(rows[part], of_rows(scale, part), [terms[rank]])
        under_way.append((chunk, exchange(terms, group, call)))
    (out,) = products.new(rows, owned)
    for chunk, exchanged in under_way:
        products.sum_of(exchanged.wait(), out[chunk])
    return out


def multiply_then_reduce(
    rows: Any, scale: Any, products: RowProducts, group: Any, ranks: int, call: str
) -> Any:
    """The sum on every rank: of terms that all ranks get, or put together from the sums of rows."""
    size = rows.shape[0] * products.columns(0) * products.dtype(rows).itemsize
    if size <= SMALL or rows.shape[0] % ranks:
        (term,) = products.multiply(rows, scale)
        return products.sum_of(gather(term, group, call).wait())
    owned = multiply_then_scatter(rows, scale, products, group, ranks, call)
    return gather(owned, group, call).wait().flatten(0, 1)


def gathered_sums(owned: Any, group: Any, call: str) -> Any:
    """The rows of every rank's sums, on every rank."""
    everything: torch.Tensor = gather(owned, group, call).wait()
    return everything.flatten(0, 1)
