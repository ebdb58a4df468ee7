"""Epilogues change a sum before it is stored: Python functions, traced once, run by NumPy and by every kernel
family. Ready-made ones are names of this package, `epilogues.bias_gelu` say."""

from __future__ import annotations

from typing import Any

from lapidist.errors import explained


def __getattr__(name: str) -> Any:
    if not name.startswith("_") and name in _ready():
        return _ready()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_ready())


@explained
def _ready() -> dict[str, Any]:
    from lapidist.epilogues.ready_made import READY

    return READY
