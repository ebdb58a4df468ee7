"""Results beside D are arrays of the caller's framework."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import lapidist

pytestmark = pytest.mark.frameworks


@lapidist.epilogue
def relu_and_mask(acc: Any) -> Any:
    return lapidist.relu(acc), lapidist.Output(acc > 0, "bool"), lapidist.Output(acc, "bfloat16")


def test_of_torch() -> None:
    torch = importlib.import_module("torch")
    a, b = torch.tensor([[1.0, -2.0]]), torch.eye(2)
    d, mask, sums = lapidist.matmul(a, b, epilogue=relu_and_mask)
    assert (d.tolist(), mask.tolist(), sums.tolist()) == ([[1.0, 0.0]], [[True, False]], [[1.0, -2.0]])
    assert (mask.dtype, sums.dtype) == (torch.bool, torch.bfloat16)
    before = mask._version
    lapidist.matmul(-a, b, (d, mask, sums), epilogue=relu_and_mask)
    assert mask.tolist() == [[False, True]]
    assert mask._version > before
    with pytest.raises(lapidist.ArgumentError, match=r"out\[1\]: requires a gradient"):
        lapidist.matmul(a, b, (d, a.clone().requires_grad_(), sums), epilogue=lapidist.epilogue(three))


def three(acc: Any) -> Any:
    return acc, acc, acc


def test_of_jax() -> None:
    jax = importlib.import_module("jax")
    a = jax.numpy.array([[1.0, -2.0]])
    d, mask, sums = lapidist.matmul(a, jax.numpy.eye(2), epilogue=relu_and_mask)
    assert all(isinstance(each, jax.Array) for each in (d, mask, sums))
    assert (mask.tolist(), sums.dtype.name) == ([[True, False]], "bfloat16")
    with pytest.raises(lapidist.ArgumentError, match=r"out\[1\]: JAX arrays cannot be written to"):
        lapidist.matmul(a, jax.numpy.eye(2), (np.empty((1, 2), "f4"), mask, None), epilogue=relu_and_mask)
