"""Asynchronous copies: cp.async, bulk copies and tensor (TMA) copies with their swizzles and border rules.

`Copies` does each copy when it is issued, which is a legal order. The sanitizer's subclass does them as late as the
waits allow. A `Transfer` is one bulk copy, its completion included, so both do the same thing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lapidist.launch import TensorMap
from lapidist.machine.access import ATOMIC, offset_of
from lapidist.machine.codegen import Builder, Mods, opcode
from lapidist.machine.faults import Misaligned, OutOfBounds, PtxError
from lapidist.machine.lanes import Lanes
from lapidist.machine.memory import RANK_SHIFT, Address, Region
from lapidist.machine.parse import Addr, Instruction, Operand, Vec

if TYPE_CHECKING:
    from lapidist.machine.scheduler import Machine

Array = np.ndarray
ELEMENT_SIZES = {"bfloat16": 2, "tfloat32": 4, "float8_e4m3fn": 1, "float8_e5m2": 1}
U1, U4, U8, C16 = (np.dtype(code) for code in ("u1", "u4", "u8", "c16"))
WORDS = {4: U4, 8: U8, 16: C16}


def element_size(dtype: str) -> int:
    return ELEMENT_SIZES.get(dtype) or np.dtype(dtype).itemsize


def swizzled(positions: Array, pattern: int) -> Array:
    """Where the chip puts a byte: 16-byte pieces are exchanged by XOR with the number of their 128-byte line."""
    mask = pattern // 16 - 1 if pattern else 0
    return positions ^ (((positions >> 7) & mask) << 4)


@dataclass(slots=True)
class Transfer:
    """One bulk copy of one lane. Shared positions are in the machine's whole shared memory."""

    g: Lanes
    lane: int
    site: int
    shared: tuple[int, ...]  # one a destination block
    nbytes: int
    to_shared: bool
    address: int = 0  # in global memory (or shared position of the source), without a map
    from_shared: bool = False
    map: TensorMap | None = None
    corner: tuple[int, ...] = ()
    barriers: tuple[int, ...] = ()  # one a destination block; none: it belongs to a bulk group
    operation: str = ""
    element: str = ""


class Copies:
    """Copies that happen at once."""

    def __init__(self, m: Machine) -> None:
        self.m = m

    # -- cp.async --

    def copy(self, target: Address, target_offset: int, source: Address, source_offset: int, size: int, site: int) -> None:
        target.store(target_offset, site, source.load(source_offset, WORDS[size], site))

    def copy_part(self, target: Address, target_offset: int, source: tuple[Array, int], size: int, taken: Array, site: int) -> None:
        """cp.async that reads only `taken` bytes and fills up with zeros; with 0 the source is not touched."""
        g = target.g
        base, source_offset = source
        data = np.zeros((g.n, size), np.uint8)
        taken = np.broadcast_to(taken, (g.n,))
        for count in np.unique(taken).tolist():
            if count > size:
                raise self.m.fault(OutOfBounds, f"cp.async: source size {count} is larger than the copy of {size} bytes", site, g)
            lanes = g.where(taken == count)
            if count and lanes is not None:
                address = self.m.global_at(lanes, base if len(base) == 1 or lanes is g else base[taken == count], site)
                data[taken == count, :count] = self.read_bytes(address, source_offset, count, site)
        target.store(target_offset, site, data.view(WORDS[size]).reshape(-1))

    def read_bytes(self, address: Address, offset: int, count: int, site: int) -> Array:
        return np.stack(address.load_many(offset, U1, count, site), axis=1)

    def commit(self, g: Lanes) -> None:
        """A group ends."""

    def wait(self, g: Lanes, pending: int, site: int) -> None:
        """At most `pending` groups are still under way."""

    def arrive(self, g: Lanes, address: Address, offset: int, extra: bool, site: int) -> None:
        """An arrival when this lane's copies are done; `extra` adds one expected arrival first."""
        if not extra:
            self.m.mbarriers.arrive(address, offset, np.array([1]), None, False, site)

    # -- bulk copies --

    def issue(self, transfer: Transfer) -> None:
        self.land(transfer)

    def commit_bulk(self, g: Lanes) -> None:
        """A bulk group ends."""

    def wait_bulk(self, g: Lanes, pending: int, reading: bool, site: int) -> None:
        """At most `pending` bulk groups are still under way (or still read)."""

    def land(self, t: Transfer) -> None:
        """Do the copy and report its bytes."""
        self.m.observe_transfer(t)
        if t.map is not None:
            self.land_tensor(t, t.map)
        elif t.to_shared:
            self.land_bytes(t)
        else:
            self.store_bytes(t)
        for barrier in t.barriers:
            self.m.mbarriers.complete_bytes(barrier, t.nbytes, t.site)

    def shared_view(self) -> Array:
        return self.m.shared_bytes

    def global_bytes(self, t: Transfer, address: int, nbytes: int) -> tuple[Region, Array]:
        """A checked range of global memory as bytes."""
        region = self.m.globals.find(address)
        if region is None or address + nbytes > region.end:
            rule = f"bulk copy of {nbytes} bytes outside all memory of the launch: {self.m.globals.describe_near(address)}"
            raise self.m.fault(OutOfBounds, rule, t.site, t.g, t.lane, address)
        view, origin = region.view(U1)
        return region, view[address - origin : address - origin + nbytes]

    def land_bytes(self, t: Transfer) -> None:
        if t.from_shared:
            data = self.shared_view()[t.address : t.address + t.nbytes].copy()
        else:
            data = self.global_bytes(t, t.address, t.nbytes)[1]
        for start in t.shared:
            self.shared_view()[start : start + t.nbytes] = data

    def store_bytes(self, t: Transfer) -> None:
        start = t.shared[0]
        self.combine(self.global_bytes(t, t.address, t.nbytes)[1], self.shared_view()[start : start + t.nbytes], t)

    def combine(self, old: Array, new: Array, t: Transfer) -> None:
        """Overwrite, or reduce element by element."""
        if not t.operation:
            old[...] = new
            return
        reduce_into(old, new, t.operation, t.element)

    # -- tensor copies --

    def land_tensor(self, t: Transfer, tensor: TensorMap) -> None:
        """Box and matrix meet where the box lies inside; outside a load brings zeros and a store does nothing."""
        size = element_size(tensor.dtype)
        inside, box_part = clip_box(tensor, t.corner)
        where = self.tensor_view(t, tensor, inside, size)
        positions = swizzled(box_positions(tensor, size, t.shared[0] & 1023), tensor.swizzle)
        if t.to_shared:
            box = np.zeros(tensor.box[::-1], f"u{size}")
            if where is not None:
                box[box_part] = where
            data = box.reshape(-1).view(np.uint8).reshape(-1, 16)
            for start in t.shared:
                pieces = self.shared_view().reshape(-1, 16)
                pieces[(start - (t.shared[0] & 1023) + positions) // 16] = data
        elif where is not None:
            pieces = self.shared_view().reshape(-1, 16)[(t.shared[0] - (t.shared[0] & 1023) + positions) // 16]
            box = pieces.reshape(-1).view(f"u{size}").reshape(tensor.box[::-1])[box_part]
            if t.operation:
                fresh = np.ascontiguousarray(where)
                reduce_into(fresh.reshape(-1).view(np.uint8), np.ascontiguousarray(box).reshape(-1).view(np.uint8), t.operation, tensor.dtype)
                where[...] = fresh
            else:
                where[...] = box

    def tensor_view(self, t: Transfer, tensor: TensorMap, inside: list[tuple[int, int]], size: int) -> Array | None:
        """The part of the matrix that the box covers, outermost dimension first; None if it covers nothing."""
        if any(low >= high for low, high in inside):
            return None
        strides = (size, *tensor.strides)
        start = tensor.address + sum(low * stride for (low, _), stride in zip(inside, strides, strict=True))
        span = sum((high - low - 1) * stride for (low, high), stride in zip(inside, strides, strict=True)) + size
        _, data = self.global_bytes(t, start, span)
        shape = tuple(high - low for low, high in inside)[::-1]
        return np.ndarray(shape, f"u{size}", data, 0, strides[::-1])


def reduce_into(old: Array, new: Array, operation: str, element: str) -> None:
    """old = operation(old, new) on elements of a PTX or map type."""
    if element in ("bf16", "bfloat16"):
        view = old.view("u2")
        view[...] = ATOMIC["brain"](view, new.view("u2")) if operation == "add" else fail(operation)
        return
    codes = {"float32": "f4", "f32": "f4", "float64": "f8", "f64": "f8", "float16": "f2", "f16": "f2", "int32": "i4", "s32": "i4"}
    code = codes.get(element) or {"u32": "u4", "b32": "u4", "u64": "u8", "b64": "u8", "s64": "i8"}.get(element, element)
    view = old.view(code)
    view[...] = ATOMIC[operation](view, new.view(code))


def fail(operation: str) -> Array:
    raise NotImplementedError(operation)


def clip_box(tensor: TensorMap, corner: tuple[int, ...]) -> tuple[list[tuple[int, int]], tuple[slice, ...]]:
    """Per dimension the part of the matrix inside the box, and the same part as slices of the box, outermost first."""
    inside = [(max(c, 0), min(c + box, extent)) for c, box, extent in zip(corner, tensor.box, tensor.shape, strict=True)]
    slices = [slice(low - c, high - c) for (low, high), c in zip(inside, corner, strict=True)]
    return inside, tuple(slices[::-1])


def box_positions(tensor: TensorMap, size: int, start: int) -> Array:
    """Shared positions (from a multiple of 1024) of the box's 16-byte pieces before swizzling."""
    nbytes = size
    for extent in tensor.box:
        nbytes *= extent
    return start + np.arange(0, nbytes, 16)


# ---- cp.async ----


@opcode("cp.async")
def emit_copy(b: Builder, i: Instruction, mods: Mods) -> None:
    if mods.rest[:1] == ["commit_group"]:
        mods.flag("commit_group")
        with b.guarded() as lanes:
            b.line(f"m.copies.commit({lanes})")
    elif mods.rest[:1] in (["wait_group"], ["wait_all"]):
        everything = mods.flag("wait_all")
        mods.flag("wait_group")
        pending = 0 if everything else immediate_of(i, i.operands[0])
        with b.guarded() as lanes:
            b.line(f"m.copies.wait({lanes}, {pending}, {b.index})")
    elif mods.rest[:1] == ["mbarrier"]:
        mods.flag("mbarrier", "arrive", "shared", "shared::cta", "b64")
        extra = not mods.flag("noinc")
        with b.guarded() as lanes:
            b.line(f"m.copies.arrive({lanes}, {b.address(i.operands[0], 'shared')}, {offset_of(i.operands[0])}, {extra}, {b.index})")
    else:
        emit_copy_bytes(b, i, mods)


def immediate_of(i: Instruction, operand: Operand) -> int:
    from lapidist.machine.parse import Imm

    if not isinstance(operand, Imm):
        raise PtxError(f"{i.site}: needs a literal number")
    return operand.value


def emit_copy_bytes(b: Builder, i: Instruction, mods: Mods) -> None:
    kind = mods.choose("ca", "cg")
    mods.flag("shared", "shared::cta", "global", "L2::cache_hint", "L2::64B", "L2::128B", "L2::256B")
    size = immediate_of(i, i.operands[2])
    if size not in WORDS or (kind == "cg" and size != 16):
        raise PtxError(f"{i.site}: cp.async.{kind} copies {'16' if kind == 'cg' else '4, 8 or 16'} bytes, got {size}")
    part = i.operands[3] if len(i.operands) > 3 and i.operands[3] != i.operands[2] else None
    with b.guarded():
        target, target_offset = b.address(i.operands[0], "shared"), offset_of(i.operands[0])
        source, source_offset = i.operands[1], offset_of(i.operands[1])
        if part is None:
            b.line(f"m.copies.copy({target}, {target_offset}, {b.address(source, 'global')}, {source_offset}, {size}, {b.index})")
            return
        if not isinstance(source, Addr):
            raise PtxError(f"{i.site}: the source must be an address")
        pair = f"({b.read(source.base, 'u8')}, {source_offset})"
        b.line(f"m.copies.copy_part({target}, {target_offset}, {pair}, {size}, {b.read(part, 'u4')}, {b.index})")


# ---- bulk and tensor copies ----

SPACES = ("shared::cluster", "shared::cta", "global")
REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")


@opcode("cp.async.bulk.commit_group")
def emit_commit_bulk(b: Builder, i: Instruction, mods: Mods) -> None:
    with b.guarded() as lanes:
        b.line(f"m.copies.commit_bulk({lanes})")


@opcode("cp.async.bulk.wait_group")
def emit_wait_bulk(b: Builder, i: Instruction, mods: Mods) -> None:
    reading = mods.flag("read")
    with b.guarded() as lanes:
        b.line(f"m.copies.wait_bulk({lanes}, {immediate_of(i, i.operands[0])}, {reading}, {b.index})")


@opcode("cp.async.bulk.prefetch")
def emit_prefetch(b: Builder, i: Instruction, mods: Mods) -> None:
    mods.rest.clear()


@opcode("cp.async.bulk", "cp.reduce.async.bulk")
def emit_bulk(b: Builder, i: Instruction, mods: Mods) -> None:
    target, source = mods.choose(*SPACES), mods.choose(*SPACES)
    operation = mods.choose(*REDUCTIONS, default="") if "reduce" in i.mods else ""
    grouped, multicast = mods.flag("bulk_group"), mods.flag("multicast::cluster")
    mods.flag("mbarrier::complete_tx::bytes", "L2::cache_hint", "noftz")
    element = mods.type() if operation else ""
    if operation and target != "global":
        raise PtxError(f"{i.site}: reductions into shared memory are not supported")
    operands = list(i.operands)
    with b.guarded() as lanes:
        first, second = (address_value(b, operand) for operand in operands[:2])
        size = b.read(operands[2], "u4")
        barrier = "None" if grouped else address_value(b, operands[3])
        mask = b.read(operands[4], "u2") if multicast else "None"
        spaces = f"{target.split('::')[0]!r}, {source.split('::')[0]!r}"
        b.line(f"issue_bulk(m, {lanes}, {spaces}, {first}, {second}, {size}, {barrier}, {mask}, {operation!r}, {element!r}, {b.index})")


@opcode("cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor")
def emit_tensor(b: Builder, i: Instruction, mods: Mods) -> None:
    dims = int(mods.choose("1d", "2d", "3d", "4d", "5d")[0])
    target, source = mods.choose(*SPACES), mods.choose(*SPACES)
    operation = mods.choose(*REDUCTIONS, default="") if "reduce" in i.mods else ""
    mods.flag("tile", "bulk_group", "mbarrier::complete_tx::bytes", "L2::cache_hint")
    multicast = mods.flag("multicast::cluster")
    loads = source == "global"
    box, shared = (i.operands[1], i.operands[0]) if loads else (i.operands[0], i.operands[1])
    if not isinstance(box, Addr) or not box.extra or not isinstance(box.extra[0], Vec) or len(box.extra[0].items) != dims:
        raise PtxError(f"{i.site}: a {dims}d tensor copy needs [map, {{{dims} coordinates}}]")
    with b.guarded() as lanes:
        corner = ", ".join(b.read(item, "i4") for item in box.extra[0].items)
        place = address_value(b, shared)
        barrier = address_value(b, i.operands[2]) if loads else "None"
        mask = b.read(i.operands[3], "u2") if multicast else "None"
        tensor = f"{b.read(box.base, 'u8')}, {box.offset}"
        b.line(f"issue_tensor(m, {lanes}, {loads}, {tensor}, ({corner},), {place}, {barrier}, {mask}, {operation!r}, {b.index})")


def address_value(b: Builder, operand: Operand) -> str:
    """The address itself, offset added."""
    if not isinstance(operand, Addr):
        raise PtxError(f"{b.i.site}: needs an address in brackets, got {operand}")
    code = "u8"
    from lapidist.machine.parse import TYPE_BYTES, Reg

    if isinstance(operand.base, Reg):
        code = f"u{TYPE_BYTES[b.program.kernel.registers[operand.base.name]]}"
    base = b.read(operand.base, code)
    if operand.offset:
        base = f"({base} + {b.program.constant(np.array([operand.offset % (1 << 8 * int(code[1:]))], code))})"
    return base


def each(values: Array | None, count: int) -> list[int]:
    return [0] * count if values is None else np.broadcast_to(values, (count,)).tolist()


def shared_position(m: Machine, g: Lanes, lane: int, address: int, nbytes: int, site: int, align: int) -> int:
    """A shared::cluster address as a position in the machine's shared memory, checked."""
    rank, offset = address >> RANK_SHIFT, address & ((1 << RANK_SHIFT) - 1)
    slot = int(g.slot[lane])
    size = m.geometry.cluster_size
    if rank:
        slot = slot - int(g.block[lane]) % size + rank - 1
    if rank > size or offset < m.floors["shared"] or offset + nbytes > m.limits["shared"]:
        rule = f"bulk copy of {nbytes} bytes outside shared memory, which holds addresses {m.floors['shared']} to {m.limits['shared'] - 1}"
        raise m.fault(OutOfBounds, rule, site, g, lane, address)
    if offset % align:
        raise m.fault(Misaligned, f"a bulk copy needs a shared address that is a multiple of {align}", site, g, lane, address)
    return slot * m.shared_stride + offset


def destinations(m: Machine, g: Lanes, lane: int, position: int, mask: int | None) -> tuple[int, ...]:
    """A multicast lands at the same offset in each block of the mask."""
    if mask is None:
        return (position,)
    first = int(g.slot[lane]) - int(g.block[lane]) % m.geometry.cluster_size
    offset = position % m.shared_stride
    return tuple((first + rank) * m.shared_stride + offset for rank in range(m.geometry.cluster_size) if mask >> rank & 1)


def issue_tensor(  # type: ignore[no-untyped-def]
    m: Machine, g: Lanes, loads: bool, maps: Array, map_offset: int, corner, place: Array, barrier, mask, operation: str, site: int
) -> None:
    corners = list(zip(*(each(axis, g.n) for axis in corner), strict=True))
    columns = zip(each(maps, g.n), each(place, g.n), each(barrier, g.n), each(mask, g.n), strict=True)
    for lane, (address, shared, bar, ranks) in enumerate(columns):
        tensor = m.tensor_map(address + map_offset, g, lane, site)
        if len(corners[lane]) != len(tensor.shape):
            raise m.fault(OutOfBounds, f"a {len(corners[lane])}d copy through a map of {len(tensor.shape)} dimensions", site, g, lane)
        nbytes = element_size(tensor.dtype)
        for extent in tensor.box:
            nbytes *= extent
        position = shared_position(m, g, lane, shared, nbytes, site, 128)
        only = None if mask is None else ranks
        barriers = () if barrier is None else destinations(m, g, lane, shared_position(m, g, lane, bar, 8, site, 8), only)
        targets = destinations(m, g, lane, position, only)
        m.copies.issue(Transfer(g, lane, site, targets, nbytes, loads, 0, False, tensor, corners[lane], barriers, operation))


def issue_bulk(  # type: ignore[no-untyped-def]
    m: Machine, g: Lanes, target: str, source: str, first: Array, second: Array, size: Array, barrier, mask, operation: str, element: str, site: int
) -> None:
    columns = zip(each(first, g.n), each(second, g.n), each(size, g.n), each(barrier, g.n), each(mask, g.n), strict=True)
    for lane, (to, come, nbytes, bar, ranks) in enumerate(columns):
        if nbytes % 16:
            raise m.fault(Misaligned, f"a bulk copy moves a multiple of 16 bytes, got {nbytes}", site, g, lane)
        shared, other = (to, come) if target == "shared" else (come, to)
        position = shared_position(m, g, lane, shared, nbytes, site, 16)
        both = source == "shared" and target == "shared"
        if both:
            other = shared_position(m, g, lane, come, nbytes, site, 16)
        elif other % 16:
            raise m.fault(Misaligned, "a bulk copy needs a global address that is a multiple of 16", site, g, lane, other)
        only = None if mask is None else ranks
        barriers = () if barrier is None else destinations(m, g, lane, shared_position(m, g, lane, bar, 8, site, 8), only)
        targets = destinations(m, g, lane, position, only)
        m.copies.issue(Transfer(g, lane, site, targets, nbytes, target == "shared", other, both, None, (), barriers, operation, element))


def register_issues() -> None:
    from lapidist.machine.codegen import NAMESPACE

    NAMESPACE.update(issue_tensor=issue_tensor, issue_bulk=issue_bulk)


register_issues()


@opcode("mapa")
def emit_mapa(b: Builder, i: Instruction, mods: Mods) -> None:
    """The same variable in another block of the cluster."""
    shared = mods.flag("shared::cluster")
    code = "u4" if mods.type() == "u32" else "u8"
    if not shared and code == "u4":
        raise PtxError(f"{i.site}: a generic address has 64 bits")
    source, rank = b.read(i.operands[1], code), b.read(i.operands[2], "u4")
    low = b.program.constant(np.array([(1 << RANK_SHIFT) - 1 | (0 if shared else 1 << 60)], code))
    b.assign(i.operands[0], f"({source} & {low}) | (({rank} + 1).astype({code}) << {RANK_SHIFT})", code)


@opcode("getctarank")
def emit_getctarank(b: Builder, i: Instruction, mods: Mods) -> None:
    shared = mods.flag("shared::cluster")
    code = "u4" if mods.type() == "u32" else "u8"
    rank = f"(({b.read(i.operands[1], code)} >> {RANK_SHIFT}) & {0xFF if shared else 0xFF})"
    own = b.special(special_rank())
    b.assign(i.operands[0], f"np.where({rank} == 0, {own}, {rank} - 1).astype(u4)", "u4")


def special_rank():  # type: ignore[no-untyped-def]
    from lapidist.machine.parse import Special

    return Special("cluster_ctarank")
