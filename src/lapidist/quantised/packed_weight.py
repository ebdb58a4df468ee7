"""Packed weights: codes and factors in the order that the kernel reads, and the numbers that they mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lapidist.calls.call import FewBits
from lapidist.dtypes import array_of_tensor, integer_from
from lapidist.errors import ArgumentError, DeviceError, DTypeError, ShapeError, shown
from lapidist.frameworks.arrays import Operand, framework_of, operand_of
from lapidist.quantised.fragment_order import (
    QUARTERS,
    apart,
    factors_in_fragments,
    factors_out_of_fragments,
    in_fragments,
    out_of_fragments,
    tiles_of,
    together,
)
from lapidist.quantised.number_formats import (
    BLOCK,
    GROUP_OF,
    SCALE_TYPES,
    SYMMETRIC_ZERO,
    Format,
    format_named,
    group_sizes,
    scales_as_numbers,
    steps_of_codes,
    values_of,
)

Array = np.ndarray[Any, Any]
ARRAYS = "codes", "scales", "zeros", "order"  # by the names of PackedWeight.state_dict


@dataclass(frozen=True, eq=False, slots=True)
class PackedWeight(FewBits):
    """A weight of shape (k, n) in few bits: the b of `lapidist.matmul(x, b)`.

    `group`: how many steps of k share a factor, k or more for one factor a column. Codes and factors of steps
    behind k are zeros. Arrays are those of one framework.
    `zeros`: zero points; of nvfp4 the factor of the whole weight.
    `order`: where groups are no neighbours along k, which column of x each step multiplies.
    """

    shape: tuple[int, int]
    format: Format
    group: int
    scale_type: str
    codes: Any
    scales: Any
    zeros: Any = None
    order: Any = None

    def __repr__(self) -> str:
        group = "a column" if self.group >= self.shape[-2] else f"{self.group} of k"
        zeros = ", zero points" if self.zeros is not None and self.format.name == "int4" else ""
        order = "" if self.order is None else ", in the order of activations"
        factors = f"{self.scale_type} by {group}"
        return f"{type(self).__name__}({self.format.name}, {self.shape}, {factors}{zeros}{order})"

    @property
    def T(self) -> PackedWeight:
        raise AttributeError(
            "T: packed columns have no transpose. Write lapidist.quantised.pack(weight.T, ...)"
        )

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    @property
    def arrays(self) -> dict[str, Any]:
        """Those that it has, by name."""
        named = {name: getattr(self, name) for name in ARRAYS}
        return {name: array for name, array in named.items() if array is not None}

    @property
    def in_order(self) -> PackedWeight:
        """The same of an x whose columns are in the order of its steps."""
        return self if self.order is None else replace(self, order=None)

    @property
    def layout(self) -> list[int]:
        """What its arrays do not say, as numbers."""
        return [*self.shape[-2:], self.group, SCALE_TYPES.index(self.scale_type), number_of(self.format)]

    def state_dict(self) -> dict[str, Any]:
        """Its arrays by name, for torch.save or safetensors. `load` reads them."""
        return {"layout": placed_like(np.array(self.layout, np.int64), self.codes), **self.arrays}

    def to(self, device: Any) -> PackedWeight:
        """The same weight on another device of torch."""
        if framework_of(self.codes) != "torch":
            raise ArgumentError(
                f"device: is for weights of torch; got {shown(device)} and arrays of"
                f" {framework_of(self.codes)}. Pack a tensor"
            )
        return replace(self, **{name: array.to(device) for name, array in self.arrays.items()})


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class PackedExperts(PackedWeight):
    """Weights of one format, shape (groups, k, n), whose arrays lie one behind another: the b of
    `lapidist.grouped(x, b, offsets)`. Indexed, it gives the PackedWeight of a group.
    """

    shape: tuple[int, int, int]  # type: ignore[assignment]

    def __getitem__(self, number: int) -> PackedWeight:
        count = len(self)
        index = integer_from(-count, number)
        if index is None or index >= count:
            raise ArgumentError(
                f"number: must be that of a group, from {-count} to {count - 1}; got {shown(number)}. Put"
                " several together with lapidist.quantised.stack([weight[0], weight[1]]), say"
            )
        arrays = {name: array[index] for name, array in self.arrays.items()}
        return PackedWeight(self.shape[1:], self.format, self.group, self.scale_type, **arrays)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[PackedWeight]:
        return map(self.__getitem__, range(len(self)))


def stack(weights: Sequence[PackedWeight]) -> PackedExperts:
    """The weights of a layer's experts, which must be alike, as one."""
    argument: Any = weights
    weights = list(argument) if hasattr(argument, "__iter__") else [argument]
    packed = all(type(weight) is PackedWeight for weight in weights) and len(weights) > 0
    if not packed or any(weight.layout != weights[0].layout for weight in weights):
        named = ", ".join(repr(one) if isinstance(one, PackedWeight) else shown(one) for one in weights)
        raise ArgumentError(
            "weights: must be a list of one PackedWeight or more, all of one shape, format and group; got"
            f" {named or 'none'}. Pack them alike"
        )
    if len({weight.zeros is None for weight in weights}) > 1:
        raise ArgumentError(
            "weights: all must have zero points, or none; got some with them. Pack them alike"
        )
    if any(weight.order is not None for weight in weights):
        raise ArgumentError(
            "weights: groups must be neighbours along k in those of experts, whose rows share x; got some in"
            " the order of activations (desc_act). Pack them without it"
        )
    first = weights[0]
    arrays = {name: stacked([getattr(weight, name) for weight in weights]) for name in first.arrays}
    shape = (len(weights), *first.shape)
    return PackedExperts(shape, first.format, first.group, first.scale_type, **arrays)


ORDER_OF_FORMATS = "int4", "mxfp4", "int8", "e4m3", "nvfp4"  # files have a format by its place here


def number_of(format: Format) -> int:
    return ORDER_OF_FORMATS.index(format.name)


def load(state: Mapping[str, Any]) -> PackedWeight:
    """The weight whose `state_dict` this is."""
    if not isinstance(state, Mapping):
        raise ArgumentError(
            f"state: must be a mapping of names to arrays; got {type(state).__name__}. Read a file first,"
            " with torch.load, numpy.load or safetensors"
        )
    missing = sorted({"layout", "codes", "scales"} - set(state))
    if missing:
        raise ArgumentError(
            f"state: must have layout, codes and scales; without {', '.join(missing)}. Pass what"
            " PackedWeight.state_dict() returned"
        )
    layout = layout_from(state["layout"])
    for name in ARRAYS:
        array = state.get(name)
        if not hasattr(array, "dtype") and (array is not None or name in ("codes", "scales")):
            raise DTypeError(
                f"state: {name} must be an array; got {shown(array)}. Pass what PackedWeight.state_dict()"
                " returned"
            )
    weight = of_layout(layout, *map(state.get, ARRAYS))
    frameworks = sorted({framework_of(array) for array in weight.arrays.values()})
    if len(frameworks) > 1:
        raise DTypeError(
            f"state: arrays must be those of one framework; got {' and '.join(frameworks)}. Convert them"
        )
    require_arrays(weight)
    return replace(weight, **{name: in_rows(array) for name, array in weight.arrays.items()})


def in_rows(array: Any) -> Any:
    """The array, copied unless its elements lie one after another, as kernels read them."""
    if framework_of(array) == "torch":
        return array.contiguous()
    return array if array.flags.c_contiguous else array.copy()


def of_layout(
    layout: Sequence[int], codes: Any, scales: Any, zeros: Any = None, order: Any = None
) -> PackedWeight:
    """The weight of a `layout` and its arrays."""
    k, n, group, scale, name = layout
    format = format_named(ORDER_OF_FORMATS[name])
    more = format, group, SCALE_TYPES[scale], codes, scales, zeros, order
    if len(codes.shape) == 4:
        return PackedExperts((codes.shape[0], k, n), *more)
    return PackedWeight((k, n), *more)


def layout_from(value: Any) -> list[int]:
    """The numbers of a state's layout."""
    try:
        layout = [int(number) for number in value]
    except (TypeError, ValueError):
        layout = []
    known = len(layout) == 5 and layout[3] in range(len(SCALE_TYPES))
    known = known and layout[4] in range(len(ORDER_OF_FORMATS))
    if not known or layout[2] not in group_sizes(layout[0], GROUP_OF.get(ORDER_OF_FORMATS[layout[4]])):
        raise ArgumentError(
            f"state: layout must be k, n, group, and the numbers of a type of factors and of a format; got"
            f" {layout or shown(value)}. Pass what PackedWeight.state_dict() returned, of no later version"
        )
    return layout


def require_arrays(weight: PackedWeight) -> None:
    """Kernels read as much as the layout says, in its types."""
    groups, (k, n) = weight.shape[:-2], weight.shape[-2:]
    of_k = -(-k // max(BLOCK, weight.group))
    factors = (*groups, tiles_of(n), of_k, QUARTERS, 8, max(1, BLOCK // weight.group), 2)
    shapes = {
        "codes": (*groups, tiles_of(n), steps_of_codes(k, weight.group) // BLOCK, 128 * weight.format.bits),
        "scales": factors,
        "zeros": (*groups, 1) if weight.format.name == "nvfp4" else factors,
        "order": (*groups, k),
    }
    whole, of_factors = weight.format.name == "nvfp4", weight.scale_type
    types = {
        "codes": "int32",
        "scales": "uint8" if of_factors in ("e8m0", "e4m3") else of_factors,
        "zeros": "float32" if whole else "uint8",
        "order": "int32",
    }
    for name, array in weight.arrays.items():
        dtype, expected = str(array.dtype).removeprefix("torch."), shapes[name]
        if dtype != types[name]:
            raise DTypeError(
                f"state: {name} must be {types[name]}, as its layout says; got {dtype}. Leave packed arrays"
                " out where a state's type is changed"
            )
        if tuple(array.shape) != expected:
            raise ShapeError(
                f"state: {name} must have shape {expected}, as its layout says; got {tuple(array.shape)}."
                " Pack the weight anew"
            )


def made(
    codes: Any, scales: Any, zeros: Any, format: Format, scale_type: str, like: Any, order: Any = None
) -> PackedWeight:
    """A weight of codes (k, n), bytes, and factors (groups, n), in arrays like `like`; also of tensors."""
    k, n = codes.shape
    group = require_groups(k, n, tuple(scales.shape), "scales", GROUP_OF.get(format.name))
    whole = format.name == "nvfp4"
    if zeros is not None and not whole and zeros.shape != scales.shape:
        shape = tuple(scales.shape)
        raise ShapeError(
            f"zeros: must have the shape of scales, {shape}; got {tuple(zeros.shape)}. Correct it"
        )
    words = in_fragments(codes, format.bits, steps_of_codes(k, group))
    if format.name in GROUP_OF:
        words = apart(words)
    arrays = {"codes": words, "scales": factors_in_fragments(scales, group), "order": order}
    if zeros is not None:
        arrays["zeros"] = zeros if whole else factors_in_fragments(zeros, group)
    placed = {name: placed_like(array, like) for name, array in arrays.items() if array is not None}
    return PackedWeight((k, n), format, group, scale_type, **placed)


def require_groups(k: int, n: int, shape: tuple[int, ...], name: str, only: int | None = None) -> int:
    """The steps of k in a group, from the shape of factors; the last may have fewer. `only`: what the format
    has.
    """
    group = next((size for size in group_sizes(k, only) if shape == (-(-k // size), n)), None)
    if group is None or not k:
        steps = "32, 64 or 128, or all" if only is None else str(only)
        raise ShapeError(
            f"{name}: must have shape (groups of k, {n}), with groups of {steps} of k = {k}; got {shape}."
            " Correct it, or repack"
        )
    return group


def unpack(packed: PackedWeight, dtype: str = "float32") -> Any:
    """The numbers (k, n) that a packed weight means; "float64" has them exactly also with factors of float32
    or of 2^127.
    """
    if not isinstance(dtype, str) or dtype not in ("float32", "float64"):
        raise DTypeError(f"dtype: must be float32 or float64; got {shown(dtype)}. Convert the result")
    if not isinstance(packed, PackedWeight):
        raise DTypeError(
            f"packed: must be a PackedWeight; got {type(packed).__name__}. Pass what pack, load or from_gptq"
            " returned"
        )
    if isinstance(packed, PackedExperts):
        return stacked([unpack(weight, dtype) for weight in packed])
    k, n = packed.shape
    values = values_of(codes_in_order(packed)[:k], packed.format).astype(np.float64)
    steps = np.arange(k) // packed.group
    if packed.format.name == "int4" and packed.zeros is not None:
        values -= factors_out_of_fragments(on_host(packed.zeros), n)[steps]
    elif packed.format.name == "int4":
        values -= SYMMETRIC_ZERO
    scales = factors_out_of_fragments(on_host(packed.scales), n)[steps]
    factors = scales_as_numbers(scales, packed.scale_type)
    with np.errstate(invalid="ignore", over="ignore"):
        if packed.format.name == "nvfp4":
            factors = factors * on_host(packed.zeros).astype(np.float64)
        numbers = (values * factors).astype(dtype)
    if packed.order is not None:
        numbers = numbers[np.argsort(on_host(packed.order))]
    return placed_like(numbers, packed.codes)


def codes_in_order(packed: PackedWeight) -> Array:
    words = on_host(packed.codes)
    if packed.format.name in GROUP_OF:
        words = together(words)
    return out_of_fragments(words, packed.format.bits, packed.shape[1])


# ---- arrays of torch and of NumPy ----


def columns_in_order(x: Any, order: Any) -> Any:
    """x with its columns in the order of a weight's steps."""
    if x.shape[-1] != len(order):
        raise ShapeError(
            f"x: must have k = {len(order)} columns, as the weight has rows; got {tuple(x.shape)}. Transpose"
            " one"
        )
    if framework_of(x) != "torch":
        return x[..., order]
    if x.device != order.device:
        raise DeviceError(
            f"weight: must be where x is, on {x.device}; got one on {order.device}. Move it with .to()"
        )
    if x.dtype.itemsize == 1:  # torch gathers no floats of 8 bits
        import torch

        return x.view(torch.int8).index_select(-1, order).view(x.dtype)
    return x.index_select(-1, order)


def on_host(array: Any) -> Array:
    """The array in NumPy."""
    if framework_of(array) != "torch":
        return np.asarray(array)
    return array_of_tensor(array.detach().cpu().contiguous())


def stacked(arrays: Sequence[Any]) -> Any:
    if framework_of(arrays[0]) != "torch":
        return np.stack(arrays)
    import torch

    return torch.stack(list(arrays))


def placed_like(array: Array, like: Any) -> Any:
    """The array in the framework and on the device of another."""
    if framework_of(like) != "torch" or not isinstance(array, np.ndarray):
        return array
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(like.device)
    return torch.from_numpy(np.ascontiguousarray(array)).to(like.device)


def arrays_of(weight: PackedWeight) -> tuple[Operand, ...]:
    return tuple(operand_of(array, name) for name, array in weight.arrays.items())


def arrays_by_name(weight: PackedWeight) -> dict[str, Operand]:
    """By the names of kernels' parameters."""
    names = {"codes": "B", "zeros": "weights"} if weight.format.name == "nvfp4" else {"codes": "B"}
    return {names.get(array.name, array.name): array for array in arrays_of(weight)}
