"""Tensor parallelism on torch.distributed: products whose operands, or whose sums, lie on several ranks.

Public names load on first use: `plan` needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from lapidist.errors import no_attribute

_HOME = {
    "all_gather_matmul": "parallel_products",
    "column_parallel_linear": "parallel_linear",
    "matmul_all_reduce": "parallel_products",
    "matmul_in_chunks": "parallel_products",
    "matmul_reduce_scatter": "parallel_products",
    "plan": "exchange_plans",
    "row_parallel_linear": "parallel_linear",
    "synchronize": "peer_memory",
}
__all__ = sorted(_HOME)
NAMED_OTHERWISE = {
    "matmul": "Write all_gather_matmul, matmul_reduce_scatter or matmul_all_reduce, by what ranks have",
    **dict.fromkeys(("ColumnParallelLinear", "ColwiseParallel"), "Write lapidist.torch.ColumnParallel"),
    **dict.fromkeys(("RowParallelLinear", "RowwiseParallel"), "Write lapidist.torch.RowParallel"),
    **dict.fromkeys(
        ("all_gather", "all_reduce", "reduce_scatter", "init_process_group"),
        "Write it of torch.distributed: here products and exchanges are one call",
    ),
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise no_attribute(__name__, name, _HOME, NAMED_OTHERWISE)
    value = getattr(import_module(f"lapidist.distributed.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
