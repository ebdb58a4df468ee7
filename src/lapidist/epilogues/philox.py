"""Philox4x32-10 of Salmon and others (2011) in NumPy: random words from a counter and a key, with no state.
epilogue_functions.cuh has the same integers."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
ROUNDS, WORD = 10, 32
FACTORS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
STEPS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)  # of the key, from round to round
LOW, HIGH = np.uint64(0xFFFFFFFF), np.uint64(WORD)


def philox(counter: tuple[Any, ...], key: tuple[Any, ...]) -> tuple[Array, ...]:
    """Four words for each counter of four words, by a key of two; all in uint64."""
    a, b, c, d = counter
    for turn in range(ROUNDS):
        first, second = a * FACTORS[0], c * FACTORS[1]
        k, l = ((each + np.uint64(turn) * step) & LOW for each, step in zip(key, STEPS, strict=True))
        a, b, c, d = second >> HIGH ^ b ^ k, second & LOW, first >> HIGH ^ d ^ l, first & LOW
    return a, b, c, d


def kept(seed: Any, position: Any, p: str) -> Any:
    """Whether dropout keeps an element: it does where the first word is p x 2^32 or more."""
    zero, key, at = np.uint64(0), np.asarray(seed, np.uint64), np.asarray(position, np.uint64)
    word, *_ = philox((at & LOW, at >> HIGH, zero, zero), (key & LOW, key >> HIGH))
    return word >= np.uint64(float(p) * 2**WORD)


def kept_by(seed: Any, position: Any, p: Any) -> Any:
    """The same, where p is known at run time: in float32, whatever else is reckoned in."""
    share = np.nan_to_num(np.asarray(p).astype(np.float32)).astype(np.float64) * 2**WORD
    zero, key, at = np.uint64(0), np.asarray(seed, np.uint64), np.asarray(position, np.uint64)
    word, *_ = philox((at & LOW, at >> HIGH, zero, zero), (key & LOW, key >> HIGH))
    return word >= np.clip(share, 0, 2**WORD - 1).astype(np.uint64)
