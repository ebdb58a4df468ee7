"""Tensor core instructions of one warp: mma.sync, ldmatrix, stmatrix, movmatrix (wmma has a module of its
own).

How products are summed is in `sums`; the float32 result is truncated, as the chip does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lapidist.machine.codegen import Builder, Mods, opcode, runtime
from lapidist.machine.faults import Divergence, OutOfBounds, PtxError
from lapidist.machine.instructions.access import address_space, offset_of
from lapidist.machine.instructions.fragments import (
    ELEMENT_BYTES,
    PAIRED,
    a_map,
    as_bits,
    as_bytes,
    b_map,
    both_halves,
    c_map,
    read_matrix,
    write_matrix,
)
from lapidist.machine.instructions.sparse import NAMES, SPARSE_SHAPES, expanded, selector_of
from lapidist.machine.instructions.sums import tensor_sum
from lapidist.machine.lanes import Lanes
from lapidist.machine.memory import Address, MixedAddress
from lapidist.machine.ptx.matrix_shapes import is_sparse, matrix_shape
from lapidist.machine.ptx.syntax_tree import Instruction, Operand, Vec

if TYPE_CHECKING:
    from lapidist.machine.state import Machine

Array = np.ndarray
FORMATS = ("f16", "bf16", "tf32", "f64", "f32", "s8", "u8", "s4", "u4", "e4m3", "e5m2", "b1", "s32")
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
    formats = [name for name in mods.remaining if name in FORMATS]
    mods.remaining = [name for name in mods.remaining if name not in FORMATS]
    return formats


def items(operand: Operand) -> tuple[Operand, ...]:
    if isinstance(operand, Vec):
        return operand.items
    return (operand,)


def require_registers(i: Instruction, operand: Operand, count: int, what: str) -> None:
    count_of = len(items(operand))
    if count_of != count:
        raise PtxError(f"{i.site}: {what} takes {count} register{'s' * (count != 1)}, got {count_of}")


def operand_lists(b: Builder, i: Instruction, codes: list[str]) -> str:
    """A, B and C of a product, each as a list of registers; `codes` are those of D, A, B and C."""
    lists = zip(i.operands[1:4], codes[1:], strict=True)
    return ", ".join(register_list(b, operand, code) for operand, code in lists)


def register_list(b: Builder, operand: Operand, code: str) -> str:
    """The operand's registers as a list of expressions."""
    return "[" + ", ".join(b.read(item, code) for item in items(operand)) + "]"


def require_full_warps(m: Machine, g: Lanes, site: int) -> None:
    if not g.full_warps:
        raise m.fault(Divergence, "a matrix instruction needs all 32 lanes of its warp", site, g)


def require_shared(m: Machine, g: Lanes, address: Address | MixedAddress, site: int) -> None:
    """Refuse generic addresses of rows that do not all lie in shared memory."""
    if not isinstance(address, Address) or address.space != "shared":
        raise m.fault(OutOfBounds, "the rows must lie in shared memory", site, g)


# ---- mma.sync ----


@opcode("mma.sync", *(f"mma.{name}" for name in NAMES))
def emit_mma(b: Builder, i: Instruction, mods: Mods) -> None:
    shape, sparse = matrix_shape(i), is_sparse(i)
    mods.flag("sync", "aligned", "row", "col", "m{}n{}k{}".format(*shape) if shape else "")
    clamped = mods.flag("satfinite")
    kinds = take_formats(mods)
    if shape is None or len(kinds) != 4 or not is_known(shape, kinds, sparse):
        raise PtxError(f"{i.site}: this shape and these types of mma are not known")
    codes = [REGISTER_CODES.get(kind, "u4") for kind in kinds]
    metadata = "None"
    (rows, columns, depth), stored_kinds = as_bytes(shape, kinds)
    kind, stored = stored_kinds[1], depth // 2 if sparse else depth
    extents = rows * columns, rows * stored, depth * columns, rows * columns
    for operand, name, elements, of in zip(i.operands[:4], "DABC", extents, stored_kinds, strict=True):
        size = ELEMENT_BYTES[of]
        require_registers(i, operand, elements * size // (32 * max(size, 4)), name)
    if sparse:
        selector, ordered = selector_of(i, 5, kind, depth), NAMES[1] in i.mods
        metadata = f"({b.read(i.operands[4], 'u4')}, {selector}, {ordered})"
    with b.guarded() as lanes:
        text = (
            f"multiply(m, {lanes}, {shape}, {kinds}, {operand_lists(b, i, codes)}, {metadata}, {clamped},"
            f" {b.index})"
        )
        b.assign_many(items(i.operands[0]), text, codes[0])


def is_known(shape: tuple[int, int, int], kinds: list[str], sparse: bool) -> bool:
    if (kinds[1] in PAIRED) != (kinds[2] in PAIRED):
        return False
    lying, (_, kind, _, _) = as_bytes(shape, kinds)
    return lying in (SPARSE_SHAPES if sparse else MMA_SHAPES).get(kind, set())


@runtime
def multiply(
    m: Machine,
    g: Lanes,
    shape: tuple[int, int, int],
    kinds: list[str],
    a: list[Array],
    b: list[Array],
    c: list[Array],
    metadata: tuple[Array, int, bool] | None,
    clamped: bool,
    site: int,
) -> list[Array]:
    """`metadata` of a sparse A: a word a lane, the selector, and whether places come in order."""
    require_full_warps(m, g, site)
    (rows, columns, depth), (_, kind, other, _) = as_bytes(shape, kinds)
    stored = depth if metadata is None else depth // 2
    first = read_matrix(g, as_bits(a), kind, a_map(rows, stored, kind))
    if metadata is not None:
        words, selector, ordered = metadata
        first = expanded(m, g, first, words, selector, kind, ordered, site)
    second = read_matrix(g, as_bits(b), other, b_map(depth, columns, other))
    if kinds[1] in PAIRED:
        first, second = both_halves(first, kinds[1], 2), both_halves(second, kinds[2], 1)
    third = read_matrix(g, as_bits(c), kinds[3], c_map(rows, columns))
    total = tensor_sum(first, second, third, (kinds[0], kinds[1]), m.chip_sums)
    if clamped:
        total = np.clip(total, -(2.0**31), 2.0**31 - 1)
    return write_matrix(g, total, kinds[0], c_map(rows, columns))


# ---- ldmatrix and stmatrix: 8x8 tiles of 16-bit elements; lane l gives the address of row l % 8 of tile l /
# 8 ----


def tiles_of(i: Instruction, mods: Mods) -> tuple[int, bool]:
    mods.flag("sync", "aligned", "shared", "shared::cta")
    if (
        mods.choose("m8n8", "m16n16", "m8n16", "m16n8") != "m8n8"
        or mods.choose("b16", "b8", "b8x16") != "b16"
    ):
        raise PtxError(f"{i.site}: only tiles of m8n8 and b16 are known")
    return int(mods.choose("x1", "x2", "x4")[1]), mods.flag("trans")


@opcode("ldmatrix")
def emit_ldmatrix(b: Builder, i: Instruction, mods: Mods) -> None:
    count, across = tiles_of(i, mods)
    require_registers(i, i.operands[0], count, f"ldmatrix.x{count}")
    with b.guarded() as lanes:
        address = row_addresses(b, i.operands[1], count)
        b.assign_many(
            items(i.operands[0]),
            f"load_tiles(m, {lanes}, {address}, {offset_of(i.operands[1])}, {count}, {across}, {b.index})",
            "u4",
        )


@opcode("stmatrix")
def emit_stmatrix(b: Builder, i: Instruction, mods: Mods) -> None:
    count, across = tiles_of(i, mods)
    require_registers(i, i.operands[1], count, f"stmatrix.x{count}")
    with b.guarded() as lanes:
        address = row_addresses(b, i.operands[0], count)
        values = register_list(b, i.operands[1], "u4")
        b.line(
            f"store_tiles(m, {lanes}, {address}, {offset_of(i.operands[0])}, {count}, {across}, {b.index},"
            f" {values})"
        )


def row_addresses(b: Builder, operand: Operand, count: int) -> str:
    """Only the first 8 * count lanes give addresses; those of the others are ignored."""
    space = address_space(b, operand, "shared" if {"shared", "shared::cta"} & set(b.i.mods) else "generic")
    if count == 4:
        return b.address(operand, space)
    key, base = b.base(operand)
    text = f"rows_at(m, {b.lanes}, {base}, {8 * count}, {space!r}, {b.index})"
    return b.once(("rows", space, count, *key), text, "a")


@runtime
def rows_at(m: Machine, g: Lanes, base: Array, count: int, space: str, site: int) -> Address | MixedAddress:
    lanes = g.where(g.lane < count)
    assert lanes is not None
    return (m.shared_at if space == "shared" else m.generic_at)(
        lanes,
        np.broadcast_to(base, (g.n,)) if lanes is g else np.broadcast_to(base, (g.n,))[lanes.within],
        site,
    )


@runtime
def load_tiles(
    m: Machine,
    g: Lanes,
    address: Address | MixedAddress,
    offset: int,
    count: int,
    transposed: bool,
    site: int,
) -> list[Array]:
    require_full_warps(m, g, site)
    require_shared(m, g, address, site)
    rows = np.broadcast_to(address.load(offset, np.dtype("c16"), site), (g.warps * 8 * count,))
    return tile_words(g, np.ascontiguousarray(rows), transposed)


def tile_words(g: Lanes, rows: Array, transposed: bool) -> list[Array]:
    """The registers of tiles from their rows of 16 bytes."""
    tiles = rows.view("u2").reshape(g.warps, -1, 8, 8)
    if transposed:
        tiles = np.ascontiguousarray(tiles.swapaxes(2, 3))
    words = tiles.view("u4").reshape(g.warps, -1, 32)
    return [g.flat(words[:, number]) for number in range(words.shape[1])]


def tile_rows(g: Lanes, values: list[Array], transposed: bool) -> Array:
    """The rows of tiles, as elements of 16 bits one after another, from their registers."""
    words = np.stack([g.dense(value) for value in values], axis=1)
    tiles = np.ascontiguousarray(words).view("u2").reshape(g.warps, len(values), 8, 8)
    if transposed:
        tiles = np.ascontiguousarray(tiles.swapaxes(2, 3))
    return tiles.reshape(-1)


@runtime
def store_tiles(
    m: Machine,
    g: Lanes,
    address: Address | MixedAddress,
    offset: int,
    count: int,
    transposed: bool,
    site: int,
    values: list[Array],
) -> None:
    require_full_warps(m, g, site)
    require_shared(m, g, address, site)
    address.store(offset, site, tile_rows(g, values, transposed).view("c16"))


@opcode("movmatrix")
def emit_movmatrix(b: Builder, i: Instruction, mods: Mods) -> None:
    mods.flag("sync", "aligned", "m8n8", "trans", "b16")
    with b.guarded() as lanes:
        b.assign(i.operands[0], f"turn_tile(m, {lanes}, {b.read(i.operands[1], 'u4')}, {b.index})", "u4")


@runtime
def turn_tile(m: Machine, g: Lanes, value: Array, site: int) -> Array:
    require_full_warps(m, g, site)
    tile = np.ascontiguousarray(g.dense(value)).view("u2").reshape(g.warps, 8, 8)
    return g.flat(np.ascontiguousarray(tile.swapaxes(1, 2)).view("u4").reshape(g.warps, 32))
