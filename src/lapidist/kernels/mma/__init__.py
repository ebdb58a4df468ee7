"""Tensor cores by wmma and mma.sync."""
