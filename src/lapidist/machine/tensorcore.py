"""Tensor core instructions of one warp: mma.sync, wmma, ldmatrix, stmatrix, movmatrix.

How products are summed is in `sums`; the float32 result is truncated, as the chip does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lapidist.machine.access import address_space, offset_of, space_of
from lapidist.machine.codegen import Builder, Mods, opcode, runtime
from lapidist.machine.faults import Divergence, PtxError
from lapidist.machine.fragments import (
    ELEMENT_BYTES,
    a_map,
    b_map,
    c_map,
    gather_elements,
    read_matrix,
    scatter_elements,
    to_float64,
    write_matrix,
)
from lapidist.machine.fragments import encode as encode_result
from lapidist.machine.lanes import Lanes
from lapidist.machine.memory import Address
from lapidist.machine.ptx import Instruction, Operand, Vec
from lapidist.machine.shapes import matrix_shape
from lapidist.machine.sums import tensor_sum

if TYPE_CHECKING:
    from lapidist.machine.state import Machine

Array = np.ndarray
FORMATS = ("f16", "bf16", "tf32", "f64", "f32", "s8", "u8", "e4m3", "e5m2", "s32")
REGISTER_CODES = {"f32": "f4", "f64": "f8"}
MMA_SHAPES = {
    "f16": {(16, 8, 8), (16, 8, 16)},
    "bf16": {(16, 8, 8), (16, 8, 16)},
    "tf32": {(16, 8, 4), (16, 8, 8)},
    "f64": {(8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16)},
    "s8": {(8, 8, 16), (16, 8, 16), (16, 8, 32)},
    "u8": {(8, 8, 16), (16, 8, 16), (16, 8, 32)},
    "e4m3": {(16, 8, 16), (16, 8, 32)},
    "e5m2": {(16, 8, 16), (16, 8, 32)},
}


def take_formats(mods: Mods) -> list[str]:
    """The element types among the modifiers, in order."""
    found = [name for name in mods.rest if name in FORMATS]
    mods.rest = [name for name in mods.rest if name not in FORMATS]
    return found


def items(i: Instruction, operand: Operand) -> tuple[Operand, ...]:
    if isinstance(operand, Vec):
        return operand.items
    return (operand,)


def whole_warps(m: Machine, g: Lanes, site: int) -> None:
    if not g.whole:
        raise m.fault(Divergence, "a matrix instruction needs all 32 lanes of its warp", site, g)


# ---- mma.sync ----


@opcode("mma.sync")
def emit_mma(b: Builder, i: Instruction, mods: Mods) -> None:
    shape = matrix_shape(i)
    mods.flag("aligned", "row", "col", f"m{shape[0]}n{shape[1]}k{shape[2]}" if shape else "")
    clamped = mods.flag("satfinite")
    if mods.flag("sp", "sp::ordered_metadata"):
        raise PtxError(f"{i.site}: sparse mma is not supported")
    kinds = take_formats(mods)
    if shape is None or len(kinds) != 4 or shape not in MMA_SHAPES.get(kinds[1], set()):
        raise PtxError(f"{i.site}: this shape and these types of mma are not known")
    codes = [REGISTER_CODES.get(kind, "u4") for kind in kinds]
    with b.guarded() as lanes:
        parts = []
        for operand, code in zip(i.operands[1:4], codes[1:], strict=True):
            parts.append("[" + ", ".join(b.read(item, code) for item in items(i, operand)) + "]")
        text = f"multiply(m, {lanes}, {shape}, {kinds}, {', '.join(parts)}, {clamped}, {b.index})"
        b.assign_many(items(i, i.operands[0]), text, codes[0])


@runtime
def multiply(
    m: Machine,
    g: Lanes,
    shape: tuple[int, int, int],
    kinds: list[str],
    a: list[Array],
    b: list[Array],
    c: list[Array],
    clamped: bool,
    site: int,
) -> list[Array]:
    whole_warps(m, g, site)
    rows, columns, depth = shape
    first = read_matrix(g, as_bits(a), kinds[1], a_map(rows, depth, kinds[1]))
    second = read_matrix(g, as_bits(b), kinds[2], b_map(depth, columns, kinds[2]))
    third = read_matrix(g, as_bits(c), kinds[3], c_map(rows, columns))
    total = tensor_sum(first, second, third, (kinds[0], kinds[1]), m.chip_sums)
    if clamped:
        total = np.clip(total, -(2.0**31), 2.0**31 - 1)
    return write_matrix(g, total, kinds[0], c_map(rows, columns))


def as_bits(registers: list[Array]) -> list[Array]:
    return [register.view(f"u{register.dtype.itemsize}") for register in registers]


# ---- wmma: the layout in registers is the implementation's choice; here elements lie in row order, lane after lane ----

WMMA_SHAPES = {(16, 16, 16), (32, 8, 16), (8, 32, 16), (16, 16, 8), (8, 8, 4)}


@opcode("wmma")
def emit_wmma(b: Builder, i: Instruction, mods: Mods) -> None:
    action = mods.choose("load", "store", "mma")
    shape = matrix_shape(i)
    if shape not in WMMA_SHAPES:
        raise PtxError(f"{i.site}: this shape of wmma is not known")
    assert shape is not None
    mods.flag("sync", "aligned", "m{}n{}k{}".format(*shape))
    if action == "mma":
        emit_wmma_multiply(b, i, mods, shape)
    else:
        emit_wmma_move(b, i, mods, shape, action)


def emit_wmma_multiply(b: Builder, i: Instruction, mods: Mods, shape: tuple[int, int, int]) -> None:
    mods.choose("row", "col")
    mods.choose("row", "col")
    clamped = mods.flag("satfinite")
    kinds = take_formats(mods)
    # With half inputs only D and C are named.
    d, first, second, c = kinds if len(kinds) == 4 else (kinds[0], "f16", "f16", kinds[1])
    codes = [REGISTER_CODES.get(kind, "u4") for kind in (d, first, second, c)]
    with b.guarded() as lanes:
        parts = []
        for operand, code in zip(i.operands[1:4], codes[1:], strict=True):
            parts.append("[" + ", ".join(b.read(item, code) for item in items(i, operand)) + "]")
        count = len(items(i, i.operands[0]))
        text = f"wmma_multiply(m, {lanes}, {shape}, {(d, first, second, c)}, {', '.join(parts)}, {count}, {clamped}, {b.index})"
        b.assign_many(items(i, i.operands[0]), text, codes[0])


@runtime
def wmma_multiply(
    m: Machine,
    g: Lanes,
    shape: tuple[int, int, int],
    kinds: tuple[str, ...],
    a: list[Array],
    b: list[Array],
    c: list[Array],
    count: int,
    clamped: bool,
    site: int,
) -> list[Array]:
    whole_warps(m, g, site)
    rows, columns, depth = shape
    first = wmma_read(g, a, kinds[1], rows, depth)
    second = wmma_read(g, b, kinds[2], depth, columns)
    third = wmma_read(g, c, kinds[3], rows, columns)
    total = tensor_sum(first, second, third, (kinds[0], kinds[1]), m.chip_sums)
    if clamped:
        total = np.clip(total, -(2.0**31), 2.0**31 - 1)
    return wmma_write(g, encode_result(total, kinds[0]), kinds[0], count)


def wmma_read(g: Lanes, registers: list[Array], kind: str, rows: int, columns: int) -> Array:
    """Elements beyond the matrix (the chip keeps f16 operands twice) are copies."""
    elements = gather_elements(g, as_bits(registers), kind).reshape(g.warps, 32, -1)
    mine = rows * columns // 32
    return to_float64(np.ascontiguousarray(elements[:, :, :mine]).reshape(-1, rows, columns), kind)


def wmma_write(g: Lanes, elements: Array, kind: str, count: int) -> list[Array]:
    """Registers from elements (warps, rows, columns); repeated if the fragment has room for copies."""
    mine = np.ascontiguousarray(elements).reshape(g.warps, 32, -1)
    code = REGISTER_CODES.get(kind, "u4")
    room = count * np.dtype(code).itemsize // elements.dtype.itemsize
    return scatter_elements(g, np.tile(mine, (1, 1, room // mine.shape[2])).reshape(g.warps, -1), count, code)


def emit_wmma_move(b: Builder, i: Instruction, mods: Mods, shape: tuple[int, int, int], action: str) -> None:
    role, order = mods.choose("a", "b", "c", "d"), mods.choose("row", "col")
    space = space_of(mods)
    kind = take_formats(mods)[0]
    m, n, k = shape
    rows, columns = {"a": (m, k), "b": (k, n)}.get(role, (m, n))
    registers, place = (i.operands[0], i.operands[1]) if action == "load" else (i.operands[1], i.operands[0])
    code = REGISTER_CODES.get(kind, "u4")
    with b.guarded() as lanes:
        address, offset = b.address(place, address_space(b, place, space)), offset_of(place)
        stride = b.read(i.operands[2], "u4") if len(i.operands) > 2 else str(columns if order == "row" else rows)
        form = f"m, {lanes}, {address}, {offset}, {stride}, {(rows, columns)}, {order!r}, {kind!r}"
        if action == "load":
            count = len(items(i, registers))
            b.assign_many(items(i, registers), f"wmma_load({form}, {count}, {b.index})", code)
        else:
            values = ", ".join(b.read(item, code) for item in items(i, registers))
            b.line(f"wmma_store({form}, [{values}], {b.index})")


def element_addresses(g: Lanes, address: Address, stride: Array, form: tuple[int, int], order: str, size: int) -> list[Address]:
    """For each of a lane's elements, the lanes' addresses."""
    rows, columns = form
    per_lane = rows * columns // 32
    pitch = np.broadcast_to(np.asarray(stride), (g.n,)).astype(np.int64)
    found = []
    for j in range(per_lane):
        row, column = np.divmod(g.lane * per_lane + j, columns)
        step = (row * pitch + column if order == "row" else column * pitch + row) * size
        own = np.broadcast_to(address.own, (g.n,))
        base = np.broadcast_to(address.base, (g.n,))
        found.append(
            Address(address.m, g, address.space, (base + step.astype(base.dtype)), (own + step.astype(own.dtype)), address.region)
        )
    return found


@runtime
def wmma_load(
    m: Machine,
    g: Lanes,
    address: Address,
    offset: int,
    stride: Array,
    form: tuple[int, int],
    order: str,
    kind: str,
    count: int,
    site: int,
) -> list[Array]:
    whole_warps(m, g, site)
    size = ELEMENT_BYTES[kind]
    code = np.dtype(f"u{size}")
    loaded = [one.load(offset, code, site) for one in element_addresses(g, address, stride, form, order, size)]
    elements = np.stack([g.dense(values) for values in loaded], axis=2).reshape(g.warps, *form)
    return wmma_write(g, elements, kind, count)


@runtime
def wmma_store(
    m: Machine,
    g: Lanes,
    address: Address,
    offset: int,
    stride: Array,
    form: tuple[int, int],
    order: str,
    kind: str,
    values: list[Array],
    site: int,
) -> None:
    whole_warps(m, g, site)
    size = ELEMENT_BYTES[kind]
    elements = gather_elements(g, as_bits(values), kind).reshape(g.warps, 32, -1)
    for j, one in enumerate(element_addresses(g, address, stride, form, order, size)):
        one.store(offset, site, g.flat(elements[:, :, j]))


# ---- ldmatrix and stmatrix: 8x8 tiles of 16-bit elements; lane l gives the address of row l % 8 of tile l / 8 ----


def tiles_of(i: Instruction, mods: Mods) -> tuple[int, bool]:
    mods.flag("sync", "aligned", "shared", "shared::cta")
    if mods.choose("m8n8", "m16n16", "m8n16", "m16n8") != "m8n8" or mods.choose("b16", "b8", "b8x16") != "b16":
        raise PtxError(f"{i.site}: only tiles of m8n8 and b16 are known")
    return int(mods.choose("x1", "x2", "x4")[1]), mods.flag("trans")


@opcode("ldmatrix")
def emit_ldmatrix(b: Builder, i: Instruction, mods: Mods) -> None:
    count, turned = tiles_of(i, mods)
    with b.guarded() as lanes:
        address = row_addresses(b, i.operands[1], lanes, count)
        b.assign_many(
            items(i, i.operands[0]),
            f"load_tiles(m, {lanes}, {address}, {offset_of(i.operands[1])}, {count}, {turned}, {b.index})",
            "u4",
        )


@opcode("stmatrix")
def emit_stmatrix(b: Builder, i: Instruction, mods: Mods) -> None:
    count, turned = tiles_of(i, mods)
    with b.guarded() as lanes:
        address = row_addresses(b, i.operands[0], lanes, count)
        values = ", ".join(b.read(item, "u4") for item in items(i, i.operands[1]))
        b.line(f"store_tiles(m, {lanes}, {address}, {offset_of(i.operands[0])}, {count}, {turned}, {b.index}, [{values}])")


def row_addresses(b: Builder, operand: Operand, lanes: str, count: int) -> str:
    """Only the first 8 * count lanes give addresses; those of the others are ignored."""
    whole = b.address(operand, "shared")
    return whole if count == 4 else b.once(("rows", count, whole), f"first_lanes({whole}, {8 * count})", "a")


@runtime
def first_lanes(address: Address, count: int) -> Address:
    g = address.g
    lanes = g.where(g.lane < count)
    assert lanes is not None
    pick = lanes.within if lanes.within is not None and lanes is not g else slice(None)
    base, own = (np.broadcast_to(values, (g.n,))[pick] for values in (address.base, address.own))
    return Address(address.m, lanes, address.space, base, own, address.region)


@runtime
def load_tiles(m: Machine, g: Lanes, address: Address, offset: int, count: int, turned: bool, site: int) -> list[Array]:
    whole_warps(m, g, site)
    rows = np.broadcast_to(address.load(offset, np.dtype("c16"), site), (g.warps * 8 * count,))
    tiles = np.ascontiguousarray(rows).view("u2").reshape(g.warps, count, 8, 8)
    if turned:
        tiles = np.ascontiguousarray(tiles.swapaxes(2, 3))
    words = tiles.view("u4").reshape(g.warps, count, 32)
    return [g.flat(words[:, number]) for number in range(count)]


@runtime
def store_tiles(
    m: Machine, g: Lanes, address: Address, offset: int, count: int, turned: bool, site: int, values: list[Array]
) -> None:
    whole_warps(m, g, site)
    words = np.stack([g.dense(value) for value in values], axis=1)
    tiles = np.ascontiguousarray(words).view("u2").reshape(g.warps, count, 8, 8)
    if turned:
        tiles = np.ascontiguousarray(tiles.swapaxes(2, 3))
    address.store(offset, site, tiles.reshape(-1).view("c16"))


@opcode("movmatrix")
def emit_movmatrix(b: Builder, i: Instruction, mods: Mods) -> None:
    mods.flag("sync", "aligned", "m8n8", "trans", "b16")
    with b.guarded() as lanes:
        b.assign(i.operands[0], f"turn_tile(m, {lanes}, {b.read(i.operands[1], 'u4')}, {b.index})", "u4")


@runtime
def turn_tile(m: Machine, g: Lanes, value: Array, site: int) -> Array:
    whole_warps(m, g, site)
    tile = np.ascontiguousarray(g.dense(value)).view("u2").reshape(g.warps, 8, 8)
    return g.flat(np.ascontiguousarray(tile.swapaxes(1, 2)).view("u4").reshape(g.warps, 32))
