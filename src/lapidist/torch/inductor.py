"""lapidist as a choice of torch's inductor, which times it against its own kernels."""

from __future__ import annotations

from typing import Any

from torch._inductor.kernel.mm import lazy_register_extern_choice

from lapidist import api
from lapidist.torch.aten_override import precision_of


def lapidist_mm(a: Any, b: Any, *, out: Any = None) -> Any:
    """torch.mm(a, b, out=out). Inductor's code calls it by this name, which must not be one of torch's."""
    return api.matmul(a, b, out=out, precision=precision_of(a))


# Registered at import, as graphs from inductor's cache call it in processes that have lowered none.
lazy_register_extern_choice(lapidist_mm)
