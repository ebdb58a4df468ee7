"""Hopper's warpgroup matrix multiply."""
