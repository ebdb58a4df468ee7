"""matmul of objects that NumPy converts to arrays, or that decide about the result themselves: lists,
subclasses, wrappers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lapidist.calls.bound import Bound
from lapidist.calls.destination import multiply_on_host
from lapidist.calls.operation import Operation
from lapidist.dtypes import numpy_dtype
from lapidist.errors import ArgumentError, DTypeError
from lapidist.frameworks.arrays import framework_of, readable


@readable
def is_plain(array: Any, name: str) -> bool:
    """Whether the library takes it as it is: plain arrays of NumPy, and arrays of frameworks."""
    return (
        type(array) is np.ndarray
        or framework_of(array) in ("torch", "cupy", "jax")
        or isinstance(array, np.ma.MaskedArray)
    )


@readable
def as_array(array: Any, name: str) -> Any:
    """An array of lists and other objects that only hold numbers; anything else as it is."""
    if is_plain(array, name) or overrides_numpy(array, name) or not becomes_array(array):
        return array
    try:
        return np.asarray(array)
    except (ValueError, TypeError) as error:
        raise ArgumentError(
            f"{name}: must be one array; NumPy makes none of this {type(array).__name__} ({error})."
            " Rows must have one length; gemm([a, ...], [b, ...]) multiplies matrices of several shapes"
        ) from error


def becomes_array(array: Any) -> bool:
    if isinstance(array, (list, tuple, memoryview)):
        return True
    if isinstance(array, np.generic) or hasattr(array, "__cuda_array_interface__"):
        return False
    return hasattr(array, "__array__") or hasattr(array, "__array_interface__")


@readable
def overrides_numpy(array: Any, name: str) -> bool:
    """Whether NumPy would let it decide: an object with __array_ufunc__ or __array_wrap__ that is no plain
    array.
    """
    if is_plain(array, name) or isinstance(array, np.generic) or hasattr(array, "__cuda_array_interface__"):
        return False
    return hasattr(array, "__array_ufunc__") or hasattr(array, "__array_wrap__")


def takes_over(array: Any) -> bool:
    """Whether its class replaces NumPy's functions by its own."""
    kind = type(array)
    return hasattr(kind, "__array_ufunc__") and kind.__array_ufunc__ is not np.ndarray.__array_ufunc__


def require_functions(array: Any, name: str) -> None:
    if getattr(type(array), "__array_ufunc__", overrides_numpy) is None:
        way_out = getattr(type(array), "WAY_OUT", "")  # of packed weights
        if way_out:
            way_out = "Write the weight behind the rows: matmul(x, w)" if name == "a" else way_out
            raise DTypeError(f"{name}: must be an array here; got {type(array).__name__}. {way_out}")
        raise DTypeError(
            f"{name}: must be of a class that NumPy's functions take; {type(array).__name__} forbids them by"
            " __array_ufunc__ = None. Call its own method, or pass its numbers through numpy.asarray"
        )


def product(a: Any, b: Any, out: Any) -> Any:
    """The product by numpy.matmul, in our types. Bound are checked as always."""
    for name, array in (("a", a), ("b", b), ("out", out)):
        require_functions(array, name)
    if takes_over(a) or takes_over(b):
        return np.matmul(a, b) if out is None else np.matmul(a, b, out=out)
    first, second = np.asarray(a), np.asarray(b)
    checked = Bound(first, second, None, out, Operation(vectors=True))
    if out is not None:
        return multiply_on_host(checked)
    sums, dtype = numpy_dtype(checked.accumulator), numpy_dtype(checked.out_dtype)
    with np.errstate(over="ignore"):
        result = np.matmul(a, b, dtype=sums)
        return result if sums == dtype else result.astype(dtype)
