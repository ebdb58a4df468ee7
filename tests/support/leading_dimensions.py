"""BLAS's own loops: extents around the widths of vectors and tiles, lines that are padded, operands that are
transposed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

EXTENTS = 1, 2, 7, 8, 17, 31, 33, 65
PADDINGS = 0, 1, 2, 3  # elements behind each line: the leading dimension is the extent and so many more


class Loop(NamedTuple):
    m: int
    n: int
    k: int
    padding: int
    trans_a: bool
    trans_b: bool


def every_loop() -> list[Loop]:
    return [
        Loop(m, n, k, padding, trans_a, trans_b)
        for (m, n, k), padding, trans_a, trans_b in product(
            product(EXTENTS, repeat=3), PADDINGS, (False, True), (False, True)
        )
    ]


def some_loops(turn: int, count: int) -> Iterator[Loop]:
    """Each pair of extents and paddings once in so many loops; other turns have other ones."""
    step = len(every_loop()) // count | 1  # odd, so that no extent goes without a padding
    every = every_loop()
    yield from (every[(turn + number * step) % len(every)] for number in range(count))


def stored(loop: Loop) -> dict[str, tuple[int, int]]:
    """The shapes in which A, B and C are stored, before they are transposed."""
    m, n, k = loop[:3]
    return {"a": (k, m) if loop.trans_a else (m, k), "b": (n, k) if loop.trans_b else (k, n), "c": (m, n)}


def padded(array: Any, padding: int, empty: Any) -> Any:
    """The same numbers with longer lines. `empty` makes the memory."""
    rows, cols = array.shape
    wide = empty((rows, cols + padding))
    wide[:, :cols] = array
    return wide[:, :cols]
