"""Tensor parallelism on torch.distributed: products whose operands, or whose sums, lie on several ranks.

Public names load on first use: `plan` needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

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


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'lapidist.distributed' has no attribute {name!r}")
    value = getattr(import_module(f"lapidist.distributed.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
