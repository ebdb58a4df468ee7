"""Everything that a caller said of a product, in one value. `gemm`, `matmul` and `plan` make one each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from lapidist.backends.selection import is_on_host
from lapidist.calls import argument_rules, number_rules
from lapidist.calls.bound import Bound
from lapidist.calls.kernel_choice import OPEN, Choices
from lapidist.calls.numpy_protocols import as_array, is_plain, overrides_numpy
from lapidist.calls.operation import USUAL_TYPES, Operation, is_array
from lapidist.errors import ArgumentError
from lapidist.frameworks.arrays import HOST, framework_of, operand_of
from lapidist.frameworks.host_arrays import native, on_host
from lapidist.problems.pointers import Pointers

Mode = Literal["gemm", "batched", "array"]
LISTED = (list, tuple, Pointers)  # what stands for many matrices


class FewBits:
    """A b that is no array, and whose products are those of lapidist.quantised, which gives it both."""

    __slots__ = ()
    WAY_OUT: ClassVar[str] = "Multiply by it with lapidist.matmul or grouped, or unpack it"
    grouped: ClassVar[Callable[[Operation, Mapping[str, Any]], Any]]
    product: ClassVar[Callable[[Any, Any], Any]]
    matmul: ClassVar[Callable[..., Any]]  # lapidist.matmul of it
    __array_ufunc__: ClassVar[None] = None  # so NumPy leaves x @ weight to __rmatmul__

    def __rmatmul__(self, x: Any) -> Any:
        """x @ weight"""
        return FewBits.product(x, self)


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """Whoever makes a Call has checked types and choices. `bound` checks the arrays."""

    a: Any
    b: Any
    c: Any
    out: Any
    operation: Operation
    choices: Choices = OPEN
    stream: Any = None
    mode: Mode | None = None

    def bound(self) -> Bound:
        """The operands a, b, c and out, after every rule was checked."""
        operation = self.operation
        number_rules.require_flag("check_indices", operation.routing.check_indices)
        in_groups = operation.groups is not None and not operation.has_scalar_arrays
        if operation.factors.any and operation.routed and not in_groups:
            raise ArgumentError(
                "scale_a, scale_b: matrices with factors are neither gathered, scattered nor permuted, their"
                " alpha and beta are numbers; got both. Leave one out, or call grouped with one group"
            )
        return Bound(self.a, self.b, self.c, self.out, operation)

    # ---- the key of a repeated call ----

    @property
    def is_remembered(self) -> bool:
        return self.choices.workspace is None and self.operation.is_plain

    def numbered(self) -> Call:
        """The same call with alpha and beta as Python numbers and checked flags, fit for a key."""
        operation = self.operation.with_numbers()
        number_rules.require_flag("check_indices", operation.routing.check_indices)
        number_rules.require_op("trans_a", operation.trans_a)
        number_rules.require_op("trans_b", operation.trans_b)
        return replace(self, operation=operation)

    # ---- lists of matrices ----

    @property
    def is_of_lists(self) -> bool:
        """Whether a and b stand for many matrices each. Where the caller names a mode, it must agree."""
        listed = isinstance(self.a, LISTED)
        if self.mode is not None:
            argument_rules.require_mode(self.mode, self.a, self.b, listed)
        return listed

    @property
    def is_successive(self) -> bool:
        """Whether each product of lists is a launch of its own. Kernels that take lists may sum in another
        order than those of one product.
        """
        operation = self.operation
        if isinstance(self.a, Pointers):
            return operation.epilogue is not None
        return operation.epilogue is not None or operation.types.invariant or self.is_of_complex

    @property
    def is_of_complex(self) -> bool:
        """Whether lists begin with complex numbers, whose products take several launches each."""
        firsts = (
            matrices[0] for matrices in (self.a, self.b) if isinstance(matrices, (list, tuple)) and matrices
        )
        return any("complex" in str(getattr(array, "dtype", "")) for array in firsts)

    @property
    def of_none(self) -> bool:
        """Whether a and b are lists of no matrices."""
        return all(isinstance(matrices, (list, tuple)) and not matrices for matrices in (self.a, self.b))

    def of_lists(self) -> Call:
        return replace(self, operation=self.operation.of_lists(isinstance(self.a, Pointers)))

    # ---- host arguments that only NumPy understands ----

    @property
    def is_numpys(self) -> bool:
        """Whether a host matmul was given lists, subclasses or other objects that NumPy converts or defers
        to.
        """
        matmul = self.operation.vectors and is_on_host(self.choices.device) and self.operation.is_plain
        return matmul and not (is_plain(self.a, "a") and is_plain(self.b, "b"))

    def as_arrays(self) -> Call:
        """The same call, with arrays in place of lists and other objects that only hold numbers."""
        return replace(self, a=as_array(self.a, "a"), b=as_array(self.b, "b"))

    @property
    def asks_operands(self) -> bool:
        """Whether NumPy would let a or b decide about the result, as with `__array_ufunc__`."""
        return self.operation.types is USUAL_TYPES and (
            overrides_numpy(self.a, "a") or overrides_numpy(self.b, "b")
        )


def numbers_in(alpha: Any, beta: Any, device: object) -> tuple[Any, Any]:
    """alpha and beta for a product on the host: NumPy's or JAX' arrays without dimensions become numbers."""
    return (number_in("alpha", alpha), number_in("beta", beta)) if is_on_host(device) else (alpha, beta)


def number_in(name: str, value: Any) -> Any:
    if not is_array(value) or len(value.shape) or framework_of(value) not in ("numpy", "jax"):
        return value
    operand = operand_of(native(value), name)
    return on_host(operand)[()] if operand.device == HOST else value
