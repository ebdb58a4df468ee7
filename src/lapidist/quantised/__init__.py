"""Weights of few bits: packed, unpacked, and multiplied by activations of 16 or 8 bits."""

from __future__ import annotations

from typing import Any

from lapidist.calls.call import FewBits
from lapidist.quantised.packed_weight import PackedExperts, PackedWeight, load, stack, unpack
from lapidist.quantised.packing import from_awq, from_codes, from_gptq, from_mxfp4, from_nvfp4, pack


def matmul(x: Any, weight: PackedWeight, bias: Any = None, out: Any = None, **more: Any) -> Any:
    """x @ weight + bias, of x (..., k) in bfloat16 or float16, or in e4m3 or int8 with `scale_a`, a factor or
    one for each row; `more`: scale_a, out_dtype, device, decode (True: the weight is decoded into the type of
    x first, as happens with many rows), or an epilogue in place of the bias.
    """
    from lapidist.quantised.bound_product import matmul

    return matmul(x, weight, bias, out, **more)


def grouped(operation: Any, arguments: Any) -> Any:
    """lapidist.grouped of packed experts."""
    from lapidist.quantised.bound_product import grouped

    return grouped(operation, arguments)


FewBits.grouped = staticmethod(grouped)

__all__ = [
    "PackedExperts",
    "PackedWeight",
    "from_awq",
    "from_codes",
    "from_gptq",
    "from_mxfp4",
    "from_nvfp4",
    "load",
    "matmul",
    "pack",
    "stack",
    "unpack",
]
