"""Calls with gathered rows and columns, scattered rows, permuted outputs, or alpha and beta in device memory.

Index arrays and scalars are read when the kernel runs, so their contents may change between runs of a plan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lapidist.backends import host_backend
from lapidist.calls import argument_rules
from lapidist.calls.arguments import Arguments
from lapidist.calls.operation import Operation, is_array
from lapidist.dtypes import number_type
from lapidist.errors import ArgumentError, DTypeError, ShapeError
from lapidist.frameworks.arrays import HOST, Operand, contiguous_strides, on_host, operand_of
from lapidist.frameworks.host_arrays import native
from lapidist.problems.modes import INDEX_TYPES, OF_ALL, OF_EACH, ExtraPointers, Group, Modes
from lapidist.problems.problem import MATRIX, Problem, alignment_of


class RoutedArguments(Arguments):
    """Arguments with routing, and with alpha and beta that may be arrays of one element."""

    def __init__(self, a: Any, b: Any, c: Any, out: Any, operation: Operation) -> None:
        self.routing = routing = operation.routing
        argument_rules.require_flag("permuted", routing.permuted)
        if routing.permuted and routing.scatter_d is not None:
            raise ArgumentError(
                "permuted: an output is either permuted or scattered; got both. Leave one of them out"
            )
        self.index = {
            name: index_of(getattr(routing, name), name)
            for name in INDEXED
            if getattr(routing, name) is not None
        }
        require_one_index_type(list(self.index.values()))
        super().__init__(a, b, c, out, operation)
        self.scalars = {
            name: self._scalar(name, getattr(operation, name))
            for name in NAMES
            if is_array(getattr(operation, name))
        }
        for operand in self.extras:
            argument_rules.require_same_device(operand, self.a)
        self._require_extras_apart()
        if self.out is None and (routing.permuted or "scatter_d" in self.index):
            raise ArgumentError(
                "out: must be given where the output is permuted or scattered; got None. Pass the array to"
                " write to"
            )
        self._check_index_shapes()
        self._check_indices()

    def _numbers(self) -> tuple[float, float]:
        """alpha and beta, with 1 in place of those that kernels read from memory."""
        given = ((name, getattr(self.operation, name)) for name in NAMES)
        alpha, beta = (
            1.0 if is_array(value) else argument_rules.require_scalar(name, value) for name, value in given
        )
        return alpha, beta

    def _scalar(self, name: str, value: Any) -> Operand:
        operand = operand_of(native(value), name)
        dtype = number_type(self.accumulator).name
        if math.prod(operand.shape) != 1:
            raise ShapeError(
                f"{name}: must be a number or an array of one element; got shape {operand.shape}. Take one"
                " element"
            )
        if operand.dtype != dtype and operand.device == HOST:
            number = argument_rules.require_scalar(name, on_host(operand).item())
            return operand_of(
                np.array(argument_rules.require_in_range(name, number, self.accumulator), dtype), name
            )
        if operand.dtype != dtype:
            raise DTypeError(
                f"{name}: an array must be {dtype}, as sums are scaled; got {operand.dtype}. Convert it"
            )
        return operand

    # ---- shapes ----

    def product_shape(self) -> tuple[int, int]:
        rows = self.index["gather_a"].shape[-1] if "gather_a" in self.index else self.a.shape[-2]
        cols = self.index["gather_b"].shape[-1] if "gather_b" in self.index else self.b.shape[-1]
        scattered = self.index.get("scatter_d")
        if scattered is not None and scattered.shape[-1] != rows:
            raise ShapeError(
                f"scatter_d: must name a row of out for each of the {rows} rows; got {scattered.shape[-1]}"
            )
        return rows, cols

    def _check_index_shapes(self) -> None:
        batch = self.shape[:-2]
        for name, operand in self.index.items():
            if operand.shape[:-1] not in ((), batch):
                raise ShapeError(
                    f"{name}: must be one dimension for all matrices, or have the batch's dimensions {batch}"
                    f" before it, a row of indices for each matrix; got shape {operand.shape}. Take one row,"
                    " or broadcast a or b to that batch"
                )

    def _check_c(self, c: Any) -> Operand:
        if "scatter_d" not in self.index:
            return super()._check_c(c)
        operand = operand_of(native(c), "c")
        argument_rules.require_type_of_output(operand, self.out_dtype)
        argument_rules.require_same_device(operand, self.a)
        return operand  # _check_out compares its shape with out's

    def _check_out(self, out: Any) -> Operand:
        if not self.routing.permuted and "scatter_d" not in self.index:
            return super()._check_out(out)
        operand = operand_of(out, "out")
        if operand.dtype != self.out_dtype:
            raise DTypeError(
                f"out: element type must be {self.out_dtype} where rows are scattered or the output is"
                f" permuted; got {operand.dtype}. Pass an array of {self.out_dtype}"
            )
        shape = (
            permuted_shape(operand, self.shape)
            if self.routing.permuted
            else scattered_shape(operand, self.shape)
        )
        argument_rules.require_output(
            operand, self.a, shape, free_strides=self.routing.permuted or operand.device == HOST
        )
        for other in (self.a, self.b):
            argument_rules.require_no_overlap(operand, other)
        if self.c is not None:
            if "scatter_d" in self.index and self.c.shape != operand.shape:
                raise ShapeError(
                    f"c: must have out's shape {operand.shape} where rows are scattered; got {self.c.shape}"
                )
            argument_rules.require_no_partial_overlap(operand, self.c)
        if self.routing.permuted or argument_rules.lines_touch(operand):
            return operand
        self.given = out
        return operand_of(on_host(operand).copy(), "out")  # a copy: rows that are not scattered to must stay

    def _check_indices(self) -> None:
        """Every index must be in range. On a GPU this is checked only on request, because it waits for the
        GPU. A row that scatter_d names twice gets the elements of either result, so it is refused on request.
        """
        limits = {
            "gather_a": self.a.shape[-2],
            "gather_b": self.b.shape[-1],
            "scatter_d": self.out.shape[-2] if self.out else 0,
        }
        for name, operand in self.index.items():
            if not math.prod(operand.shape) or not (self.routing.check_indices or operand.device == HOST):
                continue
            values = indices_of(operand)
            low, high = int(values.min()), int(values.max())
            if not (low >= 0 and high < limits[name]):
                wrong = low if low < 0 else high
                raise ArgumentError(
                    f"{name}: indices must lie between 0 and {limits[name] - 1}; got {wrong}. Correct them"
                )
            if name == "scatter_d" and self.routing.check_indices:
                require_once(values)

    # ---- what kernels are given ----

    def problem(self) -> Problem:
        plain = self.plain_output()
        c = self.c and (self.c.viewed(self.shape, self.c.strides) if "scatter_d" in self.index else self.c)
        a = self.a.viewed((*self.a.shape[:-2], self.shape[-2], self.a.shape[-1]), self.a.strides)
        b = self.b.viewed((*self.b.shape[:-1], self.shape[-1]), self.b.strides)
        if self.alpha == 0:
            a, b = (
                a.viewed((*a.shape[:-1], 0), a.strides),
                b.viewed((*b.shape[:-2], 0, b.shape[-1]), b.strides),
            )
        modes = self.modes()
        problem = Problem.of(
            a,
            b,
            c,
            plain,
            accumulator=self.accumulator,
            precision=self.precision,
            modes=modes,
            scaling=self.scaling(),
            fused=None if self.fused is None else self.fused.as_planned(),
            one_alpha=self.alpha == 1 and "alpha" not in self.scalars,
        )
        # One alignment for all: gathered rows and groups make the alignments of single operands useless.
        bits = min(
            alignment_of(operand, within)
            for operand, within in self._neighbours(plain)
            if operand is not None
        )
        first, second, last = (
            replace(matrix, alignment=bits) for matrix in (problem.a, problem.b, problem.d)
        )
        return replace(problem, a=first, b=second, d=last, c=problem.c and replace(problem.c, alignment=bits))

    def _neighbours(self, plain: Operand) -> list[tuple[Operand | None, tuple[int, ...]]]:
        """Each operand with the dimensions along which alignment counts. Gathered or scattered rows may start
        anywhere a row does, and so may groups.
        """
        rows = (-1,) if "scatter_d" in self.index else MATRIX
        a = (self.a, (-1,) if "gather_a" in self.index else MATRIX)
        b = (self.b, (-2,) if "gather_b" in self.index else MATRIX)
        d = (
            (plain, MATRIX)
            if self.out is None or self.stores_d
            else (self.out, (-1, -3) if self.routing.permuted else rows)
        )
        return [a, b, (self.c, rows), d]

    def plain_output(self) -> Operand:
        """The output as a matrix of m x n elements, with the strides within one group."""
        if self.out is None or self.stores_d:
            return self.planned_output()
        if not self.routing.permuted:
            return self.out.viewed(self.shape, self.out.strides)
        return self.out.viewed(
            self.shape, (*self.out.strides[:-4], self.out.strides[-3], self.out.strides[-1])
        )

    def modes(self) -> Modes:
        groups = None
        if self.routing.permuted and self.out is not None:
            (_, rows, _, cols), (row_step, row, col_step, col) = self.out.shape[-4:], self.out.strides[-4:]
            groups = Group(rows, row_step, row), Group(cols, col_step, col)
        index = next(iter(self.index.values())).dtype if self.index else "int32"
        gather_a, gather_b, scatter = (
            (OF_ALL if len(self.index[name].shape) == 1 else OF_EACH) if name in self.index else 0
            for name in INDEXED
        )
        more = {"index": index, "groups": groups, "scalars": bool(self.scalars)}
        return Modes(gather_a, gather_b, scatter, **more)  # type: ignore[arg-type]

    @property
    def extras(self) -> tuple[Operand, ...]:
        return (*self.index.values(), *self.scalars.values(), *super().extras)

    @property
    def extra_pointers(self) -> ExtraPointers:
        at = {name: operand.pointer for name, operand in (*self.index.items(), *self.scalars.items())}
        rows, cols, to = (at.get(name, 0) for name in INDEXED)
        return super().extra_pointers._replace(
            a_rows=rows, b_cols=cols, d_rows=to, alpha=at.get("alpha", 0), beta=at.get("beta", 0)
        )

    # ---- on the host ----

    def multiply_on_host(self, out: Operand) -> None:
        a, b, rows, alpha, beta = self.as_gathered()
        product = np.empty(self.d_shape, on_host(out).dtype)
        types = self.accumulator, self.precision
        host_backend.multiply(a, b, rows, product, alpha, beta, *types, finish=self.finish)
        self.to_host(product, out)

    def as_gathered(self) -> tuple[Any, Any, Any, float, float]:
        """A and B with rows and columns gathered, the rows of C that are read, alpha and beta."""
        index = {name: on_host(operand) for name, operand in self.index.items()}
        a, b = on_host(self.a), on_host(self.b)
        a = taken(a, index["gather_a"], -2) if "gather_a" in index else a
        b = taken(b, index["gather_b"], -1) if "gather_b" in index else b
        c = None if self.c is None else on_host(self.c)
        c = taken(c, index["scatter_d"], -2) if c is not None and "scatter_d" in index else c
        alpha, beta = (
            on_host(self.scalars[name]).item() if name in self.scalars else number
            for name, number in zip(NAMES, (self.alpha, self.beta), strict=True)
        )
        return a, b, c, alpha, beta

    def to_host(self, product: Any, out: Operand) -> None:
        """Write the product's rows where they belong."""
        target = on_host(out)
        if self.routing.permuted:
            target[...] = product.reshape(target.shape)
        elif "scatter_d" in self.index:
            rows = np.broadcast_to(on_host(self.index["scatter_d"]), product.shape[:-1])
            np.put_along_axis(target, rows[..., None], product, axis=-2)
        else:
            target[...] = product


NAMES = ("alpha", "beta")
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
    apart = 0 not in operand.shape and any(
        extent > 1 and stride != wanted for extent, stride, wanted in steps
    )
    if not operand.shape or apart:
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


def require_once(rows: np.ndarray[Any, Any]) -> None:
    """No row of out twice, in any matrix of a batch."""
    ordered = np.sort(rows, -1)
    twice = ordered[..., 1:][ordered[..., 1:] == ordered[..., :-1]]
    if twice.size:
        raise ArgumentError(
            f"scatter_d: must name a row of out once where check_indices is True; got row {twice[0]} twice."
            " Correct it, or leave check_indices out where either result will do"
        )


def taken(matrix: Any, index: Any, axis: int) -> Any:
    """Gathered rows (axis -2) or columns (axis -1). Matrices of a batch share the indices or have
    their own.
    """
    if index.ndim == 1:
        return np.take(matrix, index, axis)
    each = np.broadcast_to(matrix, (*index.shape[:-1], *matrix.shape[-2:]))
    return np.take_along_axis(each, np.expand_dims(index, -3 - axis), axis)


def require_one_index_type(operands: list[Operand]) -> None:
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
    wanted = (*product[:-2], *out.shape[-2:-1], product[-1])
    if out.shape != wanted:
        batch = f"batches of {product[:-2]}, " if len(product) > 2 else ""
        raise ShapeError(
            f"out: must have {batch}{product[-1]} columns and any number of rows to scatter to; got"
            f" {out.shape}"
        )
    return out.shape
