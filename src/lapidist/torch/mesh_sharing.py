"""How a layer is split over a mesh, and what becomes of its input and its result."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch.distributed.tensor import DTensor

from lapidist.distributed.compiled_products import is_compiling, shared_in_graph
from lapidist.distributed.group_facts import group_of
from lapidist.distributed.product_gradients import Shared


class Sharing(NamedTuple):
    """The mesh over which a layer is split, and the dimension along which its other side is, if it is."""

    mesh: Any
    sequence_dim: int | None
    use_local_output: bool

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
