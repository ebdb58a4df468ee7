"""Which tensors of torch have numbers in memory that a kernel may read: the others are refused in words."""

from __future__ import annotations

import sys
from typing import Any

import torch

from lapidist.errors import ArgumentError, DeviceError, DTypeError


def require_dense(tensor: Any, name: str) -> None:
    if tensor.layout is not torch.strided or tensor.is_nested:
        layout, way_out = tensor.layout, "Call .to_dense() first, or multiply its parts"
        if tensor.is_nested:
            layout, way_out = "nested", "Multiply its parts, list(tensor.unbind()), by gemm of two lists"
        raise DTypeError(f"{name}: must be a dense tensor; got {layout}. {way_out}")


def require_memory(tensor: Any, name: str) -> None:
    """Kernels read and write memory; many things that torch calls tensors have none, or none in rows and
    columns.
    """
    require_dense(tensor, name)
    if tensor.is_quantized:
        raise DTypeError(
            f"{name}: must hold plain numbers; got {tensor.dtype}. Call .int_repr() or .dequantize() first"
        )
    if tensor.device.type not in ("cpu", "cuda"):
        meta = "lapidist.torch multiplies tensors without numbers; or make room with .to_empty(device=...)"
        raise DeviceError(
            f"{name}: must be on the CPU or a CUDA device; got {tensor.device}."
            f" {meta if tensor.is_meta else 'Move it with .to()'}"
        )
    if torch.jit.is_tracing():
        raise ArgumentError(
            f"{name}: torch.jit.trace would record the result as a constant; got a tensor that is traced. "
            "Multiply outside of what is traced"
        )
    if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
        require_no_recording_mode(name)
    wrapped = type(tensor).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl
    transformed = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    if wrapped or transformed or (tensor.numel() and not tensor.data_ptr()):
        got, way_out = "whose memory was freed", "Resize its storage, and fill it, before"
        if transformed:
            got, way_out = "of vmap, func.grad or another transform", "lapidist.torch follows transforms"
        elif wrapped:
            got, way_out = "which stands for others", "Pass the tensors behind it"
        kind = type(tensor).__name__
        raise DTypeError(f"{name}: must be a tensor with memory of its own; got {kind}, {got}. {way_out}")


def require_no_recording_mode(name: str) -> None:
    if torch._guards.active_fake_mode() is not None:
        raise ArgumentError(
            f"{name}: torch makes fake tensors now, under FakeTensorMode, and a product needs memory. Call"
            " outside of the mode, or call lapidist.torch, whose operators have fake results"
        )
    proxies = sys.modules.get("torch.fx.experimental.proxy_tensor")
    if proxies and proxies.get_proxy_mode() is not None:  # it would record an empty result, and no product
        raise ArgumentError(
            f"{name}: torch records its own operators now, under make_fx, and would miss a product. Call"
            " outside of what is recorded, or call lapidist.torch, whose operators are recorded"
        )
