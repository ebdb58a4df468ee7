"""NumPy views of host operands, and host arrays that no kernel takes as they are: types that only NumPy
multiplies, mixed types, bytes in another order, any `out`.

NumPy multiplies them in the type that it finds for both. What cannot be written as it lies is computed beside
it, then copied."""

from __future__ import annotations

from ctypes import c_char
from dataclasses import replace
from typing import Any

import numpy as np

from lapidist.dtypes import COMPLEX_HALVES, OPERANDS, numpy_dtype
from lapidist.errors import DTypeError
from lapidist.frameworks.arrays import HOST, Operand, operand_of

KINDS = "biufcO"  # booleans, integers, floats, complex numbers, objects: what NumPy multiplies


def is_native(array: np.ndarray[Any, Any]) -> bool:
    """Whether elements are in this computer's byte order, and steps between them are whole elements."""
    size = array.itemsize
    return array.dtype.isnative and not any(stride % size for stride in array.strides if size)


def native(array: Any) -> Any:
    """A copy of NumPy's arrays that are not native; anything else as it is."""
    if type(array) is not np.ndarray or is_native(array):
        return array
    return array.astype(array.dtype.newbyteorder("="), order="C")


def is_odd(out: Any) -> bool:
    """An output that no Operand stands for."""
    return isinstance(out, np.ndarray) and not isinstance(out, np.ma.MaskedArray) and not is_native(out)


# ---- types ----


def multiplied_by_numpy(operand: Operand) -> bool:
    if operand.device != HOST or operand.framework not in ("numpy", "jax"):
        return False
    dtype: np.dtype[Any] = operand.owner.dtype
    return operand.dtype in OPERANDS or dtype.kind in KINDS


def promoted(a: Operand, b: Operand, refusal: str) -> tuple[Operand, Operand]:
    """Both in the type that NumPy, or JAX, has for the two; `refusal` says why no kernel takes them as they
    are.
    """
    if not (multiplied_by_numpy(a) and multiplied_by_numpy(b)):
        raise DTypeError(refusal)
    if a.dtype == b.dtype:
        return a, b
    common = common_type(a, b)
    return in_type(a, common), in_type(b, common)


def common_type(a: Operand, b: Operand) -> np.dtype[Any]:
    first, second = numpy_dtype(a.dtype), numpy_dtype(b.dtype)
    if "jax" in (a.framework, b.framework):
        import jax

        return np.dtype(jax.numpy.promote_types(first, second))
    try:
        return np.result_type(first, second)
    except TypeError:
        # Before ml_dtypes 0.7 its floats had no common type with most others.
        return np.result_type(np.float32, *(dtype for dtype in (first, second) if dtype.kind in KINDS))


def in_type(operand: Operand, dtype: np.dtype[Any]) -> Operand:
    if operand.dtype == dtype.name:
        return operand
    return operand_of(on_host(operand).astype(dtype), operand.name)


def casts(product: str, out: Any) -> bool:
    """Whether NumPy writes results of this type to that array: both in host memory, of the same kind or a
    wider one.
    """
    operand = None if isinstance(out, np.ndarray) else operand_of(out, "out")
    if product == COMPLEX_HALVES or (operand is not None and operand.device != HOST):
        return False
    try:
        dtype = out.dtype if operand is None else numpy_dtype(operand.dtype)
    except (TypeError, AttributeError):
        return False
    if numpy_dtype(product).kind == "c" and dtype.name in OPERANDS:
        return False  # types of ml_dtypes would take real parts alone, and say that they are of the same kind
    return (dtype.kind in KINDS or dtype.name in OPERANDS) and np.can_cast(
        numpy_dtype(product), dtype, "same_kind"
    )


# ---- outputs ----


def write(out: Any, result: np.ndarray[Any, Any]) -> None:
    """To an array that could not be written as the product was formed."""
    target = out if isinstance(out, np.ndarray) else on_host(operand_of(out, "out"))
    with np.errstate(over="ignore"):
        np.copyto(target, result, casting="unsafe")


def on_host(operand: Operand) -> np.ndarray[Any, Any]:
    """A NumPy view of an operand in host memory: the caller's own memory, in the operand's shape. Of
    conjugated numbers it is a copy.
    """
    if operand.conjugated:
        return np.conjugate(on_host(replace(operand, conjugated=False)))
    if operand.framework == "torch":
        return torch_on_host(operand)
    base = asarray(operand.owner, operand.name)
    byte_strides = tuple(stride * base.itemsize for stride in operand.strides)
    if base.dtype.isbuiltin != 2:  # one of NumPy itself, in any byte order
        return np.lib.stride_tricks.as_strided(base, operand.shape, byte_strides)
    words = base.view(f"u{base.itemsize}")  # NumPy does not know the letters of ml_dtypes' types here
    return np.lib.stride_tricks.as_strided(words, operand.shape, byte_strides).view(base.dtype)


def asarray(owner: Any, name: str) -> np.ndarray[Any, Any]:
    """NumPy itself sees no array in what only speaks DLPack, through which it has no bfloat16."""
    if hasattr(owner, "__array__") or not hasattr(owner, "__dlpack__"):
        return np.asarray(owner)
    try:
        return np.from_dlpack(owner)
    except MemoryError:
        raise
    except Exception as error:  # whatever __dlpack__ raises, or NumPy of a capsule that was used before
        raise DTypeError(
            f"{name}: must be an array that NumPy reads through DLPack, with a new capsule each time; got"
            f" {type(owner).__name__} ({error}). Make it an array of torch or JAX by their from_dlpack"
        ) from error


def torch_on_host(operand: Operand) -> np.ndarray[Any, Any]:
    """Not by Tensor.numpy(), after which torch refuses for ever to resize the memory, as FSDP does."""
    dtype, (first, last) = numpy_dtype(operand.dtype), operand.span
    memory: Any = (c_char * (last - first)).from_address(first)
    memory.owner = operand.owner  # who has a view has the tensor
    byte_strides = tuple(stride * dtype.itemsize for stride in operand.strides)
    return np.ndarray(operand.shape, dtype, memory, 0, byte_strides)
