"""The tiles of a product, and the order in which they are computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lapidist.errors import ArgumentError
from lapidist.launch import INT_LIMIT
from lapidist.schedule.numbers import larger, smaller, where
from lapidist.schedule.triangle import Triangle


def at_least(name: str, value: int, least: int, way_out: str = "") -> None:
    if value < least:
        raise ArgumentError(
            f"{name}: must be at least {least}; got {value}. {way_out or f'Pass {least} or more'}"
        )


def ceil_div(a: Any, b: Any) -> Any:
    return -(-a // b)


def most_peers(tiles: Any, blocks: Any, iterations: Any) -> Any:
    """The most blocks that one of these tiles can have. Numbers or arrays."""
    shortest = larger(1, tiles * iterations // blocks)
    anywhere = smaller(blocks, ceil_div(iterations - 1, shortest) + 1)
    return where(blocks % tiles == 0, blocks // tiles, where(tiles % blocks == 0, 1, anywhere))


@dataclass(frozen=True, slots=True)
class TileGrid:
    """Tiles of D along m and n, for each of `batches`. A tile takes `iterations` along k."""

    tiles_m: int
    tiles_n: int
    iterations: int
    batches: int = 1
    triangle: Triangle | None = None  # None: all tiles of each matrix

    def __post_init__(self) -> None:
        for name in ("tiles_m", "tiles_n", "iterations", "batches"):
            at_least(name, getattr(self, name), 0)
        if self.tiles > INT_LIMIT:
            raise ArgumentError(
                f"tiles: at most {INT_LIMIT} in one launch; got {self.tiles}. Take a larger tile or fewer"
                " batches"
            )

    @staticmethod
    def of(
        m: int, n: int, k: int, bm: int, bn: int, bk: int, batches: int = 1, triangle: Triangle | None = None
    ) -> TileGrid:
        for name, extent in (("bm", bm), ("bn", bn), ("bk", bk)):
            at_least(name, extent, 1)
        return TileGrid(ceil_div(m, bm), ceil_div(n, bn), ceil_div(k, bk), batches, triangle)

    @property
    def tiles(self) -> int:
        return self.tiles_of_matrix * self.batches

    @property
    def tiles_of_matrix(self) -> int:
        if self.triangle is None:
            return self.tiles_m * self.tiles_n
        return int(self.triangle.tiles(self.tiles_m, self.tiles_n))

    def place(self, index: int, raster: Raster) -> tuple[int, int]:
        """Row and column of the tile of a matrix with number `index`."""
        if self.triangle is None:
            return raster.place(index, self.tiles_m, self.tiles_n)
        return self.triangle.place(index, self.tiles_m, self.tiles_n, raster.panel)

    def __str__(self) -> str:
        batches = f" x {self.batches} batches" if self.batches != 1 else ""
        half = "" if self.triangle is None else f", of which {self.tiles_of_matrix} meet one triangle,"
        return f"{self.tiles_m} x {self.tiles_n} tiles{half}{batches}, {self.iterations} iterations each"


@dataclass(frozen=True, slots=True)
class Raster:
    """The order of tiles: panels of `panel` lines are walked along one direction, `chunk` steps at a time.

    Along n a panel is `panel` rows high, and its chunks of `chunk` columns are walked row by row:

        panel 1, chunk 1     panel 2, chunk 1     panel 2, chunk 2       (3 x 4 tiles; along m: the transpose)
         0  1  2  3           0  2  4  6           0  1  4  5
         4  5  6  7           1  3  5  7           2  3  6  7
         8  9 10 11           8  9 10 11           8  9 10 11

    The last panel, and the last chunk of each panel, may be smaller. So every index is a tile, and no block
    is launched without one.
    """

    along: str = "n"
    panel: int = 1
    chunk: int = 1

    def __post_init__(self) -> None:
        if self.along not in ("m", "n"):
            raise ArgumentError(f"along: must be 'm' or 'n'; got {self.along!r}")
        at_least("panel", self.panel, 1)
        at_least("chunk", self.chunk, 1)

    def place(self, index: int, tiles_m: int, tiles_n: int) -> tuple[int, int]:
        """Row and column of the tile with number `index`."""
        lines, steps = (tiles_m, tiles_n) if self.along == "n" else (tiles_n, tiles_m)
        panel, offset = divmod(index, self.panel * steps)
        height = min(self.panel, lines - panel * self.panel)
        chunk, offset = divmod(offset, height * self.chunk)
        width = min(self.chunk, steps - chunk * self.chunk)
        line, step = panel * self.panel + offset // width, chunk * self.chunk + offset % width
        return (line, step) if self.along == "n" else (step, line)

    def areas(self, tiles_m: int, tiles_n: int) -> tuple[int, int, int, int, int]:
        """Tiles of a panel, of its chunks, and of the chunks of the last panel; then the width of a chunk and
        of the last one.
        """
        lines, steps = (tiles_m, tiles_n) if self.along == "n" else (tiles_n, tiles_m)
        deep, wide = min(self.panel, lines), min(self.chunk, steps)
        height, width = (
            extent - (extent - 1) // part * part if part else 0
            for extent, part in ((lines, deep), (steps, wide))
        )
        return deep * steps, deep * wide, height * wide, wide, width

    def __str__(self) -> str:
        return f"along {self.along} in bands of {self.panel}" + (
            f", chunks of {self.chunk}" if self.chunk > 1 else ""
        )


ROW_MAJOR = Raster()
