"""What a linear layer does behind its sums: an activation, a residual, or a caller's epilogue."""

from __future__ import annotations

from typing import Any

from lapidist.calls.operation import given_epilogue
from lapidist.epilogues.layer_activations import ENDINGS
from lapidist.epilogues.ready_made import READY
from lapidist.epilogues.steps import TILE
from lapidist.epilogues.tracing import BoundEpilogue
from lapidist.errors import ArgumentError, ShapeError
from lapidist.jax.product import Product

ACTIVATIONS = "relu", "gelu", "gelu_tanh", "silu"  # names of ready-made epilogues


def require_known(activation: Any) -> None:
    if activation is not None and activation not in ACTIVATIONS:
        raise ArgumentError(
            f"activation: must be {', '.join(map(repr, ACTIVATIONS))} or None; got {activation!r}. Apply"
            " others to the result"
        )


def require_alone(epilogue: Any, **others: Any) -> None:
    """An epilogue has what a layer's names say else."""
    for name, value in others.items():
        if epilogue is not None and value is not None:
            got = repr(value) if isinstance(value, str) else f"a {type(value).__name__}"
            raise ArgumentError(f"{name}: must be None with an epilogue; got {got}. Apply it in the function")


def require_of_8_bits_alone(epilogue: Any) -> None:
    if epilogue is not None:
        raise ArgumentError(
            "epilogue: must be None with dtype=; got one. Round operands yourself, and pass them to"
            " lapidist.jax.gemm with scale_a and scale_b"
        )


def require_shape(residual: Any, shape: tuple[int, ...]) -> None:
    if residual.shape != shape:
        raise ShapeError(
            f"residual: must be of the result's shape, {shape}; got {residual.shape}. Broadcast it, or add it"
            " to the result"
        )


def with_lines(tile: Any, row: bool, column: bool) -> Any:
    """With the rows and columns that a product of vectors lacks."""
    tile = tile[..., None] if column else tile
    return tile[..., None, :] if row else tile


def given_with_lines(epilogue: Any, row: bool, column: bool) -> BoundEpilogue | None:
    """Its operands that have a value for each element of D, too."""
    given = given_epilogue(epilogue)
    if given is None or not (row or column):
        return given
    tiles = {each.name for each in given.function.parameters if each.kind == TILE}
    values = {
        name: with_lines(value, row, column)
        if name in tiles and getattr(value, "ndim", -1) >= row - column
        else value
        for name, value in given.values.items()
    }
    return given._replace(values=values)


def ended(
    product: Product, arrays: dict[str, Any], activation: str | None, residual: Any, out_dtype: str
) -> tuple[Product, dict[str, Any], BoundEpilogue | None]:
    """The sums have their bias by C; a residual that is all that is added is C itself."""
    if residual is None:
        return product, arrays, None if activation is None else READY[activation]()
    if activation is not None:
        return product, arrays, ENDINGS[activation, False]["residual",](residual=residual)
    if "c" in arrays or residual.dtype.name != out_dtype:
        return product, arrays, READY["residual"](residual=residual)
    return product._replace(arrays=(*product.arrays, "c"), beta=1.0), {**arrays, "c": residual}, None
