"""The public calls of lapidist.torch."""

from __future__ import annotations

from typing import Any, Literal, NoReturn

import torch

from lapidist.calls import fake_tensors
from lapidist.calls.keywords import unexpected
from lapidist.calls.number_rules import no_real_number
from lapidist.calls.operation import OPEN_BLOCKS
from lapidist.dtypes import IEEE, Precision
from lapidist.epilogues.layer_activations import require_epilogue_alone
from lapidist.errors import ArgumentError, DTypeError, LapidistError, shown
from lapidist.frameworks.torch_autocast import in_autocast
from lapidist.quantised.packed_weight import PackedWeight
from lapidist.quantised.product import require_free_order
from lapidist.torch import few_bits, fused_epilogues, operators, packed_activations
from lapidist.torch import symmetric as symmetric_products
from lapidist.torch.accumulation import accumulated, accumulated_groups
from lapidist.torch.activations import ended, two_layers
from lapidist.torch.dispatch_state import is_of_numbers, is_recorded, is_unobserved
from lapidist.torch.invariant_precision import with_invariance
from lapidist.torch.recorded_linear import recorded_linear

TENSOR = torch.Tensor


def matmul(
    a: Any,
    b: Any,
    *,
    out_dtype: Any = None,
    precision: Precision = IEEE,
    epilogue: Any = None,
    symmetric: Any = False,
    triangle: Any = None,
    invariant: bool | None = None,
    **unknown: NoReturn,
) -> Any:
    """torch.matmul(a, b). `out_dtype`, `precision`, `epilogue`, `symmetric`, `triangle` and `invariant` are
    lapidist.matmul's."""
    if unknown:
        raise unexpected(matmul, unknown)
    if invariant is not None or OPEN_BLOCKS:
        precision = with_invariance(precision, invariant)
    if symmetric is not False or triangle is not None:
        require_tensors(a=a, b=b)
        return symmetric_products.matmul(a, b, symmetric, triangle, out_dtype, precision, epilogue)
    if out_dtype is epilogue is None and precision is IEEE and is_of_numbers(a, b):
        product = operators.repeated_matmul(a, b)
        if product is not None:
            return product
    if isinstance(b, PackedWeight):
        require_usual(out_dtype=out_dtype, precision=precision)
        return packed_activations.linear(a, b, None, None, None, epilogue)
    require_tensors(a=a, b=b)
    if epilogue is not None:
        return fused_epilogues.matmul(a, b, epilogue, out_dtype, precision)
    return operators.matmul(*in_autocast(a, b), out_dtype, precision)


def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: complex = 1.0,
    beta: complex = 0.0,
    trans_a: bool | Literal["C"] = False,
    trans_b: bool | Literal["C"] = False,
    out_dtype: Any = None,
    precision: Precision = IEEE,
    epilogue: Any = None,
    invariant: bool | None = None,
    **unknown: NoReturn,
) -> Any:
    """alpha op(a) op(b) + beta c, where c broadcasts to the product. beta = 0 never reads c.

    Of complex tensors, op may be "C" (conjugated and transposed), alpha and beta complex."""
    if unknown:
        raise unexpected(gemm, unknown)
    if invariant is not None or OPEN_BLOCKS:
        precision = with_invariance(precision, invariant)
    if not (isinstance(a, TENSOR) and isinstance(b, TENSOR) and (c is None or isinstance(c, TENSOR))):
        require_tensors(("c",), a=a, b=b, c=c)
    (a, trans_a), (b, trans_b) = conjugated(a, trans_a), conjugated(b, trans_b)
    if isinstance(alpha, complex) or isinstance(beta, complex):
        b, alpha = multiplied("alpha", b, alpha, a)
        c, beta = multiplied("beta", c, beta, a)
    if epilogue is not None:
        how = {"alpha": alpha, "beta": beta, "trans_a": trans_a, "trans_b": trans_b}
        return fused_epilogues.gemm(a, b, c, epilogue, how, out_dtype, precision)
    return operators.gemm(*in_autocast(a, b, c), alpha, beta, trans_a, trans_b, out_dtype, precision)


def linear(
    input: Any,
    weight: Any,
    bias: Any = None,
    *,
    activation: str | None = None,
    residual: Any = None,
    out_dtype: Any = None,
    precision: Precision = IEEE,
    into: Any = None,
    epilogue: Any = None,
    invariant: bool | None = None,
    scale_a: Any = None,
    norm_eps: float | None = None,
    **unknown: NoReturn,
) -> Any:
    """torch.nn.functional.linear(input, weight, bias): input @ weight.T + bias, in one launch.

    `activation`: "relu", "gelu", "gelu_tanh" or "silu" of the sum, in the same launch.

    `residual`: a tensor of the result's shape that is added after it, in the same launch. With a bias and
    without an activation torch adds it where gradients are recorded.

    `epilogue`: a function of `lapidist.epilogue` with its operands, in the same launch. Where gradients are
    recorded, torch computes the function of the product.

    `invariant`: whether a row has the same bits whatever other rows there are, and so has its gradient.

    `into`: a tensor of weight's shape, float32 say. The backward pass adds the weight's gradient to it, in
    its type, and weight.grad gets none. Or a `TokenTree`, whose bits no cut into micro-batches changes.

    weight may be a `lapidist.quantised.PackedWeight` (k, n), as `PackedLinear.packed_weight`. Its input may
    be in e4m3 or int8, with `scale_a`, a factor or one for each row; it then has no gradient.

    `norm_eps`: that of an RMSNorm of the input, without a gain. Few rows by weights of few bits have it in
    the same launch; torch computes others."""
    if unknown:
        raise unexpected(linear, unknown)
    if scale_a is not None:
        more = {"residual": residual, "into": into, "epilogue": epilogue, "norm_eps": norm_eps}
        require_usual(precision, **more, invariant=invariant)
        return packed_activations.of_bytes(input, weight, scale_a, bias, activation, out_dtype)
    if invariant is not None or OPEN_BLOCKS:
        if isinstance(weight, PackedWeight):
            require_free_order(invariant)
        else:
            precision = with_invariance(precision, invariant)
    if norm_eps is not None:
        input, norm_eps = packed_activations.normed(input, weight, (bias, residual), norm_eps)
    usual = norm_eps is out_dtype is epilogue is activation is residual is None and precision is IEEE
    if usual and is_unobserved() and (product := repeated(input, weight, bias, into)) is not None:
        return product
    if isinstance(weight, PackedWeight):
        require_usual(out_dtype=out_dtype, precision=precision, into=into)
        return packed_activations.linear(input, weight, bias, activation, residual, epilogue, norm_eps)
    require_tensors(("bias",), input=input, weight=weight, bias=bias)
    input, weight, bias = in_autocast(input, weight, bias)
    return followed_linear(input, weight, bias, activation, residual, epilogue, into, out_dtype, precision)


def repeated(input: Any, weight: Any, bias: Any, into: Any) -> Any:
    """By the fast path of such a layer, if there is one."""
    if not is_recorded((input, weight, bias)):
        return operators.repeated_linear(input, weight, bias)
    return recorded_linear(input, weight, bias) if into is None else None


def followed_linear(
    input: Any,
    weight: Any,
    bias: Any,
    activation: str | None,
    residual: Any,
    epilogue: Any,
    into: Any,
    out_dtype: Any,
    precision: Precision,
) -> Any:
    """A layer of tensors, and what follows its sums."""
    if epilogue is not None:
        require_none(into)
        require_epilogue_alone(activation=activation, residual=residual)
        return fused_epilogues.linear(input, weight, bias, epilogue, out_dtype, precision)
    if activation is not None or residual is not None:
        require_none(into)
        return ended(input, weight, bias, activation, residual, out_dtype, precision)
    if into is not None:
        return accumulated(input, weight, bias, into, out_dtype, precision)
    return operators.linear(input, weight, bias, out_dtype, precision)


def mlp(
    input: Any,
    up: Any,
    up_bias: Any,
    down: Any,
    down_bias: Any,
    *,
    activation: str = "gelu",
    precision: Precision = IEEE,
    invariant: bool | None = None,
    **unknown: NoReturn,
) -> Any:
    """linear(activation(linear(input, up, up_bias)), down, down_bias). Two launches; biases may be None.

    `activation`: "relu", "gelu", "gelu_tanh" or "silu".

    In the backward pass one launch computes a product, the activation's derivative and the first bias's
    gradient."""
    if unknown:
        raise unexpected(mlp, unknown)
    if invariant is not None or OPEN_BLOCKS:
        precision = with_invariance(precision, invariant)
    if isinstance(up, PackedWeight) or isinstance(down, PackedWeight):
        how: dict[str, Any] = {"precision": precision}
        return linear(linear(input, up, up_bias, activation=activation, **how), down, down_bias, **how)
    biases = {"up_bias": up_bias, "down_bias": down_bias}
    require_tensors(tuple(biases), input=input, up=up, down=down, **biases)
    input, up, up_bias, down, down_bias = in_autocast(input, up, up_bias, down, down_bias)
    try:
        return two_layers(input, up, up_bias, down, down_bias, activation, precision)
    except LapidistError:
        fake_tensors.of_mlp(input, up, up_bias, down, down_bias, precision)
        raise


def require_tensors(optional: tuple[str, ...] = (), **arguments: Any) -> None:
    """Refuse arguments that are no tensors; the `optional` ones may be None."""
    for name, value in arguments.items():
        if not isinstance(value, TENSOR) and not (value is None and name in optional):
            way_out = "Pass it through torch.as_tensor first"
            if isinstance(getattr(value, name, None), TENSOR):
                way_out = f"Pass its .{name}"
            if type(value).__module__ == "torch.fx.proxy":
                way_out = "Call torch.fx.symbolic_trace before lapidist.torch.swap, or torch.export instead"
            raise DTypeError(f"{name}: must be a tensor; got {type(value).__name__}. {way_out}")


def conjugated(tensor: Any, op: Any) -> tuple[Any, Any]:
    """Conjugated and transposed by torch, without a copy, where op is "C"."""
    return (tensor.conj(), True) if isinstance(op, str) and op == "C" else (tensor, op)


def multiplied(name: str, tensor: Any, number: Any, a: Any) -> tuple[Any, Any]:
    """A tensor times a complex number, which operators do not take, and what is left of the number."""
    if not isinstance(number, complex) or tensor is None or number == 0:
        return tensor, 0.0 if number == 0 else number
    if not (tensor.is_complex() or a.is_complex()):
        raise no_real_number(name, number)
    return tensor * number, 1.0


def require_usual(precision: Any, **others: Any) -> None:
    """Refuse what is not for weights of few bits. Others are None where nobody passed them."""
    usual = isinstance(precision, str) and precision == IEEE
    for name, value in {"precision": None if usual else precision, **others}.items():
        if value is not None:
            raise ArgumentError(
                f"{name}: is not for weights of few bits; got"
                f" {shown(value)}. Leave it out, or unpack the weight"
            )


def require_none(into: Any) -> None:
    if into is not None:
        raise ArgumentError(
            f"into: must be None with an activation, a residual or an epilogue; got {type(into).__name__}."
            " Apply it to the result"
        )


def scaled(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    c: Any = None,
    *,
    out_dtype: Any = None,
    promote: bool | None = None,
    invariant: bool | None = None,
    **unknown: NoReturn,
) -> Any:
    """(scale_a a) (scale_b b) + c of 8-bit floats, with factors of the shapes of lapidist.gemm. c alone has a
    gradient. b may be a `lapidist.quantised.PackedWeight`, with None for its factors, and a then int8, too.
    """
    if unknown:
        raise unexpected(scaled, unknown)
    if isinstance(b, PackedWeight):
        require_usual(precision=IEEE, scale_b=scale_b, c=c, promote=promote, invariant=invariant)
        return few_bits.scaled(a, b, scale_a, None, out_dtype)
    require_tensors(("scale_a", "scale_b", "c"), a=a, b=b, scale_a=scale_a, scale_b=scale_b, c=c)
    return operators.scaled(a, b, scale_a, scale_b, c, out_dtype, promote, invariant)


def grouped(
    a: Any,
    b: Any,
    offsets: Any,
    *,
    trans_a: bool = False,
    trans_b: bool = False,
    out_dtype: Any = None,
    precision: Precision = IEEE,
    expected_rows: int | None = None,
    into: Any = None,
    invariant: bool | None = None,
    **unknown: NoReturn,
) -> Any:
    """Products of groups that end at `offsets`, which the device reads: rows, a (total, k) and b (groups, k,
    n); columns, a (groups, m, k) and b (k, total); or k, a (m, total) and b (total, n).

    Gradients are grouped, too; `offsets` have none. As with torch._grouped_mm, rows or columns behind the
    last group are not set, neither in the result nor in gradients. `expected_rows` is lapidist.grouped's.

    `into`: a tensor of b's shape (groups, k, n), float32 say. The backward pass adds the gradient of b to it,
    in its type, and b.grad gets none.

    b may be a `lapidist.quantised.PackedExperts`, of rows alone, and has no gradient then.
    """
    if unknown:
        raise unexpected(grouped, unknown)
    if isinstance(b, PackedWeight):
        transposed = {"trans_a": trans_a or None, "trans_b": trans_b or None}
        require_usual(out_dtype=out_dtype, precision=precision, into=into, invariant=invariant, **transposed)
        return few_bits.grouped(a, b, offsets, expected_rows)
    if invariant is not None or OPEN_BLOCKS:
        precision = with_invariance(precision, invariant)
    require_tensors(a=a, b=b, offsets=offsets)
    a, b = in_autocast(a, b)
    if into is not None:
        flags = trans_a, trans_b
        return accumulated_groups(a, b, offsets, into, flags, out_dtype, precision, expected_rows)
    return operators.grouped(a, b, offsets, trans_a, trans_b, out_dtype, precision, expected_rows)
