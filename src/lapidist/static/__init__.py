"""What the compiler made of a kernel, without running it: registers, spills, and the instructions of its main
loop.
"""

from lapidist.static.analysis import Static, analyse, binary_of, sample_problem

__all__ = ["Static", "analyse", "binary_of", "sample_problem"]
