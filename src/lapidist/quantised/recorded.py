"""Products with weights of few bits that torch records: gradients go to x and to the bias."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class Recorded(torch.autograd.Function):  # type: ignore[misc]
    """The weight has no gradient: its codes are whole numbers. `multiply` takes x and the bias, if any. The
    product by which x has its gradient is one of these again, with `multiply` and `to_x` exchanged.
    """

    @staticmethod
    def forward(ctx: Any, x: Any, bias: Any, multiply: Callable[..., Any], to_x: Callable[..., Any]) -> Any:
        ctx.back = to_x, multiply
        return multiply(x.detach()) if bias is None else multiply(x.detach(), bias=bias.detach())

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        needs_x, needs_bias = ctx.needs_input_grad[:2]
        of_x = Recorded.apply(gradient, None, *ctx.back) if needs_x else None
        of_bias = gradient.reshape(-1, gradient.shape[-1]).sum(0) if needs_bias else None
        return of_x, of_bias, None, None


def recorded(x: Any, bias: Any, multiply: Callable[..., Any], to_x: Callable[..., Any]) -> Any:
    return Recorded.apply(x, bias, multiply, to_x)
