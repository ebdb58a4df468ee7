"""The machine: a PTX virtual machine in NumPy that runs the same Launch as the GPU driver."""

from lapidist.machine.run import Report, run

__all__ = ["Report", "run"]
