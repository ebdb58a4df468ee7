"""Epilogues of linear layers: an activation, a residual, or a caller's epilogue."""

from __future__ import annotations

from typing import Any

from lapidist.calls.operation import epilogue_checked
from lapidist.epilogues.layer_activations import ENDINGS
from lapidist.epilogues.ready_made import READY
from lapidist.epilogues.steps import TILE
from lapidist.epilogues.tracing import BoundEpilogue
from lapidist.errors import ArgumentError, ShapeError
from lapidist.jax.product import Product


def require_8_bits_alone(epilogue: Any) -> None:
    if epilogue is not None:
        raise ArgumentError(
            "epilogue: must be None with dtype=; got one. Round operands yourself, and pass them to"
            " lapidist.jax.gemm with scale_a and scale_b"
        )


def require_shape(residual: Any, shape: tuple[int, ...]) -> None:
    if residual is not None and residual.shape != shape:
        raise ShapeError(
            f"residual: must be of the result's shape, {shape}; got {residual.shape}. Broadcast it, or add it"
            " to the result"
        )


def with_lines(tile: Any, row: bool, column: bool) -> Any:
    """A tile with the rows and columns that a product of vectors lacks."""
    tile = tile[..., None] if column else tile
    return tile[..., None, :] if row else tile


def bound_with_lines(epilogue: Any, row: bool, column: bool) -> BoundEpilogue | None:
    """The epilogue, with rows and columns for its Tile operands."""
    bound = epilogue_checked(epilogue)
    if bound is None or not (row or column):
        return bound
    tiles = {parameter.name for parameter in bound.function.parameters if parameter.kind == TILE}
    values = {
        name: with_lines(value, row, column)
        if name in tiles and getattr(value, "ndim", -1) >= row - column
        else value
        for name, value in bound.values.items()
    }
    return bound._replace(values=values)


def ended(
    product: Product, arrays: dict[str, Any], activation: str | None, residual: Any, out_dtype: str
) -> tuple[Product, dict[str, Any], BoundEpilogue | None]:
    """The product, arrays and epilogue of a layer. The bias is C, or else a residual of the output's type."""
    if residual is None:
        return product, arrays, None if activation is None else READY[activation]()
    if activation is not None:
        return product, arrays, ENDINGS[activation, False]["residual",](residual=residual)
    if "c" in arrays or residual.dtype.name != out_dtype:
        return product, arrays, READY["residual"](residual=residual)
    return product._replace(arrays=(*product.arrays, "c"), beta=1.0), {**arrays, "c": residual}, None
