"""The backend for NVIDIA GPUs, on top of the driver."""
