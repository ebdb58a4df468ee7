"""CUDA C++ to binaries, and the cache of those."""
