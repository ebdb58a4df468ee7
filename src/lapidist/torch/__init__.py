"""lapidist in torch: operators of its own with gradients, vmap, torch.compile and torch.export; layers that
use them.

Importing this package registers `torch.ops.lapidist.matmul`, `.gemm`, `.linear`, `.scaled`, `.grouped`,
`.gemm_`, `.grouped_`, `.few_bits`, `.few_bits_grouped`, `.few_bits_routed`, `.gram` and
`.symmetric_matmul`.
"""

from __future__ import annotations

import importlib
from typing import Any

from lapidist.errors import no_attribute
from lapidist.torch import batches, flops, gradients, operators
from lapidist.torch.aten_override import everywhere
from lapidist.torch.layers import Linear, Swapped, swap
from lapidist.torch.packed_checkpoints import load_packed
from lapidist.torch.packed_layer import PackedLinear
from lapidist.torch.public_calls import gemm, grouped, linear, matmul, mlp, scaled
from lapidist.torch.symmetric import gram, orthogonalised
from lapidist.torch.token_tree import TokenTree

__all__ = [
    "Linear",
    "PackedLinear",
    "Swapped",
    "TokenTree",
    "everywhere",
    "gemm",
    "gram",
    "grouped",
    "linear",
    "load_packed",
    "matmul",
    "mlp",
    "orthogonalised",
    "scaled",
    "swap",
]

operators.matmul.transform(
    gradients.keep_matmul, gradients.matmul_back, gradients.matmul_forth, batches.map_matmul
)
operators.gemm.transform(gradients.keep_gemm, gradients.gemm_back, gradients.gemm_forth, batches.map_gemm)
operators.linear.transform(
    gradients.keep_linear, gradients.linear_back, gradients.linear_forth, batches.map_linear
)
operators.scaled.record(gradients.keep_scaled, gradients.scaled_back)
operators.grouped.transform(
    gradients.keep_grouped, gradients.grouped_back, gradients.grouped_forth, batches.map_grouped
)
flops.count()


# what is written otherwise here
WAYS_OUT = {
    **dict.fromkeys(
        ("Float8Linear", "FP8Linear", "convert_to_float8_training"),
        "Write lapidist.torch.swap(model, dtype=torch.float8_e4m3fn)",
    ),
    **dict.fromkeys(
        ("quantize", "quantize_", "quantise", "pack", "Int8Linear", "Int4Linear", "QuantizedLinear"),
        'Write lapidist.torch.swap(model, weights="int4"), say',
    ),
    **dict.fromkeys(
        ("MoE", "Experts", "GroupedLinear"),
        "Write lapidist.torch.swap(model), or grouped(rows, weights, ends)",
    ),
    **dict.fromkeys(("compile", "patch", "replace", "optimize"), "Write lapidist.torch.swap(model)"),
    "MLP": "Write lapidist.torch.mlp(input, up, up_bias, down, down_bias)",
    "bmm": "Write lapidist.torch.matmul, which takes batches",
    **dict.fromkeys(("addmm", "baddbmm"), "Write lapidist.torch.gemm(a, b, c, alpha=, beta=)"),
    **dict.fromkeys(("scaled_mm", "_scaled_mm"), "Write lapidist.torch.scaled(a, b, scale_a, scale_b)"),
    **dict.fromkeys(("grouped_mm", "_grouped_mm"), "Write lapidist.torch.grouped(a, b, offsets)"),
    "einsum": "Use torch.einsum in lapidist.torch.everywhere(), or lapidist.einsum, without gradients",
}


def __getattr__(name: str) -> Any:
    """What imports torch's inductor or its DTensor, which takes a second, on first use."""
    if name == "mm":
        return importlib.import_module("lapidist.torch.inductor").lapidist_mm
    if name in ("ColumnParallel", "RowParallel"):
        return getattr(importlib.import_module("lapidist.torch.parallel_layers"), name)
    raise no_attribute("lapidist.torch", name, __all__, WAYS_OUT)
