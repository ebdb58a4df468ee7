"""What follows from how many blocks share how many tiles: of one schedule, or of columns of many."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class Shared(ABC):
    """Numbers may be arrays of those of many ways to share; so these are made of arithmetic alone."""

    __slots__ = ()
    grid: Any
    sk_tiles: Any
    sk_blocks: Any
    regions: Any
    fragments: Any

    @abstractmethod
    def reduces_by(self, way: str) -> Any:
        """Whether blocks bring their sums together in this way."""

    @property
    def dp_tiles(self) -> Any:
        return self.grid.tiles - self.sk_tiles

    @property
    def blocks_per_region(self) -> Any:
        return self.sk_blocks // self.regions

    @property
    def region_iterations(self) -> Any:
        return self.sk_tiles // self.regions * self.grid.iterations

    @property
    def normal_iterations(self) -> Any:
        return self.region_iterations // not_zero(self.blocks_per_region)

    @property
    def big_blocks(self) -> Any:
        """So many blocks, the first of each region, have one iteration more than the normal ones."""
        return self.region_iterations % not_zero(self.blocks_per_region)

    @property
    def longest(self) -> Any:
        """Iterations of a block that shares tiles, at most."""
        return self.normal_iterations + (self.big_blocks > 0)

    @property
    def shares_tiles(self) -> Any:
        """False where every Stream-K block owns whole tiles, the same number each: then nothing is handed
        on.
        """
        uneven = (self.big_blocks > 0) | (self.normal_iterations % not_zero(self.grid.iterations) != 0)
        return (self.sk_blocks > 0) & uneven

    @property
    def cluster(self) -> Any:
        """Blocks of a cluster; 1 where none is needed."""
        return 1 + (self.blocks_per_region - 1) * (self.reduces_by("cluster") & (self.sk_blocks > 0))

    @property
    def reduction_blocks(self) -> Any:
        return self.sk_tiles * self.fragments * (self.reduces_by("separate") & self.shares_tiles)


def not_zero(number: Any) -> Any:
    """One in place of it: what is divided by it then is nothing."""
    return number + (number == 0)
