"""torch's collectives, by which bytes travel. Sums are taken here, in the order of ranks.

A collective that adds has an order of its own, which may change with the size. Terms that travel first take
as many bytes, and every way gives the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from lapidist.distributed.group_facts import members_of, waiting

# The old name of torch's function warns since 2.13.
_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class Exchanged:
    """A tensor that is under way; `wait()` returns it when it is there."""

    def __init__(self, tensor: Any, work: Any, group: Any, call: str) -> None:
        self._tensor, self._work, self._group, self._call = tensor, work, group, call

    def wait(self) -> Any:
        with waiting(self._group, self._call):
            self._work.wait()
        return self._tensor


def in_memory(tensor: Any) -> Any:
    """A contiguous tensor whose bytes are its values. Conjugates and signs may be marks alone."""
    return tensor.resolve_conj().resolve_neg().contiguous()


def as_bytes(tensor: Any) -> Any:
    """gloo and NCCL lack some types, 8-bit floats for one."""
    return tensor.view(-1).view(torch.uint8)


def gather(part: Any, group: Any, call: str) -> Exchanged:
    """(ranks, ...): this tensor of every rank."""
    part = in_memory(part)
    parts = part.new_empty((members_of(group).ranks, *part.shape))
    with waiting(group, call):
        work = _gather(as_bytes(parts), as_bytes(part), group=group, async_op=True)
    return Exchanged(parts, work, group, call)


def exchange(parts: Any, group: Any, call: str) -> Exchanged:
    """(ranks, ...): what each rank has for this one, of parts (ranks, ...) for every rank."""
    parts = in_memory(parts)
    arrived = torch.empty_like(parts)
    with waiting(group, call):
        work = dist.all_to_all_single(as_bytes(arrived), as_bytes(parts), group=group, async_op=True)
    return Exchanged(arrived, work, group, call)


def sum_of_terms(terms: Sequence[Any], out: Any = None) -> Any:
    """Terms added in their order, those of floats in float32 at least, and rounded once."""
    first, *further = terms
    if not further:
        return first.clone() if out is None else out.copy_(first)
    if out is None:
        out = torch.empty_like(first)
    if len(further) == 1:  # torch adds two narrow floats in float32
        return torch.add(first, further[0], out=out)
    wide = first.dtype.is_floating_point and first.dtype.itemsize < 4
    total = first.to(torch.float32) if wide else first.clone()
    for term in further[:-1]:
        total += term
    return torch.add(total, further[-1], out=out)


def sum_by_tree(terms: Any, out: Any = None) -> Any:
    """Terms, a power of two of them, added by a binary tree of neighbours in their own type."""
    while len(terms) > 2:
        terms = (
            terms[::2] + terms[1::2]
            if isinstance(terms, torch.Tensor)
            else [left + right for left, right in zip(terms[::2], terms[1::2], strict=True)]
        )
    if len(terms) == 1:
        return terms[0].clone() if out is None else out.copy_(terms[0])
    return torch.add(terms[0], terms[1], out=out)


def summed(tensor: Any, group: Any, call: str) -> Any:
    """The sum over all ranks, on every rank."""
    return sum_of_terms(gather(tensor, group, call).wait())
