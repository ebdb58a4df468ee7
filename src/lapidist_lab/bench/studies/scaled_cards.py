"""8-bit floats with factors for products over several cards: operands, and torch's products of them."""

from __future__ import annotations

from typing import Any

EIGHT_BITS = "float8_e4m3fn"
LARGEST = 448.0
Factors = tuple[Any, Any] | None  # of a's rows, (rows, 1), and of b's columns, (1, columns)


def in_eight_bits(matrix: Any) -> tuple[Any, Any]:
    """Its rows in e4m3, and a factor for each."""
    import torch

    factors = matrix.abs().amax(1, keepdim=True) / LARGEST
    return (matrix / factors).to(torch.float8_e4m3fn), factors


def multiplied(a: Any, b: Any, factors: Factors, **out: Any) -> Any:
    """torch's product, on the host of float32."""
    import torch

    if factors is None:
        return torch.mm(a, b, **out)
    if not a.is_cuda:
        return ((a.float() * factors[0]) @ (b.float() * factors[1])).bfloat16()
    return torch._scaled_mm(a, b, *factors, out_dtype=torch.bfloat16, use_fast_accum=True, **out)


def gathered_scaled(a: Any, b: Any, factors: Any, group: str) -> Any:
    """torch's over symmetric memory."""
    import torch

    more = [None], [None], [torch.bfloat16], [True]
    return torch.ops.symm_mem.fused_all_gather_scaled_matmul(
        a, [b], factors[0], [factors[1]], 0, group, *more
    )[1][0]


def scattered_scaled(a: Any, b: Any, factors: Any, group: str) -> Any:
    import torch

    shape = [a.shape[0], b.shape[1]]
    more: dict[str, Any] = {"out_dtype": torch.bfloat16, "use_fast_accum": True}
    operator = torch.ops.symm_mem.fused_scaled_matmul_reduce_scatter
    return operator(a, b, *factors, "sum", 0, 0, group, shape, **more)
