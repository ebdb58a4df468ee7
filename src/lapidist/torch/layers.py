"""torch.nn.Linear by lapidist, and models whose linear layers are exchanged for it and back."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from lapidist.errors import ArgumentError
from lapidist.torch.autocast import in_autocast
from lapidist.torch.eight_bits import Factors, Straight, fits, of_weight, product, require_kind
from lapidist.torch.public_calls import linear

STOCK = torch.nn.Linear


class Linear(torch.nn.Linear):  # type: ignore[misc]
    """torch.nn.Linear, multiplied by lapidist: the same parameters and state_dict.

    A weight that has a tensor `main_grad` gets its gradient added there, and no `grad`."""

    def forward(self, input: Any) -> Any:
        own = self._parameters  # as attributes of a Module they take 0.4 us each
        if "weight" in own and "bias" in own:
            weight, bias = own["weight"], own["bias"]
        else:  # made anew in each call, as torch.nn.utils.parametrize has them
            weight, bias = self.weight, self.bias
        return linear(input, weight, bias, into=getattr(weight, "main_grad", None))


class EightBitLinear(Linear):
    """Linear of 8-bit floats. What is no longer trained is quantised once, what is trained in each call."""

    eight_bits: tuple[Any, Factors]  # the type, and how factors lie

    def forward(self, input: Any) -> Any:
        (dtype, kind), weight = self.eight_bits, self.weight
        input, meant, bias = in_autocast(input, weight, self.bias)
        recorded = torch.is_grad_enabled() and (input.requires_grad or weight.requires_grad)
        if not recorded:
            return product(input, self.quantised_weight(), bias, kind)
        trained = of_weight(weight, dtype, kind) if weight.requires_grad else self.quantised_weight()
        return Straight.apply(input, meant, bias, *trained, kind)

    def _apply(self, *given: Any, **more: Any) -> Any:
        moved = super()._apply(*given, **more)
        self.quantised_weight()
        return moved

    def _load_from_state_dict(self, *given: Any, **more: Any) -> None:
        super()._load_from_state_dict(*given, **more)
        self.quantised_weight()

    def __getstate__(self) -> dict[str, Any]:
        """torch does not pickle 8-bit floats; they are made again."""
        return {name: value for name, value in self.__dict__.items() if name != "_quantised"}

    def quantised_weight(self) -> Any:
        """As it was quantised last, unless the weight has been written to, or moved, since. Graphs that were
        compiled read what they read when they were: it is renewed where it lies.
        """
        weight = self.weight
        if not isinstance(
            weight, torch.nn.Parameter
        ):  # made anew in each call, where the last one may have been
            return of_weight(weight, *self.eight_bits)
        known = self.__dict__.get("_quantised")
        if known is not None and (torch.compiler.is_compiling() or known[0] == state_of(weight)):
            return known[1]
        made = of_weight(weight, *self.eight_bits)
        if torch.compiler.is_compiling():
            return made
        if known is not None and fits(known[1], made):
            made = known[1].renewed(made)
        self.__dict__["_quantised"] = state_of(weight), made
        return made


def state_of(weight: Any) -> tuple[Any, ...]:
    return weight.data_ptr(), None if weight.is_inference() else weight._version, weight.device


def derived_from_stock(kind: type) -> type:
    """The class that torch.nn.utils.parametrize made for a layer, as it would have made it of torch's."""
    own = {name: value for name, value in vars(kind).items() if name not in ("__dict__", "__weakref__")}
    return type(kind.__name__, (STOCK,), own)


class Swapped:
    """Layers that were exchanged. `undo()`, or leaving a `with` block, puts them back."""

    def __init__(self, layers: list[Any], eight_bits: tuple[Any, Factors] | None = None) -> None:
        self._layers = [weakref.ref(layer) for layer in layers]
        for layer in layers:
            layer.__class__ = Linear if eight_bits is None else EightBitLinear
            if eight_bits is not None:
                layer.eight_bits = eight_bits
                layer.quantised_weight()

    def __len__(self) -> int:
        return len(self._layers)

    def __repr__(self) -> str:
        return f"<lapidist.torch.Swapped: {len(self)} layers>"

    def undo(self) -> None:
        for layer in (reference() for reference in self._layers):
            if type(layer) in (Linear, EightBitLinear):
                layer.__class__ = STOCK
            elif type(layer).__bases__ in ((Linear,), (EightBitLinear,)):
                layer.__class__ = derived_from_stock(type(layer))
            else:
                continue
            for name in ("eight_bits", "_quantised"):
                layer.__dict__.pop(name, None)
        self._layers.clear()

    def __enter__(self) -> Swapped:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()


def swap(
    model: Any, where: Callable[[str, Any], bool] | None = None, dtype: Any = None, factors: Factors = "rows"
) -> Swapped:
    """Let lapidist multiply in the torch.nn.Linear layers of a model: all, or those of which `where(name,
    layer)` is true. Returns a `Swapped`: its `undo()`, or the end of its `with` block, puts torch's back.

    A layer stays the object that it is, with its weights and hooks; classes derived from torch.nn.Linear are
    left alone. `dtype`: torch.float8_e4m3fn, say. Weights are rounded to it once, activations on their way
    in, with factors for "rows" or "blocks" of 128. Gradients are those of what was not rounded."""
    if not isinstance(model, torch.nn.Module):
        raise ArgumentError(
            f"model: must be a torch.nn.Module; got {type(model).__name__}. Pass the model itself"
        )
    if where is not None and not callable(where):
        raise ArgumentError(
            f"where: must be a function of a layer's name and the layer; got {type(where).__name__}. Write"
            ' where=lambda name, layer: name != "head", say'
        )
    if dtype is not None:
        require_kind(dtype, factors)
    found = [(name, layer) for name, layer in model.named_modules() if type(layer) is STOCK]
    chosen = [layer for name, layer in found if where is None or where(name, layer)]
    return Swapped(chosen, None if dtype is None else (dtype, factors))
