"""What the lanes of a warp and the warps of a block do together: shuffles, votes, barriers.

A collective works on rows of 32 lanes. A lane that the member mask names must be here, unless it has exited.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from lapidist.machine.codegen import Builder, Mods, code_of, opcode, runtime
from lapidist.machine.faults import Divergence, PtxError
from lapidist.machine.lanes import Lanes
from lapidist.machine.ptx.signatures import require_signature
from lapidist.machine.ptx.syntax_tree import Imm, Instruction, Operand, Pair, Reg

if TYPE_CHECKING:
    from lapidist.machine.state import Machine

Array = np.ndarray
LANE = np.arange(32)
BIT = np.uint32(1) << LANE.astype(np.uint32)
ALL = 0xFFFFFFFF  # a member mask that names every lane


def mask_bits(rows: Array) -> Array:
    """(warps, 32) booleans to one 32-bit mask a warp."""
    return (rows * BIT).sum(axis=1, dtype=np.uint32)


@runtime
def members(m: Machine, g: Lanes, mask: Array, site: int, elsewhere: Array | None = None) -> Array:
    """(warps, 32): who takes part. Each lane here must name itself and lanes that name the same set, and all
    lanes named must be here, or among those that meet these from `elsewhere`.
    """
    present, sets = g.present, None
    if mask.shape[0] == 1:
        if g.full_warps and mask[0] == ALL:
            return present
        named = np.broadcast_to((mask[0] & BIT) != 0, present.shape)
        strangers = present & ~named
    else:
        masks = g.dense(mask)
        sets = ((masks[:, :, None] >> LANE.astype(np.uint32)) & np.uint32(1) != 0) & present[:, :, None]
        named = sets.any(axis=1)
        strangers = present & ~sets[:, LANE, LANE]
    if strangers.any():
        row, lane = np.argwhere(strangers)[0]
        rule = "the member mask does not name the lane that executes this instruction"
        raise m.fault(Divergence, rule, site, g, position_of(g, row, lane), name="member-mask")
    if sets is not None:
        apart = sets & present[:, None, :] & (masks[:, :, None] != masks[:, None, :])
        if apart.any():
            row, lane, other = np.argwhere(apart)[0]
            rule = f"its member mask names lane {other}, whose own names other lanes"
            raise m.fault(Divergence, rule, site, g, position_of(g, row, lane), name="member-mask")
    absent = named & ~(present if elsewhere is None else present | elsewhere)
    if absent.any() and (absent & ~m.exited_rows(g)).any():
        missing_member(m, g, absent & ~m.exited_rows(g), site)
    return present


def parties(m: Machine, g: Lanes, mask: Array, site: int) -> list[Array]:
    """(warps, 32) of each set of lanes that act together: lanes of a warp may name disjoint sets."""
    waiting = members(m, g, mask, site)
    if mask.shape[0] == 1:
        return [waiting]
    masks, parts = g.dense(mask), []
    while waiting.any():
        first = masks[np.arange(g.warps), waiting.argmax(axis=1)]
        parts.append(waiting & (masks == first[:, None]))
        waiting = waiting & ~parts[-1]
    return parts


def joined(parts: list[Array], answer: Callable[[Array], Array]) -> Array:
    """(warps, 32): the answer for the lanes of each set; `answer` gives a value a warp, or one a lane."""
    total = np.broadcast_to(answer(parts[0]), parts[0].shape)
    for part in parts[1:]:
        total = np.where(part, answer(part), total)
    return total


def position_of(g: Lanes, row: int, lane: int) -> int:
    """Where a lane of a warp stands in the group."""
    return int(np.flatnonzero((g.row == row) & (g.lane == lane))[0])


@runtime
def meet(m: Machine, g: Lanes, mask: Array, site: int) -> None:
    """bar.warp.sync orders memory; shuffles, votes and matrix instructions wait for the warp and do not."""
    arriving = m.meetings.arriving(g)
    if arriving is None:
        return
    g, mask = arriving, mask if arriving is g else arriving.pick(mask)
    partners = m.meetings.partners(g, mask)
    members(m, g, mask, site, partners)
    m.observer.warp_met(g, mask)
    if partners is not None:
        m.meetings.release(g, partners)


def missing_member(m: Machine, g: Lanes, absent: Array, site: int) -> None:
    row, lane = np.argwhere(absent)[0]
    position = int(np.flatnonzero(g.row == row)[0])
    rule = f"the member mask names lane {lane}, which is not at this instruction with the others"
    raise m.fault(Divergence, rule, site, g, position)


# ---- shuffles ----


@runtime
def shuffle(
    m: Machine, g: Lanes, mode: str, value: Array, by: Array, clamp: Array, mask: Array, site: int
) -> tuple[Array, Array]:
    """(values, in range). A lane out of range keeps its own value."""
    members(m, g, mask, site)
    values = g.dense(value)
    if by.shape[0] == clamp.shape[0] == 1:  # immediates, as compilers write them
        source, inside = sources_of_immediates(mode, int(by[0]), int(clamp[0]))
        moved = values[:, source]
    else:
        source, inside = sources(mode, g.dense(by).astype(np.int64), g.dense(clamp).astype(np.int64))
        moved = np.take_along_axis(values, source, axis=1)
    if not (g.full_warps and mask.shape[0] == 1 and mask[0] == ALL):
        at = np.broadcast_to(source, values.shape)
        named = g.dense(mask) >> at.astype(np.uint32) & 1 != 0
        lost = ~(named & np.take_along_axis(g.present, at, axis=1))
        m.observer.shuffled_from_nobody(g, g.flat(lost), site)
    return g.flat(moved), g.flat(np.broadcast_to(inside, values.shape))


def sources(mode: str, by: Array, clamp: Array) -> tuple[Array, Array]:
    """For each lane, the lane that its value comes from, and whether that lies in range."""
    segment, limit = (clamp >> 8) & 31, clamp & 31
    top = (LANE & segment) | (limit & ~segment)
    low = LANE & segment
    by = by & 31
    source = {"up": LANE - by, "down": LANE + by, "bfly": LANE ^ by, "idx": low | (by & ~segment)}[mode]
    inside = source >= top if mode == "up" else source <= top
    return np.where(inside, source, LANE) & 31, inside


@lru_cache(maxsize=256)
def sources_of_immediates(mode: str, by: int, clamp: int) -> tuple[Array, Array]:
    return sources(mode, np.array(by), np.array(clamp))


@opcode("shfl")
def emit_shuffle(b: Builder, i: Instruction, mods: Mods) -> None:
    mods.choose("sync")
    mode = mods.choose("up", "down", "bfly", "idx")
    mods.type()
    with b.guarded() as lanes:
        value, by, clamp, mask = (b.read(operand, "u4") for operand in i.operands[1:5])
        assign_pair(
            b, i.operands[0], f"shuffle(m, {lanes}, {mode!r}, {value}, {by}, {clamp}, {mask}, {b.index})"
        )


def assign_pair(b: Builder, target: Operand, text: str) -> None:
    """A word and a predicate to d|p, or only the word to d."""
    pair = b.new()
    b.line(f"{pair} = {text}")
    b.assign(target.first if isinstance(target, Pair) else target, f"{pair}[0]", "u4")
    if isinstance(target, Pair):
        b.assign(target.second, f"{pair}[1]", "b1")


# ---- votes and matches ----


@runtime
def vote(m: Machine, g: Lanes, mode: str, flags: Array, mask: Array, site: int) -> Array:
    rows = g.dense(flags)

    def answer(part: Array) -> Array:
        true, voters = mask_bits(rows & part)[:, None], mask_bits(part)[:, None]
        return {"ballot": true, "any": true != 0, "all": true == voters}.get(
            mode, (true == 0) | (true == voters)
        )

    return g.flat(joined(parties(m, g, mask, site), answer))


@opcode("vote")
def emit_vote(b: Builder, i: Instruction, mods: Mods) -> None:
    mods.choose("sync")
    mode = mods.choose("ballot", "any", "all", "uni")
    code = code_of(mods.type())
    with b.guarded() as lanes:
        text = (
            f"vote(m, {lanes}, {mode!r}, {b.read(i.operands[1], 'b1')}, {b.read(i.operands[2], 'u4')},"
            f" {b.index})"
        )
        b.assign(i.operands[0], text, code)


@opcode("activemask")
def emit_activemask(b: Builder, i: Instruction, mods: Mods) -> None:
    mods.type()
    with b.guarded() as lanes:
        b.assign(i.operands[0], f"active_mask({lanes})", "u4")


@runtime
def active_mask(g: Lanes) -> Array:
    return g.flat(np.repeat(mask_bits(g.present)[:, None], 32, axis=1))


@runtime
def match(m: Machine, g: Lanes, mode: str, value: Array, mask: Array, site: int) -> tuple[Array, Array]:
    parts, rows = parties(m, g, mask, site), g.dense(value)
    equal = rows[:, :, None] == rows[:, None, :]
    if mode == "any":
        same = joined(parts, lambda part: ((equal & part[:, None, :]) * BIT).sum(axis=2, dtype=np.uint32))
        return g.flat(same), np.array([True])
    agreed = joined(parts, lambda part: (equal | ~part[:, None, :]).all(axis=2) & part)
    voters = joined(parts, lambda part: mask_bits(part)[:, None])
    return g.flat(np.where(agreed, voters, np.uint32(0))), g.flat(agreed)


@opcode("match")
def emit_match(b: Builder, i: Instruction, mods: Mods) -> None:
    mods.choose("sync")
    mode = mods.choose("any", "all")
    code = code_of(mods.type())
    with b.guarded() as lanes:
        value, mask = b.read(i.operands[1], code), b.read(i.operands[2], "u4")
        assign_pair(b, i.operands[0], f"match(m, {lanes}, {mode!r}, {value}, {mask}, {b.index})")


@runtime
def elect(m: Machine, g: Lanes, mask: Array, site: int) -> tuple[Array, Array]:
    """(leader, am I the leader): the lowest member, as the chip does."""
    leader = joined(parties(m, g, mask, site), lambda part: part.argmax(axis=1)[:, None]).astype("u4")
    return g.flat(leader), g.flat(leader == LANE)


@opcode("elect")
def emit_elect(b: Builder, i: Instruction, mods: Mods) -> None:
    mods.choose("sync")
    if not isinstance(i.operands[0], Pair):
        raise PtxError(f"{i.site}: elect needs two destinations, d|p")
    with b.guarded() as lanes:
        assign_pair(b, i.operands[0], f"elect(m, {lanes}, {b.read(i.operands[1], 'u4')}, {b.index})")


@runtime
def reduce_warp(m: Machine, g: Lanes, operation: str, value: Array, mask: Array, site: int) -> Array:
    function = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }[operation]
    limits, rows = np.iinfo(value.dtype), g.dense(value)
    neutral = value.dtype.type(
        {"min": limits.max, "max": limits.min, "and": ~value.dtype.type(0)}.get(operation, 0)
    )

    def answer(part: Array) -> Array:
        total = function.reduce(np.where(part, rows, neutral), axis=1)
        return np.asarray(total.astype(value.dtype)[:, None])

    return g.flat(joined(parties(m, g, mask, site), answer))


@opcode("redux")
def emit_redux(b: Builder, i: Instruction, mods: Mods) -> None:
    mods.choose("sync")
    operation = mods.choose("add", "min", "max", "and", "or", "xor")
    kind = mods.type()
    code = code_of(kind)
    if code[0] == "f":
        raise PtxError(f"{i.site}: redux of floats is not known")
    with b.guarded() as lanes:
        text = (
            f"reduce_warp(m, {lanes}, {operation!r}, {b.read(i.operands[1], code)},"
            f" {b.read(i.operands[2], 'u4')}, {b.index})"
        )
        b.assign(i.operands[0], text, code)


# ---- barriers of a block and of a cluster ----


@dataclass(frozen=True, slots=True)
class BarrierRequest:
    """What lanes ask of the scheduler at a barrier: a number for each lane, and `count` threads, or all
    for None."""

    action: str  # "sync", "arrive", "cluster arrive", "cluster wait"
    number: Array
    count: Array | None
    site: int
    aligned: bool = True
    # bar.red: what each lane brings, how it is reduced, and the register that gets the result.
    value: Array | None = None
    operation: str = ""
    register: int = -1


runtime(BarrierRequest)


@opcode("bar", "barrier")
def emit_barrier(b: Builder, i: Instruction, mods: Mods) -> None:
    aligned = i.opcode == "bar" or "aligned" in mods.remaining
    if mods.flag("cluster"):
        require_signature(i, "")
        action = "cluster " + mods.choose("arrive", "wait")
        order = mods.choose("release", "acquire", "relaxed", default="")
        mods.flag("aligned")
        b.result = (
            f"BarrierRequest({action + ' ' + order!r}, {b.program.constant(np.array([0], 'u4'))}, None,"
            f" {b.index}, {aligned})"
        )
        return
    mods.flag("cta", "aligned")
    if mods.flag("warp"):
        require_signature(i, "s")
        mods.flag("sync")
        with b.guarded() as lanes:
            b.line(f"meet(m, {lanes}, {b.read(i.operands[0], 'u4')}, {b.index})")
        return
    if mods.flag("red"):
        emit_reducing_barrier(b, i, mods, aligned)
        return
    action = mods.choose("sync", "arrive")
    require_signature(i, *(["s", "ss"] if action == "sync" else ["ss"]))
    number, count = i.operands[0], i.operands[1] if len(i.operands) > 1 else None
    if isinstance(number, Imm) and not 0 <= number.value <= 15:
        raise PtxError(f"{i.site}: a block has barriers 0 to 15")
    shown = "None" if count is None else b.read(count, "u4")
    b.result = f"BarrierRequest({action!r}, {b.read(number, 'u4')}, {shown}, {b.index}, {aligned})"


def emit_reducing_barrier(b: Builder, i: Instruction, mods: Mods, aligned: bool) -> None:
    """The scheduler writes the result when the barrier opens."""
    operation = mods.choose("popc", "and", "or")
    mods.type()
    require_signature(i, "dss", "dsss")
    target, number, *counts, flag = i.operands
    if not isinstance(target, Reg):
        raise PtxError(f"{i.site}: the destination must be a register")
    shown = b.read(counts[0], "u4") if counts else "None"
    slot = b.program.slots[target.name]
    request = (
        f"'sync', {b.read(number, 'u4')}, {shown}, {b.index}, {aligned}, {b.read(flag, 'b1')}, {operation!r},"
        f" {slot}"
    )
    b.result = f"BarrierRequest({request})"


def reduced(operation: str, parts: list[Array]) -> Array:
    """The value of a bar.red, one for all who wait."""
    if operation == "popc":
        return np.array([sum(int(part.sum()) for part in parts)], np.uint32)
    answers = [bool(part.all() if operation == "and" else part.any()) for part in parts]
    return np.array([all(answers) if operation == "and" else any(answers)])
