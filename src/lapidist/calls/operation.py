"""What a call asks for apart from its arrays. It is the same for each product of a batch and for each run of
a plan.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lapidist.calls import argument_rules, number_rules
from lapidist.dtypes import EMULATIONS, IEEE, Precision, bits_in, name_of, way_of
from lapidist.errors import ArgumentError, explained

if TYPE_CHECKING:
    from lapidist.epilogues.tracing import BoundEpilogue
    from lapidist.frameworks.arrays import Operand
    from lapidist.problems.arrivals import Arrivals
    from lapidist.problems.owners import Owners


def is_array(value: object) -> bool:
    """Whether alpha, beta or a factor is an array; NumPy's scalars count as numbers."""
    if isinstance(value, (int, float, complex, np.generic, type)):  # classes have these attributes, too
        return False  # torch.compile's symbols for numbers may not be asked for attributes
    try:
        return hasattr(value, "shape") and hasattr(value, "dtype")
    except Exception:  # of its attributes: whoever wants a number of it names the argument
        return False


class Types(NamedTuple):
    """The types that a caller asks for, by name; None takes the default of the operands' types."""

    out_dtype: str | None = None
    accumulator: str | None = None
    precision: str = "ieee"
    promote: bool | None = None
    invariant: bool = False  # the bits of a row do not depend on other rows
    triangle: str = ""  # or "lower", "upper": the half of D that must be right
    arrivals: Arrivals | None = None  # of rows of a while the kernel runs
    owners: Owners | None = None  # of rows of the result
    bits: int = 0  # that a caller asked of a product


class Routing(NamedTuple):
    """Index arrays of rows and columns, and whether the output is permuted. `check_indices` also covers the
    addresses of Pointers.
    """

    gather_a: Any = None
    gather_b: Any = None
    scatter_d: Any = None
    permuted: bool = False
    check_indices: bool = False

    @property
    def any(self) -> bool:
        return self.permuted is not False or not (self.gather_a is self.gather_b is self.scatter_d is None)


class Factors(NamedTuple):
    """What a caller gave as scale_a and scale_b."""

    a: Any = None
    b: Any = None

    @property
    def any(self) -> bool:
        return self.a is not None or self.b is not None


class Groups(NamedTuple):
    """What a caller gave of the groups of a grouped product."""

    offsets: Any = None
    counts: Any = None
    expected_rows: int | None = None
    check: bool = False

    @property
    def ends(self) -> Any:
        return self.counts if self.offsets is None else self.offsets

    @property
    def flag(self) -> tuple[bool, int | None]:
        """What a key holds of them beside the array."""
        return self.offsets is None, self.expected_rows


USUAL_TYPES = Types()
IN_BLOCK: ContextVar[bool] = ContextVar("lapidist.invariant", default=False)
# The open blocks of all threads and tasks. While there are none, no call reads the context: that takes 40 ns.
OPEN_BLOCKS: list[object] = []
# Behind a precision: how torch's operators say invariant=True and False, which their schemas do not have.
INVARIANT, FREE = ", invariant", ", free"
# trans_a, trans_b, whether vectors are allowed, permuted or what is said of groups
Flags = tuple[Any, Any, Any, Any]
OF_MATMUL: Flags = (False, False, True, False)


class Operation(NamedTuple):
    """`vectors`: an operand of one dimension is a row or a column, as in numpy.matmul. `alpha` and `beta` are
    as the caller gave them.
    """

    trans_a: bool = False
    trans_b: bool = False
    vectors: bool = False
    alpha: Any = 1.0
    beta: Any = 0.0
    types: Types = USUAL_TYPES
    routing: Routing = Routing()
    factors: Factors = Factors()
    epilogue: BoundEpilogue | None = None
    groups: Groups | None = None
    guard: Operand | None = None  # of a launch between others

    @property
    def routed(self) -> bool:
        """Whether the call has indices, a permuted output, or alpha or beta in an array."""
        return self.routing.any or self.has_scalar_arrays

    @property
    def has_scalar_arrays(self) -> bool:
        return is_array(self.alpha) or is_array(self.beta)

    @property
    def is_plain(self) -> bool:
        """Whether a, b, c and out are the only arrays. It runs in every call."""
        routing, factors = self.routing, self.factors
        return (
            self.epilogue is factors.a is factors.b is routing.gather_a is routing.gather_b is None
            and self.groups is None
            and routing.scatter_d is None
            and routing.permuted is False
            and (type(self.alpha) is float or not is_array(self.alpha))
            and (type(self.beta) is float or not is_array(self.beta))
        )

    def with_numbers(self) -> Operation:
        """The same operation, with alpha and beta as Python's floats."""
        if type(self.alpha) is type(self.beta) is float:
            return self
        alpha, beta = (
            number_rules.require_scalar("alpha", self.alpha),
            number_rules.require_scalar("beta", self.beta),
        )
        return self._replace(alpha=alpha, beta=beta)

    def of_lists(self, pointers: bool) -> Operation:
        """The same operation for lists of matrices, which take no routing and no factors. Pointers take no
        epilogue.
        """
        number_rules.require_flag("check_indices", self.routing.check_indices)
        number_rules.require_flag("permuted", self.routing.permuted)
        unsupported = {**self.routing._asdict(), "scale_a": self.factors.a, "scale_b": self.factors.b}
        if pointers and self.epilogue is not None:
            raise ArgumentError(
                "epilogue: follows products of arrays, or lists of them; got Pointers. Pass lists of arrays"
            )
        for name, value in unsupported.items():
            if value is not None and value is not False and name != "check_indices":
                raise ArgumentError(
                    f"{name}: belongs to arrays that are passed themselves; got lists of them, or Pointers."
                    " Leave it out"
                )
        return self.with_numbers()


def is_invariant(argument: object) -> bool:
    """What a call asks for: its argument, else what the block around it says."""
    if argument is None:
        return IN_BLOCK.get()
    number_rules.require_flag("invariant", argument)
    return bool(argument)


def types_named(
    out_dtype: Any, acc_dtype: Any, precision: Precision, promote: bool | None = None, invariant: bool = False
) -> Types:
    """The types by name, usable as a key."""
    usual = out_dtype is None and acc_dtype is None and promote is None and not invariant
    if precision is IEEE and usual:
        return USUAL_TYPES  # compared by identity: an array compared with a string gives an array
    try:
        return cached_types(out_dtype, acc_dtype, precision, promote, invariant)
    except TypeError:  # not hashable: the checks name the argument
        return types_checked(out_dtype, acc_dtype, precision, promote, invariant)


def types_checked(
    out_dtype: Any, acc_dtype: Any, precision: Any, promote: bool | None, invariant: bool
) -> Types:
    if isinstance(precision, str) and precision.endswith((INVARIANT, FREE)):
        precision, invariant = precision.partition(",")[0], precision.endswith(INVARIANT)
    bits = bits_in(precision)
    if bits:
        return types_checked(out_dtype, acc_dtype, way_of(bits), promote, invariant)._replace(bits=bits)
    argument_rules.require_precision(precision)
    if invariant and precision in EMULATIONS:
        raise ArgumentError(
            f"precision: {precision!r} looks at all rows before it chooses how to multiply; got it and"
            " invariant=True. Leave one of them out"
        )
    if promote is not None:
        number_rules.require_flag("promote", promote)
    out = None if out_dtype is None else name_of(out_dtype, "out_dtype")
    accumulator = None if acc_dtype is None else name_of(acc_dtype, "acc_dtype")
    return Types(out, accumulator, precision, promote, invariant)


cached_types = lru_cache(maxsize=256, typed=True)(types_checked)


@explained
def epilogue_instead(value: Any) -> str:
    """What to pass in place of a value that is no epilogue: ready-made ones are named as activations are."""
    from types import FunctionType

    from lapidist.epilogues.layer_activations import activation_named
    from lapidist.epilogues.ready_made import READY

    name = activation_named(value)
    if name in READY:
        return f"Write epilogue=lapidist.epilogues.{name}"
    if isinstance(value, FunctionType):
        return "Write epilogue=lapidist.epilogue(f)(), with each operand by its name"
    return "Write epilogue=f(bias=b), say; lapidist.epilogues has ready-made ones"


def epilogue_checked(epilogue: object) -> BoundEpilogue | None:
    """What a caller passes as epilogue=: a function called with its operands, or one that has none."""
    if epilogue is None:
        return None
    from lapidist.epilogues.tracing import BoundEpilogue, Epilogue

    if isinstance(epilogue, Epilogue):
        epilogue = epilogue()
    if not isinstance(epilogue, BoundEpilogue):
        raise ArgumentError(
            "epilogue: must be a function of @lapidist.epilogue, called with its operands; got"
            f" {type(epilogue).__name__}. {epilogue_instead(epilogue)}"
        )
    return epilogue
