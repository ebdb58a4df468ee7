"""How matrices lie in the registers of a warp: the lane layouts of mma.sync, and number formats of the
elements.

All of mma's layouts follow one rule. With g = lane / 4, t = lane % 4 and p elements in a register, register r
of A holds row g + 8 (r % 2), columns 4p (r / 2) + p t and following; of B it holds column g, rows 4p r + p t
and following; of C and D, element j holds row g + 8 (j / 2), column 2t + j % 2. Larger matrices (wmma's) are
pieces of 16 rows of A and 8 columns of B, one after another in a lane's registers."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from lapidist.machine.instructions.formats import FP8, from_bf16, to_f16
from lapidist.machine.lanes import Lanes

Array = np.ndarray
GROUP, PLACE = np.arange(32) // 4, np.arange(32) % 4
# A byte of b1 is eight elements: it counts as one until it is read.
ELEMENT_BYTES = {
    "f16": 2,
    "bf16": 2,
    "tf32": 4,
    "f32": 4,
    "f64": 8,
    "s8": 1,
    "u8": 1,
    "e4m3": 1,
    "e5m2": 1,
    "b1": 1,
    "s32": 4,
}


# Elements of four bits lie in pairs, the first in the low half: a fragment is one of bytes, half as deep.
PAIRED = {"s4": "s8", "u4": "u8"}


def as_bytes(shape: tuple[int, int, int], kinds: list[str]) -> tuple[tuple[int, int, int], list[str]]:
    """The shape and types of a product whose fragments lie as this one's; `kinds` are those of D, A, B, C."""
    if not set(kinds[1:3]) <= PAIRED.keys():
        return shape, kinds
    rows, columns, depth = shape
    return (rows, columns, depth // 2), [PAIRED.get(kind, kind) for kind in kinds]


def both_halves(octets: Array, kind: str, axis: int) -> Array:
    """The elements of four bits in bytes, along an axis that is then twice as long."""
    words = octets.astype(np.int64)
    halves = np.stack([words & 15, words >> 4 & 15], axis=axis + 1)
    if kind == "s4":
        halves = (halves ^ 8) - 8
    shape = [*octets.shape]
    shape[axis] *= 2
    return halves.reshape(shape).astype("f8")


def per_register(kind: str) -> int:
    """Elements of a type in one register (32 bits, or 64 for f64)."""
    return max(4 // ELEMENT_BYTES[kind], 1)


def to_float64(bits: Array, kind: str) -> Array:
    """Elements, given as unsigned integers of their size, as float64; the chip reads only 19 bits of a
    tf32.
    """
    if kind == "f64":
        return bits.view("f8")
    if kind == "f32":
        return bits.view("f4").astype("f8")
    if kind == "tf32":
        return (bits & np.uint32(0xFFFFE000)).view("f4").astype("f8")
    if kind == "f16":
        return bits.view("f2").astype("f8")
    if kind == "bf16":
        return from_bf16(bits).astype("f8")
    if kind in FP8:
        return FP8[kind][bits].astype("f8")
    if kind == "b1":
        return np.unpackbits(bits, axis=-1, bitorder="little").astype("f8")
    return bits.view({"s8": "i1", "u8": "u1", "s32": "i4"}[kind]).astype("f8")


def toward_zero(value: Array) -> Array:
    """float64 to float32 by truncation: tensor cores do not round their sums."""
    near = value.astype("f4")
    over = np.abs(near.astype("f8")) > np.abs(value)
    return np.where(over, np.nextafter(near, np.float32(0)), near)


def as_bits(registers: list[Array]) -> list[Array]:
    return [register.view(f"u{register.dtype.itemsize}") for register in registers]


def gather_elements(g: Lanes, registers: list[Array], kind: str) -> Array:
    """(warps, 32 lanes * elements a lane): the elements of a fragment, lane after lane."""
    rows = [np.ascontiguousarray(g.dense(register)) for register in registers]
    size = ELEMENT_BYTES[kind]
    stacked = np.stack(rows, axis=2)
    return np.ascontiguousarray(stacked).view(f"u{size}").reshape(len(rows[0]), -1)


def scatter_elements(g: Lanes, elements: Array, count: int, code: str) -> list[Array]:
    """The registers of a fragment from its elements, lane after lane."""
    words = np.ascontiguousarray(elements).view(code).reshape(len(elements), 32, count)
    return [g.flat(words[:, :, number]) for number in range(count)]


@lru_cache(maxsize=64)
def a_map(m: int, k: int, kind: str) -> Array:
    """(m, k): which element of the lanes' registers each element of A is."""
    p, registers = per_register(kind), m * k // 32 // per_register(kind)
    halves = min(m // 8, 2)
    table = np.zeros((m, k), np.int64)
    for r in range(registers):
        piece, register = divmod(r, 8 * halves * k // 32 // p)
        for i in range(p):
            row, column = 16 * piece + 8 * (register % halves), 4 * p * (register // halves)
            table[GROUP + row, column + p * PLACE + i] = (np.arange(32) * registers + r) * p + i
    return table


@lru_cache(maxsize=64)
def b_map(k: int, n: int, kind: str) -> Array:
    """(k, n) for B."""
    p, registers = per_register(kind), n * k // 32 // per_register(kind)
    table = np.zeros((k, n), np.int64)
    for r in range(registers):
        piece, register = divmod(r, 8 * k // 32 // p)
        for i in range(p):
            table[4 * p * register + p * PLACE + i, 8 * piece + GROUP] = (
                np.arange(32) * registers + r
            ) * p + i
    return table


@lru_cache(maxsize=64)
def c_map(m: int, n: int) -> Array:
    """(m, n) for C and D; for wider n (wgmma) the rule repeats every 8 columns."""
    count = m * n // 32
    table = np.zeros((m, n), np.int64)
    for j in range(count):
        block, place = divmod(j, m // 4)
        table[GROUP + 8 * (place // 2), 8 * block + 2 * PLACE + place % 2] = np.arange(32) * count + j
    return table


def read_matrix(g: Lanes, registers: list[Array], kind: str, table: Array) -> Array:
    """(warps, rows, columns) in float64."""
    return to_float64(gather_elements(g, registers, kind)[:, table], kind)


def write_matrix(g: Lanes, values: Array, kind: str, table: Array) -> list[Array]:
    """Registers of a C or D fragment of type `kind` from float64 values."""
    return scatter_elements(g, place_elements(encode(values, kind), table), *register_layout(values, kind))


def place_elements(encoded: Array, table: Array) -> Array:
    flat = np.empty((len(encoded), table.size), encoded.dtype)
    flat[:, table.reshape(-1)] = encoded.reshape(len(encoded), -1)
    return flat


def register_layout(values: Array, kind: str) -> tuple[int, str]:
    """(registers a lane, NumPy code of one)."""
    per_lane = values.shape[1] * values.shape[2] // 32
    if kind == "f16":
        return per_lane // 2, "u4"
    return per_lane, {"f32": "f4", "f64": "f8", "s32": "u4"}[kind]


def encode(values: Array, kind: str) -> Array:
    """float64 results in the accumulator's type."""
    if kind == "f32":
        return toward_zero(values)
    if kind == "f16":
        return to_f16(values)
    if kind == "s32":
        return values.astype("i8").astype("i4")
    return values
