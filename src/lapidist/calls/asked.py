"""What a caller asked for, checked, in the words of the calls below: arguments, types, numbers, choices."""

from __future__ import annotations

from typing import Any

from lapidist.calls import checks
from lapidist.calls.arguments import Arguments
from lapidist.calls.lists import LISTED
from lapidist.calls.operation import USUAL_TYPES, Operation, Types, is_array
from lapidist.calls.prepared import ON_HOST, Choices
from lapidist.calls.routed import RoutedArguments
from lapidist.calls.scaled import ScaledArguments
from lapidist.config import Config
from lapidist.dtypes import IEEE, name_of
from lapidist.errors import ArgumentError
from lapidist.frameworks.arrays import HOST, framework_of, on_host, operand_of
from lapidist.frameworks.host_arrays import native
from lapidist.kernels.row import Kernel


def arguments_of(a: Any, b: Any, c: Any, out: Any, operation: Operation) -> Arguments:
    """a, b, c and out, checked."""
    checks.require_flag("check_indices", operation.routing.check_indices)
    if operation.factors.any and operation.routed:
        raise ArgumentError(
            "scale_a, scale_b: matrices with factors are neither gathered, scattered nor permuted, their"
            " alpha and beta are numbers; got both. Leave one away"
        )
    if operation.routed:
        return RoutedArguments(a, b, c, out, operation)
    return (ScaledArguments if operation.factors.any else Arguments)(a, b, c, out, of_numbers(operation))


def of_numbers(operation: Operation) -> Operation:
    """With alpha and beta as Python has them."""
    return operation._replace(
        alpha=checks.require_scalar("alpha", operation.alpha),
        beta=checks.require_scalar("beta", operation.beta),
    )


def is_array_batch(mode: object, a: Any, b: Any) -> bool:
    """Whether a and b stand for many matrices each. A mode that is named must be the one that they are in."""
    listed = isinstance(a, LISTED)
    if mode is not None:
        checks.require_mode(mode, a, b, listed)
    return listed


def array_operation(operation: Operation) -> Operation:
    """What an array batch may ask for."""
    checks.require_flag("check_indices", operation.routing.check_indices)
    checks.require_flag("permuted", operation.routing.permuted)
    asked = {**operation.routing._asdict(), "scale_a": operation.factors.a, "scale_b": operation.factors.b}
    asked["epilogue"] = operation.epilogue
    for name in (
        name
        for name, value in asked.items()
        if value is not None and value is not False and name != "check_indices"
    ):
        raise ArgumentError(
            f"{name}: belongs to arrays that are passed themselves; got lists of them, or Pointers. Leave it"
            " away"
        )
    return of_numbers(operation)


def types_named(out_dtype: Any, acc_dtype: Any, precision: str, promote: bool | None = None) -> Types:
    """The types by name, as a key."""
    if precision is IEEE and out_dtype is None and acc_dtype is None and promote is None:
        return USUAL_TYPES  # by identity: an array compared with a string is no bool
    checks.require_precision(precision)
    if promote is not None:
        checks.require_flag("promote", promote)
    out = None if out_dtype is None else name_of(out_dtype, "out_dtype")
    return Types(out, None if acc_dtype is None else name_of(acc_dtype, "acc_dtype"), precision, promote)


def is_on_host(device: object) -> bool:
    """Whether host arrays are multiplied there."""
    return device is None or device in ON_HOST


def numbers_in(alpha: Any, beta: Any, device: object) -> tuple[Any, Any]:
    """Where host arrays are multiplied, arrays of NumPy's or JAX' without dimensions are numbers; anything
    else as it is.
    """
    return (number_in("alpha", alpha), number_in("beta", beta)) if is_on_host(device) else (alpha, beta)


def number_in(name: str, value: Any) -> Any:
    if not is_array(value) or len(value.shape) or framework_of(value) not in ("numpy", "jax"):
        return value
    operand = operand_of(native(value), name)
    return on_host(operand)[()] if operand.device == HOST else value


def require_place(device: object) -> None:
    if device is not None and (isinstance(device, bool) or not isinstance(device, (int, str))):
        raise ArgumentError(
            f'device: must be "gpu", a GPU\'s number, "machine" or "host"; got {device!r}. Leave it away'
        )


def checked(choices: Choices) -> Choices:
    """What goes into the key of prepared plans must be what it should be before it is looked up."""
    kernel, config = choices.kernel, choices.config
    require_place(choices.device)
    checks.require_compile(choices.compile)
    if config is not None and not isinstance(config, Config):
        raise ArgumentError(
            f"config: must be a lapidist.Config; got {config!r}. For example Config(64, 64, 16, 32, 32, 8, 4)"
        )
    if kernel is not None and (isinstance(kernel, bool) or not isinstance(kernel, (str, int, Kernel))):
        raise ArgumentError(
            f"kernel: must be a kernel's name or a rung's number; got {kernel!r}. Leave it away to let the"
            " planner choose"
        )
    return choices
