"""How many outputs a call has, of which type and width: its epilogue may change all three."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lapidist.calls.operation import Operation
from lapidist.errors import ArgumentError, DTypeError, ShapeError
from lapidist.frameworks.arrays import operand_of

if TYPE_CHECKING:
    from lapidist.epilogues.tracing import BoundEpilogue


def checked_outputs(out: Any, epilogue: BoundEpilogue | None) -> tuple[Any, tuple[Any, ...]]:
    """The caller's array for D, and those for further results. None stands for an array to be allocated."""
    count = 1 if epilogue is None else len(epilogue.function.results)
    if epilogue is None or count == 1 or out is None:
        return out, (None,) * (count - 1)
    if not isinstance(out, tuple) or len(out) != count:
        got = f"{len(out)} of them" if isinstance(out, tuple) else type(out).__name__
        raise ArgumentError(
            f"out: must be a tuple of {count} arrays, one for each value that {epilogue.function.name}"
            f" returns; got {got}. Leave it out for new ones"
        )
    return out[0], out[1:]


def type_of_d(operation: Operation, out: Any) -> str:
    """The type of D that the epilogue's function names. "": the call decides it."""
    required = "" if operation.epilogue is None else operation.epilogue.function.results[0].dtype
    dtype_of_out = None if out is None else operand_of(out, "out").dtype if required else required
    for name, dtype in (("out_dtype", operation.types.out_dtype), ("out", dtype_of_out)):
        if required and dtype not in (None, required):
            raise DTypeError(
                f"{name}: must be {required}, which the epilogue names; got {dtype}. Leave it out"
            )
    return required


def shape_of_d(product: tuple[int, ...], operation: Operation) -> tuple[int, ...]:
    """D's shape. It is half as wide as the product if the epilogue makes one column of two."""
    function = None if operation.epilogue is None else operation.epilogue.function
    if (
        function is not None
        and (function.sources or function.maxima)
        and operation.routing.scatter_d is not None
    ):
        raise ArgumentError(
            f"epilogue: {function.name} reduces or quantises all rows of D, so they are not scattered; got"
            " scatter_d. Leave it out"
        )
    if function is None or not function.stores_d:
        return product
    if function.paired and product[-1] % 2:
        raise ShapeError(
            f"epilogue: {function.name} takes columns in pairs, so their number must be even; b has"
            f" {product[-1]}. Add a column"
        )
    if operation.routing.permuted or operation.routing.scatter_d is not None:
        raise ArgumentError(
            f"epilogue: {function.name} stores D itself, of pairs or of a type of its own, which is neither"
            " scattered nor permuted; got scatter_d or permuted. Leave it out"
        )
    return (*product[:-1], product[-1] // 2) if function.narrows else product
