"""Plans of complex products: the launches before the product of real numbers, and its plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lapidist.backends.backend import Backend
from lapidist.build.compile_policy import WAIT
from lapidist.calls.bound import Bound
from lapidist.calls.call import Call
from lapidist.calls.complex_product import ComplexProduct, checked_backend
from lapidist.calls.executable import Gemm
from lapidist.calls.full_path import multiplied
from lapidist.errors import ArgumentError, explained
from lapidist.frameworks.arrays import Operand
from lapidist.launch import Launch, Scalars
from lapidist.planning.plans import Plan

Geometry = tuple[Any, ...]


class ComplexGemm:
    """A planned product of complex numbers, as `plan` returns it.

    Examples
    --------
    >>> import numpy as np
    >>> import lapidist
    >>> a = np.full((2, 2), 1j, np.complex64)
    >>> lapidist.plan(a, a, device="machine").execute(a, a)
    array([[-2.+0.j, -2.+0.j],
           [-2.+0.j, -2.+0.j]], dtype=complex64)
    """

    def __init__(self, bound: Bound, call: Call) -> None:
        self._call = replace(call, a=None, b=None, c=None, out=None)
        self._backend, self._geometry = checked_backend(bound, call), geometry_of(bound)
        self.shape, self.out_dtype = bound.result_shape, bound.out_dtype
        planned = Planned(bound, call, self._backend)
        planned.run()
        self._product, self._launches = planned.product, planned.launches

    @property
    def plan(self) -> Plan | None:
        """That of the product of real numbers. None if another kernel multiplies, or nothing does."""
        return None if self._product is None else self._product.plan

    @property
    def workspace_bytes(self) -> int:
        """How large a `workspace` must be that a caller brings."""
        return 0 if self._product is None else self._product.workspace_bytes

    def __repr__(self) -> str:
        name = (*self._names, "no kernel")[0]
        return f"<lapidist.ComplexGemm {self.out_dtype} {self.shape}, by {name} on {self._backend.words}>"

    @property
    def _names(self) -> tuple[str, ...]:
        return (*([self.plan.kernel.name] if self.plan else []), *self._launches)

    def __str__(self) -> str:
        if self._product is None:
            return f"{self.out_dtype} {self.shape}, by {', '.join(self._launches) or 'no kernel'}"
        before = "".join(f"\n  before it: {launch}" for launch in self._launches)
        return f"{self.out_dtype} {self.shape}, as a product of real numbers:\n{self._product}{before}"

    def execute(self, a: Any, b: Any, c: Any = None, out: Any = None, *, stream: Any = None) -> Any:
        """Run it on other arrays of the geometry that was planned, as `Gemm.execute`."""
        return self.run_checked(self.checked(a, b, c, out), a, b, c, out, stream)

    def execute_repeated(self, a: Any, b: Any, c: Any, out: Any, stream: Any) -> Any:
        """None, as Gemm.execute_repeated without a fast path."""
        return None

    @explained
    def checked(self, a: Any, b: Any, c: Any, out: Any) -> Bound:
        bound = replace(self._call, a=a, b=b, c=c, out=out).bound()
        if geometry_of(bound) != self._geometry:
            raise ArgumentError(
                f"a, b, c, out: must have the geometry that was planned, for {self.out_dtype} {self.shape};"
                f" got {bound.out_dtype} {bound.result_shape} (type, shape, strides, conjugation or alignment"
                " differ). Make a new plan"
            )
        return bound

    @explained
    def run_checked(self, bound: Bound, a: Any, b: Any, c: Any, out: Any, stream: Any) -> Any:
        """Run it on checked operands, which are those of a, b, c and out."""
        call = replace(self._call, stream=stream)
        backend = checked_backend(bound, call)

        def execute(product: Call) -> Any:
            assert self._product is not None
            if not product.operation.is_plain:  # new arrays for each run, which a plan would have kept
                choices = product.choices._replace(compile=product.choices.compile or WAIT)
                return multiplied(replace(product, choices=choices))
            arrays = product.a, product.b, product.c, product.out
            return self._product.execute(*arrays, stream=product.stream)

        return ComplexProduct(bound, call, backend, execute, multiplied, False).run()


class Planned(ComplexProduct):
    """The launches of a product, written down in place of run."""

    def __init__(self, bound: Bound, call: Call, backend: Backend) -> None:
        super().__init__(bound, call, backend, self._plan, self._plan_before, False)
        self.product: Gemm | None = None
        self.launches: list[str] = []

    def _plan(self, call: Call) -> None:
        self.product = Gemm(call.bound(), call.choices)

    def _plan_before(self, call: Call) -> None:
        product = Gemm(call.bound(), call.choices)
        self.launches.append(
            f"product {product.shape}, by {product.plan.kernel.name if product.plan else 'no kernel'}"
        )

    def launch(self, launch: Launch, operands: tuple[Operand, ...], numbers: Scalars) -> None:
        self.launches.append(f"{launch.binary.entry} of {operands[0].name}, {launch.grid[0]} blocks")


def geometry_of(bound: Bound) -> Geometry:
    operands = bound.a, bound.b, bound.c, bound.output()
    return tuple(
        x and (x.shape, x.strides, x.dtype, x.conjugated, x.device, x.framework, x.pointer % 16)
        for x in operands
    )
