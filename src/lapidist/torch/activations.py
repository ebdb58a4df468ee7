"""linear with an activation: fused into the product where nobody needs the sums before it."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from lapidist import api
from lapidist.epilogues.ready import READY
from lapidist.errors import ArgumentError
from lapidist.torch import operators, outlines
from lapidist.torch.sight import is_plain, is_recorded, is_unobserved

# torch's own, by the names of ready-made epilogues
ACTIVATIONS = {
    "relu": torch.nn.functional.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": partial(torch.nn.functional.gelu, approximate="tanh"),
    "silu": torch.nn.functional.silu,
}


def activated(
    input: Any, weight: Any, bias: Any, activation: str, out_dtype: Any = None, precision: Any = "ieee"
) -> Any:
    """Gradients, transforms and graphs of torch.compile see the product and torch's activation."""
    if activation not in ACTIVATIONS:
        raise ArgumentError(
            f"activation: must be {', '.join(map(repr, ACTIVATIONS))} or None; got {activation!r}. Apply"
            " others to the result"
        )
    given = input, weight, bias
    seen = not is_unobserved() or not all(map(is_plain, given)) or is_recorded(given)
    if seen or not fits(input, weight, bias):
        return ACTIVATIONS[activation](operators.linear(input, weight, bias, out_dtype, precision))
    epilogue = READY[activation] if bias is None else READY[f"bias_{activation}"](bias=bias)
    rows, how = outlines.as_rows(input), {"out_dtype": out_dtype, "precision": precision}
    product = api.gemm(rows, weight, trans_b=True, epilogue=epilogue, **how)
    return outlines.without(product, row=input.ndim == 1, column=False)


def fits(input: Any, weight: Any, bias: Any) -> bool:
    """Whether it is a layer's: of floats, a bias for each of its features."""
    plain = input.dtype.is_floating_point and input.ndim and weight.ndim == 2
    return bool(plain and (bias is None or bias.shape == weight.shape[:1]))
