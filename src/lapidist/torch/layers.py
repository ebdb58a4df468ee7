"""torch.nn.Linear by lapidist, and models whose linear layers are exchanged for it and back."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from lapidist.torch.calls import linear

STOCK = torch.nn.Linear


class Linear(torch.nn.Linear):  # type: ignore[misc]
    """torch.nn.Linear, multiplied by lapidist: the same parameters and state_dict."""

    def forward(self, input: Any) -> Any:
        return linear(input, self.weight, self.bias)


class Swapped:
    """Layers that were exchanged. `undo()`, or leaving a `with` block, puts them back."""

    def __init__(self, layers: list[Any]) -> None:
        self._layers = [weakref.ref(layer) for layer in layers]
        for layer in layers:
            layer.__class__ = Linear

    def __len__(self) -> int:
        return len(self._layers)

    def undo(self) -> None:
        for layer in (reference() for reference in self._layers):
            if type(layer) is Linear:
                layer.__class__ = STOCK
        self._layers.clear()

    def __enter__(self) -> Swapped:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()


def swap(model: Any, where: Callable[[str, Any], bool] | None = None) -> Swapped:
    """Let lapidist multiply in the torch.nn.Linear layers of a model: all, or those of which `where(name,
    layer)` is true.

    A layer stays the object that it is, with its weights and hooks; classes derived from torch.nn.Linear are
    left alone."""
    found = [(name, layer) for name, layer in model.named_modules() if type(layer) is STOCK]
    return Swapped([layer for name, layer in found if where is None or where(name, layer)])
