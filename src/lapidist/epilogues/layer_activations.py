"""Epilogues of layers: an activation of the sums, a bias before it, a residual behind it."""

from __future__ import annotations

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


def require_activation(activation: Any) -> None:
    if activation not in ACTIVATIONS:
        raise ArgumentError(
            f"activation: must be {', '.join(map(repr, ACTIVATIONS))} or None; got {activation!r}. Apply"
            " others to the result"
        )


def require_epilogue_alone(**arguments: Any) -> None:
    """Refuse an activation or a residual of a layer that has an epilogue."""
    for name, value in arguments.items():
        if value is not None:
            got = repr(value) if isinstance(value, str) else f"a {type(value).__name__}"
            raise ArgumentError(f"{name}: must be None with an epilogue; got {got}. Apply it in the function")
