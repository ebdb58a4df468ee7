"""What follows from the numbers of blocks and shared tiles: for one schedule, or for columns of many."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class Shared(ABC):
    """Values may be arrays, so the properties use arithmetic alone."""

    __slots__ = ()
    grid: Any
    sk_tiles: Any
    sk_blocks: Any
    regions: Any
    fragments: Any

    @abstractmethod
    def reduces_by(self, reduction: str) -> Any:
        """Whether blocks add their sums by this reduction."""

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
        """So many blocks, the first of each region, have one iteration more than the others."""
        return self.region_iterations % not_zero(self.blocks_per_region)

    @property
    def longest(self) -> Any:
        """The most iterations of a block that shares tiles."""
        return self.normal_iterations + (self.big_blocks > 0)

    @property
    def shares_tiles(self) -> Any:
        """False if every Stream-K block has whole tiles, equally many: then nothing is handed on."""
        uneven = (self.big_blocks > 0) | (self.normal_iterations % not_zero(self.grid.iterations) != 0)
        return (self.sk_blocks > 0) & uneven

    @property
    def cluster(self) -> Any:
        """Blocks of a cluster of peers; 1: there is none."""
        return 1 + (self.blocks_per_region - 1) * (self.reduces_by("cluster") & (self.sk_blocks > 0))

    @property
    def reduction_blocks(self) -> Any:
        return self.sk_tiles * self.fragments * (self.reduces_by("separate") & self.shares_tiles)


def not_zero(number: Any) -> Any:
    """A divisor with 1 in place of 0, where the dividend is 0 too."""
    return number + (number == 0)
