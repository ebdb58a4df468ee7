"""Packed weights from plain ones, and from the packings of GPTQ, AWQ and gpt-oss."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from lapidist.calls.keywords import unexpected
from lapidist.calls.number_rules import require_flag
from lapidist.dtypes import integer_from, is_real_array
from lapidist.errors import ArgumentError, DTypeError, ShapeError, shown
from lapidist.frameworks.arrays import framework_of, require_no_mask
from lapidist.quantised.fragment_order import as_words, padded
from lapidist.quantised.number_formats import GROUP_OF, GROUPS, SYMMETRIC_ZERO, format_named
from lapidist.quantised.packed_weight import PackedWeight, made, on_host, placed_like, require_groups, stack
from lapidist.quantised.quantising import (
    as_bytes,
    cast,
    library_of,
    symmetric,
    with_two_factors,
    with_zero_points,
)

ONE_EACH = 0x11111111  # 1 in each nibble of a word
AWQ_ORDER = 0, 2, 4, 6, 1, 3, 5, 7  # the column that each nibble of a word has, of eight

SIZES = "Write group=32, 64 or 128: that many steps of k share a factor"
WAYS_OUT = {
    **dict.fromkeys(("groupsize", "blocksize", "qgroupsize"), SIZES),
    **dict.fromkeys(("bits", "dtype", "nbits", "wbits", "quantdtype"), 'Write format="int4" or "int8", say'),
    **dict.fromkeys(("zeropoint", "zeropoints", "asymmetric", "symmetric", "sym"), "Write zero_points="),
    **dict.fromkeys(("axis", "dim", "transpose"), "Leave it out: pass the weight as (k, n), with .T"),
}


def pack(
    weight: Any, format: str, *, group: int | None = None, zero_points: bool = False, **unknown: NoReturn
) -> PackedWeight:
    """Quantise a weight (k, n), like the b of `matmul`: pass `linear.weight.T` of a torch layer; or those of
    experts, (groups, k, n), like the b of `grouped`.

    `group`: 32, 64 or 128 steps of k that share a factor, in the last group what is left; None: 32 for mxfp4,
    16 for nvfp4, else one factor a column.
    `zero_points`: for int4, whether the range of codes follows the smallest and the largest of a group.

    A tensor of torch is packed where it is, with the bits that NumPy's array has.
    """
    if unknown:
        raise unexpected(pack, unknown, WAYS_OUT)
    require_no_module(weight)
    require_plain(weight, "weight")
    if len(getattr(weight, "shape", ())) == 3 and len(weight):
        return stack([pack(each, format, group=group, zero_points=zero_points) for each in weight])
    require_flag("zero_points", zero_points)
    row, plain = format_named(format), floats_of(weight)
    if zero_points and format != "int4":
        raise ArgumentError(f"zero_points: are for int4; got format {format!r}. Leave them out")
    only = GROUP_OF.get(format)
    if only is not None and group not in (None, only):
        raise ArgumentError(f"group: {format} has a factor for {only} steps of k; got {group}. Leave it out")
    k, n = plain.shape
    size = only if only is not None else k if group is None else integer_from(1, group)
    if size is None or size not in (*GROUPS, only, k):
        raise ArgumentError(f"group: must be 32, 64 or 128, or all k = {k}; got {shown(group)}. Take one")
    groups = -(-k // size)
    parts = padded(cast(plain, "float32"), groups * size, n).reshape(groups, size, n)
    if not library_of(parts).isfinite(parts).all():
        raise ArgumentError("weight: must be finite to be quantised; got NaN or infinity. Replace them")
    how: Any = with_zero_points if zero_points else with_two_factors if format == "nvfp4" else symmetric
    codes, scales, zeros = how(parts, row)
    scale_type = {"mxfp4": "e8m0", "nvfp4": "e4m3"}.get(format, "bfloat16")
    return made(codes.reshape(-1, n)[:k], scales, zeros, row, scale_type, weight)


def require_no_module(weight: Any) -> None:
    if callable(getattr(weight, "named_modules", None)):
        raise ArgumentError(
            f"weight: must be a matrix (k, n); got a {type(weight).__name__}. Pass linear.weight.T,"
            ' or call lapidist.torch.swap(model, weights="int4")'
        )


def require_plain(array: Any, name: str) -> None:
    """Refuse arrays with a mask, and tensors without numbers in rows and columns."""
    require_no_mask(array, name)
    if framework_of(array) == "torch":
        from lapidist.frameworks.tensor_rules import require_dense

        require_dense(array, name)
        if array.is_meta:
            raise ArgumentError(f"{name}: must have numbers; got a tensor on meta. Load its numbers first")


def floats_of(weight: Any) -> Any:
    """A weight to be quantised: a tensor of torch as it is, others in NumPy."""
    is_tensor = framework_of(weight) == "torch"
    plain: Any = weight.detach() if is_tensor else on_host(weight)
    dtype = str(plain.dtype).removeprefix("torch.")
    if plain.ndim != 2 or 0 in plain.shape:
        raise ShapeError(
            f"weight: must be a matrix (k, n) with rows and columns; got shape {tuple(plain.shape)}. Pass a"
            " matrix, or a stack of three dimensions"
        )
    if dtype not in ("float64", "float32", "float16", "bfloat16"):
        raise DTypeError(f"weight: must hold floats to be quantised; got {dtype}. Convert it")
    return plain


def from_gptq(
    qweight: Any, scales: Any, qzeros: Any = None, g_idx: Any = None, *, zero_offset: int | None = None
) -> PackedWeight:
    """A 4-bit weight as GPTQ's files have it: qweight (k / 8, n), scales (groups, n), qzeros (groups, n / 8).

    `zero_offset`: what is added to zero points of the file: 1 (None), and 0 for files of version 2. Where all
    are 8 it must be said: those of version 2 have 8 of symmetric weights, those before have 7.
    """
    offset = integer_from(0, 1 if zero_offset is None else zero_offset)
    if offset is None or offset > 1:
        raise ArgumentError(f"zero_offset: must be 0 or 1; got {shown(zero_offset)}. Take 0 for version 2")

    words = require_words(qweight, "qweight", qweight)
    k, n = 8 * words.shape[0], words.shape[1]
    codes = cast(nibbles_of(words).swapaxes(1, 2).reshape(k, n), "uint8")
    factors = on_device_of(scales, qweight, "scales")
    group = require_groups(k, n, tuple(factors.shape), "scales")
    order = None if g_idx is None else order_of(g_idx, k, group)
    if order is not None:
        codes = codes[placed_like(order, qweight)]
    zeros = None
    if qzeros is not None:
        words, in_turn = require_words(qzeros, "qzeros", qweight), tuple(range(8))
        stored = columns_of(words, in_turn, n, "qzeros")
        if zero_offset is None and (stored == SYMMETRIC_ZERO).all():
            raise ArgumentError(
                "zero_offset: must be said where all zero points are stored as 8; got None. Pass 0 for a file"
                ' of version 2 (checkpoint_format "gptq_v2"), or 1'
            )
        zeros = columns_of(words + offset * ONE_EACH, in_turn, n, "qzeros")
        zeros = None if (zeros == SYMMETRIC_ZERO).all() else zeros
    return made(codes, factors, zeros, format_named("int4"), type_of_scales(factors), qweight, order)


def order_of(g_idx: Any, k: int, group: int) -> Any:
    """The order of rows in which the groups of all are neighbours, of weights that were quantised by the
    sizes of activations (desc_act); None where they are.
    """
    groups = on_host(on_device_of(g_idx, g_idx, "g_idx"))
    if groups.shape != (k,):
        raise ShapeError(
            f"g_idx: must have 8 entries for each row of qweight, which has 4 bits a code: {k}; got shape"
            f" {groups.shape}. Pass those of this layer, or unpack codes of 8 bits for from_codes"
        )
    expected = np.arange(len(groups)) // group
    if np.array_equal(groups, expected):
        return None
    order = np.argsort(groups, kind="stable").astype(np.int32)
    if not np.array_equal(groups[order], expected):
        raise ArgumentError(
            f"g_idx: must name groups 0 to {expected[-1]} for {group} rows each, the last for the rest; got"
            f" {shown(np.unique(groups, return_counts=True)[1].tolist())}. Pass that of the whole layer"
        )
    return order


def from_awq(qweight: Any, scales: Any, qzeros: Any) -> PackedWeight:
    """A 4-bit weight as AWQ's files have it: qweight (k, n / 8), scales (groups, n) and qzeros."""
    words, factors = require_words(qweight, "qweight", qweight), on_device_of(scales, qweight, "scales")
    n = 8 * words.shape[1]
    codes = columns_of(words, AWQ_ORDER, n, "qweight")
    zeros = columns_of(require_words(qzeros, "qzeros", qweight), AWQ_ORDER, n, "qzeros")
    return made(codes, factors, zeros, format_named("int4"), type_of_scales(factors), qweight)


def from_mxfp4(blocks: Any, scales: Any) -> PackedWeight:
    """A weight as gpt-oss has it: blocks (n, k / 32, 16) of two codes a byte, E8M0 scales (n, k / 32); or
    those of all experts, with a dimension more in front.
    """
    if len(getattr(blocks, "shape", ())) == 4 and blocks.shape[:-1] == getattr(scales, "shape", None):
        return stack([from_mxfp4(*pair) for pair in zip(blocks, scales, strict=True)])
    pairs, factors = on_device_of(blocks, blocks, "blocks"), on_device_of(scales, blocks, "scales")
    if pairs.ndim != 3 or pairs.shape[2] != 16 or 0 in pairs.shape or type_name(pairs) != "uint8":
        raise ShapeError(
            f"blocks: must be bytes of shape (n, k / 32, 16), or those of experts, with scales for each; got"
            f" {type_name(pairs)} of {tuple(pairs.shape)}. Correct it"
        )
    if factors.shape != pairs.shape[:2] or type_name(factors) != "uint8":
        raise ShapeError(
            f"scales: must be bytes of shape {tuple(pairs.shape[:2])}; got {type_name(factors)} of"
            f" {tuple(factors.shape)}. Correct it"
        )
    codes = halves_of(pairs.reshape(len(pairs), -1)).T
    return made(codes, factors.T, None, format_named("mxfp4"), "e8m0", blocks)


def from_nvfp4(pairs: Any, scales: Any, factor: Any) -> PackedWeight:
    """A weight in NVFP4 as files have it: two codes a byte (n, k / 2), scales of e4m3 (n, k / 16), and the
    factor of the whole weight. Where files have one that they divide by, pass 1 over it.
    """
    codes, factors = on_device_of(pairs, pairs, "pairs"), on_device_of(scales, pairs, "scales")
    if codes.ndim != 2 or 0 in codes.shape or type_name(codes) != "uint8":
        raise ShapeError(
            f"pairs: must be bytes of shape (n, k / 2); got {type_name(codes)} of {tuple(codes.shape)}."
            " Correct it"
        )
    expected = len(codes), codes.shape[1] // 8
    if factors.shape != expected or type_name(factors) not in ("uint8", "float8_e4m3fn"):
        raise ShapeError(
            f"scales: must be e4m3 of shape {expected}; got {type_name(factors)} of {tuple(factors.shape)}."
            " Correct them"
        )
    number = on_host(factor)
    is_real = number.size == 1 and is_real_array(number.reshape(()))
    with np.errstate(over="ignore"):
        overall = number.reshape(-1).astype(np.float32) if is_real else np.full(1, np.nan, np.float32)
    if not np.isfinite(overall).all():
        raise ArgumentError(
            f"factor: must be one finite number; got {shown(factor)}. Pass that of the weight"
        )
    return made(halves_of(codes).T, as_bytes(factors).T, overall, format_named("nvfp4"), "e4m3", pairs)


def from_codes(codes: Any, scales: Any, format: str) -> PackedWeight:
    """A weight of codes (k, n), int8 or e4m3, and scales (groups, n)."""
    values, factors = on_device_of(codes, codes, "codes"), on_device_of(scales, codes, "scales")
    row = format_named(format)
    expected = {"int8": "int8", "e4m3": "float8_e4m3fn"}.get(format)
    if type_name(values) != expected or values.ndim != 2:
        raise DTypeError(
            f"codes: must be a matrix of {expected or 'int8 or float8_e4m3fn'}; got {type_name(values)} of"
            f" {tuple(values.shape)}. Pack other formats with pack, from_gptq, from_awq or from_mxfp4"
        )
    return made(as_bytes(values), factors, None, row, type_of_scales(factors), codes)


# ---- arrays of files, in NumPy or where a tensor is ----


def on_device_of(array: Any, like: Any, name: str) -> Any:
    """An array in the library and on the device of another."""
    require_plain(array, name)
    if framework_of(like) != "torch" or framework_of(array) != "torch":
        return placed_like(on_host(array), like)
    return array.detach().to(like.device)


def type_name(array: Any) -> str:
    return str(array.dtype).removeprefix("torch.")


def require_words(array: Any, name: str, like: Any) -> Any:
    words = on_device_of(array, like, name)
    if words.ndim != 2 or type_name(words) not in ("int32", "uint32"):
        raise DTypeError(
            f"{name}: must be a matrix of int32; got {type_name(words)} of {tuple(words.shape)}. Convert it"
        )
    return as_words(words)


def nibbles_of(words: Any) -> Any:
    """The eight of each word, in a dimension behind the others. Shifts copy the sign, which 15 masks."""
    library = library_of(words)
    return library.stack([words >> first & 15 for first in range(0, 32, 4)], -1)


def halves_of(pairs: Any) -> Any:
    """Two codes of each byte, the low one first, along the last dimension."""
    return library_of(pairs).stack((pairs & 15, pairs >> 4), -1).reshape(len(pairs), -1)


def columns_of(words: Any, order: tuple[int, ...], n: int, name: str) -> Any:
    """Nibbles along n; `order`: the column of each nibble of a word."""
    if 8 * words.shape[1] != n:
        raise ShapeError(f"{name}: must have {n} / 8 columns; got {tuple(words.shape)}. Correct it")
    in_order = nibbles_of(words)[..., np.argsort(order).tolist()]
    return cast(in_order.reshape(len(words), n), "uint8")


def type_of_scales(factors: Any) -> str:
    name = type_name(factors)
    if name not in ("float32", "float16", "bfloat16"):
        raise DTypeError(f"scales: must be float32, float16 or bfloat16; got {name}. Convert them")
    return name
