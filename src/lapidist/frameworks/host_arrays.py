"""Host arrays that no kernel takes as they are: types that only NumPy multiplies, mixed types, bytes in
another order, any `out`.

NumPy multiplies them in the type that it finds for both. What cannot be written as it lies is computed beside
it, then copied."""

from __future__ import annotations

from typing import Any

import numpy as np

from lapidist.dtypes import OPERANDS, numpy_dtype
from lapidist.errors import DTypeError
from lapidist.frameworks.arrays import HOST, Operand, on_host, operand_of

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
    common = common_type(a, b, refusal)
    return in_type(a, common), in_type(b, common)


def common_type(a: Operand, b: Operand, refusal: str) -> np.dtype[Any]:
    first, second = numpy_dtype(a.dtype), numpy_dtype(b.dtype)
    if "jax" in (a.framework, b.framework):
        import jax

        return np.dtype(jax.numpy.promote_types(first, second))
    try:
        return np.result_type(first, second)
    except TypeError:
        raise DTypeError(refusal) from None


def in_type(operand: Operand, dtype: np.dtype[Any]) -> Operand:
    if operand.dtype == dtype.name:
        return operand
    return operand_of(on_host(operand).astype(dtype), operand.name)


def casts(product: str, out: Any) -> bool:
    """Whether NumPy writes results of this type to that array: both in host memory, of the same kind or a
    wider one.
    """
    operand = None if isinstance(out, np.ndarray) else operand_of(out, "out")
    if operand is not None and operand.device != HOST:
        return False
    try:
        dtype = out.dtype if operand is None else numpy_dtype(operand.dtype)
    except (TypeError, AttributeError):
        return False
    return (dtype.kind in KINDS or dtype.name in OPERANDS) and np.can_cast(
        numpy_dtype(product), dtype, "same_kind"
    )


# ---- outputs ----


def write(out: Any, result: np.ndarray[Any, Any]) -> None:
    """To an array that could not be written as the product was formed."""
    target = out if isinstance(out, np.ndarray) else on_host(operand_of(out, "out"))
    with np.errstate(over="ignore"):
        np.copyto(target, result, casting="unsafe")
