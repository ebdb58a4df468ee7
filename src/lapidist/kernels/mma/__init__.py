"""Families on tensor cores with wmma and mma.sync."""
