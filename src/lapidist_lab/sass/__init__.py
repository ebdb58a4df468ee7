"""What the compiler made of a kernel, without running it: registers, spills, and the instructions of its main
loop.
"""

from lapidist_lab.sass.analysis import Static, analyse, binary_of, sample_problem

__all__ = ["Static", "analyse", "binary_of", "sample_problem"]
