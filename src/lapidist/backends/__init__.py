"""What runs a plan: a GPU, or NumPy on the host."""
