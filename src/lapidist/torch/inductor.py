"""What torch's inductor may choose for a product, by time, among its own kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor.kernel.mm import lazy_register_extern_choice

from lapidist import api


def lapidist_mm(a: Any, b: Any, *, out: Any = None) -> Any:
    """torch.mm(a, b, out=out). Inductor's code calls it by this name, which must not be one of torch's."""
    precision = "ieee"
    if a.is_cuda and torch.backends.cuda.matmul.fp32_precision == "tf32":
        precision = "tf32"
    return api.matmul(a, b, out=out, precision=precision)  # type: ignore[arg-type]


# Graphs from inductor's cache call it, too, in processes that have lowered none.
lazy_register_extern_choice(lapidist_mm)
