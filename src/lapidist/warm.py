"""Compile ahead of need, many configurations at once: what plans of ordinary products use, into the cache on disk."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from lapidist.compiler import compile_kernel, kept_at
from lapidist.device import Device
from lapidist.errors import LapidistError
from lapidist.kernels import kernel_named
from lapidist.plans import Plan, make_plan
from lapidist.problem import Problem, dense_problem

LAYOUTS = ("rr", "rc", "cr")  # of A and B: as they come, a layer times its weights, a gradient of weights
ROWS = (1, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
LAYERS = ((8192, 8192), (28672, 8192), (8192, 28672))  # n and k in a transformer of 70 billion parameters
SQUARES = (128, 256, 512, 1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384)
MOST_COMPILERS = 8
RAGGED = 60  # products of odd extents, log-uniform in the range of the squares


class Build(NamedTuple):
    """One thing to compile: a registry row by name, its macros, an architecture."""

    kernel: str
    macros: tuple[tuple[str, object], ...]
    architecture: str


class Built(NamedTuple):
    build: Build
    seconds: float  # 0: the cache had it
    error: str | None


def ordinary(math_name: str) -> list[Problem]:
    """Products of every size that people multiply: squares, a transformer's layers, ragged ones."""
    shapes = [(m, n, k) for n, k in LAYERS for m in ROWS] + [(size, size, size) for size in SQUARES]
    aligned = [dense_problem(*shape, math_name, layout) for shape in shapes for layout in LAYOUTS]
    draw = random.Random(RAGGED)
    low, high = math.log(SQUARES[0]), math.log(SQUARES[-1])
    odd = [[round(math.exp(draw.uniform(low, high))) | 1 for _ in range(3)] for _ in range(RAGGED)]
    return aligned + [dense_problem(m, n, k, math_name) for m, n, k in odd]


def plans_of(problems: Iterable[Problem], device: Device) -> list[Plan]:
    """A plan for each problem that some kernel takes on this chip."""
    found = []
    for problem in problems:
        try:
            found.append(make_plan(problem, device))
        except LapidistError:
            continue  # a chip without the unit, or a type without the layout
    return found


def builds_of(plans: Iterable[Plan]) -> list[Build]:
    """What these plans need, each once."""
    return list(dict.fromkeys(Build(plan.kernel.name, plan.problem_macros, plan.device.architecture) for plan in plans))


def build_all(builds: Sequence[Build], threads: int | None = None) -> list[Built]:
    """Compile what the cache lacks. NVRTC works without Python's lock and, since CUDA 11.5, on several programs at once."""
    missing = [build for build in builds if not path_of(build).exists()]
    found = [Built(build, 0.0, None) for build in builds if build not in missing]
    with ThreadPoolExecutor(threads or compilers()) as pool:
        return found + list(pool.map(build_one, missing))


def compilers() -> int:
    """At once: one for each core, up to a few. Phases of NVRTC wait for each other in part, so many gain little; and with sixteen
    its heap was found corrupted twice, which hundreds of kernels in as many threads then did not repeat: unexplained."""
    return min(os.cpu_count() or 1, MOST_COMPILERS)


def build_one(build: Build) -> Built:
    kernel, start, error = kernel_named(build.kernel), time.perf_counter(), None
    try:
        compile_kernel(kernel.source, kernel.entry, dict(build.macros), build.architecture, kernel.options)
    except LapidistError as raised:
        error = str(raised).splitlines()[0]
    return Built(build, time.perf_counter() - start, error)


def path_of(build: Build) -> Path:
    kernel = kernel_named(build.kernel)
    return kept_at(kernel.source, kernel.entry, dict(build.macros), build.architecture, kernel.options)
