"""wgmma: four warps multiply tiles that lie in shared memory, described by 64-bit descriptors.

Each warp is served by itself: warp w of the four owns rows 16w to 16w + 15 of the result. The layouts, with T
= 16 bytes and W the width of the swizzle:

  K-major   rows of W bytes, eight rows an atom, atoms `stride` apart;
            without swizzle: atoms of 8 rows of T bytes, `stride` apart along rows, `leading` apart along k
  MN-major  k rows of W bytes, eight of them an atom; atoms `leading` apart along m or n, `stride` apart
  along k;
            without swizzle the two change their roles
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from lapidist.machine.codegen import Builder, Mods, opcode, runtime
from lapidist.machine.faults import OutOfBounds, PtxError
from lapidist.machine.instructions.bulk import immediate_of
from lapidist.machine.instructions.copies import swizzled
from lapidist.machine.instructions.fragments import (
    ELEMENT_BYTES,
    a_map,
    as_bits,
    c_map,
    read_matrix,
    to_float64,
    write_matrix,
)
from lapidist.machine.instructions.sparse import expanded, selector_of
from lapidist.machine.instructions.sums import tensor_sum
from lapidist.machine.instructions.tensorcore import (
    REGISTER_CODES,
    register_list,
    require_full_warps,
    require_registers,
    take_formats,
)
from lapidist.machine.lanes import TRUE, Lanes
from lapidist.machine.ptx.basic_blocks import registers
from lapidist.machine.ptx.matrix_shapes import is_sparse, matrix_shape
from lapidist.machine.ptx.signatures import require_signature
from lapidist.machine.ptx.syntax_tree import Imm, Instruction, Operand, Reg, Vec

if TYPE_CHECKING:
    from lapidist.machine.state import Machine

Array = np.ndarray
SWIZZLES = {0: 0, 1: 128, 2: 64, 3: 32}
DEPTHS = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32, "b1": 256}
INTEGERS = ("s8", "u8", "b1")
PIECE = 16


@dataclass(frozen=True, slots=True)
class Multiplication:
    """A wgmma as its modifiers and immediates describe it."""

    n: int
    kinds: tuple[str, str, str]  # D, A, B
    scale_a: int
    scale_b: int
    transposed_a: bool
    transposed_b: bool
    selector: int | None = None  # of a sparse A's metadata

    @property
    def stored(self) -> int:
        """Elements of A along k as they are moved: whole bytes of b1, half of a sparse row."""
        return DEPTHS[self.kinds[1]] // (8 if self.kinds[1] == "b1" else 1)

    @property
    def depth(self) -> int:
        """Elements of B along k."""
        return self.stored * (1 if self.selector is None else 2)

    @property
    def registers(self) -> int:
        """Registers of D in a lane."""
        return self.n // (4 if self.kinds[0] == "f16" else 2)


@dataclass(slots=True)
class PendingProduct:
    """A wgmma of some warps, ready to be computed. Descriptors are one a lane; results are arrays to be
    filled.
    """

    g: Lanes
    mma: Multiplication
    a_registers: list[Array]  # none: A is in shared memory
    a_names: tuple[str, ...]  # of these registers
    a: Array
    b: Array
    c: list[Array]
    metadata: Array | None
    site: int


def piece_offsets(
    extent: int, depth: int, transposed: bool, swizzle: int, leading: int, stride: int, kind: str
) -> Array:
    """Byte offsets from the start address of a tile's 16-byte pieces: (extent, k pieces), or (k, extent
    pieces) if transposed. `depth` is its extent along k."""
    size = ELEMENT_BYTES[kind]
    width = swizzle or PIECE
    if not transposed:
        row = np.arange(extent)[:, None]
        piece = np.arange(depth * size // PIECE)[None, :]
        along = piece * (PIECE if swizzle else leading)
        return row // 8 * stride + row % 8 * width + along
    step = np.arange(depth)[:, None]
    piece = np.arange(extent * size // PIECE)[None, :]
    pieces = width // PIECE
    far, near = (leading, stride) if swizzle else (stride, leading)
    return step // 8 * near + step % 8 * width + piece // pieces * far + piece % pieces * PIECE


def tile_positions(
    m: Machine,
    g: Lanes,
    lane: int,
    descriptor: int,
    first: int,
    extent: int,
    depth: int,
    transposed: bool,
    kind: str,
    site: int,
) -> Array:
    """Positions in the machine's shared memory of the pieces of rows [first, first + extent) of a tile."""
    if descriptor >> 49 & 7:
        rule = "a wgmma descriptor with a base offset: tiles must start on the swizzle's period"
        raise m.fault(OutOfBounds, rule, site, g, lane)
    addresses, low, high = tile_addresses(descriptor, first, extent, depth, transposed, kind)
    if low < m.floors["shared"] or high + PIECE > m.limits["shared"]:
        rule = (
            f"a wgmma descriptor reaches outside shared memory ({m.floors['shared']} to"
            f" {m.limits['shared'] - 1})"
        )
        raise m.fault(OutOfBounds, rule, site, g, lane, (descriptor & 0x3FFF) << 4)
    return addresses + int(g.slot[lane]) * m.shared_stride


@lru_cache(maxsize=1024)
def tile_addresses(
    descriptor: int, first: int, extent: int, depth: int, transposed: bool, kind: str
) -> tuple[Array, int, int]:
    """Addresses in a block's shared memory, the least and the largest. They are cached, as a kernel comes
    to the same few tiles again."""
    start, leading, stride = ((descriptor >> shift & 0x3FFF) << 4 for shift in (0, 16, 32))
    swizzle = SWIZZLES[descriptor >> 62 & 3]
    offsets = piece_offsets(first + extent, depth, transposed, swizzle, leading, stride, kind)
    offsets = offsets[:, first * ELEMENT_BYTES[kind] // PIECE :] if transposed else offsets[first:]
    addresses = swizzled(start + offsets, swizzle)
    return addresses, int(addresses.min()), int(addresses.max())


def read_tile(m: Machine, positions: Array, transposed: bool, kind: str) -> Array:
    """(extent, k) in float64."""
    pieces = m.shared_bytes.reshape(-1, PIECE)[positions // PIECE]
    bits = np.ascontiguousarray(pieces).reshape(len(positions), -1).view(f"u{ELEMENT_BYTES[kind]}")
    values = to_float64(bits, kind)
    return values.T if transposed else values


def compute(m: Machine, p: PendingProduct) -> list[Array]:
    """The D registers of a product."""
    g, mma = p.g, p.mma
    leaders = np.arange(0, g.n, 32)
    quarter = g.thread[leaders] // 32 % 4
    second = read_b(m, p, leaders)
    if p.a_registers:
        first = read_matrix(g, as_bits(p.a_registers), mma.kinds[1], a_map(16, mma.stored, mma.kinds[1]))
    else:
        first = np.stack(
            [
                read_tile(m, a_positions(m, p, lane, q), mma.transposed_a, mma.kinds[1])
                for lane, q in zip(leaders.tolist(), quarter.tolist(), strict=True)
            ]
        )
    if p.metadata is not None and mma.selector is not None:
        first = expanded(m, g, first, p.metadata, mma.selector, mma.kinds[1], False, p.site)
    third = read_matrix(g, as_bits(p.c), mma.kinds[0], c_map(16, mma.n)) if p.c else None
    signed = mma.scale_a * mma.scale_b * first
    total = tensor_sum(
        signed, second.swapaxes(1, 2), third, (mma.kinds[0], mma.kinds[1]), m.chip_sums, "wgmma"
    )
    return write_matrix(g, total, mma.kinds[0], c_map(16, mma.n))


def a_positions(m: Machine, p: PendingProduct, lane: int, quarter: int) -> Array:
    return tile_positions(
        m,
        p.g,
        lane,
        int(p.a[lane]),
        16 * quarter,
        16,
        p.mma.stored,
        p.mma.transposed_a,
        p.mma.kinds[1],
        p.site,
    )


def b_positions(m: Machine, p: PendingProduct, lane: int) -> Array:
    return tile_positions(
        m, p.g, lane, int(p.b[lane]), 0, p.mma.n, p.mma.depth, p.mma.transposed_b, p.mma.kinds[2], p.site
    )


def read_b(m: Machine, p: PendingProduct, leaders: Array) -> Array:
    """(warps, n, k); warps of one block with the same descriptor share the work."""
    read: dict[tuple[int, int], Array] = {}
    tiles = []
    for lane in leaders.tolist():
        key = int(p.g.slot[lane]), int(p.b[lane])
        if key not in read:
            read[key] = read_tile(m, b_positions(m, p, lane), p.mma.transposed_b, p.mma.kinds[2])
        tiles.append(read[key])
    return np.stack(tiles)


class Products:
    """wgmmas that are done when they are issued. The sanitizer's subclass does them at the wait."""

    def __init__(self, m: Machine) -> None:
        self.m = m

    def issue(self, p: PendingProduct) -> list[Array]:
        require_full_warps(self.m, p.g, p.site)
        return compute(self.m, p)

    def fence(self, g: Lanes) -> None:
        """Orders register accesses; nothing to do when products are immediate."""

    def commit(self, g: Lanes) -> None:
        """End a group."""

    def wait(self, g: Lanes, pending: int, site: int) -> Array:
        """Whether at most `pending` groups are under way."""
        return TRUE

    def overwritten(self, g: Lanes, name: str, site: int) -> None:
        """A register from which some wgmma reads A was overwritten."""

    def used(self, g: Lanes, site: int, values: dict[str, Array]) -> None:
        """An instruction reads registers that some wgmma writes."""


@opcode("wgmma.fence", "wgmma.commit_group", "wgmma.wait_group")
def emit_group(b: Builder, i: Instruction, mods: Mods) -> None:
    mods.flag("sync", "aligned")
    with b.guarded() as lanes:
        if "wait_group" in i.mods:
            b.line(f"done = m.products.wait({lanes}, {immediate_of(i, i.operands[0])}, {b.index})")
            b.result = "done"
        else:
            b.line(f"m.products.{'fence' if 'fence' in i.mods else 'commit'}({lanes})")


@opcode("wgmma.mma_async", "wgmma.mma_async.sp")
def emit_wgmma(b: Builder, i: Instruction, mods: Mods) -> None:
    shape, kinds, sparse = matrix_shape(i), take_formats(mods), is_sparse(i)
    if (
        shape is None
        or shape[0] != 64
        or len(kinds) != 3
        or DEPTHS.get(kinds[1], 0) * (2 if sparse else 1) != shape[2]
        or shape[1] % (16 if kinds[1] in INTEGERS and shape[1] > 32 else 8)
        or not 8 <= shape[1] <= 256
        or (sparse and kinds[1] == "b1")
    ):
        raise PtxError(f"{i.site}: this shape and these types of wgmma are not known")
    mods.flag("sync", "aligned", "satfinite", "m{}n{}k{}".format(*shape))
    if kinds[1] == "b1" and not (mods.flag("and") and mods.flag("popc")):
        raise PtxError(f"{i.site}: wgmma on bits counts those of .and.popc")
    in_registers = isinstance(i.operands[1], Vec)
    scales = 0 if kinds[1] in INTEGERS else 2
    transposes = (1 if in_registers else 2) if kinds[1] in ("f16", "bf16") else 0
    require_signature(i, "evs" + "sn" * sparse + "s" + "n" * (scales + transposes))
    numbers = [operand.value for operand in i.operands[6 if sparse else 4 :] if isinstance(operand, Imm)]
    scale_a, scale_b = [*numbers, 1, 1][:2] if numbers else (1, 1)
    turns = [*([False] if in_registers else []), *(bool(number) for number in numbers[2:]), False, False][:2]
    selector = selector_of(i, 4, kinds[1], shape[2]) if sparse else None
    ways = scale_a, scale_b, turns[0], turns[1], selector
    mma = Multiplication(shape[1], (kinds[0], kinds[1], kinds[2]), *ways)
    name = b.new("w")
    b.program.objects[name_of(b, name)] = mma
    emit_issue(b, i, mma, name_of(b, name), in_registers)


def name_of(b: Builder, name: str) -> str:
    return f"{name}_{b.block.index}"


def emit_issue(b: Builder, i: Instruction, mma: Multiplication, name: str, in_registers: bool) -> None:
    """D is read only where scale-d is true; the others get a product alone."""
    code = REGISTER_CODES.get(mma.kinds[0], "u4")
    target = i.operands[0]
    if not isinstance(target, Vec) or len(target.items) != mma.registers:
        raise PtxError(f"{i.site}: D needs {mma.registers} registers in braces")
    with b.guarded() as lanes:
        if in_registers:
            vector = i.operands[1]
            assert isinstance(vector, Vec)
            require_registers(i, vector, 4, "A")
            a_registers, a = register_list(b, vector, "u4"), b.program.constant(np.zeros(1, np.uint64))
            names = tuple(registers(vector))
        else:
            a_registers, a, names = "[]", b.read(i.operands[1], "u8"), ()
        c = register_list(b, target, code)
        sparse = mma.selector is not None
        scale = scale_text(b, i.operands[5 if sparse else 3])
        metadata = b.read(i.operands[3], "u4") if sparse else "None"
        text = (
            f"issue_product(m, {lanes}, {name}, {a_registers}, {names!r}, {a},"
            f" {b.read(i.operands[2], 'u8')}, {c}, {scale}, {metadata}, {b.index})"
        )
        b.assign_many(target.items, text, code)


def scale_text(b: Builder, operand: Operand) -> str:
    if isinstance(operand, Imm):
        return b.program.constant(np.array([operand.value != 0]))
    if isinstance(operand, Reg):
        return b.read(operand, "b1")
    raise PtxError(f"{b.i.site}: scale-d must be a predicate")


@runtime
def issue_product(
    m: Machine,
    g: Lanes,
    mma: Multiplication,
    a_registers: list[Array],
    a_names: tuple[str, ...],
    a: Array,
    b: Array,
    c: list[Array],
    scale: Array,
    metadata: Array | None,
    site: int,
) -> list[Array]:
    """Warps may differ in scale-d, though compilers never do that."""
    a, b = (np.broadcast_to(values, (g.n,)) for values in (a, b))
    if not scale.all():
        c = [] if not scale.any() else [np.where(scale, register, register.dtype.type(0)) for register in c]
    product = PendingProduct(g, mma, a_registers, a_names, a, b, c, metadata, site)
    m.observer.multiplied(product)
    return m.products.issue(product)
