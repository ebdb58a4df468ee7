"""A plan on an NVIDIA GPU, through its driver."""
