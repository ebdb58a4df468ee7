"""Asynchronous copies: cp.async, bulk copies and tensor (TMA) copies with their swizzles and border rules.

`Copies` does each copy when it is issued, which is a legal order. The sanitizer's subclass does them as late
as the waits allow. A `Transfer` is one bulk copy, its completion included, so both do the same thing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lapidist.launch import TensorMap
from lapidist.machine.faults import OutOfBounds
from lapidist.machine.instructions.access import ATOMIC
from lapidist.machine.instructions.convert import to_tf32
from lapidist.machine.instructions.formats import from_bf16, to_bf16
from lapidist.machine.instructions.remote import RemoteStore
from lapidist.machine.lanes import Lanes
from lapidist.machine.memory import Address, Region

if TYPE_CHECKING:
    from lapidist.machine.state import Machine

Array = np.ndarray
ELEMENT_SIZES = {"bfloat16": 2, "tfloat32": 4, "float8_e4m3fn": 1, "float8_e5m2": 1}
U1, U4, U8, C16 = (np.dtype(code) for code in ("u1", "u4", "u8", "c16"))
WORDS = {4: U4, 8: U8, 16: C16}


def element_size(dtype: str) -> int:
    return ELEMENT_SIZES.get(dtype) or np.dtype(dtype).itemsize


def swizzled(positions: Array, pattern: int) -> Array:
    """Where the chip puts bytes: 16-byte pieces are exchanged by XOR with the number of their 128-byte
    line."""
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

    def copy(
        self, target: Address, target_offset: int, source: Address, source_offset: int, size: int, site: int
    ) -> None:
        target.store(target_offset, site, source.load(source_offset, WORDS[size], site))

    def copy_part(
        self,
        target: Address,
        target_offset: int,
        source: tuple[Array, int],
        size: int,
        source_sizes: Array,
        site: int,
    ) -> None:
        """cp.async that reads only `source_sizes` bytes and fills up with zeros; with 0 the source is not
        touched."""
        g = target.g
        base, source_offset = source
        data = np.zeros((g.n, size), np.uint8)
        source_sizes = np.broadcast_to(source_sizes, (g.n,))
        for count in np.unique(source_sizes).tolist():
            if count > size:
                rule = f"cp.async: source size {count} is larger than the copy of {size} bytes"
                raise self.m.fault(OutOfBounds, rule, site, g)
            lanes = g.where(source_sizes == count)
            if count and lanes is not None:
                address = self.m.global_at(
                    lanes, base if len(base) == 1 or lanes is g else base[source_sizes == count], site
                )
                # the address must be aligned for the full size, however little is read
                address.check_aligned(source_offset, size, site)
                data[source_sizes == count, :count] = self.read_bytes(address, source_offset, count, site)
        target.store(target_offset, site, data.view(WORDS[size]).reshape(-1))

    def read_bytes(self, address: Address, offset: int, count: int, site: int) -> Array:
        return np.stack(address.load_many(offset, U1, count, site), axis=1)

    def commit(self, g: Lanes) -> None:
        """End a group."""

    def wait(self, g: Lanes, pending: int, site: int) -> None:
        """Wait until at most `pending` groups are under way."""

    def arrive(self, g: Lanes, address: Address, offset: int, extra: bool, site: int) -> None:
        """Arrive when this lane's copies are done; `extra` adds one expected arrival first."""
        if not extra:
            self.m.mbarriers.arrive(address, offset, np.array([1]), None, False, site)

    # -- stores into other blocks --

    def send(self, store: RemoteStore) -> None:
        store.land()

    # -- bulk copies --

    def issue(self, t: Transfer) -> None:
        self.land(t)

    def commit_bulk(self, g: Lanes) -> None:
        """End a bulk group."""

    def wait_bulk(self, g: Lanes, pending: int, reading: bool, site: int) -> None:
        """Wait until at most `pending` bulk groups are under way, or still read."""

    def land(self, t: Transfer) -> None:
        """Do the copy and report its bytes."""
        self.m.require_alive(
            np.array(t.shared) // self.m.shared_stride,
            t.g,
            t.lane,
            t.shared[0] % self.m.shared_stride,
            t.site,
        )
        self.m.observer.transferred(t)
        if t.map is not None:
            self.land_tensor(t, t.map)
        elif t.to_shared:
            self.land_bytes(t)
        else:
            self.store_bytes(t)
        for barrier in t.barriers:
            self.m.mbarriers.complete_bytes(barrier, t.nbytes, t.g, t.site, t.lane)

    def shared_view(self) -> Array:
        return self.m.shared_bytes

    def global_bytes(self, t: Transfer, address: int, nbytes: int) -> tuple[Region, Array]:
        """A checked range of global memory as bytes."""
        region = self.m.globals.find(address)
        if region is None or address + nbytes > region.end:
            rule = (
                f"bulk copy of {nbytes} bytes outside all memory of the launch:"
                f" {self.m.globals.describe_near(address)}"
            )
            raise self.m.fault(OutOfBounds, rule, t.site, t.g, t.lane, address)
        self.m.require_reached(region, t.site, t.g, t.lane, address, f"bulk copy of {nbytes} bytes")
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
        self.combine(
            self.global_bytes(t, t.address, t.nbytes)[1], self.shared_view()[start : start + t.nbytes], t
        )

    def combine(self, old: Array, new: Array, t: Transfer) -> None:
        """Overwrite, or reduce element by element."""
        if not t.operation:
            old[...] = new
            return
        reduce_into(old, new, t.operation, t.element)

    # -- tensor copies --

    def land_tensor(self, t: Transfer, tensor: TensorMap) -> None:
        """Copy between a box and the part of the matrix that it covers. Outside the matrix a load brings
        zeros. A store does nothing there, but for the 16 bytes in which a row ends: an H200 writes all of
        them."""
        size = element_size(tensor.dtype)
        inside, box_part = clip_box(tensor, t)
        where = self.tensor_view(t, tensor, inside, size)
        positions = swizzled(box_positions(tensor, size, t.shared[0] & 1023), tensor.swizzle)
        if t.to_shared:
            box = np.zeros(tensor.box[::-1], f"u{size}")
            if where is not None:
                box[box_part] = where
            if tensor.dtype == "tfloat32":  # rounded on the way, as an H200 does
                box = to_tf32(box.view("f4"), "rn")
            data = box.reshape(-1).view(np.uint8).reshape(-1, 16)
            for start in t.shared:
                pieces = self.shared_view().reshape(-1, 16)
                pieces[(start - (t.shared[0] & 1023) + positions) // 16] = data
        elif where is not None:
            pieces = self.shared_view().reshape(-1, 16)[
                (t.shared[0] - (t.shared[0] & 1023) + positions) // 16
            ]
            box = pieces.reshape(-1).view(f"u{size}").reshape(tensor.box[::-1])[box_part]
            if t.operation:
                fresh = np.ascontiguousarray(where)
                reduce_into(
                    fresh.reshape(-1).view(np.uint8),
                    np.ascontiguousarray(box).reshape(-1).view(np.uint8),
                    t.operation,
                    tensor.dtype,
                )
                where[...] = fresh
            else:
                where[...] = box

    def tensor_view(
        self, t: Transfer, tensor: TensorMap, inside: list[tuple[int, int]], size: int
    ) -> Array | None:
        """The part of the matrix that the box covers, outermost dimension first; None if it covers
        nothing.
        """
        if any(low >= high for low, high in inside):
            return None
        strides = (size, *tensor.strides)
        start = tensor.address + sum(low * stride for (low, _), stride in zip(inside, strides, strict=True))
        start %= 1 << 64  # addresses wrap
        span = (
            sum((high - low - 1) * stride for (low, high), stride in zip(inside, strides, strict=True)) + size
        )
        _, data = self.global_bytes(t, start, span)
        shape = tuple(high - low for low, high in inside)[::-1]
        return np.ndarray(shape, f"u{size}", data, 0, strides[::-1])


def reduce_into(old: Array, new: Array, operation: str, element: str) -> None:
    """old = operation(old, new) on elements of a PTX or map type."""
    if element in ("bf16", "bfloat16"):
        view = old.view("u2")
        combined = ATOMIC[operation](from_bf16(view), from_bf16(new.view("u2")))
        view[...] = to_bf16(combined)
        return
    codes = {
        "float32": "f4",
        "f32": "f4",
        "float64": "f8",
        "f64": "f8",
        "float16": "f2",
        "f16": "f2",
        "int32": "i4",
        "s32": "i4",
    }
    code = codes.get(element) or {"u32": "u4", "b32": "u4", "u64": "u8", "b64": "u8", "s64": "i8"}.get(
        element, element
    )
    view = old.view(code)
    view[...] = ATOMIC[operation](view, new.view(code))


def clip_box(tensor: TensorMap, t: Transfer) -> tuple[list[tuple[int, int]], tuple[slice, ...]]:
    """Per dimension the part of the matrix inside the box, and the same part as slices of the box, outermost
    first. A store takes the row's last 16 bytes for inside."""
    unit = 1 if t.to_shared else 16 // element_size(tensor.dtype)
    shape = (-(-tensor.shape[0] // unit) * unit, *tensor.shape[1:])
    inside = [
        (max(c, 0), min(c + box, extent)) for c, box, extent in zip(t.corner, tensor.box, shape, strict=True)
    ]
    slices = [slice(low - c, high - c) for (low, high), c in zip(inside, t.corner, strict=True)]
    return inside, tuple(slices[::-1])


def box_positions(tensor: TensorMap, size: int, start: int) -> Array:
    """Shared positions (from a multiple of 1024) of the box's 16-byte pieces before swizzling.

    A row that is narrower than the swizzle still takes the swizzle's width (seen on an H200).
    """
    inner, rows = size * tensor.box[0], math.prod(tensor.box[1:])
    starts = np.arange(rows) * max(inner, tensor.swizzle)
    return start + (starts[:, None] + np.arange(0, inner, 16)).ravel()


def global_side(t: Transfer) -> tuple[Array, int]:
    """Where the runs of global memory start that a bulk copy touches, and the bytes of a run."""
    if t.map is None:
        return np.array([t.address]), t.nbytes
    size = element_size(t.map.dtype)
    inside, _ = clip_box(t.map, t)
    if any(low >= high for low, high in inside):
        return np.zeros(0, np.int64), 0
    starts = np.array([t.map.address + inside[0][0] * size])
    for (low, high), stride in zip(inside[1:], t.map.strides, strict=True):
        starts = (starts[:, None] + np.arange(low, high) * stride).reshape(-1)
    return starts, (inside[0][1] - inside[0][0]) * size
