"""Which dimensions of two operands and of the result become one, so that the contraction is a product of
matrices or of stacks of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

from lapidist.calls import argument_rules
from lapidist.contractions.subscripts import Label, Subscripts, fitted
from lapidist.errors import ShapeError
from lapidist.frameworks.array_views import Sizes, is_one, permuted, reshaped, strides_of

Strides = dict[Label, int]


class Layout(NamedTuple):
    shape: Sizes
    strides: Sizes

    @classmethod
    def of(cls, array: Any) -> Layout:
        return cls(tuple(array.shape), strides_of(array))


class Groups(NamedTuple):
    """Labels in the order in which they become one dimension. A batch keeps one dimension for each."""

    batch: tuple[Label, ...]
    rows: tuple[Label, ...]
    columns: tuple[Label, ...]
    summed: tuple[Label, ...]


class View(NamedTuple):
    """An order of an array's dimensions, and the shape of batch, rows and columns that they then take."""

    order: Sizes
    shape: Sizes

    def of(self, array: Any) -> Any:
        """An array as a stack of matrices."""
        return reshaped(permuted(array, self.order), self.shape)


class Arrangement(NamedTuple):
    a: View
    b: View
    copies: bool  # of a or b
    out: View
    out_copies: bool  # strides of `out` do not allow its view
    product_shape: Sizes  # before dimensions became one
    result_order: Sizes  # of the product's dimensions

    @property
    def result_shape(self) -> Sizes:
        return tuple(self.product_shape[axis] for axis in self.result_order)

    def result_of(self, stack: Any) -> Any:
        """The stack of products with the result's dimensions."""
        return permuted(reshaped(stack, self.product_shape), self.result_order)


@lru_cache(maxsize=4096)
def arrangement(subscripts: Subscripts, a: Layout, b: Layout, out_strides: Sizes | None) -> Arrangement:
    """The arrangement that copies the fewest elements."""
    subscripts, sizes = fitted(subscripts, a.shape, b.shape)
    in_a, in_b = strides_by_label(subscripts.a, a.strides), strides_by_label(subscripts.b, b.strides)
    in_out = strides_by_label(subscripts.out, out_strides) if out_strides is not None else {}

    def copies(groups: Groups) -> tuple[int, int, int]:
        """How many elements of a, b and `out` are copied."""
        of_out = 0 if out_strides is None else copied(sizes, in_out, groups.rows, groups.columns)
        of_b = copied(sizes, in_b, groups.summed, groups.columns)
        return copied(sizes, in_a, groups.rows, groups.summed), of_b, of_out

    require_few_dimensions(len(subscripts.batch) + 2, len(subscripts.out))
    best = min(orders(subscripts, in_a, in_b, in_out), key=lambda groups: sum(copies(groups)))
    of_a, of_b, of_out = copies(best)
    dimensions = (*best.batch, *best.rows, *best.columns)
    batch, rows, columns, summed = (extents(sizes, group) for group in best)
    a_labels, b_labels = (*best.batch, *best.rows, *best.summed), (*best.batch, *best.summed, *best.columns)
    return Arrangement(
        a=View(indices_of(subscripts.a, a_labels), (*batch, prod(rows), prod(summed))),
        b=View(indices_of(subscripts.b, b_labels), (*batch, prod(summed), prod(columns))),
        copies=bool(of_a or of_b),
        out=View(indices_of(subscripts.out, dimensions), (*batch, prod(rows), prod(columns))),
        out_copies=bool(of_out),
        product_shape=extents(sizes, dimensions),
        result_order=indices_of(dimensions, subscripts.out),
    )


def require_few_dimensions(*ranks: int) -> None:
    """Refuse more dimensions of the stacked matrices, or of the result, than a NumPy array can have."""
    if max(ranks) > argument_rules.MOST_DIMENSIONS:
        raise ShapeError(
            f"a, b: must have at most {argument_rules.MOST_DIMENSIONS} dimensions in the output, and 2 fewer"
            f" in a batch; got {max(ranks)}. Reshape them"
        )


def orders(subscripts: Subscripts, in_a: Strides, in_b: Strides, in_out: Strides) -> Iterator[Groups]:
    """The groups in the orders worth trying. A group is a single dimension in the order in which it lies in
    memory, or in none; two arrays may disagree on that order.
    """
    rows = {in_memory(subscripts.rows, strides): None for strides in (in_out, in_a)}
    columns = {in_memory(subscripts.columns, strides): None for strides in (in_out, in_b)}
    summed = {in_memory(subscripts.summed, strides): None for strides in (in_a, in_b)}
    return (Groups(subscripts.batch, *groups) for groups in product(rows, columns, summed))


def in_memory(group: tuple[Label, ...], strides: Strides) -> tuple[Label, ...]:
    """The labels with the longest strides first. An array that does not exist yet has them in their order."""
    return tuple(sorted(group, key=lambda label: -abs(strides.get(label, 0))))


def copied(sizes: dict[Label, int], strides: Strides, *groups: tuple[Label, ...]) -> int:
    """How many elements of an array are copied, because a group is not a single dimension there."""
    elements = prod(sizes[label] for label in strides)
    views = not elements or all(
        is_one(extents(sizes, group), tuple(strides[label] for label in group)) for group in groups
    )
    return 0 if views else elements


def strides_by_label(labels: tuple[Label | None, ...], strides: Sizes) -> Strides:
    return {label: stride for label, stride in zip(labels, strides, strict=True) if label is not None}


def extents(sizes: dict[Label, int], labels: tuple[Label, ...]) -> Sizes:
    return tuple(sizes[label] for label in labels)


def indices_of(labels: tuple[Label | None, ...], order: tuple[Label, ...]) -> Sizes:
    """Axes in the order of their labels, after those without a label, which have one element."""
    return (
        *(axis for axis, label in enumerate(labels) if label is None),
        *(labels.index(label) for label in order),
    )
