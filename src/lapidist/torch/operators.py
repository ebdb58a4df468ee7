"""The operators as torch knows them: what they are called with, what runs, and what comes out of tensors
without numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from lapidist import api
from lapidist.calls import checks
from lapidist.errors import LapidistError
from lapidist.torch import outlines

Rule = Callable[..., Any]
LIBRARY = torch.library.Library("lapidist", "DEF")
# Any strides will do; results are new and contiguous.
TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)


class Operator:
    """One of torch.ops.lapidist.

    torch.func's transforms and tangents do not go through what torch.library registers. They have an
    autograd.Function."""

    def __init__(self, schema: str, run: Rule, fake: Rule) -> None:
        self.name = schema.partition("(")[0]
        LIBRARY.define(schema, tags=TAGS)
        for key in ("CPU", "CUDA"):
            LIBRARY.impl(self.name, run, key)
        torch.library.register_fake(f"lapidist::{self.name}", fake, lib=LIBRARY)
        self.op = getattr(torch.ops.lapidist, self.name).default
        self.function: Any = None

    def __call__(self, *given: Any) -> Any:
        return self.function.apply(*given) if is_transformed() else self.op(*given)

    def differentiate(self, keep: Rule, back: Rule, forth: Rule, mapped: Rule) -> None:
        """`keep` saves what gradients (`back`) and tangents (`forth`) need; `mapped` is vmap's, told which
        operators to call.
        """
        name = f"lapidist::{self.name}"
        torch.library.register_autograd(name, back, setup_context=keep, lib=LIBRARY)
        torch.library.register_vmap(name, partial(mapped, torch.ops.lapidist), lib=LIBRARY)
        of_calls = partial(mapped, sys.modules[__name__])
        rules = {"forward": self.op, "setup_context": keep, "backward": back, "jvp": forth, "vmap": of_calls}
        methods = {name: staticmethod(rule) for name, rule in rules.items()}
        self.function = type(self.name, (torch.autograd.Function,), methods)


def is_transformed() -> bool:
    if torch.compiler.is_compiling():
        return False
    return torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0


def run_gemm(
    a: Any,
    b: Any,
    c: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    trans_a: bool = False,
    trans_b: bool = False,
) -> Any:
    return api.gemm(a, b, c, alpha=alpha, beta=beta, trans_a=trans_a, trans_b=trans_b)


def run_linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """input @ weight.T + bias, in one launch. Errors are told in these names."""
    if weight.ndim > 2:  # gemm would take a batch
        checks.require_features(tuple(input.shape), tuple(weight.shape))
    try:
        product = api.gemm(
            outlines.as_rows(input),
            outlines.as_rows(weight),
            bias,
            beta=0.0 if bias is None else 1.0,
            trans_b=True,
        )
    except LapidistError:
        outlines.of_linear(input, weight, bias)
        raise
    return outlines.without(product, row=input.ndim == 1, column=weight.ndim == 1)


GEMM = (
    "(Tensor a, Tensor b, Tensor? c=None, float alpha=1.0, float beta=0.0, bool trans_a=False, bool"
    " trans_b=False) -> Tensor"
)
matmul = Operator("matmul(Tensor a, Tensor b) -> Tensor", lambda a, b: api.matmul(a, b), outlines.of_matmul)
gemm = Operator(f"gemm{GEMM}", run_gemm, outlines.of_gemm)
linear = Operator(
    "linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor", run_linear, outlines.of_linear
)
