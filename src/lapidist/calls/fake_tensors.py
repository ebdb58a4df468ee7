"""Results without numbers, for torch: shape, type and device, by the rules of real calls."""

from __future__ import annotations

from typing import Any

import torch

from lapidist.calls import argument_rules
from lapidist.calls.bound import Bound
from lapidist.calls.emulation_rules import in_float32, require_float32
from lapidist.calls.linear_shapes import require_features
from lapidist.calls.operation import Factors, Groups, Operation, is_array, types_named
from lapidist.dtypes import EMULATIONS, IEEE
from lapidist.epilogues.tracing import BoundEpilogue
from lapidist.errors import DTypeError
from lapidist.frameworks.arrays import HOST, META, Operand
from lapidist.frameworks.new_arrays import torch_dtype
from lapidist.frameworks.tensor_rules import require_dense


def outline(tensor: Any, name: str) -> Operand:
    """A tensor as an operand for the rules; torch.compile's tensors have no address."""
    require_dense(tensor, name)
    kind, dtype = tensor.device.type, str(tensor.dtype)[6:]
    device = (tensor.device.index or 0) if kind == "cuda" else META if kind == "meta" else HOST
    return Operand(name, 0, tuple(tensor.shape), tuple(tensor.stride()), dtype, device, "torch", None)


def outlines(names: tuple[str, ...], *tensors: Any) -> list[Any]:
    pairs = zip(tensors, names, strict=True)
    return [None if tensor is None else outline(tensor, name) for tensor, name in pairs]


def outlined(epilogue: BoundEpilogue | None) -> BoundEpilogue | None:
    """An epilogue with the outlines of its operands."""
    if epilogue is None:
        return None
    return epilogue._replace(
        values={name: of_operand(name, value) for name, value in epilogue.values.items()}
    )


def of_operand(name: str, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return outline(value, name)
    if torch.compiler.is_compiling():
        return 0  # a number may be another one each time that a graph runs
    if is_array(value):
        raise DTypeError(
            f"{name}: must be a number or a tensor where torch has the function; got {type(value).__name__}."
            " Pass it through torch.as_tensor first"
        )
    return value


def of_product(
    a: Any, b: Any, c: Any, operation: Operation, names: tuple[str, str, str] = ("a", "b", "c")
) -> Any:
    of_a, of_b, of_c = outlines(names, a, b, c)
    bound = bound_of(of_a, of_b, of_c, operation)
    return a.new_empty(bound.result_shape, dtype=torch_dtype(bound.out_dtype))


def bound_of(a: Operand, b: Operand, c: Operand | None, operation: Operation) -> Bound:
    """Emulated float32 has the rules of float32, and refuses other types."""
    precision = operation.types.precision
    if precision not in EMULATIONS or operation.groups is not None:
        return Bound(a, b, c, None, operation)
    bound = Bound(a, b, c, None, in_float32(operation))
    require_float32(bound, precision)
    return bound


def of_matmul(
    a: Any, b: Any, out_dtype: Any = None, precision: Any = IEEE, epilogue: BoundEpilogue | None = None
) -> Any:
    types = types_named(out_dtype, None, precision)
    return of_product(a, b, None, Operation(vectors=True, types=types, epilogue=outlined(epilogue)))


def of_gemm(
    a: Any,
    b: Any,
    c: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    trans_a: bool = False,
    trans_b: bool = False,
    out_dtype: Any = None,
    precision: Any = IEEE,
    epilogue: BoundEpilogue | None = None,
) -> Any:
    types = types_named(out_dtype, None, precision)
    operation = Operation(trans_a, trans_b, False, alpha, beta, types, epilogue=outlined(epilogue))
    return of_product(a, b, c, operation)


def of_linear(
    input: Any,
    weight: Any,
    bias: Any = None,
    out_dtype: Any = None,
    precision: Any = IEEE,
    names: tuple[str, str, str] = ("input", "weight", "bias"),
) -> Any:
    require_features(tuple(input.shape), tuple(weight.shape), names=names)
    types = types_named(out_dtype, None, precision)
    operation = Operation(trans_b=True, beta=0.0 if bias is None else 1.0, types=types)
    product = of_product(as_rows(input), as_rows(weight), bias, operation, names)
    return product.new_empty(without(product, row=input.ndim == 1, column=weight.ndim == 1).shape)


def of_mlp(input: Any, up: Any, up_bias: Any, down: Any, down_bias: Any, precision: Any = IEEE) -> Any:
    hidden = of_linear(input, up, up_bias, None, precision, ("input", "up", "up_bias"))
    return of_linear(hidden, down, down_bias, None, precision, ("hidden", "down", "down_bias"))


def of_scaled(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    c: Any = None,
    out_dtype: Any = None,
    promote: bool | None = None,
    invariant: bool | None = None,
) -> Any:
    names = ("a", "b", "c", "scale_a", "scale_b")
    of_a, of_b, of_c, *factors = outlines(names, a, b, c, scale_a, scale_b)
    types = types_named(out_dtype, None, IEEE, promote)
    operation = Operation(beta=0.0 if c is None else 1.0, types=types, factors=Factors(*factors))
    bound = Bound(of_a, of_b, of_c, None, operation)
    return a.new_empty(bound.result_shape, dtype=torch_dtype(bound.out_dtype))


def of_grouped(
    a: Any,
    b: Any,
    offsets: Any,
    trans_a: bool = False,
    trans_b: bool = False,
    out_dtype: Any = None,
    precision: Any = IEEE,
    expected_rows: int | None = None,
) -> Any:
    types = types_named(out_dtype, None, precision)
    groups = Groups(outline(offsets, "offsets"), None, expected_rows)
    return of_product(a, b, None, Operation(trans_a, trans_b, types=types, groups=groups))


def of_update(
    out: Any,
    a: Any,
    b: Any,
    alpha: float = 1.0,
    beta: float = 1.0,
    trans_a: bool = False,
    trans_b: bool = False,
    precision: Any = IEEE,
) -> None:
    of_a, of_b, of_out = outlines(("a", "b", "out"), a, b, out)
    operation = Operation(trans_a, trans_b, False, alpha, beta, types_named(out.dtype, None, precision))
    bound = bound_of(of_a, of_b, of_out if beta else None, operation)
    argument_rules.require_shape_of_output(of_out.shape, bound.result_shape)


def of_grouped_update(
    out: Any,
    a: Any,
    b: Any,
    offsets: Any,
    trans_a: bool = False,
    trans_b: bool = False,
    precision: Any = IEEE,
    expected_rows: int | None = None,
) -> None:
    of_a, of_b, of_out, ends = outlines(("a", "b", "out", "offsets"), a, b, out, offsets)
    types, groups = types_named(out.dtype, None, precision), Groups(ends, None, expected_rows)
    bound = Bound(
        of_a, of_b, of_out, None, Operation(trans_a, trans_b, False, 1.0, 1.0, types, groups=groups)
    )
    argument_rules.require_shape_of_output(of_out.shape, bound.result_shape)


def as_rows(tensor: Any) -> Any:
    """A tensor; a vector as one row."""
    return tensor.unsqueeze(-2) if tensor.ndim == 1 else tensor


def in_rows(tensor: Any) -> Any:
    """All rows of a batch as one matrix. reshape(-1, 0) could not count them."""
    return as_rows(tensor).flatten(0, -2)


def without(product: Any, *, row: bool, column: bool) -> Any:
    """The product without the dimensions that vectors were given."""
    product = product.squeeze(-1) if column else product
    return product.squeeze(-1 if column else -2) if row else product


def within(out: Any, *, row: bool, column: bool) -> Any:
    """`out` with the dimensions that vectors are given: `without` undone."""
    if out is None:
        return None
    out = out.unsqueeze(-1 if column else -2) if row else out
    return out.unsqueeze(-1) if column else out
