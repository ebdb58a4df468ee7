"""How instructions of whole warps move elements: fragments, tiles, and products of tensor cores."""

from __future__ import annotations

import numpy as np

from lapidist.machine.instructions.fragments import ELEMENT_BYTES, a_map, b_map, c_map, per_register
from lapidist.machine.instructions.warpgroup_mma import PIECE, tile_addresses
from lapidist.machine.instructions.wmma import Moves, fragment_map, moves_of
from lapidist.machine.ptx.matrix_shapes import matrix_shape
from lapidist.machine.ptx.syntax_tree import Instruction, Operand, Vec
from lapidist_lab.lessons.elements import NOWHERE
from lapidist_lab.lessons.origins import Access, Executed, Origins, Rule, WarpProduct, alike, products, united

Array = np.ndarray
LANES = 32
TILE = 8  # rows of ldmatrix, and its columns of 16 bits


def kinds_of(i: Instruction) -> list[str]:
    return [mod for mod in i.mods if mod in ELEMENT_BYTES]


def items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vec) else (operand,)


# ---- fragments: matrix elements in the registers of a warp ----


def fragment(origins: Origins, operand: Operand, threads: Array, kind: str) -> Array:
    """(warps, 32 lanes * elements a lane) of a fragment, lane after lane."""
    return joined(origins, origins.read(operand, threads), kind).reshape(len(threads) // LANES, -1)


def joined(origins: Origins, cells: Array, kind: str) -> Array:
    """Cells as elements of a kind, which may fill several."""
    step = ELEMENT_BYTES[kind] // origins.size
    if step < 2:
        return cells
    return alike(cells.reshape(-1, step), 1).reshape(len(cells), -1)


def spread(origins: Origins, elements: Array, kind: str) -> Array:
    """Elements of a kind as cells."""
    return np.repeat(elements, max(ELEMENT_BYTES[kind] // origins.size, 1), axis=1)


def write_fragment(
    origins: Origins, site: int, threads: Array, values: Array, kind: str, table: Array
) -> None:
    """Put a matrix (warps, rows, columns) into the registers of D."""
    flat = np.empty((len(values), table.size), np.int64)
    flat[:, table.reshape(-1)] = values.reshape(len(values), -1)
    cells = spread(origins, flat.reshape(len(threads), -1), kind)
    origins.write(site, origins.code[site].operands[0], threads, cells)


def multiply(origins: Origins, site: int, block: Executed) -> None:
    """mma.sync."""
    i = origins.code[site]
    shape, kinds = matrix_shape(i), kinds_of(i)
    assert shape is not None
    m, n, k = shape
    warp_multiply(origins, site, block, kinds, (a_map(m, k, kinds[1]), b_map(k, n, kinds[2]), c_map(m, n)))


def wmma_multiply(origins: Origins, site: int, block: Executed) -> None:
    i = origins.code[site]
    shape, kinds = matrix_shape(i), kinds_of(i)
    assert shape is not None
    # with half inputs only D and C are named
    d, first, second, c = kinds if len(kinds) == 4 else (kinds[0], "f16", "f16", kinds[1])
    tables = [fragment_map(role, shape, kind) for role, kind in (("a", first), ("b", second), ("c", c))]
    warp_multiply(origins, site, block, [d, first, second, c], (tables[0], tables[1], tables[2]))


def warp_multiply(
    origins: Origins, site: int, block: Executed, kinds: list[str], tables: tuple[Array, Array, Array]
) -> None:
    """D = A B + C, all in registers; of copies in a fragment the first counts."""
    operands = origins.code[site].operands[1:4]
    matrices = [
        fragment(origins, operand, block.threads, kind)
        .reshape(len(block.threads) // LANES, LANES, -1)[:, :, : table.size // LANES]
        .reshape(len(block.threads) // LANES, -1)[:, table]
        for operand, kind, table in zip(operands, kinds[1:], tables, strict=True)
    ]
    total = united(matrices[2], products(origins.elements, matrices[0], matrices[1]))
    write_fragment(origins, site, block.threads, total, kinds[0], tables[2])


def warpgroup_multiply(origins: Origins, site: int, block: Executed) -> None:
    """wgmma: each warp multiplies its 16 rows of A by all of B, which lies in shared memory."""
    i = origins.code[site]
    for p in block.products.get(site, ()):
        threads = p.warp * LANES + np.arange(LANES)
        d, first, second = p.mma.kinds
        at_b = tile_pieces(p, p.b, (0, p.mma.n), p.mma.transposed_b, second)
        b, atoms = tile(origins, at_b, p.mma.transposed_b), (origins.atom(at_b),)
        if p.in_registers:
            a = fragment(origins, i.operands[1], threads, first)[0, a_map(16, p.mma.depth, first)]
            p.tell(a[:0, 0], np.unique(b), atoms)
        else:
            at_a = tile_pieces(p, p.a, (16 * (p.warp % 4), 16), p.mma.transposed_a, first)
            a = tile(origins, at_a, p.mma.transposed_a)
            p.tell(np.unique(a), np.unique(b), (origins.atom(at_a), *atoms))
        total, table = products(origins.elements, a[None], b.T[None]), c_map(16, p.mma.n)
        if p.adds:
            total = united(fragment(origins, i.operands[0], threads, d)[:, table], total)
        write_fragment(origins, site, threads, total, d, table)


def tile_pieces(p: WarpProduct, descriptor: int, rows: tuple[int, int], transposed: bool, kind: str) -> Array:
    """The addresses of a tile's pieces in shared memory, line by line."""
    return tile_addresses(descriptor, *rows, p.mma.depth, transposed, kind)[0]


def tile(origins: Origins, addresses: Array, transposed: bool) -> Array:
    """(extent, k): the elements of a tile in shared memory."""
    cells = origins.at(addresses.reshape(-1), PIECE).reshape(len(addresses), -1)
    return cells.T if transposed else cells


# ---- wmma's loads and stores ----


def moves_at(i: Instruction) -> tuple[Moves, str]:
    shape = matrix_shape(i)
    assert shape is not None
    role = next(mod for mod in i.mods if mod in ("a", "b", "c", "d"))
    kind = kinds_of(i)[0]
    return moves_of(role, shape, kind, "row" if "row" in i.mods else "col"), kind


def wmma_load(origins: Origins, site: int, block: Executed) -> None:
    """Each access brings a unit of neighbours to every lane."""
    moves, kind = moves_at(origins.code[site])
    warps = len(block.threads) // LANES
    matrix = np.full((warps, moves.at.size), NOWHERE, np.int64)
    for where, access in units(moves, block.accesses.get(site, [])):
        matrix[:, where.reshape(-1)] = joined(origins, origins.loaded(access), kind).reshape(warps, -1)
    elements = matrix[:, moves.registers.reshape(-1)].reshape(len(block.threads), -1)
    target = origins.code[site].operands[0]
    copies = len(items(target)) * per_register(kind) // elements.shape[1]
    cells = spread(origins, np.tile(elements, (1, copies)), kind)
    origins.write(site, target, block.threads, cells)


def wmma_store(origins: Origins, site: int, block: Executed) -> None:
    moves, kind = moves_at(origins.code[site])
    elements = fragment(origins, origins.code[site].operands[1], block.threads, kind)
    matrix = np.empty_like(elements)
    matrix[:, moves.registers.reshape(-1)] = elements
    for where, access in units(moves, block.accesses.get(site, [])):
        values = matrix[:, where.reshape(-1)].reshape(len(block.threads), -1)
        origins.put(access, spread(origins, values, kind))


def units(moves: Moves, accesses: list[Access]) -> list[tuple[Array, Access]]:
    """Accesses, each with the elements of its unit in the matrix."""
    starts = range(0, moves.at.shape[1], moves.run)
    return [
        (moves.at[:, start : start + moves.run], access)
        for start, access in zip(starts, accesses, strict=True)
    ]


# ---- ldmatrix and stmatrix ----


def transposed(origins: Origins, rows: Array, count: int, across: bool) -> Array:
    """(warps, tiles, 8, 8, cells of 16 bits), transposed if that is what the instruction does."""
    pairs = max(2 // origins.size, 1)
    if origins.size > 2:  # an element spans two columns, so it does not survive a turn
        return np.full((len(rows) // TILE // count, count, TILE, TILE, 1), NOWHERE, np.int64)
    tiles = rows.reshape(-1, count, TILE, TILE, pairs)
    return tiles.swapaxes(2, 3) if across else tiles


def tile_count(i: Instruction) -> int:
    return int(next(mod for mod in i.mods if mod in ("x1", "x2", "x4"))[1])


def load_tiles(origins: Origins, site: int, block: Executed) -> None:
    i = origins.code[site]
    count, across = tile_count(i), "trans" in i.mods
    for access in block.accesses.get(site, ()):
        rows = origins.loaded(access)
        if across or origins.size <= 2:
            rows = transposed(origins, rows, count, across)
        words = rows.reshape(-1, count, LANES, max(4 // origins.size, 1))
        cells = words.swapaxes(1, 2).reshape(len(block.threads), -1)
        origins.write(site, i.operands[0], block.threads, cells)


def store_tiles(origins: Origins, site: int, block: Executed) -> None:
    i = origins.code[site]
    count = tile_count(i)
    words = origins.read(i.operands[1], block.threads).reshape(-1, LANES, count, max(4 // origins.size, 1))
    rows = transposed(origins, words.swapaxes(1, 2).reshape(-1, 16 // origins.size), count, "trans" in i.mods)
    for access in block.accesses.get(site, ()):
        origins.put(access, np.ascontiguousarray(rows).reshape(len(access.threads), -1))


MATRIX_RULES: dict[str, Rule] = {
    "mma": multiply,
    "wmma.load": wmma_load,
    "wmma.store": wmma_store,
    "wmma.mma": wmma_multiply,
    "wgmma.mma_async": warpgroup_multiply,
    "ldmatrix": load_tiles,
    "stmatrix": store_tiles,
}
