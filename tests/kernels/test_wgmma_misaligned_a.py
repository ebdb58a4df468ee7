"""Rows of A that start anywhere, shifted on their way through registers in place of packed: in the machine,
sanitized.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lapidist
from lapidist import machine
from lapidist.config import Config
from lapidist.frameworks.arrays import operand_of
from lapidist.kernels.wgmma.family import tile
from wgmma_products import check, whole

pytestmark = pytest.mark.survey

Array = np.ndarray[Any, Any]
SMALL, PAIR, TALL = (
    tile("bfloat16", 64, 32, 3),
    tile("bfloat16", 128, 48, 3, (2, 1)),
    tile("bfloat16", 128, 64, 2),
)
SHARED, FOUR = tile("bfloat16", 64, 32, 3, (1, 2)), tile("bfloat16", 128, 32, 3, (2, 2))


def rows_from(values: Array, first: int, pitch: int) -> Array:
    """The same matrix, its first element so many behind 16 bytes, with no numbers between its rows."""
    rows, cols = values.shape
    raw = np.full(rows * pitch + 32, np.nan, values.dtype)
    start = -raw.ctypes.data % 16 // values.itemsize + first + 8
    full = raw[start : start + rows * pitch].reshape(rows, pitch)
    full[:, :cols] = values
    return full[:, :cols]


def multiply(a: Array, b: Array, config: Config, out: str = "bfloat16", **more: Any) -> Array:
    d = np.zeros((a.shape[0], b.shape[1]), ml_dtypes.bfloat16 if out == "bfloat16" else out)
    gemm = lapidist.plan(
        a, b, out=d, alpha=2.0, kernel="wgmma", config=replace(config, skewed=True), device="machine", **more
    )
    assert gemm.plan is not None
    operands = operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out")
    machine.run(gemm.plan.launch(*operands, 2.0, 0.0), sanitize=True, counting=False)
    return d


@pytest.mark.parametrize("config", [SMALL, PAIR, TALL, SHARED, FOUR], ids=str)
@pytest.mark.parametrize(
    ("m", "n", "k", "pitch"),
    [(133, 29, 203, 203), (261, 45, 131, 140), (128, 33, 64, 66), (200, 61, 97, 101)],
)
def test_every_place_in_16_bytes(config: Config, m: int, n: int, k: int, pitch: int) -> None:
    """One, two, four or eight places; rows in whole eights and not; what lies between the rows is no
    number.
    """
    a, b = rows_from(whole((m, k), 1, "bfloat16"), 0, pitch), whole((k, n), 2, "bfloat16")
    check(multiply(a, b, config), a, b)


@pytest.mark.parametrize("first", range(1, 8))
def test_the_first_row_starts_anywhere_too(first: int) -> None:
    a, b = rows_from(whole((133, 77), 1, "bfloat16"), first, 96), whole((77, 27), 2, "bfloat16")
    check(multiply(a, b, SMALL), a, b)


@pytest.mark.parametrize(
    "shared", [{"split_k": 2, "reduction": "cluster"}, {"schedule": "stream_k"}], ids=str
)
@pytest.mark.parametrize("config", [SMALL, TALL], ids=str)
def test_shared_tiles(config: Config, shared: dict[str, Any]) -> None:
    a, b = whole((197, 331), 1, "bfloat16"), whole((331, 47), 2, "bfloat16")
    check(multiply(a, b, config, **shared), a, b)


def test_float_out() -> None:
    a, b = whole((150, 131), 1, "bfloat16"), whole((131, 67), 2, "bfloat16")
    check(multiply(a, b, TALL, "float32"), a, b)
