"""A linear layer as autograd records it in eager mode, where nothing but autograd of torch must see it.

The fast paths of its three products are kept by its shapes, one look-up for both passes. Backward nodes run
on a thread of torch's engine, with cold caches: a line of Python takes two to three times as long there.
"""

from __future__ import annotations

from typing import Any

import torch

from lapidist import api
from lapidist.calls.operation import USUAL_TYPES
from lapidist.calls.repeat import MATRIX_PATHS, FastPath, remember
from lapidist.calls.repeat.scalars import scalars_key
from lapidist.calls.repeat.shape import key_of_gemm
from lapidist.dtypes import IEEE
from lapidist.launch import Scalars
from lapidist.torch.dispatch_state import is_unobserved
from lapidist.torch.gradients import as_matrix, multiplied, of_one_type
from lapidist.torch.operators import PRODUCT, SUM
from lapidist.torch.recording import function_of


class LayerPaths:
    """The fast paths of a layer's products; None: it must be looked up. `numbers`: alpha, and beta of the
    bias.
    """

    __slots__ = ("forward", "has_batch", "numbers", "of_input", "of_weight")

    def __init__(self, forward: FastPath, numbers: Scalars, has_batch: bool) -> None:
        self.forward, self.numbers, self.has_batch = forward, numbers, has_batch
        self.of_input: FastPath | None = None
        self.of_weight: FastPath | None = None


PATHS: dict[Any, LayerPaths] = {}  # by what `recorded_linear` reads of the operands


class Unserved(Exception):
    """The fast path refused the operands."""


def recorded_linear(input: Any, weight: Any, bias: Any) -> Any:
    """linear with its gradients, for a call that `is_unobserved` and recorded. None: the full path must check
    it, as nothing like it has been multiplied.
    """
    try:
        key = input.shape, weight.shape, input.dtype, bias is None
        paths = PATHS.get(key) or paths_of(key, input, weight, bias)
    except Exception:  # no tensors; sparse, nested and such ones
        return None
    if paths is None:
        return None
    try:
        return apply(paths, input, weight, bias)
    except Unserved:
        PATHS.pop(key, None)
        return None


def paths_of(key: Any, input: Any, weight: Any, bias: Any) -> LayerPaths | None:
    """The fast paths of a layer whose product has one; None: it has none yet."""
    if input.ndim < 2 or weight.ndim != 2 or input.is_complex():  # gradients of those take conjugates
        return None
    alpha, beta, trans_a, trans_b = PRODUCT if bias is None else SUM
    full_key = key_of_gemm(input, weight, bias, None, trans_a, trans_b, scalars_key(alpha, beta), USUAL_TYPES)
    forward = MATRIX_PATHS.get(full_key)
    if forward is None:
        return None
    paths = LayerPaths(forward, (alpha, beta), input.ndim > 2)
    remember(PATHS, key, paths)
    return paths


def forward(ctx: Any, paths: LayerPaths, input: Any, weight: Any, bias: Any) -> Any:
    output = paths.forward(input, weight, bias, None, paths.numbers, None)
    if output is None:
        raise Unserved
    _, input_needed, weight_needed, _ = ctx.needs_input_grad
    ctx.save_for_backward(input if weight_needed else None, weight if input_needed else None)
    ctx.paths = paths  # all else that the backward pass needs: an attribute takes a place in a dict
    return output


def backward(ctx: Any, g: Any) -> tuple[Any, ...]:
    (input, weight), paths, needed = ctx.saved_tensors, ctx.paths, ctx.needs_input_grad
    of_input = of_weight = None
    unobserved = is_unobserved()
    if needed[1]:
        if unobserved and paths.of_input is not None:
            of_input = paths.of_input(g, weight, None, None, api.UNSCALED, None)
        if of_input is None:
            of_input, paths.of_input = looked_up(g, weight, False, unobserved)
    if needed[2]:
        rows, rows_of_g = (as_matrix(input), as_matrix(g)) if paths.has_batch else (input, g)
        if unobserved and paths.of_weight is not None:
            of_weight = paths.of_weight(rows_of_g, rows, None, None, api.UNSCALED, None)
        if of_weight is None:
            of_weight, paths.of_weight = looked_up(rows_of_g, rows, True, unobserved)
    # torch's engine sums a gradient to the shape of its bias
    return None, of_input, of_weight, g if needed[3] else None


def looked_up(g: Any, factor: Any, trans_g: bool, unobserved: bool) -> tuple[Any, FastPath | None]:
    """A product with the gradient, and the fast path of the next one like it."""
    g, factor = of_one_type(g, factor)
    product = multiplied(g, factor, 1.0, trans_g, False, IEEE)
    if not unobserved:
        return product, None
    key = key_of_gemm(g, factor, None, None, trans_g, False, api.UNSCALED_KEY, USUAL_TYPES)
    return product, MATRIX_PATHS.get(key)


apply = function_of(torch.autograd.function._SingleLevelFunction, forward, backward).apply
