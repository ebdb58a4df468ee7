"""wmma: matrices of a warp between memory and registers, and their products.

PTX leaves open where a fragment's elements lie. The chip keeps them as mma.sync does (recorded on an H200,
the same for rows and columns in memory): see `fragments`. A shape wider than tall is the transpose of the
taller one, operands exchanged. f16 operands fill eight registers by repeating themselves; products read the
first copy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from lapidist.machine.codegen import Builder, Mods, opcode, runtime
from lapidist.machine.faults import PtxError
from lapidist.machine.instructions.access import address_space, offset_of, space_of
from lapidist.machine.instructions.fragments import (
    ELEMENT_BYTES,
    a_map,
    as_bits,
    b_map,
    c_map,
    gather_elements,
    scatter_elements,
    to_float64,
    write_matrix,
)
from lapidist.machine.instructions.sums import tensor_sum
from lapidist.machine.instructions.tensorcore import (
    REGISTER_CODES,
    items,
    operand_lists,
    register_list,
    require_full_warps,
    take_formats,
)
from lapidist.machine.lanes import Lanes
from lapidist.machine.memory import Address
from lapidist.machine.ptx.matrix_shapes import matrix_shape
from lapidist.machine.ptx.signatures import require_signature
from lapidist.machine.ptx.syntax_tree import Instruction

if TYPE_CHECKING:
    from lapidist.machine.state import Machine

Array = np.ndarray
Shape = tuple[int, int, int]
SHAPES = {(16, 16, 16), (32, 8, 16), (8, 32, 16), (16, 16, 8), (8, 8, 4)}
WIDE_CODES = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}


@opcode("wmma")
def emit_wmma(b: Builder, i: Instruction, mods: Mods) -> None:
    action = mods.choose("load", "store", "mma")
    require_signature(i, *{"load": ["ea", "eas"], "store": ["av", "avs"], "mma": ["evvv"]}[action])
    shape = matrix_shape(i)
    if shape is None or shape not in SHAPES:
        raise PtxError(f"{i.site}: this shape of wmma is not known")
    mods.flag("sync", "aligned", "m{}n{}k{}".format(*shape))
    if action == "mma":
        emit_multiply(b, i, mods, shape)
    else:
        emit_move(b, i, mods, shape, action)


# ---- layouts ----


@lru_cache(maxsize=64)
def fragment_map(role: str, shape: Shape, kind: str) -> Array:
    """(rows, columns): which element of the lanes' registers each element of the matrix is; copies not
    counted.
    """
    m, n, k = shape
    if n > m:
        swapped = {"a": "b", "b": "a"}.get(role, role)
        return fragment_map(swapped, (n, m, k), kind).T
    if role in "ab":
        return a_map(m, k, kind) if role == "a" else b_map(k, n, kind)
    return c_map(m, n)


@dataclass(frozen=True)
class Moves:
    """How lanes fetch a matrix: each lane's units of `run` neighbours in memory.

    `major` and `minor` (32 lanes, units) are where a unit starts, in lines of memory and in elements of a
    line. `at` (32, units * run) are the numbers of its elements in the matrix. `registers` (32, elements) are
    those of the fragment."""

    run: int
    major: Array
    minor: Array
    at: Array
    registers: Array


@lru_cache(maxsize=64)
def moves_of(role: str, shape: Shape, kind: str, order: str) -> Moves:
    """The moves of a compiler: 16-bit elements go in pairs, and through movmatrix where memory and
    fragment disagree; others go as wide as both allow."""
    table = fragment_map(role, shape, kind)
    columns = table.shape[1]
    registers = np.argsort(table, axis=None).reshape(32, -1)
    row, column = np.divmod(registers, columns)
    run = neighbours(row, column, order)
    if run == 1 and ELEMENT_BYTES[kind] == 2:
        row, column = row // 8 * 8 + column % 8, column // 8 * 8 + row % 8
        run = neighbours(row, column, order)
    major, minor = (row, column) if order == "row" else (column, row)
    return Moves(run, major[:, ::run], minor[:, ::run], row * columns + column, registers)


def neighbours(row: Array, column: Array, order: str) -> int:
    """How many elements in a row of every lane's list are neighbours in memory: 4, 2 or 1."""
    major, minor = (row, column) if order == "row" else (column, row)
    for run in (4, 2):
        if row.shape[1] % run == 0:
            lines, positions = major.reshape(32, -1, run), minor.reshape(32, -1, run)
            if (lines == lines[:, :, :1]).all() and (positions == positions[:, :, :1] + np.arange(run)).all():
                return run
    return 1


# ---- loads and stores ----


def emit_move(b: Builder, i: Instruction, mods: Mods, shape: Shape, action: str) -> None:
    role, order = mods.choose("a", "b", "c", "d"), mods.choose("row", "col")
    space = space_of(mods)
    kind = take_formats(mods)[0]
    registers, place = (i.operands[0], i.operands[1]) if action == "load" else (i.operands[1], i.operands[0])
    code = REGISTER_CODES.get(kind, "u4")
    with b.guarded() as lanes:
        address, offset = b.address(place, address_space(b, place, space)), offset_of(place)
        rows, columns = fragment_map(role, shape, kind).shape
        stride = (
            b.read(i.operands[2], "u4")
            if len(i.operands) > 2
            else f"np.array([{columns if order == 'row' else rows}])"
        )
        descriptor = f"m, {lanes}, {address}, {offset}, {stride}, {(role, shape, kind, order)}"
        if action == "load":
            count = len(items(registers))
            b.assign_many(items(registers), f"wmma_load({descriptor}, {count}, {b.index})", code)
        else:
            b.line(f"wmma_store({descriptor}, {register_list(b, registers, code)}, {b.index})")


def unit_addresses(
    g: Lanes, address: Address, pitch: Array, moves: Moves, size: int
) -> Iterator[tuple[Address, int]]:
    """The lanes' addresses of each unit, with an offset. All lanes step alike unless their pitches differ."""
    pitch = pitch.astype(np.int64)
    if (pitch == pitch[0]).all():
        steps = (moves.major * int(pitch[0]) + moves.minor) * size
        shared = shifted(g, address, steps[g.lane, 0])
        yield from ((shared, step) for step in (steps[0] - steps[0, 0]).tolist())
        return
    for unit in range(moves.major.shape[1]):
        yield shifted(g, address, (moves.major[g.lane, unit] * pitch + moves.minor[g.lane, unit]) * size), 0


def shifted(g: Lanes, address: Address, step: Array) -> Address:
    base, addresses = (values + step.astype(values.dtype) for values in (address.base, address.addresses))
    return Address(address.m, g, address.space, base, addresses, address.region)


@runtime
def wmma_load(
    m: Machine,
    g: Lanes,
    address: Address,
    offset: int,
    pitch: Array,
    descriptor: tuple[str, Shape, str, str],
    count: int,
    site: int,
) -> list[Array]:
    require_full_warps(m, g, site)
    moves, kind = moves_of(*descriptor), descriptor[2]
    size = ELEMENT_BYTES[kind]
    code, wide = f"u{size}", np.dtype(WIDE_CODES[size * moves.run])
    matrix = np.empty((g.warps, moves.at.size), code)
    for unit, (place, step) in enumerate(unit_addresses(g, address, pitch, moves, size)):
        where = moves.at[:, unit * moves.run : (unit + 1) * moves.run]
        matrix[:, where.reshape(-1)] = g.dense(place.load(offset + step, wide, site)).view(code)
    elements = matrix[:, moves.registers.reshape(-1)].reshape(g.warps, 32, -1)
    register = REGISTER_CODES.get(kind, "u4")
    copies = count * np.dtype(register).itemsize // (elements.shape[2] * size)
    return scatter_elements(g, np.tile(elements, (1, 1, copies)).reshape(g.warps, -1), count, register)


@runtime
def wmma_store(
    m: Machine,
    g: Lanes,
    address: Address,
    offset: int,
    pitch: Array,
    descriptor: tuple[str, Shape, str, str],
    values: list[Array],
    site: int,
) -> None:
    require_full_warps(m, g, site)
    moves, kind = moves_of(*descriptor), descriptor[2]
    size = ELEMENT_BYTES[kind]
    elements = gather_elements(g, as_bits(values), kind)
    matrix = np.empty_like(elements)
    matrix[:, moves.registers.reshape(-1)] = elements
    for unit, (place, step) in enumerate(unit_addresses(g, address, pitch, moves, size)):
        where = moves.at[:, unit * moves.run : (unit + 1) * moves.run]
        words = np.ascontiguousarray(matrix[:, where.reshape(-1)]).view(WIDE_CODES[size * moves.run])
        place.store(offset + step, site, g.flat(words))


# ---- products ----


def emit_multiply(b: Builder, i: Instruction, mods: Mods, shape: Shape) -> None:
    mods.choose("row", "col")
    mods.choose("row", "col")
    clamped = mods.flag("satfinite")
    mods.flag("rn")  # of fp64, where it is the default
    kinds = take_formats(mods)
    # With half inputs only D and C are named.
    d, first, second, c = kinds if len(kinds) == 4 else (kinds[0], "f16", "f16", kinds[1])
    codes = [REGISTER_CODES.get(kind, "u4") for kind in (d, first, second, c)]
    with b.guarded() as lanes:
        text = (
            f"wmma_multiply(m, {lanes}, {shape}, {(d, first, second, c)}, {operand_lists(b, i, codes)},"
            f" {clamped}, {b.index})"
        )
        b.assign_many(items(i.operands[0]), text, codes[0])


@runtime
def wmma_multiply(
    m: Machine,
    g: Lanes,
    shape: Shape,
    kinds: tuple[str, ...],
    a: list[Array],
    b: list[Array],
    c: list[Array],
    clamped: bool,
    site: int,
) -> list[Array]:
    require_full_warps(m, g, site)
    operands = zip("abc", (a, b, c), kinds[1:], strict=True)
    first, second, third = (
        read(g, registers, fragment_map(role, shape, kind), kind) for role, registers, kind in operands
    )
    total = tensor_sum(first, second, third, (kinds[0], kinds[1]), m.chip_sums, "wmma")
    if clamped:
        total = np.clip(total, -(2.0**31), 2.0**31 - 1)
    return write_matrix(g, total, kinds[0], fragment_map("d", shape, kinds[0]))


def read(g: Lanes, registers: list[Array], table: Array, kind: str) -> Array:
    """(warps, rows, columns) in float64, from the first copy."""
    elements = gather_elements(g, as_bits(registers), kind).reshape(g.warps, 32, -1)
    first_copy = np.ascontiguousarray(elements[:, :, : table.size // 32]).reshape(g.warps, -1)
    return to_float64(first_copy[:, table], kind)
