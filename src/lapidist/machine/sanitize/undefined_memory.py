"""Which bits of memory nobody wrote: of each thread's local memory, of shared memory, and of what `malloc`
gives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lapidist.machine.instructions.fragments import ELEMENT_BYTES
from lapidist.machine.sanitize.shadow import PARTIAL, UNWRITTEN, Shadow
from lapidist.machine.sanitize.undefined_bits import ALL, smeared, width_mask
from lapidist.machine.state import Machine

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an undefined value came from. `site` is -1 for a register that nobody wrote."""

    story: str
    site: int = -1

    def sentence(self, m: Machine) -> str:
        if self.site < 0:
            return self.story
        return f"{self.story} (read at {m.site(self.site).place})"


class UndefinedMemory:
    """The undefined bits of a range of bytes: all at first, none where something was written. `bits` are
    those of memory that outlives the launch."""

    def __init__(self, nbytes: int, story: str, bits: Array | None = None) -> None:
        self.bits, self.story = np.full(nbytes, 0xFF, np.uint8) if bits is None else bits, story
        self.outlives = bits is not None
        self.origins: dict[int, Origin] = {}  # of undefined bytes that were stored

    def forget(self, start: int, stop: int) -> None:
        """Something new owns the bytes, and wrote nothing yet."""
        self.bits[start:stop] = 0xFF
        for place in [place for place in self.origins if start <= place < stop]:
            del self.origins[place]

    def read(self, positions: Array, size: int) -> Array:
        """The undefined bits of the bytes, a row an access."""
        return self.bits[positions[:, None] + np.arange(size)]

    def write(self, positions: Array, size: int) -> None:
        self.bits[positions[:, None] + np.arange(size)] = 0

    def mark(self, positions: Array, octets: Array, origin: Origin) -> None:
        """A store of undefined bytes, a row an access."""
        self.bits[positions[:, None] + np.arange(octets.shape[1])] = octets
        self.origins[int(positions[octets.any(axis=1)][0])] = origin

    def move(self, target: int, source: int, size: int) -> None:
        """A call copied bytes: what was not written before is not written there."""
        self.bits[target : target + size] = self.bits[source : source + size]

    def origin(self, positions: Array, size: int, site: int) -> Origin:
        """Where what an access read undefined came from: the story of a store to it, else nobody wrote it."""
        for place, origin in self.origins.items():
            if ((positions <= place) & (place < positions + size)).any():
                return origin
        return Origin(self.story, site)

    def elements(self, positions: Array, transposed: bool, kind: str) -> Array:
        """Which elements of a tile are undefined, whose pieces of 16 bytes lie at these positions."""
        octets = np.ascontiguousarray(self.read(positions.reshape(-1), 16)).reshape(len(positions), -1)
        undefined = octets.view(f"u{ELEMENT_BYTES[kind]}") != 0
        return undefined.T if transposed else undefined


class UndefinedShared(UndefinedMemory):
    """Shared memory, whose shadow knows what was written; `bits` are those of undefined values stored."""

    def __init__(self, shadow: Shadow, nbytes: int) -> None:
        super().__init__(0, "shared memory that no one wrote")
        self.shadow, self.nbytes = shadow, nbytes

    def forget(self, start: int, stop: int) -> None:
        for place in [place for place in self.origins if start <= place < stop]:
            del self.origins[place]

    def read(self, positions: Array, size: int) -> Array:
        at = positions[:, None] + np.arange(size)
        state = self.shadow.state[at // self.shadow.grain]
        stored = self.bits[at] if len(self.bits) else np.uint8(0)
        return np.where(state == UNWRITTEN, np.uint8(0xFF), np.where(state == PARTIAL, stored, np.uint8(0)))

    def mark(self, positions: Array, octets: Array, origin: Origin) -> None:
        if not len(self.bits):
            self.bits = np.zeros(self.nbytes, np.uint8)
        super().mark(positions, octets, origin)
        self.shadow.state[self.shadow.grains(positions, octets.shape[1])] = PARTIAL


def as_octets(bits: Array, size: int) -> Array:
    """(lanes, bytes) of undefined bits."""
    if size == 16:
        return np.where(bits != 0, 0xFF, 0).astype("u1")[:, None].repeat(16, axis=1)
    return np.ascontiguousarray(bits).view("u1").reshape(-1, 8)[:, :size]


def as_words(octets: Array, kind: str) -> Array:
    """The undefined bits of a value that was loaded; a sign goes on upwards."""
    size = octets.shape[1]
    if size > 8:
        return np.where(octets.any(axis=1), ALL, np.uint64(0))
    words = np.zeros((len(octets), 8), "u1")
    words[:, :size] = octets
    bits = words.view(np.uint64).reshape(-1)
    if kind[0] != "s" or size == 8:
        return bits
    top = bits >> np.uint64(8 * size - 1)
    return bits | (smeared(top, 64) & ~width_mask(8 * size))
