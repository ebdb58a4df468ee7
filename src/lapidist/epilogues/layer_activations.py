"""How a layer ends: an activation of its sums, a bias before it, a residual behind it."""

from __future__ import annotations

from typing import Any

from lapidist.epilogues.expressions import Row, Tile
from lapidist.epilogues.functions import gelu, relu, silu
from lapidist.epilogues.tracing import epilogue


def gelu_tanh(x: Any) -> Any:
    return gelu(x, approximate="tanh")


def endings(function: Any, keeps: bool) -> dict[tuple[str, ...], Any]:
    """Epilogues by the names of their operands. `keeps`: what the activation is of is a result, too."""

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

    every = (activated, of_bias, added, of_bias_added)
    return {tuple(each.name for each in made.function.parameters): made for made in every}


ENDINGS = {
    (function.__name__, keeps): endings(function, keeps)
    for function in (relu, gelu, gelu_tanh, silu)
    for keeps in (False, True)
}
