"""Parts of ranks that are not equally long, as torch.chunk cuts them: the last ones are shorter, or empty.

rows of all   | 0 1 2 | 3 4 5 | 6     |
exchanged       0 1 2   3 4 5   6 0 0     rows of zeros behind; those of the result are left out
"""

from __future__ import annotations

from typing import Any

import torch

from lapidist.distributed.compiled_products import is_compiling
from lapidist.distributed.group_facts import group_of, members_of, values_of_ranks
from lapidist.distributed.row_factors import row_factors
from lapidist.distributed.row_products import in_rows
from lapidist.dtypes import integer_from
from lapidist.errors import ArgumentError, ShapeError, shown


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def place_in(group: Any) -> tuple[int, int]:
    """This rank, and how many there are."""
    members = members_of(group_of(group))
    return members.rank, members.ranks


def longest_part(extent: int, ranks: int) -> int:
    return -(-extent // ranks)


def part_of(extent: int, rank: int, ranks: int) -> int:
    """How long a rank's part is."""
    longest = longest_part(extent, ranks)
    return max(0, min(longest, extent - rank * longest))


def padded(tensor: Any, dim: int, extent: int) -> Any:
    """With zeros behind, up to this extent along `dim`."""
    shape = list(tensor.shape)
    shape[dim] = extent - shape[dim]
    if shape[dim] == 0:
        return tensor
    zeros = tensor.new_zeros(shape)
    if tensor.dtype.itemsize > 1 or not tensor.dtype.is_floating_point:
        return torch.cat([tensor, zeros], dim)
    # torch has no cat of 8-bit floats everywhere
    return torch.cat([tensor.view(torch.uint8), zeros.view(torch.uint8)], dim).view(tensor.dtype)


def require_parts(extent: int, length: int, group: Any) -> None:
    """Refuse, on every rank, parts that are not those of torch.chunk. Ranks compare new ones once."""
    members, call = members_of(group), "all_gather_matmul"
    if (call, extent, length) in members.descriptions:
        return
    members.calls += 1
    lengths = values_of_ranks(group, "part", (extent, length), call)
    right = [(extent, part_of(extent, rank, members.ranks)) for rank in range(members.ranks)]
    if lengths != right:
        listed = ", ".join(f"{part} of {of_all}" for of_all, part in lengths)
        cut = ", ".join(str(part) for _, part in right)
        raise ShapeError(
            f"a_shard: parts along dim must be those of torch.chunk, {cut} of {extent}; got {listed}."
            " Cut a so, or leave extent out if parts are equal"
        )
    members.descriptions.add((call, extent, length))


def equal_shard(a_shard: Any, scale: Any, dim: int, extent: Any, group: Any) -> tuple[Any, Any]:
    """This rank's part of an a of that extent, and factors of its rows, as long as the longest one."""
    _, ranks = place_in(group)
    length = integer_from(1, extent)
    if length is None:
        raise ArgumentError(
            f"extent: must be a whole number from 1 on; got {shown(extent)}. Write a's along dim"
        )
    rows, _ = in_rows(a_shard, dim, "a_shard")
    if not is_compiling():
        require_parts(length, a_shard.shape[dim], group_of(group))
    longer = padded(a_shard, dim, longest_part(length, ranks))
    if scale is not None:
        factors = row_factors(scale, rows)
        scale = padded(factors, 0, longer.numel() // max(1, longer.shape[-1]))
    return longer, scale


def equal_parts(a: Any, scale: Any, dim: int, group: Any) -> tuple[Any, Any, int | None]:
    """a whose extent along `dim` divides by the number of ranks, factors of its rows, and how much of the
    result is this rank's; None: all.
    """
    rows, leading = in_rows(a, dim, "a")
    (rank, ranks), extent = place_in(group), leading[0]
    if extent % ranks == 0:
        return a, scale, None
    longer = padded(a, dim, longest_part(extent, ranks) * ranks)
    if scale is not None:
        scale = padded(row_factors(scale, rows), 0, longer.numel() // max(1, longer.shape[-1]))
    return longer, scale, part_of(extent, rank, ranks)


def first_of(tensor: Any, dim: int, extent: int | None) -> Any:
    return tensor if extent is None else tensor.narrow(dim, 0, extent)
