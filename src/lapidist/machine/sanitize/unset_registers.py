"""Sums that begin in a register which nobody wrote.

Registers that are never written share the program's first values, and moves pass values on as they are. So
a sum whose old value is one of these starts from what the chip's register held by chance."""

from __future__ import annotations

from lapidist.machine.faults import Uninitialised
from lapidist.machine.instructions.warpgroup_mma import PendingProduct
from lapidist.machine.lanes import Lanes
from lapidist.machine.state import Machine


class UnsetRegisters:
    """`sites` are the sums, by block of code, that may begin so."""

    def __init__(self, m: Machine) -> None:
        self.m, self.sites = m, m.program.unset_sums
        self.first = {id(array) for array in m.program.zeros}

    def check_products(self, p: PendingProduct) -> None:
        """Report a wgmma that adds to registers which nobody wrote."""
        if any(id(array) in self.first or id(array.base) in self.first for array in p.c):
            rule = "a sum begins in registers of D that were never set"
            self.m.report(self.m.fault(Uninitialised, rule, p.site, p.g, name="unset-register"))

    def check(self, lanes: Lanes, number: int) -> None:
        """Report the block's sums whose register still holds the program's first value."""
        for site, name in self.sites[number]:
            value = lanes.cohort.registers[self.m.program.slots[name]]
            if id(value) in self.first:
                rule = f"a sum begins in {name}, which was never set"
                self.m.report(self.m.fault(Uninitialised, rule, site, lanes, name="unset-register"))
