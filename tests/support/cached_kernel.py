"""A kernel for tests of the cache, which compiles at once."""

from __future__ import annotations

from pathlib import Path

from lapidist.build.compiler import cache_key, compile_options, compile_source
from lapidist.launch import Binary

SOURCE = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }'
OTHER = SOURCE.replace("2.0f", "3.0f")
OPTIONS = compile_options("sm_90a")
DAY = 86400


def build(text: str = SOURCE) -> Binary:
    return compile_source(text, "twice", OPTIONS, "sm_90a", "twice.cu")


def code(binary: Binary) -> tuple[str, bytes]:
    return binary.ptx, binary.cubin


def key(text: str = SOURCE) -> str:
    return cache_key(text, "twice", OPTIONS)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}
