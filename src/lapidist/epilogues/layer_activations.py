"""Epilogues of layers: an activation of the sums, a bias before it, a residual behind it."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from lapidist.epilogues.expressions import Row, Tile
from lapidist.epilogues.functions import gelu, relu, silu
from lapidist.epilogues.tracing import epilogue
from lapidist.errors import ArgumentError


def gelu_tanh(x: Any) -> Any:
    return gelu(x, approximate="tanh")


def endings(function: Any, keeps: bool) -> dict[tuple[str, ...], Any]:
    """Epilogues by the names of their operands. `keeps`: the activation's argument is a result, too."""

    def results(hidden: Any, before: Any) -> Any:
        return (hidden, before) if keeps else hidden

    @epilogue
    def activated(acc: Any) -> Any:
        return results(function(acc), acc)

    @epilogue
    def of_bias(acc: Any, bias: Row) -> Any:
        before = acc + bias
        return results(function(before), before)

    @epilogue
    def added(acc: Any, residual: Tile) -> Any:
        return results(function(acc) + residual, acc)

    @epilogue
    def of_bias_added(acc: Any, bias: Row, residual: Tile) -> Any:
        before = acc + bias
        return results(function(before) + residual, before)

    return {
        tuple(parameter.name for parameter in ending.function.parameters): ending
        for ending in (activated, of_bias, added, of_bias_added)
    }


ACTIVATIONS = {function.__name__: function for function in (relu, gelu, gelu_tanh, silu)}
ENDINGS = {
    (name, keeps): endings(function, keeps)
    for name, function in ACTIVATIONS.items()
    for keeps in (False, True)
}


# names of torch, transformers and JAX
ALIASES = {
    "swish": "silu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
}


def activation_named(value: Any) -> str:
    """The name of an activation: its own, a function's, or that of a layer's class; in small letters."""
    name = value if isinstance(value, str) else getattr(value, "__name__", type(value).__name__)
    return ALIASES.get(name.lower(), name.lower())


def require_activation(activation: Any) -> None:
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        names = ", ".join(map(repr, ACTIVATIONS))
        got = repr(activation) if isinstance(activation, str) else f"a {type(activation).__name__}"
        raise ArgumentError(
            f"activation: must be {names} or None; got {got}. {activation_instead(activation)}"
        )


# torch's functions whose names are near to those of others
FURTHER = frozenset(
    [
        "relu6",
        "prelu",
        "elu",
        "selu",
        "celu",
        "glu",
        "geglu",
        "swiglu",
        "reglu",
        "hardswish",
        "sigmoid",
        "tanh",
    ]
)


def activation_instead(value: Any) -> str:
    name = activation_named(value)
    if name in FURTHER:
        return "Write it as an epilogue, lapidist.epilogue(f), or apply it to the result"
    if close := get_close_matches(name, ACTIVATIONS, 1):
        return f'Write activation="{close[0]}"'
    return "Write others as an epilogue, lapidist.epilogue(f), or apply them to the result"


def require_epilogue_alone(**arguments: Any) -> None:
    """Refuse an activation or a residual of a layer that has an epilogue."""
    for name, value in arguments.items():
        if value is not None:
            got = repr(value) if isinstance(value, str) else f"a {type(value).__name__}"
            raise ArgumentError(f"{name}: must be None with an epilogue; got {got}. Apply it in the function")
