"""The operators as torch has them: schemas, the functions that run, and results without numbers."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from lapidist import api
from lapidist.calls import fake_tensors
from lapidist.calls import grouped as grouped_calls
from lapidist.calls.linear_shapes import require_features
from lapidist.calls.operation import OPEN_BLOCKS, USUAL_TYPES
from lapidist.calls.repeat import MATRIX_PATHS
from lapidist.calls.repeat.shape import key_of_product
from lapidist.dtypes import IEEE
from lapidist.errors import LapidistError
from lapidist.frameworks.tensor_rules import require_dense
from lapidist.frameworks.torch_autocast import WHERE, in_autocast
from lapidist.launch import AS_IT_IS
from lapidist.torch import sharding
from lapidist.torch.dispatch_state import is_plain, is_recorded, is_unobserved
from lapidist.torch.recording import function_of, recorder

Rule = Callable[..., Any]
unwrapped = torch._C._functorch.unwrap_if_dead  # from the wrapper of a transform that has ended
LIBRARY = torch.library.Library("lapidist", "DEF")
# The functions that run, for inductor's code: it imports torch alone, and may come from a cache.
RUNS = torch.ops.lapidist.runs = SimpleNamespace()
# Any strides will do; results are new and contiguous.
TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)


class Operator:
    """One of torch.ops.lapidist. A call bypasses the parts of torch that need not see it."""

    def __init__(self, schema: str, run: Rule, fake: Rule) -> None:
        self.name, self.run = schema.partition("(")[0], run
        setattr(RUNS, self.name, run)
        LIBRARY.define(schema, tags=TAGS)
        for key in ("CPU", "CUDA"):
            LIBRARY.impl(self.name, run, key)
        torch.library.register_fake(f"lapidist::{self.name}", partial(self.outline, fake), lib=LIBRARY)
        self.op = getattr(torch.ops.lapidist, self.name).default
        self.parameters = [argument.name for argument in self.op._schema.arguments]
        self.recorded: Any = None  # for autograd alone

    def __call__(self, *args: Any) -> Any:
        if is_unobserved() and all(map(is_plain, args)):  # as is_direct: a call less
            if not is_recorded(args):
                return self.run(*args)
            if self.recorded is not None:
                return self.recorded(*args)
        if not torch.compiler.is_compiling():
            sharding.register()
            for name, value in zip(self.parameters, args, strict=False):
                if isinstance(value, torch.Tensor) and value.is_nested:  # torch would name the operator alone
                    require_dense(value, name)
        return self.op(*args)

    @staticmethod
    def outline(fake: Rule, *args: Any, **options: Any) -> Any:
        """The result without numbers. Compilers call this first, so it registers inductor's lowering."""
        if "torch._inductor.compile_fx" in sys.modules:  # importing it takes a second
            importlib.import_module("lapidist.torch.lowering")
        return fake(*args, **options)

    def cast(self) -> None:
        """Let torch.ops.lapidist cast its operands under torch.autocast."""

        def in_its_type(*args: Any, **options: Any) -> Any:
            cast = in_autocast(*args)  # before the guard, under which autocast is off
            with torch._C._ExcludeDispatchKeyGuard(WHERE):
                return self.op(*cast, **options)

        for key in ("AutocastCPU", "AutocastCUDA"):
            LIBRARY.impl(self.name, in_its_type, key)

    def record(self, keep: Rule, back: Rule, forth: Rule | None = None) -> None:
        """Let autograd record the operator: `keep` saves what gradients (`back`) need."""

        def forward(ctx: Any, *args: Any) -> Any:
            output = self.run(*args)
            keep(ctx, args, output)
            return output

        LIBRARY.impl(self.name, recorder(self.op, self.run, keep, back, forth), "Autograd", with_keyset=True)
        # torch.autograd.Function would look for transforms once more, which takes 8 us
        function = function_of(torch.autograd.function._SingleLevelFunction, forward, back)

        def recorded(*args: Any) -> Any:
            return function.apply(*[unwrapped(x) if isinstance(x, torch.Tensor) else x for x in args])

        self.recorded = recorded

    def transform(self, keep: Rule, back: Rule, forth: Rule, mapped: Rule) -> None:
        """Give the operator gradients, tangents (`forth`) and vmap (`mapped`, which is passed operators)."""
        self.record(keep, back, forth)
        self.cast()
        self.map(partial(mapped, torch.ops.lapidist))

    def map(self, mapped: Rule) -> None:
        torch.library.register_vmap(f"lapidist::{self.name}", mapped, lib=LIBRARY)


# ---- the functions that run; inductor's code passes memory for the result, `out` ----


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


def repeated_matmul(a: Any, b: Any) -> Any:
    """matmul on the fast path of a repeated call; None if the call must be checked in full."""
    repeat = MATRIX_PATHS.get(key_of_product(a, b, None, USUAL_TYPES))
    return None if repeat is None else repeat(a, b, None, None, AS_IT_IS, None)


# alpha, beta, trans_a, trans_b
PRODUCT, SUM = (api.DEFAULT_ALPHA, api.DEFAULT_BETA, False, True), (api.DEFAULT_ALPHA, 1.0, False, True)


def repeated_linear(input: Any, weight: Any, bias: Any, out: Any = None) -> Any:
    numbers: tuple[Any, Any, bool, bool] = PRODUCT if bias is None else SUM
    return api.gemm_fast_path(input, weight, bias, out, *numbers, USUAL_TYPES, None)


def repeated_product(a: Any, b: Any, trans_a: bool, trans_b: bool) -> Any:
    return api.gemm_fast_path(
        a, b, None, None, api.DEFAULT_ALPHA, api.DEFAULT_BETA, trans_a, trans_b, USUAL_TYPES, None
    )


def run_linear(
    input: Any,
    weight: Any,
    bias: Any = None,
    out_dtype: Any = None,
    precision: Any = IEEE,
    *,
    out: Any = None,
) -> Any:
    """input @ weight.T + bias, in one launch, with these names in errors."""
    if out_dtype is None and precision.__class__ is str and precision == IEEE and not OPEN_BLOCKS:
        product = repeated_linear(input, weight, bias, out)
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
    invariant: bool | None = None,
    *,
    out: Any = None,
) -> Any:
    how: dict[str, Any] = {"scale_a": scale_a, "scale_b": scale_b, "promote": promote, "out_dtype": out_dtype}
    return api.gemm(a, b, c, beta=0.0 if c is None else 1.0, out=out, **how, invariant=invariant)


def run_grouped(
    a: Any,
    b: Any,
    offsets: Any,
    trans_a: bool = False,
    trans_b: bool = False,
    out_dtype: Any = None,
    precision: Any = IEEE,
    expected_rows: int | None = None,
    *,
    out: Any = None,
) -> Any:
    how: dict[str, Any] = {"trans_a": trans_a, "trans_b": trans_b, "expected_rows": expected_rows}
    return grouped_calls.grouped(a, b, offsets, **how, out=out, out_dtype=out_dtype, precision=precision)


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


def run_grouped_update(
    out: Any,
    a: Any,
    b: Any,
    offsets: Any,
    trans_a: bool = False,
    trans_b: bool = False,
    precision: Any = IEEE,
    expected_rows: int | None = None,
) -> None:
    """out = op(a) op(b) + out of groups, in out's type."""
    how: dict[str, Any] = {"trans_a": trans_a, "trans_b": trans_b, "expected_rows": expected_rows}
    types: dict[str, Any] = {"out_dtype": out.dtype, "precision": precision}
    grouped_calls.grouped(a, b, offsets, out, beta=1.0, **how, out=out, **types)


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
    " bool? promote=None, bool? invariant=None) -> Tensor",
    run_scaled,
    fake_tensors.of_scaled,
)
grouped = Operator(
    "grouped(Tensor a, Tensor b, Tensor offsets, bool trans_a=False, bool trans_b=False,"
    f" {TYPES}, int? expected_rows=None) -> Tensor",
    run_grouped,
    fake_tensors.of_grouped,
)
update = Operator(
    f'gemm_(Tensor(a!) out, Tensor a, Tensor b, {NUMBERS.format(1.0)}, str precision="ieee") -> ()',
    run_update,
    fake_tensors.of_update,
)
grouped_update = Operator(
    "grouped_(Tensor(a!) out, Tensor a, Tensor b, Tensor offsets, bool trans_a=False, bool trans_b=False,"
    ' str precision="ieee", int? expected_rows=None) -> ()',
    run_grouped_update,
    fake_tensors.of_grouped_update,
)
