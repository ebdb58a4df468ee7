"""Epilogues change a sum before it is stored: Python functions, traced once, run by NumPy and by every kernel
family. Ready-made ones are names of this package, `epilogues.bias_gelu` say."""

from __future__ import annotations

from typing import Any

from lapidist.errors import explained, no_attribute

OWN = "Write it as a function of lapidist's, under @lapidist.epilogue"
WAYS_OUT = {
    **dict.fromkeys(("leaky_relu", "elu", "softplus", "hardswish", "mish", "selu", "scale"), OWN),
    "swish": "Write lapidist.epilogues.silu, which is the same",
    **dict.fromkeys(("identity", "none", "linear"), "Leave epilogue= out"),
}


def __getattr__(name: str) -> Any:
    if not name.startswith("_") and name in _ready():
        return _ready()[name]
    raise no_attribute(__name__, name, () if name.startswith("_") else _ready(), WAYS_OUT)


def __dir__() -> list[str]:
    return sorted(_ready())


@explained
def _ready() -> dict[str, Any]:
    from lapidist.epilogues.ready_made import READY

    return READY
