"""For tests on a GPU: tensors of any type and layout, outputs that must be overwritten, one plan on streams
and in graphs.
"""

from __future__ import annotations

from typing import Any

from lapidist.calls.executable import Gemm
from lapidist.dtypes import TYPES, element_of
from lapidist.verify.sum_bound import judge


def normal(torch: Any, *shape: int, dtype: str = "float32") -> Any:
    return torch.randn(*shape, device="cuda").to(getattr(torch, dtype))


def fresh(torch: Any, math: str, *shape: int) -> Any:
    """Normal numbers; integers of 8 bits over their whole range."""
    element = element_of(math)
    if element.accumulators == ("int32",):
        low, high = element.bounds or (0, 0)
        return torch.randint(int(low), int(high) + 1, shape, device="cuda").to(getattr(torch, element.name))
    return normal(torch, *shape, dtype=element.name)


def whole(torch: Any, math: str, *shape: int) -> Any:
    """Small whole numbers, whose products and sums are exact in every type."""
    return torch.randint(0 if math == "uint8" else -4, 5, shape, device="cuda").to(
        getattr(torch, element_of(math).name)
    )


def poisoned(torch: Any, *shape: int, dtype: str = "float32") -> Any:
    """What must be overwritten: NaN, or a number that no product here gives."""
    return torch.full(shape, float("nan") if TYPES[dtype].roundoff else 99.0, device="cuda").to(
        getattr(torch, dtype)
    )


def rows_on_16_bytes(matrix: Any) -> Any:
    """A copy whose rows start on 16 bytes."""
    step = 16 // matrix.element_size()
    wide = matrix.new_zeros(matrix.shape[0], -(-max(matrix.shape[1], 1) // step) * step)
    wide[:, : matrix.shape[1]] = matrix
    return wide[:, : matrix.shape[1]]


def laid_out(matrix: Any, layout: str) -> Any:
    """The same matrices, "row" by row, "col" by column, "strided" in both dimensions, or "offset" in larger
    ones.
    """
    if layout == "col":
        return matrix.transpose(-1, -2).contiguous().transpose(-1, -2)
    rows, cols = matrix.shape[-2:]
    if layout == "strided":
        spread = matrix.new_zeros(*matrix.shape[:-2], 2 * rows, 3 * cols)[..., ::2, ::3]
    elif layout == "offset":
        spread = matrix.new_zeros(*matrix.shape[:-2], rows + 1, cols + 3)[..., 1:, 3:]
    else:
        return matrix
    spread.copy_(matrix)
    return spread


def check_on_streams_and_in_graphs(
    torch: Any, plan: Gemm, inputs: list[tuple[Any, Any]], outs: list[Any], times: int
) -> None:
    """The same bits from many launches, a stream for each pair of inputs, all at once; and from a graph."""
    streams = [torch.cuda.Stream() for _ in inputs]
    torch.cuda.synchronize()
    for _ in range(times):
        for stream, (a, b), out in zip(streams, inputs, outs, strict=True):
            plan.execute(a, b, None, out, stream=stream)
    torch.cuda.synchronize()
    first = [out.clone() for out in outs]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for (a, b), out in zip(inputs, outs, strict=True):
            plan.execute(a, b, None, out)
    for _ in range(20):
        for out in outs:
            out.fill_(float("nan"))
        graph.replay()
    torch.cuda.synchronize()
    for (a, b), out, before in zip(inputs, outs, first, strict=True):
        assert judge(out, a, b).ok
        assert torch.equal(out, before)
