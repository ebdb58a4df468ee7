"""Outputs of torch and CuPy that no kernel can write: results reach them by a copy of their framework's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lapidist.calls import argument_rules
from lapidist.calls.call import Call
from lapidist.errors import ArgumentError, shown
from lapidist.frameworks.arrays import HOST, framework_of, operand_of


def is_written_by_copy(call: Call) -> bool:
    """Whether neither rows nor columns of the output are contiguous on a GPU, or torch's conjugate or
    negative bit is set. Permuted results are written with any strides.
    """
    out, framework = first_of(call.out), framework_of(first_of(call.out))
    if framework == "torch":
        import torch

        if not isinstance(out, torch.Tensor) or out.layout is not torch.strided or out.is_nested:
            return False
        if out.is_conj() or out.is_neg():
            return True
        if not out.is_cuda:
            return False
    elif framework != "cupy" or not hasattr(out, "data"):
        return False
    operand = operand_of(out, "out")
    apart = operand.device != HOST and not argument_rules.lines_touch(operand)
    return apart and call.operation.routing.permuted is False


def by_copy(call: Call, multiplied: Callable[[Call], Any]) -> Any:
    """The product of a call whose output is written so."""
    out = first_of(call.out)
    require_no_copy_on_another_stream(call.stream, False, True)
    several = isinstance(call.out, tuple)
    result = through_copy(
        out, lambda fresh: multiplied(replace(call, out=(fresh, *call.out[1:]) if several else fresh))
    )
    return (out, *result[1:]) if isinstance(result, tuple) else out


def through_copy(out: Any, multiplied: Callable[[Any], Any]) -> Any:
    """The results in a contiguous copy of the output, which keeps what none is written to. Then the copy
    goes to the output, on the framework's current stream.
    """
    operand = operand_of(out, "out")
    argument_rules.require_no_gradient(operand)
    argument_rules.require_distinct_elements(operand)
    fresh = contiguous_copy(out) if operand.framework == "torch" else out.copy("C")
    result = multiplied(fresh)
    if operand.framework == "torch":
        out.copy_(fresh)
    else:
        out[...] = fresh
    return result


def contiguous_copy(tensor: Any) -> Any:
    """Without torch's bits."""
    import torch

    return tensor.clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()


def first_of(out: Any) -> Any:
    """D's array, where an epilogue has several results."""
    return out[0] if isinstance(out, tuple) and out else out


def require_no_copy_on_another_stream(stream: Any, operands: bool, out: bool) -> None:
    if stream is not None and (operands or out):
        raise ArgumentError(
            f"stream: must be left out where {'out' if out else 'a or b'} is copied, which its framework"
            " does on its own current stream; got"
            f" {shown(stream)}. Make that stream the framework's current one"
        )
