"""Tensor maps that a kernel copies, changes and publishes."""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.launch import TensorMap
from lapidist.machine import PtxError, run_ptx
from lapidist.machine.faults import MissingProxyFence, OutOfBounds
from lapidist.machine.tensor_map_bytes import decoded, encoded
from snippets import compiled, run_body

BLOCKS, ROWS = 3, np.array([5, 12, 3], "i4")
SEEDS = range(3)


def boxes(fault: int = 0, **mode: object) -> tuple[np.ndarray, np.ndarray]:
    """What each block copied of its matrix from row 2 on, and what that should be: zeros behind its rows."""
    matrices = [np.arange(12 * 16, dtype="f4").reshape(12, 16) + 1000 * n for n in range(BLOCKS)]
    table = np.array([matrix.ctypes.data for matrix in matrices], "u8")
    out, expected = np.full((BLOCKS, 8, 16), np.nan, "f4"), np.zeros((BLOCKS, 8, 16), "f4")
    for n, rows in enumerate(np.minimum(ROWS, 10) - 2):
        expected[n, :rows] = matrices[n][2 : 2 + rows]
    base = TensorMap(matrices[0].ctypes.data, "float32", (16, 1), (64,), (16, 8))
    maps = np.zeros((BLOCKS, 128), "u1")
    arguments = dict(enumerate([base, maps, table, ROWS, out]))
    text = compiled("tensor_map_changes.cu", "moved_boxes", FAULT=fault).ptx
    run_ptx(text, "moved_boxes", (BLOCKS, 1, 1), (32, 1, 1), arguments, memory=matrices, **mode)  # type: ignore[arg-type]
    return out, expected


@pytest.mark.parametrize("seed", [None, *SEEDS])
def test_a_map_of_each_block(seed: int | None) -> None:
    out, expected = boxes(sanitize=seed is not None, seed=seed)
    assert (out == expected).all()


@pytest.mark.parametrize("fault", [1, 2, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_map_that_is_not_published(fault: int, seed: int) -> None:
    """What a plain store wrote is not released; without a fence of its own, no copy has acquired it."""
    words = r"fence\.proxy\.tensormap::generic\." + ("release" if fault & 1 else "acquire")
    with pytest.raises(MissingProxyFence, match=words):
        boxes(fault, sanitize=True, seed=seed)


def test_a_map_goes_through_its_bytes() -> None:
    for tensor in (
        TensorMap(1 << 40, "bfloat16", (7, 5, 3), (16, 1 << 33), (8, 4, 1), 128),
        TensorMap(16, "float8_e4m3fn", (1 << 32,), (), (16,), 0, 64),
    ):
        read = decoded(encoded(tensor))
        assert read is not None
        assert read == tensor
    assert decoded(bytes(128)) is None


def test_what_is_no_map_and_no_field() -> None:
    place = np.zeros(128, "u4")
    replace = "tensormap.replace.tile.{}.global.b1024.{};"
    with pytest.raises(OutOfBounds, match="no tensor map with such a field lies at this address"):
        run_body(replace.format("rank", "b32 [%in], 1"), place, place)
    for field, words in (
        ("swizzle_mode", "b32 [%in], 7"),
        ("fill_mode", "b32 [%in], 1"),
        ("global_dim", "b32 [%in], 1"),
        ("global_address", "b32 [%in], 1"),
    ):
        with pytest.raises(PtxError, match=r"no such \.|does not take|no value of these bits"):
            run_body(replace.format(field, words), place, place)
