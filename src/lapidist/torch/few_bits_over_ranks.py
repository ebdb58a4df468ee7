"""torch.ops.lapidist.few_bits_over_ranks: rows times this rank's part of a weight of few bits, where rows are
gathered before, or sums are added up over ranks behind. Terms of sums travel in the type of the rows.
"""

from __future__ import annotations

from typing import Any

import torch

from lapidist.calls.fake_tensors import outline
from lapidist.distributed.chosen_ways import gathered, reduced, scattered
from lapidist.distributed.compiled_products import Kind
from lapidist.distributed.group_facts import members_of
from lapidist.distributed.product_options import Options
from lapidist.distributed.row_products import RowProducts, leading_of_result
from lapidist.quantised import product as products
from lapidist.quantised.activations import OF_16_BITS
from lapidist.quantised.packed_weight import of_layout
from lapidist.torch.few_bits import WEIGHT
from lapidist.torch.operators import Operator

# of the gradient's exchange
BACK: dict[Kind, Kind] = {"enter": "reduce", "gather": "scatter", "reduce": "enter", "scatter": "gather"}


class PackedProducts(RowProducts):
    """Rows by a packed weight."""

    __slots__ = ()

    def product(
        self, index: int, rows: Any, scale: Any, out: Any, arrivals: Any = None, added: Any = None
    ) -> Any:
        return products.product(rows, self.matrices[index], self.biases[index] if self.biases else None, out)

    def adds_in_product(self, rows: Any) -> bool:
        return False

    def barred(self) -> str:
        return "a weight of few bits may be decoded for each product, so all rows are multiplied at once"

    @property
    def key(self) -> tuple[Any, ...]:
        return tuple(tuple(weight.layout) for weight in self.matrices)

    def described(self) -> str:
        return ", ".join(f"b {weight!r}" for weight in self.matrices)


def exchanged(kind: Kind, rows: Any, factors: RowProducts, group: str) -> Any:
    ranks = torch.distributed.distributed_c10d._resolve_process_group(group)
    if kind == "enter":
        return factors.multiply(rows)[0]
    if kind == "gather":
        return gathered(rows, None, factors, ranks, None)[0]
    return (scattered if kind == "scatter" else reduced)(rows, None, factors, ranks, None)


def count_of(kind: Kind, rows: int, group: str) -> int:
    """Rows of the result."""
    ranks = members_of(torch.distributed.distributed_c10d._resolve_process_group(group)).ranks
    return leading_of_result(kind, (rows,), ranks)[0]


def run(
    rows: Any,
    codes: Any,
    scales: Any,
    zeros: Any,
    layout: list[int],
    kind: Kind,
    group: str,
    bias: Any = None,
) -> Any:
    weight, biases = of_layout(layout, codes, scales, zeros), () if bias is None else (bias.detach(),)
    return exchanged(kind, rows.detach(), PackedProducts([weight], Options(), biases=biases), group)


def run_back(
    gradient: Any, codes: Any, scales: Any, zeros: Any, layout: list[int], kind: Kind, group: str
) -> Any:
    gradient = gradient.detach().contiguous()
    rows, _ = products.rows_like(gradient, of_layout(layout, codes, scales, zeros))
    return exchanged(BACK[kind], gradient, RowProducts([rows], Options()), group)


def fake(
    rows: Any,
    codes: Any,
    scales: Any,
    zeros: Any,
    layout: list[int],
    kind: Kind,
    group: str,
    bias: Any = None,
) -> Any:
    products.require_activations(outline(rows, "x"), layout[0], [outline(codes, "codes")], OF_16_BITS)
    return rows.new_empty((count_of(kind, rows.shape[0], group), layout[1]))


def fake_back(
    gradient: Any, codes: Any, scales: Any, zeros: Any, layout: list[int], kind: Kind, group: str
) -> Any:
    return gradient.new_empty((count_of(BACK[kind], gradient.shape[0], group), layout[0]))


def keep(ctx: Any, inputs: Any, output: Any) -> None:
    _, codes, scales, zeros, *ctx.call, _ = inputs
    ctx.save_for_backward(codes, scales, zeros)


def back(ctx: Any, gradient: Any) -> tuple[Any, ...]:
    needs_rows, needs_bias = ctx.needs_input_grad[0], ctx.needs_input_grad[7]
    of_rows = over_ranks_back.op(gradient, *ctx.saved_tensors, *ctx.call) if needs_rows else None
    return of_rows, *[None] * 6, gradient.sum(0) if needs_bias else None


HOW = f"{WEIGHT}, str kind, str group"
over_ranks = Operator(f"few_bits_over_ranks(Tensor rows, {HOW}, Tensor? bias=None) -> Tensor", run, fake)
over_ranks_back = Operator(f"few_bits_over_ranks_back(Tensor gradient, {HOW}) -> Tensor", run_back, fake_back)
over_ranks.record(keep, back)
