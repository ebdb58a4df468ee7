"""torch.nn.Linear by lapidist, and models whose linear layers and experts are swapped for it and back."""

from __future__ import annotations

import importlib
import inspect
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch

from lapidist.calls.emulation_rules import require_emulation
from lapidist.calls.keywords import may_take, unexpected
from lapidist.calls.number_rules import require_flag
from lapidist.calls.prepared_weights import PreparedWeight
from lapidist.dtypes import IEEE, Precision
from lapidist.errors import ArgumentError, ShapeError, shown
from lapidist.frameworks.torch_autocast import in_autocast
from lapidist.quantised.number_formats import format_named
from lapidist.quantised.packed_weight import PackedWeight
from lapidist.torch.eight_bits import Factors, Straight, fits, of_weight, product, require_kind
from lapidist.torch.experts import Experts, are_experts, swapped_class
from lapidist.torch.packed_experts import PackedExpertsModule, give_back, packed_weights, take
from lapidist.torch.packed_layer import PackedLinear, no_script_has
from lapidist.torch.public_calls import linear

STOCK = torch.nn.Linear
USE_THE_MODEL = "Write swap(model) alone, then use model"
WHERE = "Write where=, a function: where=lambda name, layer: name != 'lm_head', say"
PACKED = 'Write weights="int4", "mxfp4", "nvfp4", "int8" or "e4m3"'
WAYS_OUT = {
    **dict.fromkeys(("exclude", "skip", "ignore", "include", "filterfn", "modulestonotconvert"), WHERE),
    **dict.fromkeys(
        ("bits", "format", "quantise", "quantize", "quantization", "scheme", "quantizationconfig"), PACKED
    ),
    **dict.fromkeys(("recipe", "fp8"), "Write dtype=torch.float8_e4m3fn, and factors= if need be"),
    "devicemesh": "Write mesh=",
}


class Linear(torch.nn.Linear):  # type: ignore[misc]
    """torch.nn.Linear, multiplied by lapidist: the same parameters and state_dict.

    A weight that has a tensor `main_grad`, or a TokenTree, gets its gradient added there, and no `grad`."""

    invariant: bool | None = None  # whether rows keep their bits; None: as the block around a call says

    def extra_repr(self) -> str:
        """torch's words, and who multiplies."""
        return f"{super().extra_repr()}, by lapidist"

    def __prepare_scriptable__(self) -> Linear:
        """Itself, for torch.jit.script."""
        if type(self).forward is not Linear.forward or self.invariant is not None:
            raise no_script_has(self)
        return self

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if torch.jit.is_scripting():  # it compiles this branch alone
            return torch.ops.lapidist.linear(input, self.weight, self.bias)
        parameters = self._parameters  # attributes of a Module take 0.4 us each
        if "weight" in parameters and "bias" in parameters:
            weight, bias = parameters["weight"], parameters["bias"]
        else:  # torch.nn.utils.parametrize computes them in each call
            weight, bias = self.weight, self.bias
        into = getattr(weight, "main_grad", None)
        return linear(input, weight, bias, into=into, invariant=self.invariant)


class EightBitLinear(Linear):
    """Linear of 8-bit floats. A frozen weight is quantised once, a trained one in each call."""

    eight_bits: tuple[Any, Factors]  # the type, and the parts that share a factor

    def extra_repr(self) -> str:
        dtype, kind = self.eight_bits
        return f"{super().extra_repr()} in {str(dtype).removeprefix('torch.')} with factors of {kind}"

    def forward(self, input: Any) -> Any:
        (dtype, kind), weight = self.eight_bits, self.weight
        input, cast_weight, bias = in_autocast(input, weight, self.bias)
        recorded = torch.is_grad_enabled() and (input.requires_grad or weight.requires_grad)
        if not recorded:
            return product(input, self.quantised_weight(), bias, kind, self.invariant)
        quantised = of_weight(weight, dtype, kind) if weight.requires_grad else self.quantised_weight()
        return Straight.apply(input, cast_weight, bias, *quantised, kind, self.invariant)

    def _apply(self, *args: Any, **options: Any) -> Any:
        layer = super()._apply(*args, **options)
        self.quantised_weight()
        return layer

    def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
        super()._load_from_state_dict(*args, **options)
        self.quantised_weight()

    def __getstate__(self) -> dict[str, Any]:
        """The state without the 8-bit weight, which torch cannot pickle and which is quantised again."""
        return {name: value for name, value in self.__dict__.items() if name != "_quantised"}

    def quantised_weight(self) -> Any:
        """The cached 8-bit weight; quantised again in place when the weight was written to or moved. Compiled
        graphs read the tensors that they were compiled with.
        """
        weight = self.weight
        if not isinstance(weight, torch.nn.Parameter):  # a computed one, maybe at the last one's address
            return of_weight(weight, *self.eight_bits)
        cached = self.__dict__.get("_quantised")
        if cached is not None and (torch.compiler.is_compiling() or cached[0] == state_of(weight)):
            return cached[1]
        quantised = of_weight(weight, *self.eight_bits)
        if torch.compiler.is_compiling():
            return quantised
        if cached is not None and fits(cached[1], quantised):
            quantised = cached[1].renewed(quantised)
        self.__dict__["_quantised"] = state_of(weight), quantised
        return quantised


class EmulatedLinear(Linear):
    """Linear of float32 by an emulated precision. Where no gradient is recorded, the weight's parts stay
    between calls; they are cut anew in place when the weight was written to.
    """

    precision: Precision

    def forward(self, input: Any) -> Any:
        weight, bias = self.weight, self.bias
        recorded = torch.is_grad_enabled() and any(
            tensor is not None and tensor.requires_grad for tensor in (input, weight, bias)
        )
        first, second, _ = in_autocast(input, weight, bias)
        plain = first.dtype is second.dtype is torch.float32
        if plain and input.ndim > 1 and not recorded and not torch.compiler.is_compiling():
            return self.prepared_weight().matmul(input, bias)
        into, precision = getattr(weight, "main_grad", None), self.precision if plain else IEEE
        return linear(input, weight, bias, into=into, invariant=self.invariant, precision=precision)

    def prepared_weight(self) -> Any:
        weight = self.weight
        cached = self.__dict__.get("_prepared")
        if cached is not None and cached[0] == (weight.data_ptr(), weight.device):
            return cached[1]
        prepared = PreparedWeight(weight.detach(), self.precision, trans_b=True)
        if isinstance(weight, torch.nn.Parameter):  # a computed one may come to lie at the last one's address
            self.__dict__["_prepared"] = (weight.data_ptr(), weight.device), prepared
        return prepared

    def __getstate__(self) -> dict[str, Any]:
        """The state without the parts, which are cut again."""
        return {name: value for name, value in self.__dict__.items() if name != "_prepared"}


def state_of(weight: Any) -> tuple[Any, ...]:
    """A value that changes when the weight is written to or moved."""
    return weight.data_ptr(), None if weight.is_inference() else weight._version, weight.device


OURS = Linear, EightBitLinear, EmulatedLinear


def derived_from_stock(kind: type) -> type:
    """The class that torch.nn.utils.parametrize made for a layer, derived from torch's Linear instead."""
    members = {name: value for name, value in vars(kind).items() if name not in ("__dict__", "__weakref__")}
    return type(kind.__name__, (STOCK,), members)


class Swapped:
    """Swapped layers. `undo()`, or leaving a `with` block, restores them."""

    def __init__(
        self,
        layers: list[Any],
        eight_bits: tuple[Any, Factors] | None = None,
        invariant: bool | None = None,
        precision: Precision | None = None,
        packed: list[list[PackedWeight]] | None = None,
    ) -> None:
        if packed is not None:
            for layer, weights in zip(layers, packed, strict=True):
                take(layer, weights)
            self._layers = [weakref.ref(layer) for layer in layers]
            return
        stock = EightBitLinear if eight_bits else Linear if precision is None else EmulatedLinear
        self._layers = [weakref.ref(layer) for layer in layers]
        for layer in layers:
            if type(layer) is not STOCK:
                kind: Any = type(layer)
                layer.__class__ = swapped_class(kind, Experts)
            else:
                layer.__class__ = stock
            if invariant is not None:
                layer.invariant = invariant
            if precision is not None and isinstance(layer, EmulatedLinear):
                layer.precision = precision
            if eight_bits is not None and isinstance(layer, EightBitLinear):
                layer.eight_bits = eight_bits
                layer.quantised_weight()

    def __len__(self) -> int:
        return len(self._layers)

    def __repr__(self) -> str:
        return f"<lapidist.torch.Swapped: {len(self)} layers>"

    def undo(self) -> None:
        for layer in (reference() for reference in self._layers):
            if type(layer) is PackedLinear or isinstance(layer, PackedExpertsModule):
                give_back(layer)
            elif type(layer) in OURS:
                layer.__class__ = STOCK
            elif isinstance(layer, Experts):
                layer.__class__ = layer.stock_class
            elif type(layer).__bases__ in [(kind,) for kind in OURS]:
                layer.__class__ = derived_from_stock(type(layer))
            else:
                continue
            for name in ("eight_bits", "_quantised", "precision", "_prepared", "invariant"):
                layer.__dict__.pop(name, None)
        self._layers.clear()

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise ArgumentError(f"model: is changed in place; got a call of what swap returns. {USE_THE_MODEL}")

    def __getattr__(self, name: str) -> NoReturn:
        words = f"'Swapped' object has no attribute {name!r}"
        raise AttributeError(f"{words}. {USE_THE_MODEL}" if hasattr(STOCK, name) else words)

    def __enter__(self) -> Swapped:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()


def require_none(beside: str, **others: Any) -> None:
    """Refuse what does not go with a choice."""
    for name, value in others.items():
        if value is not None:
            raise ArgumentError(
                f"{name}: must be None with {beside}; got {shown(value)}. Leave one of them out"
            )


def require_mesh(mesh: Any, **how: Any) -> None:
    """Refuse what says nothing without a mesh."""
    for name, value in how.items():
        if mesh is None and value is not None:
            raise ArgumentError(f"{name}: must be None without a mesh; got {shown(value)}. Pass mesh=, too")


def split_over_mesh(model: Any, *how: Any) -> list[Any]:
    """Importing torch's DTensor takes half a second."""
    return importlib.import_module("lapidist.torch.parallel_layers").split_layers(model, *how)


def require_model(model: Any, where: Any, unknown: Mapping[str, Any]) -> None:
    """The rules of a model to be swapped; `unknown`: keywords that swap does not take."""
    if unknown:
        raise unexpected(swap, unknown, WAYS_OUT)
    if not isinstance(model, torch.nn.Module):
        raise ArgumentError(
            f"model: must be a torch.nn.Module; got {type(model).__name__}. Pass the model itself"
        )
    if where is not None and not may_take(2, where):
        got = type(where).__name__ + (f"{inspect.signature(where)}" if callable(where) else "")
        raise ArgumentError(
            f"where: must be a function of a layer's name and the layer; got {got}. Write"
            ' where=lambda name, layer: name != "head", say; a format is weights="int4", a type dtype='
        )


def chosen(model: Any, where: Callable[[str, Any], bool] | None, biased: bool = False) -> list[Any]:
    return [
        layer
        for name, layer in model.named_modules()
        if (type(layer) is STOCK or are_experts(layer, biased)) and (where is None or where(name, layer))
    ]


def packed_by_name(model: Any, layer: Any, weights: str, group: int | None) -> list[PackedWeight]:
    """A layer's weights, packed; refused with the layer's name."""
    try:
        return packed_weights(layer, weights, group)
    except (ArgumentError, ShapeError) as error:
        name = next(name for name, each in model.named_modules() if each is layer)
        where = f"the layer {name!r}" if name else "the model itself, which is a layer"
        raise type(error)(f"{error}. It is that of {where}") from error


def with_packed_weights(
    model: Any,
    where: Callable[[str, Any], bool] | None,
    weights: str | None,
    group: int | None,
    over: tuple[Any, Mapping[str, str] | None, int | None],
    others: Mapping[str, Any],
) -> Swapped:
    """All weights are packed before a layer changes. `over`: the mesh, plan and sequence_dim of swap;
    `others`: those of its arguments that must be None.
    """
    if weights is None:
        raise ArgumentError(f"group: is for weights of few bits; got {shown(group)}. Pass weights=, too")
    require_none(f"weights={weights!r}, which says how layers multiply", **others)
    (mesh, plan, sequence_dim), layers = over, chosen(model, where, biased=True)
    format_named(weights, "weights")
    packed = {layer: packed_by_name(model, layer, weights, group) for layer in layers}
    if mesh is None:
        return Swapped(layers, packed=list(packed.values()))
    parallel = importlib.import_module("lapidist.torch.parallel_layers")
    pairs = parallel.planned(model, mesh, plan, where, packed)
    swapped = Swapped(layers, packed=list(packed.values()))
    parallel.split_pairs(pairs, mesh, sequence_dim)
    return swapped


def swap(
    model: Any,
    where: Callable[[str, Any], bool] | None = None,
    dtype: Any = None,
    factors: Factors = "rows",
    invariant: bool | None = None,
    mesh: Any = None,
    plan: Mapping[str, str] | None = None,
    sequence_dim: int | None = None,
    precision: Precision | None = None,
    weights: str | None = None,
    group: int | None = None,
    **unknown: NoReturn,
) -> Swapped:
    """Let lapidist multiply in the torch.nn.Linear layers of a model, and in experts as transformers 5 has
    them: all, or those of which `where(name, layer)` is true. Returns a `Swapped`: its `undo()`, or the end
    of its `with` block, restores torch's.

    A layer stays the same object, with its weights and hooks; classes derived from torch.nn.Linear do not
    change. `dtype`: torch.float8_e4m3fn, say. Weights are rounded to it once, activations in each call, with
    factors for "rows" or "blocks" of 128. Gradients are those of a product that rounds nothing. Experts keep
    their own type.

    `invariant`: whether a row of a layer's result, and of its input's gradient, has the same bits whatever
    other rows there are.

    `precision`: "emulated", "emulated_any_range" or an Accuracy for layers of float32, whose weights stay cut
    between calls without gradients. Experts multiply as ever.

    `weights`: "int4", "mxfp4", "nvfp4", "int8" or "e4m3": layers and experts get packed weights, with a
    factor for each `group` (32, 64, 128) of k or for a column; their own are freed. `undo()` leaves the
    numbers of the packed weights.

    `mesh`: a mesh of one dimension over whose ranks layers are split first, and stay after `undo()`. `plan`
    says how: patterns of names, each with "columns" (of the result) or "rows" (of the sum). Models of
    transformers have one. With `dtype`, each rank rounds its own part, which stays in 8 bits, too. With
    `weights`, parts are whole tiles of 64 columns, or whole groups of k.
    `sequence_dim`: along which dimension what lies between these layers is split."""
    require_model(model, where, unknown)
    if dtype is not None:
        require_kind(dtype, factors)
    if invariant is not None:
        require_flag("invariant", invariant)
    if precision is not None:
        require_emulation(precision)
        order = f'precision="{precision}", which multiplies float32 in an order that all rows decide'
        require_none(order, dtype=dtype, mesh=mesh, invariant=invariant or None)
    require_mesh(mesh, plan=plan, sequence_dim=sequence_dim)
    if weights is not None or group is not None:
        others = {"dtype": dtype, "invariant": invariant, "precision": precision}
        swapped = with_packed_weights(model, where, weights, group, (mesh, plan, sequence_dim), others)
    else:
        factored = None if dtype is None else (dtype, factors)
        for layer in () if mesh is None else split_over_mesh(model, mesh, plan, sequence_dim, where):
            layer.invariant = layer.invariant if invariant is None else invariant
            layer.eight_bits = factored or layer.eight_bits
        swapped = Swapped(chosen(model, where), factored, invariant, precision)
    if not len(swapped) and mesh is None:
        warnings.warn(f"model: must have layers to swap; {why_none(model)}", stacklevel=2)
    return swapped


def why_none(model: Any) -> str:
    """Why a model has nothing to swap, and what may be done."""
    layers = [layer for layer in model.modules() if isinstance(layer, STOCK)]
    swapped = [layer for layer in layers if isinstance(layer, (Linear, PackedLinear))]
    derived = sorted({type(layer).__name__ for layer in layers if type(layer) is not STOCK} - {"Linear"})
    if swapped:
        return f"its {len(swapped)} are swapped already. undo() of that Swapped restores torch's"
    if any(type(layer) is STOCK for layer in layers):
        return "where= is true of none of its layers. Print the names of model.named_modules()"
    if derived:
        return (
            f"its linear layers are of classes of their own, {', '.join(derived)}, which stay. Call"
            " lapidist.torch.linear in their forward, or multiply in lapidist.torch.everywhere()"
        )
    return (
        "it has no torch.nn.Linear and no experts as transformers 5 has them. lapidist.torch.everywhere()"
        " takes the products of torch's functions"
    )
