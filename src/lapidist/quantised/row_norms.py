"""RMSNorm of rows of x, in an array of its own: where the launch of the product does not divide its sums."""

from __future__ import annotations

import math
from typing import Any

from lapidist.calls import number_rules
from lapidist.errors import ArgumentError, shown
from lapidist.frameworks.arrays import framework_of


def require_epsilon(value: object) -> float:
    """What is added to the mean square, so that rows of zeros have a root."""
    number = number_rules.require_scalar("norm_eps", value)
    if not 0 <= number < math.inf:
        raise ArgumentError(
            f"norm_eps: must be a number from 0 on; got {shown(value)}. Pass that of the model's RMSNorm,"
            " 1e-6 say"
        )
    return number


def normalised(x: Any, epsilon: float) -> Any:
    """The rows divided by the roots of their mean squares, rounded to their type."""
    if framework_of(x) == "torch":
        import torch

        return torch.nn.functional.rms_norm(x, x.shape[-1:], eps=epsilon)
    return divided(x, epsilon).astype(x.dtype)


def divided(x: Any, epsilon: float) -> Any:
    """The same of an array, in float32."""
    wide = x.astype("float32")
    return wide / ((wide * wide).mean(-1, keepdims=True) + epsilon) ** 0.5
