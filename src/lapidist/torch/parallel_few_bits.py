"""Linear layers of few bits that are split over ranks: by whole tiles of n, or by whole groups of k.

Codes and factors lie by tiles of n, and in these by blocks of k. So a part of a packed weight is a part of
its arrays, which are DTensors, and has the bits that it has in the whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from lapidist.distributed.compiled_products import Kind, name_of_group
from lapidist.distributed.row_products import in_rows, in_shape
from lapidist.errors import ArgumentError
from lapidist.frameworks.torch_autocast import in_autocast
from lapidist.quantised.fragment_order import TILE
from lapidist.quantised.number_formats import BLOCK
from lapidist.quantised.packed_weight import ARRAYS, PackedWeight, of_layout
from lapidist.quantised.packing import pack
from lapidist.torch.few_bits import in_order
from lapidist.torch.few_bits_over_ranks import over_ranks
from lapidist.torch.mesh_sharing import COLUMNS, ROWS, Sharing, local
from lapidist.torch.packed_layer import PackedLinear, take_weight


def require_split(dim: int, weight: PackedWeight, ranks: int) -> None:
    """Refuse a split that cuts a tile of columns or a group of k."""
    k, n = weight.shape
    step = max(BLOCK, weight.group)
    if dim == ROWS and weight.order is not None:
        raise ArgumentError(
            "RowParallel: a split of k must keep groups whole; got a weight in the order of activations"
            " (desc_act), whose groups have columns of x on all ranks. Split its columns, or leave it out"
        )
    if dim == COLUMNS and n % (TILE * ranks):
        raise ArgumentError(
            f"ColumnParallel: packed columns are split by whole tiles of {TILE}, which must divide by the"
            f" number of ranks, {ranks}; got n = {n}. Pad it, or leave the layer out"
        )
    if dim == ROWS and k % (step * ranks):
        if weight.group >= k:
            raise ArgumentError(
                f"RowParallel: a split of k must keep groups whole; got a factor for all {k} of k, and"
                f" {ranks} ranks. Pass group=64, say"
            )
        raise ArgumentError(
            f"RowParallel: packed rows are split by whole groups, {step} of k at least, which must divide by"
            f" the number of ranks, {ranks}; got k = {k}. Pad it, or leave the layer out"
        )


def split_packed(layer: Any, dim: int, src_data_rank: int | None) -> None:
    """Leave this rank its part of a PackedLinear that has a sharing."""
    weight = layer.packed_weight
    layer.__class__ = (PackedColumnParallelLinear, PackedRowParallelLinear)[dim]
    layer.share(weight, src_data_rank)


# ---- layers that torch's styles have split ----


def dim_of_split(layer: Any) -> int:
    """The dimension of a layer's weight that ColwiseParallel or RowwiseParallel has split."""
    weight = getattr(layer, "weight", None)
    placements = getattr(weight, "placements", ())
    dims = {(Shard(dim),): dim for dim in (COLUMNS, ROWS)}
    is_styled = getattr(layer, "_distribute_module_applied", False)  # by torch's distribute_module
    if not is_styled or placements not in dims:
        raise ArgumentError(
            "weights: DTensors are packed where ColwiseParallel or RowwiseParallel has split a linear layer"
            f" over a mesh of one dimension; got {type(layer).__name__} of {placements or 'other DTensors'}."
            " Swap the model before it is distributed so"
        )
    return dims[placements]


def packed_whole(layer: Any, format: str, group: int | None) -> PackedWeight:
    """The weight of all ranks, whose parts have the bits that they have in the whole."""
    dim = dim_of_split(layer)
    packed = pack(layer.weight.detach().full_tensor().T, format, group=group)
    require_split(dim, packed, layer.weight.device_mesh.size())
    return packed


def take_part(layer: Any, weight: PackedWeight) -> None:
    """Leave a layer its part of the weight. The style's hooks place DTensors before and behind it."""
    dim, mesh = dim_of_split(layer), layer.weight.device_mesh
    take_weight(layer, weight)
    layer.sharing = Sharing(mesh, None, False)
    split_packed(layer, dim, None)


class ParallelPackedLinear(PackedLinear):
    """PackedLinear with this rank's part of a weight. The layout in its state is that of the whole."""

    sharing: Sharing
    dim: int
    part_numbers: list[int]  # the layout of this rank's part

    def share(self, weight: PackedWeight, src_data_rank: int | None) -> None:
        """Take a whole weight's part, of the rank `src_data_rank`, or (None) of this one."""
        mesh = self.sharing.mesh
        parts = {
            name: array
            if isinstance(array, DTensor)
            else distribute_tensor(array, mesh, [self.placement(array)], src_data_rank=src_data_rank)
            for name, array in weight.arrays.items()
        }
        k, n, *more = weight.layout
        super().hold(replace(weight, **parts))
        self.part_numbers = (
            [k, n // mesh.size(), *more] if self.dim == COLUMNS else [k // mesh.size(), n, *more]
        )

    def placement(self, array: Any) -> Any:
        """The factor that nvfp4 has of the whole weight, and the order of k, are those of all ranks."""
        return Shard(self.dim) if array.ndim > 1 else Replicate()

    def hold(self, weight: PackedWeight) -> None:
        """A whole one, which each rank has, or DTensors."""
        require_split(self.dim, weight, self.sharing.mesh.size())
        self.share(weight, None)

    @property
    def packed_weight(self) -> PackedWeight:
        """This rank's part."""
        return of_layout(self.part_numbers, *(local(getattr(self, name)) for name in ARRAYS))

    def parts(self, input: Any) -> tuple[Any, Any]:
        input = self.sharing.received(input, self.dim)
        return in_autocast(input, local(self.bias))  # type: ignore[return-value]

    def over_ranks(self, kind: Kind, input: Any, bias: Any) -> Any:
        dim = 0 if self.sharing.sequence_dim is None else self.sharing.sequence_dim
        rows, leading = in_rows(input, dim, "input")
        of_result = self.sharing.leading_of_result(kind, leading)
        weight = self.packed_weight
        rows, codes, scales, zeros = in_order(rows, weight), weight.codes, weight.scales, weight.zeros
        group = name_of_group(self.sharing.mesh)
        result = over_ranks(rows, codes, scales, zeros, self.part_numbers, kind, group, bias)
        return in_shape(result, of_result, dim)

    def _load_from_state_dict(self, state: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        """A bias of the whole layer is split, too."""
        bias, name = state.get(f"{prefix}bias"), f"{prefix}bias"
        if isinstance(self.bias, DTensor) and bias is not None and not isinstance(bias, DTensor):
            state = {**state, name: distribute_tensor(bias, *placed_as(self.bias), src_data_rank=None)}
        super()._load_from_state_dict(state, prefix, *rest)


def placed_as(tensor: Any) -> tuple[Any, Any]:
    return tensor.device_mesh, tensor.placements


class PackedColumnParallelLinear(ParallelPackedLinear):
    """This rank's columns of the result; the input is the same on all ranks, or gathered."""

    dim = COLUMNS

    def forward(self, input: Any) -> Any:
        kind: Kind = "enter" if self.sharing.sequence_dim is None else "gather"
        result = self.over_ranks(kind, *self.parts(input))
        return self.sharing.delivered(result, Shard(result.ndim - 1))


class PackedRowParallelLinear(ParallelPackedLinear):
    """The sum over ranks, on all of them or a part on each; the input is this rank's columns."""

    dim = ROWS

    def forward(self, input: Any) -> Any:
        sequence_dim = self.sharing.sequence_dim
        input, bias = self.parts(input)
        total = self.over_ranks("reduce" if sequence_dim is None else "scatter", input, None)
        placement = Replicate() if sequence_dim is None else Shard(sequence_dim)
        return self.sharing.delivered(self.sharing.with_bias(total, bias), placement)
