"""How code that inductor writes calls the operators: as functions that write into memory of its own.

Without this it calls torch.ops.lapidist, and torch's dispatcher comes between."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch._inductor import ir
from torch._inductor.lowering import fallback_handler, register_lowering
from torch._inductor.virtualized import V

from lapidist.torch import operators


def lower(operator: operators.Operator) -> None:
    by_dispatcher = fallback_handler(operator.op, add_to_fallback_set=False)
    register_lowering(operator.op, type_promotion_kind=None)(partial(lowered, operator, by_dispatcher))


def lowered(operator: operators.Operator, by_dispatcher: Callable[..., Any], *given: Any, **more: Any) -> Any:
    """A node of inductor's graph: operators.RUNS.NAME(*tensors, what else is given, out=memory)."""
    if V.graph.cpp_wrapper:
        return by_dispatcher(*given, **more)
    names = [argument.name for argument in operator.op._schema.arguments]
    named = {**dict(zip(names, given, strict=False)), **more}
    tensors = [each for each in named.values() if isinstance(each, ir.IRNode)]
    others = {
        name: each for name, each in named.items() if each is not None and not isinstance(each, ir.IRNode)
    }
    like = V.graph.current_node.meta["val"]
    size = ir.convert_shape_to_inductor(like.size())
    node = ir.ExternKernelOut(
        layout=ir.FixedLayout(like.device, like.dtype, size),
        inputs=[ir.ExternKernel.realize_input(each) for each in tensors],
        kwargs=others,
        python_kernel_name=f"torch.ops.lapidist.runs.{operator.name}",
    )
    return ir.TensorBox.create(node)


for _each in (operators.matmul, operators.gemm, operators.linear, operators.scaled):
    lower(_each)
