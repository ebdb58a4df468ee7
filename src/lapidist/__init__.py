"""Dense matrix multiply on NVIDIA GPUs, from Python: D = alpha op(A) op(B) + beta C.

Public names load on first use, so that `import lapidist` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lapidist.api import gemm, gemm_lists, matmul, plan
    from lapidist.calls.lists import ArrayGemm
    from lapidist.calls.prepared import Gemm
    from lapidist.config import Config
    from lapidist.contractions import einsum, tensordot
    from lapidist.device import CHIPS, Device
    from lapidist.epilogues.expressions import Column, Row, Scalar, Tile
    from lapidist.epilogues.functions import (
        absolute,
        cast,
        ceil,
        clamp,
        dropout,
        erf,
        exp,
        floor,
        gelu,
        log,
        maximum,
        minimum,
        relu,
        rint,
        rsqrt,
        sigmoid,
        silu,
        sqrt,
        tanh,
        trunc,
        where,
    )
    from lapidist.epilogues.reductions import (
        all_max,
        all_sum,
        amax,
        column_amax,
        column_max,
        column_sum,
        row_amax,
        row_max,
        row_sum,
    )
    from lapidist.epilogues.results import Output, Pair, Quantised
    from lapidist.epilogues.tracing import epilogue
    from lapidist.errors import (
        ArgumentError,
        CompileError,
        DeviceError,
        DTypeError,
        LapidistError,
        LaunchError,
        RefusalError,
        ShapeError,
        StrideError,
    )
    from lapidist.kernels.registry import KERNELS, kernel_named
    from lapidist.planning.sum_orders import SumOrder
    from lapidist.problems.pointers import Pointers

__version__ = "0.1.0"

_HOME = {
    "api": ("gemm", "gemm_lists", "matmul", "plan"),
    "config": ("Config",),
    "contractions": ("einsum", "tensordot"),
    "device": ("CHIPS", "Device"),
    "epilogues.expressions": ("Column", "Row", "Scalar", "Tile"),
    "epilogues.functions": (
        "absolute",
        "cast",
        "ceil",
        "clamp",
        "dropout",
        "erf",
        "exp",
        "floor",
        "gelu",
        "log",
        "maximum",
        "minimum",
        "relu",
        "rint",
        "rsqrt",
        "sigmoid",
        "silu",
        "sqrt",
        "tanh",
        "trunc",
        "where",
    ),
    "epilogues.reductions": (
        "all_max",
        "all_sum",
        "amax",
        "column_amax",
        "column_max",
        "column_sum",
        "row_amax",
        "row_max",
        "row_sum",
    ),
    "epilogues.results": ("Output", "Pair", "Quantised"),
    "epilogues.tracing": ("epilogue",),
    "errors": (
        "ArgumentError",
        "CompileError",
        "DTypeError",
        "DeviceError",
        "LapidistError",
        "LaunchError",
        "RefusalError",
        "ShapeError",
        "StrideError",
    ),
    "calls.lists": ("ArrayGemm",),
    "problems.pointers": ("Pointers",),
    "calls.prepared": ("Gemm",),
    "kernels.registry": ("KERNELS", "kernel_named"),
    "planning.sum_orders": ("SumOrder",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "CHIPS",
    "KERNELS",
    "ArgumentError",
    "ArrayGemm",
    "Column",
    "CompileError",
    "Config",
    "DTypeError",
    "Device",
    "DeviceError",
    "Gemm",
    "LapidistError",
    "LaunchError",
    "Output",
    "Pair",
    "Pointers",
    "Quantised",
    "RefusalError",
    "Row",
    "Scalar",
    "ShapeError",
    "StrideError",
    "SumOrder",
    "Tile",
    "absolute",
    "all_max",
    "all_sum",
    "amax",
    "cast",
    "ceil",
    "clamp",
    "column_amax",
    "column_max",
    "column_sum",
    "dropout",
    "einsum",
    "epilogue",
    "erf",
    "exp",
    "floor",
    "gelu",
    "gemm",
    "gemm_lists",
    "kernel_named",
    "log",
    "matmul",
    "maximum",
    "minimum",
    "plan",
    "relu",
    "rint",
    "row_amax",
    "row_max",
    "row_sum",
    "rsqrt",
    "sigmoid",
    "silu",
    "sqrt",
    "tanh",
    "tensordot",
    "trunc",
    "where",
]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'lapidist' has no attribute {name!r}")
    value = getattr(import_module(f"lapidist.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
