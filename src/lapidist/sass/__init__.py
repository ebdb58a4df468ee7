"""Rescheduling of compiled kernels: FFMAs in an order that the register file can feed, loads spread over the loop.

    cubin -> decode (fields, blocks) -> structure (rows, columns, k of the main loop) -> schedule (new order)
          -> emit (control bits) -> verify (same values, no hazard) -> cubin

A block that is not understood, or whose new form cannot be proved equal, stays as the compiler made it.
"""

from __future__ import annotations

from dataclasses import dataclass

from lapidist.sass.decode import BYTES, Instruction, decode, read_words, straight_blocks, text_sections, with_field
from lapidist.sass.emit import emit
from lapidist.sass.schedule import bank_cycles, reorder
from lapidist.sass.structure import Unrecognised, normalised, recognise
from lapidist.sass.verify import verify

HOT = 100  # FFMAs that make a block worth the effort


@dataclass(frozen=True, slots=True)
class Count:
    """What one hot block issues, before or after."""

    instructions: int
    ffmas: int
    cached: int  # FFMAs with an operand from the cache
    bank_stalls: int

    @property
    def ffma_share(self) -> float:
        """Of all issue slots, those lost to register banks included."""
        return self.ffmas / (self.instructions + self.bank_stalls)


@dataclass(frozen=True, slots=True)
class Report:
    """One hot block: its first instruction, what became of it, and the counts."""

    start: int
    outcome: str  # "rescheduled", or why it was left
    before: Count
    after: Count


def count(block: list[Instruction]) -> Count:
    ffmas = cached = stalls = 0
    previous: Instruction | None = None
    for x in block:
        if x.kind != "ffma":
            continue
        ffmas += 1
        kept: tuple[int, ...] = ()
        if previous is not None:
            kept = tuple(r if previous.reuse >> slot & 1 else -1 for slot, r in enumerate(previous.reads))
            cached += any(kept[slot] == x.reads[slot] for slot in (0, 1))
        stalls += bank_cycles(x.reads, kept) - 1
        previous = x
    return Count(len(block), ffmas, cached, stalls)


def reschedule(cubin: bytes) -> bytes:
    """The same kernels with their FFMA loops reordered; without such a loop, the same bytes."""
    return reschedule_with_report(cubin)[0]


def reschedule_with_report(cubin: bytes) -> tuple[bytes, list[Report]]:
    result = bytearray(cubin)
    reports: list[Report] = []
    for offset, size in text_sections(cubin):
        words = read_words(cubin, offset, size)
        for block_range in straight_blocks(words):
            block = [decode(words[i]) for i in block_range]
            if sum(x.kind == "ffma" for x in block) < HOT:
                continue
            try:
                new, after_mask = rebuild(block)
                for position, word in zip(block_range, new):
                    words[position] = word
                words[block_range.stop] = wait_too(words[block_range.stop], after_mask)
                outcome = "rescheduled"
            except Unrecognised as reason:
                outcome = str(reason)
            reports.append(Report(block_range.start, outcome, count(block), count([decode(words[i]) for i in block_range])))
        result[offset : offset + size] = b"".join(word.to_bytes(BYTES, "little") for word in words)
    return bytes(result), reports


def rebuild(block: list[Instruction]) -> tuple[list[int], int]:
    """The new words of a block, proved equal to the old, and the scoreboards that its successor must wait for."""
    loop = recognise(block)
    plain = normalised(block, loop)
    words, left_over = emit(plain, reorder(plain, loop))
    verify(block, [decode(word) for word in words], left_over)
    return words, left_over


def wait_too(word: int, mask: int) -> int:
    return with_field(word, 116, 6, decode(word).waits | mask)
