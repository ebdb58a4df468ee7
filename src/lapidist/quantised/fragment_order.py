"""The order of codes and factors in memory: that of the fragments of mma.sync, with weights as its A.

    tile    16 columns of n x 64 steps of k, a vector of 16 bytes for each lane (two with 8 bits)
    lane    4 g + t has columns g and g + 8, and of each 32 steps of k the 8 from 8 t on
    word    4 neighbours along k of both columns: nibble 4 e + 2 h + r has step 2 h + e and column 8 r + g

x is read in the same order along k, so that a lane reads vectors of 8 neighbours of a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lapidist.quantised.number_formats import BLOCK

Array = np.ndarray[Any, Any]
TILE = 16  # columns of a tile
SPLIT = (2, 4, 2, 2, 2)  # of k in a block: q t j h e; of n: tiles r g
FOUR_BITS = 6, 0, 8, 2, 1, 3, 5, 4, 7  # tiles blocks g t q j e h r
EIGHT_BITS = 6, 0, 1, 8, 2, 3, 4, 7, 5  # tiles blocks q g t j h r e


def tiles_of(n: int) -> int:
    return -(-n // TILE)


def padded(matrix: Array) -> Array:
    """Columns of zeros behind the last, up to a whole tile."""
    return np.pad(matrix, ((0, 0), (0, -matrix.shape[1] % TILE)))


def in_fragments(codes: Array, bits: int) -> Array:
    """Codes (k, n) as the kernel's 32-bit words: (tiles of n, blocks of k, words of a tile)."""
    full = padded(codes)
    k, n = full.shape
    shape = k // BLOCK, n // TILE
    split = full.reshape(shape[0], *SPLIT, shape[1], 2, 8)
    if bits == 4:
        parts = split.transpose(FOUR_BITS)
        flat = np.ascontiguousarray(parts[..., 0] | parts[..., 1] << 4)
    else:
        flat = np.ascontiguousarray(split.transpose(EIGHT_BITS))
    return flat.reshape(shape[1], shape[0], -1).view(np.int32)


def out_of_fragments(words: Array, bits: int, n: int) -> Array:
    """The codes (k, n) of a weight's words."""
    tiles, blocks = words.shape[:2]
    flat = np.ascontiguousarray(words).view(np.uint8)
    if bits == 4:
        nibbles = np.stack((flat & 15, flat >> 4), -1)
        parts = nibbles.reshape(tiles, blocks, 8, 4, 2, 2, 2, 2, 2).transpose(np.argsort(FOUR_BITS))
    else:
        parts = flat.reshape(tiles, blocks, 2, 8, 4, 2, 2, 2, 2).transpose(np.argsort(EIGHT_BITS))
    return parts.reshape(blocks * BLOCK, tiles * TILE)[:, :n]


def factors_in_fragments(factors: Array, group: int) -> Array:
    """Factors (groups, n) as lanes read them: (tiles, steps, 8, groups of a block, 2 columns)."""
    full = padded(factors)
    of_block = max(1, BLOCK // group)
    parts = full.reshape(full.shape[0] // of_block, of_block, full.shape[1] // TILE, 2, 8)
    return np.ascontiguousarray(parts.transpose(2, 0, 4, 1, 3))


def factors_out_of_fragments(factors: Array, n: int) -> Array:
    parts = np.asarray(factors).transpose(1, 3, 0, 4, 2)
    return parts.reshape(parts.shape[0] * parts.shape[1], -1)[:, :n]
