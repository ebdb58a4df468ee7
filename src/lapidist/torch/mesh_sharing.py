"""How a layer is split over a mesh, and what becomes of its input and its result."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch.distributed.tensor import DTensor, Replicate, Shard

from lapidist.distributed.compiled_products import Kind, is_compiling, shared_in_graph
from lapidist.distributed.group_facts import group_of
from lapidist.distributed.product_gradients import Shared
from lapidist.distributed.row_products import leading_of_result, require_equal_parts
from lapidist.errors import ArgumentError

COLUMNS, ROWS = 0, 1  # dimensions of a linear layer's weight (n, k), and of packed arrays


class Sharing(NamedTuple):
    """The mesh over which a layer is split, and the dimension along which its other side is, if it is."""

    mesh: Any
    sequence_dim: int | None
    use_local_output: bool

    def received(self, input: Any, dim: int) -> Any:
        """This rank's part of the input of a layer whose weight is split along `dim`. DTensors that lie
        otherwise are exchanged first, as torch's styles exchange them.
        """
        if not isinstance(input, DTensor):
            return input
        if input.device_mesh != self.mesh:
            raise ArgumentError(
                f"input: a DTensor must lie on the layer's mesh, {self.mesh}; got one on {input.device_mesh}."
                " Pass .to_local(), or redistribute it"
            )
        of_tokens = Replicate() if self.sequence_dim is None else Shard(self.sequence_dim % input.ndim)
        place = Shard(input.ndim - 1) if dim == ROWS else of_tokens
        return input.redistribute(self.mesh, [place]).to_local()

    def leading_of_result(self, kind: Kind, leading: tuple[int, ...]) -> tuple[int, ...]:
        """What extents a result's rows run over. `leading`: those of the input's."""
        ranks = self.mesh.size()
        if kind == "scatter":
            require_equal_parts(leading[0], ranks)
        return leading_of_result(kind, leading, ranks)

    def delivered(self, result: Any, placement: Any) -> Any:
        if self.use_local_output:
            return result
        return DTensor.from_local(result, self.mesh, [placement], run_check=False)

    def with_bias(self, total: Any, bias: Any) -> Any:
        """A sum over ranks has its bias once."""
        if bias is None:
            return total
        if self.sequence_dim is None:
            return total + bias
        if is_compiling():
            return total + shared_in_graph(bias, self.mesh)
        return total + Shared.apply(bias, group_of(self.mesh))


def local(tensor: Any) -> Any:
    """This rank's part of a tensor, or the tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
