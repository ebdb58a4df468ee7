"""What emulated float32 refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lapidist.calls.operation import Operation
from lapidist.device import Device
from lapidist.dtypes import EMULATIONS, IEEE, PART_OF, TIERS, tier_of
from lapidist.errors import ArgumentError, DeviceError, DTypeError, ShapeError, shown
from lapidist.frameworks.arrays import HOST, Operand
from lapidist.frameworks.streams import require_stream

if TYPE_CHECKING:
    from lapidist.backends.backend import Backend
    from lapidist.calls.bound import Bound

TENSOR_CORES = 8, 0  # capability from which on they multiply int8 and bfloat16


def in_float32(operation: Operation) -> Operation:
    """The same operation without emulation."""
    return operation._replace(types=operation.types._replace(precision=IEEE))


def require_emulation(precision: Any) -> None:
    if tier_of(precision) not in EMULATIONS:
        names = ", ".join(f'"{name}"' for name in EMULATIONS)
        most = TIERS[-1][1]
        raise ArgumentError(
            f"precision: must be {names} or lapidist.Accuracy({most}) here; got {shown(precision)}. Name one"
        )


def require_float32_weight(weight: Operand) -> None:
    if weight.dtype != "float32":
        raise DTypeError(
            f"weight: emulated precisions multiply float32; got {weight.dtype}. Multiply it as it is"
        )
    if len(weight.shape) != 2:
        raise ShapeError(f"weight: must have two dimensions; got {weight.shape}. Prepare each matrix")


def require_plain(operation: Operation, precision: str) -> None:
    """But for an epilogue."""
    if operation.groups is not None:
        raise ArgumentError(
            f'precision: "{precision}" cuts whole matrices into parts, also what lies behind the last group;'
            ' got groups. Take precision="ieee" or "tf32", or multiply each group by gemm'
        )
    if not operation._replace(epilogue=None).is_plain:
        raise ArgumentError(
            f'precision: "{precision}" takes matrices and numbers alone; got factors, indices, or alpha or'
            ' beta in an array. Leave them out, or take precision="ieee"'
        )


def require_current_stream(stream: Any, precision: str) -> None:
    """The framework may give slices' memory to others once the call returns, which its own stream orders."""
    require_stream(stream)
    if stream is not None:
        raise ArgumentError(
            f'stream: with precision="{precision}" products run on the current stream of the arrays\''
            " framework; got another one. Make it current (with torch.cuda.stream(...), say)"
        )


def require_float32(bound: Bound, precision: str) -> None:
    types = (PART_OF.get(dtype, dtype) for dtype in (bound.a.dtype, bound.out_dtype))
    if set(types) != {"float32"}:
        raise DTypeError(
            f'precision: "{precision}" is a way to multiply float32; a is {bound.a.dtype}, the result'
            f" {bound.out_dtype}. Leave it out{', or convert to complex64' if bound.is_complex else ''}"
        )


def require_tensor_cores(chip: Device, precision: str) -> None:
    if chip.capability < TENSOR_CORES:
        raise DeviceError(
            f'precision: "{precision}" multiplies parts on tensor cores for int8 or bfloat16, of compute'
            f" capability {TENSOR_CORES[0]}.{TENSOR_CORES[1]} or more; {chip.name} has {chip.capability[0]}."
            f"{chip.capability[1]}. Leave it out"
        )


def require_place(bound: Bound, backend: Backend, precision: str) -> None:
    require_tensor_cores(backend.chip, precision)
    on_gpu = backend.ordinal != HOST
    if on_gpu and (bound.like.device == HOST or bound.like.framework not in ("torch", "cupy")):
        raise ArgumentError(
            f'precision: "{precision}" runs on a GPU with arrays of torch or CuPy there; got'
            f" {bound.like.framework} arrays in {bound.like.place}. Copy them"
        )
