"""Philox4x32-10 of Salmon and others (2011): random words from a counter and a key, with no state.
epilogue_functions.cuh has the same integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lapidist.dtypes import integer

ROUNDS, WORD = 10, 32
LOW = 2**WORD - 1
FACTORS = 0xD2511F53, 0xCD9E8D57
STEPS = 0x9E3779B9, 0xBB67AE85  # of the key, from round to round
SEEDS = "0 or more and below 2^64"


def is_seed(value: object) -> bool:
    number = integer(value)
    return number is not None and 0 <= number < 1 << 2 * WORD


def multiplied(word: Any, factor: int) -> tuple[Any, Any]:
    """The upper and the lower word of each product, in arrays of uint64."""
    wide = word * factor
    return wide >> WORD, wide & LOW


def added(word: Any, step: int) -> Any:
    return word + step & LOW


def philox(
    counter: tuple[Any, ...],
    key: tuple[Any, ...],
    multiplied: Callable[..., Any] = multiplied,
    added: Callable[..., Any] = added,
) -> tuple[Any, ...]:
    """Four words for each counter of four words, by a key of two, in the arithmetic of the words' type."""
    (a, b, c, d), (k, l) = counter, key
    for _ in range(ROUNDS):
        (first, low_of_first), (second, low_of_second) = multiplied(a, FACTORS[0]), multiplied(c, FACTORS[1])
        a, b, c, d = second ^ b ^ k, low_of_second, first ^ d ^ l, low_of_first
        k, l = added(k, STEPS[0]), added(l, STEPS[1])
    return a, b, c, d
