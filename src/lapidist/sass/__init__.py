"""Rescheduling of compiled kernels: FFMAs in an order that the register file can feed, loads spread over the loop.

    cubin -> decode (fields, blocks) -> structure (rows, columns, k of the main loop) -> schedule (new order)
          -> emit (control bits) -> verify (same values, no hazard) -> cubin

A block that is not understood, or whose new form cannot be proved equal, stays as the compiler made it.
"""

from __future__ import annotations

from dataclasses import dataclass

from lapidist.sass.decode import (
    BRANCH,
    BYTES,
    NONE,
    Instruction,
    branch_target,
    decode,
    field,
    read_words,
    straight_blocks,
    text_sections,
    with_field,
)
from lapidist.sass.emit import emit
from lapidist.sass.schedule import bank_cycles, reorder
from lapidist.sass.structure import Unrecognised, normalised, recognise, require
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
        for place in straight_blocks(words):
            block = [decode(words[i]) for i in place]
            if sum(x.kind == "ffma" for x in block) >= HOT:
                outcome = replace_block(words, place, block)
                reports.append(Report(place.start, outcome, count(block), count([decode(words[i]) for i in place])))
        result[offset : offset + size] = b"".join(word.to_bytes(BYTES, "little") for word in words)
    return bytes(result), reports


def replace_block(words: list[int], place: range, block: list[Instruction]) -> str:
    """Puts the new block into `words`, if there is one, and says what became of it."""
    try:
        new, left_over = rebuild(block)
        settled = {index: settle(words, index) for index in entries(words, place)}
    except Unrecognised as reason:
        return str(reason)
    for index, word in settled.items():
        words[index] = word
    words[place.start : place.stop] = new
    after = words[place.stop]
    words[place.stop] = with_field(after, 116, 6, decode(after).waits | left_over)
    return "rescheduled"


def settle(words: list[int], index: int) -> int:
    """The instruction before the loop, made to wait for all that is under way, so that any FFMA may be the first."""
    near = [decode(words[i]) for i in (index - 1, index)]
    require(all(x.sets == x.read_sets == NONE for x in near), "a load is issued right before the loop")
    word = with_field(words[index], 116, 6, 0x3F)
    return with_field(with_field(word, 105, 4, 15), 109, 1, 0)


def entries(words: list[int], place: range) -> list[int]:
    """The instructions after which the block is entered, without its own branch."""
    jumps = [i for i, w in enumerate(words) if field(w, 0, 12) == BRANCH and branch_target(w, i) == place.start]
    return [i for i in (place.start - 1, *jumps) if i not in place]


def rebuild(block: list[Instruction]) -> tuple[list[int], int]:
    """The new words of a loop body, proved equal to the old, and the scoreboards that whoever follows must wait for."""
    require(ends_in_branch(block), "the block is not left by a branch that may fall through")
    loop = recognise(block)
    plain = normalised(block, loop)
    words, left_over = emit(plain, reorder(plain, loop))
    verify(block, [decode(word) for word in words], left_over)
    return words, left_over


def ends_in_branch(block: list[Instruction]) -> bool:
    last = block[-1].word
    return field(last, 0, 12) == BRANCH and field(last, 12, 4) != NONE
