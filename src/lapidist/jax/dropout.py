"""Dropout in JAX: seeds and numbers of elements, of 64 bits each, as words of 32, which JAX always has; and
Philox4x32-10 of them, word for word philox.py's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp

from lapidist.calls.epilogue_values import SEED_TYPES, require_one_element, require_seed, require_type_read
from lapidist.epilogues.philox import LOW, WORD, philox

HALF, LOW_HALF = np.uint32(WORD // 2), np.uint32(0xFFFF)
Piece = tuple[Any, int]  # the number of a device's part of a dimension, and the count of parts


class Words(NamedTuple):
    """A number of 64 bits."""

    low: Any
    high: Any


def words_of(number: int) -> Words:
    return Words(np.uint32(number & LOW), np.uint32(number >> WORD))


# ---- seeds ----


def seed_words(name: str, value: Any) -> Any:
    """A seed as the operation's array of two words, the low one first. A kernel reads it as one int64."""
    if not isinstance(value, (jax.Array, np.ndarray)):
        return jnp.asarray(np.stack(words_of(require_seed(name, value))))
    require_type_read(name, value.dtype.name, SEED_TYPES)
    require_one_element(name, value.shape)
    value = value.reshape(())
    if isinstance(value, np.ndarray):  # JAX without 64 bits would cut it
        return jnp.asarray(np.stack(words_of(int(value) & ((1 << 2 * WORD) - 1))))
    shift = min(WORD, 8 * value.dtype.itemsize - 1)  # of 32 bits or fewer the sign remains
    return jnp.stack([value.astype(np.uint32), (value >> shift).astype(np.uint32)])


# ---- numbers of elements ----


def numbered(shape: Sequence[int], pieces: Sequence[Piece] = ()) -> Words:
    """The numbers of D's elements, row by row. `pieces`: the part of each dimension on this device."""
    numbers, step = words_of(0), 1
    for axis, (index, count) in reversed([*enumerate(pieces or [(0, 1)] * len(shape))]):
        extent = shape[axis]
        along = [extent if dimension == axis else 1 for dimension in range(len(shape))]
        index_in_d = jax.lax.broadcasted_iota(np.uint32, along, axis) + jnp.uint32(index) * np.uint32(extent)
        numbers, step = added(numbers, multiplied(index_in_d, step)), step * extent * count
    return numbers


def multiplied(word: Any, factor: int) -> Words:
    low, high = words_of(factor)
    return Words(word * low, upper(word, low) + word * high)


def added(x: Words, y: Words) -> Words:
    low = x.low + y.low
    return Words(low, x.high + y.high + (low < y.low).astype(np.uint32))


# ---- masks ----


def upper(x: Any, y: Any) -> Any:
    """The upper words of products, by products of half words, which do not overflow. XLA cannot compile
    jax.lax.mulhi for several devices: JAX 0.10.2 loses it next to a product that is split."""
    first, second, third, fourth = x & LOW_HALF, x >> HALF, y & LOW_HALF, y >> HALF
    middle = second * third + (first * third >> HALF)
    return second * fourth + (middle >> HALF) + (first * fourth + (middle & LOW_HALF) >> HALF)


def multiplied_words(word: Any, factor: int) -> tuple[Any, Any]:
    return upper(word, np.uint32(factor)), word * np.uint32(factor)


def first_word_of(seed: Words, number: Words) -> Any:
    zero = jnp.zeros_like(number.low)
    counter, step = (*number, zero, zero), lambda word, step: word + np.uint32(step)
    return philox(counter, seed, multiplied_words, step)[0]


first_word = jax.jit(first_word_of)  # eager calls run one program


def dropout_mask(seed: Words, number: Words, p: Any) -> Any:
    """Whether elements are kept, as in kernels: p below 0 and NaN drop nothing, p of 1 or more drops all but
    the last word."""
    words = np.float32(2**WORD)
    share = jnp.nan_to_num(p.astype(np.float32)) * words
    within = jnp.where((share > 0) & (share < words), share, 0).astype(np.uint32)
    return first_word(seed, number) >= jnp.where(share < words, within, np.uint32(LOW))
