"""einsum and tensordot of two operands, where the contraction is a GEMM, or a batch of them: views, then
matmul.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np

from lapidist.api import matmul
from lapidist.backends.selection import is_on_host
from lapidist.calls import argument_rules
from lapidist.calls.kernel_choice import require_place
from lapidist.calls.numpy_protocols import as_array
from lapidist.calls.subscripts import EXAMPLE, Label, Subscripts, fitted, paired, parsed, require_two
from lapidist.dtypes import Precision
from lapidist.errors import ArgumentError, ShapeError
from lapidist.frameworks.array_views import (
    empty_beside,
    is_one,
    permuted,
    require_views,
    reshaped,
    strides_of,
)
from lapidist.frameworks.arrays import HOST, operand_of
from lapidist.frameworks.host_arrays import is_odd, native

Array = TypeVar("Array")
Sizes = tuple[int, ...]
Layout = tuple[Sizes, Sizes]  # shape and strides


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
    if not isinstance(spec, str):
        raise ArgumentError(
            f"spec: must be a string, {EXAMPLE}; got {type(spec).__name__}. Name each dimension with a letter"
        )
    if more:
        require_two(spec, 2 + len(more))
    require_two(spec, 1 + spec.partition("->")[0].count(","))
    require_place(device)
    first, second = array_of(a, "a", device), array_of(b, "b", device)
    subscripts = parsed(spec, len(first.shape), len(second.shape))
    how = {
        "out_dtype": out_dtype,
        "acc_dtype": acc_dtype,
        "precision": precision,
        "stream": stream,
        "device": device,
    }
    return contracted(subscripts, first, second, out, how)  # type: ignore[no-any-return]


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
    require_place(device)
    first, second = array_of(a, "a", device), array_of(b, "b", device)
    subscripts = paired(axes, tuple(first.shape), tuple(second.shape))
    how = {
        "out_dtype": out_dtype,
        "acc_dtype": acc_dtype,
        "precision": precision,
        "stream": stream,
        "device": device,
    }
    return contracted(subscripts, first, second, out, how)  # type: ignore[no-any-return]


def array_of(array: Any, name: str, device: object) -> Any:
    """The array that views are made of. Subclasses of NumPy's array are taken as plain arrays, as
    numpy.einsum does.
    """
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


def layout_of(array: Any) -> Layout:
    return tuple(array.shape), strides_of(array)


# ---- which dimensions become which ----


class Groups(NamedTuple):
    """Labels in the order in which they become one dimension; those of a batch stay apart."""

    batch: tuple[Label, ...]
    rows: tuple[Label, ...]
    columns: tuple[Label, ...]
    summed: tuple[Label, ...]


class Arrangement(NamedTuple):
    """How arrays are seen: each in an order of dimensions, then in a shape of batch, rows and columns."""

    a: tuple[Sizes, Sizes]
    b: tuple[Sizes, Sizes]
    copies: bool  # of a or b
    out: tuple[Sizes, Sizes]
    out_copies: bool  # a given output cannot be seen so
    apart: Sizes  # the product's dimensions before they became one
    back: Sizes  # their order in the result

    @property
    def result_shape(self) -> Sizes:
        return tuple(self.apart[at] for at in self.back)


@lru_cache(maxsize=4096)
def arrangement(given: Subscripts, a: Layout, b: Layout, out_strides: Sizes | None) -> Arrangement:
    """The one that copies the fewest elements."""
    subscripts, sizes = fitted(given, a[0], b[0])
    in_a, in_b = steps(subscripts.a, a[1]), steps(subscripts.b, b[1])
    in_out = steps(subscripts.out, out_strides) if out_strides is not None else {}

    def copies(groups: Groups) -> tuple[int, int, int]:
        """How many elements of a, b and a given output are copied."""
        of_out = 0 if out_strides is None else copied(sizes, in_out, groups.rows, groups.columns)
        of_b = copied(sizes, in_b, groups.summed, groups.columns)
        return copied(sizes, in_a, groups.rows, groups.summed), of_b, of_out

    require_few_dimensions(len(subscripts.batch) + 2, len(subscripts.out))
    best = min(orders(subscripts, in_a, in_b, in_out), key=lambda groups: sum(copies(groups)))
    of_a, of_b, of_out = copies(best)
    dimensions = (*best.batch, *best.rows, *best.columns)
    batch, rows, columns, summed = (extents(sizes, group) for group in best)
    return Arrangement(
        a=(
            indices_of(subscripts.a, (*best.batch, *best.rows, *best.summed)),
            (*batch, prod(rows), prod(summed)),
        ),
        b=(
            indices_of(subscripts.b, (*best.batch, *best.summed, *best.columns)),
            (*batch, prod(summed), prod(columns)),
        ),
        copies=bool(of_a or of_b),
        out=(indices_of(subscripts.out, dimensions), (*batch, prod(rows), prod(columns))),
        out_copies=bool(of_out),
        apart=extents(sizes, dimensions),
        back=indices_of(dimensions, subscripts.out),
    )


def require_few_dimensions(*numbers: int) -> None:
    """Refuse more dimensions than a NumPy array can have: those of the stacked matrices, and those of the
    result.
    """
    if max(numbers) > argument_rules.MOST_DIMENSIONS:
        raise ShapeError(
            f"a, b: must have at most {argument_rules.MOST_DIMENSIONS} dimensions in the output, and 2 fewer"
            f" in a batch; got {max(numbers)}. Reshape them"
        )


def orders(
    subscripts: Subscripts, in_a: dict[Label, int], in_b: dict[Label, int], in_out: dict[Label, int]
) -> Iterator[Groups]:
    """A group is one dimension in the order in which it lies in memory, or in none; two arrays may disagree
    on it.
    """
    rows = {in_memory(subscripts.rows, array): None for array in (in_out, in_a)}
    columns = {in_memory(subscripts.columns, array): None for array in (in_out, in_b)}
    summed = {in_memory(subscripts.summed, array): None for array in (in_a, in_b)}
    return (Groups(subscripts.batch, *groups) for groups in product(rows, columns, summed))


def in_memory(group: tuple[Label, ...], strides: dict[Label, int]) -> tuple[Label, ...]:
    """The dimensions with the longest strides first. An array that does not exist yet has them in the order
    of its labels.
    """
    return tuple(sorted(group, key=lambda label: -abs(strides.get(label, 0))))


def copied(sizes: dict[Label, int], strides: dict[Label, int], *groups: tuple[Label, ...]) -> int:
    """How many elements of an array must be copied, because one of the groups is not a single dimension
    there.
    """
    elements = prod(sizes[label] for label in strides)
    whole = not elements or all(
        is_one(extents(sizes, group), tuple(strides[label] for label in group)) for group in groups
    )
    return 0 if whole else elements


def steps(labels: tuple[Label | None, ...], strides: Sizes) -> dict[Label, int]:
    return {label: stride for label, stride in zip(labels, strides, strict=True) if label is not None}


def extents(sizes: dict[Label, int], labels: tuple[Label, ...]) -> Sizes:
    return tuple(sizes[label] for label in labels)


def indices_of(labels: tuple[Label | None, ...], wanted: tuple[Label, ...]) -> Sizes:
    """Where the wanted labels are; first, dimensions without one, which have one element."""
    return (
        *(at for at, label in enumerate(labels) if label is None),
        *(labels.index(label) for label in wanted),
    )


# ---- the product ----


def contracted(subscripts: Subscripts, a: Any, b: Any, out: Any, how: dict[str, Any]) -> Any:
    target: Any = None if out is None else output_of(out)
    strides = strides_of(target) if out is not None and len(target.shape) == len(subscripts.out) else None
    plan = arrangement(subscripts, layout_of(a), layout_of(b), strides)
    if out is not None:
        require_output(target, a, plan.result_shape)
    aside = out is not None and (plan.out_copies or not is_written_directly(target, plan))
    require_no_copy_on_another_stream(how["stream"], plan.copies, aside)
    first, second = seen(a, plan.a), seen(b, plan.b)
    if out is None:
        return as_result(unmerged(matmul(first, second, **how), plan))
    stack = empty_beside(target, plan.out[1]) if aside else seen(target, plan.out)
    matmul(first, second, stack, **how)
    if aside:
        target[...] = unmerged(stack, plan)
    return out


def seen(array: Any, how: tuple[Sizes, Sizes]) -> Any:
    """As a stack of matrices."""
    order, shape = how
    return reshaped(permuted(array, order), shape)


def unmerged(stack: Any, plan: Arrangement) -> Any:
    """The product with every dimension of the result back in its place."""
    return permuted(reshaped(stack, plan.apart), plan.back)


def as_result(result: Any) -> Any:
    """NumPy's arrays without dimensions are scalars."""
    return result[()] if isinstance(result, np.ndarray) and not result.shape else result


def require_no_copy_on_another_stream(stream: Any, operands: bool, out: bool) -> None:
    if stream is not None and (operands or out):
        raise ArgumentError(
            f"stream: must be left out where {'out' if out else 'a or b'} is copied, which its framework"
            f" does on its own current stream; got {stream!r}. Make that stream the framework's current one"
        )


def is_written_directly(out: Any, plan: Arrangement) -> bool:
    """Whether matmul takes it as it lies: on a GPU, rows or columns must be contiguous."""
    if isinstance(out, np.ndarray):
        return True
    view = operand_of(seen(out, plan.out), "out")
    return view.device == HOST or argument_rules.lines_touch(view)


def output_of(out: Any) -> Any:
    out = plain(out)
    if not is_odd(out):
        operand_of(out, "out")
    require_views(out, "out")
    return out


def require_output(out: Any, a: Any, shape: Sizes) -> None:
    """Check a given output before anything is copied or launched."""
    if is_odd(out):
        argument_rules.require_writable_array(out)
        argument_rules.require_shape_of_output(tuple(out.shape), shape)
    else:
        argument_rules.require_output(operand_of(out, "out"), operand_of(a, "a"), shape, free_strides=True)
