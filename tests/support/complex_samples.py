"""torch's samples of its products (OpInfo), of complex tensors: our functions in the operators' place."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any
from unittest import TestCase

import pytest

Product = Callable[..., Any]


def with_addend(lt: Any) -> Product:
    def product(c: Any, a: Any, b: Any, *, alpha: Any = 1, beta: Any = 1) -> Any:
        return lt.gemm(a, b, c, alpha=alpha, beta=beta)

    return product


def of_vectors(lt: Any) -> Product:
    def product(c: Any, a: Any, b: Any, *, alpha: Any = 1, beta: Any = 1) -> Any:
        how = {"alpha": alpha, "beta": beta}
        return lt.gemm(a, b.unsqueeze(1), c.broadcast_to(a.shape[0]).unsqueeze(1), **how).squeeze(1)

    return product


def inner(lt: Any) -> Product:
    """Over the last dimensions; a number multiplies, which is no product of ours."""

    def product(a: Any, b: Any) -> Any:
        if 0 in (a.ndim, b.ndim):
            return a * b
        rows = lt.linear(a, b.reshape(-1, b.shape[-1]) if b.ndim > 1 else b)
        return rows.reshape((*a.shape[:-1], *b.shape[:-1]))

    return product


PRODUCTS: dict[str, Callable[[Any], Product]] = {
    "mv": lambda lt: lt.matmul,
    "dot": lambda lt: lt.matmul,
    "addmv": of_vectors,
    "inner": inner,
    "nn.functional.linear": lambda lt: lt.linear,
    "mm": lambda lt: lt.matmul,
    "bmm": lambda lt: lt.matmul,
    "matmul": lambda lt: lt.matmul,
    "addmm": with_addend,
    "baddbmm": with_addend,
}


def samples_of_torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """torch.testing imports a package of expected texts, which samples do not need."""
    stand_in: Any = ModuleType("expecttest")
    stand_in.TestCase = TestCase
    monkeypatch.setitem(sys.modules, "expecttest", stand_in)
    return importlib.import_module("torch.testing._internal.common_methods_invocations").op_db


def count_of_right_samples(lt: Any, samples: Any, device: str) -> int:
    """How many there are. All have torch's results, and small ones of complex128 the right gradients."""
    import torch

    rows = {row.name: row for row in samples if row.name in PRODUCTS and not row.variant_test_name}
    assert rows.keys() == PRODUCTS.keys()
    count = 0
    for name, row in rows.items():
        ours = PRODUCTS[name](lt)
        for dtype in (torch.complex64, torch.complex128):
            for sample in row.sample_inputs(device, dtype, requires_grad=dtype is torch.complex128):
                operands = sample.input, *sample.args
                right = row(*operands, **sample.kwargs)
                torch.testing.assert_close(ours(*operands, **sample.kwargs), right, rtol=1e-4, atol=1e-3)
                count += 1
                if dtype is torch.complex128 and max(map(torch.numel, operands)) <= 50:
                    assert torch.autograd.gradcheck(
                        lambda *x, ours=ours, sample=sample: ours(*x, **sample.kwargs), operands
                    )
    return count
