"""Whole CUDA programs, whose kernels run in the machine: they call a stand-in for the CUDA runtime."""
