"""A tensor map as 128 bytes of memory, which a kernel may copy, and change by tensormap.replace. PTX leaves
the bytes open; these are the machine's own."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from lapidist.launch import TensorMap

MAP_BYTES = 128
MAGIC = b"tensor map"
# address; rank, type, swizzle / 32, fetched / 64; extents, strides, boxes
CODE = struct.Struct("<10sQ4B5Q4Q5H")
# Numbers of element types in tensormap.replace, but for 64-bit integers and other roundings.
TYPES = {
    0: "uint8",
    1: "uint16",
    2: "uint32",
    3: "int32",
    6: "float16",
    7: "float32",
    9: "float64",
    10: "bfloat16",
    11: "tfloat32",
}
KNOWN = (*TYPES.values(), "int8", "uint64", "int64", "float8_e4m3fn", "float8_e5m2", "int16")
SWIZZLES = {0: 0, 1: 32, 2: 64, 3: 128}
MOST = 5  # dimensions
BLANK = TensorMap(0, TYPES[0], (1,) * MOST, (0,) * (MOST - 1), (1,) * MOST)


def encoded(tensor: TensorMap, rank: int = 0) -> bytes:
    """`rank`: of a map that has all dimensions, how many of them count."""
    shape, strides, box = (
        (*extents, *[filler] * (count - len(extents)))
        for extents, count, filler in (
            (tensor.shape, MOST, 1),
            (tensor.strides, MOST - 1, 0),
            (tensor.box, MOST, 1),
        )
    )
    kind = KNOWN.index(tensor.dtype)
    numbers = rank or len(tensor.shape), kind, tensor.swizzle // 32, tensor.fetched // 64
    content = CODE.pack(MAGIC, tensor.address, *numbers, *shape, *strides, *box)
    return content.ljust(MAP_BYTES, b"\0")


@lru_cache(maxsize=1024)
def decoded(content: bytes) -> TensorMap | None:
    """The map, or None where the bytes are no map."""
    decoded = changeable(content) if any(content) else None
    if decoded is None:
        return None
    tensor, rank = decoded
    return replace(
        tensor, shape=tensor.shape[:rank], strides=tensor.strides[: rank - 1], box=tensor.box[:rank]
    )


def changeable(content: bytes) -> tuple[TensorMap, int] | None:
    """The map of which a kernel changes a field, with all dimensions, and how many count: the others may be
    set too, and count once the rank says so. Bytes of zero are one without any field yet, as compilers build
    them; its rank is set before it is used."""
    if not any(content):
        return BLANK, MOST
    magic, address, rank, kind, swizzle, fetched, *extents = CODE.unpack(content[: CODE.size])
    if magic != MAGIC or kind >= len(KNOWN) or not 1 <= rank <= MOST:
        return None
    parts = tuple(extents[:MOST]), tuple(extents[MOST:-MOST]), tuple(extents[-MOST:])
    return TensorMap(address, KNOWN[kind], *parts, 32 * swizzle, 64 * fetched), rank


def put(values: tuple[int, ...], place: int, value: int) -> tuple[int, ...]:
    return (*values[:place], value, *values[place + 1 :])


# By field but the rank: the map with a new value, whose place among the dimensions is `n`.
CHANGES: dict[str, Callable[[TensorMap, int, int], TensorMap]] = {
    "global_address": lambda t, n, value: replace(t, address=value),
    "box_dim": lambda t, n, value: replace(t, box=put(t.box, n, value)),
    "global_dim": lambda t, n, value: replace(t, shape=put(t.shape, n, value)),
    "global_stride": lambda t, n, value: replace(t, strides=put(t.strides, n, value)),
    "elemtype": lambda t, n, value: replace(t, dtype=TYPES[value]),
    "swizzle_mode": lambda t, n, value: replace(t, swizzle=SWIZZLES[value]),
}
# Fields that have one value in the machine.
FIXED = {"element_stride": 1, "interleave_layout": 0, "swizzle_atomicity": 0, "fill_mode": 0}
OF_A_DIMENSION = ("box_dim", "global_dim", "global_stride", "element_stride")
