"""The stream that a product is queued on: the caller's, else where its framework works now."""

from __future__ import annotations

from typing import Any

from lapidist.dtypes import integer
from lapidist.errors import ArgumentError, shown


def stream_of(framework: str, device: int) -> int:
    """The raw stream on which the caller's framework works now."""
    if framework == "torch":
        import torch

        return torch._C._cuda_getCurrentRawStream(device)
    if framework == "cupy":
        import cupy

        return cupy.cuda.get_current_stream().ptr
    return 0  # the legacy default stream: ordered with everything that is not explicitly concurrent


def stream_handle(stream: Any) -> int:
    """The raw handle of a stream the caller chose."""
    handle: Any = integer(stream)
    if handle is None:
        handles = (getattr(stream, attribute, None) for attribute in ("cuda_stream", "ptr", "handle"))
        handle = next((attribute_value for attribute_value in handles if attribute_value is not None), None)
    try:
        if 0 <= int(handle) < 1 << 64:
            return int(handle)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ArgumentError(
        f"stream: must be a raw handle or a torch, CuPy or cuda.core stream; got {shown(stream)}. "
        "Leave it out for the one that the arrays' framework works on"
    )


def choose_stream(stream: Any, framework: str, device: int | str) -> int:
    """The raw stream: the caller's choice, else where its framework works now."""
    return stream_of(framework, int(device)) if stream is None else stream_handle(stream)


def require_stream(stream: Any) -> None:
    """Also where none is used: a wrong one is an error in every place, or in none."""
    if stream is not None:
        stream_handle(stream)
