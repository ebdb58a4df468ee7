"""The rules for arguments of gemm, each written once. A message names the argument, the rule, the value and
the way out.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np

from lapidist.build.compile_policy import VARIABLE, WAYS
from lapidist.dtypes import (
    EMULATIONS,
    FP8,
    MIXED,
    OPERANDS,
    PART_OF,
    PRECISIONS,
    TF32,
    THREE_PRODUCTS,
    accumulators_of,
    complex_product,
    outputs_of,
    size_of,
    type_of_both,
)
from lapidist.errors import ArgumentError, DeviceError, DTypeError, ShapeError, StrideError, shown
from lapidist.frameworks.arrays import HOST, Operand, broadcast, operand_of
from lapidist.frameworks.host_arrays import casts, is_odd, multiplied_by_numpy, on_host

BY_NUMPY = "; NumPy multiplies host arrays of it, without device="


def why_no_kernel(a: Operand, b: Operand) -> str:
    """Why no kernel multiplies these types; "": one does. NumPy takes more of them."""
    if PART_OF.keys() & {a.dtype, b.dtype} and not complex_product(a.dtype, b.dtype):
        return types_differ(a, b)
    return unsupported(a) or unsupported(b) or types_differ(a, b)


def unsupported(operand: Operand) -> str:
    if operand.dtype in OPERANDS:
        return ""
    instead = BY_NUMPY if multiplied_by_numpy(operand) else ""
    if operand.dtype in PART_OF:
        return (
            f"{operand.name}: element type must be real here; got {operand.dtype}. matmul, gemm and plan take"
            f" complex arrays, without factors or groups; or multiply real and imaginary parts{instead}"
        )
    return (
        f"{operand.name}: element type must be one of {', '.join(OPERANDS)}; got {operand.dtype}. Convert"
        f" it first{instead}"
    )


MODES = {
    "gemm": "one pair of matrices",
    "batched": "stacks of matrices",
    "array": "lists of arrays, or Pointers",
}


def require_mode(mode: object, a: object, b: object, listed: bool) -> None:
    """The mode that a caller names must agree with a and b."""
    if not isinstance(mode, str) or mode not in MODES:
        raise ArgumentError(
            f"mode: must be one of {', '.join(MODES)}, or None; got {shown(mode)}. Or leave it out"
        )
    batched = any(getattr(array, "ndim", 2) > 2 for array in (a, b))
    actual = "array" if listed else "batched" if batched else "gemm"
    if mode != actual:
        raise ArgumentError(
            f"mode: {mode!r} is for {MODES[mode]}; got {MODES[actual]}. Pass those, or mode={actual!r}"
        )


def types_differ(a: Operand, b: Operand) -> str:
    """Why the two types are not multiplied with each other; "": some tensor core does it."""
    if a.dtype == b.dtype or frozenset((a.dtype, b.dtype)) in MIXED:
        return ""
    return (
        f"{b.name}: element type must be that of {a.name}, {a.dtype}; got {b.dtype}."
        f" Convert {common_type(a, b)}, which keeps every number (.astype or .to)"
    )


def common_type(a: Operand, b: Operand) -> str:
    """What to convert to a type that holds all numbers of both."""
    wide = type_of_both(a.dtype, b.dtype)
    others = [operand.name for operand in (a, b) if operand.dtype != wide]
    return f"{others[0] if len(others) == 1 else 'both'} to {wide}"


def require_precision(precision: object) -> None:
    if not isinstance(precision, str) or precision not in PRECISIONS:
        instead = 'Leave it out for all bits: others\' "highest" is "ieee", their "high" is "tf32"'
        instead = f"Write lapidist.Accuracy({precision})" if type(precision) is int else instead
        raise ArgumentError(
            'precision: must be "ieee", "tf32", "emulated", "emulated_any_range", "3m" or a lapidist.'
            f"Accuracy; got {shown(precision)}. {instead}"
        )


def require_precision_for(precision: str, a: Operand) -> None:
    if precision in EMULATIONS:
        raise ArgumentError(
            f'precision: "{precision}" takes several launches, which matmul and gemm make of matrices; got a'
            " plan, a list, groups or arrays that JAX traces. Call them, or leave it out"
        )
    if precision == THREE_PRODUCTS and a.dtype not in PART_OF:
        rule = f'precision: "{precision}" is a way to multiply complex numbers'
        raise ArgumentError(f"{rule}; a is {a.dtype}. Leave it out")
    if precision == TF32 and PART_OF.get(a.dtype, a.dtype) != "float32":
        raise ArgumentError(
            f'precision: "tf32" is a way to multiply float32; a is {a.dtype}. Leave it out, or convert a and'
            f" b to {'complex64' if a.dtype in PART_OF else 'float32'}"
        )


def require_accumulator(acc_dtype: str | None, a: Operand) -> str:
    """The type in which sums are kept."""
    dtypes = accumulators_of(a.dtype)
    if acc_dtype is not None and acc_dtype not in dtypes:
        raise DTypeError(
            f"acc_dtype: must be {' or '.join(dtypes)} for {a.dtype}; got {acc_dtype}. Leave it out for"
            f" {dtypes[0]}"
        )
    return acc_dtype or dtypes[0]


def require_8_bit_floats(name: str, operand: Operand, instead: str) -> None:
    if operand.dtype not in FP8:
        raise DTypeError(f"{name}: is for 8-bit floats; {operand.name} is {operand.dtype}. {instead}")


def require_promotion(promote: bool | None, a: Operand, accumulator: str) -> bool:
    if promote and (a.dtype not in (*FP8, "bfloat16", "float16") or accumulator != "float32"):
        raise DTypeError(
            f"promote: is for floats of 8 and 16 bits summed in float32; a is {a.dtype}, summed in"
            f" {accumulator}. Leave it out: tensor cores keep its sums"
        )
    return bool(promote)


def require_output_type(out_dtype: str | None, out: Any, a: Operand, b: Operand) -> str:
    """The type of C and D: the one asked for, else that of `out`, else the default of the operands' types."""
    dtypes = outputs_of(a.dtype, b.dtype)
    operands = a.dtype if a.dtype == b.dtype else f"{a.dtype} and {b.dtype}"
    out_type = None if out is None else out.dtype.name if is_odd(out) else operand_of(out, "out").dtype
    if out_dtype is not None and out_dtype not in dtypes:
        raise DTypeError(
            f"out_dtype: must be {' or '.join(dtypes)} for operands of {operands}; got {out_dtype}. Ask for"
            f" {dtypes[0]} and convert it"
        )
    if out_dtype is None and out_type not in (None, *dtypes) and a.device == HOST and casts(dtypes[0], out):
        return dtypes[0]
    if out_type is not None and (out_type not in dtypes or out_dtype not in (None, out_type)):
        rule = out_dtype or " or ".join(dtypes)
        raise DTypeError(
            f"out: element type must be {rule} for operands of {operands}; got {out_type}. Pass an array of"
            f" {out_dtype or dtypes[0]}"
        )
    return out_type or out_dtype or dtypes[0]


def require_type_of_output(c: Operand, dtype: str) -> None:
    if c.dtype != dtype:
        raise DTypeError(
            f"{c.name}: element type must be that of the output, {dtype}; got {c.dtype}. "
            "Convert it (.astype or .to), or ask for its type with out_dtype"
        )


def require_same_device(operand: Operand, a: Operand) -> None:
    if operand.device != a.device:
        raise DeviceError(
            f"{operand.name}: must be where {a.name} is, {a.place}; it is in {operand.place}. Move one of"
            " them to the other's place"
        )


MOST_DIMENSIONS = 64  # of NumPy's arrays


def require_matrix(operand: Operand, vectors: bool) -> None:
    if vectors and not operand.shape:
        raise ShapeError(
            f"{operand.name}: must have at least 1 dimension; got an array without any. Multiply by a scalar"
            " with *"
        )
    if len(operand.shape) > MOST_DIMENSIONS:
        raise ShapeError(
            f"{operand.name}: must have at most {MOST_DIMENSIONS} dimensions; got {len(operand.shape)}."
            " Reshape its batch"
        )
    if len(operand.shape) < 2:
        raise ShapeError(
            f"{operand.name}: must have at least 2 dimensions; got shape {operand.shape}. "
            "Reshape it to one row or one column, or call matmul, which takes vectors"
        )


def require_inner_match(a: Operand, b: Operand, of: tuple[tuple[int, ...], ...], vectors: bool) -> None:
    """`of` are the caller's; a and b may have been transposed, or made from vectors."""
    if a.shape[-1] != b.shape[-2]:
        turn = ".T or swapaxes" if vectors else "trans_a or trans_b"
        raise ShapeError(
            f"b: must have as many rows as a has columns; a is {shape_in_words(of[0], a)}"
            f" (k = {a.shape[-1]}),"
            f" b is {shape_in_words(of[1], b)} (k = {b.shape[-2]}). Transpose one of them with {turn} if it"
            " lies the other way"
        )


def shape_in_words(callers_shape: tuple[int, ...], operand: Operand) -> str:
    transposed = len(callers_shape) > 1 and callers_shape[-2:] != tuple(operand.shape[-2:])
    return f"{callers_shape}{', transposed' if transposed else ''}"


def broadcast_batch(a: Operand, b: Operand) -> tuple[int, ...]:
    """The batch dimensions of the result."""
    first, second = a.shape[:-2], b.shape[:-2]
    if not (first or second):
        return ()
    pairs = zip(reversed(first), reversed(second), strict=False)
    if any(x != y and 1 not in (x, y) for x, y in pairs):
        raise ShapeError(
            f"b: batch dimensions must broadcast with those of a; a has {first}, b has {second}. "
            "Make each pair equal or one of the two 1"
        )
    return broadcast(first, second)


def broadcast_c(c: Operand, shape: tuple[int, ...]) -> Operand:
    """C viewed with the output's shape: missing and single dimensions have stride 0."""
    missing = len(shape) - len(c.shape)
    extents = (1,) * missing + c.shape
    if missing < 0 or any(extent not in (1, full) for extent, full in zip(extents, shape, strict=True)):
        raise ShapeError(
            f"{c.name}: must broadcast to the output's shape {shape}; got {c.shape}. Reshape it or slice it"
            " to fit"
        )
    strides = (0,) * missing + c.strides
    return c.viewed(shape, tuple(s if e == w else 0 for e, w, s in zip(extents, shape, strides, strict=True)))


def require_shape_of_output(got: tuple[int, ...], shape: tuple[int, ...], name: str = "out") -> None:
    if got != shape:
        raise ShapeError(f"{name}: must have shape {shape}; got {got}. Pass one of that shape, or None")


def require_output(out: Operand, a: Operand, shape: tuple[int, ...], free_strides: bool = False) -> None:
    require_shape_of_output(out.shape, shape, out.name)
    require_same_device(out, a)
    require_writable(out)
    require_no_gradient(out)
    require_distinct_elements(out)
    if not free_strides and not lines_touch(out):
        raise StrideError(
            "out: rows or columns must be contiguous (a stride of 1 in one of the last two dimensions); "
            f"got strides {out.strides}. Write into a contiguous array and copy from it"
        )


def lines_touch(out: Operand) -> bool:
    """Whether rows or columns are contiguous, as kernels write them."""
    return len(out.shape) < 2 or 1 in out.strides[-2:] or min(out.shape[-2:]) <= 1


def require_distinct_elements(out: Operand) -> None:
    """Each stride must exceed the reach of all dimensions with smaller strides."""
    covered = 0
    if 0 in out.shape:
        return
    for stride, extent in sorted((abs(s), e) for s, e in zip(out.strides, out.shape, strict=True) if e > 1):
        if stride <= covered:
            raise StrideError(
                f"{out.name}: each element must have its own memory; strides {out.strides} repeat some. Pass"
                " a fresh array"
            )
        covered += stride * (extent - 1)


def require_writable(out: Operand) -> None:
    if out.framework == "jax":
        raise ArgumentError(f"{out.name}: JAX arrays cannot be written to. Leave {out.name} out")
    if not out.writable and out.framework == "torch":
        bit = "conjugate" if out.conjugated else "negative"
        raise ArgumentError(
            f"{out.name}: must hold its numbers as they are; this tensor has torch's {bit} bit. Pass a"
            " fresh one"
        )
    # NumPy only reads what speaks DLPack without a version
    numpys = out.framework == "other" and out.device == HOST
    if not out.writable or (numpys and not on_host(out).flags.writeable):
        raise ArgumentError(f"{out.name}: must be writable; this array is read-only. Pass a copy")


def require_writable_array(out: object) -> None:
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise ArgumentError("out: must be writable; this array is read-only. Pass a copy")


def require_no_overlap(out: Operand, operand: Operand) -> None:
    if math.prod(out.shape) and math.prod(operand.shape) and out.overlaps(operand):
        raise StrideError(
            f"{out.name}: must not overlap {operand.name}: its elements are still read while results are"
            f" written. Bytes {out.span} and {operand.span}. Pass a separate array"
        )


def require_no_partial_overlap(out: Operand, c: Operand) -> None:
    """C may be the output itself, element for element, but must not overlap it in any other way."""
    if (c.pointer, c.strides) != (out.pointer, out.strides):
        require_no_overlap(out, c)


WORKSPACE_ALIGNMENT = 256  # bytes; GPU frameworks align allocations to it, NumPy does not


def workspace_of(array: object) -> Operand:
    """The caller's workspace: an array of any type but references to objects."""
    try:
        operand = operand_of(array, "workspace")
        plain = bool(size_of(operand.dtype)) and operand.dtype != "object"
    except (DTypeError, TypeError):
        plain = False
    if not plain:
        raise ArgumentError(
            "workspace: must be an array of plan(...).workspace_bytes zeros or more; got"
            f" {type(array).__name__}. Leave it out: the driver keeps one for each stream"
        )
    return operand


def require_workspace(workspace: Operand, a: Operand, needed: int) -> Operand:
    """The workspace must be on a's device, contiguous, aligned, writable and large enough."""
    start, end = workspace.span
    require_same_device(workspace, a)
    if end - start < needed:
        raise ArgumentError(
            f"workspace: must hold the plan's {needed} bytes; got {end - start}. Pass a larger one, of zeros,"
            " or None"
        )
    size = end - start
    if size != math.prod(workspace.shape) * size_of(workspace.dtype) or workspace.pointer != start:
        raise StrideError(
            f"workspace: must be contiguous; got strides {workspace.strides}. Pass a fresh array of zeros"
        )
    if workspace.pointer % WORKSPACE_ALIGNMENT:
        raise StrideError(
            f"workspace: must start on a multiple of {WORKSPACE_ALIGNMENT} bytes; "
            f"it starts {workspace.pointer % WORKSPACE_ALIGNMENT} beyond one. Pass a fresh array"
        )
    require_writable(workspace)
    return workspace


def require_compile(value: object, ways: Collection[str] = WAYS) -> None:
    if value is not None and not (isinstance(value, str) and value in ways):
        raise ArgumentError(
            f"compile: must be one of {', '.join(ways)}; got {shown(value)}. Or leave it to {VARIABLE}"
        )


def require_aligned_elements(operand: Operand) -> None:
    """Kernels load whole elements: one that starts between multiples of its size would fault on the chip."""
    size = size_of(operand.dtype)
    if operand.pointer % size:
        raise StrideError(
            f"{operand.name}: must start on a multiple of its element's {size} bytes; "
            f"it starts {operand.pointer % size} beyond one. Pass a copy"
        )


def require_no_gradient(operand: Operand) -> None:
    """Neither a gradient nor a forward tangent of torch may be asked for: none would be recorded."""
    if operand.framework != "torch" or operand.owner is None:
        return
    import torch

    from lapidist.frameworks.tangents import has_tangent

    if torch.is_grad_enabled() and operand.owner.requires_grad:
        raise ArgumentError(
            f"{operand.name}: requires a gradient, and none would be recorded. "
            "lapidist.torch has products that record it. Or call under torch.no_grad(), or pass"
            f" {operand.name}.detach()"
        )
    if has_tangent(operand.owner):
        raise ArgumentError(
            f"{operand.name}: has a tangent, which would be lost. Pass"
            f" forward_ad.unpack_dual({operand.name}).primal"
        )
