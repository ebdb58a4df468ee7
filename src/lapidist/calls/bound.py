"""The operands of one call. Every rule is checked before anything is launched or written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lapidist.backends import host_product
from lapidist.backends.host_product import HostProduct
from lapidist.calls import argument_rules, number_rules
from lapidist.calls.operation import Groups, Operation, is_array
from lapidist.calls.output_types import checked_outputs, shape_of_d, type_of_d
from lapidist.calls.part import Extents, Part, ProblemInputs, with_alignment
from lapidist.dtypes import COMPLEX_HALVES, PART_OF, complex_product, numpy_dtype
from lapidist.errors import DTypeError
from lapidist.frameworks.arrays import HOST, Operand, operand_of
from lapidist.frameworks.host_arrays import is_odd, native, on_host, promoted, write
from lapidist.frameworks.new_arrays import fresh, handed_over, require_addressable, tell_written
from lapidist.problems.modes import NO_POINTERS, ExtraPointers
from lapidist.problems.problem import Problem
from lapidist.problems.scaling import AS_THEY_ARE, PROMOTED

if TYPE_CHECKING:
    from lapidist.calls.epilogue_operands import EpilogueOperands
    from lapidist.calls.factor_operands import FactorOperands
    from lapidist.calls.group_operands import GroupOperands
    from lapidist.calls.guard_operand import GuardOperand
    from lapidist.calls.index_operands import IndexOperands
    from lapidist.calls.scalar_operands import ScalarOperands


class Bound:
    """The operands of a call, bound to one product: a, b, c and out, and a part for each other kind. Modules
    of parts are imported by the first call that has one.
    """

    def __init__(self, a: Any, b: Any, c: Any, out: Any, operation: Operation) -> None:
        self.indices: IndexOperands | None = None
        self.groups: GroupOperands | None = None
        self.scalars: ScalarOperands | None = None
        self.guard: GuardOperand | None = None
        self.factors: FactorOperands | None = None
        self.epilogue: EpilogueOperands | None = None
        self.parts: tuple[Part, ...] = ()
        if operation.routed:
            self._bind_indices(operation)
        else:
            operation = operation.with_numbers()
        if operation.groups is not None:
            self._bind_groups(operation.groups)
        self.operation, types = operation, operation.types
        out, further = checked_outputs(out, operation.epilogue)
        self.alpha, self.beta = numbers_of(operation)
        number_rules.require_c_for_beta(self.beta, c)
        self._bind_matrices(a, b)
        wide = self.b if self.is_complex and self.a.dtype not in PART_OF else self.a
        argument_rules.require_precision_for(types.precision, wide)
        self.accumulator = argument_rules.require_accumulator(types.accumulator, wide)
        self.promoted = argument_rules.require_promotion(types.promote, self.a, self.accumulator)
        self.alpha = number_rules.require_in_range("alpha", self.alpha, self.accumulator)
        self.beta = number_rules.require_in_range("beta", self.beta, self.accumulator)
        self.extents = self._extents_of_product()
        self.shape = self.extents.shape  # the product's, with the dimensions that were added to vectors
        if types.bits:
            number_rules.require_reach(types.bits, self.a.shape[-1])
        self.d_shape = shape_of_d(self.shape, operation)
        of_epilogue = type_of_d(operation, out)
        dtype, array = (None, None) if of_epilogue else (types.out_dtype, out)
        self.out_dtype = argument_rules.require_output_type(dtype, array, self.a, self.b)  # of C, too
        self.d_dtype = of_epilogue or self.out_dtype
        self.c = self._check_c(c) if self.beta != 0 else None
        self.copied_to: Any = None  # the caller's output, where results reach it by a copy at the end
        if out is None:
            require_addressable(self.shape, self.d_dtype)
        self.out = None if out is None else self._check_out(out)
        self._bind_parts(further)

    # ---- matrices ----

    def _bind_matrices(self, a: Any, b: Any) -> None:
        self.a, self.b = operand_of(native(a), "a"), operand_of(native(b), "b")
        self.like = self.a
        for operand in (self.a, self.b):
            argument_rules.require_no_gradient(operand)
        self.no_kernel = argument_rules.why_no_kernel(self.a, self.b)
        argument_rules.require_same_device(self.b, self.a)
        if not self.no_kernel or self.is_complex:
            return
        if isinstance(a, Operand) or isinstance(b, Operand):
            raise DTypeError(self.no_kernel)
        self.a, self.b = promoted(self.a, self.b, self.no_kernel)

    def _extents_of_product(self) -> Extents:
        """Transpose a and b where that is asked for; vectors become matrices."""
        operation = self.operation
        for name, flag in (("trans_a", operation.trans_a), ("trans_b", operation.trans_b)):
            number_rules.require_op(name, flag)
        shapes = self.a.shape, self.b.shape
        drop_row, drop_col = self._promote_vectors(operation.vectors)
        if operation.trans_a:
            self.a = applied(operation.trans_a, self.a)
        if operation.trans_b:
            self.b = applied(operation.trans_b, self.b)
        if self.groups is not None:
            return self.groups.extents(self.a, self.b, self.indices)
        argument_rules.require_inner_match(self.a, self.b, shapes, operation.vectors)
        batch = argument_rules.broadcast_batch(self.a, self.b)
        matrix = self.a.shape[-2], self.b.shape[-1]
        if self.indices is not None:
            matrix = self.indices.picked(*matrix)
        return Extents((*batch, *matrix), drop_row, drop_col)

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
        if self.indices is not None and self.scattered_rows is not None:
            return operand  # its shape is compared with out's
        return argument_rules.broadcast_c(operand, self.shape)

    def _check_out(self, out: Any) -> Operand:
        if self.indices is not None and self.indices.moves_results:
            operand = self.indices.checked_output(out, self)
            if self.indices.writes_to(operand):
                return operand
            self.copied_to = out
            return operand_of(on_host(operand).copy(), "out")  # rows that are not scattered to must stay
        if is_odd(out):
            argument_rules.require_writable_array(out)
            return self.full(self._copied_later(out, out.shape))
        operand = operand_of(out, "out")
        argument_rules.require_output(operand, self.a, self.result_shape, free_strides=operand.device == HOST)
        full = self.full(operand)
        # numpy.matmul allows an output that overlaps an operand
        numpys = operand.device == HOST and self.operation.vectors and not self.is_of_halves
        by_copy = numpys and (full.overlaps(self.a) or full.overlaps(self.b))
        if not by_copy:
            argument_rules.require_no_overlap(full, self.a)
            argument_rules.require_no_overlap(full, self.b)
        if self.c is not None and self.d_shape == self.shape:
            argument_rules.require_no_partial_overlap(full, self.c)
        elif self.c is not None:
            argument_rules.require_no_overlap(full, self.c)
        if by_copy or not self._is_written_directly(operand):
            return self.full(self._copied_later(out, operand.shape))
        return full

    def _is_written_directly(self, out: Operand) -> bool:
        lies = argument_rules.lines_touch(out) or self.stores_d or self.is_of_halves
        return out.dtype == self.d_dtype and lies

    def _copied_later(self, out: Any, shape: tuple[int, ...]) -> Operand:
        """A new array for the results; `deliver` copies them to `out`. For host arrays that kernels cannot
        write, or that overlap operands.
        """
        argument_rules.require_shape_of_output(shape, self.result_shape)
        self.copied_to = out
        return operand_of(np.empty(shape, numpy_dtype(self.d_dtype)), "out")

    # ---- parts ----

    def _bind_groups(self, groups: Groups) -> None:
        from lapidist.calls.group_operands import GroupOperands

        self.groups = GroupOperands(groups)

    def _bind_indices(self, operation: Operation) -> None:
        from lapidist.calls.index_operands import IndexOperands

        self.indices = IndexOperands(operation.routing)

    def _bind_parts(self, further: tuple[Any, ...]) -> None:
        """Bind the parts that are checked after the matrices. `further`: outputs beside D."""
        operation = self.operation
        if operation.epilogue is not None:
            from lapidist.calls.epilogue_operands import EpilogueOperands

            self.epilogue = EpilogueOperands(operation.epilogue, self, further)
        if self.indices is not None and (is_array(operation.alpha) or is_array(operation.beta)):
            from lapidist.calls.scalar_operands import ScalarOperands

            self.scalars = ScalarOperands(operation, self.accumulator)
        if operation.factors.any:
            from lapidist.calls.factor_operands import FactorOperands

            self.factors = FactorOperands(operation, self, self.indices)
        if operation.guard is not None:
            from lapidist.calls.guard_operand import GuardOperand

            self.guard = GuardOperand(operation.guard)
        parts = self.indices, self.groups, self.scalars, self.guard, self.factors, self.epilogue
        if any(parts):
            self.parts = tuple(part for part in parts if part is not None)
        extras = self.extras
        if self.indices is not None or self.groups is not None:
            for operand in extras:
                argument_rules.require_same_device(operand, self.a)
        if self.indices is not None or self.groups is not None or self.factors is not None:
            self._require_disjoint_parts(extras)
        if self.indices is not None:
            self.indices.require_fit(self)
        if self.groups is not None:
            self.groups.require_fit(self)
        if self.factors is not None:
            self.factors.require_promotion(operation.types.promote)

    def _require_disjoint_parts(self, extras: tuple[Operand, ...]) -> None:
        """Outputs must not overlap factors, indices, alpha or beta: kernels read these while results are
        written.
        """
        results = self.results
        for operand in extras:
            argument_rules.require_no_gradient(operand)
            for out in results:
                if out is not operand and operand.owner is not None:
                    argument_rules.require_no_overlap(out, operand)

    @property
    def extras(self) -> tuple[Operand, ...]:
        """Arrays of parts that a kernel reads or writes, in the order of `extra_pointers`."""
        return tuple([operand for part in self.parts for operand in part.arrays])

    @property
    def extra_pointers(self) -> ExtraPointers:
        pointers = NO_POINTERS
        for part in self.parts:
            pointers = part.with_pointers(pointers)
        return pointers

    @property
    def results(self) -> list[Operand]:
        """The caller's arrays for results: D's, and those of parts."""
        results = (self.out, *(operand for part in self.parts for operand in part.results))
        return [operand for operand in results if operand is not None and operand.owner is not None]

    @property
    def scattered_rows(self) -> Operand | None:
        """The rows of out that take the result, if they are scattered."""
        return None if self.indices is None else self.indices.scattered_rows

    # ---- shapes and types ----

    @property
    def operands(self) -> tuple[Operand, ...]:
        """A, B, and C and the output if they are given."""
        return tuple(operand for operand in (self.a, self.b, self.c, self.out) if operand is not None)

    @property
    def is_complex(self) -> bool:
        """Whether it is a product of complex numbers that several launches make."""
        return bool(complex_product(self.a.dtype, self.b.dtype))

    @property
    def is_of_halves(self) -> bool:
        """Whether its complex numbers are of torch alone, which NumPy cannot hold."""
        return self.out_dtype == COMPLEX_HALVES

    @property
    def takes_complex(self) -> bool:
        """Whether launches are made of a complex product with these parts."""
        operation = self.operation
        return self.is_complex and not operation.factors.any and self.groups is None

    @property
    def alpha_beta(self) -> tuple[float, float]:
        return self.alpha, self.beta

    @property
    def precision(self) -> str:
        return self.operation.types.precision

    @property
    def result_shape(self) -> tuple[int, ...]:
        """The shape that the caller sees, without the dimensions that were added to vectors."""
        return (*self.d_shape[:-2], *self.extents.visible(self.d_shape[-2:]))

    def full(self, out: Operand) -> Operand:
        """An output of `result_shape`, viewed with the dropped dimensions back in place."""
        return self.extents.full(out)

    def fresh(self) -> Operand:
        """A description of the output that is to be allocated if the caller gives none."""
        return fresh("out", self.result_shape, self.like, self.d_dtype)

    def output(self) -> Operand:
        return self.out or self.full(self.fresh())

    @property
    def stores_d(self) -> bool:
        """Whether the epilogue stores D itself, from an operand of its own."""
        return self.operation.epilogue is not None and self.operation.epilogue.function.stores_d

    def planned_output(self) -> Operand:
        """D as a Problem describes it. Where the epilogue stores D, it is the shape of the sums, for which
        nothing is allocated.
        """
        return fresh("out", self.shape, self.like, self.out_dtype) if self.stores_d else self.output()

    def problem(self) -> Problem:
        """The problem of these operands. alpha = 0 is asked as k = 0, because then A and B must not be read,
        whatever NaNs they hold.
        """
        scaling = PROMOTED if self.promoted else AS_THEY_ARE
        matrices = self.a, self.b, self.c, self.planned_output()
        inputs = ProblemInputs(self.shape, *matrices, self.alpha == 1, scaling)
        for part in self.parts:
            inputs = part.described(inputs)
        a, b = inputs.a, inputs.b
        if self.alpha == 0:
            a = a.viewed((*a.shape[:-1], 0), a.strides)
            b = b.viewed((*b.shape[:-2], 0, b.shape[-1]), b.strides)
        problem = Problem.of(
            a,
            b,
            inputs.c,
            inputs.d,
            accumulator=self.accumulator,
            precision=self.precision,
            modes=inputs.modes,
            scaling=inputs.scaling,
            fused=inputs.fused,
            one_alpha=inputs.one_alpha,
            invariant=self.operation.types.invariant,
            triangle=self.operation.types.triangle,
            arrivals=self.operation.types.arrivals,
            owners=self.operation.types.owners,
        )
        return problem if inputs.alignment is None else with_alignment(problem, inputs.alignment)

    # ---- results ----

    def multiply_on_host(self, out: Operand) -> None:
        """The product by NumPy, with the kernels' semantics."""
        a, b, d = on_host(self.a), on_host(self.b), on_host(out)
        c = None if self.c is None else on_host(self.c)
        types = self.accumulator, self.operation.types.precision
        product = HostProduct(a, b, c, d, self.alpha, self.beta, *types)
        for part in self.parts:
            product = part.on_host(product)
        if self.groups is not None and self.epilogue is not None:
            product = self.groups.finished(product, self.epilogue)
        host_product.multiply(*product)

    def deliver(self, result: Any) -> Any:
        """What the caller gets after the outputs were written; a tuple if an epilogue has several results."""
        d, further = self._delivered(result), self.epilogue.further.deliver() if self.epilogue else []
        return (d, *further) if further else d

    def _delivered(self, result: Any) -> Any:
        if self.copied_to is not None:
            write(self.copied_to, result)
            tell_written(self.copied_to)
            return self.copied_to
        if self.out is None:
            return handed_over(result, self.like)
        tell_written(result)
        return result


def applied(op: Any, operand: Operand) -> Operand:
    """True transposes, "C" conjugates too."""
    return operand.transposed().conjugate() if op == "C" else operand.transposed()


def numbers_of(operation: Operation) -> tuple[float, float]:
    """alpha times the factors that are numbers, and beta; 1 in place of those that kernels read from
    memory.
    """
    alpha, beta = operation.alpha, operation.beta
    if not type(alpha) is type(beta) is float:
        alpha = 1.0 if is_array(alpha) else number_rules.require_scalar("alpha", alpha)
        beta = 1.0 if is_array(beta) else number_rules.require_scalar("beta", beta)
    if operation.factors.any:
        from lapidist.calls.factor_operands import product_of_numbers

        alpha *= product_of_numbers(operation.factors)
    return alpha, beta
