"""Products over several ranks as autograd records them. The gradient of a gather is a sum over ranks, and the
other way round. So gradients take the same ways.

A rank keeps the rows that it was given, not those of all ranks: going back, they are gathered again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import torch

from lapidist import api
from lapidist.distributed.chosen_ways import gathered, reduced, require_offered, scattered
from lapidist.distributed.chunk_products import gradient_in_chunks
from lapidist.distributed.collectives import gather, in_memory, summed
from lapidist.distributed.product_options import Options
from lapidist.distributed.row_products import RowProducts
from lapidist.errors import ArgumentError

Back = TypeVar("Back", bound=Callable[..., Any])


def once(function: Back) -> Back:
    """Gradients of these gradients are refused: they are not recorded."""
    return cast(Back, torch.autograd.function.once_differentiable(function))


def recorded(*tensors: Any) -> bool:
    if not torch.is_grad_enabled():
        return False
    return any(tensor is not None and tensor.requires_grad for tensor in tensors)


def require_no_scales(*factors: Any) -> None:
    """Refuse what has no gradient, and no place in a compiler's graph."""
    if any(value is not None for value in factors):
        raise ArgumentError(
            "scale_a, scale_b: must be None where gradients are recorded or torch.compile compiles; got one."
            " Call it under torch.no_grad without a compiler, or take layers of"
            " lapidist.torch.swap(model, mesh=..., dtype=torch.float8_e4m3fn), which have gradients"
        )


def agreeing(options: Options, kind: str, rows: Any, matrices: Sequence[Any]) -> Options:
    """With the operands whose gradients are exchanged. A rank that records others would meet nobody going
    back, or the next call of another rank.
    """
    if kind not in ("gather", "scatter"):
        return options
    pairs = ("a", recorded(rows)), ("b", recorded(*matrices))
    return replace(options, gradients=" and ".join(name for name, is_recorded in pairs if is_recorded))


def back(options: Options) -> Options:
    """Of a product with the gradient: b the other way round, in the gradient's type. Chunks of k are those of
    its columns.
    """
    return replace(
        options,
        trans_b=not options.trans_b,
        out_dtype=None,
        of_columns=options.chunks is not None,
        gradients="",
    )


def of_result(g: Any, rows: Any) -> Any:
    """The result's gradient in the type of the operands, which it is multiplied with."""
    return in_memory(g.to(rows.dtype))


def factors_of_gradients(ctx: Any) -> list[Any]:
    """What a forward pass kept. Gradients are products with conjugates of complex numbers."""
    kept = ctx.saved_tensors
    return [
        tensor.conj().resolve_conj() if tensor is not None and tensor.is_complex() else tensor
        for tensor in kept
    ]


def of_matrix(rows: Any, g: Any, matrix: Any, options: Options) -> Any:
    """The gradient of a matrix that rows were multiplied by."""
    if options.chunks is not None:
        return gradient_in_chunks(rows, g, options).to(matrix.dtype)
    left, right = (g, rows) if options.trans_b else (rows, g)
    product = api.gemm(left, right, trans_a=True, precision=options.precision, invariant=options.invariant)
    return product.to(matrix.dtype)


def of_bias(g: Any, bias: Any) -> Any:
    return g.sum(0).to(bias.dtype)


def sum_of_products(gs: Sequence[Any], matrices: Sequence[Any], options: Options) -> tuple[Any, Any]:
    """Gradients and their matrices as one: what several products of the same rows give back is one sum."""
    if len(gs) == 1:
        return gs[0].contiguous(), matrices[0]
    return torch.cat(list(gs), 1), torch.cat(list(matrices), 0 if options.trans_b else 1)


class Gathered(torch.autograd.Function):  # type: ignore[misc]
    """all_gather_matmul of several matrices, with their biases."""

    @staticmethod
    def forward(
        ctx: Any, rows: Any, group: Any, options: Options, way: Any, *matrices_and_biases: Any
    ) -> Any:
        matrices, biases = halves(matrices_and_biases)
        ctx.save_for_backward(rows, *matrices, *biases)
        ctx.call = group, options, way
        products = RowProducts(matrices, options, biases=some(biases))
        return tuple(gathered(rows, None, products, group, way))

    @staticmethod
    @once
    def backward(ctx: Any, *gs: Any) -> Any:
        rows, *saved = factors_of_gradients(ctx)
        matrices, biases = halves(saved)
        group, options, way = ctx.call
        of_rows = None
        of_sums, gs = gs, tuple(of_result(g, rows) for g in gs)
        if ctx.needs_input_grad[0]:
            g, matrix = sum_of_products(gs, matrices, options)
            products = RowProducts([matrix], back(options))
            of_rows = scattered(g, None, products, group, BACK_OF_GATHER.get(way, way)).to(rows.dtype)
        of_matrices: list[Any] = [None] * len(matrices)
        if any(ctx.needs_input_grad[4 : 4 + len(matrices)]):
            everything = gather(rows, group, "all_gather_matmul").wait().flatten(0, 1)
            of_matrices = [
                of_matrix(everything, g, matrix, options) for g, matrix in zip(gs, matrices, strict=True)
            ]
        return of_rows, None, None, None, *of_matrices, *of_biases(of_sums, biases)


class Entered(torch.autograd.Function):  # type: ignore[misc]
    """Products of rows that all ranks have; the gradient of the rows is summed over ranks."""

    @staticmethod
    def forward(
        ctx: Any, rows: Any, group: Any, options: Options, way: Any, *matrices_and_biases: Any
    ) -> Any:
        matrices, biases = halves(matrices_and_biases)
        ctx.save_for_backward(rows, *matrices, *biases)
        ctx.call = group, options, way
        if way is not None and ctx.needs_input_grad[0]:
            count, columns = len(rows), sum(matrix.shape[not options.trans_b] for matrix in matrices)
            outline = rows.new_empty(()).expand(count, columns)  # of the gradient, which is exchanged
            going_back = RowProducts(matrices[:1], back(options))
            require_offered("matmul_all_reduce", outline, going_back, group, way)
        products = RowProducts(matrices, options, biases=some(biases))
        return tuple(products.multiply(rows))

    @staticmethod
    @once
    def backward(ctx: Any, *gs: Any) -> Any:
        rows, *saved = factors_of_gradients(ctx)
        matrices, biases = halves(saved)
        group, options, way = ctx.call
        of_rows = None
        of_sums, gs = gs, tuple(of_result(g, rows) for g in gs)
        if ctx.needs_input_grad[0]:
            g, matrix = sum_of_products(gs, matrices, options)
            of_rows = reduced(g, None, RowProducts([matrix], back(options)), group, way).to(rows.dtype)
        of_matrices = [of_matrix(rows, g, matrix, options) for g, matrix in zip(gs, matrices, strict=True)]
        return of_rows, None, None, None, *of_matrices, *of_biases(of_sums, biases)


class Scattered(torch.autograd.Function):  # type: ignore[misc]
    """matmul_reduce_scatter."""

    @staticmethod
    def forward(ctx: Any, rows: Any, group: Any, options: Options, way: Any, matrix: Any) -> Any:
        ctx.save_for_backward(rows, matrix)
        ctx.call = group, options, way
        return scattered(rows, None, RowProducts([matrix], options), group, way)

    @staticmethod
    @once
    def backward(ctx: Any, g: Any) -> Any:
        rows, matrix = factors_of_gradients(ctx)
        group, options, way = ctx.call
        of_rows = of_b = None
        g = of_result(g, rows)
        if ctx.needs_input_grad[0]:
            products = RowProducts([matrix], back(options))
            (of_rows,) = gathered(g, None, products, group, BACK_OF_SUM.get(way, way))
        if ctx.needs_input_grad[4]:
            everything = gather(g, group, "matmul_reduce_scatter").wait().flatten(0, 1)
            of_b = of_matrix(rows, everything, matrix, options)
        return of_rows if of_rows is None else of_rows.to(rows.dtype), None, None, None, of_b


class Reduced(torch.autograd.Function):  # type: ignore[misc]
    """matmul_all_reduce; without a group, of one rank. All ranks have the result's gradient, so nothing is
    exchanged going back.
    """

    @staticmethod
    def forward(ctx: Any, rows: Any, group: Any, options: Options, way: Any, matrix: Any) -> Any:
        ctx.save_for_backward(rows, matrix)
        ctx.options = options
        products = RowProducts([matrix], options)
        return products.multiply(rows)[0] if group is None else reduced(rows, None, products, group, way)

    @staticmethod
    @once
    def backward(ctx: Any, g: Any) -> Any:
        rows, matrix = factors_of_gradients(ctx)
        options = ctx.options
        g = of_result(g, rows)
        of_rows = None
        if ctx.needs_input_grad[0]:
            of_rows = RowProducts([matrix], back(options)).multiply(g)[0].to(rows.dtype)
        of_b = of_matrix(rows, g, matrix, options) if ctx.needs_input_grad[4] else None
        return of_rows, None, None, None, of_b


class Shared(torch.autograd.Function):  # type: ignore[misc]
    """A tensor that all ranks have and add to rows of their own: its gradient is summed over ranks."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, group: Any) -> Any:
        ctx.group = group
        return tensor.view_as(tensor)

    @staticmethod
    @once
    def backward(ctx: Any, g: Any) -> Any:
        return summed(g, ctx.group, "a bias's gradient"), None


# The way of the gradient's exchange, where a caller chose one. Few rows of a sum may have long shards of it.
BACK_OF_GATHER = {"push": "slots", "waiting": "slots"}
BACK_OF_SUM = {"slots": "push", "tiles": "push", "one_shot": "push"}


def halves(values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Matrices, and as many biases."""
    middle = len(values) // 2
    return list(values[:middle]), list(values[middle:])


def some(biases: Sequence[Any]) -> Sequence[Any]:
    """None at all, if all are None."""
    return () if all(bias is None for bias in biases) else biases


def of_biases(gs: Sequence[Any], biases: Sequence[Any]) -> list[Any]:
    return [None if bias is None else of_bias(g, bias) for g, bias in zip(gs, biases, strict=True)]
