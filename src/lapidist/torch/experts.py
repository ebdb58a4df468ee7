"""A mixture's experts by grouped products.

Tokens are sorted by expert, and the ends of the groups counted, on the device: no length reaches the host, so
a CUDA graph may hold the layer. The sum over a token's experts is taken in their order, whichever kernel
runs."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch

from lapidist.calls import grouped as grouped_calls
from lapidist.calls.operation import OPEN_BLOCKS
from lapidist.epilogues.ready_made import READY
from lapidist.torch.dispatch_state import is_direct, is_recorded
from lapidist.torch.public_calls import grouped

# Features of tokens that are read where they lie. 8192 rows of 4096 took a fifth longer so than with a copy,
# rows of 2048 less (H200; when warps still waited for their copies).
LONGEST_GATHERED = 2048


class ByExpert(NamedTuple):
    """Pairs of a token and an expert, sorted by expert: row i is pair `order[i]`, pair j is row `inverse[j]`.
    `ends`: of the experts' groups. `numbers`: of each row's expert.
    """

    order: Any
    inverse: Any
    ends: Any
    numbers: Any
    top_k: int


def by_expert(index: Any, count: int) -> ByExpert:
    """`index`, (tokens, top_k), sorted for `count` experts. Numbers from `count` on, of experts that
    other devices have, are taken as the last one's.
    """
    pairs = index.flatten()
    numbers, order = pairs.clamp(max=count - 1).sort(stable=True)
    line = torch.arange(max(len(pairs), count), device=index.device)
    inverse = torch.empty_like(order).scatter_(0, order, line[: len(pairs)])
    ends = torch.searchsorted(numbers, line[:count].to(numbers.dtype), right=True)  # bincount would wait
    return ByExpert(order, inverse, ends, numbers, index.shape[-1])


class Spread(torch.autograd.Function):  # type: ignore[misc]
    """Each token's row, once for each of its experts, in their order."""

    @staticmethod
    def forward(tokens: Any, order: Any, inverse: Any, top_k: int) -> Any:
        return tokens.index_select(0, order // top_k)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, order, inverse, ctx.top_k = inputs
        ctx.save_for_backward(order, inverse)

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple[Any, ...]:
        order, inverse = ctx.saved_tensors
        of_pairs = Moved.apply(g, inverse, order)
        return of_pairs.unflatten(0, (-1, ctx.top_k)).sum(1), None, None, None


class Moved(torch.autograd.Function):  # type: ignore[misc]
    """The rows `order`, whose gradient goes back through `inverse`: torch's would add, in any order."""

    @staticmethod
    def forward(rows: Any, order: Any, inverse: Any) -> Any:
        return rows.index_select(0, order)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple[Any, ...]:
        order, inverse = ctx.saved_tensors
        return Moved.apply(g, inverse, order), None, None


class Biased(torch.autograd.Function):  # type: ignore[misc]
    """Rows of groups, each with the bias of its group, whose gradient is summed in one order."""

    @staticmethod
    def forward(rows: Any, bias: Any, numbers: Any, ends: Any) -> Any:
        return rows + bias.to(rows.dtype).index_select(0, numbers)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, bias, _, ends = inputs
        ctx.save_for_backward(ends)
        ctx.dtype = bias.dtype

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple[Any, ...]:
        (ends,), of_bias = ctx.saved_tensors, None
        if ctx.needs_input_grad[1]:
            of_bias = grouped(g.new_ones(1, len(g)), g.contiguous(), ends).squeeze(1).to(ctx.dtype)
        return g, of_bias, None, None


def main_grad(weight: Any) -> Any:
    """The tensor that a weight's gradient is added to; None: it has none."""
    return getattr(weight, "main_grad", None)


def at_once(tokens: Any, experts: Any, weights: Any, pairs: ByExpert) -> Any:
    """The weighted sum of each token's experts, by products without gradients. They read tokens where they
    lie, unless these are long, and store weighed results in the order of the pairs.
    """
    index = pairs.order // pairs.top_k
    if tokens.shape[-1] > LONGEST_GATHERED:
        tokens, index = tokens.index_select(0, index), None
    hidden = experts._apply_gate(experts.gathered(tokens, experts.gate_up_proj, pairs.ends, index))
    results = experts.weighed(hidden, experts.down_proj, pairs.ends, pairs.order, weights.flatten())
    return results.unflatten(0, (-1, pairs.top_k)).sum(1)


def step_by_step(tokens: Any, experts: Any, weights: Any, pairs: ByExpert) -> Any:
    """The same by torch's operators, which have gradients."""
    rows = Spread.apply(tokens, pairs.order, pairs.inverse, pairs.top_k)
    gated = experts.by_groups(rows, experts.gate_up_proj, pairs.ends)
    if experts.has_bias:
        gated = Biased.apply(gated, experts.gate_up_proj_bias, pairs.numbers, pairs.ends)
    results = experts.by_groups(experts._apply_gate(gated), experts.down_proj, pairs.ends)
    if experts.has_bias:
        results = Biased.apply(results, experts.down_proj_bias, pairs.numbers, pairs.ends)
    of_tokens = Moved.apply(results, pairs.inverse, pairs.order).unflatten(0, (-1, pairs.top_k))
    return (of_tokens * weights.unsqueeze(-1)).sum(1)


class Experts(torch.nn.Module):  # type: ignore[misc]
    """The forward pass of a mixture's experts. `swap` derives classes from it and from models' own."""

    invariant: bool | None = None  # whether rows keep their bits; None: as the block around a call says

    def forward(self, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
        pairs = by_expert(top_k_index, len(self.gate_up_proj))
        weights = top_k_weights.masked_fill(top_k_index >= len(self.gate_up_proj), 0)
        operands = hidden_states, self.gate_up_proj, self.down_proj, weights
        summed = at_once if self.may_be_fused(operands) else step_by_step
        return summed(hidden_states, self, weights, pairs).to(hidden_states.dtype)

    def may_be_fused(self, operands: tuple[Any, ...]) -> bool:
        """A function in the launch is not invariant for every type."""
        return not self.invariant and not OPEN_BLOCKS and is_direct(*operands) and not is_recorded(operands)

    def by_groups(self, rows: Any, weights: Any, ends: Any) -> Any:
        how: dict[str, Any] = {"trans_b": not self.is_transposed, "invariant": self.invariant}
        return grouped(rows, weights, ends, into=main_grad(weights), **how)

    def gathered(self, tokens: Any, weights: Any, ends: Any, index: Any) -> Any:
        """The same of rows by their indices, or (None) of all, which torch does not see."""
        return grouped_calls.grouped(tokens, weights, ends, trans_b=not self.is_transposed, gather_a=index)

    def weighed(self, rows: Any, weights: Any, ends: Any, order: Any, factors: Any) -> Any:
        """Results at their places, each times the factor of its place."""
        results = rows.new_empty(len(order), weights.shape[-1 if self.is_transposed else -2])
        after = READY["scaled_rows"](factors=factors)
        how: dict[str, Any] = {"scatter_d": order, "out": results, "epilogue": after}
        return grouped_calls.grouped(rows, weights, ends, trans_b=not self.is_transposed, **how)

    def extra_repr(self) -> str:
        words = super().extra_repr()
        return f"{words}, by lapidist" if words else "by lapidist"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A swapped layer anew: its class has no name by which pickle could import it."""
        return blank, (self.stock_class, type(self).__bases__[0]), self.__dict__

    @property
    def stock_class(self) -> Any:
        return type(self).__bases__[1]


@cache
def swapped_class(stock: Any, ours: Any) -> Any:
    bases: Any = (ours, stock)
    return type(stock.__name__, bases, {"__module__": stock.__module__})


def blank(stock: type, ours: type) -> Any:
    kind = swapped_class(stock, ours)
    return kind.__new__(kind)


def are_experts(layer: Any, biased: bool = False) -> bool:
    """Whether a module is what transformers' `use_experts_implementation` makes: weights of all experts in
    two parameters, gated, without biases; or (`biased`) with them.
    """
    weights = (getattr(layer, name, None) for name in ("gate_up_proj", "down_proj"))
    return bool(
        not isinstance(layer, Experts)
        and all(map(are_matrices, weights))
        and getattr(layer, "has_gate", False)
        and (biased or not getattr(layer, "has_bias", True))
        and isinstance(getattr(layer, "is_transposed", None), bool)
        and callable(getattr(layer, "_apply_gate", None))
    )


def are_matrices(weight: Any) -> bool:
    """Whether a parameter holds a matrix for each expert, of floats that are not quantised."""
    is_stack = isinstance(weight, torch.nn.Parameter) and weight.ndim == 3
    return bool(is_stack and weight.is_floating_point() and weight.itemsize > 1)
