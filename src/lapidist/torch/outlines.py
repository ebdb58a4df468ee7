"""Results as torch asks for them before there are numbers: shape, type and device, by the rules that real
calls keep.
"""

from __future__ import annotations

from typing import Any

from lapidist.calls import checks
from lapidist.calls.arguments import Arguments
from lapidist.calls.form import Form
from lapidist.frameworks.arrays import HOST, Operand, torch_dtype


def outline(tensor: Any, name: str) -> Operand:
    """What rules look at; tensors of torch.compile have no more."""
    dtype, device = (
        str(tensor.dtype)[6:],
        (tensor.device.index or 0) if tensor.device.type == "cuda" else HOST,
    )
    return Operand(name, 0, tuple(tensor.shape), tuple(tensor.stride()), dtype, device, "torch", None)


def of_product(a: Any, b: Any, c: Any, form: Form, names: tuple[str, str, str] = ("a", "b", "c")) -> Any:
    of_a, of_b, of_c = (
        None if each is None else outline(each, name) for each, name in zip((a, b, c), names, strict=True)
    )
    arguments = Arguments(of_a, of_b, of_c, None, form)
    return a.new_empty(arguments.result_shape, dtype=torch_dtype(arguments.out_dtype))


def of_matmul(a: Any, b: Any) -> Any:
    return of_product(a, b, None, Form(vectors=True))


def of_gemm(
    a: Any,
    b: Any,
    c: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    trans_a: bool = False,
    trans_b: bool = False,
) -> Any:
    return of_product(a, b, c, Form(trans_a, trans_b, False, alpha, beta))


def of_linear(input: Any, weight: Any, bias: Any = None) -> Any:
    checks.require_features(tuple(input.shape), tuple(weight.shape))
    form = Form(trans_b=True, beta=0.0 if bias is None else 1.0)
    product = of_product(as_rows(input), as_rows(weight), bias, form, ("input", "weight", "bias"))
    return product.new_empty(without(product, row=input.ndim == 1, column=weight.ndim == 1).shape)


def as_rows(tensor: Any) -> Any:
    """A vector is one row."""
    return tensor.unsqueeze(-2) if tensor.ndim == 1 else tensor


def without(product: Any, *, row: bool, column: bool) -> Any:
    """The product without the dimensions that vectors brought."""
    product = product.squeeze(-1) if column else product
    return product.squeeze(-1 if column else -2) if row else product
