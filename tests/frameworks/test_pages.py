"""The pages whose examples need torch or JAX, on a CPU."""

from __future__ import annotations

import importlib
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pages import name_of, pages_that_need, run_blocks

pytestmark = pytest.mark.frameworks


@pytest.mark.parametrize("page", pages_that_need("torch"), ids=name_of)
def test_examples_in_torch_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch: Any = importlib.import_module("torch")
    # the default looks for a C++ compiler
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    assert run_blocks(page, "torch")


@pytest.mark.parametrize("page", pages_that_need("jax"), ids=name_of)
def test_examples_in_jax_run(page: Path) -> None:
    assert run_blocks(page, "jax")
