"""The operands of one call. Every rule is checked before anything is launched or written."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from lapidist.backends import host_backend
from lapidist.calls import argument_rules
from lapidist.calls.operation import Operation
from lapidist.calls.output_types import outputs_given, shape_of_d, type_of_d
from lapidist.dtypes import numpy_dtype
from lapidist.errors import DTypeError
from lapidist.frameworks.arrays import HOST, Operand, fresh, handed_over, on_host, operand_of, tell_written
from lapidist.frameworks.host_arrays import is_odd, native, promoted, write
from lapidist.problems.modes import NO_POINTERS, ExtraPointers
from lapidist.problems.problem import Problem
from lapidist.problems.scaling import AS_THEY_ARE, PROMOTED, Scaling

if TYPE_CHECKING:
    from lapidist.calls.epilogue_operands import FusedOperands
    from lapidist.epilogues.tracing import BoundEpilogue


class Arguments:
    """What a call multiplies: checked operands, and the types of result, sums and factors."""

    def __init__(self, a: Any, b: Any, c: Any, out: Any, operation: Operation) -> None:
        self.operation, types = operation, operation.types
        out, further = outputs_given(out, operation.epilogue)
        self.alpha, self.beta = self._numbers()
        argument_rules.require_c_for_beta(self.beta, c)
        self.a, self.b = operand_of(native(a), "a"), operand_of(native(b), "b")
        self.like = self.a
        for operand in (self.a, self.b):
            argument_rules.require_no_gradient(operand)
        self.no_kernel = argument_rules.why_no_kernel(self.a, self.b)
        argument_rules.require_same_device(self.b, self.a)
        if self.no_kernel and (isinstance(a, Operand) or isinstance(b, Operand)):
            raise DTypeError(self.no_kernel)
        if self.no_kernel:
            self.a, self.b = promoted(self.a, self.b, self.no_kernel)
        argument_rules.require_precision_for(types.precision, self.a)
        self.accumulator = argument_rules.require_accumulator(types.accumulator, self.a)
        self.promoted = argument_rules.require_promotion(types.promote, self.a)
        self.alpha = argument_rules.require_in_range("alpha", self.alpha, self.accumulator)
        self.beta = argument_rules.require_in_range("beta", self.beta, self.accumulator)
        for name, flag in (("trans_a", operation.trans_a), ("trans_b", operation.trans_b)):
            argument_rules.require_flag(name, flag, argument_rules.BLAS_FLAGS)
        given = self.a.shape, self.b.shape
        self.drop_row, self.drop_col = self._promote_vectors(operation.vectors)
        if operation.trans_a:
            self.a = self.a.transposed()
        if operation.trans_b:
            self.b = self.b.transposed()
        argument_rules.require_inner_match(self.a, self.b, given, operation.vectors)
        batch = argument_rules.broadcast_batch(self.a, self.b)
        self.shape = (*batch, *self.product_shape())
        self.d_shape = shape_of_d(self.shape, operation)
        named = type_of_d(operation, out)
        wanted, given_out = (None, None) if named else (types.out_dtype, out)
        self.out_dtype = argument_rules.require_output_type(wanted, given_out, self.a, self.b)  # of C, too
        self.d_dtype = named or self.out_dtype
        self.c = self._check_c(c) if self.beta != 0 else None
        self.given: Any = None  # the caller's output, where results reach it by a copy at the end
        self.out = None if out is None else self._check_out(out)
        followed_by = operation.epilogue
        self.fused = None if followed_by is None else self._fused_operands(followed_by, further)

    def _fused_operands(self, given: BoundEpilogue, outputs: tuple[Any, ...]) -> FusedOperands:
        """Imported here, so that processes without an epilogue do not load its many modules."""
        from lapidist.calls.epilogue_operands import FusedOperands

        return FusedOperands(given, self, outputs)

    def _require_extras_apart(self) -> None:
        """Outputs must not overlap factors, indices, alpha or beta: kernels read these while results are
        written.
        """
        further = self.fused.results.operands if self.fused else []
        written = [operand for operand in (self.out, *further) if operand is not None]
        for operand in self.extras:
            argument_rules.require_no_gradient(operand)
            for out in written:
                if out is not operand and operand.owner is not None and out.owner is not None:
                    argument_rules.require_no_overlap(out, operand)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """A, B, and C and the output if they are given."""
        return tuple(operand for operand in (self.a, self.b, self.c, self.out) if operand is not None)

    def _numbers(self) -> tuple[float, float]:
        """alpha and beta, as kernels get them."""
        return self.operation.alpha, self.operation.beta

    @property
    def alpha_beta(self) -> tuple[float, float]:
        return self.alpha, self.beta

    @property
    def precision(self) -> str:
        return self.operation.types.precision

    def product_shape(self) -> tuple[int, int]:
        return self.a.shape[-2], self.b.shape[-1]

    def fresh(self) -> Operand:
        """A description of the output that is to be allocated if the caller gives none."""
        return fresh("out", self.result_shape, self.like, self.d_dtype)

    def _promote_vectors(self, vectors: bool) -> tuple[bool, bool]:
        """A vector on the left becomes a row, one on the right a column. Returns which dimensions the result
        must drop.
        """
        row, col = len(self.a.shape) == 1, len(self.b.shape) == 1
        if vectors and row:
            self.a = self.a.viewed((1, *self.a.shape), (self.a.shape[0], *self.a.strides))
        if vectors and col:
            self.b = self.b.viewed((*self.b.shape, 1), (*self.b.strides, 1))
        argument_rules.require_matrix(self.a, vectors)
        argument_rules.require_matrix(self.b, vectors)
        return vectors and row, vectors and col

    def _check_c(self, c: Any) -> Operand:
        operand = operand_of(native(c), "c")
        argument_rules.require_type_of_output(operand, self.out_dtype)
        argument_rules.require_same_device(operand, self.a)
        argument_rules.require_no_gradient(operand)
        return argument_rules.broadcast_c(operand, self.shape)

    def _check_out(self, out: Any) -> Operand:
        if is_odd(out):
            argument_rules.require_writable_array(out)
            return self.full(self._copied_later(out, out.shape))
        operand = operand_of(out, "out")
        argument_rules.require_output(operand, self.a, self.result_shape, free_strides=operand.device == HOST)
        full = self.full(operand)
        # numpy.matmul allows an output that overlaps an operand
        numpys = operand.device == HOST and self.operation.vectors
        by_copy = numpys and (full.overlaps(self.a) or full.overlaps(self.b))
        if not by_copy:
            argument_rules.require_no_overlap(full, self.a)
            argument_rules.require_no_overlap(full, self.b)
        if self.c is not None and self.d_shape == self.shape:
            argument_rules.require_no_partial_overlap(full, self.c)
        elif self.c is not None:
            argument_rules.require_no_overlap(full, self.c)
        return (
            self.full(self._copied_later(out, operand.shape))
            if by_copy or not self._is_written_directly(operand)
            else full
        )

    def _is_written_directly(self, out: Operand) -> bool:
        return out.dtype == self.d_dtype and (argument_rules.lines_touch(out) or self.stores_d)

    def _copied_later(self, out: Any, shape: tuple[int, ...]) -> Operand:
        """A new array for the results; `deliver` copies them to `out`. For host arrays that kernels cannot
        write, or that overlap operands.
        """
        argument_rules.require_shape_of_output(shape, self.result_shape)
        self.given = out
        return operand_of(np.empty(shape, numpy_dtype(self.d_dtype)), "out")

    def deliver(self, result: Any) -> Any:
        """What the caller gets after the outputs were written; a tuple if an epilogue has several results."""
        d, further = self._delivered(result), self.fused.results.deliver() if self.fused else []
        return (d, *further) if further else d

    def _delivered(self, result: Any) -> Any:
        if self.given is not None:
            write(self.given, result)
            tell_written(self.given)
            return self.given
        if self.out is None:
            return handed_over(result, self.like)
        tell_written(result)
        return result

    def multiply_on_host(self, out: Operand) -> None:
        """The product by NumPy, with the kernels' semantics."""
        a, b, d = on_host(self.a), on_host(self.b), on_host(out)
        c = None if self.c is None else on_host(self.c)
        types, factors = (self.accumulator, self.precision), self.factors_on_host()
        host_backend.multiply(a, b, c, d, self.alpha, self.beta, *types, factors, self.finish)

    def factors_on_host(self) -> host_backend.Factors | None:
        return None

    @property
    def finish(self) -> Callable[[Any], Any] | None:
        """The epilogue as a function of NumPy arrays, which maps sums to what is stored. None: there is no
        epilogue.
        """
        return None if self.fused is None else self.fused.on_host

    @property
    def result_shape(self) -> tuple[int, ...]:
        """The shape that the caller sees, without the dimensions that were added to vectors."""
        return (*self.d_shape[:-2], *self.kept(self.d_shape[-2:]))

    def kept(self, matrix: tuple[int, ...]) -> tuple[int, ...]:
        """The extents of a matrix without the dimensions that were added to vectors."""
        return (() if self.drop_row else matrix[:1]) + (() if self.drop_col else matrix[1:])

    def full(self, out: Operand) -> Operand:
        """An output of `result_shape`, viewed with the dropped dimensions back in place."""
        if not (self.drop_row or self.drop_col):
            return out
        shape, strides = list(out.shape), list(out.strides)
        if self.drop_col:
            shape.append(1)
            strides.append(1)
        if self.drop_row:
            strides.insert(len(strides) - 1, shape[-1])
            shape.insert(len(shape) - 1, 1)
        return out.viewed(tuple(shape), tuple(strides))

    def problem(self) -> Problem:
        """The problem of these operands. alpha = 0 is asked as k = 0, because then A and B must not be read,
        whatever NaNs they hold.
        """
        a, b, out = self.a, self.b, self.planned_output()
        if self.alpha == 0:
            a = a.viewed((*a.shape[:-1], 0), a.strides)
            b = b.viewed((*b.shape[:-2], 0, b.shape[-1]), b.strides)
        how = {"accumulator": self.accumulator, "precision": self.precision, "one_alpha": self.alpha == 1}
        more = {"scaling": self.scaling(), "fused": self.fused and self.fused.as_planned()}
        return Problem.of(a, b, self.c, out, **how, **more)  # type: ignore[arg-type]

    @property
    def stores_d(self) -> bool:
        """Whether the epilogue stores D itself, from an operand of its own."""
        return self.operation.epilogue is not None and self.operation.epilogue.function.stores_d

    def planned_output(self) -> Operand:
        """D as a Problem describes it. Where the epilogue stores D, it is the shape of the sums, for which
        nothing is allocated.
        """
        return fresh("out", self.shape, self.like, self.out_dtype) if self.stores_d else self.output()

    def output(self) -> Operand:
        return self.out or self.full(self.fresh())

    def scaling(self) -> Scaling:
        return PROMOTED if self.promoted else AS_THEY_ARE

    @property
    def extras(self) -> tuple[Operand, ...]:
        """Further arrays that a kernel reads or writes, in the order of `extra_pointers`."""
        return self.fused.arrays if self.fused else ()

    @property
    def extra_pointers(self) -> ExtraPointers:
        return NO_POINTERS if self.fused is None else NO_POINTERS._replace(fused=self.fused.pointers)
