"""The order of codes and factors in memory: that of the fragments of A of mma.sync and wgmma.

    tile    64 columns of n x 64 steps of k: a quarter of 16 columns for each of four warps
    quarter a vector of 16 bytes for each lane (two with 8 bits)
    lane    4 g + t has columns g and g + 8, and of each 16 steps of k 2 t, 2 t + 1, 2 t + 8 and 2 t + 9
    word    a lane's codes of 16 steps: nibble 4 e + 2 h + r has step 2 t + 8 h + e and column 8 r + g

A word of mxfp4 has its signs and magnitudes where few instructions bring them into place (`apart`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lapidist.quantised.number_formats import BLOCK

Array = np.ndarray[Any, Any]
TILE, QUARTERS = 64, 4  # columns of a tile, and its parts
SPLIT = (2, 2, 2, 4, 2)  # of k in a block: q j h t e; of n: tiles w r g, w a quarter
FOUR_BITS = 6, 0, 7, 9, 4, 1, 2, 5, 3, 8  # tiles blocks w g t q j e h r
EIGHT_BITS = 6, 0, 7, 1, 9, 4, 2, 3, 8, 5  # tiles blocks w q g t j h r e
MAGNITUDES = 0, 3, 6, 13  # first bits of the four of a half word, in quantised/decode.cuh too
SIGNS = 9, 12, 10, 11


def tiles_of(n: int) -> int:
    return -(-n // TILE)


def padded(matrix: Any, rows: int, columns: int) -> Any:
    """Zeros behind the last row and column, up to so many."""
    below, behind = rows - matrix.shape[0], columns - matrix.shape[1]
    if isinstance(matrix, np.ndarray):
        return np.pad(matrix, ((0, below), (0, behind)))
    import torch

    return torch.nn.functional.pad(matrix, (0, behind, 0, below)) if below or behind else matrix


def moved(array: Any, order: tuple[int, ...]) -> Any:
    """The dimensions in another order, in memory too."""
    if isinstance(array, np.ndarray):
        return np.ascontiguousarray(array.transpose(order))
    return array.permute(order).contiguous()


def as_words(array: Any) -> Any:
    """Bytes of the last dimension as words of 32 bits."""
    if isinstance(array, np.ndarray):
        return array.view(np.int32)
    import torch

    return array.view(torch.int32)


def in_fragments(codes: Any, bits: int, steps: int) -> Any:
    """Codes (k, n) as the kernel's 32-bit words: (tiles of n, blocks of k, words of a tile). `steps`: of k,
    with zeros behind.
    """
    shape = steps // BLOCK, tiles_of(codes.shape[1])
    full = padded(codes, steps, TILE * shape[1])
    split = full.reshape(shape[0], *SPLIT, shape[1], 4, 2, 8)
    flat = moved(split, FOUR_BITS if bits == 4 else EIGHT_BITS)
    if bits == 4:
        flat = flat[..., 0] | flat[..., 1] << 4
    return as_words(flat.reshape(shape[1], shape[0], -1))


def out_of_fragments(words: Array, bits: int, n: int) -> Array:
    """The codes (k, n) of a weight's words."""
    tiles, blocks = words.shape[:2]
    flat = np.ascontiguousarray(words).view(np.uint8)
    if bits == 4:
        nibbles = np.stack((flat & 15, flat >> 4), -1)
        parts = nibbles.reshape(tiles, blocks, 4, 8, 4, 2, 2, 2, 2, 2).transpose(np.argsort(FOUR_BITS))
    else:
        parts = flat.reshape(tiles, blocks, 4, 2, 8, 4, 2, 2, 2, 2).transpose(np.argsort(EIGHT_BITS))
    return parts.reshape(blocks * BLOCK, tiles * TILE)[:, :n]


def apart(words: Any) -> Any:
    """Words of mxfp4 with the magnitudes and signs of each half at MAGNITUDES and SIGNS."""
    result = words & 0
    for half in (0, 16):
        for i, (magnitude, sign) in enumerate(zip(MAGNITUDES, SIGNS, strict=True)):
            code = words >> half + 4 * i
            result |= (code & 7) << half + magnitude | (code >> 3 & 1) << half + sign
    return result


def together(words: Array) -> Array:
    """The words that `apart` was given."""
    halves = np.ascontiguousarray(words).view(np.uint16)
    codes = np.zeros_like(halves)
    for i, (magnitude, sign) in enumerate(zip(MAGNITUDES, SIGNS, strict=True)):
        codes |= (halves >> magnitude & 7 | (halves >> sign & 1) << 3) << 4 * i
    return codes.view(words.dtype)


def factors_in_fragments(factors: Any, group: int) -> Any:
    """Factors (groups, n) as lanes read them: (tiles, steps, quarters, 8, groups of a block, 2 columns)."""
    count, n = factors.shape
    of_block, tiles = max(1, BLOCK // group), tiles_of(n)
    blocks = -(-count // of_block)
    full = padded(factors, blocks * of_block, TILE * tiles)
    parts = full.reshape(blocks, of_block, tiles, 4, 2, 8)
    return moved(parts, (2, 0, 3, 5, 1, 4))


def factors_out_of_fragments(factors: Array, n: int) -> Array:
    parts = np.asarray(factors).transpose(1, 4, 0, 2, 5, 3)
    return parts.reshape(parts.shape[0] * parts.shape[1], -1)[:, :n]
