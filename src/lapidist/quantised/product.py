"""Products of activations of 16 and 8 bits and weights of few bits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from lapidist.backends.backend import NO_WORDS, Backend
from lapidist.backends.selection import MACHINE, backend_at, choose_place
from lapidist.calls.argument_rules import require_no_gradient
from lapidist.calls.call import Call
from lapidist.calls.full_path import multiplied
from lapidist.calls.kernel_choice import Choices
from lapidist.calls.operation import Groups, Operation, is_invariant
from lapidist.device import Device
from lapidist.errors import ArgumentError, DeviceError, DTypeError, ShapeError, StrideError, shown
from lapidist.frameworks.arrays import HOST, Operand, operand_of
from lapidist.frameworks.new_arrays import empty, tell_written
from lapidist.launch import AS_IT_IS, Launch
from lapidist.quantised import decoded_codes
from lapidist.quantised.activations import EXACT, OF_16_BITS, Activations, activations_of, in_rows, records
from lapidist.quantised.converted_rows import converted
from lapidist.quantised.kernel_parameters import MOST_BLOCKS, End, Rows
from lapidist.quantised.launches import ROWS_OF_SKINNY, decoding, multiplying, skinny_config, streaming
from lapidist.quantised.number_formats import VECTOR_BYTES
from lapidist.quantised.packed_weight import (
    PackedExperts,
    PackedWeight,
    arrays_by_name,
    arrays_of,
    columns_in_order,
    on_host,
    unpack,
)
from lapidist.quantised.row_norms import normalised, require_epsilon
from lapidist.quantised.streamed_configs import streamed_config
from lapidist.quantised.ways import Way, as_converted, way_on
from lapidist.quantised.weight_facts import Weight


def product(
    x: Any,
    weight: PackedWeight,
    bias: Any = None,
    out: Any = None,
    *,
    scale_a: Any = None,
    out_dtype: Any = None,
    stream: Any = None,
    device: int | str | None = None,
    decode: bool | None = None,
    norm_eps: float | None = None,
) -> Any:
    """x @ weight + bias, of x (..., k) in bfloat16 or float16, in its type.

    Sums are float32, and factors multiply sums of their groups. Of many rows (by predicted time; more than
    128 where the chip is no Hopper) the weight is decoded into the type of x first, which rounds products of
    codes and factors. `decode`: True or False decides. With more than 128 rows on Hopper, codes of four bits
    may be multiplied by factors of x's type first, which rounds them likewise; `decode=False` rounds none.

    x in e4m3 or int8 has factors `scale_a`, a number or float32 for each row. Its results are float32, or
    those of `out_dtype`, and its codes are never rounded.

    `norm_eps`: rows of x are divided by the root of their mean square and of this number together.
    """
    require_weight(weight, x)
    require_free_order()
    require_current_stream(stream)
    left, added = operand_of(x, "x"), None if bias is None else operand_of(bias, "bias")
    if out is None and records(x, bias):
        from lapidist.quantised.recorded import recorded

        types = {"scale_a": scale_a, "out_dtype": out_dtype}
        multiply = partial(product, weight=weight, **types, device=device, decode=decode)
        x = x if norm_eps is None else normalised(x, require_epsilon(norm_eps))
        return recorded(x, bias, multiply, partial(gradient_to_x, weight=weight, device=device))
    require_activations(left, weight.shape[0], arrays_of(weight))
    if weight.order is not None:
        left, weight = operand_of(columns_in_order(x, weight.order), "x"), weight.in_order
    activations = activations_of(left, weight, scale_a, out_dtype, out, decode, norm_eps)
    if added is not None:
        require_bias(added, left, weight, activations.result)
    for operand in (left, added):
        if operand is not None:
            require_no_gradient(operand)
    shape = (*left.shape[:-1], weight.shape[1])
    result = empty(shape, left, activations.result) if out is None else out
    target = operand_of(result, "out")
    read = left, added, *activations.factor_arrays, *arrays_of(weight)
    require_out(target, shape, activations, read)
    backend = backend_at(choose_place(left.device, device))
    require_vectors(arrays_of(weight))
    if 0 not in shape:
        run(activations, weight, added, target, backend, decode)
    if out is not None:
        tell_written(out)
    return result


# ---- rules ----


def require_weight(weight: object, x: object = None) -> None:
    if isinstance(weight, PackedExperts):
        raise ArgumentError(
            f"weight: must be that of one product; got {shown(weight)}. Multiply rows of groups with"
            " lapidist.grouped(x, weight, offsets), or take weight[i]"
        )
    if not isinstance(weight, PackedWeight):
        if isinstance(x, PackedWeight):
            raise ArgumentError(
                "x: must be activations, (rows, k); got a PackedWeight. Write the weight behind them:"
                " matmul(x, weight)"
            )
        raise DTypeError(
            f"weight: must be a PackedWeight; got {type(weight).__name__}. Pack it with"
            " lapidist.quantised.pack"
        )


def require_free_order(invariant: bool | None = None) -> None:
    """Parts of k follow the number of rows, and many rows have a weight that is rounded."""
    if is_invariant(invariant):
        raise ArgumentError(
            "invariant: is not for weights of few bits, whose sums follow the number of rows; got True."
            " Leave it out (in lapidist.invariant(False), inside of a block), or unpack the weight"
        )


def require_current_stream(stream: Any) -> None:
    """The framework may reuse the memory of copies once the call returns, which its own stream orders."""
    if stream is not None:
        raise ArgumentError(
            "stream: weights of few bits run on the current stream of the arrays' framework; got another one."
            " Make it current (with torch.cuda.stream(...), say)"
        )


def require_activations(
    x: Operand, k: int, arrays: Sequence[Operand], types: Sequence[str] = (*OF_16_BITS, *EXACT)
) -> None:
    """`arrays`: of a weight with so many rows."""
    if x.dtype not in types:
        named = f"{', '.join(types[:-1])} or {types[-1]}"
        raise DTypeError(f"x: must be {named}; got {x.dtype}. Convert it")
    if not x.shape or x.shape[-1] != k:
        raise ShapeError(
            f"x: must have k = {k} columns, as the weight has rows; got {x.shape}. Transpose one"
        )
    for array in arrays:
        if array.device != x.device:
            raise DeviceError(
                f"weight: must be where x is, in {x.place}; got one in {array.place}. Move it with .to()"
            )


def require_vectors(arrays: Sequence[Operand]) -> None:
    """Bulk copies and vectors begin at multiples of 16 bytes; other addresses are a fault of the GPU."""
    for array in arrays:
        if array.pointer % VECTOR_BYTES and array.shape[-1:] != (1,):
            raise StrideError(
                f"weight: {array.name} must begin at multiples of {VECTOR_BYTES} bytes; got"
                f" {array.pointer % VECTOR_BYTES} bytes behind one. Clone it"
            )


def require_bias(bias: Operand, x: Operand, weight: PackedWeight, dtype: str) -> None:
    """`dtype`: of the result."""
    if bias.shape != (weight.shape[1],) or not in_rows(bias) or bias.dtype != dtype:
        raise ShapeError(
            f"bias: must have {weight.shape[1]} elements of {dtype}, one after another; got {bias.dtype} of"
            f" shape {bias.shape}. Convert it"
        )
    if bias.device != x.device:
        raise DeviceError(f"bias: must be where x is, in {x.place}; got one in {bias.place}. Move it")


def require_out(
    out: Operand, shape: tuple[int, ...], activations: Activations, read: Sequence[Operand | None]
) -> None:
    x, dtype = activations.x, activations.result
    if out.shape != shape or out.dtype != dtype or out.device != x.device:
        raise ShapeError(
            f"out: must be {dtype} of shape {shape} in {x.place}; got {out.dtype} of {out.shape} in"
            f" {out.place}. Leave it out"
        )
    if not out.writable or not in_rows(out):
        raise StrideError(
            f"out: must be writable, its rows one after another; got strides {out.strides}. Leave it out"
        )
    if any(out.overlaps(operand) for operand in read if operand is not None):
        raise StrideError("out: must share no memory with what is read; got such memory. Leave it out")


# ---- where it runs ----


def run(
    activations: Activations,
    weight: PackedWeight,
    bias: Operand | None,
    out: Operand,
    backend: Backend,
    decode: bool | None,
) -> None:
    x = activations.x
    if not backend.plans:
        on_the_host(activations, weight, bias, out)
        return
    require_place(x, backend)
    rows = Rows(math.prod(x.shape[:-1]), weight.shape[1])
    facts = described(weight, activations, out.dtype)
    way, again = way_on(backend.chip, rows, facts, decode), {}
    if has_launch_of_norm(rows, facts, way, backend.chip):
        run(activations.normalised(), weight, bias, out, backend, decode)
        return
    if way == "decoded":
        if activations.factors is None:
            by_decoding(x, weight, bias, out, backend)
            return
        of_halves = described_for(weight, "float16")
        inexact = decoded_codes.multiply(activations, weight, of_halves, bias, out, backend)
        if inexact is None:
            return
        again["inexact"] = operand_of(inexact, "inexact")
    activations, facts = as_read(activations, facts, way, backend)
    plan = by_few_rows(rows, facts, End(bias is not None), backend, decode is False, bool(again))
    of_x = activations.addresses(row_of_x(rows, facts, backend.chip))
    at = of_x | {"D": out} | arrays_by_name(weight) | again
    start(plan, at if bias is None else {**at, "C": bias}, x, backend, activations.words)


def as_read(
    activations: Activations, weight: Weight, way: Way, backend: Backend
) -> tuple[Activations, Weight]:
    """x as kernels of few rows read it, and what they are compiled for."""
    wider = as_converted(weight) if way == "converted" else None
    return (activations, weight) if wider is None else (converted(activations, backend), wider)


def require_place(x: Operand, backend: Backend) -> None:
    if backend.ordinal != HOST and (x.device == HOST or x.framework not in ("torch", "cupy")):
        raise ArgumentError(
            f"device: weights of few bits run on a GPU with arrays of torch or CuPy there; got {x.framework}"
            f" arrays in {x.place}. Copy them"
        )
    if backend.chip.capability < (8, 0):
        raise DeviceError(
            f"weight: few bits need tensor cores that multiply bfloat16; {backend.chip.name} has"
            " none. Unpack it"
        )


def start(
    launch: Launch,
    at: Mapping[str, Operand],
    like: Operand,
    backend: Backend,
    words: Mapping[str, Any] = NO_WORDS,
) -> None:
    backend.launch_alone(launch, at, AS_IT_IS, like.framework, None, words)


def is_streamed(rows: Rows, weight: Weight, chip: Device) -> bool:
    """Also of few rows of int8: skinny has no exact sums."""
    return "wgmma" in chip.units and (rows.expected > ROWS_OF_SKINNY or weight.dtype == "int8")


def has_launch_of_norm(rows: Rows, weight: Weight, way: Way, chip: Device) -> bool:
    """Whether x has a norm by which the launch of the product does not divide sums: skinny's alone does."""
    return weight.norm and (way == "decoded" or is_streamed(rows, weight, chip))


def row_of_x(rows: Rows, weight: Weight, chip: Device) -> int:
    """Elements from row to row of x; longer ones are copied, with zeros behind k. On an H200 one row by
    8200 x 8192 in int4 took 15.1 us with the copy, and 19.9 by loads that end at k.
    """
    return weight.streamed_row if is_streamed(rows, weight, chip) else weight.steps


def by_few_rows(
    rows: Rows, weight: Weight, end: End, backend: Backend, exact: bool, again: bool = False
) -> Launch:
    """`exact`: no product of a code and a factor is rounded. `again`: of columns whose codes were rounded."""
    chip = backend.chip
    if is_streamed(rows, weight, chip):
        streamed = streamed_config(rows, weight, chip.sms, exact)
        require_blocks(rows, streamed.rows)
        at_once = streamed.resident * chip.sms if again else 0
        return streaming(rows, weight, end, streamed, chip.architecture, backend.compiles, at_once)
    skinny = skinny_config(rows, weight, chip.sms)
    require_blocks(rows, 8 * skinny.eights)
    return multiplying(rows, weight, end, skinny, chip.architecture, backend.compiles)


def require_blocks(rows: Rows, lines: int) -> None:
    """`lines`: rows of a block."""
    if not rows.fit_blocks(lines):
        raise ShapeError(
            f"x: rows must fit in {MOST_BLOCKS} blocks of {lines}; got {rows.total}. Multiply parts of them"
        )


def described(weight: PackedWeight, activations: Activations, result: str) -> Weight:
    """Kernels of x in 16 bits have one type, in which they store what no epilogue does."""
    plain = described_for(weight, activations.x.dtype)._replace(norm=activations.norm is not None)
    return plain if activations.factors is None else plain._replace(out=result)


def described_for(weight: PackedWeight, dtype: str) -> Weight:
    k, n = weight.shape[-2:]
    has_zeros = weight.zeros is not None and weight.format.name == "int4"
    return Weight(k, n, weight.format.name, weight.group, weight.scale_type, has_zeros, dtype)


def by_decoding(
    x: Operand, weight: PackedWeight, bias: Operand | None, out: Operand, backend: Backend
) -> None:
    from lapidist.epilogues.ready_made import bias as added

    k, n = weight.shape
    epilogue = None if bias is None else added(bias=bias.owner)
    operation = Operation(epilogue=epilogue)
    by_decoded(x, x.owner.reshape(-1, k), weight, out.owner.reshape(-1, n), operation, backend)


def by_decoded(
    x: Operand, matrix: Any, weight: PackedWeight, out: Any, operation: Operation, backend: Backend
) -> Any:
    """The product of `matrix`, of x's type, by any kernel."""
    rows = decoded_rows(weight, x, backend)
    place = MACHINE if backend.ordinal == HOST else None
    return multiplied(Call(matrix, rows.swapaxes(-1, -2), None, out, operation, Choices(place), None))


def decoded_rows(weight: PackedWeight, like: Operand, backend: Backend) -> Any:
    """The numbers of the weight as (n, k), in the type of `like` and beside it; of experts one by one."""
    groups, (k, n) = weight.shape[:-2], weight.shape[-2:]
    facts = described_for(weight, like.dtype)
    rows = empty((*groups, n, facts.steps), like, like.dtype)
    each: Any = zip(rows, weight, strict=True) if isinstance(weight, PackedExperts) else [(rows, weight)]
    plan: Launch = decoding(facts, backend.chip.architecture, backend.compiles)
    for numbers, one in each:
        start(plan, {"D": operand_of(numbers, "weight")} | arrays_by_name(one), like, backend)
    return rows[..., :k]


def gradient_to_x(gradient: Any, weight: PackedWeight, device: int | str | None = None) -> Any:
    """gradient @ the weight's rows, which are decoded into its type."""
    rows, place = rows_like(gradient, weight.in_order, device)
    matrix = gradient.reshape(-1, weight.shape[1])
    result = multiplied(Call(matrix, rows, None, None, Operation(), Choices(place), None))
    if weight.order is not None:
        result = columns_in_order(result, weight.order.argsort())
    return result.reshape(*gradient.shape[:-1], weight.shape[0])


def gradient_of_groups(
    gradient: Any, weight: PackedExperts, offsets: Any, expected_rows: int | None = None
) -> Any:
    """The same of groups of rows, each by the rows of its own weight."""
    rows, place = rows_like(gradient, weight)
    operation = Operation(groups=Groups(offsets, None, expected_rows))
    return multiplied(Call(gradient, rows, None, None, operation, Choices(place), None))


def rows_like(gradient: Any, weight: PackedWeight, device: int | str | None = None) -> tuple[Any, Any]:
    """The numbers of a weight as (n, k), in a gradient's type and where it is; and where products run."""
    upstream = operand_of(gradient, "gradient")
    backend = backend_at(choose_place(upstream.device, device))
    if backend.plans:
        return decoded_rows(weight, upstream, backend), MACHINE if backend.ordinal == HOST else None
    numbers = np.ascontiguousarray(on_host(unpack(weight)).swapaxes(-1, -2))
    return like_owner(numbers, upstream).to(gradient.dtype), None


def on_the_host(activations: Activations, weight: PackedWeight, bias: Operand | None, out: Operand) -> None:
    with np.errstate(invalid="ignore", over="ignore"):
        sums = activations.numbers.astype(np.float32) @ on_host(unpack(weight))
        if bias is not None:
            sums += on_host(bias.owner).astype(np.float32)
        out.owner[...] = like_owner(sums, out)


def like_owner(sums: Any, out: Operand) -> Any:
    if out.framework != "torch":
        return sums
    import torch

    return torch.from_numpy(sums)
