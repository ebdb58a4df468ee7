"""Tensor maps that a kernel changes: tensormap.replace, the copy that publishes one, and their fences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lapidist.machine.codegen import Builder, Mods, opcode, runtime
from lapidist.machine.faults import OutOfBounds, PtxError
from lapidist.machine.instructions.access import SPACES, address_space, offset_of, space_of
from lapidist.machine.instructions.bulk import address_value
from lapidist.machine.instructions.tensorcore import require_full_warps
from lapidist.machine.lanes import Lanes
from lapidist.machine.memory import Address, MixedAddress
from lapidist.machine.ptx.signatures import require_signature
from lapidist.machine.ptx.syntax_tree import Imm, Instruction
from lapidist.machine.tensor_map_bytes import (
    CHANGES,
    FIXED,
    MAP_BYTES,
    MOST,
    OF_A_DIMENSION,
    SWIZZLES,
    TYPES,
    changeable,
    encoded,
)

if TYPE_CHECKING:
    from lapidist.machine.state import Machine

Array = np.ndarray
PIECE = np.dtype("c16")
PIECES = MAP_BYTES // PIECE.itemsize
LITERALS: dict[str, tuple[int, ...]] = {
    "elemtype": tuple(TYPES),
    "swizzle_mode": tuple(SWIZZLES),
    **{name: (only,) for name, only in FIXED.items()},
}


@opcode("tensormap.replace")
def emit_replace(b: Builder, i: Instruction, mods: Mods) -> None:
    mods.choose("tile")
    field = mods.choose("rank", *CHANGES, *FIXED)
    space = address_space(b, i.operands[0], space_of(mods))
    mods.choose("b1024")
    code = "u8" if mods.type() == "b64" else "u4"
    if code != ("u8" if field in ("global_address", "global_stride") else "u4"):
        raise PtxError(f"{i.site}: .{field} is no value of these bits")
    require_signature(i, "ans" if field in OF_A_DIMENSION else "as")
    value, place = i.operands[-1], i.operands[1]
    if isinstance(value, Imm) and value.value not in LITERALS.get(field, (value.value,)):
        raise PtxError(f"{i.site}: the machine has no such .{field}")
    dimension = place.value if field in OF_A_DIMENSION and isinstance(place, Imm) else 0
    with b.guarded():
        text = f"{field!r}, {dimension}, {b.read(value, code)}, {b.index}"
        b.line(f"replace_field({b.address(i.operands[0], space)}, {offset_of(i.operands[0])}, {text})")


@runtime
def replace_field(
    address: Address | MixedAddress, offset: int, field: str, dimension: int, values: Array, site: int
) -> None:
    """Change a field of the map at each lane's address. A weak access to all of its bytes."""
    if isinstance(address, MixedAddress):
        for within, part in address.parts:
            replace_field(
                part, offset, field, dimension, values if len(values) == 1 else values[within], site
            )
        return
    columns = [np.broadcast_to(c, (address.g.n,)) for c in address.load_many(offset, PIECE, PIECES, site)]
    rows = np.stack(columns, axis=1)
    for lane, value in enumerate(np.broadcast_to(values, (address.g.n,)).tolist()):
        decoded = changeable(rows[lane].tobytes())
        dimensions = MOST - 1 if field == "global_stride" else MOST
        if decoded is None or (value if field == "rank" else dimension) >= dimensions:
            rule = "no tensor map with such a field lies at this address"
            raise address.m.fault(OutOfBounds, rule, site, address.g, lane, int(address.lo) + offset)
        tensor, rank = decoded
        if field == "rank":
            rank = value + 1
        elif field in CHANGES:
            tensor = CHANGES[field](tensor, dimension, value)
        rows[lane] = np.frombuffer(encoded(tensor, rank), PIECE)
    address.store(offset, site, *rows.T)


@opcode("tensormap.cp_fenceproxy")
def emit_publish(b: Builder, i: Instruction, mods: Mods) -> None:
    """A copy from shared to global memory by a whole warp, and the fence that publishes it."""
    target, source = mods.choose(*SPACES), mods.choose(*SPACES)
    mods.flag("tensormap::generic", "release", "cta", "cluster", "gpu", "sys", "sync", "aligned")
    require_signature(i, "aan")
    if target != "global" or not source.startswith("shared"):
        raise PtxError(f"{i.site}: it copies from shared to global memory")
    offsets = f"{offset_of(i.operands[0])}, {offset_of(i.operands[1])}"
    with b.guarded() as lanes:
        to, come = b.address(i.operands[0], "global"), b.address(i.operands[1], "shared")
        b.line(f"publish_map(m, {lanes}, {to}, {come}, {offsets}, {b.index})")


@runtime
def publish_map(
    m: Machine, g: Lanes, target: Address, source: Address, to: int, come: int, site: int
) -> None:
    require_full_warps(m, g, site)
    target.store(to, site, *source.load_many(come, PIECE, PIECES, site))
    m.observer.map_released(g)


@opcode("fence.proxy.tensormap::generic")
def emit_map_fence(b: Builder, i: Instruction, mods: Mods) -> None:
    acquires = mods.choose("acquire", "release") == "acquire"
    mods.choose("cta", "cluster", "gpu", "sys")
    require_signature(i, "an" if acquires else "")
    with b.guarded() as lanes:
        if acquires:
            b.line(f"m.observer.map_acquired({lanes}, {address_value(b, i.operands[0])})")
        else:
            b.line(f"m.observer.map_released({lanes})")
