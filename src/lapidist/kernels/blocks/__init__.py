"""A tile for each block."""
