"""What becomes of a sum before it is stored: a Python function, traced once, run by NumPy and by every
kernel family."""
