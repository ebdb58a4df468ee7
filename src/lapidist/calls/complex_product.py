"""Products of complex numbers, by the kernels of real ones.

    D = A B, row by row:    Re D, Im D in turn  =  Re A, Im A in turn  x  B, each number widened to 2 x 2

D, C and A are read and written where they lie, as real matrices of twice the length. A launch before the
product widens B. It also conjugates both operands and multiplies by a complex alpha. What does not lie so is
copied before, by a launch of the same kernel, and so are rows and columns that are gathered. Where columns
of D touch, the transposed product is computed.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from lapidist.backends.backend import Backend
from lapidist.backends.selection import backend_at, choose_place
from lapidist.calls import argument_rules
from lapidist.calls.bound import Bound
from lapidist.calls.call import Call
from lapidist.calls.complex_epilogue import of_parts
from lapidist.calls.complex_operands import JOIN, Multiply, RealForms, as_complex, rows_touch, steps_through
from lapidist.calls.destination import output_of
from lapidist.calls.index_operands import IndexOperands
from lapidist.calls.operation import Operation, Routing, Types
from lapidist.calls.planned_products import prepared
from lapidist.calls.repeat import MATRIX_PATHS, FastPath, remember
from lapidist.calls.repeat.scalars import is_repeatable
from lapidist.calls.repeat.start_in_steps import fast_path, product
from lapidist.dtypes import COMPLEX_OF_NUMPY, EMULATIONS, IEEE, PART_OF, THREE_PRODUCTS
from lapidist.epilogues.tracing import BoundEpilogue
from lapidist.errors import ArgumentError
from lapidist.frameworks.array_views import permuted
from lapidist.frameworks.arrays import HOST, Operand, evenly, operand_of
from lapidist.frameworks.real_views import real_view
from lapidist.planning.complex_tiles import DoubleTile, Lies, Tile, complex_tiles, tile_for
from lapidist.planning.widening_pass import COLUMNS, ROWS, Widening
from lapidist.problems.problem import OTHER_HALF


def multiplied(bound: Bound, call: Call, multiply: Multiply, key: Any) -> Any:
    """The product of a call whose operands were checked, where kernels are planned. `multiply`: how products
    of real numbers are made. The second call with this `key` makes the fast path of the next ones.
    """
    backend = checked_backend(bound, call)
    launches = ComplexProduct(
        bound, call, backend, multiply, multiply, is_recorded(bound, call, backend, key)
    )
    result = launches.run()
    path = launches.fast_path()
    if path is not None:
        remember(MATRIX_PATHS, key, path)
    return result


def checked_backend(bound: Bound, call: Call) -> Backend:
    """Where the product runs, after the rules that only complex ones have."""
    backend = backend_at(choose_place(bound.a.device, call.choices.device))
    require_place(bound, backend, call.stream)
    for operand in bound.operands:
        argument_rules.require_aligned_elements(operand)
    return backend


def is_recorded(bound: Bound, call: Call, backend: Backend, key: Any) -> bool:
    """Whether a fast path may be made of the call's launches."""
    of_numbers = not any(isinstance(number, complex) for number in bound.alpha_beta)
    on_gpu = backend.ordinal != HOST and call.operation.types.precision not in EMULATIONS
    return on_gpu and of_numbers and is_repeatable(key, bound) and bound.alpha != 0


def require_place(bound: Bound, backend: Backend, stream: Any) -> None:
    on_gpu, like = backend.ordinal != HOST, bound.like
    if on_gpu and (like.device == HOST or like.framework not in ("torch", "cupy")):
        raise ArgumentError(
            f"a: complex products on a GPU take arrays of torch or CuPy there; got {like.framework} arrays in"
            f" {like.place}. Copy them"
        )
    if on_gpu and stream is not None:  # which orders who has the memory between launches
        raise ArgumentError(
            "stream: complex products run on the current stream of the arrays' framework; got another one."
            " Make it current (with torch.cuda.stream(...), say)"
        )


class ComplexProduct(RealForms):
    routing = Routing()  # of the product of real numbers
    triangle = ""  # of its result, if only that half must be right

    def run(self) -> Any:
        bound = self.bound
        result, d = output_of(bound)
        self.starts["out"] = d.pointer
        a, b, c = bound.a, bound.b, bound.c
        if 0 in bound.shape:
            return bound.deliver(result)
        tile = self._tile(prod(d.shape[:-2]))
        if tile is not None and self._where_they_lie(tile, a, b, c, d):
            return bound.deliver(result)
        transposed, self.triangle = not rows_touch(d), self.call.operation.types.triangle
        if transposed:
            self.triangle = OTHER_HALF[self.triangle]
            self._require_rows(d)
            a, b, c, d = b.transposed(), a.transposed(), c and c.transposed(), self._transposed(d)
        reads = bound.alpha != 0 and a.shape[-1] != 0
        if bound.indices is not None:
            a, b = self._routed(bound.indices, a, b, transposed, reads)
        alpha, of_right = self._in_two_steps("alpha", bound.alpha)
        beta, of_c = self._in_two_steps("beta", bound.beta)
        if c is not None:
            c = self._addend(c, of_c)
        *batch, m, n = (*bound.d_shape[:-2], *bound.d_shape[:-3:-1]) if transposed else bound.d_shape
        followed = None if bound.epilogue is None else of_parts(self, n, transposed)
        if reads and bound.precision == THREE_PRODUCTS and a.dtype == b.dtype:
            self._multiply_thrice(a, b, of_right, c, d, (alpha, beta), followed)
            return bound.deliver(result)
        if not reads:
            left, right = self._without_k(a, b, m, n, batch)
        else:
            left, right = self._factors(a, b, of_right)
        self._multiply(left, right, c, self.viewed(d), (alpha, beta), followed)
        return bound.deliver(result)

    def _without_k(self, a: Operand, b: Operand, m: int, n: int, batch: Any) -> tuple[Operand, Operand]:
        """Real matrices of a product that reads neither operand."""
        return self.room.new((*batch, m, 0), self.part), self.room.new((0, 2 * n), self.part)

    def _in_two_steps(self, name: str, number: Any) -> tuple[Any, complex | Operand]:
        """alpha or beta as kernels of real numbers take it, and what an operand is multiplied by before."""
        array = None if self.bound.scalars is None else self.bound.scalars.get(name)
        if array is None:
            return in_two_steps(number)
        return (self._switch(array), array) if array.dtype in PART_OF else (array.owner, 1.0)

    def _tile(self, matrices: int) -> Tile | None:
        """For numbers that are multiplied where they lie, where callers leave the kernel open."""
        a, b, choices = self.bound.a, self.bound.b, self.call.choices
        chosen = choices.kernel, choices.config, choices.sharing, choices.workspace
        types = self.call.operation.types
        both = a.dtype == b.dtype and types.precision == IEEE and not (types.invariant or self.bound.parts)
        if not both or a.dtype not in COMPLEX_OF_NUMPY or any(choice is not None for choice in chosen):
            return None
        tile = tile_for(self.part, a.shape[-2], b.shape[-1], a.shape[-1], matrices, self.backend.chip)
        if types.triangle and isinstance(tile, DoubleTile) and max(tile.tiles(a.shape[-2], b.shape[-1])) > 1:
            return None  # kernels of real numbers leave out tiles of the other half
        return tile

    def _where_they_lie(self, tile: Tile, a: Operand, b: Operand, c: Operand | None, d: Operand) -> bool:
        """The product by one launch, where each operand steps evenly through the batch."""
        batch, operands, lies = d.shape[:-2], (a, b, c or d, d), []
        for operand in operands:
            step = evenly(batch, steps_through(operand, batch))
            if step is None:
                return False
            row, col = operand.strides[-2:]
            lies.append(Lies(row, col, step, operand.conjugated))
        alpha, beta = map(complex, self.bound.alpha_beta)
        extents = *d.shape[-2:], 0 if alpha == 0 else a.shape[-1]
        imaginary, matrices = (alpha.imag, beta.imag), prod(batch)
        how = self.backend.chip.architecture, self.backend.compiles
        launch = complex_tiles(
            tile, self.part, extents, matrices, tuple(lies), imaginary, c is not None, *how
        )
        self.launch(launch, operands, (alpha.real, beta.real))
        return True

    def fast_path(self) -> FastPath | None:
        return None if not self.steps else fast_path(self.bound, self.steps, self.room.nbytes)

    def _require_rows(self, d: Operand) -> None:
        routing = self.bound.operation.routing
        scattered = routing.scatter_d is not None
        lost = routing.permuted and not rows_touch(self._transposed(d))  # neighbours touch nowhere
        if scattered or lost or self.bound.operation.types.invariant:
            kind = "scattered" if scattered else "permuted" if lost else "invariant"
            raise ArgumentError(
                f"out: must have rows whose elements touch, where complex products are {kind}; got strides"
                f" {self.bound.output().strides}. Write into a contiguous array and copy from it"
            )

    def _transposed(self, d: Operand) -> Operand:
        """The output of the transposed product; a permuted one has its rows, and its columns, in groups."""
        if not self.bound.operation.routing.permuted:
            return d.transposed()
        (*batch, m1, m0, n1, n0), (*around, row1, row0, col1, col0) = d.shape, d.strides
        return d.viewed((*batch, n1, n0, m1, m0), (*around, col1, col0, row1, row0))

    def _routed(
        self, indices: IndexOperands, a: Operand, b: Operand, transposed: bool, reads: bool
    ) -> tuple[Operand, Operand]:
        """Both operands, with copies of the rows and columns that are gathered. Kernels gather those of a
        real A, and scatter and permute results.
        """
        if indices.moves_results and self.bound.precision == THREE_PRODUCTS:
            raise ArgumentError(
                f"precision: {THREE_PRODUCTS!r} leaves products whose sums are not scattered or permuted; got"
                ' it and such an output. Take precision="ieee"'
            )
        scattered, permuted_too = indices.scattered_rows, self.bound.operation.routing.permuted
        self.routing = Routing(scatter_d=scattered and scattered.owner, permuted=permuted_too)
        if not reads:
            return a, b
        names = ("gather_b", "gather_a") if transposed else ("gather_a", "gather_b")
        rows, columns = map(indices.get, names)
        if rows is not None and a.dtype in PART_OF:
            a = self.picked(a, rows, ROWS)
        elif rows is not None:
            self.routing = self.routing._replace(gather_a=rows.owner)
        return a, b if columns is None else self.picked(b, columns, COLUMNS)

    def _factors(self, a: Operand, b: Operand, factor: complex | Operand) -> tuple[Operand, Operand]:
        """The real matrices of both operands. A real A takes B's numbers as they are."""
        if isinstance(factor, Operand):
            scaled = self._scaled(b, factor)
            if a.dtype not in PART_OF:
                return self._as_it_lies(a), scaled
            b, factor = as_complex(scaled, self.bound.out_dtype), 1.0
        widening = Widening(self.part, b.dtype not in PART_OF, b.conjugated, factor=factor)
        if a.dtype not in PART_OF:
            return self._as_it_lies(a), self.interleaved(b, widening)
        widened = widening._replace(widened=True, left_conjugated=a.conjugated, padded=True)
        return self.interleaved(a, Widening(self.part)), self.launched(b, widened)

    def _multiply_thrice(
        self,
        a: Operand,
        b: Operand,
        factor: complex | Operand,
        c: Operand | None,
        d: Operand,
        numbers: tuple[Any, Any],
        epilogue: BoundEpilogue | None,
    ) -> None:
        """Three products in a batch, then what they add up to, with alpha and beta C: a product of k = 3."""
        if isinstance(factor, Operand):
            b, factor = as_complex(self._scaled(b, factor), self.bound.out_dtype), 1.0
        left = self.planes(a, Widening(self.part, conjugated=a.conjugated), len(d.shape) - 2)
        of_right = Widening(self.part, conjugated=b.conjugated, factor=factor)
        right = self.planes(b, of_right, len(d.shape) - 2)
        products = self.room.new((3, *d.shape), self.part).owner
        types = Types(invariant=self.call.operation.types.invariant)
        operation, choices = Operation(types=types), self.call.choices
        left, right = operand_of(left, "a"), operand_of(right, "b")
        left = repeated_over((3, *d.shape[:-2]), left, right)
        self.multiply(Call(left.owner, right.owner, None, products, operation, choices, self.call.stream))
        *around, n = d.shape
        sums = self.viewed(d) if epilogue is None else self.room.new((*around, 2 * n), self.part)
        in_last = permuted(products, (*range(1, len(d.shape) + 1), 0))
        addend = None if c is None else by_number(c)
        alpha, beta = numbers
        self._prepare(in_last, self.numbers(JOIN, self.part), by_number(sums), None, addend, alpha, beta)
        if epilogue is not None:
            *batch, m, _ = d.shape
            none, nothing = self.room.new((*batch, m, 0), self.part), self.room.new((0, 2 * n), self.part)
            self._prepare(none.owner, nothing.owner, self.viewed(d).owner, epilogue, sums.owner, 1.0, 1.0)

    def _addend(self, c: Operand, factor: complex | Operand) -> Operand:
        if isinstance(factor, Operand):
            return self._scaled(c, factor)
        return self.interleaved(c, Widening(self.part, conjugated=c.conjugated, factor=factor))

    def _multiply(
        self,
        a: Operand,
        b: Operand,
        c: Operand | None,
        d: Operand,
        numbers: tuple[Any, Any],
        epilogue: BoundEpilogue | None,
    ) -> None:
        types_of_call = self.call.operation.types
        precision = IEEE if types_of_call.precision == THREE_PRODUCTS else types_of_call.precision
        types = Types(precision=precision, invariant=types_of_call.invariant, triangle=self.triangle)
        operation = Operation(False, False, False, *numbers, types, self.routing, epilogue=epilogue)
        a = repeated_over(self.bound.shape[:-2], a, b)
        arrays = a.owner, b.owner, None if c is None else c.owner, d.owner
        call = Call(*arrays, operation, self.call.choices, self.call.stream)
        self.multiply(call)
        if self.steps is not None:
            bound = call.bound()
            step = product(prepared(bound, call.choices), bound, [self.place(x) for x in (a, b, c or d, d)])
            # alpha and beta are those of the next call
            self.steps.append(step and step._replace(scalars=None))


def repeated_over(batch: tuple[int, ...], a: Operand, b: Operand) -> Operand:
    """A for each matrix of a batch, if both operands have one matrix for several of them."""
    if np.broadcast_shapes(a.shape[:-2], b.shape[:-2]) == batch:
        return a
    missing = len(batch) + 2 - len(a.shape)
    steps = [step if extent > 1 else 0 for extent, step in zip(a.shape[:-2], a.strides[:-2], strict=True)]
    strides = *(0 for _ in range(missing)), *steps, *a.strides[-2:]
    return real_view(a, (*batch, *a.shape[-2:]), strides)


def by_number(numbers: Operand) -> Any:
    """Parts in turn, with a dimension for the two of each number."""
    *around, columns = numbers.shape
    *steps, _ = numbers.strides
    return real_view(numbers, (*around, columns // 2, 2), (*steps, 2, 1)).owner


def in_two_steps(number: complex) -> tuple[float, complex]:
    """alpha or beta as kernels of real numbers take it, and what a launch before them multiplies by."""
    return (1.0, number) if isinstance(number, complex) else (number, 1.0)
