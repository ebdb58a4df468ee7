"""The divisors of share/schedule.cuh as factors to multiply with. The host knows all of them before the
launch.

A division takes eighteen instructions and a tenth of a microsecond, and a block's first load waits for half a
dozen of them. A product and a shift do the same for any whole number below 2^31:

    whole // number == whole * factor >> shift        factor = 2^shift / number, rounded up

Rounding makes the factor larger by less than 1, and so the quotient by less than whole / 2^shift, which is
less than 1 / number: too little to reach the next whole number. The factor has 32 bits and the product 63.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from lapidist.schedule.units import Schedule

DIVIDEND_BITS = 31  # bits of the dividend


class Divisor(NamedTuple):
    """The struct Divisor of share/schedule.cuh, two words of 32 bits."""

    factor: int
    shift: int

    @classmethod
    def of(cls, number: int) -> Divisor:
        """0 is taken for 1, as nothing is ever divided by it."""
        if number <= 1:
            return NOTHING
        shift = DIVIDEND_BITS + (number - 1).bit_length()
        return cls(-(-(1 << shift) // number), shift)


NOTHING = Divisor(1 << DIVIDEND_BITS, DIVIDEND_BITS)


@lru_cache(maxsize=1024)
def device_words(schedule: Schedule) -> tuple[int, ...]:
    """The device's struct Schedule: its ints, then a factor and a shift for each divisor."""
    words = [*schedule.words().values()]
    for number in divided_by(schedule).values():
        words += Divisor.of(number)
    return tuple(words)


def divided_by(schedule: Schedule) -> dict[str, int]:
    """The values of the struct's divisors, in its order."""
    grid = schedule.grid
    panel, chunk, last_chunk, width, last_width = schedule.raster.areas(grid.tiles_m, grid.tiles_n)
    return {
        "by_regions": schedule.regions,
        "by_region_tiles": schedule.sk_tiles // schedule.regions,
        "by_region_blocks": schedule.blocks_per_region,
        "by_iterations": grid.iterations,
        "by_big": schedule.normal_iterations + 1,
        "by_normal": schedule.normal_iterations,
        "by_fragments": schedule.fragments,
        "by_matrix": grid.tiles_of_matrix,
        "by_panel": panel,
        "by_chunk": chunk,
        "by_last_chunk": last_chunk,
        "by_width": width,
        "by_last_width": last_width,
    }
