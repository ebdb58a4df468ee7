"""Complex products of matrices at addresses: those of real numbers at the same addresses, and at those of
copies.

Real and imaginary parts in turn lie where the complex numbers do. What is widened or copied goes to new
arrays. The launch that writes these writes their addresses, too.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from lapidist.backends.backend import Backend
from lapidist.calls.bound_lists import Pointed
from lapidist.calls.call import Call
from lapidist.calls.complex_halves import require_kernels
from lapidist.calls.complex_operands import Multiply
from lapidist.calls.complex_product import ComplexProduct, checked_backend
from lapidist.dtypes import THREE_PRODUCTS, size_of
from lapidist.errors import ArgumentError
from lapidist.frameworks.arrays import HOST, Operand, operand_of
from lapidist.launch import AS_IT_IS
from lapidist.planning.complex_tiles import Tile
from lapidist.planning.widening_pass import Widening, widen
from lapidist.problems.matrix import VECTOR_BYTES
from lapidist.problems.pointers import Pointers


def multiplied(batch: Pointed, call: Call, multiply: Multiply) -> Pointers:
    """The products of a batch whose Pointers were checked, where kernels are planned."""
    backend = checked_backend(batch.stand_in, call)
    result: Pointers = ComplexPointers(batch, call, backend, multiply, multiply).run()
    return result


class ComplexPointers(ComplexProduct):
    """`batch`: its stand-in has the geometry of each matrix, and an array of addresses as owner."""

    def __init__(
        self, batch: Pointed, call: Call, backend: Backend, multiply: Multiply, prepare: Multiply
    ) -> None:
        super().__init__(batch.stand_in, call, backend, multiply, prepare, False)
        self.count, self.owners = batch.count, dict[Any, Pointers]()
        self.copies: list[Operand] = []  # which only addresses point to
        self.result = batch.result

    def run(self) -> Any:
        if self.bound.precision == THREE_PRODUCTS:
            raise ArgumentError(
                f"precision: {THREE_PRODUCTS!r} is for arrays and lists of them; got Pointers. Pass arrays,"
                ' or take precision="ieee"'
            )
        if self.bound.is_of_halves:
            require_kernels(self.bound, self.backend.ordinal)
        super().run()
        return self.result

    def viewed(self, operand: Operand) -> Operand:
        (rows, columns), (row, _) = operand.shape, operand.strides
        return self._listed(replace(operand, dtype=self.part), (rows, 2 * columns), (2 * row, 1))

    def _as_it_lies(self, operand: Operand) -> Operand:
        (rows, columns), (row, col) = operand.shape, operand.strides
        return self._listed(operand, (rows, columns), (row, col))

    def _without_k(self, a: Operand, b: Operand, m: int, n: int, batch: Any) -> tuple[Operand, Operand]:
        left, right = replace(a, dtype=self.part), replace(b, dtype=self.part)
        return self._listed(left, (m, 0), (1, 1)), self._listed(right, (0, 2 * n), (2 * n, 1))

    def _tile(self, matrices: int) -> Tile | None:
        return None

    def launched(self, operand: Operand, widening: Widening, index: Operand | None = None) -> Operand:
        (rows, columns), (row, col), count = operand.shape, operand.strides, self.count
        shape = 2 * rows if widening.widened else rows, 2 * columns
        target, addresses = self.room.new((count, *shape), self.part), self.room.new((count,), "int64")
        self.copies.append(target)
        how = self.backend.chip.architecture, self.backend.compiles
        widening = widening._replace(listed=True, padded=False)  # kernels pack listed matrices anyway
        launch = widen((rows, columns), count, (row, col, 0), widening, *how)
        at = {"A": operand_of(operand.owner, operand.name), "C": addresses, "D": target}
        if operand.device == HOST:
            at |= matrices_of(operand)
        if launch.grid[0]:
            self.backend.launch_alone(launch, at, AS_IT_IS, self.bound.like.framework, self.call.stream)
        alignment = prod(shape) * size_of(self.part) or VECTOR_BYTES
        start = replace(target, pointer=alignment & -alignment, owner=addresses.owner)
        return self._listed(start, shape, (shape[1], 1))

    def _listed(self, operand: Operand, shape: tuple[int, int], strides: tuple[int, int]) -> Operand:
        """Matrices of this geometry at the operand's addresses. One owner for all that are the same: by it
        kernels see that C is D.
        """
        key = id(operand.owner), operand.pointer, shape, strides, operand.dtype
        alignment = min(VECTOR_BYTES, operand.pointer & -operand.pointer)
        pointers = Pointers(operand.owner, shape, operand.dtype, strides, alignment)
        owner = self.owners.setdefault(key, pointers)
        return replace(operand, shape=shape, strides=strides, owner=owner, conjugated=False)


def matrices_of(operand: Operand) -> dict[str, Operand]:
    """What lies at addresses in host memory, which the machine lets a launch touch."""
    rows, columns = operand.shape
    row, col = operand.strides
    matrices = Pointers(operand.owner, (rows, columns), operand.dtype, (row, col)).on_host(operand.name)
    return {f"{operand.name} {i}": operand_of(matrix, operand.name) for i, matrix in enumerate(matrices)}
