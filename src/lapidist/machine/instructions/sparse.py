"""The sparse A of mma.sp and wgmma.sp: half of each row is stored, and metadata says where it stands.

Two of four neighbours in a row are stored, and one of two of tf32. Metadata has two bits for each stored
element, its place among the four, the first element's lowest; four bits for a tf32, whose halves count.
Of elements of four bits, pairs are stored or left out: they are counted as bytes.
A word of metadata holds two rows of a warp's 16, eight apart, and 16 bits of each; of 8-bit types one row.
The selector names the lanes of each quad whose words are read. CuTe's layouts and LLVM's selectors say the
same; no sum was compared with a chip's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lapidist.machine.faults import OutOfBounds, PtxError
from lapidist.machine.instructions.fragments import ELEMENT_BYTES
from lapidist.machine.lanes import Lanes
from lapidist.machine.ptx.syntax_tree import Imm, Instruction

if TYPE_CHECKING:
    from lapidist.machine.state import Machine

Array = np.ndarray
NAMES = ("sp", "sp::ordered_metadata")
SPARSE_SHAPES = {
    "f16": {(16, 8, 16), (16, 8, 32)},
    "bf16": {(16, 8, 16), (16, 8, 32)},
    "tf32": {(16, 8, 8), (16, 8, 16)},
    "s8": {(16, 8, 32), (16, 8, 64)},
    "u8": {(16, 8, 32), (16, 8, 64)},
    "e4m3": {(16, 8, 64)},
    "e5m2": {(16, 8, 64)},
}
TF32_INDICES = {0b0100: 0, 0b1110: 1}


def words_a_quad(kind: str, depth: int) -> int:
    """How many lanes of a quad have the metadata of its two rows."""
    return depth * (2 if kind == "tf32" else 1) // 16


def selector_of(i: Instruction, place: int, kind: str, depth: int) -> int:
    """The sparsity selector: which lanes of each quad give the metadata."""
    selector, choices = i.operands[place], 4 // words_a_quad(kind, depth)
    if not isinstance(selector, Imm) or not 0 <= selector.value < choices:
        rule = f"the sparsity selector of this shape is a literal number from 0 to {choices - 1}"
        raise PtxError(f"{i.site}: {rule}")
    return selector.value


def contributing(selector: int, kind: str, depth: int) -> slice:
    """The lanes of a quad whose metadata is read."""
    count = words_a_quad(kind, depth)
    return slice(selector * count, (selector + 1) * count)


def lanes_read(lanes: Array, selector: int, kind: str, depth: int) -> Array:
    """Which lanes' metadata is read."""
    quad = contributing(selector, kind, depth)
    return (lanes % 4 >= quad.start) & (lanes % 4 < quad.stop)


def nibbles_of_rows(words: Array, selector: int, kind: str, depth: int) -> Array:
    """(warps, 16 rows, chunks): four bits for each chunk of a row, from a word of each lane."""
    nibbles = words.reshape(-1, 8, 4, 1) >> np.arange(0, 32, 4, dtype="u4") & 15
    chosen = nibbles[:, :, contributing(selector, kind, depth)]
    chunks = 8 if ELEMENT_BYTES[kind] == 1 else 4  # of one row in a word
    return (
        chosen.reshape(len(nibbles), 8, -1, 2, chunks).transpose(0, 3, 1, 2, 4).reshape(len(nibbles), 16, -1)
    )


def stored_columns(m: Machine, g: Lanes, nibbles: Array, kind: str, ordered: bool, site: int) -> Array:
    """(warps, 16, stored elements): the column of A for each. Metadata that names none is a fault."""
    chunk = np.arange(nibbles.shape[2])
    if kind == "tf32":
        valid = np.isin(nibbles, list(TF32_INDICES))
        columns = 2 * chunk + (nibbles == 0b1110)
        rule = "has 0b0100 or 0b1110 for each two elements of tf32"
    else:
        first, second = nibbles & 3, nibbles >> 2
        valid = first < second if ordered else first != second
        columns = np.stack([4 * chunk + first, 4 * chunk + second], axis=3).reshape(*nibbles.shape[:2], -1)
        rule = f"names two different places of each four elements{', the lower one first' * ordered}"
    if not valid.all():
        warp, row, part = np.argwhere(~valid)[0].tolist()
        start = part * (2 if kind == "tf32" else 4)
        bits = f"{nibbles[warp, row, part]:#06b} for the elements from {start} on"
        text = f"metadata of a sparse matrix {rule}; row {row} of the warp's 16 has {bits}"
        raise m.fault(OutOfBounds, text, site, g, 32 * warp, name="sparse-metadata")
    return columns


def expanded(
    m: Machine, g: Lanes, stored: Array, metadata: Array, selector: int, kind: str, ordered: bool, site: int
) -> Array:
    """A with its zeros: (warps, 16, k) from (warps, 16, k / 2)."""
    depth = 2 * stored.shape[2]
    words = np.ascontiguousarray(g.dense(metadata)).view("u4")
    columns = stored_columns(m, g, nibbles_of_rows(words, selector, kind, depth), kind, ordered, site)
    dense = np.zeros((*stored.shape[:2], depth))
    np.put_along_axis(dense, columns.astype(np.int64), stored, axis=2)
    return dense
