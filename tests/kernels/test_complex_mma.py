"""Complex doubles that tensor cores multiply where they lie, in the machine: whole numbers are exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from complex_numbers import same, whole
from in_turns import in_turns
from lapidist.backends.machine_backend import sanitized
from lapidist.calls import complex_product
from lapidist.device import chip
from lapidist.planning.complex_tiles import DoubleTile, tile_for

NUMBERS: Any = np.complex128
OPS: dict[Any, Any] = {False: lambda x: x, True: lambda x: x.T, "C": lambda x: x.T.conj()}
TILES = [
    DoubleTile(32, 32, 16, 16, 16, 2, 3),
    DoubleTile(64, 32, 32, 16, 16, 3, 2),
    DoubleTile(64, 64, 32, 16, 16, 3, 1, 2),
    DoubleTile(32, 64, 16, 32, 16, 4, 1, 4),
]


@pytest.mark.often(1)
@pytest.mark.parametrize(("tile", "trans_a", "trans_b"), in_turns(TILES, OPS, [*OPS][::-1]))
def test_every_tile_and_op(tile: DoubleTile, trans_a: Any, trans_b: Any, monkeypatch: Any) -> None:
    """Whole tiles and parts, fewer steps of k than stages have, and parts of k without any."""
    monkeypatch.setattr(complex_product, "tile_for", lambda *_: tile)
    for m, n, k in ((34, 67, 75), (33, 17, 5)):
        a = whole(*((k, m) if trans_a else (m, k)), dtype=NUMBERS)
        b = whole(*((n, k) if trans_b else (k, n)), dtype=NUMBERS, seed=1)
        c, right = whole(n, m, dtype=NUMBERS, seed=2).T, OPS[trans_a](a) @ OPS[trans_b](b)
        how: Any = {"trans_a": trans_a, "trans_b": trans_b, "device": "machine"}
        with sanitized(3):
            same(lapidist.gemm(a, b, c, alpha=1j, beta=2.0, **how), 1j * right + 2 * c, NUMBERS)
        out = np.full((n, m), np.nan, NUMBERS).T
        same(lapidist.gemm(a, b, out=out, **how), right, NUMBERS)


def test_batches_with_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complex_product, "tile_for", lambda *_: TILES[0])
    a, b = whole(3, 40, 2, 33, dtype=NUMBERS)[:, :, 0], whole(33, 35, dtype=NUMBERS)
    with sanitized(5):
        same(lapidist.matmul(a, b.conj(), device="machine"), a @ b.conj(), NUMBERS)


def test_they_are_for_what_widening_delays() -> None:
    """Parts of k fill the chip. Large products, and few tiles of a long k, are of real numbers."""
    h200 = chip("h200")

    def chosen(*extents: int, device: Any = h200) -> Any:
        return tile_for("float64", *extents, device)

    assert chosen(512, 512, 512, 1) == DoubleTile(64, 64, 32, 16, 16, 3, 1, parts=2)
    assert chosen(32, 32, 32, 4096) == DoubleTile(32, 32, 16, 16, 16, 3, 3)
    assert isinstance(chosen(33, 2000, 2000, 1), DoubleTile)
    for extents in ((2048, 2048, 2048, 1), (100, 100, 4000, 1), (16, 512, 512, 1), (512, 512, 0, 1)):
        assert chosen(*extents) is None
    assert chosen(512, 512, 512, 1, device=chip("a100")) is None
