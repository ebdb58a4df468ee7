"""Layers whose weights are packed in few bits, as buffers: torch.nn.Linear, and the weights of experts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

import torch

from lapidist.errors import ArgumentError, ShapeError, shown
from lapidist.quantised.packed_weight import ARRAYS, PackedWeight, in_rows, load, of_layout, unpack
from lapidist.quantised.packing import pack
from lapidist.quantised.product import require_weight
from lapidist.torch.few_bits import linear, require_tensor


def no_script_has(layer: Any) -> ArgumentError:
    """The refusal of a layer with options, of which torch.jit.script sees nothing."""
    rule = "must be given layers of swap(model) without options"
    return ArgumentError(f"torch.jit.script: {rule}; got {layer}. Use torch.export, or undo() the swap")


def require_bias(bias: Any, weight: PackedWeight) -> None:
    if tuple(bias.shape) != weight.shape[1:]:
        raise ShapeError(
            f"bias: must have {weight.shape[1]} elements, as the weight has columns; got shape"
            f" {tuple(bias.shape)}. Pass that of the layer"
        )


def copied(weight: PackedWeight, device: Any) -> PackedWeight:
    """The weight on a device, in memory of its own."""
    arrays = weight.arrays.items()
    return replace(
        weight, **{name: torch.empty_like(array, device=device).copy_(array) for name, array in arrays}
    )


class PackedModule(torch.nn.Module):  # type: ignore[misc]
    """A module whose buffers are what PackedWeight.state_dict has: layout, codes, scales, zeros and order."""

    codes: Any
    scales: Any
    zeros: Any
    order: Any
    numbers: list[int]  # the weight's layout

    def hold(self, weight: PackedWeight) -> None:
        """Make this the weight."""
        state = weight.state_dict()
        for name in ("layout", *ARRAYS):
            self.register_buffer(name, state.get(name))
        self.numbers = weight.layout

    @property
    def packed_weight(self) -> PackedWeight:
        return of_layout(self.numbers, *(getattr(self, name) for name in ARRAYS))

    def __prepare_scriptable__(self) -> NoReturn:
        raise no_script_has(self)

    def _apply(self, *args: Any, **options: Any) -> Any:
        """Arrays keep their types where the model's is changed: kernels read those that the layout names."""
        before = {name: getattr(self, name) for name in ARRAYS}
        super()._apply(*args, **options)
        for name, array in before.items():
            if array is not None:
                now = getattr(self, name)
                setattr(self, name, in_rows(now if now.dtype == array.dtype else array.to(now.device)))
        return self

    def _load_from_state_dict(
        self, state: Mapping[str, Any], prefix: str, metadata: Mapping[str, Any], *rest: Any
    ) -> None:
        """A state may have another format or other groups: its arrays take the place of these. They are
        copies, as torch has it, unless the caller assigns them.
        """
        arrays = {name: state[prefix + name] for name in ("layout", *ARRAYS) if prefix + name in state}
        if len(arrays) >= 3:
            weight = load(arrays)
            self.require_shape(weight.shape)
            if not metadata.get("assign_to_params_buffers", False):
                weight = copied(weight, self.codes.device)
            self.hold(weight)
            state = {**state, **{prefix + name: getattr(self, name) for name in arrays}}
        super()._load_from_state_dict(state, prefix, metadata, *rest)

    def require_shape(self, shape: tuple[int, ...]) -> None:
        expected = of_layout(self.numbers, self.codes, self.scales).shape
        if shape != expected:
            raise ShapeError(
                f"state: must have a weight of {expected}, as the layer has; got one of {shape}. Pass that of"
                " the model"
            )


class PackedLinear(PackedModule, torch.nn.Linear):  # type: ignore[misc]
    """x @ weight + bias of a PackedWeight (in_features, out_features), which is no parameter.

    Its state_dict has `bias` and what PackedWeight.state_dict has: layout, codes, scales, zeros and order.
    """

    stock_dtype: Any  # of the weight that restore_weight makes

    def __init__(self, weight: PackedWeight, bias: Any = None) -> None:
        require_weight(weight)
        if bias is not None:
            require_tensor("bias", bias)
            require_bias(bias, weight)
        torch.nn.Module.__init__(self)
        self.in_features, self.out_features = weight.shape
        self.register_parameter(
            "bias", None if bias is None else torch.nn.Parameter(bias, bias.requires_grad)
        )
        self.hold(weight)
        self.stock_dtype = torch.bfloat16 if bias is None else bias.dtype

    @classmethod
    def packed(cls, layer: torch.nn.Linear, format: str, **how: Any) -> PackedLinear:
        """A layer of another's quantised weight and of its bias; `how`: lapidist.quantised.pack's."""
        if not isinstance(layer, torch.nn.Linear):
            raise ArgumentError(
                f"layer: must be a torch.nn.Linear; got {shown(layer)}. Pack a weight with"
                " lapidist.quantised.pack, and pass it to PackedLinear"
            )
        return cls(pack(layer.weight.detach().T, format, **how), layer.bias)

    def hold(self, weight: PackedWeight) -> None:
        self.register_parameter("weight", None)
        super().hold(weight)

    @property
    def _distribute_module_applied(self) -> bool:
        """What torch's distribute_module reads before it changes a layer. Who looks at all attributes of a
        layer reads it, too."""
        if sys._getframe(1).f_code.co_name != "distribute_module":
            return "_distribute_module_applied" in self.__dict__
        raise ArgumentError(
            "parallelize_module: torch's styles split plain weights; got a PackedLinear. Swap a model after"
            " parallelize_module, or name ColumnParallel or RowParallel of lapidist.torch in it"
        )

    def forward(self, input: Any) -> Any:
        return linear(input, self.packed_weight, self.bias)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, weight={self.packed_weight!r}"


def take_weight(layer: torch.nn.Linear, weight: PackedWeight) -> None:
    """Make a torch.nn.Linear a PackedLinear, in place: its hooks stay, its weight goes."""
    dtype = layer.weight.dtype
    layer.__class__ = PackedLinear
    layer.hold(weight)
    layer.stock_dtype = dtype


def restore_weight(layer: Any) -> None:
    """Make a PackedLinear torch's layer again, with the numbers of the packed weight, which is rounded."""
    numbers = unpack(layer.packed_weight).T.to(layer.stock_dtype)
    for name in ("layout", *ARRAYS):
        delattr(layer, name)
    del layer.numbers, layer.stock_dtype
    layer.__class__ = torch.nn.Linear
    layer.weight = torch.nn.Parameter(numbers.contiguous(), requires_grad=False)


class PackedStack(PackedModule):
    """The weights of a layer's experts, in place of the parameter that had them."""

    def __init__(self, weights: PackedWeight) -> None:
        super().__init__()
        self.hold(weights)

    def __len__(self) -> int:
        return len(self.codes)

    def extra_repr(self) -> str:
        return repr(self.packed_weight)
