"""Gradients of weights whose bits do not depend on how a batch is cut into micro-batches.

Tokens come in leaves of one length. Each leaf's gradient is a product of one shape, and so of one order of
sums. Leaves are added as carries of a binary counter are: two sums of as many leaves become one.

    leaf        0    1        2    3             4
    sums kept   0    0-1      0-1, 2    0-3      0-3, 4
"""

from __future__ import annotations

from typing import Any

import torch

from lapidist.dtypes import accumulators_of, integer_from
from lapidist.errors import ArgumentError, ShapeError, shown
from lapidist.frameworks.new_arrays import torch_dtype
from lapidist.torch import operators
from lapidist.torch.invariant_precision import summed_freely


class TokenTree:
    """A weight's gradient, summed by a tree over leaves of `tokens` rows: `into` of `linear`, or a weight's
    `main_grad`.

    `total()` returns the sum of all leaves that came, in the type of sums, and begins anew. Every cut of a
    batch into micro-batches of whole leaves gives the same bits.

    Examples
    --------
    >>> import torch
    >>> import lapidist.torch
    >>> weight, x = torch.ones(4, 8, requires_grad=True), torch.ones(32, 8)
    >>> tree = lapidist.torch.TokenTree(tokens=16)
    >>> for micro_batch in x.split(16):
    ...     lapidist.torch.linear(micro_batch, weight, into=tree).sum().backward()
    >>> tree.total()[0, 0]
    tensor(32.)
    """

    def __init__(self, tokens: int) -> None:
        leaf = integer_from(1, tokens)
        if leaf is None:
            raise ArgumentError(
                f"tokens: must be a whole number from 1 on; got {shown(tokens)}. Write 512, say"
            )
        self.tokens = leaf
        self._sums: list[tuple[int, Any]] = []  # leaves in each sum, the most first

    def require_leaves(self, rows: int) -> None:
        """Refuse rows that are no whole leaves, before anything is multiplied."""
        if rows % self.tokens:
            raise ShapeError(
                f"input: must have whole leaves of {self.tokens} rows for the tree that sums the weight's"
                f" gradient; got {rows} rows. Pad the micro-batch, or take fewer tokens"
            )

    def add(self, gradients: Any, rows: Any, precision: Any) -> None:
        """The leaves of a micro-batch: gradients' rows by the input's."""
        dtype = torch_dtype(accumulators_of(str(rows.dtype).removeprefix("torch."))[0])
        for g, x in zip(gradients.split(self.tokens), rows.split(self.tokens), strict=True):
            how = None, 1.0, 0.0, True, False, dtype, summed_freely(precision)
            count, leaf = 1, operators.gemm(g.contiguous(), x.contiguous(), *how)
            while self._sums and self._sums[-1][0] == count:
                leaf = self._sums.pop()[1].add_(leaf)
                count *= 2
            self._sums.append((count, leaf))

    def total(self) -> Any:
        """The sum of all leaves; None if there was none."""
        total = None
        with torch.no_grad():
            while self._sums:
                _, leaves = self._sums.pop()  # the fewest first
                total = leaves if total is None else leaves.add_(total)
        return total
