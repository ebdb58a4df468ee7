"""lapidist.torch, where torch is installed. JAX with four devices on the CPU, which it reads when it is first
used. And what stands for a GPU's preparations where calls are repeated."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from beside_cases import Ready
from lapidist.calls.repeat import with_arrays

FOUR = "--xla_force_host_platform_device_count=4"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FOUR}".strip()


@pytest.fixture
def lt(torch: Any) -> Any:
    return importlib.import_module("lapidist.torch")


@pytest.fixture
def precise(jax: Any) -> Iterator[Callable[..., None]]:
    """Gradients, tangents and those of gradients, against differences of float64."""
    check = importlib.import_module("jax.test_util").check_grads
    with jax.enable_x64(True):
        yield lambda call, *arrays: check(call, arrays, order=2)


@pytest.fixture
def ready(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Ready:
    monkeypatch.setattr(with_arrays, "HOST", -1)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda ordinal: 7, raising=False)
    return Ready()
