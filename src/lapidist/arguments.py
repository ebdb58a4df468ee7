"""The operands of one call, every rule checked: nothing has been launched or written when one fails."""

from __future__ import annotations

from typing import Any

from lapidist import checks
from lapidist.arrays import Operand, contiguous_strides, operand_of
from lapidist.form import Form
from lapidist.modes import NOWHERE, Places
from lapidist.problem import Problem
from lapidist.scaling import Scaling


class Arguments:
    """What a call multiplies: operands as the product takes them, and the types of result, sums and factors."""

    def __init__(self, a: Any, b: Any, c: Any, out: Any, form: Form) -> None:
        self.form, wanted = form, form.wanted
        self.alpha, self.beta = self._numbers()
        checks.require_c_for_beta(self.beta, c)
        self.a, self.b = operand_of(a, "a"), operand_of(b, "b")
        for operand in (self.a, self.b):
            checks.require_supported(operand)
            checks.require_no_gradient(operand)
        checks.require_types_that_multiply(self.a, self.b)
        checks.require_same_device(self.b, self.a)
        checks.require_precision_for(wanted.precision, self.a)
        self.accumulator = checks.require_accumulator(wanted.accumulator, self.a)
        self.promoted = checks.require_promotion(wanted.promote, self.a)
        for name, value in (("alpha", self.alpha), ("beta", self.beta)):
            checks.require_in_range(name, value, self.accumulator)
        for name, flag in (("trans_a", form.trans_a), ("trans_b", form.trans_b)):
            checks.require_flag(name, flag, "BLAS' 'N' is False, 'T' is True")
        given = self.a.shape, self.b.shape
        self.drop_row, self.drop_col = self._promote_vectors(form.vectors)
        if form.trans_a:
            self.a = self.a.transposed()
        if form.trans_b:
            self.b = self.b.transposed()
        checks.require_inner_match(self.a, self.b, given, form.vectors)
        batch = checks.broadcast_batch(self.a, self.b)
        self.shape = (*batch, *self.product_shape())
        self.out_dtype = checks.require_output_type(wanted.out_dtype, out, self.a, self.b)
        self.c = self._check_c(c) if self.beta != 0 else None
        self.out = None if out is None else self._check_out(out)

    def again(self, a: Any, b: Any, c: Any, out: Any) -> Arguments:
        """The same call on other arrays."""
        return type(self)(a, b, c, out, self.form)

    def _numbers(self) -> tuple[float, float]:
        """alpha and beta, as kernels get them."""
        return self.form.alpha, self.form.beta

    @property
    def precision(self) -> str:
        return self.form.wanted.precision

    def product_shape(self) -> tuple[int, int]:
        return self.a.shape[-2], self.b.shape[-1]

    def fresh(self) -> Operand:
        """The output that will be made where none is given."""
        return fresh_output(self.result_shape, self.a, self.out_dtype)

    def _promote_vectors(self, vectors: bool) -> tuple[bool, bool]:
        """matmul takes vectors as NumPy does: a row on the left, a column on the right, dropped from the result."""
        row, col = len(self.a.shape) == 1, len(self.b.shape) == 1
        if vectors and row:
            self.a = self.a.viewed((1, *self.a.shape), (self.a.shape[0], *self.a.strides))
        if vectors and col:
            self.b = self.b.viewed((*self.b.shape, 1), (*self.b.strides, 1))
        checks.require_matrix(self.a, vectors)
        checks.require_matrix(self.b, vectors)
        return vectors and row, vectors and col

    def _check_c(self, c: Any) -> Operand:
        operand = operand_of(c, "c")
        checks.require_type_of_output(operand, self.out_dtype)
        checks.require_same_device(operand, self.a)
        checks.require_no_gradient(operand)
        return checks.broadcast_c(operand, self.shape)

    def _check_out(self, out: Any) -> Operand:
        operand = operand_of(out, "out")
        checks.require_output(operand, self.a, self.result_shape)
        full = self.full(operand)
        checks.require_no_overlap(full, self.a)
        checks.require_no_overlap(full, self.b)
        if self.c is not None:
            checks.require_no_partial_overlap(full, self.c)
        return full

    @property
    def result_shape(self) -> tuple[int, ...]:
        """The shape that the caller sees: without the dimensions that vectors brought."""
        rows = () if self.drop_row else self.shape[-2:-1]
        cols = () if self.drop_col else self.shape[-1:]
        return (*self.shape[:-2], *rows, *cols)

    def full(self, out: Operand) -> Operand:
        """An output of `result_shape`, seen with the dropped dimensions back in place."""
        if not (self.drop_row or self.drop_col):
            return out
        strides = list(out.strides)
        if self.drop_col:
            strides.append(1)
        if self.drop_row:
            strides.insert(len(strides) - 1, self.shape[-1])
        return out.viewed(self.shape, tuple(strides))

    def problem(self) -> Problem:
        """k = 0 stands for alpha = 0 too: A and B, NaN and all, are not read."""
        a, b, out = self.a, self.b, self.out or self.full(self.fresh())
        if self.alpha == 0:
            a = a.viewed((*a.shape[:-1], 0), a.strides)
            b = b.viewed((*b.shape[:-2], 0, b.shape[-1]), b.strides)
        how = {"accumulator": self.accumulator, "precision": self.precision, "one_alpha": self.alpha == 1}
        return Problem.of(a, b, self.c, out, **how, scaling=self.scaling())  # type: ignore[arg-type]

    def scaling(self) -> Scaling:
        return Scaling(promoted=self.promoted)

    @property
    def extras(self) -> tuple[Operand, ...]:
        """Arrays beside a, b, c and out that take part; `places` says where."""
        return ()

    @property
    def places(self) -> Places:
        return NOWHERE


def fresh_output(shape: tuple[int, ...], like: Operand, dtype: str) -> Operand:
    """What a new output will look like, before it exists: frameworks align new arrays to 64 bytes and more, NumPy to 16."""
    return Operand("out", 0, shape, contiguous_strides(shape), dtype, like.device, like.framework, None)
