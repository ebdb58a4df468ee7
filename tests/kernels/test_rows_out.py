"""Rows of D that start anywhere: every place in a sector, tiles that rows leave in one patch and in many, all
widths of elements; what lies between the rows stays as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lapidist
from in_turns import in_turns, surveyed, surveyed_but
from lapidist import machine
from lapidist.config import Config
from lapidist.dtypes import element_of, numpy_dtype
from lapidist.frameworks.arrays import operand_of
from lapidist.kernels.wgmma.family import tile
from lapidist.kernels.wgmma.operands import copies_out
from on_gpu import whole as whole_on_gpu
from typed import precision_of

Array = np.ndarray[Any, Any]
SECTOR = 32
OUT = {"bfloat16": "bfloat16", "float16": "float32", "int8": "int8", "tf32": "float32"}


def whole(shape: tuple[int, ...], seed: int, math: str) -> Array:
    return np.random.default_rng(seed).integers(-1, 2, shape).astype(numpy_of(math))


def numpy_of(math: str) -> Any:
    return numpy_dtype(element_of(math).name)


def rows_at(rows: int, cols: int, dtype: Any, pitch: int, skew: int) -> tuple[Array, Array]:
    """A matrix of 77 whose first element lies `skew` elements behind a sector's start, and all of its
    memory.
    """
    raw = np.zeros((rows * pitch + 3 * SECTOR) * np.dtype(dtype).itemsize, np.uint8)
    start = -raw.ctypes.data % SECTOR + skew * np.dtype(dtype).itemsize
    full = raw[start:][: rows * pitch * np.dtype(dtype).itemsize].view(dtype).reshape(rows, pitch)
    full[...] = 77
    return full[:, :cols], full


Extents = tuple[int, int, int]


def check(
    math: str, config: Config, extents: Extents, pitch: int, skew: int, beta: float = 0.0, **more: Any
) -> None:
    m, n, k = extents
    a, b, out = whole((m, k), 1, math), whole((k, n), 2, math), numpy_dtype(OUT[math])
    d, memory = rows_at(m, n, out, pitch, skew)
    c = None
    if beta:
        c = rows_at(m, n, out, n + 3, skew + 1)[0]
        c[...] = 3
    more = {**more, "alpha": 2.0, "beta": beta, "precision": precision_of(math)}
    gemm = lapidist.plan(a, b, c, out=d, kernel="wgmma", config=config, device="machine", **more)
    assert gemm.plan is not None
    assert not copies_out(gemm.plan.problem)
    operands = (
        operand_of(a, "a"),
        operand_of(b, "b"),
        None if c is None else operand_of(c, "c"),
        operand_of(d, "out"),
    )
    machine.run(gemm.plan.launch(*operands, 2.0, beta), sanitize=True, seed=skew, counting=False)
    exact = 2.0 * (a.astype("f8") @ b.astype("f8")) + 3 * beta
    np.testing.assert_array_equal(d.astype("f8"), exact)
    assert (memory[:, n:].astype("f8") == 77).all()


@pytest.mark.parametrize("skew", surveyed_but(range(16), 0, 5, 10))
def test_every_place_in_a_sector(skew: int) -> None:
    """Two patches a row, the last one cut, with an odd pitch: rows at all places; with an even one at
    some.
    """
    check("bfloat16", tile("bfloat16", 64, 128, 2), (20, 100 + skew, 30), 131 + 2 * skew, skew)
    check("bfloat16", tile("bfloat16", 64, 128, 2), (20, 100 + skew, 30), 134, skew + 1)


WIDTHS = [1, 2, 7, 8, 9, 15, 16, 17, 63, 64, 65, 127, 128, 129, 136]


@pytest.mark.often(2)
@pytest.mark.parametrize("n", surveyed_but(WIDTHS, 0, 2, 7, 9, 13))
def test_widths_around_pieces_patches_and_tiles(n: int) -> None:
    check("bfloat16", tile("bfloat16", 64, 128, 2), (18, n, 20), n + 1 + n % 2, n % 5)


@pytest.mark.often(2)
@pytest.mark.parametrize(("math", "columns"), in_turns(OUT, (32, 48, 64, 160), leave=[("int8", 48)]))
def test_patches_of_every_width_in_every_width_of_elements(math: str, columns: int) -> None:
    """Tiles of bytes are counted in 32 columns."""
    for skew in (1, 2, 3):
        check(math, tile(math, 64, columns, 2), (35, 2 * columns + 11, 20), 2 * columns + 11 + skew, skew)


@pytest.mark.often(1)
@pytest.mark.parametrize(
    ("config", "more"),
    [
        (tile("bfloat16", 128, 64, 2), {"beta": -1.0}),
        (replace(tile("bfloat16", 128, 64, 2), wm=32, ping_pong=True), {}),
        (tile("bfloat16", 64, 96, 3), {"split_k": 2, "reduction": "cluster"}),
        *surveyed(
            [
                (tile("bfloat16", 256, 32, 2, (1, 2)), {}),
                (tile("bfloat16", 64, 96, 3), {"split_k": 2, "reduction": "turnstile", "beta": 2.0}),
            ]
        ),
    ],
)
def test_every_way_to_a_tile(config: Config, more: dict[str, Any]) -> None:
    """A part of k each; peers of a cluster have patches each, whose neighbours are others'."""
    check("bfloat16", config, (140, 203, 130), 205, 3, **more)


@pytest.mark.often(1)
@pytest.mark.parametrize(("math", "skew"), in_turns(["bfloat16", "float16"], [0, 3, 9]))
def test_pieces_by_twos_beside_many_sums(math: str, skew: int) -> None:
    """A thread with 192 sums has registers for two pieces at a time, of the four that are its own in a
    patch.
    """
    by_turns = replace(tile(math, 128, 192, 2), wm=32, ping_pong=True)
    check(math, by_turns, (150, 203, 20), 205, skew)


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("math", "n", "pitch"), [("bfloat16", 25, 32), ("float16", 25, 28), ("tf32", 130, 132), ("int8", 65, 80)]
)
def test_rows_that_start_on_16_bytes_and_end_inside(math: str, n: int, pitch: int) -> None:
    """TMA would write zeros behind them."""
    check(math, tile(math, 64, 64, 2), (18, n, 20), pitch, 0)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("out", "n", "pitch"),
    [("bfloat16", 25, 32), ("float32", 25, 28), ("bfloat16", 1, 8), ("float32", 130, 136)],
)
def test_what_lies_behind_rows_on_a_gpu(torch: Any, out: str, n: int, pitch: int) -> None:
    m, k, dtype = 70, 90, getattr(torch, out)
    a, b = (
        whole_on_gpu(torch, "bfloat16", m, k).clamp(-1, 1),
        whole_on_gpu(torch, "bfloat16", k, n).clamp(-1, 1),
    )
    memory = torch.full((m, pitch), 77.0, device="cuda", dtype=dtype)
    lapidist.gemm(a, b, out=memory[:, :n], kernel="wgmma")
    assert torch.equal(memory[:, :n].double(), (a.double() @ b.double()).to(dtype).double())
    assert (memory[:, n:] == 77).all()


@pytest.mark.gpu
@pytest.mark.parametrize("skew", range(16))
@pytest.mark.parametrize("out", ["bfloat16", "float32"])
def test_on_a_gpu(torch: Any, out: str, skew: int) -> None:
    """Many tiles, launched twice without a pause."""
    m, n, k, dtype = 1500, 1283 + skew, 90, getattr(torch, out)
    a, b = (
        whole_on_gpu(torch, "bfloat16", m, k).clamp(-1, 1),
        whole_on_gpu(torch, "bfloat16", k, n).clamp(-1, 1),
    )
    configs = [
        tile("bfloat16", 64, 32, 4),
        tile("bfloat16", 128, 256, 3),
        tile("bfloat16", 256, 192, 2, (1, 2)),
    ]
    configs.append(replace(tile("bfloat16", 128, 128, 4), wm=32, ping_pong=True))
    for config in configs:
        memory = torch.full((m * (n + 3) + SECTOR,), 77.0, device="cuda", dtype=dtype)
        d = memory[skew:][: m * (n + 3)].view(m, n + 3)
        for _ in range(2):
            lapidist.gemm(a, b, out=d[:, :n], kernel="wgmma", config=config)
        assert torch.equal(d[:, :n].double(), (a.double() @ b.double()).to(dtype).double()), config
        assert (d[:, n:] == 77).all()
        assert (memory[:skew] == 77).all()
