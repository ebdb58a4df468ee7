"""The machine: a PTX virtual machine in NumPy that runs the same Launch as the GPU driver."""

from lapidist.machine.counters import Counts
from lapidist.machine.faults import MachineFault, PtxError
from lapidist.machine.foreign import run_ptx
from lapidist.machine.run import Report, run

__all__ = ["Counts", "MachineFault", "PtxError", "Report", "run", "run_ptx"]
