"""Gathered rows and columns, scattered rows, permuted outputs.

Index arrays are read when the kernel runs, so their contents may change between runs of a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from lapidist.backends.host_product import HostProduct
from lapidist.calls import argument_rules, number_rules
from lapidist.calls.operation import Routing
from lapidist.calls.part import Grouping, Matrices, Part, ProblemInputs
from lapidist.errors import ArgumentError, DTypeError, ShapeError
from lapidist.frameworks.arrays import HOST, Operand, contiguous_strides, operand_of
from lapidist.frameworks.host_arrays import on_host
from lapidist.problems.matrix import MATRIX, alignment_of
from lapidist.problems.modes import INDEX_TYPES, OF_ALL, OF_EACH, ExtraPointers, Group, Modes

Array = np.ndarray[Any, Any]


class IndexOperands(Part):
    """Index arrays of rows and columns, and whether the output is permuted."""

    def __init__(self, routing: Routing) -> None:
        self._permuted, self._check_indices = routing.permuted, routing.check_indices
        number_rules.require_flag("permuted", routing.permuted)
        if routing.permuted and routing.scatter_d is not None:
            raise ArgumentError(
                "permuted: an output is either permuted or scattered; got both. Leave one of them out"
            )
        arrays = zip(INDEXED, (routing.gather_a, routing.gather_b, routing.scatter_d), strict=True)
        self._by_name = {name: index_of(array, name) for name, array in arrays if array is not None}
        self.arrays = tuple(self._by_name.values())
        require_one_index_type(self.arrays)

    # ---- rules ----

    @property
    def scattered_rows(self) -> Operand | None:
        return self.get("scatter_d")

    def get(self, name: str) -> Operand | None:
        """The index array of that argument."""
        return self._by_name.get(name)

    @property
    def gathers_a(self) -> bool:
        return "gather_a" in self._by_name

    @property
    def moves_results(self) -> bool:
        """Whether rows or columns of the product lie elsewhere in the output."""
        return bool(self._permuted) or self.scattered_rows is not None

    def picked(self, rows: int, cols: int) -> tuple[int, int]:
        """The product's rows and columns, of a and b that have so many."""
        rows = self._count("gather_a") if "gather_a" in self._by_name else rows
        cols = self._count("gather_b") if "gather_b" in self._by_name else cols
        scattered = self.scattered_rows
        if scattered is not None and scattered.shape[-1] != rows:
            raise ShapeError(
                f"scatter_d: must name a row of out for each of the {rows} rows; got {scattered.shape[-1]}."
                " Gather the rows of a that have one"
            )
        return rows, cols

    def checked_output(self, out: Any, matrices: Matrices) -> Operand:
        """An output to which rows are scattered, or whose rows and columns are permuted."""
        operand, shape = operand_of(out, "out"), matrices.extents.shape
        if operand.dtype != matrices.out_dtype:
            raise DTypeError(
                f"out: element type must be {matrices.out_dtype} where rows are scattered or the output is"
                f" permuted; got {operand.dtype}. Pass an array of {matrices.out_dtype}"
            )
        shape = permuted_shape(operand, shape) if self._permuted else scattered_shape(operand, shape)
        argument_rules.require_output(
            operand, matrices.a, shape, free_strides=self._permuted or operand.device == HOST
        )
        for matrix in (matrices.a, matrices.b):
            argument_rules.require_no_overlap(operand, matrix)
        if matrices.c is not None:
            if self.scattered_rows is not None and matrices.c.shape != operand.shape:
                raise ShapeError(
                    f"c: must have out's shape {operand.shape} where rows are scattered; got"
                    f" {matrices.c.shape}"
                )
            argument_rules.require_no_partial_overlap(operand, matrices.c)
        return operand

    def writes_to(self, out: Operand) -> bool:
        """Whether kernels write to an output that lies like this."""
        return self._permuted or argument_rules.lines_touch(out)

    def require_fit(self, matrices: Matrices) -> None:
        """The output is there, the indices belong to this product and are in range."""
        self._groups: Grouping | None = matrices.groups
        if matrices.out is None and self.moves_results:
            raise ArgumentError(
                "out: must be given where the output is permuted or scattered; got None. Pass the array to"
                " write to"
            )
        batch = matrices.extents.shape[:-2]
        for name, operand in self._by_name.items():
            if operand.shape[:-1] not in ((), batch):
                raise ShapeError(
                    f"{name}: must be one dimension for all matrices, or have the batch's dimensions {batch}"
                    f" before it, a row of indices for each matrix; got shape {operand.shape}. Take one row,"
                    " or broadcast a or b to that batch"
                )
        self._require_range(matrices)

    def _require_range(self, matrices: Matrices) -> None:
        """Every index must be in range. On a GPU this is checked only on request, because it waits for the
        GPU. A row that scatter_d names twice gets the elements of either result, so it is refused on request.
        """
        limits = {
            "gather_a": matrices.a.shape[-2],
            "gather_b": matrices.b.shape[-1],
            "scatter_d": matrices.out.shape[-2] if matrices.out else 0,
        }
        for name, operand in self._by_name.items():
            if not (self._check_indices or operand.device == HOST):
                continue
            values = self._used(indices_of(operand))
            if not values.size:
                continue
            low, high = int(values.min()), int(values.max())
            if not (low >= 0 and high < limits[name]):
                wrong = low if low < 0 else high
                raise ArgumentError(
                    f"{name}: indices must lie between 0 and {limits[name] - 1}; got {wrong}. Correct them"
                )
            if name == "scatter_d" and self._check_indices:
                require_once(values, "check_indices" if self._groups is None else "check_offsets")

    def _count(self, name: str) -> int:
        return int(self._by_name[name].shape[-1])

    def _used(self, indices: Array) -> Array:
        """Those of rows that groups have. What lies behind the last group is not read."""
        return indices if self._groups is None else self._groups.lines_of_groups(indices)

    # ---- what kernels are given ----

    def described(self, inputs: ProblemInputs) -> ProblemInputs:
        """The matrices have the product's extents. All have one alignment: gathered rows and groups make the
        alignments of single operands useless.
        """
        a, b, c, d, shape = inputs.a, inputs.b, inputs.c, inputs.d, inputs.shape
        strides = (*d.strides[:-4], d.strides[-3], d.strides[-1]) if self._permuted else d.strides
        return inputs._replace(
            a=a.viewed((*a.shape[:-2], shape[-2], a.shape[-1]), a.strides),
            b=b.viewed((*b.shape[:-1], shape[-1]), b.strides),
            c=c if c is None or self.scattered_rows is None else c.viewed(shape, c.strides),
            d=d.viewed(shape, strides),
            modes=self._modes(d),
            alignment=self._alignment(a, b, c, d),
        )

    def _alignment(self, a: Operand, b: Operand, c: Operand | None, d: Operand) -> int:
        """Along the dimensions that count. Gathered or scattered rows may start anywhere a row does, and so
        may groups.
        """
        rows = MATRIX if self.scattered_rows is None else (-1,)
        dimensions = [
            (a, (-1,) if "gather_a" in self._by_name else MATRIX),
            (b, (-2,) if "gather_b" in self._by_name else MATRIX),
            (d, (-1, -3) if self._permuted else rows),
            *([] if c is None else [(c, rows)]),
        ]
        return min(alignment_of(operand, within) for operand, within in dimensions)

    def _modes(self, d: Operand) -> Modes:
        groups = None
        if self._permuted:
            (_, rows, _, cols), (row_step, row, col_step, col) = d.shape[-4:], d.strides[-4:]
            groups = Group(rows, row_step, row), Group(cols, col_step, col)
        gather_a, gather_b, scatter = (
            (OF_ALL if len(self._by_name[name].shape) == 1 else OF_EACH) if name in self._by_name else 0
            for name in INDEXED
        )
        index = self.arrays[0].dtype if self.arrays else "int32"
        return Modes(gather_a, gather_b, scatter, index=index, groups=groups)

    def with_pointers(self, pointers: ExtraPointers) -> ExtraPointers:
        at = {name: operand.pointer for name, operand in self._by_name.items()}
        rows, cols, to = (at.get(name, 0) for name in INDEXED)
        return pointers._replace(a_rows=rows, b_cols=cols, d_rows=to)

    # ---- on the host ----

    def rows_of_a(self, values: Array) -> Array:
        """Of one value for each row of a, those of the rows that are gathered."""
        return values[self._used(on_host(self._by_name["gather_a"]))]

    def on_host(self, product: HostProduct) -> HostProduct:
        """With rows and columns gathered, and the rows of C that are read. Results go to a new array first,
        and from there to where they belong.
        """
        index = {name: self._used(on_host(operand)) for name, operand in self._by_name.items()}
        a, b, c, out = product[:4]
        if "gather_a" in index:
            a = gathered(a, index["gather_a"], -2)
            behind = self._count("gather_a") - a.shape[-2]  # rows behind the last group, which out has too
            if behind and "scatter_d" not in index:
                a = np.pad(a, ((0, behind), (0, 0)))
        b = gathered(b, index["gather_b"], -1) if "gather_b" in index else b
        product = product._replace(a=a, b=b)
        if self._permuted:
            *batch, m1, m0, n1, n0 = out.shape
            results = np.empty((*batch, m1 * m0, n1 * n0), out.dtype)
            return product._replace(out=results, store=partial(permute, out))
        if "scatter_d" in index:
            rows = index["scatter_d"]
            results = gathered(out, rows, -2)  # a copy: rows that belong to no group stay as they are
            c = None if c is None else gathered(c, rows, -2)
            return product._replace(c=c, out=results, store=partial(scatter, out, rows))
        return product


def permute(target: Array, results: Array) -> None:
    target[...] = results.reshape(target.shape)


def scatter(target: Array, rows: Array, results: Array) -> None:
    """Write rows of a product where `rows` says."""
    rows = np.broadcast_to(rows, results.shape[:-1])
    np.put_along_axis(target, rows[..., None], results, axis=-2)


INDEXED = ("gather_a", "gather_b", "scatter_d")


def index_of(array: Any, name: str) -> Operand:
    if isinstance(array, Sequence):
        raise DTypeError(
            f"{name}: must be an array of int32 or int64; got {type(array).__name__}. Make an array of it"
        )
    operand = operand_of(array, name)
    if operand.dtype not in INDEX_TYPES:
        raise DTypeError(
            f"{name}: must be of {' or '.join(INDEX_TYPES)}; got {operand.dtype}. Convert it first"
        )
    steps = zip(operand.shape, operand.strides, contiguous_strides(operand.shape), strict=True)
    has_gaps = 0 not in operand.shape and any(
        extent > 1 and stride != packed_stride for extent, stride, packed_stride in steps
    )
    if not operand.shape or has_gaps:
        raise ShapeError(
            f"{name}: must be one contiguous dimension, or a row of indices for each matrix of a batch, one"
            f" after another; got shape {operand.shape}, strides {operand.strides}. Copy it"
        )
    return operand


def indices_of(operand: Operand) -> np.ndarray[Any, Any]:
    """Their values, which waits for a GPU that they are on."""
    if operand.device == HOST:
        return on_host(operand)
    if operand.framework == "cupy":
        return operand.owner.get()
    return np.asarray(operand.owner.cpu() if operand.framework == "torch" else operand.owner)


def require_once(rows: np.ndarray[Any, Any], flag: str) -> None:
    """No row of out twice, in any matrix of a batch."""
    ordered = np.sort(rows, -1)
    twice = ordered[..., 1:][ordered[..., 1:] == ordered[..., :-1]]
    if twice.size:
        raise ArgumentError(
            f"scatter_d: must name a row of out once where {flag} is True; got row {twice[0]} twice."
            f" Correct it, or leave {flag} out where either result will do"
        )


def gathered(matrix: Any, index: Any, axis: int) -> Any:
    """Gathered rows (axis -2) or columns (axis -1). Matrices of a batch share the indices or have
    their own.
    """
    if index.ndim == 1:
        return np.take(matrix, index, axis)
    matrices = np.broadcast_to(matrix, (*index.shape[:-1], *matrix.shape[-2:]))
    return np.take_along_axis(matrices, np.expand_dims(index, -3 - axis), axis)


def require_one_index_type(operands: Sequence[Operand]) -> None:
    for operand in operands[1:]:
        if operand.dtype != operands[0].dtype:
            raise DTypeError(
                f"{operand.name}: must have the type of {operands[0].name}, {operands[0].dtype}; got"
                f" {operand.dtype}. Convert one"
            )


def permuted_shape(out: Operand, product: tuple[int, ...]) -> tuple[int, ...]:
    """The batch's dimensions, then m1, m0, n1 and n0: rows in groups, columns in groups."""
    batch, (m1, m0, n1, n0) = out.shape[:-4], out.shape[-4:] if len(out.shape) >= 4 else (0,) * 4
    if (*batch, m1 * m0, n1 * n0) != product or len(out.shape) < 4:
        raise ShapeError(
            "out: where permuted, must have four dimensions (m1, m0, n1, n0) with m1 m0 and n1 n0 the"
            f" product's {product[-2:]}, after those of the batch, {product[:-2]}; got {out.shape}. A"
            " permutation is its strides: permute a contiguous array and pass the view"
        )
    return out.shape


def scattered_shape(out: Operand, product: tuple[int, ...]) -> tuple[int, ...]:
    expected = (*product[:-2], *out.shape[-2:-1], product[-1])
    if out.shape != expected:
        batch = f"batches of {product[:-2]}, " if len(product) > 2 else ""
        raise ShapeError(
            f"out: must have {batch}{product[-1]} columns and any number of rows to scatter to; got"
            f" {out.shape}"
        )
    return out.shape
