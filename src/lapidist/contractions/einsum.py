"""einsum and tensordot of two operands, where the contraction is a GEMM, or a batch of them: views, then
matmul.
"""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

import numpy as np

from lapidist.api import matmul
from lapidist.backends.selection import is_on_host
from lapidist.calls import argument_rules
from lapidist.calls.copied_output import require_no_copy_on_another_stream
from lapidist.calls.kernel_choice import require_place
from lapidist.calls.keywords import unexpected
from lapidist.calls.numpy_protocols import as_array
from lapidist.contractions.arrangement import Arrangement, Layout, arrangement
from lapidist.contractions.subscripts import Subscripts, paired, parsed, require_spec
from lapidist.dtypes import Precision
from lapidist.errors import not_in_graphs
from lapidist.frameworks.array_views import Sizes, empty_like, require_views, strides_of
from lapidist.frameworks.arrays import HOST, operand_of
from lapidist.frameworks.host_arrays import is_odd, native

Array = TypeVar("Array")
WAYS_OUT = {
    "invariant": "Write it around the call: with lapidist.invariant():",
    "optimize": "Leave it out: two operands have one order",
}


@not_in_graphs("einsum", "torch.einsum")
def einsum(
    spec: str,
    a: Array,
    b: Any = None,
    *more: Any,
    out: Any = None,
    out_dtype: Any = None,
    acc_dtype: Any = None,
    precision: Precision = "ieee",
    stream: Any = None,
    device: int | str | None = None,
    **unknown: NoReturn,
) -> Array:
    """numpy.einsum of two operands, where the contraction is a GEMM or a batch of them.

    Letters of both operands and the output are batches, letters of both operands alone are summed, the
    others are rows and columns. Letters of a kind become one dimension. Where an operand's strides do not
    allow that, its framework copies it first, on its current stream; JAX copies what it transposes too.

    Parameters
    ----------
    spec : str
        "ij,jk", "bij,bjk->bik", "bhqd,bhkd->bhqk", "...ij,...jk->...ik". Only what "..." stands for is
        broadcast.
    a, b : arrays of one framework
        Of one type, with a dimension for each letter.
    out : array, optional
        Written where it lies if its strides allow, else by a copy.
    out_dtype, acc_dtype, precision, stream, device
        As in `matmul`.

    Returns
    -------
    array
        A new result may be a view with its dimensions in another order, as NumPy's may.

    Raises
    ------
    ArgumentError
        Of what is no GEMM: a sum over one operand, diagonals, more or fewer than two operands.

    Examples
    --------
    >>> import numpy as np
    >>> import lapidist
    >>> queries, keys = np.ones((2, 4, 5, 8)), np.ones((2, 4, 6, 8))
    >>> lapidist.einsum("bhqd,bhkd->bhqk", queries, keys).shape
    (2, 4, 5, 6)
    """
    if unknown:
        raise unexpected(einsum, unknown, WAYS_OUT)
    require_spec(spec, len(more))
    require_place(device)
    first, second = array_of(a, "a", device), array_of(b, "b", device)
    subscripts = parsed(spec, len(first.shape), len(second.shape))
    types = {"out_dtype": out_dtype, "acc_dtype": acc_dtype, "precision": precision}
    result = contracted(subscripts, first, second, out, types, stream, device)
    return as_result(result) if out is None else result  # type: ignore[no-any-return]


@not_in_graphs("tensordot", "torch.tensordot")
def tensordot(
    a: Array,
    b: Any,
    axes: Any = 2,
    *,
    out: Any = None,
    out_dtype: Any = None,
    acc_dtype: Any = None,
    precision: Precision = "ieee",
    stream: Any = None,
    device: int | str | None = None,
    **unknown: NoReturn,
) -> Array:
    """numpy.tensordot, as one GEMM.

    Parameters
    ----------
    a, b : arrays of one framework
        Of one type, with any number of dimensions.
    axes : int or pair of lists of int
        How many of a's last and b's first dimensions are summed, or which ones of each.
    out, out_dtype, acc_dtype, precision, stream, device
        As in `einsum`.

    Returns
    -------
    array

    Examples
    --------
    >>> import numpy as np
    >>> import lapidist
    >>> lapidist.tensordot(np.ones((2, 3, 4)), np.ones((4, 3, 5)), axes=([1, 2], [1, 0])).shape
    (2, 5)
    """
    if unknown:
        raise unexpected(tensordot, unknown, WAYS_OUT)
    require_place(device)
    first, second = array_of(a, "a", device), array_of(b, "b", device)
    subscripts = paired(axes, tuple(first.shape), tuple(second.shape))
    types = {"out_dtype": out_dtype, "acc_dtype": acc_dtype, "precision": precision}
    return contracted(subscripts, first, second, out, types, stream, device)  # type: ignore[no-any-return]


def array_of(array: Any, name: str, device: object) -> Any:
    """The array that views are made of: a plain one for subclasses of NumPy's, as in numpy.einsum."""
    if type(array) is np.ndarray:
        # matmul checks the rest: to look at an array of NumPy's takes longer than to multiply a small one
        return native(array)
    if is_on_host(device):
        array = as_array(array, name)
    array = native(plain(array))
    operand_of(array, name)
    require_views(array, name)
    return array


def plain(array: Any) -> Any:
    return (
        np.asarray(array)
        if isinstance(array, np.ndarray) and not isinstance(array, np.ma.MaskedArray)
        else array
    )


# ---- the product ----


def contracted(
    subscripts: Subscripts, a: Any, b: Any, out: Any, types: dict[str, Any], stream: Any, device: Any
) -> Any:
    """The product of the views: a new array, or `out`, which is copied to if it has no such view."""
    target: Any = None if out is None else output_of(out)
    strides = strides_of(target) if out is not None and len(target.shape) == len(subscripts.out) else None
    plan = arrangement(subscripts, Layout.of(a), Layout.of(b), strides)
    if out is not None:
        require_output(target, a, plan.result_shape)
    copies_out = out is not None and (plan.out_copies or not is_written_directly(target, plan))
    require_no_copy_on_another_stream(stream, plan.copies, copies_out)
    first, second = plan.a.of(a), plan.b.of(b)
    if out is None:
        stack = matmul(first, second, **types, stream=stream, device=device)
        return plan.result_of(stack)
    stack = empty_like(target, plan.out.shape) if copies_out else plan.out.of(target)
    matmul(first, second, stack, **types, stream=stream, device=device)
    if copies_out:
        target[...] = plan.result_of(stack)
    return out


def as_result(result: Any) -> Any:
    """A scalar in place of NumPy's array without dimensions, as numpy.einsum has it; tensordot has not."""
    return result[()] if isinstance(result, np.ndarray) and not result.shape else result


def is_written_directly(out: Any, plan: Arrangement) -> bool:
    """Whether matmul can write the view of `out`: on a GPU, rows or columns must be contiguous."""
    if isinstance(out, np.ndarray):
        return True
    view = operand_of(plan.out.of(out), "out")
    return view.device == HOST or argument_rules.lines_touch(view)


def output_of(out: Any) -> Any:
    out = plain(out)
    if not is_odd(out):
        operand_of(out, "out")
    require_views(out, "out")
    return out


def require_output(out: Any, a: Any, shape: Sizes) -> None:
    """Check an output before anything is copied or launched."""
    if is_odd(out):
        argument_rules.require_writable_array(out)
        argument_rules.require_shape_of_output(tuple(out.shape), shape)
    else:
        argument_rules.require_output(operand_of(out, "out"), operand_of(a, "a"), shape, free_strides=True)
