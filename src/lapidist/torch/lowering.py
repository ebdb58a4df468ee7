"""Inductor's lowering of the operators: its code calls functions that write into its memory.

Without this it calls torch.ops.lapidist, through torch's dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch._inductor import ir
from torch._inductor.lowering import fallback_handler, register_lowering
from torch._inductor.virtualized import V

from lapidist.torch import operators
from lapidist.torch.operators import Operator


def lower(operator: Operator) -> None:
    by_dispatcher = fallback_handler(operator.op, add_to_fallback_set=False)
    register_lowering(operator.op, type_promotion_kind=None)(partial(lowered, operator, by_dispatcher))


def lowered(operator: Operator, by_dispatcher: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """A node of inductor's graph: operators.RUNS.NAME(*tensors, **other arguments, out=memory)."""
    if V.graph.cpp_wrapper:
        return by_dispatcher(*args, **options)
    names = [argument.name for argument in operator.op._schema.arguments]
    named = {**dict(zip(names, args, strict=False)), **options}
    tensors = [value for value in named.values() if isinstance(value, ir.IRNode)]
    constants = {
        name: value for name, value in named.items() if value is not None and not isinstance(value, ir.IRNode)
    }
    like = V.graph.current_node.meta["val"]
    size = ir.convert_shape_to_inductor(like.size())
    node = ir.ExternKernelOut(
        layout=ir.FixedLayout(like.device, like.dtype, size),
        inputs=[ir.ExternKernel.realize_input(tensor) for tensor in tensors],
        kwargs=constants,
        python_kernel_name=f"torch.ops.lapidist.runs.{operator.name}",
    )
    return ir.TensorBox.create(node)


for _operator in (operators.matmul, operators.gemm, operators.linear, operators.scaled, operators.grouped):
    lower(_operator)
