"""Products of complex32, torch's complex numbers of two halves, with sums in float32.

Kernels multiply the halves as float16. NumPy has no such numbers, and halves cannot hold what a complex alpha
or beta makes of B and C. There the operands become complex64, and the product is rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lapidist.calls.bound import Bound
from lapidist.calls.call import Call
from lapidist.dtypes import COMPLEX_HALVES, IEEE, PART_OF, SUMS_OF_HALVES
from lapidist.errors import DTypeError
from lapidist.frameworks.arrays import HOST, framework_of
from lapidist.frameworks.new_arrays import tell_written

WIDER = {COMPLEX_HALVES: SUMS_OF_HALVES, PART_OF[COMPLEX_HALVES]: PART_OF[SUMS_OF_HALVES]}


def is_of_kernels(bound: Bound, place: int | str) -> bool:
    """Whether kernels multiply the halves themselves."""
    return place != HOST and not why_wide(bound)


def why_wide(bound: Bound) -> list[str]:
    """What asks for complex64, in a caller's words."""
    numbers = dict(zip(("alpha", "beta"), bound.alpha_beta, strict=True))
    arrays = () if bound.scalars is None else bound.scalars.arrays
    reasons = [f"{name}={number}" for name, number in numbers.items() if isinstance(number, complex)]
    reasons += [f"{array.name} of {array.dtype}" for array in arrays if array.dtype in PART_OF]
    return reasons if bound.precision == IEEE else [*reasons, f"precision={bound.precision!r}"]


def require_kernels(bound: Bound, place: int | str) -> None:
    """The rules for plans."""
    way_out = f"Call gemm, or convert to {SUMS_OF_HALVES}"
    if place == HOST:
        raise DTypeError(f"a: plans of {COMPLEX_HALVES} are for kernels; got tensors on the host. {way_out}")
    if why_wide(bound):
        raise DTypeError(
            f"a: plans of {COMPLEX_HALVES} are for products with real alpha and beta; got"
            f" {', '.join(why_wide(bound))}. {way_out}"
        )


def by_complex64(call: Call, multiply: Callable[[Call], Any]) -> Any:
    """The product of a call whose operands were checked."""
    operation, epilogue = call.operation, call.operation.epilogue
    if epilogue is not None:
        values = {name: widened(value) for name, value in epilogue.values.items()}
        epilogue = epilogue._replace(values=values)
    types = operation.types._replace(out_dtype=None, accumulator=None)
    operation = operation._replace(types=types, epilogue=epilogue)
    a, b, c, out = map(widened, (call.a, call.b, call.c, call.out))
    return rounded(multiply(replace(call, a=a, b=b, c=c, out=out, operation=operation)), call.out)


def widened(value: Any) -> Any:
    """A tensor in the type that holds all its numbers and their products; others as they are."""
    if framework_of(value) != "torch":
        return value
    import torch

    wider = WIDER.get(str(value.dtype)[6:])
    return value if wider is None else value.to(getattr(torch, wider))


def rounded(result: Any, out: Any) -> Any:
    """The numbers in halves, in `out` or a new tensor."""
    import torch

    if out is None:
        return result.to(torch.complex32)
    out.detach().copy_(result)
    tell_written(out)
    return out
