"""Plans of complex products: the launches before the product of real numbers, and its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lapidist.backends.backend import Backend
from lapidist.build.compile_policy import WAIT
from lapidist.calls.bound import Bound
from lapidist.calls.bound_lists import Pointed
from lapidist.calls.call import Call
from lapidist.calls.complex_operands import Multiply
from lapidist.calls.complex_pointers import ComplexPointers
from lapidist.calls.complex_product import ComplexProduct, checked_backend
from lapidist.calls.executable import Gemm
from lapidist.calls.full_path import multiplied
from lapidist.calls.lists import ListGemm
from lapidist.errors import ArgumentError, explained
from lapidist.frameworks.arrays import Operand
from lapidist.launch import Launch
from lapidist.planning.plans import Plan
from lapidist.problems.pointers import Pointers

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

    def __init__(self, bound: Bound | Pointed, call: Call) -> None:
        self._call = replace(call, a=None, b=None, c=None, out=None)
        product = product_in(bound)
        self._backend, self._geometry = checked_backend(product, call), geometry_of(product)
        self.shape, self.out_dtype = product.result_shape, product.out_dtype
        self._product: Gemm | ListGemm | None = None
        written = WrittenDown(self._backend)
        launches_of(bound, call, written, self._plan, written.plan_before).run()
        self._launches = written.launches

    def _plan(self, call: Call) -> None:
        bound = bound_of(call)
        self._product = (
            ListGemm(bound, call.operation, call.choices)
            if isinstance(bound, Pointed)
            else Gemm(bound, call.choices)
        )

    @property
    def plan(self) -> Plan | None:
        """That of the product of real numbers, or of the first launch of them. None if another kernel
        multiplies, or nothing does.
        """
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
    def checked(self, a: Any, b: Any, c: Any, out: Any) -> Any:
        bound = bound_of(replace(self._call, a=a, b=b, c=c, out=out))
        product = product_in(bound)
        if geometry_of(product) != self._geometry:
            raise ArgumentError(
                f"a, b, c, out: must have the geometry that was planned, for {self.out_dtype} {self.shape};"
                f" got {product.out_dtype} {product.result_shape} (type, shape, strides, conjugation or"
                " alignment differ). Make a new plan"
            )
        return bound

    @explained
    def run_checked(self, bound: Bound | Pointed, a: Any, b: Any, c: Any, out: Any, stream: Any) -> Any:
        """Run it on checked operands, which are those of a, b, c and out."""
        call = replace(self._call, stream=stream)
        backend = checked_backend(product_in(bound), call)

        def execute(product: Call) -> Any:
            assert self._product is not None
            if not product.operation.is_plain:  # new arrays for each run, which a plan would have kept
                choices = product.choices._replace(compile=product.choices.compile or WAIT)
                return multiplied(replace(product, choices=choices))
            arrays = product.a, product.b, product.c, product.out
            return self._product.execute(*arrays, stream=product.stream)

        return launches_of(bound, call, backend, execute, multiplied).run()


class WrittenDown:
    """A backend whose launches are written down in place of run."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.launches: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def plan_before(self, call: Call) -> None:
        product = Gemm(call.bound(), call.choices)
        self.launches.append(
            f"product {product.shape}, by {product.plan.kernel.name if product.plan else 'no kernel'}"
        )

    def launch_alone(self, launch: Launch, at: Mapping[str, Operand], *_: Any) -> None:
        self.launches.append(f"{launch.binary.entry} of {at['A'].name}, {launch.grid[0]} blocks")


def bound_of(call: Call) -> Bound | Pointed:
    """The checked operands of a call: matrices, or Pointers to them."""
    if not isinstance(call.a, Pointers):
        return call.bound()
    return Pointed(call.a, call.b, call.c, call.out, call.operation)


def product_in(bound: Bound | Pointed) -> Bound:
    """Its operands, or those that stand for one product of a list."""
    return bound.stand_in if isinstance(bound, Pointed) else bound


def launches_of(
    bound: Bound | Pointed, call: Call, backend: Any, multiply: Multiply, prepare: Multiply
) -> ComplexProduct:
    if isinstance(bound, Pointed):
        return ComplexPointers(bound, call, backend, multiply, prepare)
    return ComplexProduct(bound, call, backend, multiply, prepare, False)


def geometry_of(bound: Bound) -> Geometry:
    c, d = bound.c, bound.output()
    in_place = c is not None and (c.pointer, c.strides) == (d.pointer, d.strides)
    operands = bound.a, bound.b, c, d
    return in_place, *(
        x and (x.shape, x.strides, x.dtype, x.conjugated, x.device, x.framework, x.pointer % 16)
        for x in operands
    )
