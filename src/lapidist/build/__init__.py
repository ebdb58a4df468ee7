"""CUDA C++ compiled to binaries, and their cache."""
