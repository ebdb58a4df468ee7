"""Products over several ranks as operators that torch.compile follows: one for each call, and one going back.

What they run is what a call runs without a compiler. Ranks agree on shapes, and the plan is made, when the
operator runs: a graph has no choice of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Literal

import torch

from lapidist.distributed.chosen_ways import gathered, reduced, scattered
from lapidist.distributed.chunk_products import chunks_of_rank
from lapidist.distributed.group_facts import group_of, members_of
from lapidist.distributed.product_gradients import Entered, Gathered, Reduced, Scattered, Shared
from lapidist.distributed.product_options import Options, Split
from lapidist.distributed.row_products import RowProducts, leading_of_result, require_fit
from lapidist.dtypes import IEEE
from lapidist.frameworks.new_arrays import torch_dtype

Kind = Literal["gather", "enter", "scatter", "reduce", "share"]
NOT_SPLIT = [0]  # torch takes an empty list for one of tensors, which have gradients
LIBRARY = torch.library.Library("lapidist_distributed", "DEF")
LIBRARY.define(
    "product(str kind, Tensor rows, Tensor[] matrices, Tensor[] biases, str group, str how, SymInt[] split)"
    " -> Tensor[]"
)
LIBRARY.define(
    "product_back(str kind, Tensor[] gs, Tensor rows, Tensor[] matrices, Tensor[] biases, bool[] needs,"
    " str group, str how) -> Tensor[]"
)
FUNCTIONS: dict[str, Any] = {
    "gather": Gathered,
    "enter": Entered,
    "scatter": Scattered,
    "reduce": Reduced,
    "share": Shared,
}


def is_compiling() -> bool:
    return bool(torch.compiler.is_dynamo_compiling())


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def name_of_group(group: Any) -> str:
    return str(group_of(group).group_name)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def as_text(out_dtype: Any, *how: Any) -> str:
    """A call's further arguments, of which `how` has names and values in turn."""
    dtype = None if out_dtype is None else str(out_dtype).removeprefix("torch.")
    return json.dumps({**dict(zip(how[::2], how[1::2], strict=True)), "out_dtype": dtype})


def in_graph(
    kind: Kind,
    rows: Any,
    matrices: Sequence[Any],
    biases: Sequence[Any],
    group: Any,
    split: Split | None,
    out_dtype: Any = None,
    **how: Any,
) -> list[Any]:
    """The products of a call, as an operator of the graph. `how`: its further arguments, by name. `split` is
    none of them: extents may be symbols.
    """
    if any(bias is None for bias in biases):  # an operator takes all or none
        biases = zeros_for_none(biases, matrices, 0 if how["trans_b"] else 1)
    text = as_text(out_dtype, *(part for item in how.items() for part in item))
    dim_and_extents = NOT_SPLIT if split is None else [split[0], *split[1]]
    operator = torch.ops.lapidist_distributed.product
    tensors = rows, list(matrices), list(biases)
    return list(operator(kind, *tensors, name_of_group(group), text, dim_and_extents))


def zeros_for_none(biases: Sequence[Any], matrices: Sequence[Any], dim: int) -> Sequence[Any]:
    if all(bias is None for bias in biases):
        return ()
    dtype = next(bias.dtype for bias in biases if bias is not None)
    return [
        matrix.new_zeros(matrix.shape[dim], dtype=dtype) if bias is None else bias
        for bias, matrix in zip(biases, matrices, strict=True)
    ]


def shared_in_graph(tensor: Any, group: Any) -> Any:
    """A tensor that all ranks have, whose gradient is summed over ranks."""
    operator = torch.ops.lapidist_distributed.product
    return operator("share", tensor, [], [], name_of_group(group), "{}", NOT_SPLIT)[0]


# ---- when they run ----


def arguments_of(group: str, how: str) -> tuple[Any, dict[str, Any]]:
    process_group = torch.distributed.distributed_c10d._resolve_process_group(group)
    arguments = json.loads(how)
    if arguments.get("out_dtype") is not None:
        arguments["out_dtype"] = torch_dtype(arguments["out_dtype"])
    return process_group, arguments


def options_of(arguments: dict[str, Any], group: Any, k: int) -> Options:
    """As the calls make them of their arguments."""
    names = "trans_b", "out_dtype", "precision", "invariant", "gradients"
    options = {name: arguments[name] for name in names if name in arguments}
    chunks, invariant, precision = (arguments.get(name) for name in ("chunks", "invariant", "precision"))
    chunks = chunks_of_rank(chunks, members_of(group).ranks, k, invariant, precision or IEEE)
    return Options(**options, chunks=chunks)


@torch.library.impl(LIBRARY, "product", "CompositeExplicitAutograd")  # type: ignore[untyped-decorator]
def product(
    kind: Kind,
    rows: Any,
    matrices: list[Any],
    biases: list[Any],
    group: str,
    how: str,
    dim_and_extents: list[int],
) -> list[Any]:
    process_group, arguments = arguments_of(group, how)
    if kind == "share":
        return [rows.clone()]
    options = options_of(arguments, process_group, rows.shape[1])
    if dim_and_extents != NOT_SPLIT:
        options = replace(options, split=(dim_and_extents[0], tuple(dim_and_extents[1:])))
    products = RowProducts(matrices, options, biases=biases)
    require_fit(rows, products)
    way = arguments["way"]
    if kind == "gather":
        return gathered(rows, None, products, process_group, way)
    if kind == "enter":
        return products.multiply(rows)
    total = (scattered if kind == "scatter" else reduced)(rows, None, products, process_group, way)
    return [total.to(products.result_dtype(rows))]


@torch.library.register_fake("lapidist_distributed::product", lib=LIBRARY)  # type: ignore[untyped-decorator]
def product_outline(
    kind: Kind,
    rows: Any,
    matrices: list[Any],
    biases: list[Any],
    group: str,
    how: str,
    dim_and_extents: list[int],
) -> list[Any]:
    if kind == "share":
        return [torch.empty_like(rows)]
    process_group, arguments = arguments_of(group, how)
    (count,) = leading_of_result(kind, rows.shape[:1], members_of(process_group).ranks)
    products = RowProducts(matrices, Options(arguments["trans_b"], arguments["out_dtype"]))
    dtype = products.result_dtype(rows)
    return [rows.new_empty((count, products.columns(index)), dtype=dtype) for index in range(len(matrices))]


@torch.library.impl(LIBRARY, "product_back", "CompositeExplicitAutograd")  # type: ignore[untyped-decorator]
def product_back(
    kind: Kind,
    gs: list[Any],
    rows: Any,
    matrices: list[Any],
    biases: list[Any],
    needs: list[bool],
    group: str,
    how: str,
) -> list[Any]:
    """The gradients that are needed, of rows, matrices and biases, by what autograd runs without a graph."""
    process_group, arguments = arguments_of(group, how)
    of_rows, of_matrices, of_biases = needs
    options = options_of(arguments, process_group, rows.shape[-1])
    padded = biases or ([None] * len(matrices) if kind in ("gather", "enter") else [])
    context = SimpleNamespace(
        saved_tensors=(rows, *matrices, *padded),
        call=(process_group, options, arguments.get("way")),
        options=options,
        group=process_group,
        needs_input_grad=(
            of_rows,
            False,
            False,
            False,
            *[of_matrices] * len(matrices),
            *[of_biases] * len(padded),
        ),
    )
    backward: Any = FUNCTIONS[kind].backward
    gradients = backward.__wrapped__(context, *gs)
    if kind == "share":
        return [gradients[0]]
    results = [gradients[0]] if of_rows else []
    count = len(matrices)
    results += gradients[4 : 4 + count] if of_matrices else []
    results += gradients[4 + count :] if of_biases else []
    return [gradient.contiguous() for gradient in results]


@torch.library.register_fake("lapidist_distributed::product_back", lib=LIBRARY)  # type: ignore[untyped-decorator]
def outline_back(
    kind: Kind,
    gs: list[Any],
    rows: Any,
    matrices: list[Any],
    biases: list[Any],
    needs: list[bool],
    group: str,
    how: str,
) -> list[Any]:
    tensors = [([rows], needs[0]), (matrices, needs[1]), (biases, needs[2])]
    return [torch.empty_like(x).contiguous() for group_of_x, needed in tensors if needed for x in group_of_x]


def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
    kind, rows, matrices, biases, group, how, _ = inputs
    ctx.save_for_backward(rows, *matrices, *biases)
    ctx.call = kind, len(matrices), group, how
    ctx.shapes = [(result.shape, result.dtype) for result in output]


def backward(ctx: Any, gs: list[Any]) -> Any:
    rows, *tensors = ctx.saved_tensors
    kind, count, group, how = ctx.call
    matrices, biases = tensors[:count], tensors[count:]
    gs = [
        rows.new_zeros(shape, dtype=dtype) if g is None else g.contiguous()
        for g, (shape, dtype) in zip(gs, ctx.shapes, strict=True)
    ]
    needs = [rows.requires_grad, any(x.requires_grad for x in matrices), any(x.requires_grad for x in biases)]
    operator = torch.ops.lapidist_distributed.product_back
    gradients = list(operator(kind, gs, rows, matrices, biases, needs, group, how))
    of_rows = gradients.pop(0) if needs[0] else None
    of_matrices = [gradients.pop(0) if needs[1] else None for _ in matrices]
    of_biases = [gradients.pop(0) if needs[2] else None for _ in biases]
    return None, of_rows, of_matrices, of_biases, None, None, None


torch.library.register_autograd(
    "lapidist_distributed::product", backward, setup_context=setup_context, lib=LIBRARY
)
