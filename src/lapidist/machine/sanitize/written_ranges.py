"""Which ranges of global memory a kernel may write, as the pointers among its arguments say."""

from __future__ import annotations

from lapidist.machine.pointer_reach import address_of
from lapidist.machine.ptx.pointer_sources import Source, is_store
from lapidist.machine.state import Machine

MAY_BE_EMPTY = 1 << 12  # behind the last range: an allocation of no bytes has an address


class WrittenRanges:
    """`written` are where these ranges start. `anywhere`: a store's pointer comes from elsewhere, and it may
    lead to any range. `keeps_reads`: later launches ask who read what."""

    def __init__(self, m: Machine) -> None:
        self.m, self.keeps_reads, code = m, False, m.program.kernel.instructions
        self.strays = 0  # stores to ranges that none was to reach
        pointers = m.program.pointer_sources
        ranges = {site: self.starts_of(sources) for site, sources in pointers.items()}
        stores = [site for site in ranges if is_store(code[site])]
        self.anywhere = not all(ranges[site] or self.lead_nowhere(pointers[site]) for site in stores)
        self.written = frozenset[int]().union(*(ranges[site] for site in stores))
        # Loads from ranges that the kernel may write.
        self.loads = frozenset(
            site for site, starts in ranges.items() if site not in stores and starts & self.written
        )

    def starts_of(self, sources: frozenset[Source]) -> frozenset[int]:
        """Where the ranges start to which these parameters and variables point."""
        regions = [self.m.globals.find(address_of(self.m, source)) for source in sources]
        return frozenset(region.start for region in regions if region is not None)

    def lead_nowhere(self, sources: frozenset[Source]) -> bool:
        """Whether a store's pointer is null, or lies between ranges, as of a part that is not used."""
        regions = self.m.globals.regions
        start = min((region.start for region in regions), default=0)
        stop = max((region.end for region in regions), default=0) + MAY_BE_EMPTY
        addresses = [address_of(self.m, source) for source in sources]
        are_null = bool(addresses) and not any(addresses)
        return are_null or any(start <= address < stop for address in addresses)

    def meet_store(self, start: int) -> None:
        """A store reaches a range, whatever its pointer was made of."""
        if self.are_only_read(start):
            self.written |= {start}
            self.strays += 1

    def are_only_read(self, start: int) -> bool:
        """Whether the launch writes nothing to the range that starts here."""
        return not (self.anywhere or start in self.written)
