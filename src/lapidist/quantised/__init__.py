"""Weights of few bits: packed, unpacked, and multiplied by activations of 16 or 8 bits."""

from __future__ import annotations

from typing import Any, NoReturn

from lapidist.calls.call import FewBits
from lapidist.calls.keywords import unexpected
from lapidist.errors import no_attribute
from lapidist.quantised.packed_weight import PackedExperts, PackedWeight, load, stack, unpack
from lapidist.quantised.packing import from_awq, from_codes, from_gptq, from_mxfp4, from_nvfp4, pack

TRANSPOSED = "Leave it out: pass x.T, and pack the weight as (k, n)"
WAYS_OUT = dict.fromkeys(("transa", "transb", "transposea", "transposeb"), TRANSPOSED)


def matmul(
    x: Any,
    weight: PackedWeight,
    bias: Any = None,
    out: Any = None,
    *,
    epilogue: Any = None,
    scale_a: Any = None,
    out_dtype: Any = None,
    stream: Any = None,
    device: int | str | None = None,
    decode: bool | None = None,
    norm_eps: float | None = None,
    **unknown: NoReturn,
) -> Any:
    """x @ weight + bias, of x (..., k) in bfloat16 or float16, or in e4m3 or int8 with `scale_a`, a factor or
    one for each row. `epilogue`: in place of the bias. `decode`: whether the weight is decoded into the type
    of x first; None: with many rows; False: no product of a code and a factor is rounded.

    `norm_eps`: an RMSNorm first: x / sqrt(mean(x^2) + norm_eps) in place of x, which has 16 bits. Its gain
    belongs in the weight. Up to four rows on Hopper, and up to 128 elsewhere, have no launch for it.
    """
    if unknown:
        raise unexpected(matmul, unknown, WAYS_OUT)
    from lapidist.quantised import bound_product

    types = {"scale_a": scale_a, "out_dtype": out_dtype, "norm_eps": norm_eps}
    how = {"epilogue": epilogue, "stream": stream, "device": device, "decode": decode}
    return bound_product.matmul(x, weight, bias, out, **types, **how)


def grouped(operation: Any, arguments: Any) -> Any:
    """lapidist.grouped of packed experts."""
    from lapidist.quantised.bound_product import grouped

    return grouped(operation, arguments)


def matmul_by_name(*arguments: Any) -> Any:
    """lapidist.matmul of a packed weight."""
    from lapidist.quantised.bound_product import matmul_by_name

    return matmul_by_name(*arguments)


FewBits.matmul = staticmethod(matmul_by_name)
FewBits.grouped = staticmethod(grouped)
FewBits.product = staticmethod(matmul)

PACK = 'Write lapidist.quantised.pack(weight, "int4"), say'
NAMED_OTHERWISE = {
    **dict.fromkeys(("quantize", "quantise", "quantize_", "int4", "mxfp4", "nvfp4", "int8", "e4m3"), PACK),
    **dict.fromkeys(("dequantize", "dequantise"), "Write lapidist.quantised.unpack(packed)"),
    **dict.fromkeys(("linear", "Linear", "swap"), 'Write lapidist.torch.swap(model, weights="int4"), say'),
    "mm": "Write lapidist.quantised.matmul(x, packed)",
}


def __getattr__(name: str) -> Any:
    raise no_attribute(__name__, name, __all__, NAMED_OTHERWISE)


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
