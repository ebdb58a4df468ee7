"""The operators as torch knows them: what they are called with, what runs, and what comes out of tensors
without numbers.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from lapidist import api
from lapidist.calls.linear_shapes import require_features
from lapidist.calls.operation import USUAL_TYPES
from lapidist.calls.remembered import AGAIN
from lapidist.calls.repeat.shape import key_of_product
from lapidist.dtypes import IEEE
from lapidist.errors import LapidistError
from lapidist.launch import AS_IT_IS
from lapidist.torch import fake_tensors, sharding
from lapidist.torch.autocast import WHERE, in_autocast
from lapidist.torch.dispatch_state import is_plain, is_recorded, is_unobserved
from lapidist.torch.recording import function_of, recorder

Rule = Callable[..., Any]
alive = torch._C._functorch.unwrap_if_dead  # what a transform that has ended left of a tensor
LIBRARY = torch.library.Library("lapidist", "DEF")
# What operators run, for code that inductor wrote: it imports torch alone, and may come from a cache.
RUNS = torch.ops.lapidist.runs = SimpleNamespace()
# Any strides will do; results are new and contiguous.
TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)


class Operator:
    """One of torch.ops.lapidist. A call takes the cheapest path on which everything that must see it does."""

    def __init__(self, schema: str, run: Rule, fake: Rule) -> None:
        self.name, self.run = schema.partition("(")[0], run
        setattr(RUNS, self.name, run)
        LIBRARY.define(schema, tags=TAGS)
        for key in ("CPU", "CUDA"):
            LIBRARY.impl(self.name, run, key)
        torch.library.register_fake(f"lapidist::{self.name}", partial(self.outline, fake), lib=LIBRARY)
        self.op = getattr(torch.ops.lapidist, self.name).default
        self.recorded: Any = None  # for autograd alone

    def __call__(self, *given: Any) -> Any:
        if is_unobserved() and all(map(is_plain, given)):
            if not is_recorded(given):
                return self.run(*given)
            if self.recorded is not None:
                return self.recorded(*given)
        if not torch.compiler.is_compiling():
            sharding.register()
        return self.op(*given)

    @staticmethod
    def outline(fake: Rule, *given: Any, **more: Any) -> Any:
        """Compilers ask for it: inductor learns at once how its code calls operators."""
        if "torch._inductor.compile_fx" in sys.modules:  # importing it takes a second
            importlib.import_module("lapidist.torch.lowering")
        return fake(*given, **more)

    def cast(self) -> None:
        """Under torch.autocast, torch.ops.lapidist casts, too."""

        def in_its_type(*given: Any, **more: Any) -> Any:
            cast = in_autocast(*given)  # first: under the guard, autocast is off
            with torch._C._ExcludeDispatchKeyGuard(WHERE):
                return self.op(*cast, **more)

        for key in ("AutocastCPU", "AutocastCUDA"):
            LIBRARY.impl(self.name, in_its_type, key)

    def record(self, keep: Rule, back: Rule, forth: Rule | None = None) -> None:
        """`keep` saves what gradients (`back`) need."""

        def forward(ctx: Any, *given: Any) -> Any:
            output = self.run(*given)
            keep(ctx, given, output)
            return output

        LIBRARY.impl(self.name, recorder(self.op, self.run, keep, back, forth), "Autograd", with_keyset=True)
        # torch.autograd.Function would ask once more for transforms, which takes 8 us
        function = function_of(torch.autograd.function._SingleLevelFunction, forward, back)

        def recorded(*given: Any) -> Any:
            return function.apply(
                *[alive(each) if isinstance(each, torch.Tensor) else each for each in given]
            )

        self.recorded = recorded

    def transform(self, keep: Rule, back: Rule, forth: Rule, mapped: Rule) -> None:
        """Give the operator tangents (`forth`) and vmap (`mapped`, which is told which operators to call)."""
        self.record(keep, back, forth)
        self.cast()
        torch.library.register_vmap(
            f"lapidist::{self.name}", partial(mapped, torch.ops.lapidist), lib=LIBRARY
        )


# ---- what runs; inductor's code names memory for the result, `out` ----


def run_matmul(a: Any, b: Any, out_dtype: Any = None, precision: Any = IEEE, *, out: Any = None) -> Any:
    return api.matmul(a, b, out=out, out_dtype=out_dtype, precision=precision)


def run_gemm(
    a: Any,
    b: Any,
    c: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    trans_a: bool = False,
    trans_b: bool = False,
    out_dtype: Any = None,
    precision: Any = IEEE,
    *,
    out: Any = None,
) -> Any:
    how: dict[str, Any] = {"alpha": alpha, "beta": beta, "trans_a": trans_a, "trans_b": trans_b}
    return api.gemm(a, b, c, **how, out=out, out_dtype=out_dtype, precision=precision)


def matmul_again(a: Any, b: Any) -> Any:
    """matmul on the fast path of a repeated call; None if the call must be checked in full."""
    again = AGAIN.get(key_of_product(a, b, None, USUAL_TYPES))
    return None if again is None else again(a, b, None, None, AS_IT_IS, None)


PRODUCT, SUM = (api.ALPHA, api.BETA, False, True), (api.ALPHA, 1.0, False, True)  # and what is transposed


def linear_again(input: Any, weight: Any, bias: Any, out: Any = None) -> Any:
    numbers: tuple[Any, Any, bool, bool] = PRODUCT if bias is None else SUM
    return api.gemm_again(input, weight, bias, out, *numbers, USUAL_TYPES, None)


def product_again(a: Any, b: Any, trans_a: bool, trans_b: bool) -> Any:
    return api.gemm_again(a, b, None, None, api.ALPHA, api.BETA, trans_a, trans_b, USUAL_TYPES, None)


def run_linear(
    input: Any,
    weight: Any,
    bias: Any = None,
    out_dtype: Any = None,
    precision: Any = IEEE,
    *,
    out: Any = None,
) -> Any:
    """input @ weight.T + bias, in one launch. Errors use these names."""
    if out_dtype is None and precision == IEEE:
        product = linear_again(input, weight, bias, out)
        if product is not None:
            return product
    if weight.ndim > 2:  # gemm would take a batch
        require_features(tuple(input.shape), tuple(weight.shape))
    try:
        product = api.gemm(
            fake_tensors.as_rows(input),
            fake_tensors.as_rows(weight),
            bias,
            beta=0.0 if bias is None else 1.0,
            out=fake_tensors.within(out, row=input.ndim == 1, column=weight.ndim == 1),
            trans_b=True,
            out_dtype=out_dtype,
            precision=precision,
        )
    except LapidistError:
        fake_tensors.of_linear(input, weight, bias, out_dtype, precision)
        raise
    return fake_tensors.without(product, row=input.ndim == 1, column=weight.ndim == 1)


def run_scaled(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    c: Any = None,
    out_dtype: Any = None,
    promote: bool | None = None,
    *,
    out: Any = None,
) -> Any:
    how: dict[str, Any] = {"scale_a": scale_a, "scale_b": scale_b, "promote": promote, "out_dtype": out_dtype}
    return api.gemm(a, b, c, beta=0.0 if c is None else 1.0, out=out, **how)


def run_update(
    out: Any,
    a: Any,
    b: Any,
    alpha: float = 1.0,
    beta: float = 1.0,
    trans_a: bool = False,
    trans_b: bool = False,
    precision: Any = IEEE,
) -> None:
    """out = alpha op(a) op(b) + beta out, in out's type."""
    how: dict[str, Any] = {"alpha": alpha, "beta": beta, "trans_a": trans_a, "trans_b": trans_b}
    api.gemm(a, b, out if beta else None, **how, out=out, out_dtype=out.dtype, precision=precision)


TYPES = 'ScalarType? out_dtype=None, str precision="ieee"'
NUMBERS = "float alpha=1.0, float beta={}, bool trans_a=False, bool trans_b=False"
matmul = Operator(f"matmul(Tensor a, Tensor b, {TYPES}) -> Tensor", run_matmul, fake_tensors.of_matmul)
gemm = Operator(
    f"gemm(Tensor a, Tensor b, Tensor? c=None, {NUMBERS.format(0.0)}, {TYPES}) -> Tensor",
    run_gemm,
    fake_tensors.of_gemm,
)
linear = Operator(
    f"linear(Tensor input, Tensor weight, Tensor? bias=None, {TYPES}) -> Tensor",
    run_linear,
    fake_tensors.of_linear,
)
scaled = Operator(
    "scaled(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor? c=None, ScalarType? out_dtype=None,"
    " bool? promote=None) -> Tensor",
    run_scaled,
    fake_tensors.of_scaled,
)
update = Operator(
    f'gemm_(Tensor(a!) out, Tensor a, Tensor b, {NUMBERS.format(1.0)}, str precision="ieee") -> ()',
    run_update,
    fake_tensors.of_update,
)
