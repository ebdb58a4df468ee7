"""The machine: a PTX virtual machine in NumPy that runs the same Launch as the GPU driver."""

from lapidist.machine.authors.checks import check, check_sequence, kernel_launch
from lapidist.machine.authors.findings import Finding, Findings
from lapidist.machine.authors.timeline import trace_of
from lapidist.machine.counters import Counts
from lapidist.machine.faults import MachineFault, PtxError
from lapidist.machine.foreign import run_ptx
from lapidist.machine.run import Report, run

__all__ = [
    "Counts",
    "Finding",
    "Findings",
    "MachineFault",
    "PtxError",
    "Report",
    "check",
    "check_sequence",
    "kernel_launch",
    "run",
    "run_ptx",
    "trace_of",
]
