"""What all tests on a GPU need."""

from __future__ import annotations

import sys
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def captures_beside_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process that has used JAX, graphs are captured in the mode that other threads do not disturb.

    torch alone shows it too: JAX's threads break every capture of torch's own mode that takes a second. One
    that compiles does."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and "jax" in sys.modules:
        how = torch.cuda.graph.__init__
        modes = tuple("thread_local" if value == "global" else value for value in how.__defaults__)
        monkeypatch.setattr(how, "__defaults__", modes)
