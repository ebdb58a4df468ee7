"""Where a call runs, and where its results go."""

from __future__ import annotations

from typing import Any

from lapidist.backends.backend import Backend
from lapidist.backends.selection import backend_at, choose_place
from lapidist.calls import argument_rules
from lapidist.calls.bound import Bound
from lapidist.calls.kernel_choice import OPEN, Choices
from lapidist.errors import ArgumentError, DTypeError
from lapidist.frameworks.arrays import HOST, Operand
from lapidist.frameworks.new_arrays import as_planned, empty


def place_for(bound: Bound, choices: Choices) -> int | str:
    """Where the call runs."""
    place = choose_place(bound.a.device, choices.device)
    require_kernel(bound, place)
    require_a_kernel(bound.operation.types.invariant, place)
    return place


def backend_for(bound: Bound, choices: Choices) -> Backend:
    return backend_at(place_for(bound, choices))


def require_kernel(bound: Bound, place: int | str) -> None:
    """Types that only NumPy multiplies run nowhere but on the host."""
    if bound.no_kernel and place != HOST:
        raise DTypeError(bound.no_kernel)


def require_a_kernel(invariant: bool, place: int | str) -> None:
    """NumPy's order of sums depends on the number of rows."""
    if invariant and place == HOST:
        raise ArgumentError(
            "invariant: holds for kernels, and NumPy multiplies arrays on the host; got such arrays. Pass"
            ' device="machine", or arrays on a GPU'
        )


def require_choices(choices: Choices, backend: Backend) -> None:
    """Whoever chose a kernel, a config or a schedule must run where these mean something."""
    if choices is OPEN:
        return
    kernel, config, sharing = choices.of_kernel
    if choices.workspace is not None and not backend.plans:
        argument_rules.workspace_of(choices.workspace)
    backend.require_choice(kernel, config, sharing)


def output_of(bound: Bound) -> tuple[Any, Operand]:
    """The array that results go to, the caller's or a new one, and the same as an Operand with rows and
    columns. Further results of an epilogue get their arrays too.
    """
    if bound.out is not None:
        result, target = bound.out.owner, bound.out
    else:
        result = empty(bound.result_shape, bound.like, bound.d_dtype)
        target = bound.full(as_planned(result, bound.fresh()))
    if bound.epilogue is not None:
        bound.epilogue.write_to(target)
    return result, target


def multiply_on_host(bound: Bound) -> Any:
    """The product by NumPy, with the kernels' semantics."""
    result, out = output_of(bound)
    bound.multiply_on_host(out)
    return bound.deliver(result)
