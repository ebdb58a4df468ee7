"""How memory serves one request of a warp: sectors of global memory, banks and turns of shared memory."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from lapidist.machine.counters import BANKS, LINE, SECTOR

Array = np.ndarray
WORD = 4  # bytes that a bank gives in a turn
LANES = 32


def sectors_of(offsets: Array, present: Array, size: int) -> list[int]:
    """The distinct sectors that a request of `size` bytes a lane touches, by number."""
    mine = offsets[present]
    return np.unique(np.concatenate([mine // SECTOR, (mine + size - 1) // SECTOR])).tolist()


def turns_of_words(offsets: Array, present: Array, size: int, load: bool) -> Array:
    """The turns of a request, cached: a kernel makes the same few requests again and again."""
    start = int(offsets[present].min()) // LINE * LINE
    relative = np.where(present, offsets - start, 0)
    return computed_turns(relative.tobytes(), present.tobytes(), size, load)


@lru_cache(maxsize=4096)
def computed_turns(offsets: bytes, present: bytes, size: int, load: bool) -> Array:
    return serve(np.frombuffer(offsets, np.int64), np.frombuffer(present, bool), size, load)


def serve(offsets: Array, present: Array, size: int, load: bool) -> Array:
    """(32, words of a lane): the turn in which a lane's word is served; -1 where a lane is absent.

    In a turn a bank gives one word, to any number of lanes. Wide requests go in parts: 8 bytes by half warps,
    16 by quarters, or twice these where a load is packed."""
    count = max(size // WORD, 1)
    words = (offsets[:, None] + WORD * np.arange(count)) // WORD
    turns = np.full((LANES, count), -1)
    lanes = lanes_of_part(offsets, present, count, load)
    begun = 0
    for first in range(0, LANES, lanes):
        part = np.flatnonzero(present[first : first + lanes]) + first
        if len(part):
            turns[part] = begun + ranks_in_bank(words[part])
            begun = int(turns[part].max()) + 1
    return turns


def least_turns(offsets: Array, present: Array, size: int, load: bool) -> int:
    """The turns of the request without bank conflicts."""
    count = max(size // WORD, 1)
    words = (offsets[:, None] + WORD * np.arange(count)) // WORD
    lanes = lanes_of_part(offsets, present, count, load)
    parts = (words[first : first + lanes][present[first : first + lanes]] for first in range(0, LANES, lanes))
    return sum(-(-len(np.unique(part)) // BANKS) for part in parts)


def lanes_of_part(offsets: Array, present: Array, count: int, load: bool) -> int:
    """How many lanes are served together; twice as many where neighbours load the same address."""
    if count == 1:
        return LANES
    pairs = (np.arange(LANES) ^ distance for distance in (1, 2))
    same = any(bool(((offsets == offsets[other]) | ~present | ~present[other]).all()) for other in pairs)
    return (2 if load and same else 1) * LANES // count


def ranks_in_bank(words: Array) -> Array:
    """How many other words of its bank come before each word."""
    distinct, where = np.unique(words, return_inverse=True)
    ranks = np.zeros(len(distinct), np.int64)
    for bank in np.unique(distinct % BANKS):
        mine = distinct % BANKS == bank
        ranks[mine] = np.arange(mine.sum())
    return ranks[where].reshape(words.shape)
