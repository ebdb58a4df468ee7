"""What symmetric products do not take, in words."""

from __future__ import annotations

from typing import Any

from lapidist.backends.backend import Backend
from lapidist.calls.bound import Bound
from lapidist.calls.symmetric_epilogues import (
    require_declared,
    require_hermitian_epilogue,
    require_symmetric_epilogue,
)
from lapidist.errors import ArgumentError, ShapeError, shown
from lapidist.frameworks.arrays import HOST

HALVES = ("lower", "upper")
IN_PLACE = ("torch", "cupy", "numpy")  # whose new arrays are written again after they were made


def require_half(half: object) -> None:
    if half is not None and not (isinstance(half, str) and half in HALVES):
        raise ArgumentError(
            f'triangle: must be "lower" or "upper"; got {shown(half)}. Leave it out for both halves'
        )


def require_known_symmetric(symmetric: object, half: str | None) -> None:
    if half is not None and symmetric is False:
        raise ArgumentError(
            f"triangle: is for a result that the caller knows to be symmetric; got {shown(half)} and"
            " symmetric=False. Write symmetric=True, or leave it out"
        )


def require_current_stream(stream: Any, half: str | None) -> None:
    """The framework may reuse the memory of values once the call returns, which its own stream orders."""
    if half is not None and stream is not None:
        raise ArgumentError(
            f'stream: with triangle="{half}" products run on the current stream of the arrays\' framework;'
            " got another one. Make it current (with torch.cuda.stream(...), say)"
        )


def require_hermitian(bound: Bound, of_itself: bool) -> None:
    """A matrix times its conjugated transpose, by real numbers: else it is no mirror image of itself."""
    if not of_itself:
        raise ArgumentError(
            f"symmetric: is for real numbers; got {bound.out_dtype}. gram(a) multiplies a by its conjugated"
            " transpose, or leave it out"
        )
    for name, number in zip(("alpha", "beta"), bound.alpha_beta, strict=True):
        if isinstance(number, complex):
            raise ArgumentError(
                f"{name}: must be real, as the result of gram equals its conjugated transpose; got {number}."
                " Call gemm"
            )
    require_hermitian_epilogue(bound.epilogue)


def require_square(bound: Bound, declared: tuple[str, ...]) -> None:
    m, n = bound.shape[-2:]
    if m != n or bound.extents.drop_row or bound.extents.drop_col:
        raise ShapeError(
            f"symmetric: the result must be square; a {bound.a.shape} times b {bound.b.shape} gives"
            f" {bound.result_shape}. Leave it out"
        )
    operation = bound.operation
    if not operation._replace(epilogue=None).is_plain:
        raise ArgumentError(
            "symmetric: takes matrices and numbers alone; got factors, indices, or alpha or beta in an array."
            " Leave them out, or leave symmetric out"
        )
    if operation.epilogue is not None:
        require_symmetric_epilogue(operation.epilogue.function, declared)
    else:
        require_declared(declared)


def require_place(bound: Bound, backend: Backend) -> None:
    like = bound.like
    if like.framework not in IN_PLACE or (backend.ordinal != HOST and like.device == HOST):
        way_out = "Call gram or matmul of lapidist.jax" if like.framework == "jax" else "Copy them"
        raise ArgumentError(
            "a: symmetric products take arrays of torch or CuPy on a GPU, and of NumPy or torch on the host;"
            f" got {like.framework} arrays in {like.place}. {way_out}, or multiply without symmetric"
        )
