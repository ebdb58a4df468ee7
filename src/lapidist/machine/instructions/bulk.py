"""The opcodes of asynchronous copies: cp.async, bulk and tensor copies, and addresses in other blocks of a
cluster.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lapidist.machine.codegen import Builder, Mods, opcode, runtime
from lapidist.machine.faults import Misaligned, OutOfBounds, PtxError
from lapidist.machine.instructions.access import offset_of
from lapidist.machine.instructions.copies import WORDS, Transfer, box_positions, element_size
from lapidist.machine.lanes import Lanes
from lapidist.machine.memory import OFFSET, RANK_SHIFT
from lapidist.machine.ptx.signatures import CACHE_HINT, require_signature
from lapidist.machine.ptx.syntax_tree import TYPE_BYTES, Addr, Imm, Instruction, Operand, Reg, Vec

if TYPE_CHECKING:
    from lapidist.machine.state import Machine

Array = np.ndarray


@opcode("cp.async")
def emit_copy(b: Builder, i: Instruction, mods: Mods) -> None:
    if mods.remaining[:1] == ["commit_group"]:
        mods.flag("commit_group")
        with b.guarded() as lanes:
            b.line(f"m.copies.commit({lanes})")
    elif mods.remaining[:1] in (["wait_group"], ["wait_all"]):
        everything = mods.flag("wait_all")
        mods.flag("wait_group")
        pending = 0 if everything else immediate_of(i, i.operands[0])
        with b.guarded() as lanes:
            b.line(f"m.copies.wait({lanes}, {pending}, {b.index})")
    elif mods.remaining[:1] == ["mbarrier"]:
        require_signature(i, "a")
        mods.flag("mbarrier", "arrive", "shared", "shared::cta", "b64")
        extra = not mods.flag("noinc")
        with b.guarded() as lanes:
            b.line(
                f"m.copies.arrive({lanes}, {b.address(i.operands[0], 'shared')}, {offset_of(i.operands[0])},"
                f" {extra}, {b.index})"
            )
    else:
        emit_copy_bytes(b, i, mods)


def immediate_of(i: Instruction, operand: Operand) -> int:
    if not isinstance(operand, Imm):
        raise PtxError(f"{i.site}: needs a literal number")
    return operand.value


def emit_copy_bytes(b: Builder, i: Instruction, mods: Mods) -> None:
    kind = mods.choose("ca", "cg")
    mods.flag("shared", "shared::cta", "global", CACHE_HINT, "L2::64B", "L2::128B", "L2::256B")
    hint = "s" if CACHE_HINT in i.mods else ""
    require_signature(i, f"aan{hint}", f"aans{hint}")
    size = immediate_of(i, i.operands[2])
    if size not in WORDS or (kind == "cg" and size != 16):
        raise PtxError(
            f"{i.site}: cp.async.{kind} copies {'16' if kind == 'cg' else '4, 8 or 16'} bytes, got {size}"
        )
    where, come, copy_size, *more = i.operands
    if CACHE_HINT in i.mods:
        more.pop()  # the policy stands last, behind a source size
    part = more[0] if more and more[0] != copy_size else None
    with b.guarded():
        target, target_offset = b.address(where, "shared"), offset_of(where)
        source, source_offset = come, offset_of(come)
        if part is None:
            b.line(
                f"m.copies.copy({target}, {target_offset}, {b.address(source, 'global')}, {source_offset},"
                f" {size}, {b.index})"
            )
            return
        if not isinstance(source, Addr):
            raise PtxError(f"{i.site}: the source must be an address")
        pair = f"({b.read(source.base, 'u8')}, {source_offset})"
        b.line(
            f"m.copies.copy_part({target}, {target_offset}, {pair}, {size}, {source_size(b, part, size)},"
            f" {b.index})"
        )


def source_size(b: Builder, part: Operand, size: int) -> str:
    """How many bytes to read: a number, or none where an ignore predicate holds."""
    if isinstance(part, Reg) and b.program.kernel.registers[part.name] == "pred":
        return f"np.where({b.read(part, 'b1')}, 0, {size})"
    return b.read(part, "u4")


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
    boxes = mods.flag("tensor")  # may reach outside the matrix, so there is no address to check
    mods.flag("1d", "2d", "3d", "4d", "5d", "L2", "global", "tile", CACHE_HINT)
    hint = "s" if CACHE_HINT in i.mods else ""
    require_signature(i, ("a" if boxes else "as") + hint)
    if boxes:
        return
    with b.guarded() as lanes:
        b.line(
            f"fetch_bulk(m, {lanes}, {address_value(b, i.operands[0])}, {b.read(i.operands[1], 'u4')},"
            f" {b.index})"
        )


@opcode("cp.async.bulk", "cp.reduce.async.bulk")
def emit_bulk(b: Builder, i: Instruction, mods: Mods) -> None:
    target, source = mods.choose(*SPACES), mods.choose(*SPACES)
    operation = mods.choose(*REDUCTIONS, default="") if "reduce" in i.mods else ""
    grouped, multicast = mods.flag("bulk_group"), mods.flag("multicast::cluster")
    mods.flag("mbarrier::complete_tx::bytes", CACHE_HINT, "noftz")
    element = mods.type() if operation else ""
    if operation and target != "global":
        raise PtxError(f"{i.site}: reductions into shared memory are not supported")
    operands = i.operands
    require_signature(i, ("aas" if grouped else "aasa") + "s" * multicast + "s" * (CACHE_HINT in i.mods))
    with b.guarded() as lanes:
        first, second = (address_value(b, operand) for operand in operands[:2])
        size = b.read(operands[2], "u4")
        barrier = "None" if grouped else address_value(b, operands[3])
        mask = b.read(operands[4], "u2") if multicast else "None"
        spaces = f"{target.split('::')[0]!r}, {source.split('::')[0]!r}"
        tail = f"{operation!r}, {element!r}, {b.index}"
        b.line(f"issue_bulk(m, {lanes}, {spaces}, {first}, {second}, {size}, {barrier}, {mask}, {tail})")


@opcode("cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor")
def emit_tensor(b: Builder, i: Instruction, mods: Mods) -> None:
    dims = int(mods.choose("1d", "2d", "3d", "4d", "5d")[0])
    loads = mods.choose(*SPACES) != "global"
    mods.choose(*SPACES)
    operation = mods.choose(*REDUCTIONS, default="") if "reduce" in i.mods else ""
    mods.flag("tile", "bulk_group", "mbarrier::complete_tx::bytes", CACHE_HINT)
    multicast = mods.flag("multicast::cluster")
    require_signature(i, ("aaa" if loads else "aa") + "s" * multicast + "s" * (CACHE_HINT in i.mods))
    box, shared = (i.operands[1], i.operands[0]) if loads else (i.operands[0], i.operands[1])
    if (
        not isinstance(box, Addr)
        or not box.extra
        or not isinstance(box.extra[0], Vec)
        or len(box.extra[0].items) != dims
    ):
        raise PtxError(f"{i.site}: a {dims}d tensor copy needs [map, {{{dims} coordinates}}]")
    with b.guarded() as lanes:
        corner = ", ".join(b.read(item, "i4") for item in box.extra[0].items)
        place = address_value(b, shared)
        barrier = address_value(b, i.operands[2]) if loads else "None"
        mask = b.read(i.operands[3], "u2") if multicast else "None"
        tensor = f"{b.read(box.base, 'u8')}, {box.offset}"
        b.line(
            f"issue_tensor(m, {lanes}, {loads}, {tensor}, ({corner},), {place}, {barrier}, {mask},"
            f" {operation!r}, {b.index})"
        )


def address_value(b: Builder, operand: Operand) -> str:
    """The address itself, with its offset added."""
    if not isinstance(operand, Addr):
        raise PtxError(f"{b.i.site}: needs an address in brackets, got {operand}")
    code = "u8"
    if isinstance(operand.base, Reg):
        code = f"u{TYPE_BYTES[b.program.kernel.registers[operand.base.name]]}"
    base = b.read(operand.base, code)
    if operand.offset:
        base = f"({base} + {b.program.constant(np.array([operand.offset % (1 << 8 * int(code[1:]))], code))})"
    return base


def per_lane(values: Array | None, count: int) -> list[Any]:
    """One value a lane; None for all where the instruction has no such operand."""
    return [None] * count if values is None else np.broadcast_to(values, (count,)).tolist()


def shared_position(m: Machine, g: Lanes, lane: int, address: int, nbytes: int, site: int, align: int) -> int:
    """A shared::cluster address as a position in the machine's shared memory, checked."""
    rank, offset = address >> RANK_SHIFT, address & OFFSET
    size = m.geometry.cluster_size
    slot = int(g.slot[lane]) - int(g.block[lane]) % size + rank
    if rank >= size or offset < m.floors["shared"] or offset + nbytes > m.limits["shared"]:
        rule = (
            f"bulk copy of {nbytes} bytes outside shared memory ({m.floors['shared']} to"
            f" {m.limits['shared'] - 1})"
        )
        raise m.fault(OutOfBounds, rule, site, g, lane, address)
    if offset % align:
        rule = f"a bulk copy needs a shared address that is a multiple of {align}"
        raise m.fault(Misaligned, rule, site, g, lane, address)
    return slot * m.shared_stride + offset


def destinations(m: Machine, g: Lanes, lane: int, position: int, mask: int | None) -> tuple[int, ...]:
    """Where a copy lands: a multicast at the same offset in each block of the mask."""
    if mask is None:
        return (position,)
    first = int(g.slot[lane]) - int(g.block[lane]) % m.geometry.cluster_size
    offset = position % m.shared_stride
    return tuple(
        (first + rank) * m.shared_stride + offset
        for rank in range(m.geometry.cluster_size)
        if mask >> rank & 1
    )


def barriers_at(
    m: Machine, g: Lanes, lane: int, address: int | None, mask: int | None, site: int
) -> tuple[int, ...]:
    """The mbarriers to which the destinations of a copy report; none without an address."""
    if address is None:
        return ()
    return destinations(m, g, lane, shared_position(m, g, lane, address, 8, site, 8), mask)


@runtime
def issue_tensor(  # type: ignore[no-untyped-def]
    m: Machine,
    g: Lanes,
    loads: bool,
    maps: Array,
    map_offset: int,
    corner,
    place: Array,
    barrier,
    mask,
    operation: str,
    site: int,
) -> None:
    corners = list(zip(*(per_lane(axis, g.n) for axis in corner), strict=True))
    columns = zip(
        per_lane(maps, g.n), per_lane(place, g.n), per_lane(barrier, g.n), per_lane(mask, g.n), strict=True
    )
    for lane, (address, shared, bar, ranks) in enumerate(columns):
        tensor = m.tensor_map(address + map_offset, g, lane, site)
        if len(corners[lane]) != len(tensor.shape):
            rule = f"a {len(corners[lane])}d copy through a map of {len(tensor.shape)} dimensions"
            raise m.fault(OutOfBounds, rule, site, g, lane)
        size = element_size(tensor.dtype)
        check_corner(m, g, lane, corners[lane], size, loads, site)
        nbytes = size * math.prod(tensor.box)
        span = int(box_positions(tensor, size, 0)[-1]) + 16
        position = shared_position(m, g, lane, shared, span, site, 128)
        targets = destinations(m, g, lane, position, ranks)
        barriers = barriers_at(m, g, lane, bar, ranks, site)
        m.copies.issue(
            Transfer(
                g,
                lane,
                site,
                targets,
                nbytes,
                to_shared=loads,
                map=tensor,
                corner=corners[lane],
                barriers=barriers,
                operation=operation,
            )
        )


def check_corner(
    m: Machine, g: Lanes, lane: int, corner: tuple[int, ...], size: int, loads: bool, site: int
) -> None:
    """Refuse corners that make an H200 report an illegal instruction."""
    if corner[0] * size % 16:
        rule = (
            f"a tensor copy starts its rows at a multiple of 16 bytes; coordinate {corner[0]} is byte"
            f" {corner[0] * size}"
        )
        raise m.fault(Misaligned, rule, site, g, lane)
    if not loads and min(corner) < 0:
        rule = f"a tensor store may hang over the far borders only; it starts at {corner}"
        raise m.fault(OutOfBounds, rule, site, g, lane)


@runtime
def issue_bulk(  # type: ignore[no-untyped-def]
    m: Machine,
    g: Lanes,
    target: str,
    source: str,
    first: Array,
    second: Array,
    size: Array,
    barrier,
    mask,
    operation: str,
    element: str,
    site: int,
) -> None:
    columns = zip(
        per_lane(first, g.n),
        per_lane(second, g.n),
        per_lane(size, g.n),
        per_lane(barrier, g.n),
        per_lane(mask, g.n),
        strict=True,
    )
    for lane, (to, come, nbytes, bar, ranks) in enumerate(columns):
        if nbytes % 16:
            raise m.fault(
                Misaligned, f"a bulk copy moves a multiple of 16 bytes, got {nbytes}", site, g, lane
            )
        shared, other = (to, come) if target == "shared" else (come, to)
        position = shared_position(m, g, lane, shared, nbytes, site, 16)
        both = source == "shared" and target == "shared"
        if both:
            other = shared_position(m, g, lane, come, nbytes, site, 16)
        elif other % 16:
            rule = "a bulk copy needs a global address that is a multiple of 16"
            raise m.fault(Misaligned, rule, site, g, lane, other)
        targets = destinations(m, g, lane, position, ranks)
        barriers = barriers_at(m, g, lane, bar, ranks, site)
        m.copies.issue(
            Transfer(
                g,
                lane,
                site,
                targets,
                nbytes,
                to_shared=target == "shared",
                address=other,
                from_shared=both,
                barriers=barriers,
                operation=operation,
                element=element,
            )
        )


@runtime
def fetch_bulk(m: Machine, g: Lanes, come: Array, size: Array, site: int) -> None:
    """Check the addresses of a prefetch to L2, which changes nothing else here."""
    for lane, (address, nbytes) in enumerate(zip(per_lane(come, g.n), per_lane(size, g.n), strict=True)):
        if address % 16 or nbytes % 16:
            rule = f"a bulk prefetch takes 16s from a multiple of 16 on, got {nbytes}"
            raise m.fault(Misaligned, rule, site, g, lane, address)
        region = m.globals.find(address)
        if nbytes and (region is None or address + nbytes > region.end):
            near = m.globals.describe_near(address if region is None else address + nbytes - 1)
            rule = f"a prefetch of {nbytes} bytes outside all memory of the launch: {near}"
            raise m.fault(OutOfBounds, rule, site, g, lane)


@opcode("mapa")
def emit_mapa(b: Builder, i: Instruction, mods: Mods) -> None:
    """The address of the same variable in another block of the cluster."""
    shared = mods.flag("shared::cluster")
    code = "u4" if mods.type() == "u32" else "u8"
    if not shared and code == "u4":
        raise PtxError(f"{i.site}: a generic address has 64 bits")
    source, rank = b.read(i.operands[1], code), b.read(i.operands[2], "u4")
    low = b.program.constant(np.array([OFFSET | (0 if shared else 1 << 60)], code))
    b.assign(i.operands[0], f"({source} & {low}) | ({rank}.astype({code}) << {RANK_SHIFT})", code)


@opcode("getctarank")
def emit_getctarank(b: Builder, i: Instruction, mods: Mods) -> None:
    mods.flag("shared::cluster")
    code = "u4" if mods.type() == "u32" else "u8"
    rank = f"(({b.read(i.operands[1], code)} >> {RANK_SHIFT}) & 0xFF)"
    b.assign(i.operands[0], f"{rank}.astype(u4)", "u4")
