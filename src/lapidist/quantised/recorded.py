"""Products with weights of few bits that torch records: gradients go to x and to the bias."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class Recorded(torch.autograd.Function):  # type: ignore[misc]
    """The weight has no gradient: its codes are whole numbers. `multiply` takes x and the bias."""

    @staticmethod
    def forward(ctx: Any, x: Any, bias: Any, multiply: Callable[..., Any], to_x: Callable[..., Any]) -> Any:
        ctx.to_x = to_x
        return multiply(x.detach(), bias=None if bias is None else bias.detach())

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Any) -> Any:
        of_x, of_bias = ctx.needs_input_grad[:2]
        bias = gradient.reshape(-1, gradient.shape[-1]).sum(0) if of_bias else None
        return ctx.to_x(gradient) if of_x else None, bias, None, None


def recorded(x: Any, bias: Any, multiply: Callable[..., Any], to_x: Callable[..., Any]) -> Any:
    return Recorded.apply(x, bias, multiply, to_x)
