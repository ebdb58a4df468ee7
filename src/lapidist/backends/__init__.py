"""Backends, which run a plan: a GPU, the machine, or NumPy on the host."""
